//! The lease on running jobs: it saves the instances from working against each other. Correctness does not need it.

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::JobError;
use crate::hot::{Hot, HotError};
use crate::steps;
use crate::telemetry::names;

/// All jobs share one lease, because each of them flushes.
pub const JOB: &str = "flush";
/// Pause between two tries to get the lease.
const POLL: Duration = Duration::from_millis(100);

/// A lease that is held, renewed at a third of its life until it is given back.
pub struct Lease {
    hot: Hot,
    owner: String,
    _watchdog: AbortOnDropHandle<()>,
    _shown: Shown,
}

/// Shows on the metrics that this process has the lease, as long as it stands.
struct Shown;

impl Shown {
    fn new() -> Self {
        metrics::gauge!(names::LEASE_HELD).set(1.0);
        Self
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        metrics::gauge!(names::LEASE_HELD).set(0.0);
    }
}

impl Lease {
    /// Tries once.
    pub async fn take(hot: &Hot, owner: &str, life: Duration) -> Result<Option<Self>, HotError> {
        if !hot.lease(JOB, owner, life).await? {
            return Ok(None);
        }
        steps::point("lease.taken").await;
        let watchdog = watch(hot.clone(), owner.to_owned(), life);
        Ok(Some(Self {
            hot: hot.clone(),
            owner: owner.to_owned(),
            _watchdog: AbortOnDropHandle::new(tokio::spawn(watchdog)),
            _shown: Shown::new(),
        }))
    }

    /// Tries until the lease of an owner who died would have lapsed, twice over.
    pub async fn wait(hot: &Hot, owner: &str, life: Duration) -> Result<Self, JobError> {
        let end = Instant::now() + 2 * life;
        loop {
            match Self::take(hot, owner, life).await {
                Ok(Some(lease)) => return Ok(lease),
                Ok(None) if Instant::now() < end => tokio::time::sleep(POLL).await,
                Ok(None) => return Err(JobError::LeaseHeld),
                Err(error) => return Err(JobError::Failed(format!("redis: {error}"))),
            }
        }
    }

    /// Gives it back; if that fails it lapses.
    pub async fn release(self) {
        steps::point("lease.release").await;
        if let Err(error) = self.hot.lease_release(JOB, &self.owner).await {
            tracing::debug!(%error, "the lease was not given back and will lapse");
        }
    }
}

async fn watch(hot: Hot, owner: String, life: Duration) {
    loop {
        tokio::time::sleep(life / 3).await;
        match hot.lease(JOB, &owner, life).await {
            Ok(true) => {}
            Ok(false) => {
                metrics::counter!(names::LEASES_LOST).increment(1);
                tracing::warn!("the lease lapsed and another instance has it");
                return;
            }
            Err(error) => tracing::debug!(%error, "the lease was not renewed"),
        }
    }
}
