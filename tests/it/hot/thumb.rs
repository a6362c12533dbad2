//! Single likes and unlikes: outcomes, what they leave in Redis, clocks, slices and pins.

use thumbd::domain::SliceId;
use thumbd::hot::{Answer, HotError, Known, Moment};

use super::{CLOCK, TTL, TestHot, WINDOW, both, cold_count, cold_user, done};
use crate::stand::{self, raw_redis};

#[tokio::test]
async fn changed_and_unchanged() {
    for t in both().await {
        t.resident(&["u1"], &["blog:1"]).await;
        assert_eq!(t.unlike("u1", "blog:1").await, done(false, 0));
        // What changes nothing writes nothing.
        assert_eq!(t.peek().await.live, []);
        assert_eq!(t.peek().await.clock.0, CLOCK);
        assert_eq!(t.like("u1", "blog:1").await, done(true, 1));
        assert_eq!(t.like("u1", "blog:1").await, done(false, 1));
        assert_eq!(t.unlike("u1", "blog:1").await, done(true, 0));
        assert_eq!(t.unlike("u1", "blog:1").await, done(false, 0));
        let peek = t.peek().await;
        assert_eq!((peek.live, peek.clock.0), (vec![WINDOW], CLOCK + 2));
        let version = CLOCK as i64 + 2;
        assert_eq!(
            t.slice(WINDOW).await,
            [("u1 blog:1".to_owned(), -version)].into()
        );
        let marker = format!("{}c{WINDOW}", t.generation);
        assert_eq!(t.marker("u1").await, Some(marker));
        let fields: u32 = t.command(&["HLEN", &t.key("user:u1")]).await;
        assert_eq!(fields, 1, "an unlike of a complete user leaves nothing");
        let count: String = t.command(&["GET", &t.key("count:blog:1")]).await;
        assert_eq!(count, format!("{}0:{WINDOW}", t.generation));
    }
}

#[tokio::test]
async fn what_is_cold_is_named() {
    for t in both().await {
        let at = t.moment().await;
        let cold = |user, count| Answer::Cold {
            user,
            count,
            at: at.clone(),
        };
        assert_eq!(t.like("u1", "blog:1").await, cold(true, true));
        t.resident(&["u1"], &["blog:2"]).await;
        assert_eq!(t.like("u1", "blog:1").await, cold(false, true));
        assert_eq!(t.like("u2", "blog:2").await, cold(true, false));
        // What is resident in another generation is not.
        let key = t.key("user:u3");
        t.command::<()>(&["HSET", &key, "#", "0123456789abcdefc0"])
            .await;
        assert_eq!(t.like("u3", "blog:2").await, cold(true, false));
        assert_eq!(t.peek().await.live, []);
    }
}

#[tokio::test]
async fn the_moment_is_that_of_the_script() {
    for t in both().await {
        t.seal(SliceId(5), "a").await;
        let Answer::Cold { at, .. } = t.like("u1", "blog:1").await else {
            panic!("not cold");
        };
        let generation = t.generation.clone();
        assert_eq!(
            at,
            Moment {
                generation,
                sealed: 5
            }
        );
    }
}

#[tokio::test]
async fn an_empty_partition_says_so() {
    for partitions in [1, 4] {
        let t = TestHot::empty(stand::settings(partitions).await).await;
        assert_eq!(t.like("u1", "blog:1").await, Answer::Uninitialised);
        assert_eq!(t.unlike("u1", "blog:1").await, Answer::Uninitialised);
        assert_eq!(t.peek().await.generation, None);
    }
}

#[tokio::test]
async fn another_layout_is_refused() {
    let t = TestHot::start(4).await;
    let mut settings = t.settings.clone();
    settings.partitions = 2;
    settings.slice_seconds = 7;
    let other = TestHot {
        hot: stand::hot(&settings).await,
        redis: raw_redis(&settings).await,
        p: 0,
        generation: String::new(),
        settings,
    };
    let answer = other.call(true, &[("u1", "blog:1")]).await.remove(0);
    let layout = HotError::Layout {
        found: t.hot.layout(),
        wanted: other.hot.layout(),
    };
    assert_eq!(answer.unwrap_err().to_string(), layout.to_string());
}

#[tokio::test]
async fn recovering_concerns_only_what_is_cold() {
    for t in both().await {
        t.resident(&["u1"], &["blog:1"]).await;
        t.set("barrier", 7).await;
        assert_eq!(t.like("u1", "blog:1").await, done(true, 1));
        assert_eq!(t.like("u2", "blog:1").await, Answer::Recovering);
        assert_eq!(t.like("u1", "blog:2").await, Answer::Recovering);
        t.set("done", 7).await;
        assert!(matches!(
            t.like("u2", "blog:1").await,
            Answer::Cold { user: true, .. }
        ));
    }
}

#[tokio::test]
async fn a_clock_behind_is_overtaken_by_time() {
    for t in both().await {
        t.resident(&["u1"], &["blog:1"]).await;
        t.set("clock", 1).await;
        t.like("u1", "blog:1").await;
        let peek = t.peek().await;
        assert!(peek.clock.0 / 1000 <= peek.time_ms && peek.clock.0 / 1000 + 60_000 > peek.time_ms);
        let window = peek.clock.0 / 10_000_000 * 10_000;
        assert_eq!(peek.live, [SliceId(window)]);
    }
}

