//! What can go wrong with MySQL, by what the caller does about it. Told apart by kind and number, never by text.

use std::time::Duration;

use sqlx::mysql::MySqlDatabaseError;

use super::Layout;
use crate::config::Mirror;
use crate::domain::SliceId;

/// Why the ledger did not do what was asked. Nothing was changed, except where a variant says that this is not known.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The database URL cannot be used.
    #[error("the database URL is not usable: {0}")]
    Url(&'static str),
    /// MySQL cannot be reached, refuses connections or writes for now, or went away. After a commit was sent its outcome is unknown.
    #[error("MySQL is not available")]
    Unavailable(#[source] sqlx::Error),
    /// MySQL does not know this user, password or database.
    #[error("MySQL does not let thumbd in")]
    Login(#[source] sqlx::Error),
    /// Its user may not do something: the database, a table, a column, a right over the server.
    #[error("thumbd lacks a right in MySQL, its doctor command says which")]
    Denied(#[source] sqlx::Error),
    /// Its user lacks rights without which nothing works.
    #[error("thumbd's user in MySQL may not {missing}: {grant}")]
    RightsMissing {
        /// Their names.
        missing: String,
        /// What would give them.
        grant: String,
    },
    /// A statement took too long; its connection was closed. After a commit was sent its outcome is unknown.
    #[error("MySQL did not answer within {0:?}")]
    Timeout(Duration),
    /// Deadlocks or lock waits, as often as a transaction may begin again.
    #[error("other transactions were in the way")]
    Busy(#[source] sqlx::Error),
    /// The tables are not there, or not all of them: `thumbd migrate` has not run.
    #[error("the database has no tables of thumbd yet, or older ones: run `thumbd migrate`")]
    NotMigrated,
    /// A migration that this program needs was not run, and it may not run it.
    #[error(
        "migration {number} ({name}) is missing: run `thumbd migrate`, or set migrate_at_start"
    )]
    MigrationMissing {
        /// Its number.
        number: i64,
        /// What it does.
        name: String,
    },
    /// Another process is migrating and takes long.
    #[error("another process has been migrating this database for {0:?}")]
    MigrationLocked(Duration),
    /// A table of somebody else has the name of one of thumbd's.
    #[error(
        "a table in this database is in the way: `{table}` is not thumbd's, it has no column `{column}`"
    )]
    InTheWay {
        /// The table.
        table: &'static str,
        /// A column that it would have.
        column: &'static str,
    },
    /// A newer program has changed the schema so that this one may not work on it.
    #[error(
        "the schema is that of a newer thumbd (migration {found}), on which this one must not work: it knows migrations below {below}"
    )]
    Newer {
        /// The newest migration.
        found: i64,
        /// The first number that is not compatible.
        below: i64,
    },
    /// A migration failed.
    #[error("the migration failed")]
    Migration(#[source] sqlx::migrate::MigrateError),
    /// Redis has seen a slice land that MySQL does not know: MySQL has forgotten commits.
    #[error("MySQL has landed slices up to {landed}, but Redis saw {seen} land")]
    LandedBehind {
        /// What MySQL knows.
        landed: SliceId,
        /// What Redis knows.
        seen: SliceId,
    },
    /// Another flusher took over between two chunks, or MySQL forgot the chunk before: begin this slice again.
    #[error("another flusher has taken over, or the chunk before is gone")]
    Overtaken,
    /// No layout has been adopted yet.
    #[error("no layout has been adopted yet")]
    LayoutMissing,
    /// The database was written under another layout, which has to be drained first.
    #[error("the database was written with {stored}, the settings say {wanted}")]
    LayoutChanged {
        /// The layout in the database.
        stored: Layout,
        /// The layout in the settings.
        wanted: Layout,
    },
    /// An entry is said to come from a partition that the layout does not have.
    #[error("partition {partition} does not exist, there are {partitions}")]
    PartitionOutside {
        /// The entry's partition.
        partition: u16,
        /// How many there are.
        partitions: u16,
    },
    /// A stored row has an id that thumbd never writes.
    #[error("a stored row is not one of thumbd's")]
    Row(#[source] crate::domain::IdError),
    /// MySQL refuses a value: a rule of the table, a trigger, a range. Whether it is one entry's fault is for the caller to find out.
    #[error("MySQL refused a value")]
    Refused(#[source] sqlx::Error),
    /// More entries of one chunk are refused than quarantine takes: more likely a rule of the database is wrong than the entries.
    #[error("MySQL refuses more than {limit} entries of one transaction: {reason}")]
    TooManyRefused {
        /// How many quarantine takes at once.
        limit: usize,
        /// What MySQL said of one of them.
        reason: String,
    },
    /// A column of the site's own cannot be set to the counts. Nothing lands until it can.
    #[error("the mirror of kind {kind}, {table}: {problem}")]
    Mirror {
        /// The kind.
        kind: String,
        /// The table, quoted.
        table: String,
        /// What is wrong, and what would be right.
        problem: String,
        /// What MySQL said.
        #[source]
        source: Option<sqlx::Error>,
    },
    /// A kind's mirror is another column than the settings say.
    #[error(
        "the mirror of kind {kind} is {stored}, the settings say {wanted}: give all processes the same, or take it away by `thumbd mirror remove {kind}` first"
    )]
    MirrorOther {
        /// The kind.
        kind: String,
        /// What is kept now.
        stored: Box<Mirror>,
        /// What the settings say.
        wanted: Box<Mirror>,
    },
    /// Somebody else has changed rows or counts and has not told Redis yet, or died before: the next flush clears that up.
    #[error("another import or repair is under way, or died")]
    OutsideOther,
    /// Anything else that MySQL or the driver says: repeating will not help.
    #[error("MySQL refused a statement")]
    Database(#[source] sqlx::Error),
}

impl LedgerError {
    /// Whether another connection may get what this one was refused: a server that takes no writes may no longer be the primary,
    /// and rights are those of when a connection was made.
    pub(super) fn is_of_the_connection(&self) -> bool {
        match self {
            Self::Denied(_) => true,
            Self::Unavailable(error) => NUMBERS_READ_ONLY.contains(&number(error)),
            _ => false,
        }
    }

    /// What the server does not know or grant to whoever comes in.
    pub fn not_let_in(&self) -> Option<NotLetIn> {
        let (Self::Login(error) | Self::Denied(error)) = self else {
            return None;
        };
        Some(match number(error) {
            1045 | 1698 => NotLetIn::User,
            1049 => NotLetIn::DatabaseUnknown,
            1044 => NotLetIn::DatabaseDenied,
            _ => return None,
        })
    }

    /// Whether the same call can succeed later without anybody changing anything.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Unavailable(_) | Self::Timeout(_) | Self::Busy(_) | Self::MigrationLocked(_) => {
                true
            }
            Self::Url(_)
            | Self::Login(_)
            | Self::Denied(_)
            | Self::RightsMissing { .. }
            | Self::NotMigrated
            | Self::MigrationMissing { .. }
            | Self::InTheWay { .. }
            | Self::Newer { .. }
            | Self::Migration(_)
            | Self::LandedBehind { .. }
            | Self::Overtaken
            | Self::LayoutMissing
            | Self::LayoutChanged { .. }
            | Self::PartitionOutside { .. }
            | Self::Row(_)
            | Self::Refused(_)
            | Self::TooManyRefused { .. }
            | Self::Mirror { .. }
            | Self::MirrorOther { .. }
            | Self::OutsideOther
            | Self::Database(_) => false,
        }
    }
}

