//! The state that answers at once: the only user of `redis`, of the scripts in `lua/` and of key names.
//!
//! Every method is one atomic script or a read. What they mean together (cold loads, flush, recovery) is decided above.

mod address;
mod cluster;
mod error;
mod feed;
mod fill;
mod forget;
mod gather;
mod gone;
mod heartbeat;
mod held;
mod inspect;
mod keys;
mod lease;
mod limit;
mod link;
mod lookup;
mod partition;
mod raise;
mod reply;
mod scan;
mod scripts;
mod sentinel;
mod server;
mod thumb;
mod trouble;
mod undo;
mod wire;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};

pub use address::check_url;
pub use error::HotError;
pub use fill::{ColdCount, ColdUser};
pub use heartbeat::Heard;
pub use held::{Held, HeldThumb, Of};
pub use inspect::{Inspected, RedisConfig};
use keys::Keys;
pub use limit::{Limit, Limits};
pub use lookup::{Looked, State};
pub use partition::{Peek, Reset, Sealed, TTL_SPREAD, Unpin};
pub use scan::{Resident, ResidentKey, ScanCursor};
use scripts::Script;
pub use server::{ServerInfo, Writes};
pub use thumb::{Answer, Known, Thumb};
use trouble::Trouble;
pub use undo::{Undo, Undone};
use wire::Wire;

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
    /// `redis://` or `rediss://host:port/db`, `redis+unix:///path`, `redis+cluster://host:port,…` or
    /// `redis+sentinel://host:port,…/name`.
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
    /// Whether an unlike of what is not liked is an entry too.
    pub keep_unlikes: bool,
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
    requests: Wire,
    /// For jobs, whose long replies must not stand in front of requests.
    jobs: Wire,
    partitions: Vec<Part>,
    trouble: Arc<Trouble>,
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
        Self::connect_limited(options, Limits::default()).await
    }

    /// The same, with limits on what one user may change.
    pub async fn connect_limited(options: HotOptions, limits: Limits) -> Result<Self, HotError> {
        let limits = Arc::new(limits);
        let trouble = Arc::new(Trouble::default());
        let requests = Wire::connect(&options, options.response_timeout, &trouble).await?;
        let jobs = Wire::connect(&options, options.response_timeout * 10, &trouble).await?;
        let partitions = (0..options.partitions)
            .map(|partition| {
                let keys = Keys::new(&options.prefix, partition);
                let line = thumb::Line::new(
                    &options,
                    Arc::clone(&limits),
                    keys.clone(),
                    requests.clone(),
                    Arc::clone(&trouble),
                );
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
            trouble,
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
        self.bounded(10, script.send(&self.0.jobs, call)).await
    }

    /// Sends a script call of a request.
    async fn request(&self, script: &Script, call: &Cmd) -> Result<Value, HotError> {
        self.bounded(1, script.send(&self.0.requests, call)).await
    }

    async fn bounded<T>(
        &self,
        times: u32,
        call: impl Future<Output = Result<T, HotError>>,
    ) -> Result<T, HotError> {
        bounded(&self.0.options, &self.0.trouble, times, call).await
    }

    /// Sends a command of a job.
    async fn job_command(&self, command: &Cmd) -> Result<Value, HotError> {
        self.bounded(10, async { Ok(self.0.jobs.send(command).await?) })
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

/// The client bounds waiting for a reply and for a connection one by one; this bounds both together.
async fn bounded<T>(
    options: &HotOptions,
    trouble: &Trouble,
    times: u32,
    call: impl Future<Output = Result<T, HotError>>,
) -> Result<T, HotError> {
    let limit = options.response_timeout * times + options.connect_timeout;
    let result = match tokio::time::timeout(limit, call).await {
        Ok(result) => result,
        Err(_) => Err(HotError::Unknown(None)),
    };
    trouble.look(&result);
    result
}
