//! Runs of scheduled jobs: each planned run is entered once, whoever tries.

use chrono::{DateTime, NaiveDateTime, Utc};
use sqlx::Row;

use super::{Ledger, LedgerError};

/// Bytes of a detail that are kept.
const DETAIL_BYTES_MAX: usize = 8192;

impl Ledger {
    /// Enters a planned run. `None`: it has been entered already, by this or another instance.
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
             ON DUPLICATE KEY UPDATE job = job",
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

    /// Notes how a run ended: `done` or `failed`.
    pub async fn job_end(&self, id: u64, outcome: &str, detail: &str) -> Result<(), LedgerError> {
        let mut end = detail.len().min(DETAIL_BYTES_MAX);
        while !detail.is_char_boundary(end) {
            end -= 1;
        }
        let note = sqlx::query(
            "UPDATE job_run SET finished_at = UTC_TIMESTAMP(6), outcome = ?, detail = ? WHERE job_run_id = ?",
        )
        .bind(outcome.to_owned())
        .bind(detail[..end].to_owned())
        .bind(id);
        self.session().await?.execute(note).await?;
        Ok(())
    }

    /// When the newest run that was done was planned for.
    pub async fn job_last_done(&self, job: &str) -> Result<Option<DateTime<Utc>>, LedgerError> {
        let find = sqlx::query(
            "SELECT planned_at FROM job_run WHERE job = ? AND outcome = 'done' ORDER BY planned_at DESC LIMIT 1",
        )
        .bind(job.to_owned());
        let row = self.session().await?.fetch_optional(find).await?;
        let planned: Option<NaiveDateTime> = row.map(|row| row.try_get(0)).transpose()?;
        Ok(planned.map(|planned| planned.and_utc()))
    }
}
