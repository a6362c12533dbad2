//! Flushes of every size: the server keeps few prepared statements, and no count is off by one at any of the bounds.

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};
use thumbd::limits::{
    BATCH_OPERATIONS_MAX, CASE_ARMS_MAX, COLD_KEYS_PER_QUERY_MAX, LOOKUP_TARGETS_MAX,
    STAGE_ROWS_MAX, UNPIN_KEYS_MAX,
};

use super::{Own, impatient, quiet};
use crate::app::{self, TestApp};
use crate::redis_faults::agree;
use crate::servers::{env, slow};
use crate::stand::{Stand, op};

#[tokio::test(flavor = "multi_thread")]
async fn flushes_of_all_sizes_leave_the_number_of_prepared_statements_on_a_plateau() {
    const CONNECTIONS: u32 = 2;
    let own = Own::start(&[]);
    let mut settings = app::settings(&own.env().await);
    settings.database_connections_max = CONNECTIONS;
    let t = Stand::on(settings).await;
    let mut root = own.root().await;
    let rounds = if slow() { 3000 } else { 200 };
    let mut rng = StdRng::seed_from_u64(9);
    let mut highest = [0; 2];
    for round in 0..rounds {
        // All powers of two in turn, and up to twice as many.
        let size = 1 << (round % 10);
        let size = rng.random_range(size..=2 * size);
        let operations = (0..size).map(|n| {
            let (user, target) = (rng.random_range(0..50), rng.random_range(0..=size));
            let thumb = rng.random_bool(0.7);
            op(
                &format!("u{user}"),
                &format!("{}:{target}", ["blog", "video"][n % 2]),
                thumb,
            )
        });
        for answer in t.service.batch(operations.collect()).await {
            answer.unwrap();
        }
        t.flush().await;
        let kept = root
            .number("SHOW GLOBAL STATUS LIKE 'Prepared_stmt_count'")
            .await;
        let half = &mut highest[usize::from(round >= rounds / 2)];
        *half = kept.max(*half);
    }
    println!("prepared statements: {highest:?}");
    assert!(highest[0] > 0, "nothing is prepared");
    assert!(highest[1] <= highest[0], "they grow: {highest:?}");
    assert!(highest[1] < 100 * i64::from(CONNECTIONS), "{highest:?}");
    t.check().await;
}

fn like(user: &str, id: usize) -> Value {
    json!({ "op": "like", "user": user, "kind": "blog", "id": id.to_string() })
}

/// Likes of all these, in as many batches as it takes.
async fn likes(app: &TestApp, all: Vec<Value>) {
    for some in all.chunks(BATCH_OPERATIONS_MAX) {
        let answer = app.batch(json!(some)).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let answer = answer.json();
        let results = answer["results"].as_array().unwrap();
        assert_eq!(results.len(), some.len());
        assert!(results.iter().all(|one| one["changed"] == true), "{answer}");
    }
}

/// Just under, at and just over.
fn around(bounds: &[usize]) -> impl Iterator<Item = usize> {
    bounds
        .iter()
        .flat_map(|bound| [bound - 1, *bound, bound + 1])
}

/// Many users of one target, and many targets of one user: each flush has that many entries, and all of them count.
async fn sizes_are_exact(rows_max: u32, sizes: impl Iterator<Item = usize>) {
    let env = env().await;
    let app = quiet(env, |settings| {
        impatient(settings);
        settings.flush_rows_max = rows_max;
    })
    .await;
    let t = Stand::on(app::settings(&app.env)).await;
    for (target, size) in sizes.enumerate() {
        let users = (0..size).map(|n| like(&format!("u{n}"), target));
        likes(&app, users.collect()).await;
        let report = app.flush_now().await;
        assert_eq!(
            (report.entries, report.rows_changed),
            (size as u64, size as u64)
        );
        assert_eq!(
            t.look("u0", &format!("blog:{target}")).await,
            (Some(true), Some(size as i64))
        );

        let user = format!("many{size}");
        let targets = (10_000..10_000 + size).map(|id| like(&user, id));
        likes(&app, targets.collect()).await;
        // Those that have a count already and those that have not go different ways.
        let report = app.flush_now().await;
        assert_eq!(
            (report.entries, report.rows_changed),
            (size as u64, size as u64)
        );
        let last = format!("blog:{}", 10_000 + size - 1);
        assert_eq!(t.look(&user, &last).await.0, Some(true));
    }
    app.finish().await;
    agree(&t, &["u0", "u1"], &["blog:0", "blog:10000"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn flushes_around_the_rows_of_a_transaction_are_exact() {
    sizes_are_exact(100, around(&[100, 200])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn flushes_around_the_sizes_of_statements_are_exact() {
    sizes_are_exact(
        20_000,
        around(&[64, CASE_ARMS_MAX, STAGE_ROWS_MAX, UNPIN_KEYS_MAX]),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_around_the_sizes_of_queries_are_exact() {
    let env = env().await;
    let app = quiet(env, impatient).await;
    likes(
        &app,
        (0..LOOKUP_TARGETS_MAX).map(|id| like("u1", id)).collect(),
    )
    .await;
    app.flush_now().await;
    let t = Stand::on(app::settings(&app.env)).await;
    for size in around(&[COLD_KEYS_PER_QUERY_MAX, 64]).chain([LOOKUP_TARGETS_MAX]) {
        // Everything is cold again.
        thumbd::service::distrust(&t.hot, &t.ledger, 0)
            .await
            .unwrap();
        let targets = (0..size).map(|id| json!({ "kind": "blog", "id": id.to_string() }));
        let answer = app.lookup(Some("u1"), targets.collect()).await.json();
        let results = answer["results"].as_array().unwrap();
        assert_eq!(results.len(), size);
        let right = |one: &Value| one["liked"] == true && one["count"] == 1;
        assert!(results.iter().all(right), "{answer}");
    }
    app.finish().await;
    t.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_and_lookups_over_their_bounds_are_refused_whole() {
    let app = quiet(env().await, impatient).await;
    for size in around(&[BATCH_OPERATIONS_MAX]) {
        let user = format!("u{size}");
        let operations = (0..size).map(|id| like(&user, id)).collect();
        let answer = app.batch(operations).await;
        let fits = size <= BATCH_OPERATIONS_MAX;
        assert_eq!(answer.status == 200, fits, "{size}: {}", answer.status);
        assert!(fits || (400..500).contains(&answer.status));
        let entries = if fits { size as u64 } else { 0 };
        assert_eq!(app.flush_now().await.entries, entries);
    }
    for size in around(&[LOOKUP_TARGETS_MAX]) {
        let targets = (0..size).map(|id| json!({ "kind": "blog", "id": id.to_string() }));
        let answer = app.lookup(Some("u999"), targets.collect()).await;
        let fits = size <= LOOKUP_TARGETS_MAX;
        assert_eq!(answer.status == 200, fits, "{size}: {}", answer.status);
        assert!(fits || (400..500).contains(&answer.status));
    }
    let env = app.finish().await;
    let t = Stand::on(app::settings(&env)).await;
    agree(
        &t,
        &["u999", "u1000", "u1001"],
        &["blog:0", "blog:998", "blog:999"],
    )
    .await;
    assert_eq!(t.look("u1001", "blog:0").await, (Some(false), Some(2)));
}
