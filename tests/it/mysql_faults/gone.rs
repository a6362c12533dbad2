//! A database that is not there, that hangs, or that has closed its connections.

use std::time::Duration;

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::json;
use thumbd::ledger::{Ledger, LedgerOptions};
use thumbd::telemetry::one_line;

use super::{ACQUIRE, Direct, Own, STATEMENT, Scene, impatient, quiet, stranger, within};
use crate::app::{self, TestApp, send};
use crate::chaos;
use crate::redis_faults::{agree, until};
use crate::servers::env;
use crate::stand::Stand;

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_database_refuses_only_what_is_cold_and_all_lands_when_it_is_back() {
    let mut own = Own::start(&[]);
    let mut scene = Scene::begin(own.env().await).await;
    own.server.kill().unwrap();
    scene.goes_on().await;
    scene.fails("database: MySQL is not available").await;
    scene.cold_is_refused().await;
    scene.goes_on().await;
    own.server.restart().unwrap();
    scene.agrees().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_no_connection_in_time_is_told_why() {
    let options = LedgerOptions {
        acquire_timeout: Duration::from_millis(300),
        connections_max: 1,
        ..LedgerOptions::default()
    };
    // Nobody listens there any more.
    let left = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = left.local_addr().unwrap();
    drop(left);
    let nobody = format!("mysql://root:hunter2@{address}/thumbd");
    let ledger = Ledger::connect(&nobody, options.clone()).unwrap();
    let pings = join_all((0..20).map(|_| ledger.ping())).await;
    for ping in pings {
        let text = one_line(&ping.unwrap_err());
        let why = format!("{address}: Connection refused");
        assert!(text.contains(&why) && !text.contains("hunter2"), "{text}");
    }
    // A server is there whose connection is in use.
    let ledger = Ledger::connect(&env().await.database_url, options).unwrap();
    let lock = ledger.layout_lock().await.unwrap();
    let text = one_line(&ledger.ping().await.unwrap_err());
    assert!(text.contains("pool timed out"), "{text}");
    lock.release().await;
}

/// All that waits for the database is answered within its budget while it hangs.
async fn nothing_hangs(scene: &mut Scene) {
    scene.fails("database: MySQL").await;
    scene.goes_on().await;
    scene.cold_is_refused().await;
    // It joins the next run, and may wait for the one before.
    let flush = scene.app.admin(Method::POST, "/admin/v1/flushes");
    let answer = within(2 * (ACQUIRE + STATEMENT), flush).await;
    assert_eq!(answer.status, 503, "{answer:?}");
    let path = "/v1/likes/blog/1?durability=ledger&wait_ms=500";
    let like = scene.app.trusted(Method::DELETE, path);
    let wait = Duration::from_millis(500);
    let answer = within(wait, send(like.header("X-User-Id", "u0"))).await;
    scene.told.insert("u0".to_owned(), false);
    assert_eq!(
        (answer.status, &answer.json()["durable"]),
        (202, &json!(false))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_database_holds_nobody_up_and_heals_by_itself() {
    let mut own = Own::start(&[]);
    let mut scene = Scene::begin(own.env().await).await;
    own.server.freeze().unwrap();
    nothing_hangs(&mut scene).await;
    own.server.thaw().unwrap();
    scene.agrees().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_black_hole_before_the_database_holds_nobody_up_and_heals_by_itself() {
    let direct = env().await;
    let (behind, _redis, sql) = chaos::before(&direct).await;
    let mut scene = Scene::behind(behind, direct).await;
    sql.black_hole(true);
    nothing_hangs(&mut scene).await;
    sql.black_hole(false);
    scene.agrees().await;
}

/// Many at once need the database, and none of them notices that its connections are gone.
async fn nobody_notices(app: &TestApp, number: &mut usize) {
    let likes = (0..8).map(|n| {
        let user = format!("u{}", *number + n);
        async move { app.like(&user, "blog/1").await }
    });
    let reads = (0..8).map(|_| async { app.get(&stranger(), "blog/2").await });
    let (likes, reads) = tokio::join!(join_all(likes), join_all(reads));
    for answer in likes.iter().chain(&reads) {
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(!answer.json()["count"].is_null(), "{answer:?}");
    }
    *number += 8;
}

async fn all_agree(app: TestApp, number: usize) {
    let t = Stand::on(app::settings(&app.env)).await;
    app.flush_now().await;
    app.finish().await;
    agree(&t, &["u0", &format!("u{}", number - 1)], &["blog:1"]).await;
    assert_eq!(
        t.look("u1", "blog:1").await,
        (Some(true), Some(number as i64))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_are_killed_while_they_are_idle_are_noticed_by_nobody() {
    let env = env().await;
    let app = quiet(env.clone(), impatient).await;
    let mut direct = Direct::to(&env.database_url).await;
    let mut number = 0;
    nobody_notices(&app, &mut number).await;
    for _ in 0..3 {
        assert!(!direct.others().await.is_empty());
        direct.kill_others().await;
        nobody_notices(&app, &mut number).await;
        direct.kill_others().await;
        app.flush_now().await;
    }
    all_agree(app, number).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_the_server_ends_after_a_second_are_noticed_by_nobody() {
    let own = Own::start(&["--wait-timeout=1"]);
    let app = quiet(own.env().await, impatient).await;
    let mut root = own.root().await;
    root.run("SET SESSION wait_timeout = 3600").await;
    let mut number = 0;
    for _ in 0..2 {
        nobody_notices(&app, &mut number).await;
        let idle = async || root.others().await.is_empty();
        until("the server has closed them", idle).await;
        app.flush_now().await;
        let idle = async || root.others().await.is_empty();
        until("the server has closed them", idle).await;
    }
    all_agree(app, number).await;
}
