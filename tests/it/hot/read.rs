//! Lookups and renewals.

use thumbd::hot::{Looked, Moment, State};

use super::{TTL, TestHot, both, cold_count, cold_user};
use crate::stand::{self, target, user};

async fn look(t: &TestHot, who: Option<&str>, what: &[&str]) -> Vec<(State, Option<i64>)> {
    let (who, what) = (
        who.map(user),
        what.iter().map(|one| target(one)).collect::<Vec<_>>(),
    );
    match t.hot.lookup(t.p, who.as_ref(), &what).await.unwrap() {
        Looked::Found {
            at,
            recovering: false,
            targets,
        } => {
            assert_eq!(at, t.moment().await);
            targets
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn states_and_counts_are_read_in_order() {
    for t in both().await {
        let all = ["blog:1", "blog:2", "blog:3"];
        let cold = [(State::Cold, None); 3];
        assert_eq!(look(&t, Some("u1"), &all).await, cold);
        assert_eq!(look(&t, None, &all).await, [(State::NoUser, None); 3]);
        let at = t.moment().await;
        let users = [
            cold_user("u1", &[("blog:1", 5)], true),
            cold_user("u2", &[("blog:1", 5), ("blog:2", 6)], false),
        ];
        let counts = [cold_count("blog:1", 7), cold_count("blog:2", 0)];
        assert!(t.fill(&at, &users, &counts).await);
        t.unlike("u2", "blog:2").await;
        let want = [
            (State::Thumbed, Some(7)),
            (State::Not, Some(-1)),
            (State::Not, None),
        ];
        assert_eq!(look(&t, Some("u1"), &all).await, want);
        // Partial: an unlike is known, what is absent is not.
        let want = [
            (State::NotHeld, None),
            (State::Not, Some(-1)),
            (State::Thumbed, Some(7)),
        ];
        let turned = ["blog:3", "blog:2", "blog:1"];
        assert_eq!(look(&t, Some("u2"), &turned).await, want);
        let want = [(State::NoUser, Some(7)), (State::NoUser, Some(7))];
        assert_eq!(look(&t, None, &["blog:1", "blog:1"]).await, want);
        // Of another generation means cold.
        let old = "0123456789abcdef";
        let key = t.key("count:blog:1");
        t.command::<()>(&["SET", &key, &format!("{old}9:0")]).await;
        let key = t.key("user:u1");
        t.command::<()>(&["HSET", &key, "#", &format!("{old}c0")])
            .await;
        let want = [(State::Cold, None)];
        assert_eq!(look(&t, Some("u1"), &["blog:1"]).await, want);
    }
}

#[tokio::test]
async fn two_hundred_targets_in_one_call() {
    for t in both().await {
        let names: Vec<String> = (0..200).map(|n| format!("blog:{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        t.resident(&["u1"], &names).await;
        t.like("u1", "blog:150").await;
        let seen = look(&t, Some("u1"), &names).await;
        for (at, one) in seen.into_iter().enumerate() {
            let want = if at == 150 {
                (State::Thumbed, Some(1))
            } else {
                (State::Not, Some(0))
            };
            assert_eq!(one, want);
        }
    }
}

#[tokio::test]
async fn recovering_uninitialised_and_another_layout() {
    for t in both().await {
        t.set("barrier", 5).await;
        let one = [target("blog:1")];
        let looked = t.hot.lookup(t.p, None, &one).await.unwrap();
        let want = Looked::Found {
            at: Moment {
                generation: t.generation.clone(),
                sealed: 0,
            },
            recovering: true,
            targets: vec![(State::NoUser, None)],
        };
        assert_eq!(looked, want);
        t.set("layout", 9).await;
        let error = t.hot.lookup(t.p, None, &one).await.unwrap_err();
        assert!(error.to_string().contains("laid out as '9'"), "{error}");
        t.command::<()>(&["DEL", &t.key("meta")]).await;
        let looked = t.hot.lookup(t.p, None, &one).await.unwrap();
        assert_eq!(looked, Looked::Uninitialised);
    }
}

#[tokio::test]
async fn only_what_has_lived_half_is_renewed() {
    for t in both().await {
        t.resident(&["u1", "u2"], &["blog:1", "blog:2", "blog:3"])
            .await;
        t.like("u1", "blog:1").await;
        let age = async |rest: &str, left: u64| {
            let left = left.to_string();
            stand::command::<()>(&t.redis, &["EXPIRE", &t.key(rest), &left]).await;
        };
        age("user:u2", TTL / 2 - 1).await;
        age("count:blog:2", TTL / 2 - 1).await;
        age("count:blog:3", TTL / 2 + 60).await;
        let all = ["blog:1", "blog:2", "blog:3", "blog:absent"].map(target);
        let renew = async |who: &str| {
            let who = user(who);
            t.hot.renew(t.p, Some(&who), &all, TTL).await.unwrap()
        };
        assert_eq!(renew("u2").await, 2);
        assert!(t.ttl("user:u2").await > TTL as i64 - 60);
        assert!(t.ttl("count:blog:2").await > TTL as i64 - 60);
        assert!(t.ttl("count:blog:3").await < TTL as i64 - 60);
        assert_eq!(renew("u1").await, 0);
        assert_eq!(t.ttl("user:u1").await, -1, "pinned stays pinned");
        assert_eq!(t.ttl("count:blog:1").await, -1, "pinned stays pinned");
        assert!(!t.exists("count:blog:absent").await);
    }
}
