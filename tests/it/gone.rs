//! Targets that are erased: nobody likes them, at once and for good, until they are restored; wherever likes of them stand, however
//! often they come back, and wherever the work ends.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;
use thumbd::config::Settings;
use thumbd::domain::Kind;
use thumbd::erasure::{self, Eraser, Restored};
use thumbd::flush::{Flusher, Upto};
use thumbd::ledger::{Erasure, TargetState};
use thumbd::service::{Service, ServiceError};
use thumbd::steps::gated;
use thumbd::{relayout, repair};

use crate::app::{ADMIN_TOKEN, SERVICE_KEY, TestApp, send};
use crate::erasure::{copy, restore};
use crate::flush::Hold;
use crate::process::signal;
use crate::serve::{Serve, until};
use crate::stand::{self, Stand, outcome, target, user};

const WHICH: &str = "blog:1";

impl Stand {
    async fn ask_gone(&self, of: &str) -> Erasure {
        erasure::request_target(&self.service, &target(of))
            .await
            .unwrap()
    }

    async fn erase_target(&self, of: &str) -> Erasure {
        let job = self.ask_gone(of).await;
        assert_eq!(self.eraser().run().await.unwrap(), 1);
        let job = self.ledger.erasure(job.id).await.unwrap().unwrap();
        assert!(job.done && job.finished_at.is_some(), "{job:?}");
        job
    }

    async fn bring_back(&self, of: &str) -> Restored {
        self.eraser().restore(&target(of)).await.unwrap()
    }

    /// Nobody likes it, and nobody can.
    async fn is_gone(&self, of: &str) {
        for who in ["u1", "u2", "stranger"] {
            let like = self.like(who, of).await;
            assert!(matches!(like, Err(ServiceError::TargetGone)), "{like:?}");
            assert_eq!(self.unlike(who, of).await.unwrap(), outcome(false, 0));
            assert_eq!(self.look(who, of).await, (Some(false), Some(0)), "{who}");
            let likes = self
                .service
                .user_likes(&user(who), None, None, 100)
                .await
                .unwrap();
            let kind = Kind::parse(target(of).kind()).unwrap();
            let of_kind = self
                .service
                .user_likes(&user(who), Some(&kind), None, 100)
                .await
                .unwrap();
            for one in likes.rows.iter().chain(&of_kind.rows) {
                assert_ne!(one.target, target(of), "{who}");
            }
            for caller in [None, Some(user(who))] {
                let of = target(of);
                let (_, likers) = self
                    .service
                    .likers(&of, caller.as_ref(), None, 100)
                    .await
                    .unwrap();
                assert_eq!(likers.rows, []);
                let own = self.service.likers_own(&of, caller.as_ref(), None);
                assert_eq!(own.await.unwrap().1.rows, []);
            }
        }
        let kind = Kind::parse(target(of).kind()).unwrap();
        let ranking = self.service.ranking(&kind, None, 100).await.unwrap();
        assert!(
            ranking.rows.iter().all(|row| row.target != target(of)),
            "{ranking:?}"
        );
    }

    /// Nothing is left in MySQL but the note that it is gone.
    async fn nothing_left(&self) {
        for text in [
            "SELECT COUNT(*) FROM thumb WHERE target_id = '1'",
            "SELECT COUNT(*) FROM quarantine WHERE target_id = '1'",
            "SELECT COUNT(*) FROM erased WHERE plain_id = '1'",
            "SELECT CAST(COALESCE(SUM(count), 0) AS SIGNED) FROM thumb_count WHERE target_id = '1'",
            "SELECT COUNT(*) FROM thumb_count_part WHERE target_id = '1' AND count <> 0",
        ] {
            assert_eq!(self.number(text).await, 0, "{text}");
        }
    }

    async fn other(&self) -> (Service, Eraser) {
        let other = self.another().await;
        let (hot, ledger) = (other.hot().clone(), other.ledger().clone());
        let flusher = Flusher::new(hot, ledger, &self.settings);
        let eraser = Eraser::new(&other, &flusher, &self.settings);
        (other, eraser)
    }
}

/// Some who like the same two targets, in all partitions; one of them takes one like back.
async fn likes(t: &Stand) {
    for n in 0..8 {
        for of in [WHICH, "blog:2"] {
            t.like(&format!("u{n}"), of).await.unwrap();
        }
    }
    t.unlike("u7", WHICH).await.unwrap();
}

