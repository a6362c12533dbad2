//! Reset and adopt: what becomes of a partition that was found damaged.

use thumbd::domain::{SliceId, Version};
use thumbd::hot::{Answer, Peek, Reset};

use super::{CLOCK, TestHot, WINDOW, both, cold_user, done};
use crate::stand;

const NEW: &str = "fedcba9876543210";

fn reset(seen: &Peek, last: u64, max_version: u64, landed: Option<u64>) -> Reset<'_> {
    Reset {
        seen,
        generation: NEW,
        last: SliceId(last),
        max_version: Version(max_version),
        landed: landed.map(SliceId),
    }
}

#[tokio::test]
async fn an_empty_partition_begins_where_mysql_is() {
    for partitions in [1, 4] {
        let t = TestHot::empty(stand::settings(partitions).await).await;
        let seen = t.peek().await;
        assert_eq!((&seen.generation, &*seen.layout), (&None, ""));
        let start = reset(&seen, 70, CLOCK, None);
        assert!(t.hot.reset(t.p, start.clone()).await.unwrap());
        let peek = t.peek().await;
        assert_eq!(peek.generation.as_deref(), Some(NEW));
        assert_eq!((peek.sealed, peek.clock), (SliceId(70), Version(CLOCK)));
        assert_eq!((peek.done, peek.barrier), (SliceId(0), SliceId(0)));
        assert_eq!((peek.layout, &*peek.fence), (t.hot.layout(), ""));
        // Two start at once: the second one finds it done.
        assert!(!t.hot.reset(t.p, start).await.unwrap());
    }
}

#[tokio::test]
async fn rolled_back_makes_everything_cold_until_the_live_slices_landed() {
    for t in both().await {
        t.resident(&["u1"], &["blog:1"]).await;
        t.like("u1", "blog:1").await;
        t.seal(SliceId(5), "a").await;
        let seen = t.peek().await;
        let last = WINDOW.0 + 77;
        let late = CLOCK + 50_000_000;
        assert!(
            t.hot
                .reset(t.p, reset(&seen, last, late, None))
                .await
                .unwrap()
        );
        let peek = t.peek().await;
        assert_eq!((peek.sealed, peek.barrier), (SliceId(last), WINDOW));
        assert_eq!((peek.clock, peek.done), (Version(late), SliceId(0)));
        assert_eq!((peek.live, &*peek.fence), (vec![WINDOW], ""));
        assert_eq!(t.like("u1", "blog:1").await, Answer::Recovering);
        assert!(!t.hot.mark(t.p, WINDOW, "a").await.unwrap());
        t.seal(SliceId(last), "b").await;
        assert!(t.hot.mark(t.p, WINDOW, "b").await.unwrap());
        let cold = t.like("u1", "blog:1").await;
        assert!(matches!(
            cold,
            Answer::Cold {
                user: true,
                count: true,
                ..
            }
        ));
        // Versions go on behind what MySQL has.
        t.resident(&["u1"], &["blog:1"]).await;
        t.like("u1", "blog:1").await;
        assert_eq!(t.peek().await.clock, Version(late + 1));
    }
}

#[tokio::test]
async fn a_live_slice_beyond_last_is_sealed() {
    for t in both().await {
        t.resident(&["u1"], &["blog:1"]).await;
        t.like("u1", "blog:1").await;
        let seen = t.peek().await;
        assert!(t.hot.reset(t.p, reset(&seen, 9, 1, None)).await.unwrap());
        let peek = t.peek().await;
        assert_eq!((peek.sealed, peek.clock.0), (WINDOW, CLOCK + 1));
    }
}

#[tokio::test]
async fn what_mysql_forgot_lives_again() {
    for t in both().await {
        t.resident(&["u1", "u2"], &["blog:1"]).await;
        // Two slices land; the first of them MySQL still knows.
        let second = SliceId(WINDOW.0 + 1);
        for (slice, user) in [(WINDOW, "u1"), (second, "u2")] {
            t.like(user, "blog:1").await;
            t.seal(slice, "a").await;
            assert!(t.hot.mark(t.p, slice, "a").await.unwrap());
            assert!(
                t.hot
                    .drop_slice(t.p, slice, "a", 60_000, &[])
                    .await
                    .unwrap()
            );
        }
        let seen = t.peek().await;
        assert_eq!((&seen.live, &seen.kept), (&vec![], &vec![WINDOW, second]));
        let behind = reset(&seen, WINDOW.0, CLOCK, Some(WINDOW.0));
        assert!(t.hot.reset(t.p, behind).await.unwrap());
        let peek = t.peek().await;
        assert_eq!((peek.live, peek.kept), (vec![second], vec![WINDOW]));
        assert_eq!((peek.done, peek.barrier), (WINDOW, second));
        assert!(t.slice(second).await.contains_key("u2 blog:1"));
        assert!(!t.exists(&format!("kept:{second}")).await);
        assert_eq!(t.like("u1", "blog:1").await, Answer::Recovering);
    }
}

