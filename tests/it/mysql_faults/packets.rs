//! A server that takes only small packets. thumbd cuts its statements below 16 KiB.

use serde_json::json;
use thumbd::app::App;

use super::{Own, Scene, impatient, quiet};
use crate::app;
use crate::redis_faults::agree;
use crate::stand::Stand;

const SMALL: [&str; 2] = ["--max-allowed-packet=16384", "--net-buffer-length=1024"];
const SMALLEST: [&str; 2] = ["--max-allowed-packet=1024", "--net-buffer-length=1024"];

#[tokio::test(flavor = "multi_thread")]
async fn packets_of_16_kib_are_enough_for_the_longest_ids() {
    let own = Own::start(&SMALL);
    let app = quiet(own.env().await, impatient).await;
    let long = |prefix: &str, n: usize| format!("{prefix}{n:0>0$}", 128 - prefix.len());
    // Many rows of one target, and many targets of one user.
    let pairs: Vec<_> = (0..400)
        .map(|n| (long("u", n), long("t", 0)))
        .chain((1..400).map(|n| (long("u", 0), long("t", n))))
        .collect();
    let like = |(user, id): &(String, String)| json!({ "op": "like", "user": user, "kind": "blog", "id": id });
    let answer = app.batch(pairs.iter().map(like).collect()).await.json();
    for result in answer["results"].as_array().unwrap() {
        assert_eq!(result["changed"], true, "{result}");
    }
    let report = app.flush_now().await;
    assert_eq!((report.entries, report.quarantined), (799, 0));
    // Just light enough for one statement, if it were not for the places that are left over.
    for user in ["v1", "v2"] {
        let like =
            |n| json!({ "op": "like", "user": user, "kind": "blog", "id": format!("{n:0>104}") });
        app.batch((0..66).map(like).collect()).await;
        assert_eq!(app.flush_now().await.counts_changed, 66);
    }
    let env = app.finish().await;
    let t = Stand::on(app::settings(&env)).await;
    let targets = [0, 1, 399].map(|n| format!("blog:{}", long("t", n)));
    agree(&t, &[0, 1, 399].map(|n| long("u", n)), &targets).await;
    assert_eq!(
        t.look(&long("u", 0), &targets[0]).await,
        (Some(true), Some(400))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn packets_that_are_too_small_are_named_at_start() {
    let own = Own::start(&SMALLEST);
    let env = own.env().await;
    let error = App::build(app::settings(&env)).await.err().unwrap();
    let text = format!("{error:#}");
    assert!(text.contains("max_allowed_packet"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn packets_that_become_too_small_are_named_and_all_lands_when_they_are_large_again() {
    // What fits into a session's first buffer is taken in any case, so that has to be small, too.
    let own = Own::start(&["--net-buffer-length=1024"]);
    let mut scene = Scene::begin(own.env().await).await;
    let mut root = own.root().await;
    scene.many_are_known().await;
    root.run("SET GLOBAL max_allowed_packet = 1024").await;
    root.kill_others().await;
    scene.many_like().await;
    scene.fails("max_allowed_packet").await;
    scene.goes_on().await;
    root.run("SET GLOBAL max_allowed_packet = 16777216").await;
    scene.agrees().await;
}
