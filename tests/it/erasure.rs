//! Users who are erased: wherever what they did stands, however often it comes back, and wherever the work ends.

use std::time::Instant;

use reqwest::Method;
use thumbd::domain::Version;
use thumbd::erasure::{self, Eraser};
use thumbd::ledger::Erasure;
use thumbd::steps::gated;

use crate::app::{ADMIN_TOKEN, SERVICE_KEY, TestApp, send};
use crate::flush::Hold;
use crate::serve::PATIENCE;
use crate::stand::{Stand, outcome, user};

impl Stand {
    pub(crate) fn eraser(&self) -> Eraser {
        Eraser::new(&self.service, &self.flusher, &self.settings)
    }

    async fn ask(&self, of: &str) -> Erasure {
        erasure::request(&self.service, &user(of)).await.unwrap()
    }

    async fn erase(&self, of: &str) -> Erasure {
        let job = self.ask(of).await;
        assert_eq!(self.eraser().run().await.unwrap(), 1);
        let job = self.ledger.erasure(job.id).await.unwrap().unwrap();
        assert!(job.done && job.finished_at.is_some(), "{job:?}");
        job
    }

    /// Nothing in MySQL names this user any more.
    async fn gone(&self, of: &str) {
        for (table, column) in [
            ("thumb", "user_id"),
            ("quarantine", "user_id"),
            ("erased", "plain_id"),
        ] {
            let text = format!("SELECT COUNT(*) FROM {table} WHERE {column} = '{of}'");
            assert_eq!(self.number(&text).await, 0, "{table}");
        }
    }
}

/// Two users who like the same, in as many partitions as there are; the first has also an unlike.
async fn two(t: &Stand) {
    for target in ["blog:1", "blog:2", "photo:1"] {
        t.like("u1", target).await.unwrap();
        t.like("u2", target).await.unwrap();
    }
    t.unlike("u1", "blog:2").await.unwrap();
}

async fn only_u2(t: &Stand) {
    t.gone("u1").await;
    for target in ["blog:1", "blog:2", "photo:1"] {
        assert_eq!(
            t.look("u1", target).await,
            (Some(false), Some(1)),
            "{target}"
        );
        assert_eq!(
            t.look("u2", target).await,
            (Some(true), Some(1)),
            "{target}"
        );
    }
    t.check().await;
}

#[tokio::test]
async fn what_a_user_did_goes_flushed_or_not_and_counts_follow() {
    for partitions in [1, 4] {
        for flushed in [false, true] {
            let t = Stand::start(partitions).await;
            two(&t).await;
            if flushed {
                t.flush().await;
            }
            let job = t.erase("u1").await;
            // What had not landed never becomes a row, so there is none to remove.
            assert_eq!(job.rows_removed, if flushed { 3 } else { 0 });
            only_u2(&t).await;
            assert_eq!(t.like("u1", "blog:1").await.unwrap(), outcome(true, 2));
            assert_eq!(t.like("u1", "blog:1").await.unwrap(), outcome(false, 2));
            t.check().await;
            assert_eq!(t.look("u1", "blog:1").await, (Some(true), Some(2)));
            // And again.
            t.erase("u1").await;
            only_u2(&t).await;
        }
    }
}

#[tokio::test]
async fn what_a_user_does_after_the_request_counts() {
    for partitions in [1, 4] {
        let t = Stand::start(partitions).await;
        two(&t).await;
        t.flush().await;
        t.unlike("u1", "photo:1").await.unwrap();
        t.ask("u1").await;
        assert_eq!(t.like("u1", "blog:9").await.unwrap(), outcome(true, 1));
        t.eraser().run().await.unwrap();
        assert_eq!(t.look("u1", "blog:9").await, (Some(true), Some(1)));
        assert_eq!(t.look("u1", "blog:1").await, (Some(false), Some(1)));
        assert_eq!(t.look("u1", "photo:1").await, (Some(false), Some(1)));
        assert_eq!(
            t.number("SELECT COUNT(*) FROM thumb WHERE user_id = 'u1'")
                .await,
            1
        );
        t.check().await;
    }
}

#[tokio::test]
async fn one_who_is_asked_for_again_has_one_job_until_it_is_done() {
    let t = Stand::start(1).await;
    two(&t).await;
    let first = t.ask("u1").await;
    t.like("u1", "blog:3").await.unwrap();
    assert_eq!(t.ask("u1").await.id, first.id);
    assert_ne!(t.ask("u2").await.id, first.id);
    assert_eq!(t.eraser().run().await.unwrap(), 2);
    assert_eq!(t.look("u1", "blog:3").await, (Some(false), Some(0)));
    t.gone("u1").await;
    t.gone("u2").await;
    t.check().await;
    assert_eq!(t.eraser().run().await.unwrap(), 0);
    assert_ne!(t.ask("u1").await.id, first.id);
    assert_eq!(t.ledger.erasure(999).await.unwrap(), None);
}

