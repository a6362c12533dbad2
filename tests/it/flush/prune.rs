//! Rows that say "no longer liked" go once nothing older can come; what comes all the same is not revived.

use thumbd::config::Settings;
use thumbd::flush::{CompensationReport, Upto};
use thumbd::ledger::Subject;
use thumbd::steps::gated;

use super::Hold;
use crate::stand::{Stand, outcome, settings};

/// Nothing is kept longer than it must be.
async fn eager(partitions: u16) -> Stand {
    Stand::on(Settings {
        unliked_keep_seconds: 1,
        keep_seconds: 1,
        ..settings(partitions).await
    })
    .await
}

async fn compensate(t: &Stand) -> CompensationReport {
    t.flusher.compensate(|| Upto::Now).await.unwrap()
}

/// Moves the clocks on by an hour, and takes the kept slices away, as keep_seconds would.
async fn an_hour_later(t: &Stand) {
    for partition in 0..t.settings.partitions {
        let peek = t.peek(partition).await;
        let clock = (peek.clock.0.max(peek.time_ms * 1000) + 3_600_000_000).to_string();
        t.command::<()>(&["HSET", &t.key(partition, "meta"), "clock", &clock])
            .await;
        for id in peek.kept {
            t.command::<()>(&["DEL", &t.key(partition, &format!("kept:{id}"))])
                .await;
        }
        t.command::<()>(&["DEL", &t.key(partition, "kept")]).await;
    }
    // The newest version that MySQL has is newer too.
    for user in 0..20 {
        t.like(&format!("later{user}"), "blog:later").await.unwrap();
    }
    t.flush().await;
    for partition in 0..t.settings.partitions {
        for id in t.peek(partition).await.kept {
            t.command::<()>(&["DEL", &t.key(partition, &format!("kept:{id}"))])
                .await;
        }
        t.command::<()>(&["DEL", &t.key(partition, "kept")]).await;
    }
}

#[tokio::test]
async fn old_unliked_rows_go_and_nothing_else() {
    for partitions in [1, 4] {
        let t = eager(partitions).await;
        for n in 0..30 {
            let user = format!("u{n}");
            t.like(&user, "blog:1").await.unwrap();
            t.like(&user, &format!("blog:x{n}")).await.unwrap();
            if n % 3 == 0 {
                t.unlike(&user, "blog:1").await.unwrap();
            }
        }
        // An unlike without a like that MySQL has seen has no count.
        t.like("u1", "photo:1").await.unwrap();
        t.unlike("u1", "photo:1").await.unwrap();
        t.flush().await;
        // Too young.
        assert_eq!(compensate(&t).await.rows_pruned, 0);
        an_hour_later(&t).await;
        t.unlike("u1", "blog:1").await.unwrap();
        let report = compensate(&t).await;
        assert_eq!(report.rows_pruned, 11, "{report:?}");
        assert_eq!(report.audit.differences_total, 0);
        let state = t.ledger.flush_state().await.unwrap();
        assert_eq!(state.prune_horizon.0, report.prune_horizon);
        // The young one stays.
        let unliked = "SELECT COUNT(*) FROM thumb WHERE thumbed = 0";
        assert_eq!(t.number(unliked).await, 1);
        assert_eq!(t.look("u0", "blog:1").await, (Some(false), Some(19)));
        assert_eq!(t.like("u0", "blog:1").await.unwrap(), outcome(true, 20));
        t.check().await;
    }
}

#[tokio::test]
async fn a_like_from_below_the_horizon_revives_nothing() {
    let t = eager(1).await;
    t.like("u1", "blog:1").await.unwrap();
    t.like("u2", "blog:1").await.unwrap();
    let old = t.peek(0).await.clock.0;
    t.unlike("u1", "blog:1").await.unwrap();
    t.flush().await;
    an_hour_later(&t).await;
    assert_eq!(compensate(&t).await.rows_pruned, 1);
    // An old slice comes back, as from a snapshot: its likes were taken back long ago, or stand.
    let id = (old / 1000).to_string();
    let key = t.key(0, &format!("slice:{id}"));
    for user in ["u1", "u2"] {
        let field = format!("{user} blog:1");
        let version = if user == "u1" { old - 1 } else { old };
        t.command::<()>(&["HSET", &key, &field, &version.to_string()])
            .await;
    }
    t.command::<()>(&["ZADD", &t.key(0, "slices"), &id, &id])
        .await;
    let report = t.try_flush().await.unwrap();
    assert_eq!(report.quarantined, 1, "{report:?}");
    let rows = t.ledger.quarantine_page(0, 10).await.unwrap();
    assert!(rows[0].what.reason.contains("horizon"), "{rows:?}");
    assert!(matches!(&rows[0].what.subject, Subject::Entry(entry) if entry.user.as_str() == "u1"));
    assert_eq!(t.look("u1", "blog:1").await, (Some(false), Some(1)));
    t.check().await;
    // What stands in quarantine holds the horizon.
    let before = t.ledger.flush_state().await.unwrap().prune_horizon;
    an_hour_later(&t).await;
    assert!(compensate(&t).await.prune_horizon < before.0);
    assert_eq!(t.ledger.flush_state().await.unwrap().prune_horizon, before);
}

