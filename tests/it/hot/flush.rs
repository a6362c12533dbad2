//! Seal, mark, unpin and drop: what the flusher calls, and what one that was overtaken cannot do.

use thumbd::domain::SliceId;
use thumbd::hot::Sealed;

use super::{TestHot, WINDOW, both, done};
use crate::stand;

#[tokio::test]
async fn a_seal_lists_what_is_live_up_to_it() {
    for t in both().await {
        t.resident(&["u1"], &["blog:1"]).await;
        t.like("u1", "blog:1").await;
        t.seal(WINDOW, "a").await;
        t.unlike("u1", "blog:1").await;
        let second = SliceId(WINDOW.0 + 1);
        // Sealed further than asked already: the answer goes as far as that.
        let seal = |upto: u64| t.hot.seal(t.p, SliceId(upto), SliceId(0), "b", 0);
        let want = |sealed: SliceId, live: Vec<SliceId>| Sealed::Done {
            done: SliceId(0),
            sealed,
            live,
            over: Vec::new(),
        };
        assert_eq!(seal(3).await.unwrap(), want(WINDOW, vec![WINDOW]));
        assert_eq!(t.peek().await.fence, "b");
        let all = vec![WINDOW, second];
        assert_eq!(seal(second.0).await.unwrap(), want(second, all));
        assert_eq!(t.peek().await.sealed, second);
    }
}

#[tokio::test]
async fn a_partition_behind_or_empty_is_not_sealed() {
    for t in both().await {
        t.seal(SliceId(10), "a").await;
        let seal = |last: u64| t.hot.seal(t.p, SliceId(99), SliceId(last), "b", 0);
        assert_eq!(seal(11).await.unwrap(), Sealed::Behind);
        let peek = t.peek().await;
        assert_eq!((peek.sealed, &*peek.fence), (SliceId(10), "a"));
        assert!(matches!(seal(10).await.unwrap(), Sealed::Done { .. }));
    }
    for partitions in [1, 4] {
        let t = TestHot::empty(stand::settings(partitions).await).await;
        let sealed = t.hot.seal(t.p, SliceId(1), SliceId(0), "a", 0).await;
        assert_eq!(sealed.unwrap(), Sealed::Uninitialised);
        assert_eq!(t.peek().await.generation, None);
    }
}

#[tokio::test]
async fn a_mark_only_moves_forward() {
    for t in both().await {
        t.seal(SliceId(50), "a").await;
        let mark = |id: u64| t.hot.mark(t.p, SliceId(id), "a");
        assert!(mark(20).await.unwrap());
        assert!(mark(10).await.unwrap());
        assert_eq!(t.peek().await.done, SliceId(20));
    }
}

#[tokio::test]
async fn an_overtaken_flusher_does_nothing() {
    for t in both().await {
        t.resident(&["u1"], &["blog:1"]).await;
        t.like("u1", "blog:1").await;
        t.seal(WINDOW, "old").await;
        t.seal(WINDOW, "new").await;
        let both: (&[&str], &[&str]) = (&["u1"], &["blog:1"]);
        let before = t.peek().await;
        assert!(!t.hot.mark(t.p, WINDOW, "old").await.unwrap());
        assert!(!t.unpin(WINDOW, "old", both, 100).await);
        let drop = |fence: &'static str| t.hot.drop_slice(t.p, WINDOW, fence, 0, &[]);
        assert!(!drop("old").await.unwrap());
        let mut after = t.peek().await;
        after.time_ms = before.time_ms;
        assert_eq!(after, before);
        assert_eq!(t.ttl("user:u1").await, -1);
        assert_eq!(t.ttl("count:blog:1").await, -1);
        assert_eq!(t.slice(WINDOW).await.len(), 1);
        assert!(t.hot.mark(t.p, WINDOW, "new").await.unwrap());
        assert!(t.unpin(WINDOW, "new", both, 100).await);
        assert!(drop("new").await.unwrap());
        assert!(t.ttl("user:u1").await > 0);
    }
}