#[tokio::test]
async fn more_rows_than_one_transaction_takes_go_too() {
    let t = Stand::start(4).await;
    t.like("u1", "blog:1").await.unwrap();
    t.like("u2", "blog:1").await.unwrap();
    t.flush().await;
    let rows = (0..2100).map(|n| format!("('u1', 1, 'x{n}', 1, 7)"));
    let rows = rows.collect::<Vec<_>>().join(", ");
    t.sql(&format!(
        "INSERT INTO thumb (user_id, kind_id, target_id, thumbed, version) VALUES {rows}"
    ))
    .await;
    t.sql("INSERT INTO thumb_count (kind_id, target_id, count) SELECT 1, target_id, 1 FROM thumb WHERE version = 7")
        .await;
    let home = t.home("u1");
    t.sql(&format!(
        "INSERT INTO thumb_count_part (kind_id, partition_id, target_id, count) \
         SELECT 1, {home}, target_id, 1 FROM thumb WHERE version = 7"
    ))
    .await;
    assert_eq!(t.erase("u1").await.rows_removed, 2101);
    assert_eq!(
        t.number("SELECT CAST(SUM(count) AS SIGNED) FROM thumb_count")
            .await,
        1
    );
    t.gone("u1").await;
    t.check().await;
}

#[tokio::test]
async fn what_stands_in_quarantine_goes_and_cannot_be_retried() {
    let t = Stand::start(1).await;
    t.script(
        "CREATE TRIGGER refuse BEFORE INSERT ON thumb FOR EACH ROW \
         BEGIN IF NEW.target_id = 'bad' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not this one'; END IF; END",
    )
    .await;
    t.like("u1", "blog:bad").await.unwrap();
    t.like("u2", "blog:bad").await.unwrap();
    assert_eq!(t.flush().await.quarantined, 2);
    t.script("DROP TRIGGER refuse").await;
    // Somebody looked at it before, and retries it afterwards.
    let rows = t.ledger.quarantine_page(0, 10).await.unwrap();
    t.erase("u1").await;
    t.gone("u1").await;
    for row in &rows {
        thumbd::flush::retry(&t.service, row).await.unwrap();
    }
    assert_eq!(t.look("u1", "blog:bad").await, (Some(false), Some(1)));
    assert_eq!(t.look("u2", "blog:bad").await, (Some(true), Some(1)));
    t.check().await;
    assert_eq!(t.ledger.quarantine_count().await.unwrap(), 0);
}

#[tokio::test]
async fn a_user_whom_redis_has_forgotten_is_taken_out_of_its_counts() {
    for partitions in [1, 4] {
        let t = Stand::start(partitions).await;
        two(&t).await;
        // As an import does: the user is not resident any more, and the counts still are.
        let home = t.home("u1");
        t.hot.forget(home, &[user("u1")], &[]).await.unwrap();
        t.erase("u1").await;
        only_u2(&t).await;
    }
}

/// A pattern of all keys of the test, leases included.
fn every_key(t: &Stand) -> String {
    format!("{}:v1:*", t.settings.key_prefix)
}

/// Every key, as it stands.
pub(crate) async fn copy(t: &Stand) -> Vec<(String, Vec<u8>)> {
    let mut copy = Vec::new();
    let keys: Vec<String> = t.command(&["KEYS", &every_key(t)]).await;
    for key in keys {
        let held: Vec<u8> = t.command(&["DUMP", &key]).await;
        copy.push((key, held));
    }
    copy
}

/// Redis as it was when the copy was made.
pub(crate) async fn restore(t: &Stand, copy: &[(String, Vec<u8>)]) {
    let keys: Vec<String> = t.command(&["KEYS", &every_key(t)]).await;
    for key in keys {
        t.command::<()>(&["DEL", &key]).await;
    }
    for (key, held) in copy {
        let words: [&[u8]; 4] = [b"RESTORE", key.as_bytes(), b"0", held];
        crate::stand::command::<()>(&t.redis, &words).await;
    }
}

#[tokio::test]
async fn an_older_copy_of_redis_revives_nothing() {
    for flushed in [false, true] {
        let t = Stand::start(1).await;
        two(&t).await;
        if flushed {
            // Everything is clean, and nothing is flushed between the copy and the erasure.
            t.flush().await;
        }
        let older = copy(&t).await;
        t.erase("u1").await;
        restore(&t, &older).await;
        t.flush().await;
        only_u2(&t).await;
        // The restored clock does not give versions that are void.
        assert_eq!(t.like("u1", "blog:1").await.unwrap(), outcome(true, 2));
        t.check().await;
        assert_eq!(t.look("u1", "blog:1").await, (Some(true), Some(2)));
    }
}

