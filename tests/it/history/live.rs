//! Eight clients against a process that flushes every second, while connections to both servers are cut and replies lost.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use sqlx::Row as _;

use super::{Call, Pair, Recorder, check};
use crate::app;
use crate::chaos::{self, Act, Proxy, Then, script};
use crate::serve::{PATIENCE, Serve};
use crate::servers;
use crate::stand::Stand;

const LENGTH: Duration = Duration::from_secs(5);
const CLIENTS: u64 = 8;
const PAIRS: u64 = 10;
const TARGETS: u64 = 3;
/// A request is cut off after this, and nothing in between keeps it longer.
const SETTLED: Duration = Duration::from_secs(15);

#[tokio::test(flavor = "multi_thread")]
async fn some_order_explains_all_answers_while_connections_break() {
    let seed: u64 = rand::random();
    println!("seed {seed}");
    let env = servers::env().await;
    let (behind, redis, sql) = chaos::before(&env).await;
    let settings = [
        ("THUMBD_SLICE_SECONDS", "1"),
        ("THUMBD_REDIS_RESPONSE_TIMEOUT_MS", "1000"),
    ];
    let serve = Serve::start(&behind, &settings).await;
    let recorder = Recorder::new();
    let end = Instant::now() + LENGTH;
    let clients = (0..CLIENTS).map(|n| client(&recorder, &serve, seed + n, end));
    let clients = futures_util::future::join_all(clients);
    tokio::join!(clients, breaker(&redis, &sql, seed, end));

    redis.heal();
    sql.heal();
    let begun = Instant::now();
    while let Err(error) = serve.admin("/admin/v1/flushes").await {
        assert!(begun.elapsed() < PATIENCE, "{error}");
    }
    let stand = Stand::on(thumbd::config::Settings {
        slice_seconds: 1,
        ..app::settings(&env)
    })
    .await;
    stand.check().await;
    let rows = rows(&stand.pool).await;
    let checked = check(&recorder.events(), &rows, SETTLED);
    let checked = checked.unwrap_or_else(|problem| panic!("seed {seed}: {problem}"));
    println!("{checked:?}");
    assert!(checked.changed > 50 && checked.unchanged > 10 && checked.seen > 50);
    assert!(
        checked.unknown + checked.refused > 0,
        "nothing broke: {checked:?}"
    );
}

async fn client(recorder: &Recorder, serve: &Serve, seed: u64, end: Instant) {
    let mut rng = StdRng::seed_from_u64(seed);
    while Instant::now() < end {
        let call = match rng.random_range(0..10) {
            0..4 => Call::Like,
            4..7 => Call::Unlike,
            _ => Call::Read,
        };
        let number = rng.random_range(0..PAIRS);
        let (user, id) = (format!("u{number}"), (number % TARGETS).to_string());
        recorder
            .ask(&serve.client, &serve.url, call, &user, &id)
            .await;
        // So that an outage is not the most of the history.
        tokio::time::sleep(Duration::from_millis(rng.random_range(0..4))).await;
    }
}

async fn breaker(redis: &Proxy, sql: &Proxy, seed: u64, end: Instant) {
    let mut rng = StdRng::seed_from_u64(!seed);
    while Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(rng.random_range(50..400))).await;
        match rng.random_range(0..5) {
            0 => redis.cut(),
            1 => sql.cut(),
            2 => drop(redis.once(script("thumb"), Act::SwallowReply(Then::Cut))),
            3 => drop(redis.once(script("unthumb"), Act::CutBefore)),
            _ => drop(sql.once("COMMIT", Act::SwallowReply(Then::Cut))),
        }
    }
}

/// All rows.
pub(crate) async fn rows(pool: &sqlx::MySqlPool) -> BTreeMap<Pair, bool> {
    let query =
        "SELECT t.user_id, k.name, t.target_id, t.thumbed FROM thumb t JOIN kind k USING (kind_id)";
    let rows = sqlx::query(query).fetch_all(pool).await.unwrap();
    rows.iter()
        .map(|row| {
            let (kind, id): (String, String) = (row.get(1), row.get(2));
            (
                (row.get(0), format!("{kind}:{id}")),
                row.get::<i8, _>(3) != 0,
            )
        })
        .collect()
}
