//! Whole runs: what lands, what stays, what is found again.

use thumbd::config::Settings;
use thumbd::flush::Upto;
use thumbd::service::distrust;

use crate::stand::{Stand, outcome, settings};

#[tokio::test]
async fn a_like_lands() {
    for partitions in [1, 4] {
        let t = Stand::start(partitions).await;
        t.like("u1", "blog:1").await.unwrap();
        let home = t.home("u1");
        let count = t.key(home, "count:blog:1");
        let slice = t.peek(home).await.live[0];
        assert_eq!(t.row("u1", "1").await, None);
        let ttl = async |key: &str| t.command::<i64>(&["TTL", key]).await;
        assert_eq!((ttl(&t.user_key("u1")).await, ttl(&count).await), (-1, -1));
        let report = t.flush().await;
        assert_eq!((report.slices, report.entries), (1, 1));
        assert_eq!((report.rows_changed, report.rows_stale), (1, 0));
        assert_eq!(report.partitions_skipped, 0);
        assert_eq!(t.row("u1", "1").await, Some(1));
        assert_eq!(t.number("SELECT count FROM thumb_count").await, 1);
        assert!(ttl(&t.user_key("u1")).await > 0 && ttl(&count).await > 0);
        let peek = t.peek(home).await;
        assert_eq!(
            (peek.live, peek.kept, peek.done),
            (vec![], vec![slice], slice)
        );
        let state = t.ledger.flush_state().await.unwrap();
        assert_eq!((state.last, state.landed), (slice, slice));
        assert_eq!(state.max_version, peek.clock);
        // A second run finds nothing to do.
        let report = t.flush().await;
        assert_eq!((report.slices, report.rows_changed), (0, 0));
        t.check().await;
    }
}

#[tokio::test]
async fn like_unlike_like_within_a_slice_is_one_row() {
    for partitions in [1, 4] {
        // Long windows: none must end between the operations.
        let t = Stand::on(Settings {
            slice_seconds: 3600,
            ..settings(partitions).await
        })
        .await;
        for thumb in [true, false, true] {
            let operation = crate::stand::op("u1", "blog:1", thumb);
            assert!(t.service.thumb(operation).await.unwrap().changed);
        }
        t.like("u2", "blog:2").await.unwrap();
        t.unlike("u2", "blog:2").await.unwrap();
        let report = t.flush().await;
        assert_eq!(report.entries, 2);
        assert_eq!(t.row("u1", "1").await, Some(1));
        assert_eq!(
            t.row("u2", "2").await,
            Some(0),
            "so that nothing older revives it"
        );
        t.check().await;
    }
}

#[tokio::test]
async fn an_old_slice_revives_nothing() {
    let t = Stand::start(1).await;
    t.like("u1", "blog:1").await.unwrap();
    let old = t.seal_only(0).await[0];
    t.command::<()>(&["ZREM", &t.key(0, "slices"), &old.to_string()])
        .await;
    t.unlike("u1", "blog:1").await.unwrap();
    t.flush().await;
    assert_eq!(t.row("u1", "1").await, Some(0));
    t.command::<()>(&[
        "ZADD",
        &t.key(0, "slices"),
        &old.to_string(),
        &old.to_string(),
    ])
    .await;
    let report = t.flush().await;
    assert_eq!((report.slices, report.rows_stale), (1, 1));
    assert_eq!(t.row("u1", "1").await, Some(0));
    assert_eq!(t.look("u1", "blog:1").await, (Some(false), Some(0)));
    t.check().await;
}

#[tokio::test]
async fn a_listed_slice_without_entries_lands_as_nothing() {
    let t = Stand::start(4).await;
    t.like("u1", "blog:1").await.unwrap();
    let home = t.home("u1");
    let other = (home + 1) % 4;
    t.command::<()>(&["ZADD", &t.key(other, "slices"), "5", "5"])
        .await;
    let report = t.flush().await;
    assert_eq!((report.slices, report.entries), (2, 1));
    let peek = t.peek(other).await;
    assert_eq!((peek.live, peek.kept), (vec![], vec![]));
    t.check().await;
}

