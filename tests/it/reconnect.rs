//! A Redis that comes back as another one is found out without a request and without a scheduled flush; readiness tells what is wrong.

use reqwest::Method;
use serde_json::json;
use thumbd::dev::{RedisOptions, RedisServer};

use crate::app::TestApp;
use crate::chaos::{Act, Proxy, Then, script};
use crate::serve::until;
use crate::servers::{self, TestEnv};

async fn own(aof: bool) -> (tempfile::TempDir, RedisServer, TestEnv) {
    let directory = tempfile::tempdir().unwrap();
    let options = RedisOptions {
        aof,
        ..servers::redis_options(directory.path())
    };
    let redis = RedisServer::start(options).unwrap();
    let env = TestEnv {
        redis_url: redis.url(),
        ..servers::env().await
    };
    (directory, redis, env)
}

/// Whoever meets a dead connection first is told of it.
async fn seen(app: &TestApp, user: &str) -> serde_json::Value {
    let mut seen = None;
    until("read", async || {
        let answer = app.get(user, "blog/1").await;
        assert!([200, 503].contains(&answer.status), "{answer:?}");
        seen = (answer.status == 200).then(|| answer.json());
        seen.is_some()
    })
    .await;
    seen.unwrap()
}

async fn command<T: redis::FromRedisValue>(url: &str, words: &[&str]) -> redis::RedisResult<T> {
    let client = redis::Client::open(url).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await?;
    let mut command = redis::Cmd::new();
    for word in words {
        command.arg(*word);
    }
    command.query_async(&mut connection).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_restarted_empty_is_initialised_though_nobody_asks() {
    let (_directory, mut redis, env) = own(false).await;
    let meta = format!("{}:v1:{{0}}:meta", env.key_prefix);
    let url = env.redis_url.clone();
    let app = TestApp::on(env, |_| {}).await;
    app.like("u1", "blog/1").await;
    app.flush_now().await;
    redis.kill().unwrap();
    redis.restart().unwrap();
    until("initialised", async || {
        command(&url, &["EXISTS", &meta]).await.unwrap_or(0) == 1
    })
    .await;
    let seen = seen(&app, "u1").await;
    assert_eq!((&seen["liked"], &seen["count"]), (&json!(true), &json!(1)));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_live_after_a_reset_lands_without_waiting_for_the_schedule() {
    let (_directory, mut redis, env) = own(true).await;
    let (url, meta) = (
        env.redis_url.clone(),
        format!("{}:v1:{{0}}:meta", env.key_prefix),
    );
    let app = TestApp::on(env, |_| {}).await;
    app.like("u1", "blog/1").await;
    app.flush_now().await;
    app.like("u2", "blog/1").await;
    // As if an older file had been loaded: the last seal is gone, a slice is live.
    command::<()>(&url, &["HSET", &meta, "sealed", "1"])
        .await
        .unwrap();
    redis.kill().unwrap();
    redis.restart().unwrap();
    until("landed", async || {
        app.jobs
            .status()
            .await
            .is_ok_and(|status| status.entries == 0)
    })
    .await;
    let seen = seen(&app, "u2").await;
    assert_eq!((&seen["liked"], &seen["count"]), (&json!(true), &json!(2)));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn readiness_says_why_redis_takes_no_writes() {
    let (_directory, redis, env) = own(false).await;
    let url = redis.url();
    let app = TestApp::on(env, |_| {}).await;
    app.like("u1", "blog/1").await;
    let ready = async || app.request(Method::GET, "/readyz");
    let body = async || crate::app::send(ready().await).await;
    assert_eq!(body().await.json()["status"], "ready");
    command::<()>(&url, &["CONFIG", "SET", "maxmemory", "1"])
        .await
        .unwrap();
    let full = body().await;
    assert_eq!(full.status, 200, "{full:?}");
    let want = json!({ "ok": false, "problem": "redis has no memory left" });
    assert_eq!(
        (&full.json()["status"], &full.json()["redis"]),
        (&json!("degraded"), &want)
    );
    command::<()>(&url, &["CONFIG", "SET", "maxmemory", "0"])
        .await
        .unwrap();
    assert_eq!(body().await.json()["status"], "ready");
    drop(redis);
    let gone = body().await;
    assert_eq!(
        (gone.status, &gone.json()["status"]),
        (503, &json!("unavailable"))
    );
    app.token.cancel();
}

#[tokio::test(flavor = "multi_thread")]
async fn readiness_tells_of_a_flush_that_fails() {
    let app = TestApp::start().await;
    app.like("u1", "blog/1").await;
    let pool = sqlx::MySqlPool::connect(&app.env.database_url)
        .await
        .unwrap();
    let body = async || {
        crate::app::send(app.request(Method::GET, "/readyz"))
            .await
            .json()
    };
    assert_eq!(body().await["flush"]["ok"], true);
    sqlx::raw_sql("ALTER TABLE thumb_count RENAME TO gone")
        .execute(&pool)
        .await
        .unwrap();
    assert!(app.jobs.flush_now().await.is_err());
    let ready = body().await;
    assert_eq!(ready["status"], "degraded", "{ready}");
    assert_eq!(
        ready["flush"]["problem"],
        "the last flush failed, the log has the reason"
    );
    until("lag", async || {
        body().await["flush"]["lag_ms"].as_u64() > Some(0)
    })
    .await;
    sqlx::raw_sql("ALTER TABLE gone RENAME TO thumb_count")
        .execute(&pool)
        .await
        .unwrap();
    app.flush_now().await;
    assert_eq!(body().await["status"], "ready");
    app.finish().await;
}

/// A firewall that forgot the connection, or a server that moved: nobody closes it, and nothing ever comes back.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_only_hangs_is_left_for_a_new_one() {
    let env = servers::env().await;
    let redis = Proxy::before_url(&env.redis_url).await;
    let env = TestEnv {
        redis_url: redis.redis_url(),
        ..env
    };
    let app = TestApp::on(env, |settings| {
        (settings.slice_seconds, settings.redis_response_timeout_ms) = (3600, 300);
    })
    .await;
    app.like("u1", "blog/1").await;
    app.flush_now().await;
    // The connection of requests.
    let mut hung = redis.once(script("thumb"), Act::SwallowReply(Then::Hold));
    let answer = app.like("u2", "blog/1").await;
    assert_eq!(
        (answer.status, answer.json()["code"].as_str()),
        (503, Some("outcome_unknown"))
    );
    hung.wait(1).await;
    let answer = app.like("u2", "blog/1").await;
    assert_eq!(
        (answer.status, &answer.json()["count"]),
        (200, &json!(2)),
        "the next one has a connection that answers"
    );
    // The connection of jobs.
    let mut hung = redis.once(script("seal"), Act::SwallowReply(Then::Hold));
    assert!(app.jobs.flush_now().await.is_err());
    hung.wait(1).await;
    app.flush_now().await;
    app.finish().await;
}
