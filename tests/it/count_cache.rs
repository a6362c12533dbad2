//! Counts kept in the process: old only as long as the settings allow, never back, and nobody's own like hidden.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::json;

use crate::app::{TestApp, send};
use crate::servers;

const AGE_MAX: Duration = Duration::from_millis(1000);

async fn two(partitions: u16) -> (TestApp, TestApp) {
    let env = servers::env().await;
    let app = async || {
        TestApp::on(env.clone(), |settings| {
            settings.partitions = partitions;
            settings.count_cache_ms = AGE_MAX.as_millis() as u64;
        })
        .await
    };
    (app().await, app().await)
}

/// By somebody without a name.
async fn count(app: &TestApp) -> i64 {
    let answer = send(app.request(Method::GET, "/v1/likes/blog/1")).await;
    answer.json()["count"].as_i64().unwrap()
}

async fn warm(app: &TestApp) -> i64 {
    count(app).await;
    count(app).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kept_count_is_old_for_its_time_and_no_longer() {
    let (here, there) = two(2).await;
    let begun = Instant::now();
    assert_eq!(warm(&here).await, 0);
    there.like("u1", "blog/1").await;
    let kept = count(&here).await;
    // On a machine that was asleep it may have grown old already.
    assert!(kept == 0 || begun.elapsed() >= AGE_MAX, "{kept}");
    let liked = Instant::now();
    while count(&here).await != 1 {
        // What is not asked for is dropped after a minute: that would be too late.
        assert!(liked.elapsed() < AGE_MAX * 20, "it stays old");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let metrics = send(here.request(Method::GET, "/metrics")).await.text;
    assert!(
        metrics.contains("thumbd_count_cache_total{outcome=\"hit\"}"),
        "{metrics}"
    );
    here.finish().await;
    there.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_done_here_is_seen_here_at_once() {
    let (app, other) = two(3).await;
    for n in 1..=20 {
        app.like(&format!("u{n}"), "blog/1").await;
        assert_eq!(count(&app).await, n);
        assert_eq!(count(&app).await, n);
    }
    app.unlike("u20", "blog/1").await;
    assert_eq!(warm(&app).await, 19);
    let like = json!([{"op": "like", "user": "u21", "kind": "blog", "id": "1"}]);
    app.batch(like).await;
    assert_eq!(warm(&app).await, 20);
    // A reader with a name sees what others did elsewhere; nobody here sees less from then on.
    other.like("u22", "blog/1").await;
    assert_eq!(app.get("u22", "blog/1").await.json()["count"], 21);
    assert_eq!(count(&app).await, 21);
    app.finish().await;
    other.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn under_likes_alone_no_reader_sees_a_count_go_back() {
    let (here, there) = two(2).await;
    let end = AtomicBool::new(false);
    let likes = async |app: &TestApp, name: &str| {
        for n in 0..150 {
            app.like(&format!("{name}{n}"), "blog/1").await;
        }
    };
    // A reader is named in some of its reads.
    let reads = async |named: &[bool]| {
        let mut last = 0;
        for named in named.iter().cycle() {
            if end.load(Ordering::Relaxed) {
                break;
            }
            let now = match named {
                true => here.get("reader", "blog/1").await.json()["count"].as_i64(),
                false => Some(count(&here).await),
            };
            assert!(now >= Some(last), "{now:?} behind {last}");
            last = now.unwrap();
        }
    };
    let both = async {
        tokio::join!(likes(&here, "a"), likes(&there, "b"));
        end.store(true, Ordering::Relaxed);
    };
    let (anonymous, mixed) = (reads(&[false]), reads(&[true, false, false]));
    tokio::join!(both, anonymous, mixed, reads(&[true]), reads(&[false]));
    here.finish().await;
    there.finish().await;
}
