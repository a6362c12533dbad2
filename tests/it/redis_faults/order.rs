//! The last wish of a user wins, whatever slice it is in and whenever that lands; and a like is taken back once.

use futures_util::future::join_all;
use thumbd::config::Settings;
use thumbd::domain::SliceId;
use thumbd::flush::Upto;

use super::{agree, stand_of};
use crate::app::TestApp;
use crate::stand::{Stand, outcome, settings};

/// In one slice until it is sealed.
async fn stand(partitions: u16) -> Stand {
    Stand::on(Settings {
        slice_seconds: 3600,
        ..settings(partitions).await
    })
    .await
}

#[tokio::test]
async fn like_unlike_like_within_a_slice_and_across_a_boundary() {
    for partitions in [1, 4] {
        let t = stand(partitions).await;
        // In one slice each, ending either way.
        for (like, changed) in [(true, true), (false, true), (true, true), (true, false)] {
            let answer = if like {
                t.like("u1", "blog:1").await
            } else {
                t.unlike("u1", "blog:1").await
            };
            assert_eq!(answer.unwrap(), outcome(changed, i64::from(like)));
        }
        t.like("u2", "blog:1").await.unwrap();
        t.unlike("u2", "blog:1").await.unwrap();
        let report = t.flush().await;
        assert_eq!((report.entries, report.rows_changed), (2, 2));
        assert_eq!(
            t.number("SELECT CAST(SUM(count) AS SIGNED) FROM thumb_count")
                .await,
            1
        );
        // One in each slice.
        for like in [false, true, false, true] {
            if like {
                t.like("u1", "blog:1").await.unwrap();
                t.unlike("u2", "blog:1").await.unwrap();
            } else {
                t.unlike("u1", "blog:1").await.unwrap();
                t.like("u2", "blog:1").await.unwrap();
            }
            let report = t.flush().await;
            assert_eq!((report.entries, report.rows_changed), (2, 2));
            assert_eq!(t.look("u1", "blog:1").await, (Some(like), Some(1)));
            assert_eq!(t.look("u2", "blog:1").await, (Some(!like), Some(1)));
        }
        agree(&t, &["u1", "u2"], &["blog:1"]).await;
    }
}

#[tokio::test]
async fn an_older_slice_that_lands_last_changes_nothing_newer() {
    for partitions in [1, 4] {
        let t = stand(partitions).await;
        let home = t.home("u1");
        t.like("u1", "blog:1").await.unwrap();
        t.like("u1", "blog:2").await.unwrap();
        t.like("u1", "blog:3").await.unwrap();
        // Sealed, and then lost from the list.
        let last = t.ledger.flush_state().await.unwrap().last;
        let upto = SliceId(t.peek(home).await.time_ms);
        t.hot.seal(home, upto, last, "dead", 60_000).await.unwrap();
        let older = t.peek(home).await.live[0];
        t.command::<()>(&["ZREM", &t.key(home, "slices"), &older.0.to_string()])
            .await;
        t.unlike("u1", "blog:1").await.unwrap();
        t.unlike("u1", "blog:2").await.unwrap();
        t.like("u1", "blog:2").await.unwrap();
        let report = t.flush().await;
        assert_eq!((report.slices, report.rows_changed), (1, 2));
        // The compensator finds the older one.
        let report = t.flusher.compensate(|| Upto::Now).await.unwrap();
        assert_eq!((report.slices_adopted, report.flush.slices), (1, 1));
        assert_eq!((report.flush.rows_changed, report.flush.rows_stale), (1, 2));
        assert_eq!(report.audit.differences_total, 0);
        agree(&t, &["u1"], &["blog:1", "blog:2", "blog:3"]).await;
        assert_eq!(t.look("u1", "blog:1").await, (Some(false), Some(0)));
        assert_eq!(t.look("u1", "blog:2").await, (Some(true), Some(1)));
        assert_eq!(t.look("u1", "blog:3").await, (Some(true), Some(1)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_unlikes_of_one_like_take_it_back_once() {
    // With everything resident, and with everything cold.
    for cold in [false, true] {
        let app = TestApp::start().await;
        let t = stand_of(&app).await;
        for user in ["u1", "u2"] {
            assert_eq!(app.like(user, "blog/1").await.status, 200);
        }
        app.flush_now().await;
        if cold {
            t.command::<()>(&["DEL", &t.user_key("u1"), &t.key(0, "count:blog:1")])
                .await;
        }
        let unlikes = join_all((0..50).map(|_| app.unlike("u1", "blog/1"))).await;
        let mut changed = 0;
        for answer in unlikes {
            assert_eq!(answer.status, 200, "{answer:?}");
            let body = answer.json();
            assert_eq!(body["count"], 1, "{body}");
            changed += u64::from(body["changed"] == true);
        }
        assert_eq!(changed, 1);
        agree(&t, &["u1", "u2"], &["blog:1"]).await;
        assert_eq!(t.look("u1", "blog:1").await, (Some(false), Some(1)));
        app.finish().await;
    }
}
