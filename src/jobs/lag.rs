//! Measures the flush lag, also while a run hangs or Redis is away.

use std::time::{Duration, Instant};

use crate::flush::Flusher;
use crate::telemetry::names;

/// Pause between two looks: a scraper sees nothing older.
const EVERY: Duration = Duration::from_secs(2);

/// Looks for ever.
pub(super) async fn measure(flusher: Flusher) {
    // When the oldest operation that MySQL does not have was accepted, by this machine's clock.
    let mut oldest: Option<Instant> = None;
    loop {
        if let Ok(standing) = flusher.standing().await {
            let lag = Duration::from_millis(standing.lag_ms);
            oldest = Instant::now()
                .checked_sub(lag)
                .filter(|_| standing.lag_ms > 0);
            metrics::gauge!(names::UNFLUSHED_ENTRIES).set(standing.entries as f64);
        }
        let lag = oldest.map_or(0.0, |oldest| oldest.elapsed().as_secs_f64());
        metrics::gauge!(names::FLUSH_LAG_SECONDS).set(lag);
        tokio::time::sleep(EVERY).await;
    }
}
