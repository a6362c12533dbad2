//! Carries slices from Redis into MySQL: the protocol of ARCHITECTURE.md, step by step. Triggers, schedules and leases are in `jobs`.
//!
//! One flusher at a time is wanted; correctness does not depend on it. Every step may be repeated, and the process may die between any two.

mod compensate;
mod quarantine;
mod read;
mod recent;
mod retry;
mod run;
mod status;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use serde::Serialize;

pub use compensate::{AuditReport, CompensationReport};
pub use recent::{Landing, Rise};
pub use retry::{Retried, retry};
pub use status::{SealedLengths, SliceInfo, SliceState, Standing};

use recent::Recent;

use crate::config::Settings;
use crate::domain::SliceId;
use crate::hot::{Hot, HotError};
use crate::ledger::{Layout, Ledger, LedgerError};
use crate::service::ServiceError;

/// How far a run seals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upto {
    /// Everything before the current window: the current slice stays open.
    PreviousWindow,
    /// Everything that was accepted so far.
    Now,
}

/// What a run did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct FlushReport {
    /// Slices up to this id are sealed, Unix ms.
    pub sealed_upto: u64,
    /// Slices that landed.
    pub slices: u64,
    /// Their entries.
    pub entries: u64,
    /// Rows that were written.
    pub rows_changed: u64,
    /// Entries that were not newer than their row.
    pub rows_stale: u64,
    /// Counts that were moved, once per transaction.
    pub counts_changed: u64,
    /// Transactions that had to begin again.
    pub retries: u64,
    /// Entries that stand in quarantine now and not in their rows.
    pub quarantined: u64,
    /// Partitions that could not be reached.
    pub partitions_skipped: u64,
    /// How long it took, in ms.
    pub duration_ms: u64,
}

/// Why a run ended early. What has landed has landed; the rest stays where it is for the next run.
#[derive(Debug, thiserror::Error)]
pub enum FlushError {
    /// Redis.
    #[error("redis: {0}")]
    Hot(#[from] HotError),
    /// MySQL.
    #[error("database: {0}")]
    Ledger(#[from] LedgerError),
    /// A damaged partition could not be recovered, or an operation was not accepted.
    #[error("{0}")]
    Service(#[from] ServiceError),
    /// Somebody else has sealed since: this run may not go on.
    #[error("another flusher has taken over")]
    Overtaken,
    /// A partition was damaged between check and seal.
    #[error("partition {0} changed while it was being sealed")]
    Unsealed(u16),
    /// A computation panicked.
    #[error("a computation of the flush panicked")]
    Panicked,
    /// HSCAN left fields out, each time.
    #[error("slice {slice} of partition {partition} could not be read whole")]
    Incomplete {
        /// The partition.
        partition: u16,
        /// The slice.
        slice: SliceId,
    },
}

/// Carries slices into MySQL. Clones share what is being flushed.
#[derive(Debug, Clone)]
pub struct Flusher {
    hot: Hot,
    ledger: Ledger,
    layout: Layout,
    bounds: Bounds,
    current: Arc<AtomicU64>,
    recent: Arc<Recent>,
}

#[derive(Debug, Clone)]
struct Bounds {
    rows_max: usize,
    keep_ms: u64,
    ttl_seconds: u64,
    user_fields_max: usize,
    unliked_keep_us: u64,
}

impl Flusher {
    /// A flusher on connected stores.
    pub fn new(hot: Hot, ledger: Ledger, settings: &Settings) -> Self {
        let thumbs_max = settings.resident_thumbs_max as usize;
        Self {
            layout: Layout {
                partitions: hot.partitions(),
                slice_ms: hot.slice_ms(),
                key_prefix: hot.prefix().to_owned(),
            },
            hot,
            ledger,
            bounds: Bounds {
                rows_max: settings.flush_rows_max as usize,
                keep_ms: settings.keep_seconds * 1000,
                ttl_seconds: settings.resident_ttl_seconds,
                // Half as much again as is loaded: then it is cheaper to load the newest ones anew.
                user_fields_max: thumbs_max + thumbs_max / 2 + 1,
                unliked_keep_us: settings.unliked_keep_seconds * 1_000_000,
            },
            current: Arc::default(),
            recent: Arc::default(),
        }
    }
}
