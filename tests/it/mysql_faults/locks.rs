//! Other transactions in the way of a flush: a deadlock and a lock that is held too long, both behind its first statements.

use std::time::Duration;

use sqlx::Row as _;
use thumbd::flush::FlushReport;

use super::{Direct, Scene, impatient, quiet};
use crate::app::{self, TestApp};
use crate::chaos::{self, Proxy};
use crate::redis_faults::{agree, until};
use crate::servers::{TestEnv, env};
use crate::stand::Stand;

/// An app, and somebody else who has locked the count that its next flush will move, behind the rows.
struct Met {
    app: TestApp,
    env: TestEnv,
    sql: Proxy,
    other: Direct,
}

impl Met {
    async fn begin() -> Self {
        let env = env().await;
        let (behind, _redis, sql) = chaos::before(&env).await;
        let app = quiet(
            TestEnv {
                redis_url: env.redis_url.clone(),
                ..behind
            },
            impatient,
        )
        .await;
        for user in ["u1", "u2"] {
            app.like(user, "blog/1").await;
        }
        app.flush_now().await;
        let mut other = Direct::to(&env.database_url).await;
        other.hold_counts().await;
        app.unlike("u1", "blog/1").await;
        app.like("u3", "blog/1").await;
        app.like("u4", "blog/2").await;
        Self {
            app,
            env,
            sql,
            other,
        }
    }

    /// The whole transaction was repeated, and each count moved once.
    async fn once(self, report: FlushReport) {
        assert!(report.retries > 0, "{report:?}");
        assert_eq!((report.entries, report.rows_changed), (3, 3), "{report:?}");
        self.app.finish().await;
        let t = Stand::on(app::settings(&self.env)).await;
        agree(&t, &["u1", "u2", "u3", "u4"], &["blog:1", "blog:2"]).await;
        assert_eq!(t.look("u1", "blog:1").await, (Some(false), Some(2)));
        assert_eq!(t.look("u4", "blog:2").await, (Some(true), Some(1)));
    }
}

impl Direct {
    /// Locks all counts. What it has changed before makes the flush the one that InnoDB ends in a deadlock.
    async fn hold_counts(&mut self) {
        let mut changes = "START TRANSACTION;".to_owned();
        for n in 0..50 {
            changes += &format!(
                "INSERT INTO job_run (job, planned_at, owner, started_at) VALUES ('x', FROM_UNIXTIME({n}), 'x', NOW());"
            );
        }
        self.run(&changes).await;
        self.run("SELECT * FROM thumb_count FOR UPDATE").await;
    }

    /// Waits until somebody wants the counts.
    async fn met(&mut self) {
        until("the flush waits for the counts", async || {
            let waits = sqlx::query(
                "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() \
                 AND id <> CONNECTION_ID() AND info LIKE '%thumb_count%'",
            );
            let row = waits.fetch_one(&mut self.0).await.unwrap();
            row.get::<i64, _>(0) > 0
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadlock_behind_the_rows_repeats_the_whole_transaction() {
    let mut met = Met::begin().await;
    let other = async {
        met.other.met().await;
        // Now each waits for the other.
        let lock = "SELECT * FROM thumb WHERE user_id IN ('u1', 'u3') FOR UPDATE";
        met.other.run(lock).await;
        met.other.run("COMMIT").await;
    };
    let (report, ()) = tokio::join!(met.app.jobs.flush_now(), other);
    met.once(report.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_wait_timeout_behind_the_rows_repeats_the_whole_transaction() {
    let mut met = Met::begin().await;
    let mut begun = met.sql.count("START TRANSACTION");
    let other = async {
        met.other.met().await;
        // The server rolls back the last statement only; thumbd must not go on from there.
        begun.wait(2).await;
        met.other.run("COMMIT").await;
    };
    let (report, ()) = tokio::join!(met.app.jobs.flush_now(), other);
    met.once(report.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_held_for_long_is_named_and_all_lands_behind_it() {
    let env = env().await;
    let mut scene = Scene::begin(env.clone()).await;
    let mut other = Direct::to(&env.database_url).await;
    other.hold_counts().await;
    scene.goes_on().await;
    scene.fails("other transactions were in the way").await;
    scene.cold_is_served().await;
    scene.goes_on().await;
    other.run("ROLLBACK").await;
    tokio::time::timeout(Duration::from_secs(60), scene.agrees())
        .await
        .unwrap();
}
