//! The relay of the change feed: carries events from the outbox in MySQL to the stream in Redis or to a webhook, at least once and
//! in order.
//!
//! One process relays at a time, where the lease is. The lease only saves work: the stream leaves out what it has already, and
//! readers of a webhook leave out what they know.

mod signature;
mod stream;
mod webhook;

use std::time::Duration;

pub use webhook::FeedError;
use webhook::{Webhook, WebhookError};

use crate::config::Settings;
use crate::hot::{Hot, HotError};
use crate::ledger::{FeedEvent, FeedState, FeedStatus, Ledger, LedgerError};
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
    #[error("webhook: {0}")]
    Webhook(#[from] WebhookError),
    #[error("an event cannot be written: {0}")]
    Text(#[from] serde_json::Error),
    #[error(
        "event {told} was told, and the database, an older one by now, gave out ids up to {ledger} only: \
         what waited was dropped, and the feed begins again with a gap"
    )]
    Forgotten { told: u64, ledger: u64 },
}

impl RelayError {
    /// The least pause before the next try that was asked for.
    fn retry_after(&self) -> Duration {
        match self {
            Self::Webhook(error) => error.retry_after().unwrap_or_default(),
            _ => Duration::ZERO,
        }
    }
}

enum Target {
    Stream { entries_max: u64 },
    Webhook(Box<Webhook>),
}

/// What was delivered.
struct Delivered {
    /// The last event of it.
    last: u64,
    /// How many of the events the target did not have yet, as far as it says so.
    new: u64,
}

/// Delivers events, until it is dropped.
pub struct Relay {
    hot: Hot,
    ledger: Ledger,
    owner: String,
    lease_life: Duration,
    target: Target,
}

impl Relay {
    /// A relay on connected stores. The target need not be there yet.
    pub fn new(settings: &Settings, service: &Service) -> Result<Self, FeedError> {
        let target = match settings.require_webhook()? {
            Some((url, secrets)) => {
                Target::Webhook(Box::new(Webhook::new(settings, url, secrets)?))
            }
            None => Target::Stream {
                entries_max: settings.feed_stream_max,
            },
        };
        Ok(Self {
            hot: service.hot().clone(),
            ledger: service.ledger().clone(),
            owner: new_generation(),
            lease_life: Duration::from_millis(settings.lease_ttl_ms),
            target,
        })
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
                    let wait = pause.mul_f64(rand::random_range(0.5..1.0));
                    tokio::select! {
                        () = tokio::time::sleep(wait.max(error.retry_after())) => {}
                        // Nobody else must ask meanwhile where a pause was asked for.
                        () = self.lease_lost() => {}
                    }
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
        let delivered = match &self.target {
            Target::Stream { entries_max } => {
                let (new, told) = stream::append(&self.hot, *entries_max, &events).await?;
                self.check_told(told, last).await?;
                Delivered { last, new }
            }
            Target::Webhook(webhook) => match self.post(webhook, &events).await? {
                Some(delivered) => delivered,
                None => return Ok(false),
            },
        };
        steps::point("feed.delivered").await;
        self.ledger.feed_delivered(delivered.last).await?;
        metrics::counter!(names::FEED_DELIVERED).increment(delivered.new);
        let more = delivered.last < last || events.len() as u64 == FEED_PAGE;
        if !more && let Ok(status) = self.ledger.feed_status().await {
            show(&status);
        }
        Ok(more)
    }

    /// Posts the oldest events. Nothing: another relay was faster, or has the lease by now.
    async fn post(
        &self,
        webhook: &Webhook,
        events: &[FeedEvent],
    ) -> Result<Option<Delivered>, RelayError> {
        let (Some(first), Some(batch)) = (events.first(), webhook.batch(events)?) else {
            return Ok(None);
        };
        let Some(bound) = self.ledger.feed_bind(first.id, batch.last).await? else {
            return Ok(None);
        };
        let batch = if bound == batch.last {
            batch
        } else {
            let events = events.iter().take_while(|event| event.id <= bound);
            match webhook.batch(&events.cloned().collect::<Vec<_>>())? {
                Some(batch) => batch,
                None => return Ok(None),
            }
        };
        self.check_told(self.hot.feed_told(0).await?, batch.last)
            .await?;
        tokio::select! {
            posted = webhook.post(&batch) => posted?,
            () = self.lease_lost() => return Ok(None),
        }
        self.hot.feed_told(batch.last).await?;
        Ok(Some(Delivered {
            last: batch.last,
            new: batch.events,
        }))
    }

    /// Begins again with a gap if more was told than the database has given out: then it forgot that, and readers would take what
    /// it gives out now for known.
    async fn check_told(&self, told: u64, last: u64) -> Result<(), RelayError> {
        if told <= last {
            return Ok(());
        }
        // Otherwise another relay was faster.
        let ledger = self.ledger.feed_status().await?.last_id;
        if told <= ledger {
            return Ok(());
        }
        self.ledger.feed_resume(told).await?;
        Err(RelayError::Forgotten { told, ledger })
    }

    /// Renews the lease, until another process has it.
    async fn lease_lost(&self) {
        loop {
            tokio::time::sleep(self.lease_life / 3).await;
            if let Ok(false) = self.hot.lease(JOB, &self.owner, self.lease_life).await {
                return;
            }
        }
    }
}

/// Shows on the metrics how the feed stands.
pub(crate) fn show(status: &FeedStatus) {
    metrics::gauge!(names::FEED_BACKLOG).set(status.backlog as f64);
    metrics::gauge!(names::FEED_AGE_SECONDS).set(status.age_ms as f64 / 1000.0);
    let stopped = status.state == FeedState::Stopped;
    metrics::gauge!(names::FEED_STOPPED).set(f64::from(u8::from(stopped)));
}
