//! A database that comes back on older files, while Redis goes on: its last committed transactions are gone.

use std::fs;

use serde_json::json;
use tempfile::TempDir;

use super::{Own, Scene, copy_files};
use crate::app::settings;
use crate::redis_faults::until;
use crate::serve::Serve;
use crate::stand::Stand;

impl Own {
    /// A copy of its files as they are now.
    fn keep(&mut self) -> TempDir {
        let copy = tempfile::tempdir().unwrap();
        self.server.stop().unwrap();
        copy_files(&self.data(), &copy.path().join("data"));
        self.server.restart().unwrap();
        copy
    }

    /// Forgets what it has committed since.
    fn bring_back(&mut self, copy: &TempDir) {
        self.server.stop().unwrap();
        fs::remove_dir_all(self.data()).unwrap();
        copy_files(&copy.path().join("data"), &self.data());
        self.server.restart().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_database_forgot_lands_again_from_kept_slices() {
    let mut own = Own::start(&[]);
    let mut scene = Scene::begin(own.env().await).await;
    let old = own.keep();
    scene.goes_on().await;
    scene.many_like().await;
    scene.lands().await;
    scene.goes_on().await;
    scene.lands().await;
    // This has not landed yet, or just has.
    scene.goes_on().await;
    own.bring_back(&old);
    scene.agrees().await;
}

async fn like(serve: &Serve, name: &str) {
    for n in 0..10 {
        let answer = serve.like(&format!("{name}{n}"), "blog/1").await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
}

async fn metric(serve: &Serve, name: &str) -> Option<String> {
    let text = serve.client.get(format!("{}/metrics", serve.url)).send();
    let text = text.await.unwrap().text().await.unwrap();
    let mut lines = text.lines();
    lines.find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned()))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_longer_kept_is_lost_and_told_and_the_rest_agrees() {
    let mut own = Own::start(&[]);
    let env = own.env().await;
    let slow = [
        ("THUMBD_SLICE_SECONDS", "3600"),
        ("THUMBD_KEEP_SECONDS", "1"),
    ];
    let serve = Serve::start(&env, &slow).await;
    let t = Stand::on(settings(&env)).await;
    like(&serve, "a").await;
    serve.admin("/admin/v1/flushes").await.unwrap();
    let old = own.keep();
    like(&serve, "b").await;
    serve.admin("/admin/v1/flushes").await.unwrap();
    let lost = t.peek(0).await.done;
    // The first slice behind the time for which it is kept takes it away.
    let mut number = 0;
    until("it is no longer kept", async || {
        number += 1;
        serve.like(&format!("c{number}"), "blog/1").await;
        serve.admin("/admin/v1/flushes").await.unwrap();
        !t.peek(0).await.kept.contains(&lost)
    })
    .await;
    like(&serve, "d").await;
    serve.admin("/admin/v1/flushes").await.unwrap();
    like(&serve, "e").await;
    let unkept = t.peek(0).await.unkept;
    assert!(unkept >= lost);
    own.bring_back(&old);
    serve.admin("/admin/v1/flushes").await.unwrap();
    let told = serve.said("MySQL has lost likes").await;
    assert!(told.contains(&format!("upto={unkept}")), "{told}");
    let recoveries = "thumbd_recoveries_total{cause=\"ledger_lost\"}";
    assert_eq!(metric(&serve, recoveries).await.as_deref(), Some("1"));
    // Users see what is in the rows, and may say again what was lost.
    for (user, liked) in [("a1", true), ("b1", false), ("d1", true), ("e1", true)] {
        let seen = serve.get(user, "blog/1").await.json();
        assert_eq!(seen["liked"], json!(liked), "{user}: {seen}");
    }
    serve.verify().await;
    assert_eq!(serve.like("b1", "blog/1").await.json()["changed"], true);
    serve.admin("/admin/v1/flushes").await.unwrap();
    serve.verify().await;
    serve.stop();
    t.check().await;
}
