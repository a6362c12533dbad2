//! A flusher that sleeps through its lease, while a second one runs whole: nothing is doubled, and the first ends without harm.

use std::time::Duration;

use reqwest::Method;
use thumbd::flush::{FlushError, Flusher, Upto};
use thumbd::jobs::Lease;
use thumbd::ledger::LedgerError;
use thumbd::steps::gated;

use crate::flush::Hold;
use crate::process::signal;
use crate::serve::Serve;
use crate::servers;
use crate::stand::{Stand, outcome};

/// Short, because it is waited for.
const LIFE: Duration = Duration::from_millis(300);

/// The transaction that is open in this test's database; none once it has ended.
const OPEN_TRANSACTION: &str = "SELECT COALESCE(MAX(CAST(p.id AS SIGNED)), 0) FROM information_schema.innodb_trx t \
     JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id \
     WHERE p.db = DATABASE() AND p.id <> CONNECTION_ID() AND p.command = 'Sleep'";

/// Takes a lease, and its owner freezes: it is neither renewed nor given back.
async fn lease_of_a_sleeper(t: &Stand) {
    let lease = Lease::take(&t.hot, "sleeper", LIFE).await.unwrap();
    assert!(lease.is_some());
    assert!(Lease::take(&t.hot, "second", LIFE).await.unwrap().is_none());
}

/// A whole run of somebody who waited for the lease.
async fn second_runs(t: &Stand) -> Result<u64, FlushError> {
    let lease = Lease::wait(&t.hot, "second", LIFE).await.unwrap();
    let flusher = Flusher::new(t.hot.clone(), t.ledger.clone(), &t.settings);
    let report = flusher.run(|| Upto::Now).await;
    lease.release().await;
    report.map(|report| report.entries)
}

async fn ttl(t: &Stand, key: &str) -> i64 {
    t.command(&["TTL", key]).await
}

/// Frozen where it holds no lock, the first finds another's fence.
#[tokio::test]
async fn frozen_outside_of_a_transaction_while_another_runs_whole() {
    for (point, partitions) in [
        // Before the transaction, before mark, before unpin, before drop.
        "flush.read",
        "flush.applied",
        "flush.marked",
        "flush.unpinned",
    ]
    .into_iter()
    .flat_map(|point| [(point, 1), (point, 3)])
    {
        let t = Stand::start(partitions).await;
        for user in ["u1", "u2", "u3"] {
            t.like(user, "blog:1").await.unwrap();
        }
        lease_of_a_sleeper(&t).await;
        let hold = Hold::at(point);
        let first = gated(hold.clone(), t.flusher.run(|| Upto::Now));
        let meanwhile = async {
            hold.reached.notified().await;
            // What comes now is in a slice that the first knows nothing of.
            assert_eq!(t.unlike("u1", "blog:1").await.unwrap(), outcome(true, 2));
            let entries = second_runs(&t).await.unwrap();
            assert!(entries > 0, "{point}");
            assert_eq!(t.unlike("u2", "blog:1").await.unwrap(), outcome(true, 1));
            hold.go_on.notify_one();
        };
        let (first, ()) = tokio::join!(first, meanwhile);
        let ended = matches!(first, Err(FlushError::Overtaken));
        assert!(ended, "{point}, {partitions}: {first:?}");
        // Dirty is pinned, clean is not.
        assert_eq!(ttl(&t, &t.user_key("u2")).await, -1, "{point}");
        assert!(ttl(&t, &t.user_key("u3")).await > 0, "{point}");
        let count = t.key(t.home("u2"), "count:blog:1");
        assert_eq!(ttl(&t, &count).await, -1, "{point}");
        assert_eq!(t.number("SELECT count FROM thumb_count").await, 2);
        t.check().await;
        assert_eq!(t.look("u2", "blog:1").await, (Some(false), Some(1)));
    }
}

