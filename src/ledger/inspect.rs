//! What `thumbd doctor` looks at in the database: how server and tables are set up, and what the user may do. Nothing here writes.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::{AssertSqlSafe, Row as _};

use super::session::Session;
use super::{Ledger, LedgerError, migrate};

/// Rights on the database that every command needs.
pub const RIGHTS: [&str; 5] = [
    "SELECT",
    "INSERT",
    "UPDATE",
    "DELETE",
    "CREATE TEMPORARY TABLES",
];
/// Rights that whoever brings the schema up to date needs as well.
pub const RIGHTS_TO_MIGRATE: [&str; 3] = ["CREATE", "ALTER", "INDEX"];

/// The variables that are looked at. No server has all of them.
const VARIABLES: &str = "'binlog_format', 'innodb_flush_log_at_trx_commit', 'innodb_read_only', 'log_bin', \
    'max_allowed_packet', 'max_connections', 'max_heap_table_size', 'max_user_connections', 'read_only', 'super_read_only', \
    'sync_binlog', 'system_time_zone', 'time_zone', 'transaction_isolation', 'tx_isolation', 'wait_timeout'";

/// How the server is set up, seen from a connection of the pool.
#[derive(Debug, Clone, Default)]
pub struct DatabaseInfo {
    /// As the server says it.
    pub version: String,
    /// The user, as GRANT takes it.
    pub user: String,
    /// The database.
    pub database: String,
    /// Connections that there are, of all users.
    pub connections: u64,
    variables: BTreeMap<String, String>,
}

impl DatabaseInfo {
    /// A variable; empty if the server has none of that name.
    pub fn variable(&self, name: &str) -> &str {
        self.variables.get(name).map_or("", String::as_str)
    }

    /// A variable that is a number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.variable(name).parse().ok()
    }

    /// A variable that is on.
    pub fn is_on(&self, name: &str) -> bool {
        matches!(self.variable(name), "ON" | "1")
    }

    /// The isolation level of thumbd's own transactions.
    pub fn isolation(&self) -> &str {
        match self.variable("transaction_isolation") {
            "" => self.variable("tx_isolation"),
            level => level,
        }
    }

    /// Whether it takes no writes of thumbd.
    pub fn read_only(&self) -> bool {
        ["read_only", "super_read_only", "innodb_read_only"]
            .iter()
            .any(|name| self.is_on(name))
    }

    /// MariaDB, otherwise MySQL.
    pub fn is_mariadb(&self) -> bool {
        self.version.contains("MariaDB")
    }

    /// Why this version will not do.
    pub fn version_problem(&self) -> Option<String> {
        // A MariaDB may stand behind a number for old clients: 5.5.5-10.6.1-MariaDB.
        let number = self.version.strip_prefix("5.5.5-");
        let number = number.unwrap_or(&self.version);
        let mut parts = number
            .split(|c: char| !c.is_ascii_digit())
            .map(|part| part.parse().unwrap_or(0));
        let found: (u32, u32) = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
        let (name, least) = if self.is_mariadb() {
            ("MariaDB", (10, 6))
        } else {
            ("MySQL", (8, 0))
        };
        let (major, minor) = least;
        (found < least).then(|| {
            format!(
                "{} is too old: {name} {major}.{minor} or newer is needed",
                self.version
            )
        })
    }
}

/// A table or a column that is not as the migrations made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit {
    /// What is wrong.
    pub problem: String,
    /// The statement that mends it.
    pub fix: String,
}

