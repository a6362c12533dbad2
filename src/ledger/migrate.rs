//! Runs the embedded migrations, one process at a time.

use std::collections::{HashMap, HashSet};

use sqlx::Row as _;
use sqlx::migrate::Migrate;

use super::session::Session;
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
    (
        "feed_event",
        &["event_id", "type", "user_id", "kind_id", "target_id"],
    ),
    ("erased", &["erased_id", "scope", "digest", "version"]),
    ("erased_key", &["id", "secret"]),
    (
        "thumb_mirror",
        &["kind", "site_table", "id_column", "count_column"],
    ),
];

/// Migrations below this number only add, so that an older program works on them. One that does not, if it must ever be, begins the
/// next thousand.
const COMPATIBLE_BELOW: i64 = 1000;

/// The tables that the migrations create.
pub(super) fn tables() -> Vec<String> {
    let mut tables = Vec::new();
    for migration in sqlx::migrate!().iter() {
        let texts = migration.sql.as_str().split("CREATE TABLE IF NOT EXISTS ");
        let names = texts
            .skip(1)
            .filter_map(|text| text.split_whitespace().next());
        tables.extend(names.map(str::to_owned));
    }
    tables
}

/// How the schema stands beside the migrations of this program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Migrations {
    /// Those that were not run, or not to their end, in order: numbers and what they do.
    pub pending: Vec<(i64, String)>,
    /// Those that were run as another text than this program has.
    pub changed: Vec<i64>,
    /// The newest one in the database, of whatever program.
    pub newest: Option<i64>,
}

impl Migrations {
    /// Whether this program must not work on the schema.
    pub fn refused(&self) -> Result<(), LedgerError> {
        match self.newest {
            Some(found) if found >= COMPATIBLE_BELOW => Err(LedgerError::Newer {
                found,
                below: COMPATIBLE_BELOW,
            }),
            _ => Ok(()),
        }
    }
}

impl Ledger {
    /// Looks which migrations were run.
    pub async fn migrations(&self) -> Result<Migrations, LedgerError> {
        const RUN: &str = "SELECT version, success, checksum FROM _sqlx_migrations";
        let rows = match self.session().await?.fetch_all(sqlx::query(RUN)).await {
            Ok(rows) => rows,
            // None was run yet.
            Err(LedgerError::NotMigrated) => Vec::new(),
            Err(error) => return Err(error),
        };
        let mut newest = None;
        let mut run = HashMap::new();
        for row in rows {
            let number: i64 = row.try_get(0)?;
            newest = newest.max(Some(number));
            if row.try_get(1)? {
                run.insert(number, row.try_get::<Vec<u8>, _>(2)?);
            }
        }
        let mut found = Migrations {
            newest,
            ..Migrations::default()
        };
        for one in sqlx::migrate!().iter() {
            match run.get(&one.version) {
                None => found
                    .pending
                    .push((one.version, one.description.to_string())),
                Some(text) if **text != *one.checksum => found.changed.push(one.version),
                Some(_) => {}
            }
        }
        Ok(found)
    }

    /// Refuses a schema on which this program must not work.
    pub async fn check_schema(&self) -> Result<(), LedgerError> {
        self.migrations().await?.refused()
    }

    /// Refuses a schema that lacks a migration of this program; names the first.
    pub async fn check_migrated(&self) -> Result<(), LedgerError> {
        match self.migrations().await?.pending.into_iter().next() {
            Some((number, name)) => Err(LedgerError::MigrationMissing { number, name }),
            None => Ok(()),
        }
    }

    /// Refuses tables that have the name of one of ours and are not ours.
    pub async fn check_tables(&self) -> Result<(), LedgerError> {
        nothing_in_the_way(&mut self.session().await?).await
    }

    /// Brings the tables to the state that this program knows. Newer migrations, of a newer program, are left as they are.
    pub async fn migrate(&self) -> Result<(), LedgerError> {
        let mut session = self.session().await?;
        lock::take(&mut session).await?;
        steps::holding("migrate.locked").await;
        let mut migrator = sqlx::migrate!();
        migrator.set_ignore_missing(true).set_locking(false);
        let clear = nothing_in_the_way(&mut session).await;
        // Whatever comes of it, the connection is closed behind it, and the lock goes with it.
        let connection = session.spend();
        clear?;
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
async fn nothing_in_the_way(session: &mut Session) -> Result<(), LedgerError> {
    const COLUMNS: &str = "SELECT CAST(table_name AS CHAR), CAST(column_name AS CHAR) \
         FROM information_schema.columns WHERE table_schema = DATABASE()";
    let rows = session.fetch_all(sqlx::query(COLUMNS)).await?;
    let columns = rows
        .iter()
        .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)));
    let found: HashSet<(String, String)> = columns.collect::<Result<_, sqlx::Error>>()?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_of_the_migrations_is_looked_for_before_them() {
        let mut known: Vec<String> = TABLES.iter().map(|(name, _)| (*name).to_owned()).collect();
        let mut made = tables();
        known.sort_unstable();
        made.sort_unstable();
        assert_eq!(known, made);
    }
}