/// The other target is as it was.
async fn only_the_other(t: &Stand) {
    t.is_gone(WHICH).await;
    t.nothing_left().await;
    for n in 0..8 {
        let seen = t.look(&format!("u{n}"), "blog:2").await;
        assert_eq!(seen, (Some(true), Some(8)));
    }
    t.check().await;
    t.is_gone(WHICH).await;
}

#[tokio::test]
async fn nobody_likes_a_target_that_is_gone_at_once_and_for_good() {
    for partitions in [1, 4] {
        for flushed in [false, true] {
            let t = Stand::start(partitions).await;
            likes(&t).await;
            if flushed {
                t.flush().await;
            }
            let job = t.ask_gone(WHICH).await;
            t.is_gone(WHICH).await;
            assert_eq!(t.eraser().run().await.unwrap(), 1);
            let job = t.ledger.erasure(job.id).await.unwrap().unwrap();
            assert!(job.done);
            // What had not landed never becomes a row, so there is none to remove.
            assert_eq!(job.rows_removed, if flushed { 8 } else { 0 });
            only_the_other(&t).await;
            assert_eq!(t.ask_gone(WHICH).await, job);
            assert_eq!(t.eraser().run().await.unwrap(), 0);
            only_the_other(&t).await;
        }
    }
}

#[tokio::test]
async fn a_target_that_is_restored_is_liked_anew() {
    for (partitions, thumbs_max) in [(1, 10_000), (4, 10_000), (1, 1)] {
        let t = Stand::on(Settings {
            resident_thumbs_max: thumbs_max,
            ..stand::settings(partitions).await
        })
        .await;
        likes(&t).await;
        t.flush().await;
        t.like("late", WHICH).await.unwrap();
        t.unlike("u1", WHICH).await.unwrap();
        assert_eq!(t.bring_back(WHICH).await, Restored::There);
        let job = t.ask_gone(WHICH).await;
        assert_eq!(t.bring_back(WHICH).await, Restored::Leaving);
        t.is_gone(WHICH).await;
        t.eraser().run().await.unwrap();
        assert_eq!(t.bring_back(WHICH).await, Restored::Done);
        assert_eq!(t.bring_back(WHICH).await, Restored::There);
        assert_eq!(t.ledger.flush_state().await.unwrap().outside_token, "");
        for who in ["u1", "u2", "u7", "late", "stranger"] {
            assert_eq!(t.look(who, WHICH).await, (Some(false), Some(0)), "{who}");
        }
        t.check().await;
        assert_eq!(t.like("u2", WHICH).await.unwrap(), outcome(true, 1));
        assert_eq!(t.like("late", WHICH).await.unwrap(), outcome(true, 2));
        t.check().await;
        assert_eq!(t.look("u2", WHICH).await, (Some(true), Some(2)));
        assert_eq!(t.unlike("u2", WHICH).await.unwrap(), outcome(true, 1));
        // And again.
        assert_ne!(t.erase_target(WHICH).await.id, job.id);
        only_the_other(&t).await;
        assert_eq!(t.bring_back(WHICH).await, Restored::Done);
        assert_eq!(t.like("u2", WHICH).await.unwrap(), outcome(true, 1));
        t.check().await;
    }
}

#[tokio::test]
async fn a_target_that_nobody_knows_can_be_gone() {
    let t = Stand::start(4).await;
    t.erase_target("song:9").await;
    t.is_gone("song:9").await;
    assert_eq!(t.bring_back("song:9").await, Restored::Done);
    assert_eq!(t.like("u1", "song:9").await.unwrap(), outcome(true, 1));
    t.check().await;
}

#[tokio::test]
async fn a_batch_is_told_of_each_target_that_is_gone() {
    let t = Stand::start(4).await;
    likes(&t).await;
    t.ask_gone(WHICH).await;
    let operations = vec![
        stand::op("u1", WHICH, true),
        stand::op("u1", WHICH, false),
        stand::op("u1", "blog:3", true),
        stand::op("u9", WHICH, true),
    ];
    let results = t.service.batch(operations).await;
    let gone = |at: usize| matches!(results[at], Err(ServiceError::TargetGone));
    assert!(gone(0) && gone(3), "{results:?}");
    assert!(!results[1].as_ref().unwrap().changed);
    assert!(results[2].as_ref().unwrap().changed);
}

