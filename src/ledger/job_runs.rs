//! Runs of the compensator: each is entered once, whoever tries, and done by one. Runs of the flush are not entered: there is one every few
//! seconds, and the metrics count them.

use std::time::Duration;

use chrono::{DateTime, NaiveDateTime, Utc};
use sqlx::Row;
use sqlx::mysql::MySqlRow;

use super::{Ledger, LedgerError};
use crate::limits::JOB_RUNS_PER_PRUNE;

/// Bytes of a detail that are kept.
const DETAIL_BYTES_MAX: usize = 8192;

/// A run as it was entered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRun {
    /// When it was planned or asked for.
    pub planned_at: DateTime<Utc>,
    /// Who began it.
    pub owner: String,
    /// When that was, by MySQL's clock.
    pub started_at: DateTime<Utc>,
    /// When it ended; `None`: it has not, or its owner died.
    pub finished_at: Option<DateTime<Utc>>,
    /// `done` or `failed`.
    pub outcome: Option<String>,
    /// What it did, or why it failed.
    pub detail: Option<String>,
}

/// How a run ended.
#[derive(Debug, Clone)]
pub struct JobEnd<'a> {
    /// `done` or `failed`.
    pub outcome: &'a str,
    /// What it did, or why it failed.
    pub detail: &'a str,
    /// How long it waited for the lease.
    pub waited: Duration,
    /// How long it held it.
    pub held: Duration,
}

/// A run that was done.
#[derive(Debug, Clone)]
pub struct JobDone {
    /// When it was planned or asked for.
    pub planned_at: DateTime<Utc>,
    /// What it did, up to 8192 bytes of it.
    pub detail: String,
}

impl Ledger {
    /// Enters a run by the time it was planned or asked for. `None`: it has come to its end already. For whoever has the lease: a run
    /// that was entered and did not end is taken over, because its owner is dead.
    pub async fn job_begin(
        &self,
        job: &str,
        planned_at: DateTime<Utc>,
        owner: &str,
    ) -> Result<Option<u64>, LedgerError> {
        let mut session = self.session().await?;
        // The owner tells whose row it is: an update that changes nothing counts like one that does.
        let enter = sqlx::query(
            "INSERT INTO job_run (job, planned_at, owner, started_at) VALUES (?, ?, ?, UTC_TIMESTAMP(6)) \
             ON DUPLICATE KEY UPDATE owner = IF(finished_at IS NULL, VALUES(owner), owner), \
             started_at = IF(finished_at IS NULL, VALUES(started_at), started_at)",
        )
        .bind(job.to_owned())
        .bind(planned_at.naive_utc())
        .bind(owner.to_owned());
        session.execute(enter).await?;
        let find = sqlx::query(
            "SELECT job_run_id FROM job_run WHERE job = ? AND planned_at = ? AND owner = ? AND finished_at IS NULL",
        )
        .bind(job.to_owned())
        .bind(planned_at.naive_utc())
        .bind(owner.to_owned());
        let row = session.fetch_optional(find).await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?)
    }

    /// Notes how a run ended, unless somebody else has taken it over.
    pub async fn job_end(&self, id: u64, owner: &str, end: JobEnd<'_>) -> Result<(), LedgerError> {
        let mut cut = end.detail.len().min(DETAIL_BYTES_MAX);
        while !end.detail.is_char_boundary(cut) {
            cut -= 1;
        }
        let note = sqlx::query(
            "UPDATE job_run SET finished_at = UTC_TIMESTAMP(6), outcome = ?, detail = ?, waited_ms = ?, held_ms = ? \
             WHERE job_run_id = ? AND owner = ?",
        )
        .bind(end.outcome.to_owned())
        .bind(end.detail[..cut].to_owned())
        .bind(millis(end.waited))
        .bind(millis(end.held))
        .bind(id)
        .bind(owner.to_owned());
        self.session().await?.execute(note).await?;
        Ok(())
    }

    /// The newest run that was done, by the time for which it was planned.
    pub async fn job_last_done(&self, job: &str) -> Result<Option<JobDone>, LedgerError> {
        let find = sqlx::query(
            "SELECT planned_at, detail FROM job_run WHERE job = ? AND outcome = 'done' ORDER BY planned_at DESC LIMIT 1",
        )
        .bind(job.to_owned());
        let row = self.session().await?.fetch_optional(find).await?;
        let Some(row) = row else { return Ok(None) };
        Ok(Some(JobDone {
            planned_at: row.try_get::<NaiveDateTime, _>(0)?.and_utc(),
            detail: row.try_get::<Option<String>, _>(1)?.unwrap_or_default(),
        }))
    }

    /// The newest runs, by the time they were planned for.
    pub async fn job_newest(&self, job: &str, limit: u64) -> Result<Vec<JobRun>, LedgerError> {
        let find = sqlx::query(
            "SELECT planned_at, owner, started_at, finished_at, outcome, detail FROM job_run \
             WHERE job = ? ORDER BY planned_at DESC LIMIT ?",
        )
        .bind(job.to_owned())
        .bind(limit);
        let rows = self.session().await?.fetch_all(find).await?;
        let decode = |row: &MySqlRow| {
            let at = |column: usize| row.try_get::<NaiveDateTime, _>(column);
            let finished: Option<NaiveDateTime> = row.try_get(3)?;
            Ok(JobRun {
                planned_at: at(0)?.and_utc(),
                owner: row.try_get(1)?,
                started_at: at(2)?.and_utc(),
                finished_at: finished.map(|at| at.and_utc()),
                outcome: row.try_get(4)?,
                detail: row.try_get(5)?,
            })
        };
        rows.iter().map(decode).collect()
    }

    /// Removes runs that were planned before a time; many are removed bit by bit, each time somebody calls.
    pub async fn job_prune(&self, job: &str, before: DateTime<Utc>) -> Result<(), LedgerError> {
        let prune = sqlx::query(
            "DELETE FROM job_run WHERE job = ? AND planned_at < ? ORDER BY planned_at LIMIT ?",
        )
        .bind(job.to_owned())
        .bind(before.naive_utc())
        .bind(JOB_RUNS_PER_PRUNE);
        self.session().await?.execute(prune).await?;
        Ok(())
    }
}

fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}
