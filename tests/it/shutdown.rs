//! SIGTERM at bad moments: in the middle of a flush, with clients that are idle, slow or under way, twice, and without MySQL.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use reqwest::Response;
use serde_json::{Value, json};
use sqlx::{MySqlPool, Row};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::app::{ADMIN_TOKEN, SERVICE_KEY};
use crate::chaos::{self, Act};
use crate::process::signal;
use crate::serve::Serve;
use crate::servers::{self, TestEnv};

/// Far above what an end takes that waits for nothing, far below what it must not wait for.
const SOON: Duration = Duration::from_secs(10);
/// Nothing happens by itself, and a client may be as slow as it likes.
const QUIET: [(&str, &str); 4] = [
    ("THUMBD_SLICE_SECONDS", "3600"),
    ("THUMBD_LEASE_TTL_MS", "3000"),
    ("THUMBD_HEADER_TIMEOUT_MS", "300000"),
    ("THUMBD_REQUEST_TIMEOUT_MS", "300000"),
];
/// A statement of its own, and not a part of `READ COMMITTED`.
const COMMIT: &[u8] = b"\x03COMMIT";
/// Likes that wait for the flush.
const LIKES: i64 = 20;

async fn start(env: &TestEnv, further: &[(&str, &str)]) -> Serve {
    let settings: Vec<_> = QUIET.iter().chain(further).copied().collect();
    let serve = Serve::start(env, &settings).await;
    // Behind the compensator of the first start, so that only what the test asks for passes a point.
    serve.admin("/admin/v1/compensations").await.unwrap();
    serve
}

async fn like_all(serve: &Serve) {
    let like =
        |user| json!({ "op": "like", "user": format!("u{user}"), "kind": "blog", "id": "1" });
    let answer = serve.batch((0..LIKES).map(like).collect()).await;
    let results = answer["results"].as_array().unwrap();
    assert!(results.iter().all(|one| one["changed"] == true), "{answer}");
}

fn flush(serve: &Serve) -> JoinHandle<reqwest::Result<Response>> {
    let call = serve.client.post(format!("{}/admin/v1/flushes", serve.url));
    tokio::spawn(call.bearer_auth(ADMIN_TOKEN).send())
}

/// Rows of likes, and their count, in MySQL.
async fn landed(env: &TestEnv) -> (i64, i64) {
    let pool = MySqlPool::connect(&env.database_url).await.unwrap();
    let text = "SELECT (SELECT COUNT(*) FROM thumb WHERE thumbed = 1), \
                CAST((SELECT COALESCE(SUM(count), 0) FROM thumb_count) AS SIGNED)";
    let row = sqlx::query(text).fetch_one(&pool).await.unwrap();
    pool.close().await;
    (row.get(0), row.get(1))
}

/// Asks it to stop, and gives its exit code and what it said, if it ended in time.
async fn stopped(serve: Serve, within: Duration) -> (Option<i32>, Vec<String>) {
    signal(&serve.child, "TERM");
    let begun = Instant::now();
    let (status, lines) = serve.ended().await;
    assert!(
        begun.elapsed() < within,
        "{:?}: {lines:#?}",
        begun.elapsed()
    );
    (status.code(), lines)
}

fn has(lines: &[String], words: &str) -> bool {
    lines.iter().any(|line| line.contains(words))
}

/// The next start lands what is left, once: so many entries still wait.
async fn next_start(env: &TestEnv, likes: i64, left: i64) {
    let serve = start(env, &[]).await;
    let report = serve.admin("/admin/v1/flushes").await.unwrap();
    // The compensator of the start has flushed already.
    assert_eq!(report["entries"], 0, "{report}");
    let entries = serve.metric("thumbd_flushed_entries_total").await;
    assert_eq!(entries.unwrap_or(0.0) as i64, left);
    assert_eq!(landed(env).await, (likes, likes));
    let seen = serve.get("u0", "blog/1").await.json();
    assert_eq!(
        (&seen["liked"], &seen["count"]),
        (&json!(true), &json!(likes))
    );
    serve.verify().await;
    serve.stop();
}

fn address(serve: &Serve) -> SocketAddr {
    serve.url.strip_prefix("http://").unwrap().parse().unwrap()
}

