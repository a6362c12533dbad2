//! What goes on just now, for whoever watches: one snapshot a second, made once a process and only while somebody looks.
//!
//! A snapshot is put together from memory and waits for nothing. What it is made of comes from tasks with a pace of their own: the
//! pulse (always; what the instances say of each other), the stores and the tables (only while somebody looks). What concerns all
//! instances comes from Redis and MySQL, never from a guess. Decides nothing about likes, and knows no HTTP.

mod pulse;
mod snapshot;
mod tables;
mod verdict;
mod verification;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio_util::task::AbortOnDropHandle;

use crate::config::Settings;
use crate::hot::Writes;
use crate::jobs::{Jobs, LEASE_JOB};
use crate::limits::{LIVE_PAUSE, LIVE_STREAMS_MAX, SILENT_KEPT};
use crate::service::Service;
use pulse::Pulse;
use snapshot::Snapshot;
use tables::Tables;
pub use verification::{Verification, VerificationError};

/// A handle on what goes on; clones share it.
#[derive(Clone)]
pub struct Live(Arc<Inner>);

struct Inner {
    watched: Arc<Watched>,
    _tasks: [AbortOnDropHandle<()>; 4],
}

/// What the tasks share.
struct Watched {
    service: Service,
    jobs: Jobs,
    slice_seconds: u64,
    started_at: DateTime<Utc>,
    pulse: Pulse,
    stores: Mutex<Option<Stores>>,
    tables: Mutex<Tables>,
    verification: verification::Desk,
    /// The snapshots, as JSON.
    snapshots: watch::Sender<Arc<str>>,
    /// Somebody has begun to look.
    looked: Notify,
    places: Arc<Semaphore>,
}

/// Whether the stores answer, and who has the lease.
#[derive(Debug, Clone)]
struct Stores {
    redis: Result<Writes, String>,
    database: Result<(), String>,
    /// How long asking both took.
    took: Duration,
    lease: Option<String>,
}

/// A place among those who watch. Dropping it ends the looking.
pub struct Watcher {
    /// The snapshots that are made from now on, each a JSON object.
    pub snapshots: watch::Receiver<Arc<str>>,
    /// What was measured before, a JSON object.
    pub history: String,
    _place: OwnedSemaphorePermit,
}

#[cfg(test)]
impl Watcher {
    /// One who watches these.
    pub(crate) fn of(snapshots: watch::Receiver<Arc<str>>) -> Self {
        let place = Arc::new(Semaphore::new(1)).try_acquire_owned();
        Self {
            snapshots,
            history: "{}".to_owned(),
            _place: place.expect("there is one place"),
        }
    }
}

impl Live {
    /// Starts the tasks. `address` is where this instance says that it listens.
    pub fn start(settings: &Settings, service: &Service, jobs: &Jobs, address: &str) -> Self {
        let watched = Arc::new(Watched {
            service: service.clone(),
            jobs: jobs.clone(),
            slice_seconds: settings.slice_seconds,
            started_at: Utc::now(),
            pulse: Pulse::new(address),
            stores: Mutex::default(),
            tables: Mutex::default(),
            verification: verification::Desk::default(),
            snapshots: watch::Sender::new(Arc::from("")),
            looked: Notify::new(),
            places: Arc::new(Semaphore::new(LIVE_STREAMS_MAX)),
        });
        let tasks = [
            tokio::spawn(Arc::clone(&watched).beat()),
            tokio::spawn(Arc::clone(&watched).look_at_stores()),
            tokio::spawn(Arc::clone(&watched).look_at_tables()),
            tokio::spawn(Arc::clone(&watched).tell()),
        ];
        Self(Arc::new(Inner {
            watched,
            _tasks: tasks.map(AbortOnDropHandle::new),
        }))
    }

    /// Takes a place among those who watch; `None`: there are too many.
    pub fn watch(&self) -> Option<Watcher> {
        let watched = &self.0.watched;
        let place = Arc::clone(&watched.places).try_acquire_owned().ok()?;
        let watcher = Watcher {
            history: watched.pulse.history(),
            snapshots: watched.snapshots.subscribe(),
            _place: place,
        };
        watched.looked.notify_waiters();
        Some(watcher)
    }

    /// Compares Redis and MySQL, one comparison at a time. It ends with its caller.
    pub async fn verify(&self) -> Result<Verification, VerificationError> {
        self.0.watched.verify().await
    }

    /// Tells the other instances that this one goes. One that cannot be told sees it fall silent.
    pub async fn sign_off(&self) {
        let watched = &self.0.watched;
        watched.pulse.stop();
        let hot = watched.service.hot();
        if let Err(error) = hot.sign_off(watched.jobs.owner(), SILENT_KEPT).await {
            tracing::debug!(%error, "the other instances were not told that this one goes");
        }
    }
}

impl Watched {
    /// Waits until somebody looks.
    async fn looked_at(&self) {
        loop {
            // Before the look at the number: who comes in between is heard.
            let looked = self.looked.notified();
            if self.snapshots.receiver_count() > 0 {
                return;
            }
            looked.await;
        }
    }

    async fn tell(self: Arc<Self>) {
        loop {
            self.looked_at().await;
            match serde_json::to_string(&Snapshot::of(&self)) {
                Ok(text) => drop(self.snapshots.send_replace(text.into())),
                Err(error) => tracing::warn!(%error, "a snapshot cannot be written"),
            }
            tokio::time::sleep(LIVE_PAUSE).await;
        }
    }

    async fn look_at_stores(self: Arc<Self>) {
        loop {
            self.looked_at().await;
            let begun = Instant::now();
            let hot = self.service.hot();
            let (health, lease) = tokio::join!(self.service.health(), hot.lease_holder(LEASE_JOB));
            let stores = Stores {
                redis: health.redis,
                database: health.database,
                took: begun.elapsed(),
                lease: lease.ok().flatten(),
            };
            *locked(&self.stores) = Some(stores);
            tokio::time::sleep(LIVE_PAUSE).await;
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
