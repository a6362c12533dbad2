//! Measures what MySQL does not have yet: how old it is and how much, also while a run hangs or Redis is away.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::flush::{Flusher, SealedLengths, Standing};
use crate::service::Service;
use crate::telemetry::names;

/// Pause between two measures: a scraper sees nothing older, and what is accepted beyond the limit of the backlog is what comes in
/// this time.
const EVERY: Duration = Duration::from_secs(1);

/// The last measure.
#[derive(Default)]
pub(super) struct Lag {
    lag_ms: AtomicU64,
    standing: Mutex<Arc<Standing>>,
    now: Notify,
    /// The same for what stands in MySQL.
    pub(super) tables_now: Notify,
}

impl Lag {
    /// Age of the oldest operation that MySQL does not have, in ms; while Redis cannot be asked, what was there last goes on ageing.
    pub(super) fn lag_ms(&self) -> u64 {
        self.lag_ms.load(Ordering::Relaxed)
    }

    /// The live slices, as they were when Redis could be asked last.
    pub(super) fn standing(&self) -> Arc<Standing> {
        let standing = self.standing.lock();
        Arc::clone(&standing.unwrap_or_else(PoisonError::into_inner))
    }

    /// Measures at once.
    pub(super) fn measure_now(&self) {
        self.now.notify_one();
        self.tables_now.notify_one();
    }

    /// Measures for ever.
    pub(super) async fn measure(self: Arc<Self>, flusher: Flusher, service: Service) {
        let mut sealed = SealedLengths::default();
        let mut run_id = None;
        // When the oldest operation that MySQL does not have was accepted, by this machine's clock.
        let mut oldest: Option<Instant> = None;
        loop {
            if let Ok(standing) = flusher.standing(&mut sealed).await {
                let lag = Duration::from_millis(standing.lag_ms);
                let since = Instant::now().checked_sub(lag);
                oldest = since.filter(|_| standing.lag_ms > 0);
                service.backlog_note(standing.entries);
                metrics::gauge!(names::UNFLUSHED_ENTRIES).set(standing.entries as f64);
                let last = self.standing.lock();
                *last.unwrap_or_else(PoisonError::into_inner) = Arc::new(standing);
            } else {
                // It may be another Redis when it comes back.
                sealed = SealedLengths::default();
            }
            let lag = oldest.map_or(Duration::ZERO, |oldest| oldest.elapsed());
            let lag_ms = u64::try_from(lag.as_millis()).unwrap_or(u64::MAX);
            self.lag_ms.store(lag_ms, Ordering::Relaxed);
            metrics::gauge!(names::FLUSH_LAG_SECONDS).set(lag.as_secs_f64());
            // A restart that no call has noticed.
            if let Ok(now) = service.hot().run_id().await
                && let Some(before) = run_id.replace(now.clone())
                && before != now
            {
                service.hot().trouble_note();
            }
            tokio::select! {
                () = tokio::time::sleep(EVERY) => {}
                () = self.now.notified() => {}
            }
        }
    }
}