#[tokio::test]
async fn a_live_slice_holds_the_horizon() {
    let t = eager(1).await;
    t.like("u1", "blog:1").await.unwrap();
    t.unlike("u1", "blog:1").await.unwrap();
    t.flush().await;
    an_hour_later(&t).await;
    // Open when the night's run comes, and not flushed by it.
    let peek = t.peek(0).await;
    let id = (peek.sealed.0 - 2 * 3_600_000).to_string();
    let key = t.key(0, &format!("kept:{id}"));
    t.command::<()>(&["HSET", &key, "u9 blog:9", &(id.clone() + "000")])
        .await;
    t.command::<()>(&["ZADD", &t.key(0, "kept"), &peek.time_ms.to_string(), &id])
        .await;
    assert_eq!(compensate(&t).await.rows_pruned, 0);
}

#[tokio::test]
async fn pruning_that_dies_is_done_again() {
    for point in ["prune.remembered", "prune.removed", "compensate.pruned"] {
        let t = eager(1).await;
        t.like("u1", "blog:1").await.unwrap();
        t.unlike("u1", "blog:1").await.unwrap();
        t.flush().await;
        an_hour_later(&t).await;
        let hold = Hold::at(point);
        let run = gated(hold.clone(), t.flusher.compensate(|| Upto::Now));
        tokio::select! {
            _ = run => panic!("it was not held"),
            () = hold.reached.notified() => {}
        }
        let left = if point == "prune.remembered" { 1 } else { 0 };
        assert_eq!(compensate(&t).await.rows_pruned, left, "{point}");
        t.check().await;
    }
}

#[tokio::test]
async fn nothing_is_pruned_while_an_import_is_under_way_or_has_just_died() {
    let t = eager(1).await;
    t.like("u1", "blog:1").await.unwrap();
    t.unlike("u1", "blog:1").await.unwrap();
    t.flush().await;
    an_hour_later(&t).await;
    t.ledger.import_hold().await.unwrap();
    let report = compensate(&t).await;
    assert_eq!((report.rows_pruned, report.prune_horizon), (0, 0));
    assert_eq!(t.ledger.flush_state().await.unwrap().prune_horizon.0, 0);
    // It says nothing any more: ten minutes later it stops nobody.
    let left = "SELECT CAST(import_until / 1000 - UNIX_TIMESTAMP() AS SIGNED) FROM flush_state";
    let left = t.number(left).await;
    assert!((500..=601).contains(&left), "{left}");
    t.sql("UPDATE flush_state SET import_until = import_until - 601000")
        .await;
    assert_eq!(compensate(&t).await.rows_pruned, 1);
}

#[tokio::test]
async fn pruning_that_has_begun_ends_where_an_import_begins() {
    let t = eager(1).await;
    t.like("u1", "blog:1").await.unwrap();
    t.unlike("u1", "blog:1").await.unwrap();
    t.flush().await;
    an_hour_later(&t).await;
    let hold = Hold::at("prune.remembered");
    let import = async {
        hold.reached.notified().await;
        t.ledger.import_hold().await.unwrap();
        hold.go_on.notify_one();
    };
    let run = gated(hold.clone(), t.flusher.compensate(|| Upto::Now));
    let (report, ()) = tokio::join!(run, import);
    assert_eq!(report.unwrap().rows_pruned, 0);
    let unliked = "SELECT COUNT(*) FROM thumb WHERE thumbed = 0";
    assert_eq!(t.number(unliked).await, 1);
}