/// Why the server lets nobody in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotLetIn {
    /// No such user from this host, or another password.
    User,
    /// There is no such database.
    DatabaseUnknown,
    /// The user has no right to the database, which may also not be there.
    DatabaseDenied,
}

/// A transaction that lost against another one and can begin again at once:
/// lock wait timeout, deadlock (Galera reports its conflicts as one), row changed since it was read (MariaDB).
const NUMBERS_BUSY: [u16; 3] = [1205, 1213, 1020];

/// The server cannot now, but may later: too many connections (1040, 1203, 1226), Galera node not ready (1047),
/// shutting down (1053), network (1158 to 1161), read-only (1290, 1792, 1836), interrupted or killed (1317, 1927),
/// statement time limits (1969, 3024), server connection killed (4031), disk full (1021).
const NUMBERS_UNAVAILABLE: [u16; 18] = [
    1021, 1040, 1047, 1053, 1158, 1159, 1160, 1161, 1203, 1226, 1290, 1317, 1792, 1836, 1927, 1969,
    3024, 4031,
];

/// Those of them that say that the server takes no writes.
const NUMBERS_READ_ONLY: [u16; 3] = [1290, 1792, 1836];

/// Access denied to a user (1045, 1698), unknown database (1049).
const NUMBERS_LOGIN: [u16; 3] = [1045, 1049, 1698];

/// Access denied to a database (1044), a table (1142), a column (1143), a right over the server (1227).
const NUMBERS_DENIED: [u16; 4] = [1044, 1142, 1143, 1227];

/// No database selected or found, no such table, no such column.
const NUMBERS_NOT_MIGRATED: [u16; 2] = [1146, 1054];

/// What a value can be refused for: NULL (1048), out of range (1264, 1690), truncated or of another type (1265, 1292, 1366),
/// too long (1406), another row's unique value (1062), a view's or table's CHECK (1369, 3819, 4025), no partition for it (1526),
/// a foreign key (1452), a trigger that says no (1644). Rights, tables, memory and syntax are nobody's value.
const NUMBERS_REFUSED: [u16; 14] = [
    1048, 1062, 1264, 1265, 1292, 1366, 1369, 1406, 1452, 1526, 1644, 1690, 3819, 4025,
];

/// The server's number of an error; 0 for one that is not the server's.
fn number(error: &sqlx::Error) -> u16 {
    error
        .as_database_error()
        .and_then(|error| error.try_downcast_ref::<MySqlDatabaseError>())
        .map_or(0, MySqlDatabaseError::number)
}

impl From<sqlx::Error> for LedgerError {
    fn from(error: sqlx::Error) -> Self {
        match &error {
            sqlx::Error::Database(_) => {
                let number = number(&error);
                if NUMBERS_BUSY.contains(&number) {
                    Self::Busy(error)
                } else if NUMBERS_UNAVAILABLE.contains(&number) {
                    Self::Unavailable(error)
                } else if NUMBERS_LOGIN.contains(&number) {
                    Self::Login(error)
                } else if NUMBERS_DENIED.contains(&number) {
                    Self::Denied(error)
                } else if NUMBERS_NOT_MIGRATED.contains(&number) {
                    Self::NotMigrated
                } else if NUMBERS_REFUSED.contains(&number) {
                    Self::Refused(error)
                } else {
                    Self::Database(error)
                }
            }
            sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::Protocol(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed => Self::Unavailable(error),
            _ => Self::Database(error),
        }
    }
}

impl From<sqlx::migrate::MigrateError> for LedgerError {
    fn from(error: sqlx::migrate::MigrateError) -> Self {
        match error {
            sqlx::migrate::MigrateError::Execute(error) => error.into(),
            other => Self::Migration(other),
        }
    }
}
