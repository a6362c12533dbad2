//! When the flush and the compensator run: on schedule, on demand, at start and at the end. What they do is in `flush`.
//!
//! One task runs one job at a time. Schedules and requests only leave word at its desk; whoever asks is answered by the first
//! run that seals after the asking.

mod desk;
mod error;
mod gauges;
mod lag;
mod lease;
mod plan;
mod runner;
mod schedule;
mod watch;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_cron_scheduler::JobScheduler;
use tokio_util::task::AbortOnDropHandle;

use desk::Desk;
pub use error::JobError;
use lag::Lag;
pub use lease::{JOB as LEASE_JOB, Lease};
pub use runner::COMPENSATE;
use runner::{Runner, guarded};
pub use schedule::Clock;

use crate::config::Settings;
use crate::domain::{Operation, Target};
use crate::erasure::{Eraser, Restored};
use crate::flush::{
    CompensationReport, FlushReport, Flusher, Landing, SealedLengths, SliceInfo, Standing,
};
use crate::ledger::Ledger;
use crate::limits::{DURABLE_PAUSE, FLUSH_LAG_MAX};
use crate::service::{Service, new_generation};

/// A handle on the jobs of this process.
#[derive(Clone)]
pub struct Jobs(Arc<Inner>);

struct Inner {
    flusher: Flusher,
    eraser: Eraser,
    service: Service,
    lease_ttl: Duration,
    desk: Arc<Desk>,
    runner: Mutex<Option<JoinHandle<()>>>,
    scheduler: tokio::sync::Mutex<JobScheduler>,
    ledger: Ledger,
    lag: Arc<Lag>,
    lag_max: Duration,
    owner: String,
    _measure: AbortOnDropHandle<()>,
    _watch: AbortOnDropHandle<()>,
    _gauges: AbortOnDropHandle<()>,
}

/// How a job's last run ended.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub struct LastRun<R> {
    /// When it ended, by this machine's clock.
    pub finished_at: DateTime<Utc>,
    /// What it did, if it did not fail.
    #[schema(required = true)]
    pub report: Option<R>,
    /// Why it failed.
    #[schema(required = true)]
    pub error: Option<String>,
}

/// How the jobs stand.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub struct JobsStatus {
    /// Live slices.
    pub slices: Vec<SliceInfo>,
    /// Age of the oldest live slice in ms.
    pub lag_ms: u64,
    /// Entries in live slices.
    pub entries: u64,
    /// The last flush of this process.
    #[schema(required = true)]
    pub last_flush: Option<LastRun<FlushReport>>,
    /// The last compensation of this process.
    #[schema(required = true)]
    pub last_compensation: Option<LastRun<CompensationReport>>,
}

/// Readiness tells of the flush when the oldest operation waits longer than this.
pub fn lag_max(settings: &Settings) -> Duration {
    FLUSH_LAG_MAX.max(Duration::from_secs(3 * settings.slice_seconds + 10))
}

impl Jobs {
    /// Starts the task and the schedules.
    pub async fn start(settings: &Settings, service: &Service) -> anyhow::Result<Self> {
        Self::start_by(settings, service, Arc::new(Utc::now)).await
    }

    /// The same, with the compensator planned by another clock than the machine's.
    pub async fn start_by(
        settings: &Settings,
        service: &Service,
        clock: Clock,
    ) -> anyhow::Result<Self> {
        let flusher = Flusher::new(service.hot().clone(), service.ledger().clone(), settings);
        let desk = Arc::new(Desk::default());
        let lag = Arc::new(Lag::default());
        let owner = new_generation();
        let lease_ttl = Duration::from_millis(settings.lease_ttl_ms);
        let eraser = Eraser::new(service, &flusher, settings);
        let runner = Runner::new(
            flusher.clone(),
            service.clone(),
            eraser.clone(),
            (Arc::clone(&desk), Arc::clone(&lag)),
            (owner.clone(), lease_ttl),
        );
        let scheduler = schedule::start(settings, &desk, clock).await?;
        let measure = Arc::clone(&lag).measure(flusher.clone(), service.clone());
        let watch = watch::watch(service.clone(), Arc::clone(&desk));
        Ok(Self(Arc::new(Inner {
            _measure: AbortOnDropHandle::new(closing(&desk, measure)),
            _watch: AbortOnDropHandle::new(closing(&desk, watch)),
            _gauges: AbortOnDropHandle::new(closing(
                &desk,
                gauges::measure(service.ledger().clone(), Arc::clone(&lag)),
            )),
            runner: Mutex::new(Some(closing(&desk, runner.run()))),
            ledger: service.ledger().clone(),
            service: service.clone(),
            eraser,
            lease_ttl,
            lag_max: lag_max(settings),
            lag,
            owner,
            flusher,
            desk,
            scheduler: tokio::sync::Mutex::new(scheduler),
        })))
    }

    /// Seals everything that was accepted so far and carries it into MySQL. A run that has not sealed yet is joined.
    pub async fn flush_now(&self) -> Result<FlushReport, JobError> {
        let answer = self.0.desk.ask_flush()?;
        answer.await.unwrap_or(Err(JobError::Died))
    }

