//! Clients that write down what was acknowledged while something breaks under a thumbd that is not restarted; afterwards both stores
//! agree, and lost is only what the break itself may have lost.

use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use reqwest::Method;

use thumbd::config::Settings;

use crate::app;
use crate::history;
use crate::serve::{PATIENCE, Serve};
use crate::servers::TestEnv;
use crate::stand::Stand;

const CLIENTS: u64 = 6;
/// Pairs of one client, which nobody else touches.
const PAIRS: usize = 20;
/// What a Redis acknowledged for so long before its death may not have reached its replica: far more than it takes.
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

/// How long after a failover a partition may answer from what it lacks, until that is recognised.
const RECOGNISED: Duration = Duration::from_secs(2);

/// From when until when something was broken, the failover included.
pub(crate) type Break = (Instant, Instant);

/// Lets clients ask while `act` breaks something; when it has ended everybody must be served again.
pub(crate) async fn under_load(
    env: &TestEnv,
    partitions: u16,
    further: &[(&str, &str)],
    act: impl AsyncFnOnce() -> Vec<Break>,
) {
    let number = partitions.to_string();
    let mut settings = vec![
        ("THUMBD_SLICE_SECONDS", "1"),
        ("THUMBD_PARTITIONS", &*number),
        ("THUMBD_REDIS_RESPONSE_TIMEOUT_MS", "1000"),
    ];
    settings.extend(further);
    let serve = Serve::start(env, &settings).await;
    let (stop, end) = tokio::sync::watch::channel(false);
    let clients = (0..CLIENTS).map(|n| client(&serve, n, end.clone()));
    let clients = futures_util::future::join_all(clients);
    let breaks = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let breaks = act().await;
        // Everybody is served again.
        for user in 0..3 * partitions {
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
    let stand = Stand::on(Settings {
        slice_seconds: 1,
        partitions,
        ..app::settings(env)
    })
    .await;
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
            let near = |(from, upto): &Break| at + LAG > *from && at < *upto + RECOGNISED;
            assert!(
                breaks.iter().any(near),
                "no break explains {user}: {row}, and {liked} was acknowledged {:?} ago; breaks {:?}",
                at.elapsed(),
                breaks
                    .iter()
                    .map(|(from, upto)| (from.elapsed(), upto.elapsed()))
                    .collect::<Vec<_>>()
            );
        }
    }
    println!(
        "{all:?}; lost: {lost} of the last acknowledged states of {} pairs, in {} breaks",
        CLIENTS as usize * PAIRS,
        breaks.len()
    );
    assert!(all.done > 100, "{all:?}");
    serve.stop();
}
