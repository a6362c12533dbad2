//! A connection to Redis that is left for a new one when it breaks, and also when it only hangs.
//!
//! The client notices a connection that was closed. One whose peer went away without a word (a firewall that forgot it, a server
//! that moved) looks open for ever, and each call on it ends in its time limit. So the first call that does leaves it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::io::tcp::TcpSettings;
use redis::{Client, Cmd, IntoConnectionInfo as _, RedisResult, Value};

use super::{HotError, HotOptions};

/// Clones share the connection.
#[derive(Clone)]
pub(super) struct Wire(Arc<Inner>);

struct Inner {
    client: Client,
    config: ConnectionManagerConfig,
    /// The connection of now, and how many there were before it.
    now: Mutex<(u64, ConnectionManager)>,
}

impl Wire {
    /// Connects; fails if Redis cannot be reached now.
    pub(super) async fn connect(
        options: &HotOptions,
        response_timeout: Duration,
    ) -> Result<Self, HotError> {
        let info = options.url.as_str().into_connection_info()?;
        // Several calls fly at once: without NODELAY the second waits for the reply to the first. What is not acknowledged in time
        // is not sent again later either.
        let tcp = TcpSettings::default().set_nodelay(true);
        #[cfg(target_os = "linux")]
        let tcp = tcp.set_user_timeout(response_timeout);
        let client = Client::open(info.set_tcp_settings(tcp))?;
        // No retries inside: while Redis is down each request asks anew and is told at once.
        let config = ConnectionManagerConfig::new()
            .set_number_of_retries(0)
            .set_connection_timeout(Some(options.connect_timeout))
            .set_response_timeout(Some(response_timeout));
        let connecting = ConnectionManager::new_with_config(client.clone(), config.clone());
        match tokio::time::timeout(options.connect_timeout * 2, connecting).await {
            Ok(Ok(connection)) => Ok(Self(Arc::new(Inner {
                client,
                config,
                now: Mutex::new((0, connection)),
            }))),
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
        if result.as_ref().is_err_and(redis::RedisError::is_timeout) {
            self.leave(number);
        }
        match result {
            Ok(Value::ServerError(error)) => Err(error.into()),
            other => other,
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
