//! The state that answers at once: the only user of `redis`, of the scripts in `lua/` and of key names.
//!
//! Every method is one atomic script or a read. What they mean together (cold loads, flush, recovery) is decided above.

mod error;
mod fill;
mod forget;
mod gather;
mod keys;
mod lease;
mod lookup;
mod partition;
mod reply;
mod scan;
mod scripts;
mod server;
mod thumb;
mod undo;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{Client, Cmd, Value};

pub use error::HotError;
pub use fill::{ColdCount, ColdUser};
use keys::Keys;
pub use lookup::{Looked, State};
pub use partition::{Peek, Reset, Sealed, TTL_SPREAD, Unpin};
pub use scan::{Resident, ResidentKey};
use scripts::{Script, checked};
pub use server::ServerInfo;
pub use thumb::{Answer, Known, Thumb};
pub use undo::{Undo, Undone};

/// A random token: what is resident under another one is cold.
pub type Generation = String;

/// When something was found cold: a fill is accepted only if nothing can have happened since.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Moment {
    /// The partition's generation.
    pub generation: Generation,
    /// The partition's last sealed id.
    pub sealed: u64,
}

/// How to reach Redis, and the bounds of its use.
#[derive(Debug, Clone)]
pub struct HotOptions {
    /// `redis://` or `rediss://host:port/db`, or `redis+unix:///path`.
    pub url: String,
    /// First part of all key names.
    pub prefix: String,
    /// Number of partitions.
    pub partitions: u16,
    /// Length of a slice in ms.
    pub slice_ms: u64,
    /// Longest wait for a connection.
    pub connect_timeout: Duration,
    /// Longest wait for a reply of a request; jobs wait ten times as long, because their replies are long.
    pub response_timeout: Duration,
    /// Operations in one script call.
    pub gather_operations_max: usize,
    /// Calls under way at once per partition and direction.
    pub gather_calls_max: usize,
    /// Operations that wait per partition and direction.
    pub queue_operations_max: usize,
}

impl HotOptions {
    fn layout(&self) -> String {
        format!("{}/{}", self.partitions, self.slice_ms)
    }
}

/// A handle on Redis; clones share its connections.
#[derive(Clone)]
pub struct Hot(Arc<Inner>);

struct Inner {
    options: HotOptions,
    /// For requests.
    requests: ConnectionManager,
    /// For jobs, whose long replies must not stand in front of requests.
    jobs: ConnectionManager,
    partitions: Vec<Part>,
}

/// What a process keeps per partition.
struct Part {
    keys: Keys,
    line: thumb::Line,
    thumbs: gather::Gatherer,
    unthumbs: gather::Gatherer,
}

impl Hot {
    /// Connects; fails if Redis cannot be reached now. Later it reconnects by itself.
    pub async fn connect(options: HotOptions) -> Result<Self, HotError> {
        let client = Client::open(options.url.as_str())?;
        let requests = connect(&client, &options, options.response_timeout).await?;
        let jobs = connect(&client, &options, options.response_timeout * 10).await?;
        let partitions = (0..options.partitions)
            .map(|partition| {
                let keys = Keys::new(&options.prefix, partition);
                let line = thumb::Line::new(&options, keys.clone(), requests.clone());
                Part {
                    thumbs: gather::Gatherer::start(line.clone(), true, &options),
                    unthumbs: gather::Gatherer::start(line.clone(), false, &options),
                    line,
                    keys,
                }
            })
            .collect();
        Ok(Self(Arc::new(Inner {
            options,
            requests,
            jobs,
            partitions,
        })))
    }

    /// First part of all key names.
    pub fn prefix(&self) -> &str {
        &self.0.options.prefix
    }

    /// Number of partitions.
    pub fn partitions(&self) -> u16 {
        self.0.options.partitions
    }

    /// What the settings make of the keys: programs that do not agree on it must not work on the same ones.
    pub fn layout(&self) -> String {
        self.0.options.layout()
    }

    /// Length of a slice in ms.
    pub fn slice_ms(&self) -> u64 {
        self.0.options.slice_ms
    }

    fn part(&self, partition: u16) -> &Part {
        &self.0.partitions[usize::from(partition)]
    }

    fn keys(&self, partition: u16) -> &Keys {
        &self.part(partition).keys
    }

    /// Sends a script call of a job.
    async fn job(&self, script: &Script, call: &Cmd) -> Result<Value, HotError> {
        bounded(&self.0.options, 10, script.send(&self.0.jobs, call)).await
    }

    /// Sends a script call of a request.
    async fn request(&self, script: &Script, call: &Cmd) -> Result<Value, HotError> {
        bounded(&self.0.options, 1, script.send(&self.0.requests, call)).await
    }

    /// Sends a command of a job.
    async fn job_command(&self, command: &Cmd) -> Result<Value, HotError> {
        let mut connection = self.0.jobs.clone();
        bounded(&self.0.options, 10, async {
            Ok(checked(connection.send_packed_command(command).await)?)
        })
        .await
    }
}

impl std::fmt::Debug for Hot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The URL may hold a password.
        f.debug_struct("Hot")
            .field("prefix", &self.0.options.prefix)
            .field("partitions", &self.0.options.partitions)
            .finish_non_exhaustive()
    }
}

async fn connect(
    client: &Client,
    options: &HotOptions,
    response_timeout: Duration,
) -> Result<ConnectionManager, HotError> {
    // No retries inside: while Redis is down each request asks anew and is told at once.
    let config = ConnectionManagerConfig::new()
        .set_number_of_retries(0)
        .set_connection_timeout(Some(options.connect_timeout))
        .set_response_timeout(Some(response_timeout));
    let connecting = ConnectionManager::new_with_config(client.clone(), config);
    match tokio::time::timeout(options.connect_timeout * 2, connecting).await {
        Ok(connected) => connected.map_err(|error| match HotError::from(error) {
            // Nothing was sent yet.
            HotError::Unknown(Some(error)) => HotError::Unreachable(error),
            other => other,
        }),
        Err(_) => Err(HotError::Unknown(None)),
    }
}

/// The client bounds waiting for a reply and for a connection one by one; this bounds both together.
async fn bounded<T>(
    options: &HotOptions,
    times: u32,
    call: impl Future<Output = Result<T, HotError>>,
) -> Result<T, HotError> {
    let limit = options.response_timeout * times + options.connect_timeout;
    match tokio::time::timeout(limit, call).await {
        Ok(result) => result,
        Err(_) => Err(HotError::Unknown(None)),
    }
}