#[tokio::test]
async fn slices_that_were_kept_or_left_over_revive_nothing() {
    let t = Stand::start(1).await;
    two(&t).await;
    let slice = t.peek(0).await.live[0];
    let (live, kept) = (
        t.key(0, &format!("slice:{slice}")),
        t.key(0, &format!("kept:{slice}")),
    );
    t.flush().await;
    let entries: Vec<String> = t.command(&["HGETALL", &kept]).await;
    assert!(!entries.is_empty());
    t.erase("u1").await;
    // A copy that no list of slices names: the compensator adopts it.
    let mut words = vec!["HSET", &live];
    words.extend(entries.iter().map(String::as_str));
    t.command::<()>(&words).await;
    let report = t
        .flusher
        .compensate(|| thumbd::flush::Upto::Now)
        .await
        .unwrap();
    assert_eq!(report.slices_adopted, 1);
    only_u2(&t).await;
}

#[tokio::test]
async fn an_erasure_that_dies_anywhere_is_finished_by_another() {
    for point in [
        "erase.raised",
        "erase.flushed",
        "erase.commit",
        "erase.removed",
        "erase.forgotten",
    ] {
        for (partitions, flushed) in [(1, false), (4, true)] {
            let t = Stand::start(partitions).await;
            two(&t).await;
            if flushed {
                t.flush().await;
            }
            let hold = Hold::at(point);
            let user = user("u1");
            let run = gated(hold.clone(), async {
                erasure::request(&t.service, &user).await.unwrap();
                t.eraser().run().await.unwrap();
            });
            tokio::select! {
                () = run => panic!("{point}: it was not held"),
                () = hold.reached.notified() => {}
            }
            if point == "erase.raised" {
                // Nobody was told that it would be done, so it is not.
                assert_eq!(t.look("u1", "blog:1").await.0, Some(true));
                t.ask("u1").await;
            }
            let other = t.another().await;
            let (hot, ledger) = (other.hot().clone(), other.ledger().clone());
            let flusher = thumbd::flush::Flusher::new(hot, ledger, &t.settings);
            let eraser = Eraser::new(&other, &flusher, &t.settings);
            assert_eq!(eraser.run().await.unwrap(), 1, "{point}");
            assert_eq!(eraser.run().await.unwrap(), 0, "{point}");
            only_u2(&t).await;
        }
    }
}

#[tokio::test]
async fn erasures_are_forgotten_below_the_horizon() {
    let t = Stand::start(1).await;
    two(&t).await;
    let job = t.erase("u1").await;
    let open = t.ask("u2").await;
    let horizon = t.ledger.flush_state().await.unwrap().max_version;
    t.ledger.prune(Version(horizon.0 + 1)).await.unwrap();
    assert_eq!(t.ledger.erasure(job.id).await.unwrap(), None);
    // What is still to be done is not.
    assert!(t.ledger.erasure(open.id).await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_is_erased_over_http_and_the_job_is_shown() {
    let app = TestApp::start().await;
    app.like("u1", "blog/1").await;
    app.like("u2", "blog/1").await;
    let admin = |method: Method, path: &str| app.request(method, path).bearer_auth(ADMIN_TOKEN);
    let asked = send(admin(Method::DELETE, "/admin/v1/users/u1")).await;
    assert_eq!(asked.status, 202, "{asked:?}");
    let address = asked.headers["location"].to_str().unwrap().to_owned();
    assert_eq!(address, format!("/admin/v1/jobs/{}", asked.json()["job"]));
    let began = Instant::now();
    let job = loop {
        let job = send(admin(Method::GET, &address)).await.json();
        if job["status"] == "done" {
            break job;
        }
        assert!(began.elapsed() < PATIENCE, "{job}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    assert!(job["finished_at"].is_string(), "{job}");
    assert!(!job.to_string().contains("u1"), "{job}");
    let seen = app.get("u1", "blog/1").await.json();
    assert_eq!((&seen["liked"], &seen["count"]), (&false.into(), &1.into()));
    for (method, path, status) in [
        (Method::GET, "/admin/v1/jobs/999", 404),
        (Method::GET, "/admin/v1/jobs/x", 400),
        (Method::DELETE, "/admin/v1/users/a%20b", 400),
    ] {
        assert_eq!(send(admin(method, path)).await.status, status, "{path}");
    }
    let service = app.request(Method::DELETE, "/admin/v1/users/u2");
    assert_eq!(send(service.bearer_auth(SERVICE_KEY)).await.status, 403);
    app.finish().await;
}
