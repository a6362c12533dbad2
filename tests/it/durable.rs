//! Likes that are answered only once MySQL has them.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::{MySqlPool, Row};
use thumbd::dev::SqlServer;
use thumbd::jobs::Lease;
use thumbd::service::connect_hot;

use crate::app::{self, Answer, TestApp, send};
use crate::servers::{self, TestEnv};

async fn write(app: &TestApp, method: Method, user: &str, id: &str, query: &str) -> Answer {
    let path = format!("/v1/likes/blog/{id}?{query}");
    send(app.trusted(method, &path).header("X-User-Id", user)).await
}

async fn row(pool: &MySqlPool, user: &str) -> Option<i8> {
    let query = sqlx::query("SELECT thumbed FROM thumb WHERE user_id = ?").bind(user.to_owned());
    query
        .fetch_optional(pool)
        .await
        .unwrap()
        .map(|row| row.get(0))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_durable_like_is_in_mysql_when_it_is_answered() {
    let app = TestApp::start().await;
    let pool = MySqlPool::connect(&app.env.database_url).await.unwrap();
    let ledger = "durability=ledger&wait_ms=8000";
    let answer = write(&app, Method::PUT, "u1", "1", ledger).await;
    assert_eq!(row(&pool, "u1").await, Some(1));
    let want = json!({ "kind": "blog", "id": "1", "liked": true, "changed": true, "count": 1, "durable": true });
    assert_eq!((answer.status, answer.json()), (200, want));
    let answer = write(&app, Method::DELETE, "u1", "1", ledger).await;
    assert_eq!(row(&pool, "u1").await, Some(0));
    assert_eq!(
        (answer.status, &answer.json()["durable"]),
        (200, &json!(true))
    );
    // What is so already may be so in Redis only.
    assert_eq!(app.like("u2", "blog/1").await.status, 200);
    assert_eq!(row(&pool, "u2").await, None);
    let answer = write(&app, Method::PUT, "u2", "1", "durability=ledger")
        .await
        .json();
    assert_eq!(
        (&answer["changed"], &answer["durable"]),
        (&json!(false), &json!(true))
    );
    assert_eq!(row(&pool, "u2").await, Some(1));
    // Who does not ask is not told.
    assert_eq!(app.like("u3", "blog/1").await.json().get("durable"), None);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_who_wait_share_few_flushes() {
    let app = TestApp::start().await;
    let pool = MySqlPool::connect(&app.env.database_url).await.unwrap();
    let users: Vec<String> = (0..60).map(|n| format!("u{n}")).collect();
    let landed = async |user: &str| {
        let answer = write(
            &app,
            Method::PUT,
            user,
            "1",
            "durability=ledger&wait_ms=8000",
        )
        .await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(row(&pool, user).await, Some(1), "{user}");
    };
    let begun = Instant::now();
    join_all(users.iter().map(|user| landed(user))).await;
    // One slice a run that found something, and at most ten a second.
    let slices = "SELECT COUNT(*) FROM thumb";
    let rows: i64 = sqlx::query(slices).fetch_one(&pool).await.unwrap().get(0);
    assert_eq!(rows, 60);
    let status = app.admin(Method::GET, "/admin/v1/slices").await.json();
    assert_eq!(status["entries"], 0, "{status}");
    let hot = connect_hot(&app::settings(&app.env)).await.unwrap();
    let runs = hot.peek(0).await.unwrap().kept.len() as u128;
    assert!(runs <= 2 + begun.elapsed().as_millis() / 100, "{runs} runs");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_mysql_a_durable_like_is_accepted_and_lands_later() {
    let directory = tempfile::tempdir().unwrap();
    let mut sql = SqlServer::start(servers::sql_options(directory.path())).unwrap();
    let env = TestEnv {
        database_url: sql.database_url("thumbd"),
        ..servers::env().await
    };
    let app = TestApp::on(env, |settings| settings.request_timeout_ms = 60_000).await;
    app.like("u1", "blog/1").await;
    app.flush_now().await;
    sql.stop().unwrap();
    let begun = Instant::now();
    let answer = write(
        &app,
        Method::DELETE,
        "u1",
        "1",
        "durability=ledger&wait_ms=1500",
    )
    .await;
    assert!(begun.elapsed() >= Duration::from_millis(1500));
    let want = json!({ "kind": "blog", "id": "1", "liked": false, "changed": true, "count": 0, "durable": false });
    assert_eq!((answer.status, answer.json()), (202, want));
    // It is back within the wait: then the wait was worth it.
    let wait = write(
        &app,
        Method::PUT,
        "u1",
        "1",
        "durability=ledger&wait_ms=48000",
    );
    let back = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        tokio::task::block_in_place(|| sql.restart().unwrap());
    };
    let (answer, ()) = tokio::join!(wait, back);
    assert_eq!(
        (answer.status, &answer.json()["durable"]),
        (200, &json!(true))
    );
    let pool = MySqlPool::connect(&sql.database_url("thumbd"))
        .await
        .unwrap();
    assert_eq!(row(&pool, "u1").await, Some(1));
    pool.close().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_mysql_refuses_is_not_durable() {
    let app = TestApp::start().await;
    let pool = MySqlPool::connect(&app.env.database_url).await.unwrap();
    let check = "ALTER TABLE thumb ADD CONSTRAINT no_poison CHECK (user_id <> 'poison')";
    sqlx::raw_sql(check).execute(&pool).await.unwrap();
    let ledger = "durability=ledger&wait_ms=8000";
    let (poison, other) = tokio::join!(
        write(&app, Method::PUT, "poison", "1", ledger),
        write(&app, Method::PUT, "u1", "1", ledger),
    );
    assert_eq!(
        (poison.status, &poison.json()["durable"]),
        (202, &json!(false))
    );
    assert_eq!(
        (other.status, &other.json()["durable"]),
        (200, &json!(true))
    );
    assert_eq!(app.get("poison", "blog/1").await.json()["liked"], false);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_durable_like_waits_for_the_lease_of_another_instance() {
    let app = TestApp::start().await;
    let hot = connect_hot(&app::settings(&app.env)).await.unwrap();
    let lease = Lease::wait(&hot, "another", Duration::from_secs(30))
        .await
        .unwrap();
    let answer = write(
        &app,
        Method::PUT,
        "u1",
        "1",
        "durability=ledger&wait_ms=300",
    )
    .await;
    assert_eq!(
        (answer.status, &answer.json()["durable"]),
        (202, &json!(false))
    );
    let wait = write(
        &app,
        Method::PUT,
        "u2",
        "1",
        "durability=ledger&wait_ms=8000",
    );
    let (answer, ()) = tokio::join!(wait, lease.release());
    assert_eq!(
        (answer.status, &answer.json()["durable"]),
        (200, &json!(true))
    );
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_wait_is_refused_before_anything_happens() {
    let app = TestApp::start().await;
    for (query, field) in [
        ("durability=redis", "durability"),
        ("durabilty=ledger", "durabilty"),
        ("wait_ms=5", "wait_ms"),
        ("durability=ledger&wait_ms=8001", "wait_ms"),
    ] {
        let answer = write(&app, Method::PUT, "u1", "1", query).await;
        assert_eq!(
            (answer.status, &answer.json()["field"]),
            (400, &json!(field))
        );
    }
    let seen = app.get("u1", "blog/1").await.json();
    assert_eq!(
        (&seen["liked"], &seen["count"]),
        (&json!(false), &Value::from(0))
    );
    app.finish().await;
}
