//! `thumbd repair`: what it mends, and what happens to whoever reads and likes meanwhile.

use thumbd::flush::Upto;
use thumbd::hot::{Answer, Known, Looked, State};
use thumbd::repair::{self, Change};
use thumbd::service::layout;
use thumbd::steps::gated;

use crate::flush::Hold;
use crate::hot::{TestHot, both, cold_count, cold_user, done};
use crate::stand::{Stand, outcome, target, user};

async fn repair(t: &Stand) -> Vec<Change> {
    let mut changes = Vec::new();
    let stores = (&t.hot, &t.ledger);
    let left = repair::run(stores, &t.flusher, &layout(&t.settings), |change| {
        changes.push(change);
    })
    .await
    .unwrap();
    assert_eq!(left.differences, []);
    changes
}

async fn with_likes(partitions: u16) -> Stand {
    let t = Stand::start(partitions).await;
    for n in 0..12 {
        t.like(&format!("u{n}"), "blog:1").await.unwrap();
    }
    t.flush().await;
    t
}

#[tokio::test]
async fn stored_counts_become_what_the_rows_say_and_redis_follows() {
    for partitions in [1, 4] {
        let t = with_likes(partitions).await;
        t.sql("UPDATE thumb_count SET count = 99").await;
        t.sql("UPDATE thumb_count_part SET count = count + 7 WHERE partition_id = 1")
            .await;
        t.sql("INSERT INTO thumb_count (kind_id, target_id, count) VALUES (1, 'nobody', 5)")
            .await;
        // Loaded as they stand.
        for partition in 0..partitions {
            t.command::<()>(&["DEL", &t.key(partition, "count:blog:1")])
                .await;
        }
        assert_ne!(t.look("u1", "blog:1").await.1, Some(12));
        let wrong = if partitions == 1 { 5 } else { 0 };
        assert_eq!(t.look("u1", "blog:nobody").await.1, Some(wrong));
        let changes = repair(&t).await;
        let counts = changes.iter().filter(|one| matches!(one, Change::Count(_)));
        assert!(counts.count() >= 2, "{changes:?}");
        assert_eq!(t.look("u1", "blog:1").await, (Some(true), Some(12)));
        assert_eq!(t.look("u1", "blog:nobody").await, (Some(false), Some(0)));
        assert_eq!(
            t.number("SELECT count FROM thumb_count WHERE target_id = '1'")
                .await,
            12
        );
        assert_eq!(t.ledger.flush_state().await.unwrap().outside_token, "");
        assert_eq!(repair(&t).await, []);
        t.check().await;
    }
}

#[tokio::test]
async fn what_is_wrong_in_redis_is_loaded_again() {
    for partitions in [1, 4] {
        let t = with_likes(partitions).await;
        let home = t.home("u3");
        let key = t.key(home, "count:blog:1");
        let value: String = t.command(&["GET", &key]).await;
        let spoilt = format!("{}99:0", &value[..16]);
        t.command::<()>(&["SET", &key, &spoilt]).await;
        t.command::<()>(&["HDEL", &t.user_key("u5"), "blog:1"])
            .await;
        let changes = repair(&t).await;
        let want = [
            Change::User {
                partition: t.home("u5"),
                user: user("u5"),
            },
            Change::Target {
                partition: home,
                target: target("blog:1"),
            },
        ];
        for change in &want {
            assert!(changes.contains(change), "{changes:?}");
        }
        assert_eq!(changes.len(), 2);
        assert_eq!(t.look("u5", "blog:1").await, (Some(true), Some(12)));
        assert_eq!(t.like("u5", "blog:1").await.unwrap(), outcome(false, 12));
        t.check().await;
    }
}

#[tokio::test]
async fn a_repair_that_died_before_redis_was_told_makes_everything_cold() {
    for (partitions, point, again) in [
        (1, "repair.counted", false),
        (4, "repair.counted", true),
        (4, "repair.forgotten", false),
    ] {
        let t = with_likes(partitions).await;
        // Both are wrong in the same way, as after a load.
        t.sql("UPDATE thumb_count SET count = count + 1").await;
        t.sql("UPDATE thumb_count_part SET count = count + 1 WHERE partition_id = 3")
            .await;
        for partition in 0..partitions {
            t.command::<()>(&["DEL", &t.key(partition, "count:blog:1")])
                .await;
        }
        assert_eq!(t.look("u1", "blog:1").await.1, Some(13));
        let hold = Hold::at(point);
        let layout = layout(&t.settings);
        let run = gated(
            hold.clone(),
            repair::run((&t.hot, &t.ledger), &t.flusher, &layout, |_| ()),
        );
        tokio::select! {
            _ = run => panic!("it was not held"),
            () = hold.reached.notified() => {}
        }
        assert_ne!(t.ledger.flush_state().await.unwrap().outside_token, "");
        if again {
            // Whoever makes everything cold dies in the middle, too.
            let hold = Hold::at("flush.distrusted");
            let run = gated(hold.clone(), t.flusher.run(|| Upto::Now));
            tokio::select! {
                _ = run => panic!("it was not held"),
                () = hold.reached.notified() => {}
            }
        }
        t.flush().await;
        assert_eq!(t.ledger.flush_state().await.unwrap().outside_token, "");
        assert_eq!(t.look("u1", "blog:1").await, (Some(true), Some(12)));
        t.check().await;
    }
}

