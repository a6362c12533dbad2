//! What one section works on: private servers, and on them a thumbd whose users and targets are resident.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::bail;
use tempfile::TempDir;
use thumbd::dev::{RedisOptions, RedisServer, SqlOptions, SqlServer};
use tokio::runtime::Runtime;

use crate::{
    generator::{Load, Until},
    limits::{RAMP, USERS},
    options::Options,
    window::Outcome,
    worker::{Thumbd, Worker},
};

/// Connections that warm up and fill.
const FILL_CONNECTIONS: usize = 16;
/// Operations of one batch that fills.
const FILL_OPERATIONS: u64 = 100;
/// Time from the begin of a window until the job that it starts has found nothing to do.
const WINDOW_BEGIN: Duration = Duration::from_millis(400);

/// The servers, in the order in which they have to go.
pub(crate) struct Stage {
    pub(crate) thumbd: Thumbd,
    pub(crate) redis: RedisServer,
    pub(crate) sql: SqlServer,
    pub(crate) dir: TempDir,
    slice_seconds: u64,
    /// The next pair that thumbd has not seen.
    next: u64,
}

impl Stage {
    /// Starts everything and warms up.
    pub(crate) fn set(
        options: &Options,
        runtime: &Runtime,
        slice_seconds: u64,
    ) -> anyhow::Result<Self> {
        eprintln!("bench: starting servers");
        let dir = tempfile::Builder::new().prefix("thumbd-bench-").tempdir()?;
        let redis = redis_in(&dir, "redis")?;
        let sql = SqlServer::start(SqlOptions {
            ephemeral: true,
            ..SqlOptions::new(dir.path().join("sql"))
        })?;
        let thumbd = runtime.block_on(Thumbd::start(
            &options.thumbd,
            dir.path(),
            &redis.url(),
            &sql.url(),
            slice_seconds,
        ))?;
        let stage = Self {
            thumbd,
            redis,
            sql,
            dir,
            slice_seconds,
            next: 0,
        };
        let address = stage.thumbd.address.clone();
        warm_up(&address)?;
        stage.drain(runtime)?;
        stage.room_for(Duration::ZERO);
        Ok(stage)
    }

    /// As many likes as go, for some time.
    pub(crate) fn load(&self, connections: usize, operations: u64, length: Duration) -> Load {
        full_load(
            &self.thumbd.address,
            connections,
            operations,
            self.next,
            length,
        )
    }

    /// Leaves behind what was used.
    pub(crate) fn used(&mut self, outcome: &Outcome) {
        self.next += outcome.used;
    }

    /// Has so many likes accepted, and says how many of them were new: a few pairs were met while warming up.
    pub(crate) fn fill(&mut self, count: u64) -> anyhow::Result<u64> {
        let load = Load {
            connections: FILL_CONNECTIONS,
            operations: FILL_OPERATIONS,
            until: Until::Pairs {
                count,
                everyone: false,
            },
            ..self.load(0, 0, Duration::ZERO)
        };
        let outcome = complete(&load, count)?;
        self.used(&outcome);
        Ok(outcome.changed)
    }

    /// Flushes, so that what is measured next has the machine for itself.
    pub(crate) fn drain(&self, runtime: &Runtime) -> anyhow::Result<()> {
        runtime.block_on(self.thumbd.flush())?;
        Ok(())
    }

    /// Waits for the next window if a measurement would not fit into what is left of this one.
    pub(crate) fn room_for(&self, length: Duration) {
        let window = Duration::from_secs(self.slice_seconds);
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let passed = now.unwrap_or_default().as_nanos() % window.as_nanos();
        let passed = Duration::from_nanos(passed as u64);
        let needed = length + RAMP + Duration::from_millis(100);
        if passed < WINDOW_BEGIN {
            std::thread::sleep(WINDOW_BEGIN - passed);
        } else if passed + needed > window && needed + WINDOW_BEGIN <= window {
            std::thread::sleep(window - passed + WINDOW_BEGIN);
        }
    }
}

/// As many likes as go, for some time.
pub(crate) fn full_load(
    address: &str,
    connections: usize,
    operations: u64,
    from: u64,
    length: Duration,
) -> Load {
    Load {
        address: address.to_owned(),
        connections,
        operations,
        from,
        until: Until::Time { ramp: RAMP, length },
        rate: None,
    }
}

/// A further Redis, as `dev` has it.
pub(crate) fn redis_in(dir: &TempDir, name: &str) -> anyhow::Result<RedisServer> {
    Ok(RedisServer::start(RedisOptions {
        ephemeral: true,
        ..RedisOptions::new(dir.path().join(name))
    })?)
}

/// Every user likes something, and every target is liked.
pub(crate) fn warm_up(address: &str) -> anyhow::Result<()> {
    eprintln!("bench: warming up");
    let load = Load {
        until: Until::Pairs {
            count: USERS,
            everyone: true,
        },
        ..full_load(address, FILL_CONNECTIONS, 1, 0, Duration::ZERO)
    };
    complete(&load, USERS)?;
    Ok(())
}

pub(crate) fn generate(load: &Load) -> anyhow::Result<Worker> {
    Worker::spawn("generate", &serde_json::to_string(load)?)
}

fn complete(load: &Load, count: u64) -> anyhow::Result<Outcome> {
    let outcome = generate(load)?.measure(&[])?.outcome;
    if !outcome.failures.is_empty() {
        eprintln!("bench: sent again: {:?}", outcome.failures);
    }
    if outcome.accepted_in_all != count {
        bail!("{} of {count} likes were accepted", outcome.accepted_in_all);
    }
    Ok(outcome)
}
