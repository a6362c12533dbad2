//! Why no connection was to be had: the pool only says that time has run out, also where the server has refused each try at once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sqlx::mysql::MySqlConnectOptions;
use sqlx::{Connection as _, MySqlConnection, MySqlPool};
use tokio::sync::Mutex;

use super::{Ledger, LedgerError};
use crate::limits::{REACH_PAUSE, REACH_WAIT};

/// What the last look has found: for a while it is the answer for all who have waited in vain.
#[derive(Debug, Clone, Default)]
pub(super) struct Reach(Arc<Mutex<Option<Look>>>);

/// One look: when, and what it found.
type Look = (Instant, Option<Refusal>);

/// What a server, or the way to it, says to who connects.
#[derive(Debug, Clone)]
struct Refusal {
    kind: std::io::ErrorKind,
    text: String,
}

impl Reach {
    /// The error of a caller for whom the pool had no connection in time. One looks, others share what it finds.
    pub(super) async fn why(&self, pool: &MySqlPool) -> LedgerError {
        let mut last = self.0.lock().await;
        let fresh = last.take().filter(|(at, _)| at.elapsed() < REACH_PAUSE);
        let (at, found) = match fresh {
            Some(fresh) => fresh,
            None => (Instant::now(), refusal(&pool.connect_options()).await),
        };
        let found = &last.insert((at, found)).1;
        LedgerError::Unavailable(match found {
            Some(found) => std::io::Error::new(found.kind, found.text.clone()).into(),
            None => sqlx::Error::PoolTimedOut,
        })
    }
}

/// What whoever connects is told at once. Nothing is the answer of a server whose connections are all in use, and of one that hangs.
async fn refusal(options: &MySqlConnectOptions) -> Option<Refusal> {
    match connect(options, REACH_WAIT).await {
        Err(LedgerError::Unavailable(sqlx::Error::Io(error))) => Some(Refusal {
            kind: error.kind(),
            text: error.to_string(),
        }),
        _ => None,
    }
}

/// Connects by the side of the pool; an error that is the network's names the server.
async fn connect(options: &MySqlConnectOptions, wait: Duration) -> Result<(), LedgerError> {
    let connecting = async {
        let connection = MySqlConnection::connect_with(options).await?;
        connection.close().await
    };
    match tokio::time::timeout(wait, connecting).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(sqlx::Error::Io(error))) => {
            let text = format!("{}: {error}", place(options));
            let named = std::io::Error::new(error.kind(), text);
            Err(sqlx::Error::Io(named).into())
        }
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(LedgerError::Timeout(wait)),
    }
}

fn place(options: &MySqlConnectOptions) -> String {
    match options.get_socket() {
        Some(path) => path.display().to_string(),
        None => format!("{}:{}", options.get_host(), options.get_port()),
    }
}

impl Ledger {
    /// Connects, and says why if that is impossible.
    pub async fn reach(&self) -> Result<(), LedgerError> {
        match self.pool.acquire().await {
            Ok(_) => Ok(()),
            Err(sqlx::Error::PoolTimedOut) => {
                let timeout = self.pool.options().get_acquire_timeout();
                connect(&self.pool.connect_options(), timeout).await
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The user and the database that the address names.
    pub fn named(&self) -> (String, String) {
        let options = self.pool.connect_options();
        let database = options.get_database().unwrap_or_default();
        (options.get_username().to_owned(), database.to_owned())
    }
}
