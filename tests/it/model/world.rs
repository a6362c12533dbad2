//! The stores of a model test, and what a scheduler can do to them: clocks, evictions, damage.

use std::collections::BTreeMap;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use redis::aio::ConnectionManager;
use sqlx::MySqlPool;
use thumbd::config::Settings;
use thumbd::domain::{Target, UserId};
use thumbd::flush::Flusher;
use thumbd::hot::{Hot, HotOptions};
use thumbd::ledger::{Layout, Ledger, LedgerOptions};
use thumbd::service::{Service, recover_check};

use super::scenario::Scenario;
use crate::servers::{self, TestEnv};

/// So far ahead of Redis's own time that only the test moves the clocks (µs).
const BASE: u64 = 4_000_000_000_000_000;

/// Rows, or what follows from them: user and target → state and version.
pub(super) type Pairs = BTreeMap<(UserId, Target), (bool, u64)>;

/// One process, as it were.
#[derive(Clone)]
pub(super) struct Instance {
    pub(super) hot: Hot,
    pub(super) service: Service,
    pub(super) flusher: Flusher,
}

/// What one scenario works on, run after run.
pub(super) struct World {
    pub(super) ledger: Ledger,
    pub(super) partitions: u16,
    pub(super) redis: ConnectionManager,
    pub(super) pool: MySqlPool,
    env: TestEnv,
    settings: Settings,
    slice_ms: u64,
    real_time: bool,
    idle: Vec<Instance>,
    /// For looking.
    pub(super) observer: Hot,
}

impl World {
    pub(super) async fn start(scenario: &Scenario) -> Self {
        let env = servers::scanned_env().await;
        let ledger = Ledger::connect(&env.database_url, LedgerOptions::default()).unwrap();
        ledger.migrate().await.unwrap();
        let slice_ms = if scenario.real_time { 20 } else { 10_000 };
        let layout = Layout {
            partitions: scenario.partitions,
            slice_ms,
            key_prefix: env.key_prefix.clone(),
        };
        ledger.adopt_layout(&layout).await.unwrap();
        let client = redis::Client::open(env.redis_url.as_str()).unwrap();
        Self {
            observer: connect(&env, scenario.partitions, slice_ms).await,
            ledger,
            partitions: scenario.partitions,
            redis: client.get_connection_manager().await.unwrap(),
            pool: MySqlPool::connect(&env.database_url).await.unwrap(),
            env,
            settings: Settings::default(),
            slice_ms,
            real_time: scenario.real_time,
            idle: Vec::new(),
        }
    }

    /// Empties both stores and initialises the partitions. Some runs have small transactions.
    pub(super) async fn begin(&mut self, scenario: &Scenario, rng: &mut StdRng) {
        self.settings = Settings {
            partitions: self.partitions,
            flush_rows_max: if rng.random_bool(0.5) { 2 } else { 1000 },
            resident_thumbs_max: if scenario.partial {
                rng.random_range(1..=2)
            } else {
                10_000
            },
            cold_timeout_ms: 60_000,
            keep_seconds: if scenario.prune { 0 } else { 60 },
            unliked_keep_seconds: if scenario.prune { 0 } else { 604_800 },
            ..Settings::default()
        };
        self.idle.clear();
        for table in ["thumb", "thumb_count", "thumb_count_part", "quarantine"] {
            self.sql(&format!("DELETE FROM {table}")).await;
        }
        self.sql("UPDATE flush_state SET last = 0, landed = 0, max_version = 0, progress_slice = 0, progress_chunk = 0, progress_token = '', prune_horizon = 0, outside_token = ''")
            .await;
        for partition in 0..self.partitions {
            self.delete_all(partition).await;
        }
        let hot = self.instance().await.hot;
        for partition in 0..self.partitions {
            recover_check(&hot, &self.ledger, partition).await.unwrap();
        }
        self.jump(None, 0).await;
        if scenario.forget > 0.0 {
            self.remember_nothing().await;
        }
    }

    /// An instance that nobody uses.
    pub(super) async fn instance(&mut self) -> Instance {
        if let Some(instance) = self.idle.pop() {
            return instance;
        }
        let hot = connect(&self.env, self.partitions, self.slice_ms).await;
        Instance {
            service: Service::new(hot.clone(), self.ledger.clone(), &self.settings),
            flusher: Flusher::new(hot.clone(), self.ledger.clone(), &self.settings),
            hot,
        }
    }