impl Ledger {
    /// Looks how the server is set up.
    pub async fn inspect(&self) -> Result<DatabaseInfo, LedgerError> {
        const WHO: &str = "SELECT CAST(VERSION() AS CHAR), CAST(CURRENT_USER() AS CHAR), CAST(DATABASE() AS CHAR)";
        const CONNECTIONS: &str = "SHOW GLOBAL STATUS LIKE 'Threads_connected'";
        let mut session = self.session().await?;
        let who = rows(&mut session, WHO.into()).await?;
        let who = who.first().ok_or_else(nothing)?;
        let user: String = who.try_get(1)?;
        let (name, host) = user.rsplit_once('@').unwrap_or((&user, "%"));
        let variables = format!("SHOW VARIABLES WHERE Variable_name IN ({VARIABLES})");
        let variables = rows(&mut session, variables).await?;
        let connections = rows(&mut session, CONNECTIONS.into()).await?;
        let connections: Option<String> = match connections.first() {
            Some(row) => Some(row.try_get(1)?),
            None => None,
        };
        let pair = |row: &sqlx::mysql::MySqlRow| Ok((row.try_get(0)?, row.try_get(1)?));
        Ok(DatabaseInfo {
            version: who.try_get(0)?,
            user: format!("'{name}'@'{host}'"),
            database: who.try_get(2)?,
            connections: connections.and_then(|text| text.parse().ok()).unwrap_or(0),
            variables: variables
                .iter()
                .map(pair)
                .collect::<Result<_, sqlx::Error>>()?,
        })
    }

    /// The rights of these that the user does not have, on the whole database or on each of thumbd's tables.
    ///
    /// Each is tried on a table that is not there: who may not is told so, who may is told that there is no such table.
    pub async fn rights_missing(
        &self,
        rights: &[&'static str],
    ) -> Result<Vec<&'static str>, LedgerError> {
        let mut session = self.session().await?;
        let absent = format!("thumbd_absent_{:016x}", rand::random::<u64>());
        let mut missing = Vec::new();
        for &right in rights {
            let text = match right {
                "SELECT" => format!("SELECT 1 FROM {absent} LIMIT 0"),
                "INSERT" => format!("INSERT INTO {absent} (id) VALUES (1)"),
                "UPDATE" => format!("UPDATE {absent} SET id = 1"),
                "DELETE" => format!("DELETE FROM {absent}"),
                "CREATE" => format!("CREATE TABLE {absent}_too LIKE {absent}"),
                "ALTER" => format!("ALTER TABLE {absent} ADD COLUMN id INT"),
                "INDEX" => format!("CREATE INDEX by_id ON {absent} (id)"),
                _ => format!("CREATE TEMPORARY TABLE {absent}_too LIKE {absent}"),
            };
            match rows(&mut session, text).await {
                Ok(_) | Err(LedgerError::NotMigrated) => {}
                Err(LedgerError::Denied(_)) => missing.push(right),
                Err(error) => return Err(error),
            }
        }
        if missing.is_empty() {
            return Ok(missing);
        }
        let tables: BTreeSet<String> = migrate::tables().into_iter().collect();
        let granted = granted(&mut session).await?;
        missing.retain(|right| {
            !tables
                .iter()
                .all(|table| granted.contains(&(table.clone(), (*right).to_owned())))
        });
        Ok(missing)
    }

    /// Whether the user may do all that is done all the time; the error says what it may not. A server that takes no writes now does
    /// not tell.
    pub async fn check_rights(&self) -> Result<(), LedgerError> {
        let missing = match self.rights_missing(&RIGHTS).await {
            Ok(missing) if missing.is_empty() => return Ok(()),
            Ok(missing) => missing.join(", "),
            Err(LedgerError::Unavailable(_)) => return Ok(()),
            Err(error) => return Err(error),
        };
        let info = self.inspect().await?;
        Err(LedgerError::RightsMissing {
            grant: format!("GRANT {missing} ON `{}`.* TO {}", info.database, info.user),
            missing,
        })
    }

