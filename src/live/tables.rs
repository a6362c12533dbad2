//! What only MySQL knows: the most liked, the runs of the compensator, quarantine, the feed. Some small queries every few seconds.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::{Watched, locked};
use crate::jobs::COMPENSATE;
use crate::ledger::{FeedStatus, JobRun, Ledger, LedgerError};
use crate::limits::{LIVE_COMPENSATIONS_MAX, LIVE_KINDS_MAX, LIVE_TABLES_PAUSE, LIVE_TARGETS_MAX};

/// The last look; what could not be asked since stays.
#[derive(Debug, Clone, Default)]
pub(super) struct Tables {
    pub(super) most_liked: Vec<Liked>,
    pub(super) compensations: Vec<Compensation>,
    pub(super) compensated_at: Option<DateTime<Utc>>,
    pub(super) quarantine: Option<u64>,
    pub(super) feed: Option<FeedStatus>,
}

/// A target and how many like it, as of the last flush.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Liked {
    kind: String,
    id: String,
    count: i64,
}

/// A run of the compensator, in whatever instance.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Compensation {
    planned_at: DateTime<Utc>,
    owner: String,
    started_at: DateTime<Utc>,
    finished_at: Option<DateTime<Utc>>,
    /// `done`, `failed`, or null: under way, or its owner died.
    outcome: Option<String>,
    /// Why it failed.
    error: Option<String>,
    /// Counts that were not what the rows say.
    differences: Option<u64>,
    slices_adopted: Option<u64>,
    rows_pruned: Option<u64>,
}

impl Compensation {
    /// When it ended, and the differences that it found, if it came to its end.
    pub(super) fn audited(&self) -> Option<(DateTime<Utc>, u64)> {
        self.finished_at.zip(self.differences)
    }

    #[cfg(test)]
    pub(super) fn found((at, differences): (DateTime<Utc>, u64)) -> Self {
        Self {
            planned_at: at,
            owner: String::new(),
            started_at: at,
            finished_at: Some(at),
            outcome: Some("done".into()),
            error: None,
            differences: Some(differences),
            slices_adopted: Some(0),
            rows_pruned: Some(0),
        }
    }

    fn read(run: JobRun) -> Self {
        let detail = run.detail.unwrap_or_default();
        let failed = run.outcome.as_deref() == Some("failed");
        let report: serde_json::Value = serde_json::from_str(&detail).unwrap_or_default();
        Self {
            planned_at: run.planned_at,
            owner: run.owner,
            started_at: run.started_at,
            finished_at: run.finished_at,
            outcome: run.outcome,
            error: failed.then_some(detail),
            differences: report["audit"]["differences_total"].as_u64(),
            slices_adopted: report["slices_adopted"].as_u64(),
            rows_pruned: report["rows_pruned"].as_u64(),
        }
    }
}

impl Watched {
    pub(super) async fn look_at_tables(self: Arc<Self>) {
        loop {
            self.looked_at().await;
            match read(self.service.ledger()).await {
                Ok(tables) => *locked(&self.tables) = tables,
                Err(error) => tracing::debug!(%error, "the database was not looked at"),
            }
            tokio::time::sleep(LIVE_TABLES_PAUSE).await;
        }
    }
}

async fn read(ledger: &Ledger) -> Result<Tables, LedgerError> {
    let mut most_liked = Vec::new();
    for kind in ledger.kind_names(LIVE_KINDS_MAX).await? {
        let rows = ledger.ranking(&kind, None, LIVE_TARGETS_MAX).await?;
        most_liked.extend(rows.into_iter().map(|row| Liked {
            kind: row.target.kind().to_owned(),
            id: row.target.id().to_owned(),
            count: row.count,
        }));
    }
    most_liked.sort_by_key(|one| std::cmp::Reverse(one.count));
    most_liked.truncate(LIVE_TARGETS_MAX);
    let runs = ledger
        .job_newest(COMPENSATE, LIVE_COMPENSATIONS_MAX)
        .await?;
    Ok(Tables {
        most_liked,
        compensations: runs.into_iter().map(Compensation::read).collect(),
        compensated_at: ledger
            .job_last_done(COMPENSATE)
            .await?
            .map(|run| run.planned_at),
        quarantine: Some(ledger.quarantine_count().await?),
        feed: Some(ledger.feed_status().await?),
    })
}
