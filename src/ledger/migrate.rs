//! Runs the embedded migrations, one process at a time.

use std::collections::HashSet;

use sqlx::migrate::Migrate;
use sqlx::{MySqlConnection, Row as _};

use super::{Ledger, LedgerError, lock};
use crate::steps;

/// The columns that each table was created with, all at once: one of that name without them is not ours.
const TABLES: &[(&str, &[&str])] = &[
    ("kind", &["kind_id", "name"]),
    (
        "thumb",
        &["user_id", "kind_id", "target_id", "thumbed", "version"],
    ),
    ("thumb_count", &["kind_id", "target_id", "count"]),
    (
        "thumb_count_part",
        &["kind_id", "target_id", "partition_id", "count"],
    ),
    ("flush_state", &["id", "last", "landed", "max_version"]),
    (
        "quarantine",
        &["quarantine_id", "user_id", "kind", "target_id", "reason"],
    ),
    ("job_run", &["job_run_id", "job", "planned_at", "owner"]),
];

/// Migrations below this number only add, so that an older program works on them. One that does not, if it must ever be, begins the
/// next thousand.
const COMPATIBLE_BELOW: i64 = 1000;

impl Ledger {
    /// Refuses a schema on which this program must not work.
    pub async fn check_schema(&self) -> Result<(), LedgerError> {
        let mut session = self.session().await?;
        let newest = sqlx::query("SELECT MAX(version) FROM _sqlx_migrations");
        let found: Option<i64> = match session.fetch_optional(newest).await {
            Ok(row) => row.map(|row| row.try_get(0)).transpose()?.flatten(),
            // Not migrated yet.
            Err(LedgerError::NotMigrated) => None,
            Err(error) => return Err(error),
        };
        match found {
            Some(found) if found >= COMPATIBLE_BELOW => Err(LedgerError::Newer {
                found,
                below: COMPATIBLE_BELOW,
            }),
            _ => Ok(()),
        }
    }

    /// Refuses a schema that lacks a migration of this program; names the first.
    pub async fn check_migrated(&self) -> Result<(), LedgerError> {
        let mut session = self.session().await?;
        let run = sqlx::query("SELECT version FROM _sqlx_migrations WHERE success");
        let run: HashSet<i64> = match session.fetch_all(run).await {
            Ok(rows) => {
                let numbers = rows.iter().map(|row| row.try_get(0));
                numbers.collect::<Result<_, _>>()?
            }
            // None was run yet.
            Err(LedgerError::NotMigrated) => HashSet::new(),
            Err(error) => return Err(error),
        };
        let migrator = sqlx::migrate!();
        match migrator.iter().find(|one| !run.contains(&one.version)) {
            Some(missing) => Err(LedgerError::MigrationMissing {
                number: missing.version,
                name: missing.description.to_string(),
            }),
            None => Ok(()),
        }
    }

    /// Brings the tables to the state that this program knows. Newer migrations, of a newer program, are left as they are.
    pub async fn migrate(&self) -> Result<(), LedgerError> {
        let mut session = self.session().await?;
        lock::take(&mut session).await?;
        steps::holding("migrate.locked").await;
        let mut migrator = sqlx::migrate!();
        migrator.set_ignore_missing(true).set_locking(false);
        let connection = session.spend();
        nothing_in_the_way(connection).await?;
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

/// Fails if a table has the name of one of ours and is not ours: IF NOT EXISTS would take it for ours, and note that all was done.
async fn nothing_in_the_way(connection: &mut MySqlConnection) -> Result<(), LedgerError> {
    let text = "SELECT CAST(table_name AS CHAR), CAST(column_name AS CHAR) \
         FROM information_schema.columns WHERE table_schema = DATABASE()";
    let found: HashSet<(String, String)> = sqlx::query_as(text)
        .fetch_all(connection)
        .await?
        .into_iter()
        .collect();
    for (table, columns) in TABLES {
        if !found.iter().any(|(name, _)| name == table) {
            continue;
        }
        let missing = columns
            .iter()
            .find(|column| !found.contains(&((*table).to_owned(), (**column).to_owned())));
        if let Some(column) = missing {
            return Err(LedgerError::InTheWay { table, column });
        }
    }
    Ok(())
}
