//! Entries that cannot land: they go to quarantine, and nothing else waits for them.

use serde_json::json;

use super::{Direct, impatient, quiet};
use crate::app::{self, TestApp};
use crate::redis_faults::agree;
use crate::servers::env;
use crate::stand::Stand;

/// What a like, a refused like and its neighbours look like from outside.
async fn liked(app: &TestApp, user: &str) -> serde_json::Value {
    app.get(user, "blog/1").await.json()["liked"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn poison_goes_to_quarantine_and_later_slices_land() {
    let env = env().await;
    let app = quiet(env.clone(), impatient).await;
    let t = Stand::on(app::settings(&env)).await;
    let mut direct = Direct::to(&env.database_url).await;
    direct
        .run("ALTER TABLE thumb ADD CONSTRAINT no_poison CHECK (user_id NOT LIKE 'poison%')")
        .await;
    for user in ["u1", "poison1", "u2"] {
        assert_eq!(app.like(user, "blog/1").await.status, 200);
    }
    let live = t.peek(0).await.live[0];
    let key = t.key(0, &format!("slice:{live}"));
    let long = format!("{} blog:1", "u".repeat(10_000));
    let version = (live.0 * 1000 + 1).to_string();
    for (field, value) in [
        ("\u{1}\u{2}", "\u{3}"),
        (&long, &version),
        ("u3 blog:1", "x"),
    ] {
        t.command::<()>(&["HSET", &key, field, value]).await;
    }
    let report = app.flush_now().await;
    assert_eq!((report.quarantined, report.rows_changed), (4, 2));
    assert_eq!(liked(&app, "poison1").await, false);
    assert_eq!(liked(&app, "u2").await, true);

    for user in ["u3", "poison2", "poison1"] {
        assert_eq!(app.like(user, "blog/1").await.status, 200);
    }
    let report = app.flush_now().await;
    assert_eq!((report.quarantined, report.rows_changed), (2, 1));
    assert_eq!(t.ledger.quarantine_count().await.unwrap(), 6);
    let ready = app::send(app.request(reqwest::Method::GET, "/readyz")).await;
    assert_eq!(ready.json()["flush"]["ok"], json!(true));
    app.finish().await;
    let users = ["u1", "u2", "u3", "poison1", "poison2"];
    agree(&t, &users, &["blog:1"]).await;
    assert_eq!(t.look("u3", "blog:1").await, (Some(true), Some(3)));
}
