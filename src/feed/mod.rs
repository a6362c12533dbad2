//! The relay of the change feed: carries events from the outbox in MySQL to the stream in Redis, at least once and in order.
//!
//! One process relays at a time, where the lease is. The lease only saves work: the stream leaves out what it has already.

use std::time::Duration;

use crate::config::Settings;
use crate::hot::{Hot, HotError};
use crate::ledger::{Ledger, LedgerError};
use crate::limits::{FEED_PAGE, FEED_PAUSE, FEED_PAUSE_MAX};
use crate::service::{Service, new_generation};
use crate::steps;
use crate::telemetry::names;

/// The lease of the relay.
const JOB: &str = "feed";

#[derive(Debug, thiserror::Error)]
enum RelayError {
    #[error("redis: {0}")]
    Hot(#[from] HotError),
    #[error("database: {0}")]
    Ledger(#[from] LedgerError),
    #[error("an event cannot be written: {0}")]
    Text(#[from] serde_json::Error),
    #[error(
        "the stream has event {stream}, and the database, an older one by now, gave out ids up to {ledger} only: \
         what waited was dropped, and the feed begins again with a gap"
    )]
    Forgotten { stream: u64, ledger: u64 },
}

/// Delivers events, until it is dropped.
pub struct Relay {
    hot: Hot,
    ledger: Ledger,
    owner: String,
    lease_life: Duration,
    entries_max: u64,
}

impl Relay {
    /// A relay on connected stores.
    pub fn new(settings: &Settings, service: &Service) -> Self {
        Self {
            hot: service.hot().clone(),
            ledger: service.ledger().clone(),
            owner: new_generation(),
            lease_life: Duration::from_millis(settings.lease_ttl_ms),
            entries_max: settings.feed_stream_max,
        }
    }

    /// Delivers for ever. What cannot be delivered stays, and is tried again after a pause that doubles up to a bound.
    pub async fn run(self) -> std::convert::Infallible {
        let mut pause = FEED_PAUSE;
        loop {
            match self.page().await {
                Ok(more) => {
                    if pause > FEED_PAUSE {
                        tracing::info!("the change feed delivers again");
                    }
                    pause = FEED_PAUSE;
                    if more {
                        continue;
                    }
                    tokio::time::sleep(pause).await;
                }
                Err(error) => {
                    metrics::counter!(names::FEED_FAILURES).increment(1);
                    if pause == FEED_PAUSE {
                        tracing::warn!(%error, "the change feed does not deliver");
                    } else {
                        tracing::debug!(%error, "the change feed does not deliver yet");
                    }
                    pause = (pause * 2).min(FEED_PAUSE_MAX);
                    tokio::time::sleep(pause.mul_f64(rand::random_range(0.5..1.0))).await;
                }
            }
        }
    }

    /// Delivers one page, if this process has the lease. True: there may be more.
    async fn page(&self) -> Result<bool, RelayError> {
        // Taken anew for each page: that renews it.
        if !self.hot.lease(JOB, &self.owner, self.lease_life).await? {
            return Ok(false);
        }
        let events = self.ledger.feed_page(FEED_PAGE).await?;
        let Some(last) = events.last().map(|event| event.id) else {
            return Ok(false);
        };
        let mut texts = Vec::with_capacity(events.len());
        for event in &events {
            texts.push((event.id, serde_json::to_string(event)?));
        }
        let (appended, stream) = self.hot.feed_append(self.entries_max, &texts).await?;
        steps::point("feed.delivered").await;
        if stream > last {
            // Another relay was faster, or ids are given out for a second time: then the stream took these for known.
            let ledger = self.ledger.feed_status().await?.last_id;
            if stream > ledger {
                self.ledger.feed_resume(stream).await?;
                return Err(RelayError::Forgotten { stream, ledger });
            }
        }
        self.ledger.feed_delivered(last).await?;
        metrics::counter!(names::FEED_DELIVERED).increment(appended);
        Ok(events.len() as u64 == FEED_PAGE)
    }
}
