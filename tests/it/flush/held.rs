//! Runs that are held or die in the middle, and others meanwhile.

use thumbd::config::Settings;
use thumbd::flush::{FlushError, Flusher, Upto};
use thumbd::service::distrust;
use thumbd::steps::gated;

use super::Hold;
use crate::stand::{Stand, outcome, settings};

#[tokio::test]
async fn slices_land_oldest_first() {
    for partitions in [1, 4] {
        let t = Stand::start(partitions).await;
        let home = t.home("u1");
        t.like("u1", "blog:1").await.unwrap();
        t.seal_only(home).await;
        t.unlike("u1", "blog:1").await.unwrap();
        t.seal_only(home).await;
        t.like("u1", "blog:1").await.unwrap();
        let live = t.peek(home).await.live;
        assert_eq!(live.len(), 3);
        // The flusher dies behind the first commit.
        let hold = Hold::at("flush.applied");
        let run = gated(hold.clone(), t.flusher.run(|| Upto::Now));
        tokio::select! {
            _ = run => panic!("it was not held"),
            () = hold.reached.notified() => {}
        }
        let state = t.ledger.flush_state().await.unwrap();
        assert_eq!((state.last, state.landed), (live[0], live[0]));
        assert_eq!(t.row("u1", "1").await, Some(1));
        assert_eq!(t.peek(home).await.live, live);
        // Its successor begins there.
        let report = t.flush().await;
        assert_eq!(
            (report.slices, report.rows_stale, report.rows_changed),
            (3, 1, 2)
        );
        assert_eq!(t.peek(home).await.kept, live);
        assert_eq!(t.look("u1", "blog:1").await, (Some(true), Some(1)));
        t.check().await;
    }
}

#[tokio::test]
async fn a_new_slice_fills_while_one_is_flushed() {
    for partitions in [1, 4] {
        let t = Stand::start(partitions).await;
        let home = t.home("u1");
        t.like("u1", "blog:1").await.unwrap();
        let hold = Hold::at("flush.read");
        let run = gated(hold.clone(), t.flusher.run(|| Upto::Now));
        let meanwhile = async {
            hold.reached.notified().await;
            assert_eq!(t.unlike("u1", "blog:1").await.unwrap(), outcome(true, 0));
            assert_eq!(t.like("u1", "blog:2").await.unwrap(), outcome(true, 1));
            assert_eq!(t.look("u1", "blog:1").await, (Some(false), Some(0)));
            hold.go_on.notify_one();
        };
        let (report, ()) = tokio::join!(run, meanwhile);
        assert_eq!(report.unwrap().entries, 1);
        assert_eq!(t.row("u1", "1").await, Some(1));
        // Still dirty, so still pinned.
        let ttl: i64 = t.command(&["TTL", &t.user_key("u1")]).await;
        assert_eq!((ttl, t.peek(home).await.live.len()), (-1, 1));
        assert_eq!(t.look("u1", "blog:1").await, (Some(false), Some(0)));
        t.check().await;
        assert_eq!(t.row("u1", "1").await, Some(0));
    }
}

#[tokio::test]
async fn a_large_slice_lands_in_chunks() {
    for partitions in [1, 4] {
        let t = Stand::on(Settings {
            flush_rows_max: 3,
            ..settings(partitions).await
        })
        .await;
        for n in 0..10 {
            t.like(&format!("u{n}"), "blog:1").await.unwrap();
        }
        // A flusher dies between two chunks: the counts are those of the rows all the same.
        let hold = Hold::at("flush.applied");
        let run = gated(hold.clone(), t.flusher.run(|| Upto::Now));
        tokio::select! {
            _ = run => panic!("it was not held"),
            () = hold.reached.notified() => {}
        }
        let state = t.ledger.flush_state().await.unwrap();
        let rows = t.number("SELECT COUNT(*) FROM thumb").await;
        let count = t.number("SELECT count FROM thumb_count").await;
        assert!(state.landed < state.last, "{state:?}");
        assert_eq!((rows, count), (3, 3));
        assert_eq!(t.verify().await.differences, []);
        let report = t.flush().await;
        assert_eq!((report.rows_changed, report.rows_stale), (7, 3));
        assert_eq!(t.number("SELECT count FROM thumb_count").await, 10);
        t.check().await;
    }
}

#[tokio::test]
async fn an_overtaken_flusher_ends() {
    for (point, partitions) in [
        "flush.page",
        "flush.read",
        "flush.applied",
        "flush.marked",
        "flush.unpinned",
    ]
    .into_iter()
    .flat_map(|point| [(point, 1), (point, 4)])
    {
        let t = Stand::start(partitions).await;
        t.like("u1", "blog:1").await.unwrap();
        let hold = Hold::at(point);
        let slow = gated(hold.clone(), t.flusher.run(|| Upto::Now));
        let fast = async {
            hold.reached.notified().await;
            assert_eq!(t.flush().await.slices, 1);
            // Dirty again, in a slice that the slow one knows nothing of.
            assert_eq!(t.unlike("u1", "blog:1").await.unwrap(), outcome(true, 0));
            hold.go_on.notify_one();
        };
        let (slow, ()) = tokio::join!(slow, fast);
        assert!(
            matches!(slow, Err(FlushError::Overtaken)),
            "{point}: {slow:?}"
        );
        let ttl: i64 = t.command(&["TTL", &t.user_key("u1")]).await;
        assert_eq!(ttl, -1, "{point}");
        assert_eq!(
            t.number("SELECT count FROM thumb_count").await,
            1,
            "{point}"
        );
        t.check().await;
    }
}

#[tokio::test]
async fn two_flushers_at_once_land_everything_once() {
    for partitions in [1, 4] {
        let t = Stand::start(partitions).await;
        let second = Flusher::new(t.hot.clone(), t.ledger.clone(), &t.settings);
        for round in 0..10 {
            for n in 0..6 {
                let operation = crate::stand::op(&format!("u{n}"), "blog:1", round % 2 == 0);
                t.service.thumb(operation).await.unwrap();
            }
            let (one, two) = tokio::join!(t.try_flush(), second.run(|| Upto::Now));
            for result in [one, two] {
                assert!(
                    matches!(
                        result,
                        Ok(_)
                            | Err(FlushError::Overtaken)
                            | Err(FlushError::Ledger(thumbd::ledger::LedgerError::Overtaken))
                    ),
                    "{result:?}"
                );
            }
        }
        t.check().await;
        assert_eq!(t.look("u1", "blog:1").await, (Some(false), Some(0)));
    }
}

/// The same while a run is about to seal: what one partition has sealed beyond it waits for the next run.
#[tokio::test]
async fn a_partition_that_is_sealed_further_during_a_run_waits_for_the_next() {
    let t = Stand::on(Settings {
        slice_seconds: 3600,
        ..settings(3).await
    })
    .await;
    let users: Vec<String> = (0..12).map(|n| format!("u{n}")).collect();
    for user in &users {
        t.like(user, "blog:1").await.unwrap();
    }
    let hold = Hold::at("flush.upto");
    let run = gated(hold.clone(), t.flusher.run(|| Upto::PreviousWindow));
    let meanwhile = async {
        hold.reached.notified().await;
        distrust(&t.hot, &t.ledger, 0).await.unwrap();
        hold.go_on.notify_one();
    };
    let (run, ()) = tokio::join!(run, meanwhile);
    assert_eq!(run.unwrap().entries, 0);
    assert_eq!(t.flush().await.entries, 12);
    t.check().await;
    assert_eq!(t.look("u1", "blog:1").await, (Some(true), Some(12)));
}
