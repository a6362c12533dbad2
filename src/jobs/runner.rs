//! The task that runs one job at a time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use chrono::{DateTime, SubsecRound as _, TimeDelta, Utc};

use super::desk::{Desk, Waiter, Work};
use super::lag::Lag;
use super::lease::Lease;
use super::{JobError, LastRun};
use crate::erasure::Eraser;
use crate::flush::{CompensationReport, FlushError, FlushReport, Flusher, Upto};
use crate::ledger::JobEnd;
use crate::limits::{ERASE_LOOK_PAUSE, JOB_RUNS_KEPT, SEAL_PAUSE, UNSETTLED_PAUSE};
use crate::service::Service;
use crate::telemetry::names;

/// How often a run begins again because somebody else came between.
const TRIES_MAX: usize = 3;
/// The compensator's name in `job_run`.
pub const COMPENSATE: &str = "compensate";
/// At start the compensator runs if its last run is older than this.
const COMPENSATE_AGE_MAX: TimeDelta = TimeDelta::days(1);

/// The task's own things.
pub(super) struct Runner {
    flusher: Flusher,
    service: Service,
    eraser: Eraser,
    desk: Arc<Desk>,
    lag: Arc<Lag>,
    lease_ttl: Duration,
    owner: String,
    /// When somebody was last served on demand.
    served_at: Option<Instant>,
    /// Per job what it failed of last.
    failing: HashMap<&'static str, String>,
    /// A planned run that another instance may be at, or that could not begin.
    unsettled: Option<DateTime<Utc>>,
    /// When it is looked again for erasures.
    erase_at: tokio::time::Instant,
}

impl Runner {
    pub(super) fn new(
        flusher: Flusher,
        service: Service,
        eraser: Eraser,
        (desk, lag): (Arc<Desk>, Arc<Lag>),
        (owner, lease_ttl): (String, Duration),
    ) -> Self {
        Self {
            flusher,
            service,
            eraser,
            desk,
            lag,
            lease_ttl,
            owner,
            served_at: None,
            failing: HashMap::new(),
            unsettled: None,
            erase_at: tokio::time::Instant::now(),
        }
    }

    /// Works until the last flush.
    pub(super) async fn run(mut self) {
        count_from_zero();
        self.compensate_if_old().await;
        loop {
            let unsettled = self.unsettled;
            let work = tokio::select! {
                work = self.desk.next() => work,
                () = tokio::time::sleep(UNSETTLED_PAUSE), if unsettled.is_some() => {
                    Work::Compensate(unsettled)
                }
                () = tokio::time::sleep_until(self.erase_at) => Work::Erase,
            };
            match work {
                Work::Flush => self.flush().await,
                Work::Compensate(planned) => self.compensate(planned).await,
                Work::Erase => self.erase().await,
                Work::End => break,
            }
        }
    }

    async fn compensate_if_old(&self) {
        match self.service.ledger().job_last_done(COMPENSATE).await {
            Ok(Some(last)) if Utc::now() - last.planned_at < COMPENSATE_AGE_MAX => {}
            // To the minute: instances that start together call it by the same time, so that it happens once.
            Ok(_) => {
                let now = Utc::now();
                let seconds = TimeDelta::seconds(now.timestamp() % 60);
                self.desk.compensation_due(now.trunc_subsecs(0) - seconds);
            }
            Err(error) => tracing::warn!(%error, "cannot tell when the compensator last ran"),
        }
    }

    async fn flush(&mut self) {
        self.pace().await;
        let started = Instant::now();
        let served = Served::default();
        let result = match self.lease().await {
            None => return,
            Some(Err(error)) => Err(error),
            Some(Ok(lease)) => {
                let (flusher, desk, waiters) =
                    (self.flusher.clone(), Arc::clone(&self.desk), served.clone());
                let run = again(move || {
                    let (flusher, desk, waiters) =
                        (flusher.clone(), Arc::clone(&desk), waiters.clone());
                    async move { flusher.run(|| serve(&waiters, desk.take_flush())).await }
                });
                let result = guarded(run).await;
                lease.release().await;
                result
            }
        };
        let mut waiters = served.take();
        if result.is_err() {
            // It failed before it sealed: those who wait would only wait for the same.
            waiters.extend(self.desk.take_flush());
        }
        if let Ok(report) = &result {
            note_flush(report);
        }
        self.note_outcome("flush", result.as_ref().map(drop), started);
        self.desk.note_flush(last_run(&result));
        self.lag.measure_now();
        for waiter in waiters {
            let _ = waiter.send(result.clone());
        }
    }