    /// What of thumbd's tables is not as the migrations made it: text that is not compared byte by byte, tables without transactions.
    pub async fn misfits(&self) -> Result<Vec<Misfit>, LedgerError> {
        const COLUMNS: &str = "SELECT CAST(table_name AS CHAR), CAST(column_name AS CHAR), CAST(collation_name AS CHAR), \
            CAST(column_type AS CHAR), CAST(is_nullable AS CHAR) FROM information_schema.columns \
            WHERE table_schema = DATABASE() AND collation_name IS NOT NULL ORDER BY 1, 2";
        const TABLES: &str = "SELECT CAST(table_name AS CHAR), CAST(COALESCE(engine, '') AS CHAR) \
            FROM information_schema.tables WHERE table_schema = DATABASE() ORDER BY 1";
        let mut session = self.session().await?;
        let ours = migrate::tables();
        let mut misfits = Vec::new();
        for row in rows(&mut session, TABLES.into()).await? {
            let (table, engine): (String, String) = (row.try_get(0)?, row.try_get(1)?);
            if ours.contains(&table) && !engine.eq_ignore_ascii_case("InnoDB") {
                misfits.push(Misfit {
                    problem: format!("{table} is a table of {engine}, which has no transactions"),
                    fix: format!("ALTER TABLE {table} ENGINE = InnoDB"),
                });
            }
        }
        for row in rows(&mut session, COLUMNS.into()).await? {
            let (table, column): (String, String) = (row.try_get(0)?, row.try_get(1)?);
            let collation: String = row.try_get(2)?;
            if !ours.contains(&table) || collation.ends_with("_bin") {
                continue;
            }
            let (of, null): (String, String) = (row.try_get(3)?, row.try_get(4)?);
            let set = if ["reason", "detail"].contains(&&*column) {
                "utf8mb4"
            } else {
                "ascii"
            };
            let null = if null == "YES" { "NULL" } else { "NOT NULL" };
            misfits.push(Misfit {
                problem: format!(
                    "{table}.{column} is compared by {collation}, not byte by byte: Ab and ab would be one id"
                ),
                fix: format!(
                    "ALTER TABLE {table} MODIFY {column} {of} CHARACTER SET {set} COLLATE {set}_bin {null}"
                ),
            });
        }
        Ok(misfits)
    }

    /// The server's clock, Unix µs.
    pub async fn time_us(&self) -> Result<u64, LedgerError> {
        const NOW: &str = "SELECT CAST(UNIX_TIMESTAMP(UTC_TIMESTAMP(6)) * 1000000 AS UNSIGNED)";
        let row = self
            .session()
            .await?
            .fetch_optional(sqlx::query(NOW))
            .await?;
        Ok(row.ok_or_else(nothing)?.try_get(0)?)
    }
}

/// Pairs of a table and a right on it that the user was given.
async fn granted(session: &mut Session) -> Result<BTreeSet<(String, String)>, LedgerError> {
    const GRANTED: &str = "SELECT CAST(table_name AS CHAR), CAST(privilege_type AS CHAR) \
        FROM information_schema.table_privileges WHERE table_schema = DATABASE()";
    let rows = rows(session, GRANTED.into()).await?;
    let pairs = rows
        .iter()
        .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)));
    Ok(pairs.collect::<Result<_, sqlx::Error>>()?)
}

/// Rows of a statement that is asked once in a process's life.
async fn rows(
    session: &mut Session,
    text: String,
) -> Result<Vec<sqlx::mysql::MySqlRow>, LedgerError> {
    session
        .fetch_all(sqlx::query(AssertSqlSafe(text)).persistent(false))
        .await
}

fn nothing() -> LedgerError {
    LedgerError::Database(sqlx::Error::RowNotFound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_below_the_oldest_that_is_tried_are_refused() {
        let problem = |version: &str| {
            let info = DatabaseInfo {
                version: version.to_owned(),
                ..DatabaseInfo::default()
            };
            info.version_problem().is_some()
        };
        for (version, refused) in [
            ("8.0.36", false),
            ("9.7.4-2", false),
            ("5.7.44-log", true),
            ("10.6.0-MariaDB", false),
            ("5.5.5-10.11.19-MariaDB-0+deb12u1", false),
            ("10.5.23-MariaDB", true),
            ("11.4.2-MariaDB-ubu2404", false),
            ("", true),
        ] {
            assert_eq!(problem(version), refused, "{version}");
        }
    }

    #[test]
    fn the_tables_are_those_of_the_migrations() {
        let tables = migrate::tables();
        for table in ["kind", "thumb", "flush_state", "feed_event", "erased_key"] {
            assert!(tables.contains(&table.to_owned()), "{table}: {tables:?}");
        }
    }
}