#[tokio::test]
async fn a_reset_of_what_has_changed_does_nothing() {
    for t in both().await {
        t.resident(&["u1", "u2"], &["blog:1"]).await;
        let empty = t.peek().await;
        t.like("u1", "blog:1").await;
        let unchanged = async || {
            assert_eq!(t.peek().await.generation.as_ref(), Some(&t.generation));
            assert_eq!(t.like("u1", "blog:1").await, done(false, 1));
        };
        // A slice more than the caller saw.
        assert!(!t.hot.reset(t.p, reset(&empty, 9, 1, None)).await.unwrap());
        unchanged().await;
        // Another id in its place, and one that is kept now.
        let mut other = t.peek().await;
        other.live = vec![SliceId(1)];
        assert!(!t.hot.reset(t.p, reset(&other, 9, 1, None)).await.unwrap());
        let live = t.peek().await;
        t.seal(WINDOW, "a").await;
        assert!(
            t.hot
                .drop_slice(t.p, WINDOW, "a", 60_000, &[])
                .await
                .unwrap()
        );
        assert!(!t.hot.reset(t.p, reset(&live, 9, 1, None)).await.unwrap());
        unchanged().await;
        // Somebody else's reset came first.
        let mut old = t.peek().await;
        old.generation = Some("0123456789abcdef".to_owned());
        assert!(!t.hot.reset(t.p, reset(&old, 9, 1, None)).await.unwrap());
        unchanged().await;
    }
}

#[tokio::test]
async fn a_slice_that_is_not_listed_is_adopted() {
    for t in both().await {
        t.resident(&["u1"], &["blog:1"]).await;
        t.like("u1", "blog:1").await;
        let adopt = |id: SliceId| t.hot.adopt(t.p, id, NEW);
        // Listed, and open.
        assert!(!adopt(WINDOW).await.unwrap());
        let id = WINDOW.to_string();
        t.command::<()>(&["ZREM", &t.key("slices"), &id]).await;
        assert!(!adopt(WINDOW).await.unwrap(), "not sealed");
        let upto = SliceId(WINDOW.0 + 9);
        t.seal(upto, "a").await;
        assert!(t.hot.mark(t.p, upto, "a").await.unwrap());
        assert!(!adopt(SliceId(4)).await.unwrap(), "not there");
        assert!(adopt(WINDOW).await.unwrap());
        let peek = t.peek().await;
        assert_eq!(peek.live, [WINDOW]);
        assert_eq!((peek.done.0, peek.barrier), (WINDOW.0 - 1, WINDOW));
        assert_eq!(peek.generation.as_deref(), Some(NEW));
        assert_eq!(&*peek.fence, "", "the flusher before must not go on");
        assert!(!adopt(WINDOW).await.unwrap());
        assert_eq!(t.like("u1", "blog:1").await, Answer::Recovering);
    }
}

#[tokio::test]
async fn adopt_does_nothing_in_an_empty_partition() {
    for partitions in [1, 4] {
        let t = TestHot::empty(stand::settings(partitions).await).await;
        t.command::<()>(&["HSET", &t.key("slice:5"), "u1 blog:1", "5"])
            .await;
        assert!(!t.hot.adopt(t.p, SliceId(5), NEW).await.unwrap());
    }
}

#[tokio::test]
async fn a_fill_from_before_a_reset_is_refused() {
    for t in both().await {
        let at = t.moment().await;
        let seen = t.peek().await;
        assert!(t.hot.reset(t.p, reset(&seen, 9, 1, None)).await.unwrap());
        assert!(!t.fill(&at, &[cold_user("u1", &[], true)], &[]).await);
    }
}
