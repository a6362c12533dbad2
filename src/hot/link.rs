//! A connection to one server that is left for a new one when it breaks, and also when it only hangs.
//!
//! The client notices a connection that was closed. One whose peer went away without a word (a firewall that forgot it, a server
//! that moved) looks open for ever, and each call on it ends in its time limit. So the first call that does leaves it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::io::tcp::TcpSettings;
use redis::{Client, Cmd, ConnectionInfo, Pipeline, RedisResult, Value};

use super::HotError;

/// How long a connection and a reply are waited for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waits {
    pub(super) connect: Duration,
    pub(super) response: Duration,
}

impl Waits {
    /// A client whose sockets suit many small calls in flight.
    pub(super) fn client(self, info: ConnectionInfo) -> RedisResult<Client> {
        // Several calls fly at once: without NODELAY the second waits for the reply to the first. What is not acknowledged in time
        // is not sent again later either.
        let tcp = TcpSettings::default().set_nodelay(true);
        #[cfg(target_os = "linux")]
        let tcp = tcp.set_user_timeout(self.response);
        Client::open(info.set_tcp_settings(tcp))
    }
}

/// Clones share the connection.
#[derive(Clone)]
pub(super) struct Link(Arc<Inner>);

struct Inner {
    client: Client,
    config: ConnectionManagerConfig,
    /// The connection of now, and how many there were before it.
    now: Mutex<(u64, ConnectionManager)>,
}

impl Link {
    /// Connects with the first command.
    pub(super) fn lazy(info: ConnectionInfo, waits: Waits) -> RedisResult<Self> {
        let client = waits.client(info)?;
        // No retries inside: while Redis is down each request asks anew and is told at once.
        let config = ConnectionManagerConfig::new()
            .set_number_of_retries(0)
            .set_connection_timeout(Some(waits.connect))
            .set_response_timeout(Some(waits.response));
        let connection = ConnectionManager::new_lazy_with_config(client.clone(), config.clone())?;
        Ok(Self(Arc::new(Inner {
            client,
            config,
            now: Mutex::new((0, connection)),
        })))
    }

    /// Connects; fails if the server cannot be reached now.
    pub(super) async fn connect(info: ConnectionInfo, waits: Waits) -> Result<Self, HotError> {
        let link = Self::lazy(info, waits)?;
        let ping = redis::cmd("PING");
        match tokio::time::timeout(waits.connect * 2, link.send(&ping)).await {
            Ok(Ok(_)) => Ok(link),
            Ok(Err(error)) => Err(match HotError::from(error) {
                // Nothing was sent yet.
                HotError::Unknown(Some(error)) => HotError::Unreachable(error),
                other => other,
            }),
            Err(_) => Err(HotError::Unknown(None)),
        }
    }

    /// Sends a command. An error that the server answers is an error here too.
    pub(super) async fn send(&self, command: &Cmd) -> RedisResult<Value> {
        let (number, mut connection) = self.now();
        let result = connection.send_packed_command(command).await;
        self.look(number, &result);
        known(result)
    }

    /// Sends a command to a server that is just being given the slot of its keys.
    pub(super) async fn send_asking(&self, command: &Cmd) -> RedisResult<Value> {
        let mut both = Pipeline::with_capacity(2);
        both.cmd("ASKING").add_command(command.clone());
        let (number, mut connection) = self.now();
        let result = connection.send_packed_commands(&both, 1, 1).await;
        self.look(number, &result);
        known(result.map(|mut values| values.pop().unwrap_or(Value::Nil)))
    }

    fn look<T>(&self, number: u64, result: &RedisResult<T>) {
        if result.as_ref().is_err_and(redis::RedisError::is_timeout) {
            self.leave(number);
        }
    }

    fn now(&self) -> (u64, ConnectionManager) {
        let now = self.0.now.lock().unwrap_or_else(PoisonError::into_inner);
        now.clone()
    }

    /// Lets the next call connect anew, unless somebody has done that already.
    fn leave(&self, number: u64) {
        let mut now = self.0.now.lock().unwrap_or_else(PoisonError::into_inner);
        if now.0 == number
            && let Ok(next) = ConnectionManager::new_lazy_with_config(
                self.0.client.clone(),
                self.0.config.clone(),
            )
        {
            *now = (number + 1, next);
        }
    }
}

/// An error that the server answers as an error.
pub(super) fn known(result: RedisResult<Value>) -> RedisResult<Value> {
    match result {
        Ok(Value::ServerError(error)) => Err(error.into()),
        other => other,
    }
}
