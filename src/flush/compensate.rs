//! The compensator: finds slices that the flush missed, carries them into MySQL, and compares counts with rows.

use std::time::Instant;

use serde::Serialize;

use super::{FlushError, FlushReport, Flusher, Upto};
use crate::domain::Version;
use crate::ledger::{Audit, CountDifference};
use crate::service::new_generation;
use crate::steps;

/// Differences that a report lists; all are counted.
const DIFFERENCES_LISTED: usize = 20;

/// What the compensator did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct CompensationReport {
    /// Slices that a SCAN found, the open ones among them.
    pub slices_found: u64,
    /// Those that were not listed any more and were listed again.
    pub slices_adopted: u64,
    /// Rows that say "no longer liked" and were removed because nothing older can come.
    pub rows_pruned: u64,
    /// Such rows with a version below this, in µs, may be gone.
    pub prune_horizon: u64,
    /// What the flush did.
    pub flush: FlushReport,
    /// Stored counts against rows.
    pub audit: AuditReport,
    /// How long it took, in ms.
    pub duration_ms: u64,
}

/// Stored counts against rows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct AuditReport {
    /// Rows looked at.
    pub rows_seen: u64,
    /// Targets looked at.
    pub targets_seen: u64,
    /// Counts that are not what the rows say.
    pub differences_total: u64,
    /// The first of them, in words.
    #[schema(max_items = 20)]
    pub differences: Vec<String>,
}

impl From<Audit> for AuditReport {
    fn from(audit: Audit) -> Self {
        Self {
            rows_seen: audit.rows_seen,
            targets_seen: audit.targets_seen,
            differences_total: audit.differences_total,
            differences: audit
                .differences
                .iter()
                .take(DIFFERENCES_LISTED)
                .map(describe)
                .collect(),
        }
    }
}

fn describe(one: &CountDifference) -> String {
    let stored = one
        .stored
        .map_or("no count".to_owned(), |stored| format!("count {stored}"));
    match one.partition {
        Some(partition) => format!(
            "{}, partition {partition}: {stored}, {} rows",
            one.target, one.rows
        ),
        None => format!("{}: {stored}, {} rows", one.target, one.rows),
    }
}

impl Flusher {
    /// Runs once. `upto` is asked immediately before sealing.
    pub async fn compensate(
        &self,
        upto: impl FnOnce() -> Upto + Send,
    ) -> Result<CompensationReport, FlushError> {
        let started = Instant::now();
        let mut report = CompensationReport::default();
        for partition in 0..self.hot.partitions() {
            let found = self.hot.slices_found(partition).await?;
            let peek = self.hot.peek(partition).await?;
            report.slices_found += found.len() as u64;
            for slice in found {
                let leftover = slice <= peek.sealed && !peek.live.contains(&slice);
                if !leftover {
                    continue;
                }
                steps::point("compensate.adopt").await;
                if self.hot.adopt(partition, slice, &new_generation()).await? {
                    tracing::warn!(partition, slice = slice.0, "leftover slice adopted");
                    report.slices_adopted += 1;
                }
                steps::point("compensate.adopted").await;
            }
        }
        report.flush = self.run(upto).await?;
        steps::point("compensate.flushed").await;
        if report.flush.partitions_skipped == 0 {
            let horizon = self.horizon().await?;
            report.prune_horizon = horizon.0;
            if horizon > Version(0) {
                match self.ledger.prune(horizon).await? {
                    Some(pruned) => report.rows_pruned = pruned,
                    None => {
                        report.prune_horizon = 0;
                        tracing::info!("nothing is pruned while an import is under way");
                    }
                }
            }
        }
        steps::point("compensate.pruned").await;
        report.audit = self.ledger.audit_counts(|_, _| ()).await?.into();
        if report.audit.differences_total > 0 {
            tracing::error!(
                differences = report.audit.differences_total,
                first = report.audit.differences.first(),
                "counts are not what the rows say"
            );
        }
        report.duration_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        Ok(report)
    }

    /// Below this no operation can come any more: not a new one, whose version is above every clock and above all that MySQL
    /// has, and not an old one from a slice that is live, kept or left over, or from quarantine. Less what is kept in any case.
    async fn horizon(&self) -> Result<Version, FlushError> {
        let mut horizon = self.ledger.flush_state().await?.max_version.0;
        for partition in 0..self.hot.partitions() {
            let peek = self.hot.peek(partition).await?;
            horizon = horizon.min(peek.clock.0);
            let found = self.hot.slices_found(partition).await?;
            let oldest = found.iter().chain(&peek.live).chain(&peek.kept).min();
            horizon = horizon.min(oldest.map_or(u64::MAX, |oldest| oldest.0 * 1000));
        }
        if let Some(oldest) = self.ledger.quarantine_oldest().await? {
            horizon = horizon.min(oldest.0);
        }
        Ok(Version(horizon.saturating_sub(self.bounds.unliked_keep_us)))
    }
}