#[tokio::test]
async fn an_emptied_or_evicted_redis_knows_that_a_target_is_gone() {
    for partitions in [1, 4] {
        for done in [false, true] {
            let t = Stand::start(partitions).await;
            likes(&t).await;
            t.flush().await;
            if done {
                t.erase_target(WHICH).await;
            } else {
                t.ask_gone(WHICH).await;
            }
            for partition in 0..partitions {
                let key = t.key(partition, &format!("count:{WHICH}"));
                let ttl: i64 = t.command(&["TTL", &key]).await;
                assert!(ttl > 0, "{ttl}");
                let _: i64 = t.command(&["DEL", &key]).await;
            }
            t.is_gone(WHICH).await;
            restore(&t, &[]).await;
            t.flush().await;
            t.is_gone(WHICH).await;
            assert_eq!(t.eraser().run().await.unwrap(), usize::from(!done));
            only_the_other(&t).await;
        }
    }
}

#[tokio::test]
async fn an_older_copy_of_redis_revives_nothing_of_a_target() {
    for partitions in [1, 4] {
        for flushed in [false, true] {
            let t = Stand::start(partitions).await;
            likes(&t).await;
            if flushed {
                t.flush().await;
            }
            let older = copy(&t).await;
            t.ask_gone(WHICH).await;
            // Before the job has begun, and when it is done.
            restore(&t, &older).await;
            t.flush().await;
            t.is_gone(WHICH).await;
            t.eraser().run().await.unwrap();
            restore(&t, &older).await;
            t.flush().await;
            only_the_other(&t).await;
            let gone = copy(&t).await;
            assert_eq!(t.bring_back(WHICH).await, Restored::Done);
            for copy in [&older, &gone] {
                restore(&t, copy).await;
                t.flush().await;
                assert_eq!(t.look("u1", WHICH).await, (Some(false), Some(0)));
                assert_eq!(t.look("u1", "blog:2").await, (Some(true), Some(8)));
                t.check().await;
            }
            // The restored clock does not give versions that are void.
            assert_eq!(t.like("u1", WHICH).await.unwrap(), outcome(true, 1));
            t.check().await;
            assert_eq!(t.look("u1", WHICH).await, (Some(true), Some(1)));
        }
    }
}

#[tokio::test]
async fn slices_that_were_kept_or_left_over_revive_nothing_of_a_target() {
    for restored in [false, true] {
        let t = Stand::start(1).await;
        likes(&t).await;
        let slice = t.peek(0).await.live[0];
        let live = t.key(0, &format!("slice:{slice}"));
        let kept = t.key(0, &format!("kept:{slice}"));
        t.flush().await;
        let entries: Vec<String> = t.command(&["HGETALL", &kept]).await;
        assert!(!entries.is_empty());
        t.erase_target(WHICH).await;
        if restored {
            assert_eq!(t.bring_back(WHICH).await, Restored::Done);
            t.like("new", WHICH).await.unwrap();
        }
        let mut words = vec!["HSET", &live];
        words.extend(entries.iter().map(String::as_str));
        t.command::<()>(&words).await;
        let report = t.flusher.compensate(|| Upto::Now).await.unwrap();
        assert_eq!(report.slices_adopted, 1);
        if restored {
            assert_eq!(t.look("u1", WHICH).await, (Some(false), Some(1)));
            assert_eq!(t.look("new", WHICH).await, (Some(true), Some(1)));
            t.check().await;
        } else {
            only_the_other(&t).await;
        }
    }
}

#[tokio::test]
async fn what_mysql_forgot_revives_nothing_of_a_target() {
    // The commit of a slice is forgotten, and the slice lives again from what is kept: after the target was erased.
    let t = Stand::start(1).await;
    likes(&t).await;
    t.flush().await;
    t.erase_target(WHICH).await;
    t.sql("UPDATE flush_state SET landed = 0").await;
    t.flush().await;
    only_the_other(&t).await;
}

