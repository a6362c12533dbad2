//! The compensator: finds slices that the flush missed, carries them into MySQL, and compares counts with rows.

use std::time::Instant;

use serde::Serialize;

use super::{FlushError, FlushReport, Flusher, Upto};
use crate::ledger::{Audit, CountDifference};
use crate::service::new_generation;
use crate::steps;

/// Differences that a report lists; all are counted.
const DIFFERENCES_LISTED: usize = 20;

/// What the compensator did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CompensationReport {
    /// Slices that a SCAN found, the open ones among them.
    pub slices_found: u64,
    /// Those that were not listed any more and were listed again.
    pub slices_adopted: u64,
    /// What the flush did.
    pub flush: FlushReport,
    /// Stored counts against rows.
    pub audit: AuditReport,
    /// How long it took, in ms.
    pub duration_ms: u64,
}

/// Stored counts against rows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct AuditReport {
    /// Rows looked at.
    pub rows_seen: u64,
    /// Targets looked at.
    pub targets_seen: u64,
    /// Counts that are not what the rows say.
    pub differences_total: u64,
    /// The first of them, in words.
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
}
