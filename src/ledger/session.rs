//! One borrowed connection. Every statement is bounded in time, and a connection that was left in the middle of something is closed.
//!
//! sqlx gives a connection back to the pool when its guard is dropped, also when a future was cut off between a request and its
//! answer. It would then read the old answer first, but it does not keep count of a PREPARE that was cut off, and it waits for a
//! hung server while it holds the place in the pool; so does its own way of closing over TLS. Letting the socket go is cheap
//! and always right: the server rolls back.

use std::time::Duration;

use sqlx::mysql::{MySqlArguments, MySqlConnection, MySqlQueryResult, MySqlRow};
use sqlx::pool::PoolConnection;
use sqlx::query::Query;
use sqlx::{Executor, MySql};

use super::LedgerError;
use super::outdated::Outdated;

/// A query with its arguments.
pub(super) type Statement = Query<'static, MySql, MySqlArguments>;

/// A connection and what is known about its state.
pub(super) struct Session {
    /// Taken only by `drop`.
    connection: Option<PoolConnection<MySql>>,
    timeout: Duration,
    outdated: Outdated,
    /// A statement is under way, or was when its future was dropped.
    busy: bool,
    /// A transaction is open.
    open: bool,
}

impl Session {
    pub(super) fn new(
        connection: PoolConnection<MySql>,
        timeout: Duration,
        outdated: Outdated,
    ) -> Self {
        Self {
            connection: Some(connection),
            timeout,
            outdated,
            busy: false,
            open: false,
        }
    }

    /// Gives each following statement this much time instead.
    pub(super) fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Runs a statement and says how many rows it found.
    pub(super) async fn execute(&mut self, statement: Statement) -> Result<u64, LedgerError> {
        self.busy = true;
        let timeout = self.timeout;
        let run = self.connection().execute(statement);
        let done = tokio::time::timeout(timeout, run).await;
        self.finish(done)
            .map(|result: MySqlQueryResult| result.rows_affected())
    }

    /// Runs a text without parameters, which is not kept as a prepared statement.
    pub(super) async fn text(&mut self, text: &'static str) -> Result<(), LedgerError> {
        self.busy = true;
        let timeout = self.timeout;
        let run = self.connection().execute(sqlx::raw_sql(text));
        let done = tokio::time::timeout(timeout, run).await;
        self.finish(done).map(|_: MySqlQueryResult| ())
    }

    /// All rows of a statement.
    pub(super) async fn fetch_all(
        &mut self,
        statement: Statement,
    ) -> Result<Vec<MySqlRow>, LedgerError> {
        self.busy = true;
        let timeout = self.timeout;
        let run = self.connection().fetch_all(statement);
        let done = tokio::time::timeout(timeout, run).await;
        self.finish(done)
    }

    /// The first row of a statement, if there is one.
    pub(super) async fn fetch_optional(
        &mut self,
        statement: Statement,
    ) -> Result<Option<MySqlRow>, LedgerError> {
        Ok(self.fetch_all(statement).await?.into_iter().next())
    }

    /// Begins a transaction; anything but [`Session::commit`] or [`Session::rollback`] after it closes the connection.
    pub(super) async fn begin(&mut self, text: &'static str) -> Result<(), LedgerError> {
        self.open = true;
        self.text(text).await
    }

    /// Commits.
    pub(super) async fn commit(&mut self) -> Result<(), LedgerError> {
        self.text("COMMIT").await?;
        self.open = false;
        Ok(())
    }

    /// Rolls back, if there is anything and if the connection can still be spoken to; otherwise it will be closed.
    pub(super) async fn rollback(&mut self) {
        if self.open && !self.busy && self.text("ROLLBACK").await.is_ok() {
            self.open = false;
        }
    }

    /// Whether another statement can be sent.
    pub(super) fn usable(&self) -> bool {
        !self.busy && !self.open
    }

    /// Hands out the connection for something of sqlx's own, after which it is closed.
    pub(super) fn spend(&mut self) -> &mut MySqlConnection {
        self.busy = true;
        self.connection()
    }

    fn connection(&mut self) -> &mut MySqlConnection {
        self.connection.as_mut().expect("taken only by drop")
    }

    fn finish<T>(
        &mut self,
        done: Result<Result<T, sqlx::Error>, tokio::time::error::Elapsed>,
    ) -> Result<T, LedgerError> {
        match done {
            Ok(Ok(value)) => {
                self.busy = false;
                Ok(value)
            }
            Ok(Err(error)) => {
                let error = LedgerError::from(error);
                // The server's no to this value or at this moment leaves the connection in step. Any other error may be one of
                // the connection itself, which lives for long: its rights and limits are those of when it was made, and it may
                // lead to a server that is no longer the primary. The next one knows better.
                self.outdated.note(&error);
                self.busy = !matches!(error, LedgerError::Busy(_) | LedgerError::Refused(_));
                Err(error)
            }
            Err(_) => Err(LedgerError::Timeout(self.timeout)),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if !self.usable() {
            drop(self.connection.take().map(PoolConnection::detach));
        }
    }
}
