//! The use cases: like, unlike, look up. They know what to do about cold, moved and recovering; they know no HTTP.

mod batch;
mod cold;
mod count_cache;
mod error;
mod gone;
mod list;
mod lookup;
mod recover;
mod thumb;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use tokio::sync::{Notify, Semaphore};

use cold::{Bounds, Loader};
use count_cache::CountCache;
pub use error::ServiceError;
pub use list::ListPage;
pub use lookup::Seen;
pub use recover::{check as recover_check, damage, distrust, new_generation};
pub use thumb::Outcome;

use crate::config::{Mirror, Settings};
use crate::hot::{Hot, HotError, HotOptions, Writes};
use crate::ledger::{Layout, Ledger, LedgerOptions};
use crate::limits::LIST_QUERIES_MAX;

/// The use cases on one Redis and one MySQL; clones share everything.
#[derive(Clone)]
pub struct Service(Arc<Inner>);

struct Inner {
    hot: Hot,
    ledger: Ledger,
    loader: Loader,
    counts: Option<CountCache>,
    resident_ttl_seconds: u64,
    lookups: AtomicU64,
    /// Places for queries of lists.
    lists: Semaphore,
    /// Entries that MySQL does not have, by the last measure, and how many there may be.
    backlog: AtomicU64,
    backlog_max: u64,
    /// Operations of this process that changed something.
    changes: AtomicU64,
    /// A partition was reset.
    recovered: Notify,
}

/// Whether the stores answer; texts name the problem without secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// Redis, and whether it takes writes.
    pub redis: Result<Writes, String>,
    /// MySQL or MariaDB.
    pub database: Result<(), String>,
}

impl Service {
    /// Connects both stores and checks that they can be trusted with likes.
    pub async fn build(settings: &Settings) -> anyhow::Result<Self> {
        let ledger = connect_ledger(settings)?;
        let hot = connect_hot(settings).await?;
        for info in hot.server_infos().await.context("redis")? {
            if let Some(problem) = info.problem() {
                anyhow::bail!("redis cannot be used: {problem}");
            }
        }
        ledger.mirrors_adopt(mirrors(settings)).await?;
        ledger
            .adopt_layout(&layout(settings))
            .await
            .context("the database cannot be used with these settings")?;
        for partition in 0..settings.partitions {
            let seen = hot.peek(partition).await.context("redis")?;
            if seen.generation.is_some() && seen.layout.is_empty() {
                relaid(&hot, &ledger, settings, partition).await?;
            } else if seen.generation.is_some() && seen.layout != hot.layout() {
                let (found, wanted) = (seen.layout, hot.layout());
                return Err(HotError::Layout { found, wanted }.into());
            }
            recover::check(&hot, &ledger, partition)
                .await
                .with_context(|| format!("partition {partition} cannot be initialised"))?;
        }
        Ok(Self::new(hot, ledger, settings))
    }

    /// Puts the use cases on stores that are connected.
    pub fn new(hot: Hot, ledger: Ledger, settings: &Settings) -> Self {
        recover::count_from_zero();
        let bounds = Bounds {
            loads_max: settings.cold_loads_max,
            timeout: Duration::from_millis(settings.cold_timeout_ms),
            thumbs_max: settings.resident_thumbs_max as usize,
            ttl_seconds: settings.resident_ttl_seconds,
        };
        Self(Arc::new(Inner {
            loader: Loader::new(hot.clone(), ledger.clone(), bounds),
            counts: CountCache::new(settings.count_cache_ms),
            hot,
            ledger,
            resident_ttl_seconds: settings.resident_ttl_seconds,
            lookups: AtomicU64::new(0),
            lists: Semaphore::new(list_places(settings.database_connections_max)),
            backlog: AtomicU64::new(0),
            backlog_max: settings.backlog_entries_max,
            changes: AtomicU64::new(0),
            recovered: Notify::new(),
        }))
    }

    /// The state in Redis.
    pub fn hot(&self) -> &Hot {
        &self.0.hot
    }

    /// The durable truth.
    pub fn ledger(&self) -> &Ledger {
        &self.0.ledger
    }

    /// Notes how many entries MySQL does not have.
    pub fn backlog_note(&self, entries: u64) {
        self.0.backlog.store(entries, Ordering::Relaxed);
    }

