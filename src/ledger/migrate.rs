//! Runs the embedded migrations, one process at a time.

use std::time::{Duration, Instant};

use sqlx::Row;
use sqlx::migrate::Migrate;

use super::{Ledger, LedgerError};
use crate::steps;

/// Longest wait for another process that migrates: a new index on a large table takes minutes.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(600);
/// One attempt to get the lock, in seconds: short, so that nothing is left waiting on the server for a caller that went away.
const LOCK_ATTEMPT_SECONDS: u32 = 1;

impl Ledger {
    /// Brings the tables to the state that this program knows. Newer migrations, of a newer program, are left as they are.
    pub async fn migrate(&self) -> Result<(), LedgerError> {
        let mut session = self.session().await?;
        // sqlx's own lock waits with a negative timeout, which MariaDB answers with NULL, and so does not lock at all.
        // The server frees this one when the connection ends, in whatever way; a name has at most 64 characters, hence the digest (MySQL 9 has no MD5).
        let begun = Instant::now();
        loop {
            let attempt = sqlx::query(
                "SELECT COALESCE(GET_LOCK(CONCAT('thumbd-', SHA2(DATABASE(), 224)), ?), 0)",
            )
            .bind(LOCK_ATTEMPT_SECONDS);
            let row = session.fetch_optional(attempt).await?;
            if row.is_some_and(|row| row.try_get::<i64, _>(0).unwrap_or(0) == 1) {
                break;
            }
            if begun.elapsed() > LOCK_WAIT_MAX {
                return Err(LedgerError::MigrationLocked(LOCK_WAIT_MAX));
            }
        }
        steps::holding("migrate.locked").await;
        let mut migrator = sqlx::migrate!();
        migrator.set_ignore_missing(true).set_locking(false);
        let connection = session.spend();
        // One that was cut off is run again: all of them can be repeated.
        connection
            .ensure_migrations_table(&migrator.table_name)
            .await?;
        steps::holding("migrate.table").await;
        sqlx::query("DELETE FROM _sqlx_migrations WHERE success = FALSE")
            .execute(&mut *connection)
            .await?;
        migrator.run(&mut *connection).await?;
        steps::holding("migrate.done").await;
        Ok(())
    }
}
