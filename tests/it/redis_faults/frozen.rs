//! A Redis that hangs: SIGSTOP and CLIENT PAUSE. Whoever asks is refused within the budget, not when Redis comes back.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::json;
use thumbd::config::Settings;

use super::{Own, accepted, agree, stand_of};
use crate::app::{Answer, TestApp};
use crate::servers::slow;

/// What thumbd may wait for Redis in these tests: for a connection, and for an answer.
const CONNECT: Duration = Duration::from_millis(300);
const ANSWER: Duration = Duration::from_millis(500);
/// What a busy machine may add. The freeze is longer than all three.
const SLACK: Duration = Duration::from_millis(1500);

fn frozen_for() -> Duration {
    Duration::from_secs(if slow() { 20 } else { 3 })
}

fn patient(settings: &mut Settings) {
    settings.redis_connect_timeout_ms = CONNECT.as_millis() as u64;
    settings.redis_response_timeout_ms = ANSWER.as_millis() as u64;
}

/// Asks one thing after another until a moment; each is refused within the budget. Gives the codes.
async fn refused_until(end: Instant, mut ask: impl AsyncFnMut() -> Answer) -> Vec<String> {
    let mut codes = Vec::new();
    // What begins later may be answered.
    while Instant::now() + CONNECT + ANSWER + SLACK < end {
        let begun = Instant::now();
        let answer = ask().await;
        let took = begun.elapsed();
        assert!(took < CONNECT + ANSWER + SLACK, "{took:?} {answer:?}");
        assert_eq!(answer.status, 503, "{answer:?}");
        assert!(answer.headers.contains_key("retry-after"), "{answer:?}");
        codes.push(answer.json()["code"].as_str().unwrap().to_owned());
    }
    assert!(!codes.is_empty());
    codes
}

/// Everything that a client may ask, while Redis hangs.
async fn asks(app: &TestApp, end: Instant) {
    let likes = refused_until(end, async || app.like("u1", "blog/2").await);
    let unlikes = refused_until(end, async || app.unlike("u1", "blog/1").await);
    let gets = refused_until(end, async || app.get("u1", "blog/1").await);
    let lookups = refused_until(end, async || {
        app.lookup(Some("u1"), json!([{ "kind": "blog", "id": "1" }]))
            .await
    });
    let (likes, unlikes, gets, lookups) = tokio::join!(likes, unlikes, gets, lookups);
    let unknown = |codes: &[String]| {
        let known = ["outcome_unknown", "redis_unavailable"];
        codes.iter().all(|code| known.contains(&&**code))
    };
    assert!(
        unknown(&likes) && unknown(&unlikes),
        "{likes:?} {unlikes:?}"
    );
    // A read has no outcome.
    let unavailable = |codes: &[String]| codes.iter().all(|code| code == "redis_unavailable");
    assert!(unavailable(&gets) && unavailable(&lookups), "{gets:?}");
}

/// Afterwards, without a restart: what was not answered may have happened, and saying it again is right.
async fn heals(app: TestApp) {
    accepted(async || app.like("u1", "blog/2").await).await;
    accepted(async || app.unlike("u1", "blog/1").await).await;
    let seen = accepted(async || app.get("u1", "blog/2").await)
        .await
        .json();
    assert_eq!((&seen["liked"], &seen["count"]), (&json!(true), &json!(1)));
    let seen = accepted(async || app.get("u1", "blog/1").await)
        .await
        .json();
    assert_eq!((&seen["liked"], &seen["count"]), (&json!(false), &json!(0)));
    let t = stand_of(&app).await;
    agree(&t, &["u1"], &["blog:1", "blog:2"]).await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_redis_refuses_within_the_budget_and_heals_by_itself() {
    let mut own = Own::start(|_| {});
    let app = TestApp::on(own.env().await, patient).await;
    assert_eq!(app.like("u1", "blog/1").await.status, 200);
    own.server.freeze().unwrap();
    let end = Instant::now() + frozen_for();
    asks(&app, end).await;
    tokio::time::sleep_until(end.into()).await;
    own.server.thaw().unwrap();
    heals(app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_redis_refuses_within_the_budget_and_heals_by_itself() {
    let own = Own::start(|_| {});
    let app = TestApp::on(own.env().await, patient).await;
    assert_eq!(app.like("u1", "blog/1").await.status, 200);
    let t = stand_of(&app).await;
    let pause = frozen_for().as_millis().to_string();
    let end = Instant::now() + frozen_for();
    t.command::<()>(&["CLIENT", "PAUSE", &pause, "ALL"]).await;
    asks(&app, end).await;
    heals(app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_waits_in_a_long_queue_for_a_frozen_redis() {
    let mut own = Own::start(|_| {});
    let app = TestApp::on(own.env().await, patient).await;
    let names: Vec<String> = (0..1500).map(|n| format!("u{n}")).collect();
    let operation =
        |user: &String| json!({ "op": "like", "user": user, "kind": "blog", "id": "1" });
    let all: Vec<_> = names.iter().map(operation).collect();
    for some in all.chunks(500) {
        let answer = app.batch(json!(some)).await.json();
        let mut results = answer["results"].as_array().unwrap().iter();
        assert!(results.all(|one| one["changed"] == true), "{answer}");
    }
    own.server.freeze().unwrap();
    let end = Instant::now() + frozen_for();
    let single = names.iter().map(|user| async {
        let begun = Instant::now();
        let answer = app.unlike(user, "blog/1").await;
        (begun.elapsed(), answer)
    });
    let begun = Instant::now();
    let batch = async {
        let answer = app.batch(json!(all[..1000])).await;
        (begun.elapsed(), answer)
    };
    let (single, (batch_took, batch)) = tokio::join!(join_all(single), batch);
    let longest = single.iter().map(|(took, _)| *took).max().unwrap();
    println!("longest wait {longest:?}, a batch {batch_took:?}");
    for (_, answer) in &single {
        assert_eq!(answer.status, 503, "{answer:?}");
    }
    // 1500 requests of one moment take their time to send, too.
    assert!(longest < CONNECT + ANSWER + 2 * SLACK, "{longest:?}");
    assert!(batch_took < CONNECT + ANSWER + 2 * SLACK, "{batch_took:?}");
    for one in batch.json()["results"].as_array().unwrap() {
        assert_eq!(one["status"], 503, "{one}");
    }
    tokio::time::sleep_until(end.into()).await;
    own.server.thaw().unwrap();
    for user in &names {
        accepted(async || app.unlike(user, "blog/1").await).await;
    }
    let t = stand_of(&app).await;
    agree(&t, &["u0", "u1499"], &["blog:1"]).await;
    assert_eq!(t.look("u7", "blog:1").await, (Some(false), Some(0)));
    app.finish().await;
}
