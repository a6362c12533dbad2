//! A Redis whose time is not that of before: versions and slice ids only grow, and the last wish wins.

use thumbd::domain::Version;
use thumbd::flush::Upto;

use super::{Own, agree, version_max};
use crate::stand::{Stand, outcome};

const SECOND_US: i64 = 1_000_000;

async fn set(t: &Stand, field: &str, value: u64) {
    t.command::<()>(&["HSET", &t.key(0, "meta"), field, &value.to_string()])
        .await;
}

/// Sets the stored clock so far from Redis's time.
async fn shift(t: &Stand, by: i64) -> u64 {
    let now = t.peek(0).await.time_ms as i64 * 1000;
    let clock = u64::try_from(now + by).unwrap();
    set(t, "clock", clock).await;
    clock
}

#[tokio::test]
async fn versions_grow_whatever_the_stored_clock_says() {
    // Ahead of Redis's time is what a promoted server finds whose clock is behind.
    for by in [-60 * SECOND_US, 60 * SECOND_US, 600 * SECOND_US] {
        let own = Own::start(|_| {});
        let t = own.stand(|settings| settings.slice_seconds = 10).await;
        t.like("u1", "blog:1").await.unwrap();
        let set = shift(&t, by).await;
        let before = t.peek(0).await;
        assert_eq!(t.unlike("u1", "blog:1").await.unwrap(), outcome(true, 0));
        assert_eq!(t.like("u2", "blog:1").await.unwrap(), outcome(true, 1));
        let after = t.peek(0).await;
        assert!(after.clock.0 > set, "{by}");
        if by < 0 {
            assert!(after.clock.0 >= before.time_ms * 1000);
        } else {
            // By one with each operation, as long as time is behind.
            assert_eq!(after.clock, Version(set + 2));
        }
        let newest = *after.live.last().unwrap();
        assert!(newest >= *before.live.last().unwrap());
        // The scheduled flush lands slices of the future, and leaves the open one of a right clock alone.
        t.flusher.run(|| Upto::PreviousWindow).await.unwrap();
        let live = t.peek(0).await.live;
        if by > 0 {
            assert_eq!(live, [], "{by}");
            assert_eq!(version_max(&t).await, set as i64 + 2);
        }
        // And what comes then goes into newer ones.
        let sealed = t.peek(0).await.sealed;
        assert_eq!(t.like("u1", "blog:1").await.unwrap(), outcome(true, 2));
        let then = t.peek(0).await;
        assert!(then.clock > after.clock && *then.live.last().unwrap() > sealed);
        agree(&t, &["u1", "u2"], &["blog:1"]).await;
    }
}

#[tokio::test]
async fn a_seal_of_the_future_does_not_hold_up_the_flush() {
    let own = Own::start(|_| {});
    let t = own.stand(|settings| settings.slice_seconds = 10).await;
    let ahead = t.peek(0).await.time_ms + 600_000;
    set(&t, "sealed", ahead).await;
    t.like("u1", "blog:1").await.unwrap();
    assert_eq!(t.peek(0).await.live[0].0, ahead + 1);
    let report = t.flusher.run(|| Upto::PreviousWindow).await.unwrap();
    assert_eq!((report.slices, report.rows_changed), (1, 1));
    t.unlike("u1", "blog:1").await.unwrap();
    assert!(t.peek(0).await.live[0].0 > ahead + 1);
    let report = t.flusher.run(|| Upto::PreviousWindow).await.unwrap();
    assert_eq!((report.slices, report.rows_changed), (1, 1));
    agree(&t, &["u1"], &["blog:1"]).await;
}

#[tokio::test]
async fn a_promoted_server_that_is_behind_goes_on_where_mysql_is() {
    let own = Own::start(|_| {});
    let t = own.stand(|settings| settings.slice_seconds = 10).await;
    t.like("u1", "blog:1").await.unwrap();
    t.flush().await;
    let (old, old_state) = (t.peek(0).await, t.ledger.flush_state().await.unwrap());
    // The old server's time was ten minutes ahead of that of the new one.
    shift(&t, 600 * SECOND_US).await;
    t.like("u2", "blog:1").await.unwrap();
    t.unlike("u1", "blog:1").await.unwrap();
    t.flush().await;
    let state = t.ledger.flush_state().await.unwrap();
    assert!(state.last > old_state.last && state.max_version > old_state.max_version);
    // The new one knows nothing of it.
    set(&t, "clock", old.clock.0).await;
    set(&t, "sealed", old.sealed.0).await;
    set(&t, "done", old.done.0).await;
    t.flush().await;
    let new = t.peek(0).await;
    assert!(new.clock >= state.max_version && new.sealed >= state.last);
    // A new unlike beats the old like, although its time is earlier.
    assert_eq!(t.look("u2", "blog:1").await, (Some(true), Some(1)));
    assert_eq!(t.unlike("u2", "blog:1").await.unwrap(), outcome(true, 0));
    let live = t.peek(0).await.live;
    assert!(live[0] > state.last);
    let report = t.flusher.run(|| Upto::PreviousWindow).await.unwrap();
    assert_eq!(report.rows_changed, 1, "it waits for its future");
    assert_eq!(version_max(&t).await, new.clock.0 as i64 + 1);
    agree(&t, &["u1", "u2"], &["blog:1"]).await;
}
