//! The one row of `flush_state`: how far the flush has come, and the layout in Redis that all was written under.

use std::fmt;

use sqlx::Row;
use sqlx::mysql::MySqlRow;

use super::outbox::{FeedMark, FeedState};
use super::session::Session;
use super::{Ledger, LedgerError};
use crate::domain::{SliceId, Version};

/// How the keys in Redis are laid out. It cannot change while unflushed work lies in the old one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Number of partitions.
    pub partitions: u16,
    /// Length of a slice's window.
    pub slice_ms: u64,
    /// First part of all key names.
    pub key_prefix: String,
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} partitions, slices of {} ms, key prefix '{}'",
            self.partitions, self.slice_ms, self.key_prefix
        )
    }
}

/// The chunk that was committed last.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Progress {
    /// Its slice.
    pub slice: SliceId,
    /// Its number within the slice, from 0.
    pub number: u32,
    /// The fence token of its flusher.
    pub token: String,
}

/// How far the flush has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlushState {
    /// Newest slice of which something was committed.
    pub last: SliceId,
    /// Newest slice that was committed whole.
    pub landed: SliceId,
    /// Highest version of all entries that were committed.
    pub max_version: Version,
    /// The chunk that was committed last.
    pub progress: Progress,
    /// The adopted layout.
    pub layout: Option<Layout>,
    /// Unliked rows older than this may have been pruned.
    pub prune_horizon: Version,
    /// Who has changed rows or counts outside of a slice and not told Redis yet; '' for nobody.
    pub outside_token: String,
    /// Whether changes are told, and how far.
    pub feed: FeedMark,
    /// No entry above this is void because of its user; 0 if nobody ever was erased.
    pub erased_until: Version,
    /// No entry above this is void because of its target; 0 if none ever was erased.
    pub targets_void_until: Version,
}

impl Ledger {
    /// Reads how far the flush has come.
    pub async fn flush_state(&self) -> Result<FlushState, LedgerError> {
        read(&mut self.session().await?, false).await
    }

    /// Stores the layout at the first start; afterwards another one is refused.
    pub async fn adopt_layout(&self, wanted: &Layout) -> Result<(), LedgerError> {
        let mut session = self.session().await?;
        // The usual case needs no lock, which a flush may hold for long.
        if read(&mut session, false).await?.layout.as_ref() == Some(wanted) {
            return Ok(());
        }
        session.begin("START TRANSACTION").await?;
        match read(&mut session, true).await?.layout {
            Some(stored) if stored == *wanted => session.commit().await,
            Some(stored) => {
                session.rollback().await;
                Err(LedgerError::LayoutChanged {
                    stored,
                    wanted: wanted.clone(),
                })
            }
            None => {
                let store = sqlx::query(
                    "UPDATE flush_state SET partitions = ?, slice_ms = ?, key_prefix = ? WHERE id = 1",
                );
                session
                    .execute(
                        store
                            .bind(wanted.partitions)
                            .bind(wanted.slice_ms)
                            .bind(&wanted.key_prefix),
                    )
                    .await?;
                session.commit().await
            }
        }
    }
}

/// The row, as it is.
const READ: &str = include_str!("sql/flush_state.sql");
/// The row, locked until the transaction ends: whoever writes rows or counts waits here for the one before.
const LOCK: &str = concat!(include_str!("sql/flush_state.sql"), " FOR UPDATE");

/// Reads the row, and keeps it locked until the transaction ends if told so.
pub(super) async fn read(session: &mut Session, lock: bool) -> Result<FlushState, LedgerError> {
    let text = if lock { LOCK } else { READ };
    match session.fetch_optional(sqlx::query(text)).await? {
        Some(row) => Ok(decode(&row)?),
        None => Err(LedgerError::NotMigrated),
    }
}

fn decode(row: &MySqlRow) -> Result<FlushState, sqlx::Error> {
    let partitions: Option<u16> = row.try_get(6)?;
    let slice_ms: Option<u64> = row.try_get(7)?;
    let key_prefix: Option<String> = row.try_get(8)?;
    Ok(FlushState {
        last: SliceId(row.try_get(0)?),
        landed: SliceId(row.try_get(1)?),
        max_version: Version(row.try_get(2)?),
        progress: Progress {
            slice: SliceId(row.try_get(3)?),
            number: row.try_get(4)?,
            token: row.try_get(5)?,
        },
        layout: match (partitions, slice_ms, key_prefix) {
            (Some(partitions), Some(slice_ms), Some(key_prefix)) => Some(Layout {
                partitions,
                slice_ms,
                key_prefix,
            }),
            _ => None,
        },
        prune_horizon: Version(row.try_get(9)?),
        outside_token: row.try_get(10)?,
        feed: FeedMark {
            state: FeedState::read(row.try_get(11)?),
            last: row.try_get(12)?,
            max: row.try_get(13)?,
        },
        erased_until: Version(row.try_get(14)?),
        targets_void_until: Version(row.try_get(15)?),
    })
}