/// Frozen before COMMIT, the first holds the lock of the flush: the second waits for it, and finds all that it carries there.
#[tokio::test]
async fn frozen_before_commit_while_another_waits() {
    for partitions in [1, 3] {
        let t = Stand::start(partitions).await;
        t.like("u1", "blog:1").await.unwrap();
        lease_of_a_sleeper(&t).await;
        let hold = Hold::at("ledger.commit");
        let first = gated(hold.clone(), t.flusher.run(|| Upto::Now));
        let second = async {
            hold.reached.notified().await;
            let wake = async {
                let waits = "SELECT COUNT(*) FROM information_schema.innodb_trx t \
                     JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id \
                     WHERE p.db = DATABASE() AND t.trx_state = 'LOCK WAIT'";
                while t.number(waits).await == 0 {
                    // The server shows what it found up to 100 ms ago, for ever if it is asked more often.
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
                assert_eq!(t.number("SELECT COUNT(*) FROM thumb").await, 0);
                hold.go_on.notify_one();
            };
            tokio::join!(second_runs(&t), wake).0
        };
        let (first, second) = tokio::join!(first, second);
        let ended = matches!(first, Err(FlushError::Overtaken));
        assert!(ended, "{partitions}: {first:?}");
        assert_eq!(second.unwrap(), 1);
        assert!(ttl(&t, &t.user_key("u1")).await > 0);
        assert_eq!(t.number("SELECT count FROM thumb_count").await, 1);
        t.check().await;
    }
}

/// Frozen before COMMIT for so long that the server has given it up: the second does it all, and the first cannot commit.
#[tokio::test]
async fn frozen_before_commit_and_given_up_by_the_server() {
    for partitions in [1, 3] {
        let t = Stand::start(partitions).await;
        t.like("u1", "blog:1").await.unwrap();
        lease_of_a_sleeper(&t).await;
        let hold = Hold::at("ledger.commit");
        let first = gated(hold.clone(), t.flusher.run(|| Upto::Now));
        let meanwhile = async {
            hold.reached.notified().await;
            let open = t.number(OPEN_TRANSACTION).await;
            assert!(open > 0);
            t.sql(&format!("KILL {open}")).await;
            assert_eq!(second_runs(&t).await.unwrap(), 1);
            assert_eq!(t.unlike("u1", "blog:1").await.unwrap(), outcome(true, 0));
            hold.go_on.notify_one();
        };
        let (first, ()) = tokio::join!(first, meanwhile);
        let ended = matches!(first, Err(FlushError::Ledger(LedgerError::Unavailable(_))));
        assert!(ended, "{partitions}: {first:?}");
        assert_eq!(ttl(&t, &t.user_key("u1")).await, -1);
        assert_eq!(t.number("SELECT count FROM thumb_count").await, 1);
        t.check().await;
    }
}

/// A real process, stopped for longer than its lease lives, and a real one that goes on in its place.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_stopped_beyond_its_lease_wakes_without_harm() {
    let points = [
        "flush.read",
        "ledger.commit",
        "flush.applied",
        "flush.marked",
        "flush.unpinned",
    ];
    futures_util::future::join_all(points.map(stopped)).await;
}

async fn stopped(point: &str) {
    let env = servers::env().await;
    // Time enough to stop it there.
    let failpoints = format!("{point}=1*delay(5000)");
    let settings = [
        ("THUMBD_SLICE_SECONDS", "3600"),
        ("THUMBD_LEASE_TTL_MS", "3000"),
    ];
    let second = Serve::start(&env, &settings).await;
    // Behind the compensator of the first start, so that only the flush below passes the point.
    second.admin("/admin/v1/compensations").await.unwrap();
    let sleeper = [settings[0], settings[1], ("FAILPOINTS", &failpoints)];
    let sleeper = Serve::start(&env, &sleeper).await;
    for user in ["u1", "u2", "u3"] {
        assert_eq!(sleeper.like(user, "blog/1").await.status, 200);
    }
    let flush = sleeper
        .client
        .post(format!("{}/admin/v1/flushes", sleeper.url));
    let flush = tokio::spawn(flush.bearer_auth(crate::app::ADMIN_TOKEN).send());
    sleeper.said(&format!("failpoint {point}")).await;
    signal(&sleeper.child, "STOP");
    let unlike = second.one(Method::DELETE, "u1", "blog/1");
    let answer = crate::app::send(unlike).await;
    assert_eq!((answer.status, &answer.json()["count"]), (200, &2.into()));

    let other = second.admin("/admin/v1/flushes");
    if point == "ledger.commit" {
        // The lock is the sleeper's until it wakes.
        let wake = async {
            tokio::time::sleep(Duration::from_secs(4)).await;
            signal(&sleeper.child, "CONT");
        };
        // Both are awake then, and may take the fence from each other until one gives up.
        let _ = tokio::join!(other, wake, flush);
    } else {
        let report = other.await.unwrap();
        assert!(report["entries"].as_u64() > Some(0), "{point}: {report}");
        signal(&sleeper.child, "CONT");
        // It is overtaken, begins again and finds nothing left.
        let answer = flush.await.unwrap().unwrap();
        assert_eq!(answer.status(), 200, "{point}: {answer:?}");
    }
    second.admin("/admin/v1/flushes").await.unwrap();
    for serve in [&second, &sleeper] {
        let seen = serve.get("u1", "blog/1").await.json();
        assert_eq!((&seen["liked"], &seen["count"]), (&false.into(), &2.into()));
        serve.verify().await;
    }
}
