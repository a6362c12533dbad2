//! Measures what MySQL does not have yet: how old it is and how much, also while a run hangs or Redis is away.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::flush::{Flusher, SealedLengths, SliceInfo, Standing};
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
        let mut ages = Ages::default();
        loop {
            if let Ok(standing) = flusher.standing(&mut sealed).await {
                ages.note(&standing.slices, Instant::now());
                service.backlog_note(standing.entries);
                metrics::gauge!(names::UNFLUSHED_ENTRIES).set(standing.entries as f64);
                let last = self.standing.lock();
                *last.unwrap_or_else(PoisonError::into_inner) = Arc::new(standing);
            } else {
                // It may be another Redis when it comes back.
                sealed = SealedLengths::default();
            }
            let lag = ages.oldest(Instant::now());
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

/// When the live slices were begun, by this machine's clock, which never goes back. Redis's clock can be set back; then the ids of
/// new slices are in the future for a while, and by them nothing would ever be old.
#[derive(Default)]
struct Ages(HashMap<(u16, u64), Instant>);

impl Ages {
    /// Takes over what is live now. A slice keeps the earliest beginning that was ever seen of it.
    fn note(&mut self, slices: &[SliceInfo], now: Instant) {
        let before = std::mem::take(&mut self.0);
        self.0 = slices
            .iter()
            .map(|slice| {
                let key = (slice.partition, slice.id);
                let age = Duration::from_millis(slice.age_ms);
                let begun = now.checked_sub(age).unwrap_or(now);
                let known = before.get(&key).copied();
                (key, known.map_or(begun, |known| known.min(begun)))
            })
            .collect();
    }

    /// Age of the oldest; zero without any.
    fn oldest(&self, now: Instant) -> Duration {
        let ages = self.0.values().map(|begun| now.duration_since(*begun));
        ages.max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flush::SliceState;

    fn slice(id: u64, age_ms: u64) -> SliceInfo {
        SliceInfo {
            partition: 0,
            id,
            age_ms,
            entries: 1,
            state: SliceState::Open,
        }
    }

    #[test]
    fn what_is_live_ages_whatever_the_clock_of_redis_does() {
        let begun = Instant::now();
        let after = |ms| begun + Duration::from_millis(ms);
        let lag = |ages: &Ages, ms| ages.oldest(after(ms)).as_millis();
        let mut ages = Ages::default();
        assert_eq!(lag(&ages, 0), 0);
        ages.note(&[slice(1, 3000), slice(2, 0)], after(0));
        assert_eq!(lag(&ages, 0), 3000);
        // Redis cannot be asked: it goes on ageing.
        assert_eq!(lag(&ages, 5000), 8000);
        // The clock was set back, and by their ids both are of the future.
        ages.note(&[slice(1, 0), slice(2, 0)], after(6000));
        assert_eq!(lag(&ages, 6000), 9000);
        // The older one has landed.
        ages.note(&[slice(2, 0)], after(7000));
        assert_eq!(lag(&ages, 7000), 7000);
        // Redis was emptied, or all has landed.
        ages.note(&[], after(8000));
        assert_eq!(lag(&ages, 9000), 0);
    }
}