    async fn compensate(&mut self, planned: Option<DateTime<Utc>>) {
        // Not behind a newer one: of several planned runs the newest does for all.
        let planned = planned.max(self.unsettled.take());
        let started = Instant::now();
        let lease = match self.lease().await {
            Some(lease) => lease,
            None => {
                self.unsettled = planned;
                return;
            }
        };
        let served = Served::default();
        let waited = started.elapsed();
        let (begun, result) = match lease {
            Err(error) => (None, Err(error)),
            Ok(lease) => {
                let ledger = self.service.ledger();
                let entered = planned.unwrap_or_else(Utc::now);
                let begun = ledger.job_begin(COMPENSATE, entered, &self.owner).await;
                let result = match &begun {
                    // Another instance did this planned run.
                    Ok(None) if !self.desk.is_asked() => return lease.release().await,
                    Err(error) => Err(JobError::Failed(format!("database: {error}"))),
                    Ok(_) => self.compensate_guarded(&served).await,
                };
                if let Ok(Some(id)) = begun {
                    self.note_end(id, &result, waited, started).await;
                }
                lease.release().await;
                (begun.ok(), result)
            }
        };
        if begun.is_none() {
            // It could not be entered, so nobody knows of it yet.
            self.unsettled = planned.filter(|_| result.is_err());
        }
        let mut waiters = served.take();
        if result.is_err() {
            waiters.extend(self.desk.take_compensation());
        }
        if let Ok(report) = &result {
            note_flush(&report.flush);
            tracing::info!(
                slices_adopted = report.slices_adopted,
                entries = report.flush.entries,
                differences = report.audit.differences_total,
                duration_ms = report.duration_ms,
                "compensated"
            );
        }
        self.note_outcome(COMPENSATE, result.as_ref().map(drop), started);
        self.desk.note_compensation(last_run(&result));
        self.lag.measure_now();
        for waiter in waiters {
            let _ = waiter.send(result.clone());
        }
    }

    /// Takes up what was asked for here, what another process has left, and what failed. One that has the lease looks too.
    async fn erase(&mut self) {
        self.erase_at = tokio::time::Instant::now() + ERASE_LOOK_PAUSE;
        match self.eraser.is_asked().await {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => {
                tracing::debug!(%error, "cannot tell whether somebody is to be erased");
                return;
            }
        }
        let started = Instant::now();
        let lease = Lease::take(self.service.hot(), &self.owner, self.lease_ttl).await;
        let result = match lease {
            Ok(None) => {
                self.erase_at = tokio::time::Instant::now() + UNSETTLED_PAUSE;
                return;
            }
            Err(error) => Err(JobError::Failed(format!("redis: {error}"))),
            Ok(Some(lease)) => {
                let eraser = self.eraser.clone();
                let result = guarded(async move { Ok(eraser.run().await?) }).await;
                lease.release().await;
                result
            }
        };
        self.note_outcome("erase", result.as_ref().map(drop), started);
        self.lag.measure_now();
        if result.is_ok() {
            // There may be more than one run takes.
            self.desk.erase_due();
        }
    }

    async fn compensate_guarded(
        &self,
        served: &Served<CompensationReport>,
    ) -> Result<CompensationReport, JobError> {
        let (flusher, desk, waiters) =
            (self.flusher.clone(), Arc::clone(&self.desk), served.clone());
        let run = again(move || {
            let (flusher, desk, waiters) = (flusher.clone(), Arc::clone(&desk), waiters.clone());
            async move {
                let upto = || serve(&waiters, desk.take_compensation());
                flusher.compensate(upto).await
            }
        });
        guarded(run).await
    }

    /// Before the lease is given back: whoever has it next would take over a run without an end.
    async fn note_end(
        &self,
        id: u64,
        result: &Result<CompensationReport, JobError>,
        waited: Duration,
        started: Instant,
    ) {
        let (outcome, detail) = match result {
            Ok(report) => ("done", serde_json::to_string(report).unwrap_or_default()),
            Err(error) => ("failed", error.to_string()),
        };
        let end = JobEnd {
            outcome,
            detail: &detail,
            waited,
            held: started.elapsed().saturating_sub(waited),
        };
        let ledger = self.service.ledger();
        let kept = Utc::now() - JOB_RUNS_KEPT;
        let noted = match ledger.job_end(id, &self.owner, end).await {
            Ok(()) => ledger.job_prune(COMPENSATE, kept).await,
            Err(error) => Err(error),
        };
        if let Err(error) = noted {
            tracing::warn!(%error, "the compensator's run was not noted");
        }
    }