async fn connected(serve: &Serve, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address(serve)).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    stream
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flush_before_its_commit_is_finished_and_answered() {
    let env = servers::env().await;
    let serve = start(&env, &[("FAILPOINTS", "ledger.commit=1*delay(1500)")]).await;
    like_all(&serve).await;
    let flush = flush(&serve);
    serve.said("failpoint ledger.commit").await;
    assert_eq!(landed(&env).await, (0, 0));
    let (code, lines) = stopped(serve, SOON).await;
    assert_eq!(code, Some(0), "{lines:#?}");
    let answer = flush.await.unwrap().unwrap();
    assert_eq!(answer.status(), 200);
    let report: Value = answer.json().await.unwrap();
    assert_eq!(report["entries"], LIKES, "{report}");
    assert_eq!(landed(&env).await, (LIKES, LIKES));
    next_start(&env, LIKES, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_hangs_is_left_to_the_next_start_whether_it_arrives_or_not() {
    for arrives in [false, true] {
        let env = servers::env().await;
        let (behind, _redis, sql) = chaos::before(&env).await;
        let serve = start(&behind, &[("THUMBD_SHUTDOWN_SECONDS", "2")]).await;
        like_all(&serve).await;
        let mut held = sql.once(COMMIT, Act::HoldRequest);
        let flush = flush(&serve);
        held.wait(1).await;
        let (code, lines) = stopped(serve, SOON).await;
        assert_eq!(code, Some(1), "{lines:#?}");
        let last = lines.last().unwrap();
        let words = "Redis keeps what is left for the next start: shutdown_seconds are over";
        assert!(
            last.starts_with("thumbd: ") && last.contains(words),
            "{last}"
        );
        assert!(flush.await.unwrap().is_err());
        assert_eq!(landed(&env).await, (0, 0));
        if arrives {
            held.release();
            crate::serve::until("the commit lands", async || {
                landed(&env).await == (LIKES, LIKES)
            })
            .await;
        } else {
            sql.cut();
        }
        next_start(&env, LIKES, LIKES).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_mysql_the_end_comes_in_time_and_redis_keeps_the_likes() {
    let env = servers::env().await;
    let (behind, _redis, sql) = chaos::before(&env).await;
    let serve = start(&behind, &[("THUMBD_SHUTDOWN_SECONDS", "6")]).await;
    like_all(&serve).await;
    sql.refuse(true);
    sql.cut();
    let (code, lines) = stopped(serve, SOON).await;
    assert_eq!(code, Some(1), "{lines:#?}");
    // A task that is being ended may still say something behind it.
    let told =
        |line: &String| line.starts_with("thumbd: ") && line.contains("Redis keeps what is left");
    assert!(lines.iter().any(told), "{lines:#?}");
    assert_eq!(landed(&env).await, (0, 0));
    next_start(&env, LIKES, LIKES).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_do_not_hold_up_the_end() {
    let env = servers::env().await;
    let serve = start(&env, &[("THUMBD_SHUTDOWN_SECONDS", "300")]).await;
    like_all(&serve).await;
    let mut idle = Vec::new();
    for _ in 0..5 {
        let mut stream = connected(&serve, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await;
        let mut answer = Vec::new();
        while !answer.ends_with(b"}") {
            assert_ne!(stream.read_buf(&mut answer).await.unwrap(), 0);
        }
        idle.push(stream);
    }
    idle.push(connected(&serve, "").await);
    let (code, lines) = stopped(serve, SOON).await;
    assert_eq!(code, Some(0), "{lines:#?}");
    assert!(!has(&lines, "were cut"), "{lines:#?}");
    assert_eq!(landed(&env).await, (LIKES, LIKES));
}

#[tokio::test(flavor = "multi_thread")]
async fn half_a_request_holds_up_the_end_for_half_of_its_time_at_most() {
    let env = servers::env().await;
    let half_head = "PUT /v1/likes/blog/1 HTTP/1.1\r\nHost: x\r\nAuthor";
    let half_body = format!(
        "POST /v1/batch HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer {SERVICE_KEY}\r\n\
         Content-Length: 900\r\n\r\n{{\"operations\":["
    );
    let serve = start(&env, &[("THUMBD_SHUTDOWN_SECONDS", "4")]).await;
    like_all(&serve).await;
    let mut slow = Vec::new();
    for text in [half_head, &half_body] {
        slow.push(connected(&serve, text).await);
    }
    // Both have arrived when a later connection is answered; the metric shows that the body is waited for.
    crate::serve::until("the body is waited for", async || {
        // This request for metrics is one itself.
        serve.metric("thumbd_http_requests_in_flight").await == Some(2.0)
    })
    .await;
    let (code, lines) = stopped(serve, SOON).await;
    assert_eq!(code, Some(0), "{lines:#?}");
    assert!(
        has(&lines, "requests took too long and were cut"),
        "{lines:#?}"
    );
    assert_eq!(landed(&env).await, (LIKES, LIKES));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_like_under_way_is_answered_and_lands_before_the_end() {
    let env = servers::env().await;
    // The second passing: the first one says that user and count are cold.
    let serve = start(&env, &[("FAILPOINTS", "thumb.answered=2*delay(1500)")]).await;
    let like = serve.one(reqwest::Method::PUT, "u0", "blog/1").send();
    let like = tokio::spawn(like);
    serve.said("failpoint thumb.answered").await;
    let (code, lines) = stopped(serve, SOON).await;
    assert_eq!(code, Some(0), "{lines:#?}");
    let answer = like.await.unwrap().unwrap();
    assert_eq!(answer.status(), 200);
    let body: Value = answer.json().await.unwrap();
    assert_eq!(
        (&body["changed"], &body["count"]),
        (&json!(true), &json!(1))
    );
    assert_eq!(landed(&env).await, (1, 1));
    next_start(&env, 1, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_sigterm_ends_at_once_and_loses_nothing() {
    let env = servers::env().await;
    let further = [
        ("THUMBD_SHUTDOWN_SECONDS", "300"),
        ("FAILPOINTS", "ledger.commit=1*hold"),
    ];
    let serve = start(&env, &further).await;
    like_all(&serve).await;
    let flush = flush(&serve);
    serve.said("failpoint ledger.commit").await;
    signal(&serve.child, "TERM");
    serve.said("stopping; a second signal ends at once").await;
    let (code, lines) = stopped(serve, SOON).await;
    // 128 and the number of the signal.
    assert_eq!(code, Some(143), "{lines:#?}");
    let words = "thumbd: ended at once; Redis keeps what is not flushed";
    assert_eq!(lines.last().unwrap(), words);
    assert!(flush.await.unwrap().is_err());
    next_start(&env, LIKES, LIKES).await;
}
