//! Panics outside of a flush: what the client is told, what goes on, and what ends the process.

use reqwest::Method;
use serde_json::json;

use crate::app::{self, Answer, send};
use crate::chaos;
use crate::serve::{PATIENCE, Serve, until};
use crate::servers::{self, TestEnv};
use crate::stand::Stand;

/// An environment on which a start does not compensate, so that only what the test asks for passes a point.
async fn quiet() -> TestEnv {
    let env = servers::env().await;
    let stand = Stand::on(app::settings(&env)).await;
    stand.compensated().await;
    env
}

async fn start(env: &TestEnv, failpoints: &str) -> Serve {
    let settings = [
        ("THUMBD_SLICE_SECONDS", "3600"),
        ("THUMBD_LEASE_TTL_MS", "3000"),
        ("FAILPOINTS", failpoints),
    ];
    Serve::start(env, &settings).await
}

fn problem(answer: &Answer, status: u16, code: &str) {
    assert_eq!(answer.status, status, "{answer:?}");
    assert_eq!(answer.json()["code"], code, "{answer:?}");
    assert!(!answer.text.contains("panic"), "{answer:?}");
}

/// It ends by itself with an error, and the next start lands the like.
async fn ends_and_loses_nothing(serve: Serve, env: &TestEnv) {
    let (status, lines) = serve.ended().await;
    assert_eq!(status.code(), Some(1), "{lines:#?}");
    let words = "thumbd: a background task died: a task of the jobs has ended";
    assert_eq!(lines.last().unwrap(), words, "{lines:#?}");
    let next = start(env, "").await;
    let report = next.admin("/admin/v1/flushes").await.unwrap();
    assert_eq!(report["entries"], 1, "{report}");
    let seen = next.get("u1", "blog/1").await.json();
    assert_eq!((&seen["liked"], &seen["count"]), (&json!(true), &json!(1)));
    next.verify().await;
    next.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_panics_is_an_internal_error_and_hurts_nobody_else() {
    let env = quiet().await;
    // The second passing: the like is in Redis. The first one says that user and count are cold.
    let serve = start(&env, "thumb.answered=2*panic").await;
    let request = serve.one(Method::PUT, "u1", "blog/1");
    let answer = send(request.header("X-Request-Id", "the-one")).await;
    problem(&answer, 500, "internal");
    let line = serve.said("a handler panicked").await;
    assert!(line.contains("the-one"), "{line}");
    let again = serve.like("u1", "blog/1").await.json();
    let outcome = (&again["changed"], &again["count"]);
    assert_eq!(outcome, (&json!(false), &json!(1)));
    let other = serve.like("u2", "blog/1").await.json();
    assert_eq!(other["count"], 2);
    // Only this request itself.
    let in_flight = serve.metric("thumbd_http_requests_in_flight").await;
    assert_eq!(in_flight, Some(1.0));
    serve.admin("/admin/v1/flushes").await.unwrap();
    serve.verify().await;
    serve.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cold_load_that_panics_is_told_and_made_again() {
    let env = quiet().await;
    let serve = start(&env, "cold.read=1*panic").await;
    problem(&serve.like("u1", "blog/1").await, 503, "busy");
    let pending = serve.metric("thumbd_cold_loads_pending").await;
    assert_eq!(pending, Some(0.0));
    let again = serve.like("u1", "blog/1").await.json();
    assert_eq!(again["changed"], true, "{again}");
    serve.admin("/admin/v1/flushes").await.unwrap();
    serve.verify().await;
    serve.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_whose_runner_dies_ends_and_says_so() {
    let env = quiet().await;
    // Outside of what a run's own guard catches.
    let serve = start(&env, "lease.taken=1*panic").await;
    assert_eq!(serve.like("u1", "blog/1").await.status, 200);
    let flush = serve.client.post(format!("{}/admin/v1/flushes", serve.url));
    let flush = flush.bearer_auth(app::ADMIN_TOKEN).timeout(PATIENCE);
    problem(&send(flush).await, 503, "job_died");
    ends_and_loses_nothing(serve, &env).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_whose_watch_dies_ends_and_says_so() {
    let env = quiet().await;
    let (behind, redis, _sql) = chaos::before(&env).await;
    // Once at the start; then when Redis may have become another one.
    let serve = start(&behind, "recover.peek=2*panic").await;
    assert_eq!(serve.like("u1", "blog/1").await.status, 200);
    redis.cut();
    until("it has died", async || {
        let lines = serve.lines();
        lines
            .iter()
            .any(|line| line.contains("failpoint recover.peek"))
    })
    .await;
    ends_and_loses_nothing(serve, &env).await;
}
