//! Poison: bytes that are no entry, and entries that MySQL refuses. Only they stay behind.

use thumbd::config::Settings;
use thumbd::flush::{Retried, Upto, retry};
use thumbd::ledger::{LedgerError, Subject};
use thumbd::steps::gated;

use super::Hold;
use crate::stand::{Stand, outcome, settings};

/// MySQL refuses what `when` describes.
async fn refuse(t: &Stand, event: &str, when: &str) {
    let trigger = format!(
        "CREATE TRIGGER refuse_{event} BEFORE {event} ON thumb FOR EACH ROW \
         BEGIN IF {when} THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not this one'; END IF; END"
    );
    t.script(&trigger).await;
}

#[tokio::test]
async fn bytes_that_no_script_writes_are_quarantined_and_the_others_land() {
    for partitions in [1, 4] {
        let t = Stand::start(partitions).await;
        let home = t.home("u1");
        t.like("u1", "blog:1").await.unwrap();
        let slice = t.peek(home).await.live[0];
        let key = t.key(home, &format!("slice:{slice}"));
        let long = format!("u1 blog:{}", "x".repeat(5000));
        let future = (slice.0 * 1000 + 1_000_000_000_000).to_string();
        let fields: [(&[u8], &[u8]); 8] = [
            (b"nonsense", b"5"),
            (b"u1 blog:2", b"five"),
            (b"u1 Blog:1", b"5"),
            (b"u1 blog:3", b""),
            (b"\xff\xfe blog:1", b"\x00\x01"),
            (b"u2 blog:1 more", b"99999999999999999999"),
            (long.as_bytes(), b"5"),
            (b"u1 blog:4", future.as_bytes()),
        ];
        for (field, value) in fields {
            let mut command = redis::cmd("HSET");
            command.arg(&key).arg(field).arg(value);
            let mut redis = t.redis.clone();
            command.query_async::<()>(&mut redis).await.unwrap();
        }
        t.seal_only(home).await;
        t.like("u1", "blog:5").await.unwrap();
        let report = t.flush().await;
        assert_eq!(
            (report.slices, report.entries, report.quarantined),
            (2, 2, 8)
        );
        assert_eq!(t.row("u1", "1").await, Some(1));
        assert_eq!(t.row("u1", "5").await, Some(1));
        assert_eq!(t.row("u1", "4").await, None);
        let rows = t.ledger.quarantine_page(0, 100).await.unwrap();
        assert_eq!(rows.len(), 8);
        assert!(
            rows.iter()
                .all(|row| row.what.slice == slice && row.what.partition == home)
        );
        let kept = rows.iter().find_map(|row| match &row.what.subject {
            Subject::Bytes { field, value } if field.starts_with(b"\xff") => Some(value.clone()),
            _ => None,
        });
        assert_eq!(kept, Some(b"\x00\x01".to_vec()));
        let max = t.ledger.flush_state().await.unwrap().max_version;
        assert!(max.0.to_string() < future, "the clock would have jumped");
        t.check().await;
    }
}

#[tokio::test]
async fn an_entry_of_another_partition_is_quarantined() {
    let t = Stand::start(4).await;
    let home = t.home("u1");
    let other = (home + 1) % 4;
    t.like("u1", "blog:1").await.unwrap();
    let version = t.peek(home).await.clock.0.to_string();
    let key = t.key(other, "slice:5");
    t.command::<()>(&["HSET", &key, "u1 blog:2", &version])
        .await;
    t.command::<()>(&["ZADD", &t.key(other, "slices"), "5", "5"])
        .await;
    assert_eq!(t.flush().await.quarantined, 1);
    let rows = t.ledger.quarantine_page(0, 100).await.unwrap();
    assert!(rows[0].what.reason.contains("belongs to partition"));
    assert_eq!(t.row("u1", "2").await, None);
    t.check().await;
}

#[tokio::test]
async fn a_like_that_mysql_refuses_is_taken_back_and_the_others_land() {
    for partitions in [1, 4] {
        let t = Stand::start(partitions).await;
        refuse(&t, "INSERT", "NEW.user_id LIKE 'poison%'").await;
        for user in 0..50 {
            t.like(&format!("u{user}"), "blog:1").await.unwrap();
        }
        t.like("poison1", "blog:1").await.unwrap();
        t.like("poison2", "blog:1").await.unwrap();
        t.like("poison2", "blog:2").await.unwrap();
        assert_eq!(t.look("poison1", "blog:1").await, (Some(true), Some(52)));
        let report = t.flush().await;
        assert_eq!((report.quarantined, report.rows_changed), (3, 50));
        assert_eq!(t.number("SELECT COUNT(*) FROM thumb").await, 50);
        // What the user sees: it is not so.
        assert_eq!(t.look("poison1", "blog:1").await, (Some(false), Some(50)));
        assert_eq!(t.look("poison2", "blog:2").await, (Some(false), Some(0)));
        assert_eq!(t.look("u1", "blog:1").await, (Some(true), Some(50)));
        let rows = t.ledger.quarantine_page(0, 100).await.unwrap();
        assert_eq!(rows.len(), 3);
        assert!(rows.iter().all(|row| row.what.reason == "not this one"));
        // Later slices too.
        t.like("poison1", "blog:3").await.unwrap();
        t.like("u1", "blog:3").await.unwrap();
        let report = t.flush().await;
        assert_eq!((report.quarantined, report.rows_changed), (1, 1));
        assert_eq!(t.look("u1", "blog:3").await, (Some(true), Some(1)));
        t.check().await;
    }
}