    /// How many operations have changed something since the process began.
    pub fn changes(&self) -> u64 {
        self.0.changes.load(Ordering::Relaxed)
    }

    /// Whether likes are refused because too much waits for MySQL.
    pub fn backlog_is_full(&self) -> bool {
        self.check_backlog().is_err()
    }

    /// Notes what became of operations.
    fn changes_note(&self, changed: u64) {
        self.0.changes.fetch_add(changed, Ordering::Relaxed);
    }

    /// Refuses operations while too much waits for MySQL. Measured now and then, so somewhat more than the limit may come in.
    fn check_backlog(&self) -> Result<(), ServiceError> {
        if self.0.backlog.load(Ordering::Relaxed) > self.0.backlog_max {
            return Err(ServiceError::backlog_full());
        }
        Ok(())
    }

    /// Compares a partition with MySQL and resets it if it was damaged. True: it was.
    pub async fn check(&self, partition: u16) -> Result<bool, ServiceError> {
        let reset = recover::check(&self.0.hot, &self.0.ledger, partition).await?;
        if reset {
            self.0.recovered.notify_one();
        }
        Ok(reset)
    }

    /// Waits until a partition was reset: what it holds must land before what is cold there can be loaded. For one caller.
    pub async fn recovered(&self) {
        self.0.recovered.notified().await;
    }

    /// Asks both stores for a sign of life.
    pub async fn health(&self) -> Health {
        let (redis, database) = tokio::join!(self.0.hot.writes(), self.0.ledger.ping());
        Health {
            redis: redis.map_err(|error| error.to_string()),
            database: database.map_err(|error| error.to_string()),
        }
    }
}

/// Gives a retired partition a new life, unless the layout is just being changed to another one.
async fn relaid(
    hot: &Hot,
    ledger: &Ledger,
    settings: &Settings,
    partition: u16,
) -> anyhow::Result<()> {
    let lock = ledger.layout_lock().await?;
    ledger.adopt_layout(&layout(settings)).await?;
    // Somebody who waited for the lock may come second.
    if hot.peek(partition).await?.layout.is_empty() {
        distrust(hot, ledger, partition).await?;
        tracing::info!(partition, "partition begins under a new layout");
    }
    lock.release().await;
    Ok(())
}

/// The layout that the settings ask for.
pub fn layout(settings: &Settings) -> Layout {
    Layout {
        partitions: settings.partitions,
        slice_ms: settings.slice_seconds * 1000,
        key_prefix: settings.key_prefix.clone(),
    }
}

/// How many queries for lists may be under way with so many connections.
fn list_places(connections: u32) -> usize {
    (connections as usize / 2).clamp(1, LIST_QUERIES_MAX)
}

/// A handle on MySQL as the settings say.
pub fn connect_ledger(settings: &Settings) -> anyhow::Result<Ledger> {
    let options = LedgerOptions {
        connections_max: settings.database_connections_max,
        acquire_timeout: Duration::from_millis(settings.database_acquire_timeout_ms),
        statement_timeout: Duration::from_millis(settings.database_statement_timeout_ms),
    };
    let url = settings.require_database_url()?;
    Ok(Ledger::connect(url.expose(), options)?)
}

/// The mirrors that the settings name, by kind.
pub fn mirrors(settings: &Settings) -> impl Iterator<Item = (&str, &Mirror)> {
    let mirrors = settings.kinds.mirrors();
    mirrors.map(|(kind, mirror)| (kind.as_str(), mirror))
}

/// A connection to Redis as the settings say.
pub async fn connect_hot(settings: &Settings) -> anyhow::Result<Hot> {
    let options = HotOptions {
        url: settings.require_redis_url()?.expose().to_owned(),
        prefix: settings.key_prefix.clone(),
        partitions: settings.partitions,
        slice_ms: settings.slice_seconds * 1000,
        connect_timeout: Duration::from_millis(settings.redis_connect_timeout_ms),
        response_timeout: Duration::from_millis(settings.redis_response_timeout_ms),
        gather_operations_max: settings.gather_operations_max,
        gather_calls_max: settings.gather_calls_max,
        queue_operations_max: settings.queue_operations_max,
        keep_unlikes: settings.keep_unlikes,
    };
    let limits = settings.kinds.limits();
    let limits = limits.map(|(kind, limits)| (kind.to_string(), limits));
    Hot::connect_limited(options, limits.collect())
        .await
        .context("redis")
}