#[tokio::test]
async fn what_stands_in_quarantine_of_a_target_goes_and_cannot_be_retried() {
    for restored in [false, true] {
        let t = Stand::start(1).await;
        t.script(
            "CREATE TRIGGER refuse BEFORE INSERT ON thumb FOR EACH ROW \
             BEGIN IF NEW.target_id = '1' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not this one'; END IF; END",
        )
        .await;
        likes(&t).await;
        let slice = t.peek(0).await.live[0];
        let live = t.key(0, &format!("slice:{slice}"));
        t.command::<()>(&["HSET", &live, &format!("u9 {WHICH}"), "junk"])
            .await;
        assert_eq!(t.flush().await.quarantined, 9);
        t.script("DROP TRIGGER refuse").await;
        let rows = t.ledger.quarantine_page(0, 10).await.unwrap();
        t.erase_target(WHICH).await;
        t.nothing_left().await;
        assert_eq!(t.ledger.quarantine_count().await.unwrap(), 0);
        if restored {
            assert_eq!(t.bring_back(WHICH).await, Restored::Done);
        }
        for row in &rows {
            thumbd::flush::retry(&t.service, row).await.unwrap();
        }
        assert_eq!(t.look("u1", WHICH).await, (Some(false), Some(0)));
        t.nothing_left().await;
        t.check().await;
    }
}

#[tokio::test]
async fn more_likes_than_one_transaction_takes_go_too() {
    let t = Stand::start(4).await;
    t.like("u1", WHICH).await.unwrap();
    t.like("u1", "blog:2").await.unwrap();
    t.flush().await;
    // Each tenth was taken back.
    let rows = (0..2100).map(|n| format!("('x{n}', 1, '1', {}, 7)", i32::from(n % 10 > 0)));
    let rows = rows.collect::<Vec<_>>().join(", ");
    t.sql(&format!(
        "INSERT INTO thumb (user_id, kind_id, target_id, thumbed, version) VALUES {rows}"
    ))
    .await;
    t.sql("DELETE FROM thumb_count").await;
    t.sql("DELETE FROM thumb_count_part").await;
    t.sql(
        "INSERT INTO thumb_count (kind_id, target_id, count) \
         SELECT kind_id, target_id, SUM(thumbed) FROM thumb GROUP BY kind_id, target_id",
    )
    .await;
    t.sql(
        "INSERT INTO thumb_count_part (kind_id, target_id, partition_id, count) \
         SELECT kind_id, target_id, CRC32(user_id) MOD 4, SUM(thumbed) FROM thumb \
         GROUP BY kind_id, target_id, CRC32(user_id) MOD 4",
    )
    .await;
    // Whoever is loaded meanwhile has the row, until it is removed.
    assert_eq!(t.look("x1", "blog:2").await, (Some(false), Some(1)));
    let job = t.ask_gone(WHICH).await;
    assert_eq!(t.look("x2", "blog:2").await, (Some(false), Some(1)));
    t.eraser().run().await.unwrap();
    let job = t.ledger.erasure(job.id).await.unwrap().unwrap();
    assert_eq!((job.done, job.rows_removed), (true, 2101));
    t.nothing_left().await;
    t.check().await;
    t.bring_back(WHICH).await;
    for who in ["x1", "x2", "x10", "u1"] {
        assert_eq!(t.look(who, WHICH).await, (Some(false), Some(0)));
    }
    t.check().await;
}

#[tokio::test]
async fn an_erasure_of_a_target_that_dies_anywhere_is_finished_by_another() {
    for point in [
        "erase.noted",
        "erase.marked",
        "erase.flushed",
        "erase.commit",
        "erase.removed",
        "erase.forgotten",
        "flush.gone",
    ] {
        for (partitions, flushed) in [(1, false), (4, true)] {
            let t = Stand::start(partitions).await;
            likes(&t).await;
            if flushed {
                t.flush().await;
            }
            t.like("u9", WHICH).await.unwrap();
            if point == "erase.forgotten" && !flushed {
                // There must be rows.
                t.flush().await;
            }
            let hold = Hold::at(point);
            let run = gated(hold.clone(), async {
                t.ask_gone(WHICH).await;
                t.eraser().run().await.unwrap();
            });
            tokio::select! {
                () = run => panic!("{point}: it was not held"),
                () = hold.reached.notified() => {}
            }
            let (other, eraser) = t.other().await;
            assert_eq!(eraser.run().await.unwrap(), 1, "{point}");
            assert_eq!(eraser.run().await.unwrap(), 0, "{point}");
            let like = other.thumb(stand::op("u1", WHICH, true)).await;
            assert!(matches!(like, Err(ServiceError::TargetGone)), "{point}");
            only_the_other(&t).await;
            assert_eq!(t.bring_back(WHICH).await, Restored::Done);
            assert_eq!(t.look("u9", WHICH).await, (Some(false), Some(0)), "{point}");
            t.check().await;
        }
    }
}