#[tokio::test]
async fn the_open_window_is_left_alone() {
    for partitions in [1, 4] {
        let t = Stand::on(Settings {
            slice_seconds: 3600,
            ..settings(partitions).await
        })
        .await;
        t.like("u1", "blog:1").await.unwrap();
        let home = t.home("u1");
        let live = t.peek(home).await.live;
        let report = t.flusher.run(|| Upto::PreviousWindow).await.unwrap();
        assert_eq!((report.slices, t.peek(home).await.live), (0, live.clone()));
        assert_eq!(t.row("u1", "1").await, None);
        // It goes on filling.
        t.like("u1", "blog:2").await.unwrap();
        assert_eq!(t.peek(home).await.live, live);
        // A clock that was ahead has begun slices of the future: they do not wait for it.
        let ahead = (t.peek(home).await.clock.0 + 50_000_000_000).to_string();
        t.command::<()>(&["HSET", &t.key(home, "meta"), "clock", &ahead])
            .await;
        t.like("u1", "blog:3").await.unwrap();
        let report = t.flusher.run(|| Upto::PreviousWindow).await.unwrap();
        assert_eq!((report.slices, report.entries), (2, 3));
        t.check().await;
    }
}

#[tokio::test]
async fn one_run_carries_all_partitions() {
    let t = Stand::start(4).await;
    for n in 0..40 {
        t.like(&format!("u{n}"), "blog:1").await.unwrap();
    }
    for partition in 0..4 {
        t.seal_only(partition).await;
    }
    for n in 0..20 {
        t.unlike(&format!("u{n}"), "blog:1").await.unwrap();
    }
    let report = t.flush().await;
    assert_eq!((report.entries, report.rows_changed), (60, 60));
    assert_eq!(t.number("SELECT count FROM thumb_count").await, 20);
    let peeks = futures_util::future::join_all((0..4).map(|one| t.peek(one))).await;
    assert!(peeks.iter().all(|peek| peek.sealed == peeks[0].sealed));
    t.check().await;
}

#[tokio::test]
async fn the_compensator_lands_what_is_not_listed() {
    for partitions in [1, 4] {
        let t = Stand::start(partitions).await;
        let home = t.home("u1");
        t.like("u1", "blog:1").await.unwrap();
        let lost = t.seal_only(home).await[0];
        t.command::<()>(&["ZREM", &t.key(home, "slices"), &lost.to_string()])
            .await;
        // Later slices land, so `done` is beyond it.
        t.like("u1", "blog:2").await.unwrap();
        t.flush().await;
        assert_eq!(t.row("u1", "1").await, None);
        assert_ne!(t.verify().await.differences, []);
        // An open slice is none of its business.
        t.like("u1", "blog:3").await.unwrap();
        let report = t.flusher.compensate(|| Upto::Now).await.unwrap();
        assert_eq!((report.slices_found, report.slices_adopted), (2, 1));
        assert_eq!((report.flush.slices, report.flush.entries), (2, 2));
        assert_eq!(report.audit.differences_total, 0);
        assert_eq!(t.row("u1", "1").await, Some(1));
        for target in ["blog:1", "blog:2", "blog:3"] {
            assert_eq!(t.look("u1", target).await, (Some(true), Some(1)));
        }
        assert_eq!(t.like("u1", "blog:1").await.unwrap(), outcome(false, 1));
        let again = t.flusher.compensate(|| Upto::Now).await.unwrap();
        assert_eq!((again.slices_found, again.slices_adopted), (0, 0));
        t.check().await;
    }
}

/// A slice that one partition has sealed is open in the others: it must not be taken for landed there.
#[tokio::test]
async fn a_partition_that_is_sealed_further_takes_nothing_from_the_others() {
    for reset in [false, true] {
        let t = Stand::on(Settings {
            // What is open stays open until it is sealed here.
            slice_seconds: 3600,
            ..settings(3).await
        })
        .await;
        let users: Vec<String> = (0..12).map(|n| format!("u{n}")).collect();
        for user in &users {
            t.like(user, "blog:1").await.unwrap();
        }
        if reset {
            // As if it had been found damaged.
            distrust(&t.hot, &t.ledger, 0).await.unwrap();
        } else {
            // A run that sealed up to now died behind the first partition.
            t.seal_only(0).await;
        }
        let others = [t.peek(1).await.generation, t.peek(2).await.generation];
        let run = t.flusher.run(|| Upto::PreviousWindow).await.unwrap();
        assert_eq!(run.entries, 12);
        for user in &users {
            assert_eq!(t.look(user, "blog:1").await, (Some(true), Some(12)));
        }
        t.check().await;
        assert_eq!(
            t.number("SELECT SUM(thumbed = 1) DIV 1 FROM thumb").await,
            12
        );
        let after = [t.peek(1).await.generation, t.peek(2).await.generation];
        assert_eq!(after, others, "they were not damaged");
    }
}
