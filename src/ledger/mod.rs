//! The durable truth in MySQL or MariaDB: the only user of `sqlx` and of the tables in `migrations/`.
//!
//! Nothing here knows Redis, and nothing here decides when to flush. All statements work on MySQL ≥ 8.0 and MariaDB ≥ 10.6.
//! Whoever writes `thumb` or the counts locks the row of `flush_state` first, so such transactions come one after the other.

mod apply;
mod audit;
mod cold;
mod counts;
mod erased;
mod error;
mod gone;
mod import;
mod inspect;
mod job_runs;
mod kinds;
mod layout;
mod lists;
mod lock;
mod migrate;
mod mirror;
mod outbox;
mod outdated;
mod pages;
mod prune;
mod quarantine;
mod reach;
mod refuse;
mod repair;
mod session;
mod sized;
mod stage;
mod state;

use std::sync::Arc;
use std::time::Duration;

use sqlx::MySqlPool;
use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions};

pub use apply::{Applied, Chunk};
pub use audit::{Audit, CountDifference};
pub use cold::UserThumbs;
pub use erased::{Erased, Erasure, ErasureOf, OpenErasure};
pub use error::{LedgerError, NotLetIn};
pub use gone::{ErasedLikes, TargetState};
pub use import::{ImportChunk, Imported};
pub use inspect::{DatabaseInfo, Misfit, RIGHTS, RIGHTS_TO_MIGRATE};
pub use job_runs::{JobDone, JobEnd, JobRun};
pub use layout::LayoutLock;
pub use lists::{KindNumbers, Liked, LikedPlace, Liker};
pub use migrate::Migrations;
pub use mirror::MirrorColumn;
use mirror::Mirrors;
pub use outbox::{FeedChange, FeedEvent, FeedMark, FeedState, FeedStatus};
use outdated::Outdated;
pub use pages::{CountCursor, CountRow, Page, ThumbCursor, ThumbRow};
pub use quarantine::{QuarantineRow, Quarantined, Subject};
use reach::Reach;
pub use repair::CountRepair;
use session::Session;
pub use state::{FlushState, Layout, Progress};

/// Bounds of the use of MySQL.
#[derive(Debug, Clone)]
pub struct LedgerOptions {
    /// Connections in the pool.
    pub connections_max: u32,
    /// Longest wait for a connection, the time to make a new one included.
    pub acquire_timeout: Duration,
    /// Longest wait for one statement; a quarter of it, in whole seconds and at least one, is the longest wait for a row lock.
    pub statement_timeout: Duration,
}

impl Default for LedgerOptions {
    fn default() -> Self {
        Self {
            connections_max: 10,
            acquire_timeout: Duration::from_secs(3),
            statement_timeout: Duration::from_secs(10),
        }
    }
}

/// A handle on the database; clones share its connections.
#[derive(Debug, Clone)]
pub struct Ledger {
    pool: MySqlPool,
    statement_timeout: Duration,
    mirrors: Arc<Mirrors>,
    outdated: Outdated,
    reach: Reach,
}

/// Prepared statements kept by a connection: more than all that stand in this module, in all their sizes.
const STATEMENTS_MAX: usize = 128;

impl Ledger {
    /// Makes a handle without connecting yet; must be called inside of a tokio runtime.
    pub fn connect(url: &str, options: LedgerOptions) -> Result<Self, LedgerError> {
        let connect = parse_url(url)
            .map_err(LedgerError::Url)?
            .charset("utf8mb4")
            .timezone(Some("+00:00".to_owned()))
            // The whole sql_mode is set below.
            .pipes_as_concat(false)
            .no_engine_substitution(false)
            .statement_cache_capacity(STATEMENTS_MAX);
        let connect = sqlx::ConnectOptions::disable_statement_logging(connect);
        let lock_wait = (options.statement_timeout / 4).as_secs().max(1);
        let outdated = Outdated::default();
        let spares = outdated.clone();
        let pool = MySqlPoolOptions::new()
            .max_connections(options.connections_max.max(1))
            .acquire_timeout(options.acquire_timeout)
            .after_connect(move |connection, _| {
                Box::pin(async move { prepare_session(connection, lock_wait).await })
            })
            .before_acquire(move |_, metadata| {
                let use_it = spares.spares(metadata.age);
                Box::pin(async move { Ok(use_it) })
            })
            .connect_lazy_with(connect);
        Ok(Self {
            pool,
            statement_timeout: options.statement_timeout,
            mirrors: Arc::default(),
            outdated,
            reach: Reach::default(),
        })
    }

