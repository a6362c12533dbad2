//! A Redis that comes back as it was at some step of a flush: whatever is pinned there is let go when the slice has landed again.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use redis::aio::MultiplexedConnection;
use thumbd::flush::Upto;
use thumbd::steps::{Gate, gated};

use super::{Own, agree, healed};
use crate::stand::{Stand, command};

const USERS: [&str; 6] = ["u1", "u2", "u3", "u4", "u5", "u6"];
const TARGETS: [&str; 3] = ["blog:1", "blog:2", "blog:3"];

type Taken = Arc<Mutex<Vec<(&'static str, Vec<u8>)>>>;

/// Keeps a snapshot of Redis at every step.
struct Snapshots {
    redis: MultiplexedConnection,
    dump: PathBuf,
    taken: Taken,
}

impl Gate for Snapshots {
    fn pass(&self, point: &'static str) -> BoxFuture<'static, ()> {
        let (redis, dump, taken) = (self.redis.clone(), self.dump.clone(), self.taken.clone());
        async move {
            command::<()>(&redis, &["SAVE"]).await;
            let snapshot = std::fs::read(dump).unwrap();
            taken.lock().unwrap().push((point, snapshot));
        }
        .boxed()
    }
}

/// Users and counts without a TTL, of whatever generation.
async fn pinned(t: &Stand) -> Vec<String> {
    let mut pinned = Vec::new();
    for of in ["user", "count"] {
        let pattern = format!("{}:v1:*:{of}:*", t.settings.key_prefix);
        for key in t.command::<Vec<String>>(&["KEYS", &pattern]).await {
            if t.command::<i64>(&["TTL", &key]).await == -1 {
                pinned.push(key);
            }
        }
    }
    pinned
}

/// Comes back as each of the snapshots, one after the other.
async fn come_back(own: &mut Own, t: &mut Stand, taken: &[(&'static str, Vec<u8>)]) {
    let right: Vec<_> = states(t).await;
    for (point, snapshot) in taken {
        own.server.kill().unwrap();
        std::fs::write(own.data().join("dump.rdb"), snapshot).unwrap();
        own.server.restart().unwrap();
        healed(t).await;
        let was_pinned = pinned(t).await.len();
        let report = t.flusher.compensate(|| Upto::Now).await.unwrap();
        assert_eq!(report.audit.differences_total, 0, "{point}");
        assert_eq!(pinned(t).await, [""; 0], "{point}, of {was_pinned}");
        assert_eq!(states(t).await, right, "{point}");
        agree(t, &USERS, &TARGETS).await;
    }
}

/// Who likes what, by the rows.
async fn states(t: &Stand) -> Vec<bool> {
    let mut states = Vec::new();
    for user in USERS {
        for target in TARGETS {
            states.push(super::liked_in_rows(t, user, target).await);
        }
    }
    states
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_to_any_step_of_a_flush_leaves_nothing_pinned() {
    for partitions in [1, 4] {
        let mut own = Own::start(|_| {});
        let mut t = own.stand(|settings| settings.partitions = partitions).await;
        // Clean ones, dirty ones, and those that are both in an older slice and in the one that lands.
        for user in ["u1", "u2", "u3"] {
            t.like(user, "blog:1").await.unwrap();
        }
        t.flush().await;
        for (user, target) in [("u2", "blog:2"), ("u4", "blog:1"), ("u5", "blog:3")] {
            t.like(user, target).await.unwrap();
        }
        t.unlike("u3", "blog:1").await.unwrap();
        let taken = Taken::default();
        let gate = Snapshots {
            redis: t.redis.clone(),
            dump: own.data().join("dump.rdb"),
            taken: taken.clone(),
        };
        gated(Arc::new(gate), t.flush()).await;
        let taken = std::mem::take(&mut *taken.lock().unwrap());
        for step in [
            "flush.sealed",
            "flush.applied",
            "flush.marked",
            "flush.unpinned",
        ] {
            assert!(taken.iter().any(|(point, _)| *point == step), "{step}");
        }
        // Back by less than a seal, and by more than one.
        come_back(&mut own, &mut t, &taken).await;
        t.like("u6", "blog:2").await.unwrap();
        t.unlike("u2", "blog:2").await.unwrap();
        t.flush().await;
        come_back(&mut own, &mut t, &taken).await;
    }
}
