//! A seeded model test of thumbd's own steps on a real Redis and a real MariaDB.
//!
//! Clients, readers, flushers and compensators are tasks that stop at every point of `steps`. A scheduler lets one at a time
//! go on to its next point, chosen by a seed, kills some for good, moves the clocks and removes what Redis may remove. All that
//! is answered is compared with what is true at that moment, and in the end Redis and MySQL must agree with it.
//!
//! `THUMBD_MODEL_SEED=n` runs one seed, `THUMBD_MODEL_RUNS=n` that many instead of a dozen or less. A failure prints the scenario,
//! the seed and the trace.

mod actors;
mod answers;
mod damage;
mod directed;
mod scenario;
mod schedule;
mod settle;
mod stores;
mod truth;
mod world;

use std::env;

use scenario::{CALM, CRASHES, Scenario};
use schedule::{Run, Totals};
use world::World;

/// Seeds of a scenario, unless told otherwise; half of it where stores are damaged.
const RUNS: u64 = 8;

async fn model(scenario: Scenario) {
    let number = |name: &str| env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    // Looking at all of both stores after every step takes its time.
    let runs = if scenario.damages() { RUNS / 2 } else { RUNS };
    let seeds = match number("THUMBD_MODEL_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("THUMBD_MODEL_RUNS").unwrap_or(runs),
    };
    let many = seeds.end - seeds.start >= runs;
    let mut world = World::start(&scenario).await;
    let mut totals = Totals::default();
    for seed in seeds {
        Run::begin(&mut world, scenario, seed, &mut totals)
            .await
            .go()
            .await;
    }
    println!("model: {}, {totals:?}", scenario.name);
    if many {
        let t = &totals;
        assert!(
            t.changed > 20 && t.unchanged > 10 && t.reads > 20 && t.flushes > 3,
            "too little happens: {t:?}"
        );
        assert!(t.crashes > 0 || scenario.crash == 0.0, "nobody died");
        assert!(
            t.evictions > 0 || scenario.evict == 0.0,
            "nothing was evicted"
        );
        assert!(
            t.forgotten > 0 || !scenario.forget_keys,
            "nothing was forgotten"
        );
        assert!(t.pruned > 0 || !scenario.prune, "nothing was pruned");
        assert!(t.damages > 0 || !scenario.damages(), "nothing was damaged");
    }
    world.ledger.close().await;
}

#[tokio::test]
async fn model_no_faults() {
    model(CALM).await;
}

#[tokio::test]
async fn model_crashes_and_two_flushers() {
    model(CRASHES).await;
}

#[tokio::test]
async fn model_evictions() {
    model(Scenario {
        name: "evictions",
        evict: 0.05,
        ..CRASHES
    })
    .await;
}

#[tokio::test]
async fn model_partial_users() {
    model(Scenario {
        name: "partial users",
        partial: true,
        evict: 0.03,
        ..CRASHES
    })
    .await;
}

#[tokio::test]
async fn model_three_partitions() {
    model(Scenario {
        name: "three partitions",
        partitions: 3,
        evict: 0.05,
        ..CRASHES
    })
    .await;
}

#[tokio::test]
async fn model_likes_only() {
    model(Scenario {
        name: "likes only",
        likes_only: true,
        evict: 0.05,
        ..CRASHES
    })
    .await;
}

#[tokio::test]
async fn model_likes_only_in_three_partitions() {
    model(Scenario {
        name: "likes only, three partitions",
        partitions: 3,
        likes_only: true,
        evict: 0.05,
        ..CRASHES
    })
    .await;
}

#[tokio::test]
async fn model_real_windows() {
    model(Scenario {
        name: "real windows",
        real_time: true,
        evict: 0.03,
        ..CRASHES
    })
    .await;
}

#[tokio::test]
async fn model_real_windows_in_three_partitions() {
    model(Scenario {
        name: "real windows, three partitions",
        partitions: 3,
        real_time: true,
        evict: 0.03,
        ..CRASHES
    })
    .await;
}

#[tokio::test]
async fn model_forgotten_keys() {
    model(Scenario {
        name: "forgotten keys",
        partitions: 2,
        forget_keys: true,
        evict: 0.03,
        ..CRASHES
    })
    .await;
}

#[tokio::test]
async fn model_pruned_rows() {
    model(Scenario {
        name: "pruned rows",
        prune: true,
        partial: true,
        evict: 0.03,
        ..CRASHES
    })
    .await;
}

#[tokio::test]
async fn model_pruned_rows_and_a_rolled_back_redis() {
    model(Scenario {
        name: "pruned rows, Redis rolled back",
        prune: true,
        forget_keys: true,
        rollback: 0.01,
        ..CRASHES
    })
    .await;
}

#[tokio::test]
async fn model_redis_emptied() {
    model(Scenario {
        name: "Redis emptied",
        empty: 0.008,
        ..CRASHES
    })
    .await;
}

#[tokio::test]
async fn model_redis_rolled_back() {
    model(Scenario {
        name: "Redis rolled back",
        rollback: 0.01,
        evict: 0.02,
        ..CRASHES
    })
    .await;
}

#[tokio::test]
async fn model_mysql_forgets() {
    model(Scenario {
        name: "MySQL forgets a commit",
        forget: 0.01,
        evict: 0.02,
        ..CRASHES
    })
    .await;
}

#[tokio::test]
async fn model_all_damage_in_three_partitions() {
    model(Scenario {
        name: "all damage, three partitions",
        partitions: 3,
        empty: 0.002,
        rollback: 0.004,
        forget: 0.004,
        evict: 0.02,
        ..CRASHES
    })
    .await;
}