#[tokio::test]
async fn a_restoration_that_dies_anywhere_is_whole_or_not_at_all() {
    for point in [
        "restore.flushed",
        "restore.raised",
        "restore.commit",
        "restore.stored",
        "restore.forgotten",
    ] {
        for partitions in [1, 4] {
            let t = Stand::start(partitions).await;
            likes(&t).await;
            t.flush().await;
            t.erase_target(WHICH).await;
            let hold = Hold::at(point);
            let run = gated(hold.clone(), t.bring_back(WHICH));
            tokio::select! {
                _ = run => panic!("{point}: it was not held"),
                () = hold.reached.notified() => {}
            }
            let stored = matches!(point, "restore.stored" | "restore.forgotten");
            let state = t.ledger.target_state(&target(WHICH)).await.unwrap();
            let wanted = if stored {
                TargetState::There
            } else {
                TargetState::Gone
            };
            assert_eq!(state, wanted, "{point}");
            // Redis was not told everywhere; whoever flushes makes up for it.
            let (other, eraser) = t.other().await;
            let again = eraser.restore(&target(WHICH)).await.unwrap();
            let wanted = if stored {
                Restored::There
            } else {
                Restored::Done
            };
            assert_eq!(again, wanted, "{point}");
            let like = other.thumb(stand::op("u1", WHICH, true)).await.unwrap();
            assert_eq!(like, outcome(true, 1), "{point}");
            t.check().await;
            assert_eq!(t.look("u1", WHICH).await, (Some(true), Some(1)));
            assert_eq!(t.look("u2", WHICH).await, (Some(false), Some(1)));
        }
    }
}

#[tokio::test]
async fn a_worker_that_slept_through_a_restoration_removes_nothing_new() {
    for point in ["erase.flushed", "erase.removed"] {
        let t = Stand::start(1).await;
        likes(&t).await;
        t.flush().await;
        t.ask_gone(WHICH).await;
        let hold = Hold::at(point);
        let eraser = t.eraser();
        let sleeper = gated(hold.clone(), eraser.run());
        let meanwhile = async {
            hold.reached.notified().await;
            let (_, eraser) = t.other().await;
            assert_eq!(eraser.run().await.unwrap(), 1);
            assert_eq!(t.bring_back(WHICH).await, Restored::Done);
            assert_eq!(t.like("u1", WHICH).await.unwrap(), outcome(true, 1));
            t.flush().await;
            assert_eq!(t.like("u2", WHICH).await.unwrap(), outcome(true, 2));
            hold.go_on.notify_one();
        };
        let (slept, ()) = tokio::join!(sleeper, meanwhile);
        slept.unwrap();
        assert_eq!(t.look("u1", WHICH).await, (Some(true), Some(2)), "{point}");
        assert_eq!(t.look("u2", WHICH).await, (Some(true), Some(2)), "{point}");
        t.check().await;
        assert_eq!(
            t.number("SELECT COUNT(*) FROM thumb WHERE target_id = '1'")
                .await,
            2
        );
    }
}

#[tokio::test]
async fn a_mark_that_comes_late_does_not_undo_a_restoration() {
    let t = Stand::start(1).await;
    likes(&t).await;
    t.flush().await;
    let hold = Hold::at("erase.noted");
    let late = gated(hold.clone(), t.ask_gone(WHICH));
    let meanwhile = async {
        hold.reached.notified().await;
        t.eraser().run().await.unwrap();
        assert_eq!(t.bring_back(WHICH).await, Restored::Done);
        hold.go_on.notify_one();
    };
    tokio::join!(late, meanwhile);
    assert_eq!(t.like("u1", WHICH).await.unwrap(), outcome(true, 1));
    t.check().await;
    // Nor one whose look at MySQL was before it.
    let seen = t.peek(0).await;
    let at = thumbd::hot::Moment {
        generation: seen.generation.unwrap(),
        sealed: seen.sealed.0,
    };
    t.hot.forget(0, &[], &[target(WHICH)]).await.unwrap();
    let of = target(WHICH);
    let mark = t.hot.mark_gone(0, &at, &of, seen.sealed, 60);
    assert!(!mark.await.unwrap());
}

