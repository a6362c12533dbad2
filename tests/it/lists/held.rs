//! What Redis has and MySQL not yet, with a flush or another operation between the two reads.

use std::sync::Arc;

use thumbd::config::Settings;
use thumbd::steps::gated;

use crate::flush::Hold;
use crate::stand::{Stand, settings, target, user};

async fn stand(partitions: u16, resident_thumbs_max: u32) -> Stand {
    Stand::on(Settings {
        resident_thumbs_max,
        slice_seconds: 3600,
        ..settings(partitions).await
    })
    .await
}

/// Reads while `meanwhile` runs between Redis and MySQL.
async fn between<T>(read: impl Future<Output = T>, meanwhile: impl Future<Output = ()>) -> T {
    let hold = Hold::at("list.held");
    let gate = Arc::clone(&hold);
    let (found, ()) = tokio::join!(gated(gate, read), async {
        hold.reached.notified().await;
        meanwhile.await;
        hold.go_on.notify_one();
    });
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flush_between_the_two_reads_loses_and_doubles_nothing() {
    // Complete, and partial.
    for resident_thumbs_max in [100, 2] {
        let t = stand(2, resident_thumbs_max).await;
        for n in 1..=5 {
            t.like("u1", &format!("blog:{n}")).await.unwrap();
        }
        t.flush().await;
        t.command::<()>(&["DEL", &t.user_key("u1")]).await;
        t.like("u1", "photo:6").await.unwrap();
        t.unlike("u1", "blog:3").await.unwrap();
        t.unlike("u1", "blog:1").await.unwrap();
        t.like("u1", "blog:1").await.unwrap();
        let want = ["blog:1", "photo:6", "blog:5", "blog:4", "blog:2"];
        let likes = between(t.walk_likes("u1", None, 3), async {
            t.flush().await;
        });
        assert_eq!(likes.await, want, "{resident_thumbs_max}");
        assert_eq!(t.walk_likes("u1", None, 3).await, want);
        t.unlike("u1", "blog:5").await.unwrap();
        let likers = between(t.walk_likers("blog:5", Some("u1"), 3), async {
            t.flush().await;
        });
        assert_eq!(likers.await, [""; 0], "{resident_thumbs_max}");
        t.like("u1", "blog:5").await.unwrap();
        let likers = between(t.walk_likers("blog:5", Some("u1"), 3), async {
            t.flush().await;
        });
        assert_eq!(likers.await, ["u1"], "{resident_thumbs_max}");
        t.check().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_lands_between_the_two_reads_wins_where_it_is_newer() {
    let t = stand(1, 2).await;
    for n in 1..=4 {
        t.like("u1", &format!("blog:{n}")).await.unwrap();
    }
    t.flush().await;
    t.command::<()>(&["DEL", &t.user_key("u1")]).await;
    // Dirty and partial when Redis is read; then an older like is made new, and all lands.
    t.like("u1", "blog:5").await.unwrap();
    t.like("u1", "blog:6").await.unwrap();
    let likes = between(t.walk_likes("u1", None, 10), async {
        t.unlike("u1", "blog:5").await.unwrap();
        t.like("u1", "blog:5").await.unwrap();
        t.unlike("u1", "blog:1").await.unwrap();
        t.like("u1", "blog:1").await.unwrap();
        t.flush().await;
    });
    let want = ["blog:1", "blog:5", "blog:6", "blog:4", "blog:3", "blog:2"];
    assert_eq!(likes.await, want);
    t.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_unlikes_of_a_partial_user_are_read_over() {
    let t = stand(1, 3).await;
    for n in 0..30 {
        t.like("u1", &format!("blog:{n}")).await.unwrap();
    }
    t.flush().await;
    t.command::<()>(&["DEL", &t.user_key("u1")]).await;
    for n in 2..30 {
        t.unlike("u1", &format!("blog:{n}")).await.unwrap();
    }
    for limit in [1, 2, 3] {
        let likes = t.walk_likes("u1", Some("blog"), limit).await;
        assert_eq!(likes, ["blog:1", "blog:0"], "pages of {limit}");
    }
    t.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slice_that_has_landed_and_is_still_pinned_is_asked_of_mysql() {
    let t = stand(1, 100).await;
    t.like("u1", "blog:1").await.unwrap();
    // A flusher that dies behind the mark leaves the user dirty by its own word.
    let hold = Hold::at("flush.marked");
    let gate: Arc<Hold> = Arc::clone(&hold);
    tokio::select! {
        _ = gated(gate, t.try_flush()) => panic!("it is held"),
        () = hold.reached.notified() => {}
    }
    t.sql("UPDATE thumb SET version = version + 1").await;
    let row = t.number("SELECT CAST(version AS SIGNED) FROM thumb").await;
    let page = t.service.user_likes(&user("u1"), None, None, 5).await;
    let page = page.unwrap();
    assert_eq!(page.rows[0].version.0 as i64, row);
    let of = target("blog:1");
    let likers = t.service.likers(&of, Some(&user("u1")), None, 5).await;
    assert_eq!(likers.unwrap().1.rows[0].version.0 as i64, row);
    t.sql("UPDATE thumb SET version = version - 1").await;
    t.check().await;
}