#[tokio::test]
async fn an_unlike_that_mysql_refuses_is_taken_back() {
    for thumbs_max in [10_000, 1] {
        let t = Stand::on(Settings {
            resident_thumbs_max: thumbs_max,
            ..settings(1).await
        })
        .await;
        for target in ["blog:1", "blog:2", "blog:3"] {
            t.like("u1", target).await.unwrap();
        }
        t.flush().await;
        refuse(&t, "UPDATE", "NEW.thumbed = 0").await;
        assert_eq!(t.unlike("u1", "blog:1").await.unwrap(), outcome(true, 0));
        assert_eq!(t.flush().await.quarantined, 1);
        assert_eq!(t.look("u1", "blog:1").await, (Some(true), Some(1)));
        assert_eq!(t.row("u1", "1").await, Some(1));
        t.check().await;
    }
}

#[tokio::test]
async fn an_operation_behind_a_refused_one_stands() {
    let t = Stand::start(1).await;
    refuse(&t, "INSERT", "NEW.thumbed = 1").await;
    t.like("u1", "blog:1").await.unwrap();
    t.seal_only(0).await;
    // Rests on the refused like; as an unlike it is not refused.
    assert_eq!(t.unlike("u1", "blog:1").await.unwrap(), outcome(true, 0));
    let report = t.flush().await;
    assert_eq!((report.slices, report.quarantined), (2, 1));
    assert_eq!(t.look("u1", "blog:1").await, (Some(false), Some(0)));
    assert_eq!(t.row("u1", "1").await, Some(0));
    t.check().await;
}

#[tokio::test]
async fn a_refused_entry_stays_refused_whoever_comes_next() {
    for point in [
        "flush.applied",
        "flush.undo",
        "flush.undone",
        "flush.unpinned",
    ] {
        let t = Stand::start(1).await;
        refuse(&t, "INSERT", "NEW.user_id = 'poison'").await;
        t.like("poison", "blog:1").await.unwrap();
        t.like("u1", "blog:1").await.unwrap();
        let hold = Hold::at(point);
        let run = gated(hold.clone(), t.flusher.run(|| Upto::Now));
        tokio::select! {
            _ = run => panic!("it was not held at {point}"),
            () = hold.reached.notified() => {}
        }
        // The next flusher finds a MySQL that would take it.
        t.script("DROP TRIGGER refuse_INSERT").await;
        let report = t.flush().await;
        assert_eq!((report.quarantined, report.rows_changed), (1, 0), "{point}");
        assert_eq!(t.ledger.quarantine_count().await.unwrap(), 1, "{point}");
        assert_eq!(
            t.look("poison", "blog:1").await,
            (Some(false), Some(1)),
            "{point}"
        );
        // As a new operation it is taken.
        assert_eq!(t.like("poison", "blog:1").await.unwrap(), outcome(true, 2));
        t.check().await;
    }
}

#[tokio::test]
async fn a_retry_that_dies_is_done_once() {
    let t = Stand::start(1).await;
    refuse(&t, "INSERT", "NEW.user_id = 'poison'").await;
    t.like("poison", "blog:1").await.unwrap();
    assert_eq!(t.flush().await.quarantined, 1);
    t.script("DROP TRIGGER refuse_INSERT").await;
    let row = t.ledger.quarantine_page(0, 10).await.unwrap().remove(0);
    let hold = Hold::at("retry.accepted");
    tokio::select! {
        _ = gated(hold.clone(), retry(&t.service, &row)) => panic!("it was not held"),
        () = hold.reached.notified() => {}
    }
    assert_eq!(t.look("poison", "blog:1").await, (Some(true), Some(1)));
    let again = retry(&t.service, &row).await.unwrap();
    assert_eq!(again, Retried::Accepted { changed: false });
    assert_eq!(t.ledger.quarantine_count().await.unwrap(), 0);
    t.check().await;
    assert_eq!(t.look("poison", "blog:1").await, (Some(true), Some(1)));
}

#[tokio::test]
async fn a_rule_that_refuses_everything_stops_the_flush_and_quarantines_nothing() {
    let t = Stand::on(Settings {
        flush_rows_max: 2000,
        // All are refused by one transaction.
        slice_seconds: 3600,
        ..settings(1).await
    })
    .await;
    refuse(&t, "INSERT", "TRUE").await;
    for user in 0..1100 {
        t.like(&format!("u{user}"), "blog:1").await.unwrap();
    }
    let error = t.try_flush().await.unwrap_err();
    let too_many = matches!(
        &error,
        thumbd::flush::FlushError::Ledger(LedgerError::TooManyRefused { limit: 1000, .. })
    );
    assert!(too_many, "{error:?}");
    assert_eq!(t.ledger.quarantine_count().await.unwrap(), 0);
    assert_eq!(t.look("u1", "blog:1").await, (Some(true), Some(1100)));
    t.script("DROP TRIGGER refuse_INSERT").await;
    assert_eq!(t.flush().await.rows_changed, 1100);
    t.check().await;
}