    /// Asks the server for a sign of life.
    pub async fn ping(&self) -> Result<(), LedgerError> {
        self.session().await?.text("DO 1").await
    }

    /// Connections of the pool: all, and those that nobody uses.
    pub fn connections(&self) -> (u32, usize) {
        (self.pool.size(), self.pool.num_idle())
    }

    /// Closes all connections, after those in use have been given back.
    pub async fn close(&self) {
        self.pool.close().await;
    }

    /// How many prepared statements one connection of the pool keeps: fewer than STATEMENTS_MAX, whatever it was asked.
    #[doc(hidden)]
    pub async fn statements_kept(&self) -> Result<usize, LedgerError> {
        let connection = self.pool.acquire().await?;
        Ok(sqlx::Connection::cached_statements_size(&*connection))
    }

    async fn session(&self) -> Result<Session, LedgerError> {
        let connection = match self.pool.acquire().await {
            Err(sqlx::Error::PoolTimedOut) => return Err(self.reach.why(&self.pool).await),
            other => other?,
        };
        let outdated = self.outdated.clone();
        Ok(Session::new(connection, self.statement_timeout, outdated))
    }
}

/// Whether a URL can be used, for whoever reads settings; repeats nothing that may be a password.
pub fn check_url(url: &str) -> Result<(), &'static str> {
    parse_url(url).map(drop)
}

fn parse_url(url: &str) -> Result<MySqlConnectOptions, &'static str> {
    if !["mysql://", "mariadb://"]
        .iter()
        .any(|scheme| url.starts_with(scheme))
    {
        return Err("it must begin with mysql://");
    }
    const FORM: &str = "it must be mysql://user:password@host:port/database, with # / ? : @ % in user and password as %23 %2F %3F %3A %40 %25";
    let options: MySqlConnectOptions = url.parse().map_err(|_| FORM)?;
    // A # or ? in the password ends the address there, and may leave something that can be read.
    match options.get_database() {
        None | Some("") => Err(FORM),
        Some(_) => Ok(options),
    }
}

/// Makes a session independent of the server's and the account's defaults.
async fn prepare_session(
    connection: &mut sqlx::MySqlConnection,
    lock_wait_seconds: u64,
) -> Result<(), sqlx::Error> {
    // READ COMMITTED: no gap locks, and each statement sees what was committed before it, also behind a row lock.
    // sql_mode: what does not fit is an error, never a warning and a changed value.
    let text = format!(
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; \
         SET SESSION sql_mode = 'STRICT_TRANS_TABLES,STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,\
ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION,ONLY_FULL_GROUP_BY', \
         autocommit = 1, \
         innodb_lock_wait_timeout = {lock_wait_seconds}, lock_wait_timeout = {lock_wait_seconds}"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(text))
        .execute(connection)
        .await?;
    Ok(())
}

/// Names and texts of the statements that answer requests, in their largest size: for EXPLAIN.
pub fn request_statements() -> Vec<(&'static str, String)> {
    [cold::statements(), lists::statements()].concat()
}

#[cfg(test)]
mod tests {
    use super::check_url;

    #[test]
    fn a_password_that_ends_the_address_early_is_told_apart() {
        for url in [
            "mysql://u:p#w@h:3306/thumbd",
            "mysql://u:1#w@h:3306/thumbd",
            "mysql://u:p/w@h:3306/thumbd",
            "mysql://u:1?w@h:3306/thumbd",
        ] {
            let problem = check_url(url).unwrap_err();
            assert!(problem.contains("%23 %2F"), "{url}: {problem}");
        }
        for url in ["mysql://u:p%23%2F%40@h/thumbd", "mariadb://u@h:1/x"] {
            assert_eq!(check_url(url), Ok(()), "{url}");
        }
    }
}
