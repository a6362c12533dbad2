//! A primary that sentinels watch: where it is now, and that nothing is sent to a server that is none any more.
//!
//! A connection that breaks is not opened again at the same place: a primary that comes back from a crash may take writes for a
//! moment, before the sentinels make it a replica and it forgets them. So each new connection begins with a question to the sentinels.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionInfo, ErrorKind, RedisError, RedisResult,
    ServerErrorKind, Value,
};

use super::address::at;
use super::link::{Waits, known};
use super::trouble::Trouble;
use crate::limits::TOPOLOGY_PAUSE;

pub(super) type Place = (String, u16);

/// Clones share the connection.
#[derive(Clone)]
pub(super) struct Watched(Arc<Inner>);

struct Inner {
    sentinels: Vec<Client>,
    name: String,
    /// How to speak to the primary.
    server: ConnectionInfo,
    waits: Waits,
    now: Mutex<Now>,
    /// The last search that found nothing.
    failed: tokio::sync::Mutex<Option<(Instant, RedisError)>>,
    trouble: Arc<Trouble>,
}

#[derive(Default)]
struct Now {
    /// How many primaries were left.
    number: u64,
    primary: Option<Primary>,
}

#[derive(Clone)]
struct Primary {
    place: Place,
    connection: MultiplexedConnection,
}

impl Watched {
    /// Asks the sentinels and connects; fails if there is no primary now.
    pub(super) async fn connect(
        sentinels: Vec<ConnectionInfo>,
        name: String,
        server: ConnectionInfo,
        waits: Waits,
        trouble: Arc<Trouble>,
    ) -> RedisResult<Self> {
        let clients = sentinels.into_iter().map(|info| waits.client(info));
        let watched = Self(Arc::new(Inner {
            sentinels: clients.collect::<RedisResult<_>>()?,
            name,
            server,
            waits,
            now: Mutex::default(),
            failed: tokio::sync::Mutex::default(),
            trouble,
        }));
        watched.primary().await?;
        Ok(watched)
    }

    /// Sends a command to the primary. One that breaks, hangs or says that it is a replica is left.
    pub(super) async fn send(&self, command: &Cmd) -> RedisResult<Value> {
        let (number, mut primary) = self.primary().await?;
        let result = known(primary.connection.send_packed_command(command).await);
        if let Err(error) = &result
            && matches!(
                error.kind(),
                ErrorKind::Io
                    | ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown)
            )
        {
            self.leave(number);
        }
        result
    }

    /// Leaves the primary if the sentinels name another one by now: an old one that is cut off from them may not know it.
    pub(super) async fn look(&self) {
        let (number, here) = {
            let now = self.now();
            let place = now.primary.as_ref().map(|primary| primary.place.clone());
            (now.number, place)
        };
        if let (Some(here), Ok(named)) = (here, self.ask().await)
            && here != named
        {
            self.leave(number);
        }
    }

    /// Where the primary is, if it is known now.
    pub(super) fn place(&self) -> Option<Place> {
        self.now()
            .primary
            .as_ref()
            .map(|primary| primary.place.clone())
    }

    fn now(&self) -> std::sync::MutexGuard<'_, Now> {
        self.0.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leave(&self, number: u64) {
        let mut now = self.now();
        if now.number == number {
            now.number += 1;
            now.primary = None;
        }
    }

    fn connected(&self) -> Option<(u64, Primary)> {
        let now = self.now();
        now.primary.clone().map(|primary| (now.number, primary))
    }

    /// The primary; looked for if there is none. One looks, the others wait for it.
    async fn primary(&self) -> RedisResult<(u64, Primary)> {
        if let Some(found) = self.connected() {
            return Ok(found);
        }
        let mut failed = self.0.failed.lock().await;
        if let Some(found) = self.connected() {
            return Ok(found);
        }
        if let Some((at, error)) = &*failed
            && at.elapsed() < TOPOLOGY_PAUSE
        {
            return Err(error.clone());
        }
        match self.find().await {
            Ok(primary) => {
                // It may have been promoted, and know less than the one before.
                self.0.trouble.note();
                let mut now = self.now();
                now.primary = Some(primary.clone());
                Ok((now.number, primary))
            }
            Err(error) => {
                *failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    async fn find(&self) -> RedisResult<Primary> {
        let place = self.ask().await.map_err(|cause| {
            let name = &self.0.name;
            let detail = cause.map_or_else(|| name.clone(), |cause| format!("{name} ({cause})"));
            let why = "no sentinel names a primary";
            RedisError::from((ErrorKind::Client, why, detail))
        })?;
        let client = self.0.waits.client(at(&self.0.server, &place.0, place.1))?;
        let connecting = async {
            let mut connection = self.connection(&client).await?;
            let role = known(connection.send_packed_command(&redis::cmd("ROLE")).await)?;
            match role {
                Value::Array(role) if text(role.first()) == Some("master") => Ok(connection),
                _ => Err(nothing_sent("what the sentinels name is no primary")),
            }
        };
        match tokio::time::timeout(self.0.waits.connect, connecting).await {
            Ok(Ok(connection)) => Ok(Primary { place, connection }),
            Ok(Err(error)) if error.kind() == ErrorKind::Io && !error.is_connection_refusal() => {
                Err(nothing_sent("the primary cannot be reached"))
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(nothing_sent("the primary cannot be reached in time")),
        }
    }

    /// The place that most sentinels name; more than half of all are not waited for. Where none names one, what the last said.
    async fn ask(&self) -> Result<Place, Option<RedisError>> {
        let mut answers: FuturesUnordered<_> = self
            .0
            .sentinels
            .iter()
            .map(|sentinel| {
                let answer = self.ask_one(sentinel);
                tokio::time::timeout(self.0.waits.connect, answer)
            })
            .collect();
        let mut votes: HashMap<Place, usize> = HashMap::new();
        let mut cause = None;
        while let Some(answer) = answers.next().await {
            match answer {
                Ok(Ok(Some(place))) => {
                    let count = votes.entry(place.clone()).or_default();
                    *count += 1;
                    if *count * 2 > self.0.sentinels.len() {
                        return Ok(place);
                    }
                }
                Ok(Err(error)) => cause = Some(error),
                Ok(Ok(None)) | Err(_) => {}
            }
        }
        let most = votes.into_iter().max_by_key(|(_, count)| *count);
        most.map(|(place, _)| place).ok_or(cause)
    }

    async fn ask_one(&self, sentinel: &Client) -> RedisResult<Option<Place>> {
        let mut connection = self.connection(sentinel).await?;
        let mut command = redis::cmd("SENTINEL");
        command.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.0.name);
        let answer = known(connection.send_packed_command(&command).await)?;
        let Value::Array(place) = answer else {
            return Ok(None);
        };
        let port = text(place.get(1)).and_then(|port| port.parse().ok());
        Ok(text(place.first()).map(str::to_owned).zip(port))
    }

    async fn connection(&self, client: &Client) -> RedisResult<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.0.waits.connect))
            .set_response_timeout(Some(self.0.waits.response));
        client
            .get_multiplexed_async_connection_with_config(&config)
            .await
    }
}

fn text(value: Option<&Value>) -> Option<&str> {
    match value? {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

fn nothing_sent(why: &'static str) -> RedisError {
    RedisError::from((ErrorKind::Client, why))
}