#[tokio::test]
async fn the_program_says_what_it_changes() {
    let t = with_likes(1).await;
    t.sql("UPDATE thumb_count SET count = 99").await;
    let (code, text) = t.program(&["repair"]).await;
    assert_eq!(code, Some(0), "{text}");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "count in the database: blog:1: 99 -> 12");
    assert_eq!(lines[1], "1 changes");
    assert!(lines[2].starts_with("0 differences in 12 rows"), "{text}");
}

#[tokio::test]
async fn what_is_forgotten_while_it_is_clean_goes() {
    for t in both().await {
        t.resident(&["u1", "u2"], &["blog:1", "blog:2"]).await;
        let forgotten = t
            .hot
            .forget(t.p, &[user("u1")], &[target("blog:1"), target("blog:9")])
            .await;
        assert_eq!(forgotten.unwrap(), 2);
        assert!(!t.exists("user:u1").await && !t.exists("count:blog:1").await);
        assert!(t.exists("user:u2").await && t.exists("count:blog:2").await);
    }
}

#[tokio::test]
async fn what_is_forgotten_while_it_is_dirty_waits_until_it_has_landed() {
    for t in both().await {
        t.resident(&["u1", "u2"], &["blog:1"]).await;
        t.like("u1", "blog:1").await;
        let slice = t.peek().await.live[0];
        let forgotten = t.hot.forget(t.p, &[user("u1")], &[target("blog:1")]).await;
        assert_eq!(forgotten.unwrap(), 2);
        let at = t.moment().await;
        assert_eq!(t.ttl("user:u1").await, -1);
        // Nobody can tell what it is now, and MySQL does not know yet.
        assert_eq!(t.like("u1", "blog:1").await, Answer::Recovering);
        assert_eq!(t.like("u2", "blog:1").await, Answer::Recovering);
        let looked = t
            .hot
            .lookup(t.p, Some(&user("u1")), &[target("blog:1")])
            .await
            .unwrap();
        let found = Looked::Found {
            at: at.clone(),
            recovering: true,
            targets: vec![(State::Cold, None)],
        };
        assert_eq!(looked, found);
        let (one, count) = (cold_user("u1", &[], true), cold_count("blog:1", 0));
        assert!(
            t.fill(
                &at,
                std::slice::from_ref(&one),
                std::slice::from_ref(&count)
            )
            .await
        );
        assert_eq!(t.like("u1", "blog:1").await, Answer::Recovering);
        // It lands: what is loaded then is right.
        t.seal(slice, "a").await;
        assert!(t.hot.mark(t.p, slice, "a").await.unwrap());
        let cold = t.like("u1", "blog:1").await;
        assert!(
            matches!(
                cold,
                Answer::Cold {
                    user: true,
                    count: true,
                    ..
                }
            ),
            "{cold:?}"
        );
        let one = cold_user("u1", &[("blog:1", 5)], true);
        assert!(
            t.fill(&t.moment().await, &[one], &[cold_count("blog:1", 1)])
                .await
        );
        assert_eq!(t.like("u1", "blog:1").await, done(false, 1));
    }
}

#[tokio::test]
async fn what_mysql_said_before_a_forgetting_is_refused_behind_it() {
    for t in both().await {
        t.resident(&["u1"], &["blog:1", "blog:2"]).await;
        let before = t.moment().await;
        partial(&t).await;
        t.hot
            .forget(t.p, &[user("u1")], &[target("blog:1")])
            .await
            .unwrap();
        let (one, count) = (cold_user("u1", &[], true), cold_count("blog:1", 7));
        assert!(!t.fill(&before, &[one], &[count]).await);
        assert!(!t.exists("user:u1").await && !t.exists("count:blog:1").await);
        let known = Known {
            at: before,
            thumbed: true,
        };
        let answer = t.known(true, ("u9", "blog:2"), known).await;
        assert!(matches!(answer, Answer::NotHeld { .. }), "{answer:?}");
    }
}

/// A user who does not hold everything.
async fn partial(t: &TestHot) {
    let one = cold_user("u9", &[], false);
    assert!(t.fill(&t.moment().await, &[one], &[]).await);
}
