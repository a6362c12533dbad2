//! Fills: when they are accepted, and what they leave alone.

use thumbd::domain::{SliceId, Version};
use thumbd::hot::{Answer, ColdUser};

use super::{TTL, both, cold_count, cold_user, done};
use crate::stand::target;

#[tokio::test]
async fn a_fill_makes_resident() {
    for t in both().await {
        let at = t.moment().await;
        let users = [
            cold_user("u1", &[("blog:1", 5), ("blog:2", 6)], true),
            cold_user("u2", &[], true),
        ];
        let counts = [cold_count("blog:1", 7), cold_count("blog:3", -2)];
        assert!(t.fill(&at, &users, &counts).await);
        assert_eq!(t.marker("u1").await, Some(format!("{}c0", t.generation)));
        for rest in ["user:u1", "user:u2", "count:blog:1", "count:blog:3"] {
            let ttl = t.ttl(rest).await;
            assert!(ttl > TTL as i64 - 60 && ttl <= TTL as i64, "{rest} {ttl}");
        }
        assert_eq!(t.like("u1", "blog:1").await, done(false, 7));
        assert_eq!(t.like("u2", "blog:1").await, done(true, 8));
        // A count below zero is wrong, and still counts as what it is.
        assert_eq!(t.like("u2", "blog:3").await, done(true, -1));
        // A fill writes no slice.
        assert_eq!(t.peek().await.live.len(), 1);
    }
}

#[tokio::test]
async fn a_fill_is_refused_once_something_may_have_landed() {
    for t in both().await {
        t.seal(SliceId(10), "a").await;
        let at = t.moment().await;
        let (user, count) = (cold_user("u1", &[], true), cold_count("blog:1", 0));
        // Sealed later, not landed: what came since is in Redis still.
        t.seal(SliceId(20), "a").await;
        t.set("done", 10).await;
        assert!(t.fill(&at, std::slice::from_ref(&user), &[]).await);
        t.set("done", 11).await;
        assert!(!t.fill(&at, &[], std::slice::from_ref(&count)).await);
        assert!(!t.exists("count:blog:1").await);
        assert!(t.fill(&t.moment().await, &[], &[count]).await);
    }
}

#[tokio::test]
async fn a_fill_of_another_generation_is_refused() {
    for t in both().await {
        let mut at = t.moment().await;
        at.generation = "0123456789abcdef".to_owned();
        let (user, count) = (cold_user("u1", &[], true), cold_count("blog:1", 0));
        assert!(!t.fill(&at, &[user], &[count]).await);
        assert!(!t.exists("user:u1").await && !t.exists("count:blog:1").await);
    }
}

#[tokio::test]
async fn what_is_resident_is_not_overwritten() {
    for t in both().await {
        let at = t.moment().await;
        t.resident(&["u1"], &["blog:1"]).await;
        t.like("u1", "blog:1").await;
        let (user, count) = (
            cold_user("u1", &[("blog:2", 5)], true),
            cold_count("blog:1", 0),
        );
        assert!(t.fill(&at, &[user], &[count]).await);
        assert_eq!(t.like("u1", "blog:1").await, done(false, 1));
        assert!(matches!(
            t.like("u1", "blog:2").await,
            Answer::Cold { count: true, .. }
        ));
        assert_eq!(t.ttl("user:u1").await, -1, "still pinned");
        assert_eq!(t.ttl("count:blog:1").await, -1, "still pinned");
    }
}

#[tokio::test]
async fn what_is_of_another_generation_is_replaced_whole() {
    for t in both().await {
        let (user, count) = (t.key("user:u1"), t.key("count:blog:1"));
        let old = "0123456789abcdef";
        let marker = format!("{old}c999");
        t.command::<()>(&["HSET", &user, "#", &marker, "blog:1", "5", "blog:9", "6"])
            .await;
        t.command::<()>(&["SET", &count, &format!("{old}77:999")])
            .await;
        let filled = cold_user("u1", &[("blog:2", 8)], true);
        let at = t.moment().await;
        assert!(t.fill(&at, &[filled], &[cold_count("blog:1", 3)]).await);
        let fields: std::collections::BTreeMap<String, String> =
            t.command(&["HGETALL", &user]).await;
        let want = [("#", format!("{}c0", t.generation)), ("blog:2", "8".into())];
        assert_eq!(fields, want.map(|(k, v)| (k.to_owned(), v)).into());
        assert!(t.ttl("user:u1").await > 0 && t.ttl("count:blog:1").await > 0);
        assert_eq!(t.like("u1", "blog:1").await, done(true, 4));
    }
}

#[tokio::test]
async fn ten_thousand_likes_of_one_user() {
    for t in both().await {
        let thumbs = (0..10_000)
            .map(|n| (target(&format!("blog:{n}")), Version(n + 1)))
            .collect();
        let user = ColdUser {
            thumbs,
            ..cold_user("u1", &[], true)
        };
        let at = t.moment().await;
        let small = cold_user("u2", &[("blog:1", 1)], true);
        assert!(
            t.fill(&at, &[user, small], &[cold_count("blog:1", 2)])
                .await
        );
        let fields: u64 = t.command(&["HLEN", &t.key("user:u1")]).await;
        assert_eq!(fields, 10_001);
        let last: u64 = t.command(&["HGET", &t.key("user:u1"), "blog:9999"]).await;
        assert_eq!(last, 10_000);
        assert_eq!(t.like("u2", "blog:1").await, done(false, 2));
    }
}