#[tokio::test]
async fn the_clock_moves_the_window() {
    for t in both().await {
        t.resident(&["u1"], &["blog:1", "blog:2", "blog:3"]).await;
        t.like("u1", "blog:1").await;
        // The last version of this window, then the first of the next.
        t.set("clock", CLOCK + 10_000_000 - 2).await;
        t.like("u1", "blog:2").await;
        assert_eq!(t.peek().await.live, [WINDOW]);
        t.like("u1", "blog:3").await;
        let next = SliceId(WINDOW.0 + 10_000);
        assert_eq!(t.peek().await.live, [WINDOW, next]);
        assert_eq!(
            t.slice(next).await,
            [("u1 blog:3".to_owned(), CLOCK as i64 + 10_000_000)].into()
        );
    }
}

#[tokio::test]
async fn behind_a_seal_another_slice_is_open() {
    for t in both().await {
        t.resident(&["u1"], &["blog:1"]).await;
        t.like("u1", "blog:1").await;
        let upto = SliceId(WINDOW.0 + 5);
        assert_eq!(t.seal(upto, "a").await, [WINDOW]);
        // The caller's guess is wrong now, and nobody notices.
        assert_eq!(t.unlike("u1", "blog:1").await, done(true, 0));
        let open = SliceId(upto.0 + 1);
        assert_eq!(t.peek().await.live, [WINDOW, open]);
        // Each slice has its own final state.
        assert!(t.slice(WINDOW).await["u1 blog:1"] > 0);
        assert!(t.slice(open).await["u1 blog:1"] < 0);
        let marker = format!("{}c{open}", t.generation);
        assert_eq!(t.marker("u1").await, Some(marker));
    }
}

#[tokio::test]
async fn an_operation_pins_and_a_landed_slice_unpins() {
    for t in both().await {
        t.resident(&["u1"], &["blog:1", "blog:2"]).await;
        assert!(t.ttl("user:u1").await > 0 && t.ttl("count:blog:1").await > 0);
        t.like("u1", "blog:1").await;
        assert_eq!(t.ttl("user:u1").await, -1);
        assert_eq!(t.ttl("count:blog:1").await, -1);
        assert!(t.ttl("count:blog:2").await > 0, "untouched, so not pinned");
        t.seal(WINDOW, "a").await;
        // A later slice keeps them dirty.
        t.like("u1", "blog:2").await;
        let both: (&[&str], &[&str]) = (&["u1"], &["blog:1", "blog:2"]);
        assert!(t.unpin(WINDOW, "a", both, 100).await);
        assert_eq!(t.ttl("user:u1").await, -1);
        assert_eq!(t.ttl("count:blog:2").await, -1);
        let life = t.ttl("count:blog:1").await;
        let spread = (TTL + TTL / 8) as i64;
        assert!(life > TTL as i64 - 60 && life <= spread, "{life}");
        let next = SliceId(WINDOW.0 + 1);
        t.seal(next, "a").await;
        assert!(t.unpin(next, "a", both, 100).await);
        assert!(t.ttl("user:u1").await > 0 && t.ttl("count:blog:2").await > 0);
        let marker = format!("{}c0", t.generation);
        assert_eq!(t.marker("u1").await, Some(marker));
        // The first operation after that pins again.
        t.unlike("u1", "blog:1").await;
        assert_eq!(t.ttl("user:u1").await, -1);
        assert_eq!(t.ttl("count:blog:1").await, -1);
    }
}

#[tokio::test]
async fn a_partial_user_asks_for_what_it_does_not_hold() {
    for t in both().await {
        let at = t.moment().await;
        let user = cold_user("u1", &[("blog:1", 5)], false);
        let counts = ["blog:1", "blog:2", "blog:3", "blog:4"].map(|one| cold_count(one, 10));
        assert!(t.fill(&at, &[user], &counts).await);
        assert_eq!(t.like("u1", "blog:1").await, done(false, 10));
        let not_held = Answer::NotHeld { at: at.clone() };
        assert_eq!(t.like("u1", "blog:2").await, not_held);
        let known = |thumbed| Known {
            at: at.clone(),
            thumbed,
        };
        let like = |what, thumbed| t.known(true, ("u1", what), known(thumbed));
        let unlike = |what, thumbed| t.known(false, ("u1", what), known(thumbed));
        assert_eq!(like("blog:2", true).await, done(false, 10));
        assert_eq!(like("blog:2", false).await, done(true, 11));
        assert_eq!(unlike("blog:3", false).await, done(false, 10));
        assert_eq!(unlike("blog:3", true).await, done(true, 9));
        // An unlike is remembered as one: what MySQL says of it is old until it lands.
        let version: i64 = t.command(&["HGET", &t.key("user:u1"), "blog:3"]).await;
        assert!(version < 0);
        assert_eq!(t.unlike("u1", "blog:3").await, done(false, 9));
        assert_eq!(t.like("u1", "blog:3").await, done(true, 10));
        assert_eq!(t.unlike("u1", "blog:1").await, done(true, 9));
        // What is held does not need to be known.
        assert_eq!(like("blog:1", true).await, done(true, 10));
    }
}

#[tokio::test]
async fn what_was_known_grows_old() {
    for t in both().await {
        t.seal(SliceId(10), "a").await;
        let at = t.moment().await;
        let user = cold_user("u1", &[], false);
        assert!(t.fill(&at, &[user], &[cold_count("blog:1", 0)]).await);
        let like = |at: Moment| t.known(true, ("u1", "blog:1"), Known { at, thumbed: false });
        // Of another generation.
        let mut other = at.clone();
        other.generation = "0123456789abcdef".to_owned();
        assert_eq!(like(other).await, Answer::NotHeld { at: at.clone() });
        // Something sealed later may have landed since.
        t.set("done", 11).await;
        assert_eq!(like(at.clone()).await, Answer::NotHeld { at: at.clone() });
        t.set("done", 10).await;
        assert_eq!(like(at).await, done(true, 1));
    }
}
