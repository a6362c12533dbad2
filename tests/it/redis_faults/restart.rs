//! A Redis that dies and comes back: with what its append-only file holds, with nothing, or as an older snapshot.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::path::PathBuf;

use thumbd::domain::SliceId;

use super::{Own, agree, healed, info, liked_in_rows, until, version_max};
use crate::stand::{Stand, outcome};

fn names(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("u{n}")).collect()
}

/// Who likes a target, by the rows.
async fn likers(t: &Stand, users: &[String], of: &str) -> BTreeSet<String> {
    let mut likers = BTreeSet::new();
    for user in users {
        if liked_in_rows(t, user, of).await {
            likers.insert(user.clone());
        }
    }
    likers
}

/// The append-only file's growing part.
fn tail(own: &Own) -> PathBuf {
    let dir = own.data().join("appendonlydir");
    let mut files = dir.read_dir().unwrap().map(|entry| entry.unwrap().path());
    let grows = |path: &PathBuf| path.to_string_lossy().ends_with(".incr.aof");
    files.find(grows).expect("a growing part")
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_with_an_append_only_file_always_written_loses_nothing_acknowledged() {
    let mut own = Own::start(|options| {
        options.aof = true;
        options.extra_args = ["--appendfsync", "always"].map(Into::into).to_vec();
    });
    let mut t = own.stand(|_| {}).await;
    let users = names(400);
    let mut acknowledged = Vec::new();
    // It is killed in the middle of likes, with a flush behind and another one ahead.
    for (at, user) in users.iter().enumerate() {
        if at == 100 {
            t.flush().await;
        }
        if at == 200 {
            let pid = own.server.pid().to_string();
            std::process::Command::new("kill")
                .args(["-9", &pid])
                .status()
                .unwrap();
        }
        if t.like(user, "blog:1").await.is_ok() {
            acknowledged.push(user.clone());
        }
    }
    assert!(
        (100..400).contains(&acknowledged.len()),
        "{}",
        acknowledged.len()
    );
    own.server.kill().ok();
    own.server.restart().unwrap();
    healed(&mut t).await;
    let before = version_max(&t).await;
    assert!(t.like("late", "blog:1").await.unwrap().changed);
    agree(&t, &users[90..110], &["blog:1"]).await;
    let likers = likers(&t, &users, "blog:1").await;
    for user in &acknowledged {
        assert!(likers.contains(user), "{user} is lost");
    }
    // One at most was under way.
    assert!(likers.len() <= acknowledged.len() + 1);
    assert!(version_max(&t).await > before);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_append_only_file_has_not_is_lost_from_the_end_and_nothing_else() {
    let mut own = Own::start(|options| options.aof = true);
    let mut t = own.stand(|_| {}).await;
    let users = names(100);
    for user in &users[..40] {
        t.like(user, "blog:1").await.unwrap();
    }
    t.flush().await;
    for user in &users[40..80] {
        t.like(user, "blog:1").await.unwrap();
    }
    let written = std::fs::metadata(tail(&own)).unwrap().len();
    for user in &users[80..] {
        t.like(user, "blog:1").await.unwrap();
    }
    own.server.kill().unwrap();
    // The machine died with the process: what was not on disk has gone, in the middle of a transaction.
    let file = OpenOptions::new().write(true).open(tail(&own)).unwrap();
    let whole = file.metadata().unwrap().len();
    file.set_len(written + (whole - written) / 2 + 3).unwrap();
    own.server.restart().unwrap();
    healed(&mut t).await;
    t.flush().await;
    let likers = likers(&t, &users, "blog:1").await;
    assert!((80..100).contains(&likers.len()), "{}", likers.len());
    let first: BTreeSet<String> = users[..likers.len()].iter().cloned().collect();
    assert_eq!(likers, first, "what is lost is not the end");
    agree(&t, &users[75..], &["blog:1"]).await;
    // Whoever was lost may say it again.
    let count = likers.len() as i64;
    assert_eq!(
        t.like("u99", "blog:1").await.unwrap(),
        outcome(true, count + 1)
    );
    agree(&t, &["u99"], &["blog:1"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn restarted_empty_loses_what_only_redis_had() {
    let mut own = Own::start(|_| {});
    let mut t = own.stand(|_| {}).await;
    let users = names(60);
    for user in &users[..40] {
        t.like(user, "blog:1").await.unwrap();
    }
    t.flush().await;
    for user in &users[40..] {
        t.like(user, "blog:1").await.unwrap();
    }
    t.unlike("u0", "blog:1").await.unwrap();
    let landed = t.ledger.flush_state().await.unwrap().last;
    own.server.kill().unwrap();
    own.server.restart().unwrap();
    healed(&mut t).await;
    assert_eq!(t.peek(0).await.generation, None);
    // The first request finds it out.
    assert_eq!(t.look("u0", "blog:1").await, (Some(true), Some(40)));
    assert_eq!(t.like("u59", "blog:1").await.unwrap(), outcome(true, 41));
    let after = t.peek(0).await;
    let state = t.ledger.flush_state().await.unwrap();
    assert!(after.sealed >= state.last && after.clock >= state.max_version);
    assert!(after.live[0] > landed);
    let version = version_max(&t).await;
    agree(&t, &users, &["blog:1"]).await;
    let likers = likers(&t, &users, "blog:1").await;
    let mut right: BTreeSet<String> = users[..40].iter().cloned().collect();
    right.insert("u59".to_owned());
    assert_eq!(likers, right);
    assert!(version_max(&t).await > version);
}

/// Writes a snapshot as an operator would, and gives back a copy of it.
async fn snapshot(own: &Own, t: &Stand) -> PathBuf {
    t.command::<String>(&["BGSAVE"]).await;
    until("the snapshot is written", async || {
        info(t, "rdb_bgsave_in_progress").await == "0"
    })
    .await;
    let copy = own.server.dir().join("old.rdb");
    std::fs::copy(own.data().join("dump.rdb"), &copy).unwrap();
    copy
}

/// Puts an older snapshot in the place of what there is.
async fn restore(own: &mut Own, t: &mut Stand, snapshot: PathBuf) {
    own.server.kill().unwrap();
    std::fs::rename(snapshot, own.data().join("dump.rdb")).unwrap();
    File::open(own.data()).unwrap().sync_all().unwrap();
    own.server.restart().unwrap();
    healed(t).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_of_before_a_seal_is_recognised() {
    let mut own = Own::start(|_| {});
    let mut t = own.stand(|_| {}).await;
    for user in ["u1", "u2", "u3"] {
        t.like(user, "blog:1").await.unwrap();
    }
    let old = snapshot(&own, &t).await;
    let then = t.peek(0).await;
    // These land together with what the snapshot has.
    t.unlike("u1", "blog:1").await.unwrap();
    t.like("u4", "blog:1").await.unwrap();
    t.flush().await;
    // This only Redis has.
    t.like("u5", "blog:1").await.unwrap();
    t.unlike("u2", "blog:1").await.unwrap();
    let clock = t.peek(0).await.clock;
    restore(&mut own, &mut t, old).await;
    let state = t.ledger.flush_state().await.unwrap();
    let back = t.peek(0).await;
    assert!(back.sealed < state.last, "it does not look rolled back");
    assert_eq!(back.live, then.live);
    // The live slice lands again and changes nothing.
    let report = t.flush().await;
    assert_eq!(
        (report.slices, report.rows_stale, report.rows_changed),
        (1, 3, 0)
    );
    let after = t.peek(0).await;
    assert_ne!(after.generation, then.generation);
    assert!(after.sealed >= state.last && after.clock >= state.max_version);
    let users = ["u1", "u2", "u3", "u4", "u5"];
    agree(&t, &users, &["blog:1"]).await;
    assert_eq!(t.look("u1", "blog:1").await, (Some(false), Some(3)));
    assert_eq!(t.look("u2", "blog:1").await, (Some(true), Some(3)));
    assert_eq!(t.look("u5", "blog:1").await, (Some(false), Some(3)));
    // Versions go on behind all that there ever were.
    assert_eq!(t.unlike("u2", "blog:1").await.unwrap(), outcome(true, 2));
    assert!(t.peek(0).await.clock > clock);
    agree(&t, &users, &["blog:1"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_of_after_a_seal_loses_the_last_operations_only() {
    let mut own = Own::start(|_| {});
    let mut t = own.stand(|_| {}).await;
    for user in ["u1", "u2", "u3"] {
        t.like(user, "blog:1").await.unwrap();
    }
    // Sealed, but not landed.
    let last = t.ledger.flush_state().await.unwrap().last;
    let upto = SliceId(t.peek(0).await.time_ms);
    t.hot.seal(0, upto, last, "dead", 60_000).await.unwrap();
    let old = snapshot(&own, &t).await;
    let then = t.peek(0).await;
    // The slice lands, with the seal that the snapshot knows.
    let run = t
        .flusher
        .run(|| thumbd::flush::Upto::PreviousWindow)
        .await
        .unwrap();
    assert_eq!(run.slices, 1);
    // This only Redis has.
    t.unlike("u1", "blog:1").await.unwrap();
    t.like("u4", "blog:1").await.unwrap();
    assert_eq!(t.ledger.flush_state().await.unwrap().last, then.live[0]);
    restore(&mut own, &mut t, old).await;
    let back = t.peek(0).await;
    assert_eq!(
        (&back.generation, back.sealed),
        (&then.generation, then.sealed)
    );
    // Nobody can tell, and nobody needs to: answers are right but for the last operations.
    assert_eq!(t.look("u1", "blog:1").await, (Some(true), Some(3)));
    assert_eq!(t.look("u4", "blog:1").await, (Some(false), Some(3)));
    assert_eq!(t.unlike("u2", "blog:1").await.unwrap(), outcome(true, 2));
    let report = t.flush().await;
    assert_eq!(
        (report.slices, report.rows_stale, report.rows_changed),
        (2, 3, 1)
    );
    assert_eq!(t.peek(0).await.generation, then.generation);
    let users = ["u1", "u2", "u3", "u4"];
    agree(&t, &users, &["blog:1"]).await;
    assert_eq!(t.look("u1", "blog:1").await, (Some(true), Some(2)));
}