    /// Waits until MySQL has an operation that was accepted, at most until `end`. False: it will have it later, has refused it, or has
    /// something newer of the pair.
    pub async fn durable(&self, operation: &Operation, end: Instant) -> bool {
        let wait = async {
            loop {
                // Whoever asks before the same seal is served by the same run.
                match self.flush_now().await {
                    Ok(report) if report.partitions_skipped == 0 => {
                        // What MySQL refused may have been put into quarantine by an earlier run, or by another process's.
                        return self.has(operation).await;
                    }
                    Err(JobError::Stopping) => return false,
                    _ => tokio::time::sleep(DURABLE_PAUSE).await,
                }
            }
        };
        tokio::time::timeout_at(end, wait).await.unwrap_or(false)
    }

    /// Whether the row says what the operation wanted.
    async fn has(&self, operation: &Operation) -> bool {
        let pair = (operation.user.clone(), operation.target.clone());
        let thumbed = operation.action.thumbed();
        match self.0.ledger.states(&[pair]).await {
            Ok(rows) => rows
                .first()
                .is_some_and(|row| row.is_some_and(|(now, _)| now) == thumbed),
            Err(_) => false,
        }
    }

    /// How long the oldest operation has waited for MySQL, in ms, and what is wrong with the flush, in general words.
    pub fn flush_health(&self) -> (u64, Option<String>) {
        let lag_ms = self.0.lag.lag_ms();
        let failed = self
            .0
            .desk
            .last_runs()
            .0
            .is_some_and(|last| last.error.is_some());
        let problem = if lag_ms > self.0.lag_max.as_millis() as u64 {
            Some(format!(
                "likes have waited for the database for {} s",
                lag_ms / 1000
            ))
        } else {
            failed.then(|| "the last flush failed, the log has the reason".to_owned())
        };
        (lag_ms, problem)
    }

    /// The same, with a search for slices that were missed and a comparison of counts with rows.
    pub async fn compensate_now(&self) -> Result<CompensationReport, JobError> {
        let answer = self.0.desk.ask_compensation()?;
        answer.await.unwrap_or(Err(JobError::Died))
    }

    /// Works on erasures that were noted, as soon as nothing that somebody waits for is to be done.
    pub fn erase(&self) {
        self.0.desk.erase_due();
    }

    /// Lets a target that was erased be liked again, while no job runs. It is done whole or not at all, also if its caller hangs up.
    pub async fn restore(&self, target: &Target) -> Result<Restored, JobError> {
        let (eraser, target, life) = (self.0.eraser.clone(), target.clone(), self.0.lease_ttl);
        let hot = self.0.service.hot().clone();
        let run = async move {
            let lease = Lease::wait(&hot, &new_generation(), life).await?;
            let restored = eraser.restore(&target).await;
            lease.release().await;
            Ok(restored?)
        };
        guarded(run).await
    }

    /// How the jobs stand.
    pub async fn status(&self) -> Result<JobsStatus, JobError> {
        let standing = self
            .0
            .flusher
            .standing(&mut SealedLengths::default())
            .await?;
        let (last_flush, last_compensation) = self.0.desk.last_runs();
        Ok(JobsStatus {
            slices: standing.slices,
            lag_ms: standing.lag_ms,
            entries: standing.entries,
            last_flush,
            last_compensation,
        })
    }

    /// Under which name this process takes the lease.
    pub fn owner(&self) -> &str {
        &self.0.owner
    }

    /// The live slices as they were measured last, at most some seconds ago unless Redis is away.
    pub fn standing(&self) -> Arc<Standing> {
        self.0.lag.standing()
    }

    /// What this process flushed lately, newest first.
    pub fn landings(&self, most: usize) -> Vec<Landing> {
        self.0.flusher.landings(most)
    }

    /// Waits until one of the tasks has died, which none must before [`Jobs::stop`].
    pub async fn failed(&self) -> anyhow::Error {
        self.0.desk.dead().await;
        anyhow::anyhow!("a task of the jobs has ended")
    }

    /// Ends the schedules, lets a running job finish, and flushes a last time.
    pub async fn stop(&self) -> Result<FlushReport, JobError> {
        if let Err(error) = self.0.scheduler.lock().await.shutdown().await {
            tracing::warn!(%error, "the scheduler does not stop");
        }
        let answer = self.0.desk.ask_last_flush()?;
        let report = answer.await.unwrap_or(Err(JobError::Died));
        let runner = self
            .0
            .runner
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(runner) = runner {
            let _ = runner.await;
        }
        report
    }
}

/// Starts a task with which the jobs end, also when it dies.
fn closing(desk: &Arc<Desk>, task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    let closing = Closing(Arc::clone(desk));
    tokio::spawn(async move {
        let _closing = closing;
        task.await;
    })
}

/// Tells whoever waits that nobody comes any more.
struct Closing(Arc<Desk>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}
