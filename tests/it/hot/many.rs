//! Many operations in one call, and many calls at once.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use thumbd::config::Settings;
use thumbd::hot::Answer;

use super::{CLOCK, TestHot, WINDOW, both, done, operation};
use crate::stand;

#[tokio::test]
async fn operations_of_one_call_see_each_other() {
    for t in both().await {
        t.resident(&["u1", "u2"], &["blog:1", "blog:2"]).await;
        let pairs = [
            ("u1", "blog:1"),
            ("u2", "blog:1"),
            ("u1", "blog:1"),
            ("u1", "blog:2"),
            ("u3", "blog:1"),
            ("u2", "blog:2"),
        ];
        let answers = t.call(true, &pairs).await;
        let answers: Vec<Answer> = answers.into_iter().map(Result::unwrap).collect();
        let at = t.moment().await;
        let cold = Answer::Cold {
            user: true,
            count: false,
            at,
        };
        let want = [
            done(true, 1),
            done(true, 2),
            done(false, 2),
            done(true, 1),
            cold,
            done(true, 2),
        ];
        assert_eq!(answers, want);
        // Versions are unique, in the order of the operations, and the clock is the last one.
        let slice = t.slice(WINDOW).await;
        let version = |field: &str| slice[field] - CLOCK as i64;
        assert_eq!(
            ["u1 blog:1", "u2 blog:1", "u1 blog:2", "u2 blog:2"].map(version),
            [1, 2, 3, 4]
        );
        assert_eq!((slice.len(), t.peek().await.clock.0), (4, CLOCK + 4));
        assert_eq!(t.like("u1", "blog:1").await, done(false, 2));
    }
}

#[tokio::test]
async fn a_thousand_likes_of_one_target_in_one_call() {
    for partitions in [1, 4] {
        let t = TestHot::on(Settings {
            gather_operations_max: 1000,
            ..stand::settings(partitions).await
        })
        .await;
        let users: Vec<String> = (0..1000).map(|n| format!("u{n}")).collect();
        let names: Vec<&str> = users.iter().map(String::as_str).collect();
        t.resident(&names, &["blog:1"]).await;
        let pairs: Vec<(&str, &str)> = names.iter().map(|name| (*name, "blog:1")).collect();
        let answers = t.call(true, &pairs).await;
        for (at, answer) in answers.into_iter().enumerate() {
            assert_eq!(answer.unwrap(), done(true, at as i64 + 1));
        }
        let versions: BTreeSet<i64> = t.slice(WINDOW).await.into_values().collect();
        let first = CLOCK as i64 + 1;
        assert_eq!(versions, (first..first + 1000).collect());
        let live: i64 = t.command(&["ZCARD", &t.key("slices")]).await;
        assert_eq!(live, 1);
    }
}

#[tokio::test]
async fn fifty_parallel_unlikes_change_once() {
    for t in both().await {
        t.resident(&["u1"], &["blog:1"]).await;
        t.like("u1", "blog:1").await;
        let unlikes = (0..50).map(|_| t.hot.thumb(t.p, false, operation("u1", "blog:1", None)));
        let answers: Vec<Answer> = join_all(unlikes)
            .await
            .into_iter()
            .map(Result::unwrap)
            .collect();
        let changed = answers.iter().filter(|one| **one == done(true, 0)).count();
        let unchanged = answers.iter().filter(|one| **one == done(false, 0)).count();
        assert_eq!((changed, unchanged), (1, 49));
        assert_eq!(t.slice(WINDOW).await["u1 blog:1"], -(CLOCK as i64 + 2));
    }
}

#[tokio::test]
async fn gathered_likes_are_each_answered() {
    for t in both().await {
        let users: Vec<String> = (0..300).map(|n| format!("u{n}")).collect();
        let names: Vec<&str> = users.iter().map(String::as_str).collect();
        t.resident(&names, &["blog:1"]).await;
        let likes = names
            .iter()
            .map(|name| t.hot.thumb(t.p, true, operation(name, "blog:1", None)));
        let parts: BTreeSet<i64> = join_all(likes)
            .await
            .into_iter()
            .map(|answer| match answer.unwrap() {
                Answer::Done {
                    changed: true,
                    part,
                } => part,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(parts, (1..=300).collect());
    }
}

#[tokio::test]
async fn ids_may_hold_whatever_is_printable() {
    for t in both().await {
        let users = ["u{1}", "50%", "a:b|c", "}{", "*?[x]", "\\\"'", "#", "-5"];
        let targets = ["blog:{2}", "blog:%s%d", "blog:x:y|z", "blog:#", "blog:-1"];
        t.resident(&users, &targets).await;
        for user in users {
            for target in targets {
                assert!(matches!(
                    t.like(user, target).await,
                    Answer::Done { changed: true, .. }
                ));
            }
        }
        assert_eq!(t.unlike("}{", "blog:%s%d").await, done(true, 7));
        let slice = t.slice(WINDOW).await;
        assert_eq!(slice.len(), users.len() * targets.len());
        assert!(slice["a:b|c blog:x:y|z"] > 0 && slice["}{ blog:%s%d"] < 0);
    }
}