#[tokio::test]
async fn a_load_that_began_before_the_rows_went_fills_nothing_in() {
    let t = Stand::start(1).await;
    likes(&t).await;
    t.flush().await;
    t.ask_gone(WHICH).await;
    let _: i64 = t.command(&["DEL", &t.user_key("u1")]).await;
    // Of the flush it has seen the end, and it has read the rows.
    let work = Hold::at("erase.flushed");
    let load = Hold::at("cold.fill");
    let eraser = t.eraser();
    let look = async {
        work.reached.notified().await;
        let load = gated(load.clone(), t.look("u1", "blog:2"));
        assert_eq!(load.await, (Some(true), Some(8)));
    };
    let meanwhile = async {
        load.reached.notified().await;
        work.go_on.notify_one();
    };
    let run = async {
        gated(work.clone(), eraser.run()).await.unwrap();
        load.go_on.notify_one();
    };
    tokio::join!(run, look, meanwhile);
    only_the_other(&t).await;
    t.bring_back(WHICH).await;
    assert_eq!(t.look("u1", WHICH).await, (Some(false), Some(0)));
    t.check().await;
}

#[tokio::test]
async fn a_load_that_began_before_the_request_fills_nothing_in() {
    let t = Stand::start(1).await;
    likes(&t).await;
    t.flush().await;
    let _: i64 = t
        .command(&[
            "DEL",
            &t.key(0, &format!("count:{WHICH}")),
            &t.user_key("u1"),
        ])
        .await;
    // It has read MySQL, and the target goes.
    let hold = Hold::at("cold.fill");
    let look = gated(hold.clone(), t.look("u1", WHICH));
    let meanwhile = async {
        hold.reached.notified().await;
        t.erase_target(WHICH).await;
        let _: i64 = t
            .command(&["DEL", &t.key(0, &format!("count:{WHICH}"))])
            .await;
        hold.go_on.notify_one();
    };
    let (seen, ()) = tokio::join!(look, meanwhile);
    assert_eq!(seen, (Some(false), Some(0)));
    only_the_other(&t).await;
    t.bring_back(WHICH).await;
    assert_eq!(t.look("u1", WHICH).await, (Some(false), Some(0)));
    t.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn likes_that_come_all_the_while_end_with_the_request() {
    for partitions in [1, 4] {
        let t = Stand::start(partitions).await;
        let tasks = (0..4).map(|task| {
            let service = t.service.clone();
            tokio::spawn(async move {
                let mut accepted = 0;
                for n in 0..100_000 {
                    let who = format!("v{task}-{n}");
                    match service.thumb(stand::op(&who, WHICH, true)).await {
                        Ok(done) => accepted += u64::from(done.changed),
                        Err(ServiceError::TargetGone) => return accepted,
                        // Too many users of that moment are loaded.
                        Err(ServiceError::Busy { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
                panic!("the target was never gone");
            })
        });
        let tasks: Vec<_> = tasks.collect();
        until("some are accepted", async || {
            t.look("v0-0", WHICH).await.1 > Some(20)
        })
        .await;
        t.flush().await;
        t.ask_gone(WHICH).await;
        t.is_gone(WHICH).await;
        for task in tasks {
            assert!(task.await.unwrap() > 0);
        }
        t.eraser().run().await.unwrap();
        t.is_gone(WHICH).await;
        t.nothing_left().await;
        t.check().await;
    }
}

#[tokio::test]
async fn a_wrong_mark_and_a_missing_one_are_found_and_mended() {
    let t = Stand::start(1).await;
    likes(&t).await;
    t.erase_target(WHICH).await;
    let generation = t.peek(0).await.generation.unwrap();
    let (gone, there) = (
        t.key(0, &format!("count:{WHICH}")),
        t.key(0, "count:blog:2"),
    );
    t.command::<()>(&["SET", &gone, &format!("{generation}0:0"), "EX", "999"])
        .await;
    t.command::<()>(&["SET", &there, &format!("{generation}g:0"), "EX", "999"])
        .await;
    let report = t.verify().await;
    let mut found: Vec<_> = report
        .differences
        .iter()
        .map(|one| (&*one.key, &*one.found, &*one.expected))
        .collect();
    found.sort_unstable();
    assert_eq!(found, [(WHICH, "0", "gone"), ("blog:2", "gone", "8")]);
    let layout = thumbd::service::layout(&t.settings);
    let stores = (&t.hot, &t.ledger);
    let left = repair::run(stores, &t.flusher, &layout, |_| ()).await;
    assert_eq!(left.unwrap().differences, []);
    only_the_other(&t).await;
}

#[tokio::test]
async fn a_target_that_is_gone_stays_so_under_another_layout() {
    for done in [false, true] {
        let t = Stand::start(1).await;
        likes(&t).await;
        t.flush().await;
        if done {
            t.erase_target(WHICH).await;
        } else {
            t.ask_gone(WHICH).await;
        }
        let wanted = Settings {
            partitions: 4,
            ..t.settings.clone()
        };
        relayout::ensure(&wanted).await.unwrap();
        let t = Stand::on(wanted).await;
        t.is_gone(WHICH).await;
        assert_eq!(t.eraser().run().await.unwrap(), usize::from(!done));
        only_the_other(&t).await;
        assert_eq!(t.bring_back(WHICH).await, Restored::Done);
        assert_eq!(t.like("u1", WHICH).await.unwrap(), outcome(true, 1));
        t.check().await;
    }
}

#[tokio::test]
async fn pruning_forgets_restored_targets_and_no_others() {
    let t = Stand::start(1).await;
    likes(&t).await;
    let gone = t.erase_target(WHICH).await;
    let back = t.erase_target("blog:2").await;
    t.bring_back("blog:2").await;
    let horizon = t.ledger.flush_state().await.unwrap().max_version;
    let horizon = thumbd::domain::Version(horizon.0 + 1);
    t.ledger.prune(horizon).await.unwrap();
    assert!(t.ledger.erasure(gone.id).await.unwrap().is_some());
    assert_eq!(t.ledger.erasure(back.id).await.unwrap(), None);
    t.is_gone(WHICH).await;
    assert_eq!(t.ask_gone(WHICH).await.id, gone.id);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_is_erased_and_restored_over_http() {
    let app = TestApp::with(|settings| settings.count_cache_ms = 60_000).await;
    app.like("u1", "blog/1").await;
    app.like("u2", "blog/1").await;
    // The count is kept in the process.
    for _ in 0..3 {
        let seen = send(app.request(Method::GET, "/v1/likes/blog/1")).await;
        assert_eq!(seen.json()["count"], 2);
    }
    let admin = |method: Method, path: &str| app.request(method, path).bearer_auth(ADMIN_TOKEN);
    let asked = send(admin(Method::DELETE, "/admin/v1/targets/blog/1")).await;
    assert_eq!(asked.status, 202, "{asked:?}");
    let address = asked.headers["location"].to_str().unwrap().to_owned();
    let refused = app.like("u3", "blog/1").await;
    assert_eq!(
        (refused.status, &refused.json()["code"]),
        (410, &"target_gone".into())
    );
    assert!(refused.headers.get("retry-after").is_none());
    let unliked = app.unlike("u1", "blog/1").await;
    assert_eq!(
        unliked.json(),
        json!({ "kind": "blog", "id": "1", "liked": false, "changed": false, "count": 0 })
    );
    let batch = json!([
        { "op": "like", "user": "u1", "kind": "blog", "id": "1" },
        { "op": "like", "user": "u1", "kind": "blog", "id": "2" },
    ]);
    let results = app.batch(batch).await.json();
    assert_eq!(results["results"][0]["status"], 410);
    assert_eq!(results["results"][0]["error"]["field"], "operations[0].id");
    assert_eq!(results["results"][1]["status"], 200);
    let seen = send(app.request(Method::GET, "/v1/likes/blog/1")).await;
    assert_eq!(seen.json()["count"], 0);
    let path = "/admin/v1/targets/blog/1/restore";
    until("the job is done", async || {
        let early = send(admin(Method::PUT, path)).await;
        if early.status == 409 {
            assert_eq!(early.json()["code"], "erasure_open");
        }
        early.status == 200
    })
    .await;
    let job = send(admin(Method::GET, &address)).await.json();
    assert_eq!(job["status"], "done");
    assert_eq!(app.like("u3", "blog/1").await.json()["count"], 1);
    let again = send(admin(Method::PUT, path)).await;
    assert_eq!(
        (again.status, again.json()),
        (200, json!({ "kind": "blog", "id": "1", "changed": false }))
    );
    for path in ["/admin/v1/targets/blog/a%20b", "/admin/v1/targets/Blog/1"] {
        assert_eq!(
            send(admin(Method::DELETE, path)).await.status,
            400,
            "{path}"
        );
    }
    let service = app.request(Method::DELETE, "/admin/v1/targets/blog/1");
    assert_eq!(send(service.bearer_auth(SERVICE_KEY)).await.status, 403);
    app.finish().await;
}

/// Two real processes; the one that was asked dies, and the other goes on.
#[tokio::test(flavor = "multi_thread")]
async fn what_one_process_was_asked_to_erase_another_finishes() {
    for (path, point) in [
        ("/admin/v1/targets/blog/1", "erase.removed"),
        ("/admin/v1/users/u1", "erase.removed"),
    ] {
        let env = crate::servers::env().await;
        let settings = |failpoints| {
            [
                ("THUMBD_SLICE_SECONDS", "3600"),
                ("THUMBD_LEASE_TTL_MS", "3000"),
                ("THUMBD_PARTITIONS", "2"),
                ("FAILPOINTS", failpoints),
            ]
        };
        let failpoint = format!("{point}=hold");
        let mut victim = Serve::start(&env, &settings(&failpoint)).await;
        for n in 0..6 {
            let answer = victim.like(&format!("u{n}"), "blog/1").await;
            assert_eq!(answer.status, 200);
        }
        victim.admin("/admin/v1/flushes").await.unwrap();
        let other = Serve::start(&env, &settings("")).await;
        assert_eq!(other.get("u1", "blog/1").await.json()["count"], 6);
        // Only the victim may have the job first.
        signal(&other.child, "STOP");
        let call = victim.client.delete(format!("{}{path}", victim.url));
        let asked = send(call.bearer_auth(ADMIN_TOKEN)).await;
        assert_eq!(asked.status, 202, "{asked:?}");
        let address = asked.headers["location"].to_str().unwrap().to_owned();
        victim.said(&format!("failpoint {point}")).await;
        victim.kill();
        signal(&other.child, "CONT");
        until("the other has done it", async || {
            let call = other.client.get(format!("{}{address}", other.url));
            send(call.bearer_auth(ADMIN_TOKEN)).await.json()["status"] == "done"
        })
        .await;
        let seen = other.get("u1", "blog/1").await.json();
        if path.ends_with("u1") {
            assert_eq!((&seen["liked"], &seen["count"]), (&false.into(), &5.into()));
        } else {
            assert_eq!((&seen["liked"], &seen["count"]), (&false.into(), &0.into()));
            assert_eq!(other.like("u9", "blog/1").await.status, 410);
        }
        other.verify().await;
        other.stop();
    }
}

/// What one process was told, the others know in the same moment.
#[tokio::test(flavor = "multi_thread")]
async fn another_process_refuses_likes_as_soon_as_the_answer_is_given() {
    let app = TestApp::start().await;
    let other = TestApp::on(app.env.clone(), |_| {}).await;
    for n in 0..5 {
        let path = format!("blog/{n}");
        assert_eq!(other.like("u1", &path).await.status, 200);
        let erase = format!("/admin/v1/targets/{path}");
        let asked = app.admin(Method::DELETE, &erase).await;
        assert_eq!(asked.status, 202);
        assert_eq!(other.like("u2", &path).await.status, 410);
        assert_eq!(other.get("u1", &path).await.json()["liked"], false);
    }
    tokio::time::timeout(Duration::from_secs(120), other.finish())
        .await
        .unwrap();
    app.finish().await;
}