    /// An instance whose actor came to its end.
    pub(super) fn give_back(&mut self, instance: Instance) {
        self.idle.push(instance);
    }

    pub(super) async fn sql(&self, text: &str) {
        let query = sqlx::query(sqlx::AssertSqlSafe(text.to_owned()));
        query.execute(&self.pool).await.unwrap();
    }

    pub(super) fn key(&self, partition: u16, rest: &str) -> String {
        format!("{}:v1:{{{partition}}}:{rest}", self.env.key_prefix)
    }

    /// All keys of a partition that begin so, sorted.
    pub(super) async fn keys(&mut self, partition: u16, of: &str) -> Vec<String> {
        let pattern = self.key(partition, &format!("{of}*"));
        let (mut found, mut cursor) = (Vec::new(), 0_u64);
        loop {
            let (next, names): (u64, Vec<String>) = redis::cmd("SCAN")
                .arg(cursor)
                .arg("MATCH")
                .arg(&pattern)
                .arg("COUNT")
                .arg(10_000)
                .query_async(&mut self.redis)
                .await
                .unwrap();
            found.extend(names);
            cursor = next;
            if cursor == 0 {
                found.sort_unstable();
                found.dedup();
                return found;
            }
        }
    }

    /// Empties a partition.
    pub(super) async fn delete_all(&mut self, partition: u16) {
        let keys = self.keys(partition, "").await;
        if !keys.is_empty() {
            let mut command = redis::cmd("DEL");
            command.arg(keys);
            let _: i64 = command.query_async(&mut self.redis).await.unwrap();
        }
    }

    /// The partitions' clocks; 0 for an empty one.
    pub(super) async fn clocks(&mut self) -> Vec<u64> {
        let mut pipe = redis::pipe();
        for partition in 0..self.partitions {
            pipe.hget(self.key(partition, "meta"), "clock");
        }
        let clocks: Vec<Option<u64>> = pipe.query_async(&mut self.redis).await.unwrap();
        clocks.into_iter().map(Option::unwrap_or_default).collect()
    }

    /// Sets one clock or all forward. In real time they go by themselves.
    pub(super) async fn jump(&mut self, only: Option<u16>, by_us: u64) {
        if self.real_time {
            return;
        }
        let clocks = self.clocks().await;
        for (partition, clock) in (0..).zip(clocks) {
            if clock == 0 && self.keys(partition, "meta").await.is_empty()
                || only.is_some_and(|only| only != partition)
            {
                continue;
            }
            let mut command = redis::cmd("HSET");
            command
                .arg(self.key(partition, "meta"))
                .arg("clock")
                .arg(clock.max(BASE) + by_us);
            let _: i64 = command.query_async(&mut self.redis).await.unwrap();
        }
    }

    /// Removes a user or a count as Redis would when it is full or late: only one with a TTL. Says which.
    pub(super) async fn evict(&mut self, of: &str, rng: &mut StdRng) -> Option<String> {
        let partition = rng.random_range(0..self.partitions);
        let keys = self.keys(partition, &format!("{of}:")).await;
        let mut clean = Vec::new();
        for (key, ttl) in self.ttls(keys).await {
            if ttl >= 0 {
                clean.push(key);
            }
        }
        if clean.is_empty() {
            return None;
        }
        let key = clean.swap_remove(rng.random_range(0..clean.len()));
        let mut command = redis::cmd("DEL");
        command.arg(&key);
        let _: i64 = command.query_async(&mut self.redis).await.unwrap();
        Some(key)
    }

    /// Keys with their TTL in s; −1: pinned.
    pub(super) async fn ttls(&mut self, keys: Vec<String>) -> Vec<(String, i64)> {
        if keys.is_empty() {
            return Vec::new();
        }
        let mut pipe = redis::pipe();
        for key in &keys {
            pipe.ttl(key);
        }
        let ttls: Vec<i64> = pipe.query_async(&mut self.redis).await.unwrap();
        keys.into_iter().zip(ttls).collect()
    }
}

async fn connect(env: &TestEnv, partitions: u16, slice_ms: u64) -> Hot {
    let options = HotOptions {
        url: env.redis_url.clone(),
        prefix: env.key_prefix.clone(),
        partitions,
        slice_ms,
        connect_timeout: Duration::from_secs(5),
        response_timeout: Duration::from_secs(10),
        gather_operations_max: 64,
        gather_calls_max: 8,
        queue_operations_max: 100,
        keep_unlikes: false,
    };
    Hot::connect(options).await.unwrap()
}
