//! `verify` within a running process: one at a time, with its progress for whoever watches.

use std::sync::Mutex;
use std::time::Instant;

use chrono::{DateTime, Utc};
use serde::Serialize;
use tokio::sync::Semaphore;

use super::{Watched, locked};
use crate::ledger::Layout;
use crate::limits::VERIFIED_DIFFERENCES_MAX;
use crate::service::ServiceError;
use crate::verify::{self, Difference, Progress, Report, VerifyError};

/// What a comparison of Redis and MySQL found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Verification {
    /// What is not as it must be.
    pub differences_total: u64,
    /// The first of them.
    #[schema(max_items = 50)]
    pub differences: Vec<Found>,
    /// Rows looked at.
    pub rows: u64,
    /// Targets with rows.
    pub targets: u64,
    /// Users in Redis that were compared.
    pub users: u64,
    /// Counts in Redis that were compared.
    pub counts: u64,
    /// Keys that changed each time they were looked at: neither right nor wrong.
    pub unsettled: u64,
    /// Partitions in which nothing is.
    pub partitions_empty: u64,
    /// How long it took, in ms.
    pub duration_ms: u64,
}

/// Something that is not as it must be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = VerifiedDifference)]
pub struct Found {
    /// What was compared, in words.
    pub place: &'static str,
    /// The partition, if it belongs to one.
    #[schema(required = true)]
    pub partition: Option<u16>,
    /// Which count, or which user's like of what.
    pub key: String,
    /// What is there.
    pub found: String,
    /// What should be there.
    pub expected: String,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum VerificationError {
    /// Another one is under way in this process.
    #[error("another verification is under way")]
    Busy,
    /// A store.
    #[error(transparent)]
    Service(#[from] ServiceError),
}

/// How the verifications of this process stand.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Standing {
    running: bool,
    rows_seen: u64,
    rows_estimate: u64,
    residents_seen: u64,
    /// When the last one ended.
    finished_at: Option<DateTime<Utc>>,
    /// What it found.
    differences: Option<u64>,
}

impl Standing {
    /// When one ended last, and what it found.
    pub(super) fn verified(&self) -> Option<(DateTime<Utc>, u64)> {
        self.finished_at.zip(self.differences)
    }
}

pub(super) struct Desk {
    standing: Mutex<Standing>,
    place: Semaphore,
}

impl Default for Desk {
    fn default() -> Self {
        Self {
            standing: Mutex::default(),
            place: Semaphore::new(1),
        }
    }
}

impl Desk {
    pub(super) fn standing(&self) -> Standing {
        locked(&self.standing).clone()
    }

    fn begin(&self) -> Running<'_> {
        let mut standing = locked(&self.standing);
        *standing = Standing {
            running: true,
            finished_at: standing.finished_at,
            differences: standing.differences,
            ..Standing::default()
        };
        Running(self)
    }

    fn note(&self, progress: Progress) {
        let mut standing = locked(&self.standing);
        match progress {
            Progress::Rows { seen, estimate } => {
                standing.rows_seen = seen;
                standing.rows_estimate = estimate.max(seen);
            }
            Progress::Residents { seen, .. } => standing.residents_seen = seen,
        }
    }
}

/// Also ends when its caller hangs up.
struct Running<'a>(&'a Desk);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        locked(&self.0.standing).running = false;
    }
}

impl Watched {
    pub(super) async fn verify(&self) -> Result<Verification, VerificationError> {
        let desk = &self.verification;
        let _place = desk
            .place
            .try_acquire()
            .map_err(|_| VerificationError::Busy)?;
        let _running = desk.begin();
        let begun = Instant::now();
        let (hot, ledger) = (self.service.hot(), self.service.ledger());
        let layout = Layout {
            partitions: hot.partitions(),
            slice_ms: hot.slice_ms(),
            key_prefix: hot.prefix().to_owned(),
        };
        let report = verify::run(hot, ledger, &layout, |progress| desk.note(progress)).await;
        let report = report.map_err(|error| match error {
            VerifyError::Hot(error) => ServiceError::from(error),
            VerifyError::Ledger(error) => ServiceError::from(error),
        })?;
        let mut standing = locked(&desk.standing);
        standing.finished_at = Some(Utc::now());
        standing.differences = Some(report.differences_total);
        Ok(answer(report, begun))
    }
}

fn answer(report: Report, begun: Instant) -> Verification {
    let found = |one: Difference| Found {
        place: one.place.name(),
        partition: one.partition,
        key: one.key,
        found: one.found,
        expected: one.expected,
    };
    let listed = report.differences.into_iter();
    Verification {
        differences_total: report.differences_total,
        differences: listed.take(VERIFIED_DIFFERENCES_MAX).map(found).collect(),
        rows: report.rows,
        targets: report.targets,
        users: report.users,
        counts: report.counts,
        unsettled: report.unsettled,
        partitions_empty: report.partitions_empty,
        duration_ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
    }
}
