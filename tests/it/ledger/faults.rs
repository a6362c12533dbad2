//! Deadlocks, lock waits, killed and abandoned connections, two flushers: nothing is half done, and all of it can be repeated.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Executor, MySql, Row, Transaction};
use thumbd::domain::SliceId;
use thumbd::ledger::{Ledger, LedgerError, LedgerOptions};

use super::{TestLedger, entry, numbers};

fn impatient(statement_timeout: Duration) -> LedgerOptions {
    LedgerOptions {
        statement_timeout,
        ..LedgerOptions::default()
    }
}

impl TestLedger {
    /// Another transaction that has changed u1's like of blog:1, and will not let go of it before it ends.
    async fn hold(&self) -> Transaction<'static, MySql> {
        self.apply(10, &[("u1 blog:1", 11)]).await;
        let mut other = self.pool.begin().await.unwrap();
        for n in 0..50 {
            let text = format!(
                "INSERT INTO job_run (job, planned_at, owner, started_at) VALUES ('x', FROM_UNIXTIME({n}), 'x', NOW())"
            );
            other.execute(AssertSqlSafe(text)).await.unwrap();
        }
        let touch =
            "UPDATE thumb SET version = version + 0, thumbed = thumbed WHERE user_id = 'u1'";
        other.execute(sqlx::raw_sql(touch)).await.unwrap();
        let lock = "SELECT * FROM thumb WHERE user_id = 'u1' FOR UPDATE";
        other.fetch_all(sqlx::raw_sql(lock)).await.unwrap();
        other
    }

    /// The connection on this database that compares rows, as soon as there is one. While they are held it cannot get further.
    async fn waiting(&self) -> u64 {
        loop {
            let found = sqlx::query(
                "SELECT CAST(id AS UNSIGNED) FROM information_schema.processlist \
                 WHERE db = DATABASE() AND id <> CONNECTION_ID() AND info LIKE '%thumb_stage AS stage%'",
            );
            if let Some(row) = found.fetch_optional(&self.pool).await.unwrap() {
                return row.try_get(0).unwrap();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

#[tokio::test]
async fn a_deadlock_is_tried_again() {
    let t = TestLedger::start(1).await;
    let mut other = t.hold().await;
    let chunk = t.chunk(20, &[("u1 blog:1", -21), ("u2 blog:1", 22)]);
    let other = async {
        t.waiting().await;
        // Now each waits for the other; InnoDB ends the one that has changed less, which is the flush.
        let lock = sqlx::raw_sql("SELECT * FROM flush_state FOR UPDATE");
        other.fetch_all(lock).await.unwrap();
        other.commit().await.unwrap();
    };
    let (applied, ()) = tokio::join!(t.ledger.apply(&chunk), other);
    let applied = applied.unwrap();
    assert!(applied.tries > 1, "{applied:?}");
    assert_eq!(numbers(&applied), (2, 0, 0));
    assert_eq!(t.count("blog:1").await, 1);
    t.check().await;
}

#[tokio::test]
async fn a_lock_that_is_never_given_back_ends_the_attempt_and_nothing_else() {
    let t = TestLedger::with(1, impatient(Duration::from_secs(5))).await;
    let other = t.hold().await;
    let chunk = t.chunk(20, &[("u1 blog:1", -21), ("u2 blog:1", 22)]);
    let error = t.ledger.apply(&chunk).await.unwrap_err();
    assert!(matches!(error, LedgerError::Busy(_)), "{error:?}");
    assert!(error.retryable());
    assert_eq!(t.ledger.flush_state().await.unwrap().last, SliceId(10));
    other.rollback().await.unwrap();
    assert_eq!(numbers(&t.ledger.apply(&chunk).await.unwrap()), (2, 0, 0));
    t.check().await;
}

#[tokio::test]
async fn a_killed_connection_leaves_nothing_behind() {
    let t = TestLedger::start(4).await;
    let other = t.hold().await;
    let chunk = t.chunk(20, &[("u1 blog:1", -21), ("u2 blog:1", 22)]);
    let kill = async {
        let id = t.waiting().await;
        t.run(&format!("KILL {id}")).await;
    };
    let (applied, ()) = tokio::join!(t.ledger.apply(&chunk), kill);
    let error = applied.unwrap_err();
    assert!(matches!(error, LedgerError::Unavailable(_)), "{error:?}");
    assert!(error.retryable());
    other.rollback().await.unwrap();
    assert_eq!(t.ledger.flush_state().await.unwrap().last, SliceId(10));
    t.check().await;
    assert_eq!(t.ledger.apply(&chunk).await.unwrap().rows_changed, 2);
    t.check().await;
}

#[tokio::test]
async fn idle_connections_that_the_server_closed_are_replaced() {
    let t = TestLedger::start(1).await;
    t.apply(10, &[("u1 blog:1", 11)]).await;
    let others = sqlx::query(
        "SELECT CAST(id AS UNSIGNED) FROM information_schema.processlist \
         WHERE db = DATABASE() AND id <> CONNECTION_ID()",
    );
    for row in others.fetch_all(&t.pool).await.unwrap() {
        let id: u64 = row.try_get(0).unwrap();
        t.run(&format!("KILL {id}")).await;
    }
    assert_eq!(t.apply(20, &[("u1 blog:1", -21)]).await, (1, 0, 1));
    t.check().await;
}

#[tokio::test]
async fn a_slow_statement_is_given_up_and_its_connection_closed() {
    let t = TestLedger::with(1, impatient(Duration::from_millis(300))).await;
    let other = t.hold().await;
    let chunk = t.chunk(20, &[("u1 blog:1", -21)]);
    let error = t.ledger.apply(&chunk).await.unwrap_err();
    assert!(matches!(error, LedgerError::Timeout(_)), "{error:?}");
    other.rollback().await.unwrap();
    let patient = Ledger::connect(&t.url, LedgerOptions::default()).unwrap();
    assert_eq!(numbers(&patient.apply(&chunk).await.unwrap()), (1, 0, 1));
    assert_eq!(t.count("blog:1").await, 0);
    t.check().await;
}

#[tokio::test]
async fn a_dropped_call_gives_back_no_dirty_connection() {
    let options = LedgerOptions {
        connections_max: 1,
        ..LedgerOptions::default()
    };
    let t = TestLedger::with(1, options).await;
    let other = t.hold().await;
    let chunk = t.chunk(20, &[("u1 blog:1", -21), ("u2 blog:1", 22)]);
    tokio::select! {
        result = t.ledger.apply(&chunk) => panic!("{result:?}"),
        _ = t.waiting() => {}
    }
    // The pool has one place, and its connection was in the middle of a transaction.
    assert_eq!(t.ledger.flush_state().await.unwrap().last, SliceId(10));
    other.rollback().await.unwrap();
    assert_eq!(numbers(&t.ledger.apply(&chunk).await.unwrap()), (2, 0, 0));
    t.check().await;
}

#[tokio::test]
async fn calls_dropped_at_any_moment_leave_the_ledger_whole() {
    let t = TestLedger::start(4).await;
    for round in 0..60_u64 {
        let entries = (0..300).map(|n| {
            entry(
                &format!("u{} blog:{}", n % 40, n % 7),
                round as i64 * 1000 + n + 1,
            )
        });
        let chunk = t.chunk_of(round * 10 + 10, entries.collect());
        let cut = tokio::time::timeout(Duration::from_micros(300 * round), t.ledger.apply(&chunk));
        let _ = cut.await;
    }
    t.check().await;
    let last = t.ledger.flush_state().await.unwrap();
    assert_eq!(last.last, last.landed);
}

#[tokio::test]
async fn two_flushers_on_the_same_slices_count_once() {
    let t = TestLedger::start(4).await;
    let second = Ledger::connect(&t.url, LedgerOptions::default()).unwrap();
    for slice in 1..=10_i64 {
        let entries = (0..200).map(|n| {
            let sign = if (n + slice) % 3 == 0 { -1 } else { 1 };
            entry(&format!("u{n} blog:{}", n % 9), sign * (slice * 1000 + n))
        });
        let a = t.chunk_of(slice as u64, entries.collect());
        let mut b = a.clone();
        b.token = "other".to_owned();
        b.entries.reverse();
        let (a, b) = tokio::join!(t.ledger.apply(&a), second.apply(&b));
        let (a, b) = (a.unwrap(), b.unwrap());
        assert_eq!(
            (a.rows_changed + b.rows_changed, a.rows_stale + b.rows_stale),
            (200, 200)
        );
    }
    t.check().await;
}

#[tokio::test]
async fn new_kinds_are_numbered_once_by_many() {
    let t = TestLedger::start(1).await;
    let kinds: Vec<String> = (0..20).map(|n| format!("u1 kind{n}:1")).collect();
    let chunk = |version: i64| {
        let entries = kinds.iter().map(|field| entry(field, version));
        t.chunk_of(version as u64, entries.collect())
    };
    let chunks = [chunk(1), chunk(2), chunk(3), chunk(4)];
    let (a, b, c, d) = tokio::join!(
        t.ledger.apply(&chunks[0]),
        t.ledger.apply(&chunks[1]),
        t.ledger.apply(&chunks[2]),
        t.ledger.apply(&chunks[3]),
    );
    for applied in [a, b, c, d] {
        applied.unwrap();
    }
    assert_eq!(t.number("SELECT COUNT(*) FROM kind").await, 20);
    assert_eq!(
        t.number("SELECT COUNT(*) FROM thumb WHERE version = 4")
            .await,
        20
    );
    t.check().await;
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unavailable() {
    let options = LedgerOptions {
        acquire_timeout: Duration::from_millis(300),
        ..LedgerOptions::default()
    };
    let ledger = Ledger::connect("mysql://nobody@127.0.0.1:1/none", options).unwrap();
    let error = ledger.ping().await.unwrap_err();
    assert!(matches!(error, LedgerError::Unavailable(_)), "{error:?}");
    assert!(error.retryable());
}
