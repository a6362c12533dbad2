//! Too much at once, because Redis hangs: early 503 up to a bound, reads last, probes and operators never; and back again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::json;

use super::{Own, accepted, agree, stand_of, until};
use crate::app::{Answer, TestApp, send};

/// Operations under way, and how many of them writes may be.
const MAX: usize = 40;
const WRITES_MAX: usize = 30;
/// Reads at once, far more than have a place beside those writes.
const READS: usize = 60;
/// How long Redis may keep a request waiting here: longer than it is frozen.
const ANSWER: Duration = Duration::from_secs(20);
/// What is refused early takes less, also on a busy machine.
const EARLY: Duration = Duration::from_secs(3);

fn is_shed(answer: &Answer) -> bool {
    answer.status == 503 && answer.json()["code"] == "overloaded"
}

async fn shed(app: &TestApp, class: &str) -> f64 {
    metric(
        app,
        &format!("thumbd_shed_requests_total{{class=\"{class}\"}}"),
    )
    .await
}

async fn metric(app: &TestApp, name: &str) -> f64 {
    let text = send(app.request(Method::GET, "/metrics")).await.text;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.map_or(0.0, |value| value.trim().parse().unwrap())
}

/// A like that goes on by itself.
fn like(app: &Arc<TestApp>, user: usize) -> tokio::task::JoinHandle<(Duration, Answer)> {
    let app = app.clone();
    tokio::spawn(async move {
        let begun = Instant::now();
        let answer = app.like(&format!("u{user}"), "blog/1").await;
        (begun.elapsed(), answer)
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_much_is_refused_early_and_reads_last() {
    let mut own = Own::start(|_| {});
    let app = TestApp::on(own.env().await, |settings| {
        settings.operations_in_flight_max = MAX;
        settings.redis_response_timeout_ms = ANSWER.as_millis() as u64;
    })
    .await;
    let app = Arc::new(app);
    // All metrics of this binary are of one process.
    let before = (shed(&app, "write").await, shed(&app, "read").await);
    for user in 0..200 {
        assert_eq!(app.like(&format!("u{user}"), "blog/0").await.status, 200);
    }
    own.server.freeze().unwrap();

    // As many writes as may be wait for Redis, all others are told at once.
    let mut likes: Vec<_> = (0..200).map(|user| like(&app, user)).collect();
    until("all but those that wait are answered", async || {
        likes.iter().filter(|like| like.is_finished()).count() >= 200 - WRITES_MAX
    })
    .await;
    let (done, waiting): (Vec<_>, Vec<_>) = likes.drain(..).partition(|like| like.is_finished());
    assert_eq!(waiting.len(), WRITES_MAX);
    for like in done {
        let (took, answer) = like.await.unwrap();
        assert!(is_shed(&answer) && took < EARLY, "{took:?} {answer:?}");
        let after: u64 = answer.headers["retry-after"]
            .to_str()
            .unwrap()
            .parse()
            .unwrap();
        assert!((1..=3).contains(&after), "{answer:?}");
    }
    let batch = json!([{ "op": "like", "user": "u1", "kind": "blog", "id": "1" }]);
    assert!(is_shed(&app.batch(batch).await));
    assert!(is_shed(&app.unlike("u1", "blog/1").await));
    // Other tests of this process may add to it.
    assert!(shed(&app, "write").await - before.0 >= 172.0);

    // Reads go on: this one does not need Redis.
    let ranking = || app.request(Method::GET, "/v1/rankings/blog");
    assert_eq!(send(ranking()).await.status, 200);
    // So do those that do, until all places are taken. More than there are: one could come while the read above ends.
    let reads: Vec<_> = (0..READS)
        .map(|user| {
            let app = app.clone();
            tokio::spawn(async move { app.get(&format!("u{user}"), "blog/1").await })
        })
        .collect();
    until("all reads but those that wait are answered", async || {
        reads.iter().filter(|read| read.is_finished()).count() >= READS - (MAX - WRITES_MAX)
    })
    .await;
    let (done, waiting_reads): (Vec<_>, Vec<_>) =
        reads.into_iter().partition(|read| read.is_finished());
    assert_eq!(waiting_reads.len(), MAX - WRITES_MAX);
    for read in done {
        assert!(is_shed(&read.await.unwrap()));
    }
    assert!(is_shed(&send(ranking()).await));
    assert!(shed(&app, "read").await - before.1 >= (READS - (MAX - WRITES_MAX)) as f64);

    // Who looks after it is let in.
    assert_eq!(send(app.request(Method::GET, "/healthz")).await.status, 200);
    let slices = app.admin(Method::GET, "/admin/v1/slices");
    let slices = tokio::time::timeout(Duration::from_millis(500), slices).await;
    assert!(slices.is_err() || !is_shed(&slices.unwrap()));

    own.server.thaw().unwrap();
    for like in waiting {
        let (_, answer) = like.await.unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    for read in waiting_reads {
        let answer = read.await.unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    // All places are free again.
    for user in 0..200 {
        accepted(async || app.like(&format!("u{user}"), "blog/1").await).await;
    }
    let t = stand_of(&app).await;
    agree(&t, &["u0", "u199"], &["blog:0", "blog:1"]).await;
    Arc::into_inner(app).unwrap().finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_takes_as_many_places_as_it_has_operations() {
    let mut own = Own::start(|_| {});
    let app = TestApp::on(own.env().await, |settings| {
        settings.operations_in_flight_max = MAX;
        settings.redis_response_timeout_ms = ANSWER.as_millis() as u64;
    })
    .await;
    let app = Arc::new(app);
    let operation = |user: usize| json!({ "op": "like", "user": format!("u{user}"), "kind": "blog", "id": "1" });
    // More than there are places, and alone: it is accepted.
    let all: Vec<_> = (0..100).map(operation).collect();
    assert_eq!(app.batch(json!(all)).await.status, 200);
    own.server.freeze().unwrap();
    let under_way = {
        let app = app.clone();
        tokio::spawn(async move { app.batch(json!(all)).await })
    };
    let ranking = || app.request(Method::GET, "/v1/rankings/blog");
    until("the batch is under way", async || {
        is_shed(&send(ranking()).await)
    })
    .await;
    assert!(is_shed(&app.like("u1", "blog/2").await));
    own.server.thaw().unwrap();
    assert_eq!(under_way.await.unwrap().status, 200);
    assert_eq!(send(ranking()).await.status, 200);
    accepted(async || app.like("u1", "blog/2").await).await;
    Arc::into_inner(app).unwrap().finish().await;
}
