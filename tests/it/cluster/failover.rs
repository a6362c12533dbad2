//! Masters die under load and their replicas take over: no restart of thumbd, and what is lost is what the failover itself lost.

use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use reqwest::Method;

use thumbd::config::{Secret, Settings};

use super::{Cluster, PARTITIONS, settings_on};
use crate::history;
use crate::serve::{PATIENCE, Serve};
use crate::servers::{TestEnv, slow};
use crate::stand::Stand;

const NODE_TIMEOUT: Duration = Duration::from_millis(1500);
const CLIENTS: u64 = 6;
/// Pairs of one client, which nobody else touches.
const PAIRS: usize = 20;
/// What a master acknowledged for so long before its death may not have reached its replica: far more than it takes.
const LAG: Duration = Duration::from_secs(1);

/// What a client knows of one of its pairs.
#[derive(Clone, Default)]
struct Known {
    /// The last acknowledged state, and when its answer came.
    liked: Option<(bool, Instant)>,
    /// States that were asked for since, with unknown outcome.
    maybe: Vec<bool>,
}

/// What all clients know in the end, by user.
type Knowledge = Vec<(String, Known)>;

/// How many answers of which kind.
#[derive(Debug, Default)]
struct Tally {
    done: u64,
    refused: u64,
    unknown: u64,
}

/// Likes and unlikes its own pairs until told to stop.
async fn client(
    serve: &Serve,
    seed: u64,
    end: tokio::sync::watch::Receiver<bool>,
) -> (Knowledge, Tally) {
    let mut rng = StdRng::seed_from_u64(seed);
    let users = (0..PAIRS).map(|n| format!("c{seed}-{n}"));
    let mut known: Knowledge = users.map(|user| (user, Known::default())).collect();
    let mut tally = Tally::default();
    while !*end.borrow() {
        let (user, pair) = &mut known[rng.random_range(0..PAIRS)];
        let like = rng.random_bool(0.6);
        let method = if like { Method::PUT } else { Method::DELETE };
        let answer = serve.one(method, user, "blog/1").send().await.unwrap();
        let status = answer.status().as_u16();
        let body: serde_json::Value = answer.json().await.unwrap();
        match (status, body["code"].as_str()) {
            (200, _) => {
                tally.done += 1;
                *pair = Known {
                    liked: Some((like, Instant::now())),
                    maybe: vec![],
                };
            }
            (503, Some("outcome_unknown" | "timeout")) => {
                tally.unknown += 1;
                pair.maybe.push(like);
            }
            (503, Some(_)) => tally.refused += 1,
            _ => panic!("{status}: {body}"),
        }
        tokio::time::sleep(Duration::from_millis(rng.random_range(0..4))).await;
    }
    (known, tally)
}

/// Breaks something while clients ask; afterwards everything agrees, and only what was acknowledged around a break may be lost.
async fn under_load(
    env: &TestEnv,
    stand: impl AsyncFnOnce() -> Stand,
    act: impl AsyncFnOnce(&Serve) -> Vec<(Instant, Instant)>,
) {
    let partitions = PARTITIONS.to_string();
    let settings = [
        ("THUMBD_SLICE_SECONDS", "1"),
        ("THUMBD_PARTITIONS", &*partitions),
        ("THUMBD_REDIS_RESPONSE_TIMEOUT_MS", "1000"),
    ];
    let serve = Serve::start(env, &settings).await;
    let (stop, end) = tokio::sync::watch::channel(false);
    let clients = (0..CLIENTS).map(|n| client(&serve, n, end.clone()));
    let clients = futures_util::future::join_all(clients);
    let breaks = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let breaks = act(&serve).await;
        // Everybody is served again.
        for user in 0..3 * PARTITIONS {
            let begun = Instant::now();
            while serve.like(&format!("after{user}"), "blog/1").await.status != 200 {
                assert!(begun.elapsed() < PATIENCE, "not in time: served again");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        stop.send(true).unwrap();
        breaks
    };
    let (known, breaks) = tokio::join!(clients, breaks);
    let begun = Instant::now();
    while let Err(error) = serve.admin("/admin/v1/flushes").await {
        assert!(begun.elapsed() < PATIENCE, "{error}");
    }
    let stand = stand().await;
    stand.check().await;
    let rows = history::rows(&stand.pool).await;
    let likers = rows.values().filter(|liked| **liked).count();
    let stored = stand
        .number("SELECT CAST(COALESCE(SUM(count), 0) AS SIGNED) FROM thumb_count")
        .await;
    assert_eq!(usize::try_from(stored).unwrap(), likers);

    let (mut lost, mut all) = (0, Tally::default());
    for (pairs, tally) in known {
        all.done += tally.done;
        all.refused += tally.refused;
        all.unknown += tally.unknown;
        for (user, known) in pairs {
            let pair = (user.clone(), "blog:1".to_owned());
            let row = rows.get(&pair).copied().unwrap_or(false);
            let Some((liked, at)) = known.liked else {
                continue;
            };
            if row == liked || known.maybe.contains(&row) {
                continue;
            }
            lost += 1;
            let near = |(from, upto): &(Instant, Instant)| at + LAG > *from && at < *upto;
            assert!(
                breaks.iter().any(near),
                "{user} lost what no failover can lose"
            );
        }
    }
    println!(
        "{all:?}; {lost} of the last acknowledged states were lost with {} masters",
        breaks.len()
    );
    assert!(all.done > 100, "{all:?}");
    serve.stop();
}

async fn masters_fail_over(times: usize) {
    let cluster = Cluster::start(true, NODE_TIMEOUT).await;
    let env = cluster.env().await;
    let settings = Settings {
        slice_seconds: 1,
        database_url: Some(Secret::new(&env.database_url)),
        key_prefix: env.key_prefix.clone(),
        ..settings_on(&cluster).await
    };
    let act = async |_: &Serve| {
        let mut breaks = Vec::new();
        let mut gone: Vec<usize> = Vec::new();
        for partition in 0..PARTITIONS {
            let owner = cluster.owner(&settings, partition).await;
            // One that was promoted here is no new case.
            if breaks.len() == times || owner >= cluster.count() / 2 {
                continue;
            }
            let begun = Instant::now();
            cluster.kill(owner);
            breaks.push((begun, Instant::now()));
            cluster.failed_over(&settings, partition, owner).await;
            gone.push(owner);
            // It comes back as a replica.
            cluster.restart(owner);
            cluster.settled().await;
        }
        assert_eq!(gone.len(), times);
        breaks
    };
    under_load(&env, async || Stand::on(settings.clone()).await, act).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_master_fails_over_under_load() {
    // The short run has one only.
    masters_fail_over(if slow() { 3 } else { 1 }).await;
}
