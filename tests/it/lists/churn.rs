//! Walks while others like and unlike, and while slices land: whoever liked throughout is seen exactly once.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use super::walk;
use crate::app::TestApp;
use crate::servers;

const STEADY: usize = 60;
const FICKLE: usize = 20;

/// Steady and fickle names alternate in time.
fn names(of: impl Fn(&str, usize) -> serde_json::Value) -> serde_json::Value {
    let steady = (0..STEADY).map(|n| of("steady", n));
    let fickle = (0..FICKLE).map(|n| of("fickle", n));
    let (mut all, mut fickle) = (Vec::new(), fickle);
    for (at, one) in steady.enumerate() {
        all.push(one);
        if at % 3 == 0 {
            all.extend(fickle.next());
        }
    }
    json!(all)
}

fn operation(op: &str, user: String, id: String) -> serde_json::Value {
    json!({"op": op, "user": user, "kind": "blog", "id": id})
}

/// Likes and unlikes of the fickle, and flushes, until told to end.
async fn churn(app: &TestApp, end: &AtomicBool, of: impl Fn(&str, usize) -> (String, String)) {
    for round in 0.. {
        for op in ["unlike", "like"] {
            if end.load(Ordering::Relaxed) {
                return;
            }
            let fickle = (0..FICKLE).filter(|n| (n + round) % 3 != 0);
            let batch = fickle.map(|n| {
                let (user, id) = of("fickle", n);
                operation(op, user, id)
            });
            let answer = app.batch(json!(batch.collect::<Vec<_>>())).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            if round % 2 == 0 {
                app.flush_now().await;
            }
        }
    }
}

/// Walks again and again while the churn goes on.
async fn walks(
    app: &TestApp,
    path: &str,
    caller: Option<&str>,
    of: impl Fn(&str, usize) -> (String, String) + Copy,
) {
    let end = AtomicBool::new(false);
    let times = if servers::slow() { 60 } else { 8 };
    let read = async {
        for limit in (1..).step_by(6).take(times) {
            let limit = 1 + limit % 41;
            let seen = walk(app, caller, &format!("{path}?limit={limit}")).await;
            let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
            for entry in &seen.entries {
                let name = entry.rsplit(':').next().unwrap();
                *counts.entry(name).or_default() += 1;
            }
            for n in 0..STEADY {
                let name = format!("steady{n}");
                let count = counts.get(&*name).copied();
                assert_eq!(count, Some(1), "{name}, pages of {limit}");
            }
            let known = STEADY + FICKLE;
            assert!(counts.len() <= known, "{counts:?}");
        }
        end.store(true, Ordering::Relaxed);
    };
    tokio::join!(read, churn(app, &end, of));
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_likes_throughout_is_listed_exactly_once() {
    let app = TestApp::with(|settings| settings.partitions = 3).await;
    let of = |name: &str, n: usize| (format!("{name}{n}"), "1".to_owned());
    let all = names(|name, n| {
        let (user, id) = of(name, n);
        operation("like", user, id)
    });
    assert_eq!(app.batch(all).await.status, 200);
    app.flush_now().await;
    walks(&app, "/v1/likes/blog/1/users", None, of).await;
    walks(&app, "/v1/likes/blog/1/users", Some("steady7"), of).await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_liked_throughout_is_listed_exactly_once() {
    // Complete users, and users of whom Redis holds a part.
    for resident_thumbs_max in [10_000, 5] {
        let app = TestApp::with(|settings| {
            settings.partitions = 2;
            settings.resident_thumbs_max = resident_thumbs_max;
        })
        .await;
        let of = |name: &str, n: usize| ("u1".to_owned(), format!("{name}{n}"));
        let all = names(|name, n| {
            let (user, id) = of(name, n);
            operation("like", user, id)
        });
        assert_eq!(app.batch(all).await.status, 200);
        walks(&app, "/v1/users/u1/likes", None, of).await;
        app.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_like_given_again_in_the_middle_of_a_walk_moves_out_of_its_way() {
    let app = TestApp::start().await;
    for n in 0..6 {
        app.like("u1", &format!("blog/{n}")).await;
    }
    let first = super::ask(&app, None, "/v1/users/u1/likes?limit=2").await;
    assert_eq!(super::shorts(&first), ["blog:5", "blog:4"]);
    app.unlike("u1", "blog/1").await;
    app.like("u1", "blog/1").await;
    let cursor = first.json()["cursor"].as_str().unwrap().to_owned();
    let rest = format!("/v1/users/u1/likes?limit=9&cursor={cursor}");
    let rest = super::ask(&app, None, &rest).await;
    assert_eq!(super::shorts(&rest), ["blog:3", "blog:2", "blog:0"]);
    let again = walk(&app, None, "/v1/users/u1/likes?limit=9").await;
    assert_eq!(again.entries[0], "blog:1");
    app.finish().await;
}
