//! More than `backlog_entries_max` entries that MySQL does not have: likes are refused, reads go on, and it ends by itself.

use std::time::{Duration, Instant};

use serde_json::json;
use thumbd::dev::SqlServer;

use crate::app::TestApp;
use crate::serve::PATIENCE;
use crate::servers::{self, TestEnv};

/// Likes that a test sends: more than the limit allows.
const MOST: usize = 5000;

#[tokio::test(flavor = "multi_thread")]
async fn a_full_backlog_refuses_likes_until_the_flush_has_caught_up() {
    let directory = tempfile::tempdir().unwrap();
    let mut sql = SqlServer::start(servers::sql_options(directory.path())).unwrap();
    let env = TestEnv {
        database_url: sql.database_url("thumbd"),
        ..servers::env().await
    };
    let app = TestApp::on(env, |settings| {
        settings.backlog_entries_max = 1000;
        settings.cold_loads_max = 10_000;
    })
    .await;
    // Everybody and everything resident, with nothing to flush.
    let users: Vec<String> = (0..50).map(|n| format!("u{n}")).collect();
    let targets = MOST / users.len();
    for user in &users {
        let all = (0..targets).map(|id| json!({ "kind": "blog", "id": id.to_string() }));
        let answer = app.lookup(Some(user), all.collect()).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    sql.stop().unwrap();

    let mut accepted = 0;
    let mut refused = None;
    let begun = Instant::now();
    'fill: for id in 0..targets {
        let like = |user: &String| json!({ "op": "like", "user": user, "kind": "blog", "id": id.to_string() });
        let answer = app.batch(users.iter().map(like).collect()).await.json();
        for result in answer["results"].as_array().unwrap() {
            if result["status"] == 200 {
                accepted += 1;
            } else {
                assert_eq!(result["error"]["code"], "backlog_full", "{result}");
                refused = Some(result.clone());
            }
        }
        if refused.is_some() {
            break 'fill;
        }
        assert!(begun.elapsed() < PATIENCE);
        // A measure is made each second.
        if accepted > 1000 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    assert!(accepted > 1000, "refused after {accepted}");
    assert!(refused.is_some(), "{accepted} were accepted");
    let answer = app.unlike("u1", "blog/1").await;
    assert_eq!(answer.status, 503, "{answer:?}");
    assert_eq!(answer.json()["code"], "backlog_full");
    let after: u64 = answer.headers["retry-after"]
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    assert!((1..=3).contains(&after), "{after}");
    // Reads go on.
    let seen = app.get("u1", "blog/0").await.json();
    assert_eq!((&seen["liked"], &seen["count"]), (&json!(true), &json!(50)));

    sql.restart().unwrap();
    app.flush_now().await;
    let begun = Instant::now();
    loop {
        let answer = app.unlike("u1", "blog/0").await;
        if answer.status == 200 {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{answer:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let seen = app.get("u2", "blog/0").await.json();
    assert_eq!((&seen["liked"], &seen["count"]), (&json!(true), &json!(49)));
    app.finish().await;
}
