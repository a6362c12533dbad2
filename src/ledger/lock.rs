//! The lock on changes of the schema and of the layout: one process at a time.

use std::time::{Duration, Instant};

use sqlx::Row;

use super::LedgerError;
use super::session::Session;

/// Longest wait for another process: a new index or new parts of counts on a large table take minutes.
const WAIT_MAX: Duration = Duration::from_secs(600);
/// One attempt, in seconds: short, so that nothing is left waiting on the server for a caller that went away.
const ATTEMPT_SECONDS: u32 = 1;

/// Takes the lock. sqlx's own waits with a negative timeout, which MariaDB answers with NULL, and so does not lock at all.
/// The server frees it when the connection ends, in whatever way; a name has at most 64 characters, hence the digest (MySQL 9
/// has no MD5).
pub(super) async fn take(session: &mut Session) -> Result<(), LedgerError> {
    let begun = Instant::now();
    loop {
        let attempt = sqlx::query(
            "SELECT COALESCE(GET_LOCK(CONCAT('thumbd-', SHA2(DATABASE(), 224)), ?), 0)",
        )
        .bind(ATTEMPT_SECONDS);
        let row = session.fetch_optional(attempt).await?;
        if row.is_some_and(|row| row.try_get::<i64, _>(0).unwrap_or(0) == 1) {
            return Ok(());
        }
        if begun.elapsed() > WAIT_MAX {
            return Err(LedgerError::MigrationLocked(WAIT_MAX));
        }
    }
}

/// Gives it back.
pub(super) async fn release(session: &mut Session) -> Result<(), LedgerError> {
    session
        .text("DO RELEASE_LOCK(CONCAT('thumbd-', SHA2(DATABASE(), 224)))")
        .await
}