    /// Whoever asks shortly behind a run that somebody asked for waits a little, and others join.
    async fn pace(&mut self) {
        if !self.desk.is_asked() {
            return;
        }
        if let Some(served_at) = self.served_at {
            tokio::time::sleep(SEAL_PAUSE.saturating_sub(served_at.elapsed())).await;
        }
        self.served_at = Some(Instant::now());
    }

    /// The lease; `None` if a scheduled run is left to the instance that has it.
    async fn lease(&self) -> Option<Result<Lease, JobError>> {
        match Lease::take(self.service.hot(), &self.owner, self.lease_ttl).await {
            Ok(Some(lease)) => Some(Ok(lease)),
            Ok(None) if !self.desk.is_asked() => None,
            Ok(None) => Some(self.lease_wait().await),
            Err(error) => Some(Err(JobError::Failed(format!("redis: {error}")))),
        }
    }

    async fn lease_wait(&self) -> Result<Lease, JobError> {
        Lease::wait(self.service.hot(), &self.owner, self.lease_ttl).await
    }

    /// Counts, and logs when things begin to fail and when they are well again.
    fn note_outcome(&mut self, job: &'static str, result: Result<(), &JobError>, started: Instant) {
        let outcome = if result.is_ok() { "done" } else { "failed" };
        metrics::counter!(names::FLUSHES, "task" => job, "outcome" => outcome).increment(1);
        metrics::histogram!(names::FLUSH_SECONDS, "task" => job)
            .record(started.elapsed().as_secs_f64());
        match result {
            Err(error) => {
                let reason = error.to_string();
                let last = self.failing.insert(job, reason.clone());
                if last.as_ref() == Some(&reason) {
                    tracing::debug!(job, reason, "job failed again");
                } else {
                    tracing::error!(job, reason, "job failed, the next run tries again");
                }
            }
            Ok(()) => {
                if self.failing.remove(job).is_some() {
                    tracing::info!(job, "job is well again");
                }
            }
        }
    }
}

/// Begins the counters that are alerted on at 0: one that appears with its first event has not risen for whoever looks at it.
fn count_from_zero() {
    for job in ["flush", COMPENSATE] {
        for outcome in ["done", "failed"] {
            metrics::counter!(names::FLUSHES, "task" => job, "outcome" => outcome).increment(0);
        }
    }
    metrics::counter!(names::FLUSH_TRANSACTIONS).increment(0);
    metrics::counter!(names::TRANSACTION_RETRIES).increment(0);
    metrics::counter!(names::LEASES_LOST).increment(0);
}

/// Those whom a run serves since it has sealed.
struct Served<R>(Arc<Mutex<Vec<Waiter<R>>>>);

impl<R> Default for Served<R> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<R> Clone for Served<R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<R> Served<R> {
    fn take(&self) -> Vec<Waiter<R>> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Takes over those who wait. If there are any, what they know to be accepted must be sealed.
fn serve<R>(served: &Served<R>, waiters: Vec<Waiter<R>>) -> Upto {
    let mut all = served.0.lock().unwrap_or_else(PoisonError::into_inner);
    all.extend(waiters);
    if all.is_empty() {
        Upto::PreviousWindow
    } else {
        Upto::Now
    }
}

/// Begins again when another flusher came between; the lease makes that rare.
async fn again<R, F>(run: impl Fn() -> F) -> Result<R, JobError>
where
    F: Future<Output = Result<R, FlushError>>,
{
    for _ in 1..TRIES_MAX {
        match run().await {
            Err(FlushError::Overtaken | FlushError::Unsealed(_)) => {}
            other => return Ok(other?),
        }
    }
    Ok(run().await?)
}

/// A panic ends the run, not the task.
pub(super) async fn guarded<R: Send + 'static>(
    run: impl Future<Output = Result<R, JobError>> + Send + 'static,
) -> Result<R, JobError> {
    match tokio::spawn(run).await {
        Ok(result) => result,
        Err(error) => {
            tracing::error!(%error, "job panicked");
            Err(JobError::Died)
        }
    }
}

fn note_flush(report: &FlushReport) {
    metrics::counter!(names::FLUSHED_ENTRIES).increment(report.entries);
    metrics::counter!(names::FLUSHED_ROWS).increment(report.rows_changed);
    if report.slices > 0 {
        tracing::info!(
            slices = report.slices,
            entries = report.entries,
            rows = report.rows_changed,
            duration_ms = report.duration_ms,
            "flushed"
        );
    }
}

fn last_run<R: Clone>(result: &Result<R, JobError>) -> LastRun<R> {
    LastRun {
        finished_at: Utc::now(),
        report: result.as_ref().ok().cloned(),
        error: result.as_ref().err().map(JobError::to_string),
    }
}
