//! SCRIPT FLUSH: a script that Redis does not have was not run, so it is loaded and called again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use redis::aio::MultiplexedConnection;
use thumbd::domain::SliceId;
use thumbd::flush::Upto;
use thumbd::steps::{Gate, gated};

use super::{Own, agree};
use crate::stand::{Stand, command, op, outcome};

/// Lets Redis forget all scripts at every point.
struct Forgetful {
    redis: MultiplexedConnection,
    points: AtomicU64,
}

impl Gate for Forgetful {
    fn pass(&self, _point: &'static str) -> BoxFuture<'static, ()> {
        self.points.fetch_add(1, Ordering::Relaxed);
        let redis = self.redis.clone();
        async move { command(&redis, &["SCRIPT", "FLUSH"]).await }.boxed()
    }

    fn pass_holding(&self, point: &'static str) -> BoxFuture<'static, ()> {
        self.pass(point)
    }
}

/// Takes a sealed slice off the list, as a flusher of long ago might have left it.
async fn leave_over(t: &Stand, partition: u16) {
    let last = t.ledger.flush_state().await.unwrap().last;
    let upto = SliceId(t.peek(partition).await.time_ms);
    t.hot
        .seal(partition, upto, last, "dead", 60_000)
        .await
        .unwrap();
    for slice in t.peek(partition).await.live {
        t.command::<()>(&["ZREM", &t.key(partition, "slices"), &slice.0.to_string()])
            .await;
    }
}

#[tokio::test]
async fn scripts_are_forgotten_at_every_step() {
    for partitions in [1, 4] {
        let own = Own::start(|_| {});
        let t = own
            .stand(|settings| {
                settings.partitions = partitions;
                settings.flush_rows_max = 100;
                settings.resident_thumbs_max = 2;
                settings.slice_seconds = 3600;
            })
            .await;
        let gate = Arc::new(Forgetful {
            redis: t.redis.clone(),
            points: AtomicU64::new(0),
        });
        let names: Vec<String> = (0..250).map(|n| format!("u{n}")).collect();
        gated(gate.clone(), async {
            let batch = names.iter().map(|user| op(user, "blog:1", true)).collect();
            for answer in t.service.batch(batch).await {
                assert!(answer.unwrap().changed);
            }
            assert_eq!(t.unlike("u1", "blog:1").await.unwrap(), outcome(true, 249));
            // Three chunks, with a like between like and seal, and a partial user behind them.
            for n in 2..6 {
                t.like("u2", &format!("blog:{n}")).await.unwrap();
            }
            let report = t.flush().await;
            assert_eq!(report.entries, 254);
            assert_eq!(t.look("u2", "blog:2").await, (Some(true), Some(1)));
            assert_eq!(t.unlike("u2", "blog:2").await.unwrap(), outcome(true, 0));
            leave_over(&t, t.home("u2")).await;
            let report = t.flusher.compensate(|| Upto::Now).await.unwrap();
            assert_eq!(report.slices_adopted, 1);
            t.command::<()>(&["DEL", &t.key(0, "meta")]).await;
            assert_eq!(t.look("u2", "blog:2").await, (Some(false), Some(0)));
            t.flush().await;
        })
        .await;
        assert!(gate.points.load(Ordering::Relaxed) > 50);
        let targets = ["blog:1", "blog:2", "blog:3", "blog:4", "blog:5"];
        agree(&t, &["u0", "u1", "u2", "u249"], &targets).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storm_of_script_flushes_costs_nothing_but_time() {
    let own = Own::start(|_| {});
    let t = own.stand(|_| {}).await;
    let storm = Arc::new(AtomicBool::new(true));
    let (redis, goes_on) = (t.redis.clone(), storm.clone());
    let storming = tokio::spawn(async move {
        while goes_on.load(Ordering::Relaxed) {
            command::<()>(&redis, &["SCRIPT", "FLUSH"]).await;
        }
    });
    let names: Vec<String> = (0..60).map(|n| format!("u{n}")).collect();
    for (at, user) in names.iter().enumerate() {
        let liked = t.like(user, "blog:1").await.unwrap();
        assert_eq!(liked, outcome(true, at as i64 + 1));
    }
    storm.store(false, Ordering::Relaxed);
    storming.await.unwrap();
    agree(&t, &names, &["blog:1"]).await;
}
