//! The process that runs the bare like script in pipelines, straight at Redis: what a batch over HTTP is compared with.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Context;
use redis::{Client, aio::MultiplexedConnection};
use serde::{Deserialize, Serialize};

use crate::{
    limits::RAMP,
    pairs,
    window::{Outcome, Window, exit_when_let_go, say},
    yardsticks::{bare_like, bare_script, bare_slice},
};

/// What load to make.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Pipelines {
    pub(crate) redis_url: String,
    /// Pipelines under way at once, all on one multiplexed connection.
    pub(crate) at_once: usize,
    /// Likes in one pipeline.
    pub(crate) operations: u64,
    pub(crate) from: u64,
    pub(crate) length: Duration,
}

/// The worker's main function.
pub(crate) fn run(spec: &str) -> anyhow::Result<()> {
    let load: Pipelines = serde_json::from_str(spec).context("read the load")?;
    exit_when_let_go();
    let outcome = tokio::runtime::Runtime::new()?.block_on(drive(load))?;
    say(&serde_json::to_string(&outcome)?);
    Ok(())
}

async fn drive(load: Pipelines) -> anyhow::Result<Outcome> {
    let client = Client::open(load.redis_url.as_str())?;
    let redis = client.get_multiplexed_async_connection().await?;
    let script = bare_script();
    script.load_async(&mut redis.clone()).await?;
    let (window, announcer) = Window::announce(RAMP, load.length);
    let next = Arc::new(AtomicU64::new(load.from));
    let load = Arc::new(load);
    let tasks: Vec<_> = (0..load.at_once)
        .map(|_| {
            tokio::spawn(repeat(
                Arc::clone(&load),
                redis.clone(),
                script.get_hash().to_owned(),
                window,
                Arc::clone(&next),
            ))
        })
        .collect();
    let mut all = Outcome::default();
    for task in tasks {
        let one = task.await?;
        all.accepted += one.accepted;
        all.changed += one.changed;
        all.accepted_in_all += one.accepted_in_all;
        for (reason, times) in one.failures {
            all.failed(reason, times);
        }
    }
    let _ = announcer.join();
    all.used = next.load(Ordering::Relaxed) - load.from;
    all.seconds = load.length.as_secs_f64();
    Ok(all)
}

async fn repeat(
    load: Arc<Pipelines>,
    mut redis: MultiplexedConnection,
    hash: String,
    window: Window,
    next: Arc<AtomicU64>,
) -> Outcome {
    let mut outcome = Outcome::default();
    while Instant::now() < window.end {
        let from = next.fetch_add(load.operations, Ordering::Relaxed);
        let slice = bare_slice();
        let mut pipeline = redis::pipe();
        for pair in (from..from + load.operations).map(pairs::pair) {
            let target = format!("blog:{}", pair.target);
            pipeline.cmd("EVALSHA").arg(&hash).arg(2);
            for arg in bare_like(slice, &pair.user.to_string(), &target) {
                pipeline.arg(arg);
            }
        }
        let answers: Vec<i64> = match pipeline.query_async(&mut redis).await {
            Ok(answers) => answers,
            Err(error) => {
                outcome.failed(error.to_string(), load.operations);
                continue;
            }
        };
        let changed = answers.iter().filter(|answer| **answer == 1).count() as u64;
        outcome.accepted_in_all += load.operations;
        if window.contains(Instant::now()) {
            outcome.accepted += load.operations;
            outcome.changed += changed;
        }
    }
    outcome
}