#[tokio::test]
async fn a_dropped_slice_is_kept_a_while() {
    for t in both().await {
        t.resident(&["u1"], &["blog:1"]).await;
        t.like("u1", "blog:1").await;
        t.seal(WINDOW, "a").await;
        let second = SliceId(WINDOW.0 + 1);
        let kept = format!("kept:{WINDOW}");
        assert!(
            t.hot
                .drop_slice(t.p, WINDOW, "a", 60_000, &[])
                .await
                .unwrap()
        );
        let peek = t.peek().await;
        assert_eq!((peek.live, peek.kept), (vec![], vec![WINDOW]));
        assert_eq!(t.slice(WINDOW).await.len(), 0);
        assert_eq!(t.ttl(&kept).await, -1, "no TTL: MySQL may be down for long");
        // Twice does no harm.
        assert!(
            t.hot
                .drop_slice(t.p, WINDOW, "a", 60_000, &[])
                .await
                .unwrap()
        );
        assert!(t.exists(&kept).await);

        t.unlike("u1", "blog:1").await;
        t.seal(second, "b").await;
        // Not kept long enough: it stays, whoever lists it.
        let over = [WINDOW];
        assert!(
            t.hot
                .drop_slice(t.p, second, "b", 60_000, &over)
                .await
                .unwrap()
        );
        assert_eq!(t.peek().await.kept, [WINDOW, second]);
        let sealed = t.hot.seal(t.p, second, SliceId(0), "c", 60_000).await;
        assert!(matches!(sealed.unwrap(), Sealed::Done { over, .. } if over.is_empty()));

        let sealed = t.hot.seal(t.p, second, SliceId(0), "d", 0).await.unwrap();
        assert!(matches!(sealed, Sealed::Done { over, .. } if over == [WINDOW, second]));
        let third = SliceId(WINDOW.0 + 2);
        assert!(t.hot.drop_slice(t.p, third, "d", 0, &over).await.unwrap());
        assert!(!t.exists(&kept).await);
        assert_eq!(t.peek().await.kept, [second]);
    }
}

#[tokio::test]
async fn a_user_over_the_limit_goes_at_once() {
    for t in both().await {
        let targets = ["blog:1", "blog:2", "blog:3"];
        t.resident(&["u1", "u2"], &targets).await;
        for target in targets {
            t.like("u1", target).await;
        }
        t.like("u2", "blog:1").await;
        t.seal(WINDOW, "a").await;
        let users: (&[&str], &[&str]) = (&["u1", "u2"], &[]);
        // The marker counts as a field.
        assert!(t.unpin(WINDOW, "a", users, 3).await);
        assert!(!t.exists("user:u1").await);
        assert!(t.ttl("user:u2").await > 0);
        // Not while it is dirty.
        let again = async || {
            t.like("u2", "blog:2").await;
            t.like("u2", "blog:3").await
        };
        assert_eq!(again().await, done(true, 2));
        assert!(t.unpin(WINDOW, "a", users, 3).await);
        assert_eq!(t.ttl("user:u2").await, -1);
    }
}

#[tokio::test]
async fn a_slice_is_read_in_pages() {
    let t = TestHot::start(1).await;
    let key = t.key("slice:5");
    let mut command = redis::cmd("HSET");
    command.arg(&key);
    for n in 0..5000 {
        command.arg(format!("u{n} blog:1")).arg(n + 1);
    }
    command
        .query_async::<()>(&mut t.redis.clone())
        .await
        .unwrap();
    assert_eq!(t.hot.slice_length(0, SliceId(5)).await.unwrap(), 5000);
    let (mut cursor, mut pages) = (0, 0);
    let mut fields = std::collections::HashMap::new();
    loop {
        let (next, page) = t.hot.slice_page(0, SliceId(5), cursor).await.unwrap();
        fields.extend(page);
        (cursor, pages) = (next, pages + 1);
        if cursor == 0 {
            break;
        }
    }
    assert_eq!(fields.len(), 5000);
    assert!(pages > 3, "{pages}");
    assert_eq!(fields[&b"u7 blog:1"[..]], b"8");
    assert_eq!(t.hot.slices_found(0).await.unwrap(), [SliceId(5)]);
}
