//! Likes, reads, flushes, leftovers and checks on three masters.

use std::collections::BTreeSet;

use thumbd::domain::SliceId;
use thumbd::flush::Upto;

use super::{PARTITIONS, shared, stand_on};
use crate::redis_faults::agree;
use crate::stand::outcome;

#[tokio::test(flavor = "multi_thread")]
async fn likes_land_from_every_master() {
    let cluster = shared().await;
    let t = stand_on(cluster).await;
    let users: Vec<String> = (0..30).map(|n| format!("u{n}")).collect();
    for (n, user) in users.iter().enumerate() {
        let count = i64::try_from(n).unwrap() + 1;
        assert_eq!(t.like(user, "blog:1").await.unwrap(), outcome(true, count));
        assert_eq!(t.like(user, "blog:1").await.unwrap(), outcome(false, count));
    }
    let mut owners = BTreeSet::new();
    for partition in 0..PARTITIONS {
        owners.insert(cluster.owner(&t.settings, partition).await);
    }
    assert_eq!(owners.len(), 3, "the partitions are not spread");
    let report = t.flush().await;
    assert_eq!(report.entries, 30);
    assert_eq!(t.unlike("u7", "blog:1").await.unwrap(), outcome(true, 29));
    assert_eq!(t.look("u7", "blog:1").await, (Some(false), Some(29)));
    let verified = t.verify().await;
    assert_eq!((verified.users, verified.differences), (30, vec![]));
    agree(&t, &users, &["blog:1"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_with_braces_and_colons_stay_in_their_slots() {
    let t = stand_on(shared().await).await;
    let ids = [
        "{", "}", "{}", "}{", "{a}", "a{b}c", "{0}", "{1}:meta", "%7B1%7D", "a|b", "a:b", ":",
        "::", "*", "?", "[a]", "\\", "\"", "'", "#", "{{{", "}}}", "a}b{c", "{a|b}",
    ];
    let targets: Vec<String> = ids.iter().map(|id| format!("blog:{id}")).collect();
    for user in ids {
        for target in &targets {
            let liked = t.like(user, target).await;
            assert!(liked.unwrap().changed, "{user} {target}");
        }
    }
    t.flush().await;
    for user in ids {
        assert!(t.unlike(user, "blog:{}").await.unwrap().changed, "{user}");
    }
    t.flusher.compensate(|| Upto::Now).await.unwrap();
    agree(&t, &ids[..6], &targets[..6]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leftovers_are_found_on_every_master() {
    let cluster = shared().await;
    let t = stand_on(cluster).await;
    let mut homes = BTreeSet::new();
    let users: Vec<String> = (0..40).map(|n| format!("u{n}")).collect();
    for user in &users {
        t.like(user, "blog:1").await.unwrap();
        homes.insert(t.home(user));
    }
    assert_eq!(homes.len(), usize::from(PARTITIONS));
    // Sealed, and then not listed any more, as if an older program had lost them.
    let last = t.ledger.flush_state().await.unwrap().last;
    for partition in 0..PARTITIONS {
        let peek = t.peek(partition).await;
        let upto = SliceId(peek.time_ms).max(peek.live[0]);
        t.hot.seal(partition, upto, last, "f", 0).await.unwrap();
        let slices = t.key(partition, "slices");
        let command = ["DEL", &*slices];
        cluster
            .command::<()>(&t.settings, partition, &command)
            .await;
        assert_eq!(t.hot.slices_found(partition).await.unwrap().len(), 1);
    }
    let report = t.flusher.compensate(|| Upto::Now).await.unwrap();
    assert_eq!(report.slices_adopted, u64::from(PARTITIONS));
    assert_eq!(report.flush.entries, 40);
    agree(&t, &users, &["blog:1"]).await;
}
