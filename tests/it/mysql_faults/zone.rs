//! A server in another time zone: what is stored are instants, whoever reads them.

use chrono::{DateTime, Utc};

use super::{Direct, Own, impatient, quiet};
use crate::app::{self, TestApp};
use crate::stand::Stand;

/// Far below what two zones differ by.
const NEAR_SECONDS: i64 = 120;

fn near(moment: DateTime<Utc>) -> bool {
    (Utc::now() - moment).num_seconds().abs() < NEAR_SECONDS
}

/// What has just been stored, as the database and as thumbd see it.
async fn all_is_of_now(root: &mut Direct, t: &Stand) {
    for (table, column) in [
        ("quarantine", "created_at"),
        ("job_run", "planned_at"),
        ("job_run", "started_at"),
        ("job_run", "finished_at"),
    ] {
        let age = format!(
            "SELECT MAX(ABS(TIMESTAMPDIFF(SECOND, {column}, UTC_TIMESTAMP()))) FROM {table}"
        );
        let age = root.number(&age).await;
        assert!(age < NEAR_SECONDS, "{table}.{column}: {age} s");
    }
    for row in t.ledger.quarantine_page(0, 10).await.unwrap() {
        assert!(near(row.created_at), "{row:?}");
    }
    let last = t.ledger.job_last_done("compensate").await.unwrap();
    let last = last.unwrap();
    assert!(near(last.planned_at), "{last:?}");
}

/// Everything that stores a moment.
async fn stores_moments(app: &TestApp, user: &str) {
    app.like(user, "blog/1").await;
    let t = Stand::on(app::settings(&app.env)).await;
    let live = t.peek(0).await.live[0];
    let key = t.key(0, &format!("slice:{live}"));
    t.command::<()>(&["HSET", &key, user, "5"]).await;
    assert_eq!(app.flush_now().await.quarantined, 1);
    app.jobs.compensate_now().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn moments_are_the_same_in_every_zone_of_the_server() {
    let own = Own::start(&["--default-time-zone=+09:00"]);
    let mut root = own.root().await;
    root.run("SET time_zone = @@GLOBAL.time_zone").await;
    let hours = "SELECT TIMESTAMPDIFF(HOUR, UTC_TIMESTAMP(), NOW())";
    assert_eq!(root.number(hours).await, 9);
    let app = quiet(own.env().await, impatient).await;
    let t = Stand::on(app::settings(&app.env)).await;
    stores_moments(&app, "u1").await;
    all_is_of_now(&mut root, &t).await;
    root.run("SET GLOBAL time_zone = '-05:00'").await;
    root.kill_others().await;
    stores_moments(&app, "u2").await;
    all_is_of_now(&mut root, &t).await;
    app.finish().await;
    t.check().await;
}
