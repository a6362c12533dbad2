//! The table of entries that were refused: each stands there once, with its reason, until somebody retries or drops it.

use std::fmt::Write as _;

use chrono::{DateTime, NaiveDateTime, Utc};
use sqlx::Row;
use sqlx::mysql::MySqlRow;

use super::session::Session;
use super::{Ledger, LedgerError};
use crate::domain::{Entry, SliceId, UserId, Version};

/// Bytes that are kept of a field or value that cannot be read.
const RAW_BYTES_MAX: usize = 1024;

/// What was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// An entry of a slice.
    Entry(Entry),
    /// Bytes that are none.
    Bytes {
        /// The field, or the beginning of it.
        field: Vec<u8>,
        /// The value, or the beginning of it.
        value: Vec<u8>,
    },
}

/// Something refused, where it was found and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarantined {
    /// The partition.
    pub partition: u16,
    /// The slice.
    pub slice: SliceId,
    /// What.
    pub subject: Subject,
    /// Why.
    pub reason: String,
}

/// A row of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuarantineRow {
    /// Its number.
    pub id: u64,
    /// What it is about.
    pub what: Quarantined,
    /// When it was entered.
    pub created_at: DateTime<Utc>,
}

impl Quarantined {
    pub(super) fn entry(partition: u16, slice: SliceId, entry: &Entry, reason: &str) -> Self {
        Self {
            partition,
            slice,
            subject: Subject::Entry(entry.clone()),
            reason: reason.to_owned(),
        }
    }
}

/// Whether anything at all is there; then also which of the staged rows, by their number in the staging table.
pub(super) async fn known(session: &mut Session) -> Result<Vec<(u32, String)>, LedgerError> {
    let any = sqlx::query("SELECT 1 FROM quarantine LIMIT 1");
    if session.fetch_optional(any).await?.is_none() {
        return Ok(Vec::new());
    }
    let find = sqlx::query(include_str!("sql/quarantined.sql"));
    let rows = session.fetch_all(find).await?;
    rows.iter()
        .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
        .collect()
}

/// Enters something, unless it stands there already.
pub(super) async fn insert(session: &mut Session, one: &Quarantined) -> Result<(), LedgerError> {
    const INSERT: &str = "INSERT INTO quarantine \
        (user_id, kind, target_id, thumbed, version, reason, created_at, partition_id, slice_id, raw_field, raw_value) \
        VALUES (?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6), ?, ?, ?, ?) \
        ON DUPLICATE KEY UPDATE quarantine_id = quarantine.quarantine_id";
    let statement = sqlx::query(INSERT);
    let statement = match &one.subject {
        Subject::Entry(entry) => statement
            .bind(entry.user.as_str().to_owned())
            .bind(entry.target.kind().to_owned())
            .bind(entry.target.id().to_owned())
            .bind(entry.thumbed)
            .bind(entry.version.0),
        Subject::Bytes { field, value } => statement
            .bind("")
            .bind("")
            .bind(digest(field, value))
            .bind(false)
            .bind(one.slice.0),
    };
    let statement = statement
        .bind(one.reason.clone())
        .bind(one.partition)
        .bind(one.slice.0);
    let statement = match &one.subject {
        Subject::Entry(_) => statement
            .bind(Option::<Vec<u8>>::None)
            .bind(Option::<Vec<u8>>::None),
        Subject::Bytes { field, value } => statement.bind(cut(field)).bind(cut(value)),
    };
    session.execute(statement).await.map(drop)
}

fn cut(bytes: &[u8]) -> Vec<u8> {
    bytes[..bytes.len().min(RAW_BYTES_MAX)].to_vec()
}

/// Tells bytes apart that cannot be told apart by their beginning.
fn digest(field: &[u8], value: &[u8]) -> String {
    use sha2::{Digest as _, Sha256};
    let mut hash = Sha256::new();
    hash.update((field.len() as u64).to_be_bytes());
    hash.update(field);
    hash.update(value);
    let mut text = String::with_capacity(64);
    for byte in hash.finalize() {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

impl Ledger {
    /// Up to `limit` rows with a higher number than `after`, oldest first.
    pub async fn quarantine_page(
        &self,
        after: u64,
        limit: u64,
    ) -> Result<Vec<QuarantineRow>, LedgerError> {
        let page = sqlx::query(
            "SELECT quarantine_id, user_id, kind, target_id, thumbed, version, reason, created_at, \
             partition_id, slice_id, raw_field, raw_value \
             FROM quarantine WHERE quarantine_id > ? ORDER BY quarantine_id LIMIT ?",
        )
        .bind(after)
        .bind(limit);
        let rows = self.session().await?.fetch_all(page).await?;
        rows.iter().map(decode).collect()
    }

    /// How many there are.
    pub async fn quarantine_count(&self) -> Result<u64, LedgerError> {
        let count = sqlx::query("SELECT COUNT(*) FROM quarantine");
        let row = self.session().await?.fetch_optional(count).await?;
        Ok(row.map_or(Ok(0), |row| row.try_get::<i64, _>(0).map(i64::unsigned_abs))?)
    }

    /// The version of the oldest entry that stands there.
    pub async fn quarantine_oldest(&self) -> Result<Option<Version>, LedgerError> {
        let oldest = sqlx::query("SELECT MIN(version) FROM quarantine WHERE raw_field IS NULL");
        let row = self.session().await?.fetch_optional(oldest).await?;
        let oldest: Option<u64> = row.map_or(Ok(None), |row| row.try_get(0))?;
        Ok(oldest.map(Version))
    }

    /// Takes one out. False: it was not there.
    pub async fn quarantine_remove(&self, id: u64) -> Result<bool, LedgerError> {
        let remove = sqlx::query("DELETE FROM quarantine WHERE quarantine_id = ?").bind(id);
        Ok(self.session().await?.execute(remove).await? > 0)
    }
}

fn decode(row: &MySqlRow) -> Result<QuarantineRow, LedgerError> {
    let raw: Option<Vec<u8>> = row.try_get(10)?;
    let subject = match raw {
        Some(field) => Subject::Bytes {
            field,
            value: row.try_get::<Option<Vec<u8>>, _>(11)?.unwrap_or_default(),
        },
        None => Subject::Entry(Entry {
            user: UserId::parse(row.try_get::<&str, _>(1)?).map_err(LedgerError::Row)?,
            target: super::cold::target(row.try_get(2)?, row.try_get(3)?)
                .map_err(LedgerError::Row)?,
            thumbed: row.try_get::<i8, _>(4)? != 0,
            version: Version(row.try_get(5)?),
        }),
    };
    let created_at: NaiveDateTime = row.try_get(7)?;
    Ok(QuarantineRow {
        id: row.try_get(0)?,
        what: Quarantined {
            partition: row.try_get(8)?,
            slice: SliceId(row.try_get(9)?),
            subject,
            reason: row.try_get(6)?,
        },
        created_at: created_at.and_utc(),
    })
}
