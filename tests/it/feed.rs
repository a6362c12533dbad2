//! The change feed: what landed is told once, in order, to a reader that may be told twice; and nothing holds up the flush.

use std::collections::BTreeMap;

use reqwest::Method;
use sqlx::Row;
use thumbd::config::{FeedTarget, Settings};
use thumbd::erasure::{self, Eraser};
use thumbd::feed::Relay;
use thumbd::ledger::{FeedChange, FeedState};

use crate::app::TestApp;
use crate::serve::{Serve, until};
use crate::servers;
use crate::stand::{self, Stand};
use crate::webhook::webhook_consumer::feed_consumer::{self, Likes, Pair, Told};

/// More than any test tells.
const MANY: u64 = 1000;

/// A stand whose changes are told.
async fn told(partitions: u16, backlog_max: u64) -> Stand {
    let settings = Settings {
        slice_seconds: 3600,
        ..stand::settings(partitions).await
    };
    let stand = Stand::on(settings).await;
    stand.ledger.feed_set(true, backlog_max).await.unwrap();
    stand
}

/// What the table says of each pair.
pub(crate) async fn rows(stand: &Stand) -> BTreeMap<Pair, (bool, u64)> {
    let text =
        "SELECT user_id, name, target_id, thumbed, version FROM thumb JOIN kind USING (kind_id)";
    let rows = sqlx::query(text).fetch_all(&stand.pool).await.unwrap();
    rows.iter()
        .map(|row| {
            let pair = (row.get(0), row.get(1), row.get(2));
            (pair, (row.get::<i8, _>(3) != 0, row.get(4)))
        })
        .collect()
}

pub(crate) async fn counts(stand: &Stand) -> BTreeMap<(String, String), i64> {
    let text = "SELECT name, target_id, count FROM thumb_count JOIN kind USING (kind_id)";
    let rows = sqlx::query(text).fetch_all(&stand.pool).await.unwrap();
    rows.iter()
        .map(|row| ((row.get(0), row.get(1)), row.get(2)))
        .collect()
}

/// Reads all of the stream, as the example does.
async fn read(stand: &Stand, likes: Likes) -> Likes {
    let url = stand
        .settings
        .redis_url
        .as_ref()
        .unwrap()
        .expose()
        .to_owned();
    let stream = format!("{}:v1:feed", stand.settings.key_prefix);
    let read = move || {
        let mut likes = likes;
        let client = redis::Client::open(url).unwrap();
        let mut connection = client.get_connection().unwrap();
        while feed_consumer::read(&mut connection, &stream, &mut likes).unwrap() > 0 {}
        likes
    };
    tokio::task::spawn_blocking(read).await.unwrap()
}

fn relay(stand: &Stand) -> Relay {
    Relay::new(&stand.settings, &stand.service).unwrap()
}

pub(crate) async fn delivered(stand: &Stand) {
    until("everything is delivered", async || {
        stand.ledger.feed_status().await.unwrap().backlog == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_ends_with_what_the_tables_say() {
    let stand = told(2, MANY).await;
    // Two at once: the stream takes each event once all the same.
    let relays = [(); 2].map(|()| tokio::spawn(relay(&stand).run()));
    let mut likes = Likes::default();
    for round in 0..3 {
        for n in 0..20 {
            let (user, target) = (format!("u{}", n % 7), format!("blog:{}", n % 5));
            let wanted = (n + round) % 3 > 0;
            stand
                .service
                .thumb(stand::op(&user, &target, wanted))
                .await
                .unwrap();
        }
        stand.flush().await;
        delivered(&stand).await;
        likes = read(&stand, likes).await;
        assert_eq!(likes.pairs, rows(&stand).await);
        let told: Vec<_> = likes
            .counts
            .iter()
            .filter(|(_, count)| **count > 0)
            .collect();
        let stored = counts(&stand).await;
        let stored: Vec<_> = stored.iter().filter(|(_, count)| **count > 0).collect();
        assert_eq!(told, stored);
    }
    for relay in relays {
        relay.abort();
    }
    stand.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_rise_by_one_and_stand_in_the_order_of_what_happened() {
    let stand = told(1, MANY).await;
    for target in ["blog:3", "blog:1", "blog:2"] {
        stand.like("u1", target).await.unwrap();
    }
    stand.flush().await;
    stand.unlike("u1", "blog:1").await.unwrap();
    stand.flush().await;
    let events = stand.ledger.feed_page(MANY).await.unwrap();
    let ids: Vec<u64> = events.iter().map(|event| event.id - events[0].id).collect();
    assert_eq!(ids, (0..9).collect::<Vec<_>>());
    let shown: Vec<String> = events
        .iter()
        .map(|event| serde_json::to_value(event).unwrap())
        .map(|event| match event["type"].as_str().unwrap() {
            "thumb" => format!("{} {} {}", event["user"], event["target"], event["liked"]),
            "count" => format!("{} {}", event["target"], event["count"]),
            other => other.to_owned(),
        })
        .collect();
    let wanted =
        "gap|'u1' '3' true|'u1' '1' true|'u1' '2' true|'1' 1|'2' 1|'3' 1|'u1' '1' false|'1' 0";
    assert_eq!(shown.join("|").replace('"', "'"), wanted);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_is_told_in_order_also_when_a_slice_needs_several_transactions() {
    let settings = Settings {
        slice_seconds: 3600,
        flush_rows_max: 3,
        ..stand::settings(4).await
    };
    let stand = Stand::on(settings).await;
    stand.ledger.feed_set(true, MANY).await.unwrap();
    // Backwards in the order of the table. The second user stands at the border of two transactions, the third needs two alone.
    for (user, targets) in [("u1", 2), ("u2", 2), ("u3", 5)] {
        for target in (1..=targets).rev() {
            stand.like(user, &format!("blog:{target}")).await.unwrap();
        }
    }
    stand.flush().await;
    let mut told: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for event in stand.ledger.feed_page(MANY).await.unwrap() {
        if let FeedChange::Thumb { user, version, .. } = event.change {
            told.entry(user).or_default().push(version);
        }
    }
    let of_each: Vec<usize> = told.values().map(Vec::len).collect();
    assert_eq!(of_each, [2, 2, 5]);
    assert!(
        told.values().all(|versions| versions.is_sorted()),
        "{told:?}"
    );
    stand.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn too_much_that_waits_stops_the_feed_and_nothing_else() {
    let stand = told(1, 4).await;
    stand.like("u1", "blog:1").await.unwrap();
    stand.flush().await;
    // A gap, a thumb and a count wait: two more are one too many.
    stand.like("u2", "blog:1").await.unwrap();
    stand.flush().await;
    let status = stand.ledger.feed_status().await.unwrap();
    assert_eq!((status.state, status.backlog), (FeedState::Stopped, 3));
    assert!(status.stopped_at.is_some());
    stand.like("u3", "blog:1").await.unwrap();
    stand.flush().await;
    assert_eq!(stand.number("SELECT COUNT(*) FROM feed_event").await, 3);
    assert_eq!(stand.number("SELECT count FROM thumb_count").await, 3);
    let (code, text) = stand.program(&["feed", "status"]).await;
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("stopped"), "{text}");

    let (code, text) = stand.program(&["feed", "resume"]).await;
    assert_eq!(code, Some(0), "{text}");
    let events = stand.ledger.feed_page(MANY).await.unwrap();
    let gap = serde_json::to_value(&events).unwrap();
    assert_eq!((events.len(), &gap[0]["type"]), (1, &"gap".into()));
    assert!(events[0].id > status.last_id);
    let mut likes = Likes {
        last: status.last_id,
        ..Likes::default()
    };
    assert_eq!(likes.take(&gap[0]), Told::Missed);
    stand.like("u4", "blog:1").await.unwrap();
    stand.flush().await;
    let next = serde_json::to_value(stand.ledger.feed_page(MANY).await.unwrap()).unwrap();
    assert_eq!(likes.take(&next[1]), Told::News);
    assert_eq!(likes.take(&next[1]), Told::Known);
    stand.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn off_writes_nothing_down_and_ends_what_was_on() {
    let stand = Stand::start(1).await;
    stand.like("u1", "blog:1").await.unwrap();
    stand.flush().await;
    assert_eq!(stand.number("SELECT COUNT(*) FROM feed_event").await, 0);
    assert_eq!(stand.program(&["feed", "resume"]).await.0, Some(1));
    stand.ledger.feed_set(true, MANY).await.unwrap();
    stand.ledger.feed_set(true, MANY).await.unwrap();
    assert_eq!(stand.number("SELECT COUNT(*) FROM feed_event").await, 1);
    stand.ledger.feed_set(false, MANY).await.unwrap();
    stand.like("u2", "blog:1").await.unwrap();
    stand.flush().await;
    assert_eq!(stand.number("SELECT COUNT(*) FROM feed_event").await, 0);
    stand.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_repaired_or_imported_is_told() {
    let stand = told(1, MANY).await;
    stand.like("u1", "blog:1").await.unwrap();
    stand.flush().await;
    stand.sql("UPDATE thumb_count SET count = 7").await;
    let before = stand.ledger.feed_status().await.unwrap().last_id;
    assert_eq!(stand.program(&["repair"]).await.0, Some(0));
    let events = serde_json::to_value(stand.ledger.feed_page(MANY).await.unwrap()).unwrap();
    let last = events.as_array().unwrap().last().unwrap();
    assert_eq!(
        (&last["type"], &last["count"], &last["id"]),
        (&"count".into(), &1.into(), &(before + 1).into())
    );

    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("likes.csv");
    std::fs::write(&file, "u9,1,1600000000\n").unwrap();
    let import = ["import", file.to_str().unwrap(), "--kind", "blog"];
    let (code, text) = stand.program(&import).await;
    assert_eq!(code, Some(0), "{text}");
    let mut likes = Likes::default();
    let events = serde_json::to_value(stand.ledger.feed_page(MANY).await.unwrap()).unwrap();
    for event in events.as_array().unwrap() {
        likes.take(event);
    }
    assert_eq!(likes.pairs, rows(&stand).await);
    assert_eq!(likes.counts, counts(&stand).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_takes_nothing_holds_up_no_flush_and_is_tried_again() {
    let stand = told(1, MANY).await;
    let stream = format!("{}:v1:feed", stand.settings.key_prefix);
    stand.command::<()>(&["SET", &stream, "no stream"]).await;
    let relay = tokio::spawn(relay(&stand).run());
    for user in ["u1", "u2"] {
        stand.like(user, "blog:1").await.unwrap();
        stand.flush().await;
    }
    assert_eq!(stand.number("SELECT count FROM thumb_count").await, 2);
    assert_eq!(stand.ledger.feed_status().await.unwrap().backlog, 5);
    stand.command::<()>(&["DEL", &stream]).await;
    delivered(&stand).await;
    let likes = read(&stand, Likes::default()).await;
    assert_eq!(likes.pairs, rows(&stand).await);
    relay.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_forgot_which_ids_it_gave_out_begins_again_with_a_gap() {
    let stand = told(1, MANY).await;
    let relay = tokio::spawn(relay(&stand).run());
    delivered(&stand).await;
    stand.like("u1", "blog:1").await.unwrap();
    stand.flush().await;
    delivered(&stand).await;
    let likes = read(&stand, Likes::default()).await;
    // As a backup from before the first event would.
    stand.sql("UPDATE flush_state SET feed_last = 7").await;
    stand.like("u2", "blog:1").await.unwrap();
    stand.flush().await;
    let stream = format!("{}:v1:feed", stand.settings.key_prefix);
    until("a gap is told", async || {
        stand.command::<i64>(&["XLEN", &stream]).await == 4
    })
    .await;
    let status = stand.ledger.feed_status().await.unwrap();
    assert!(status.last_id > likes.last);
    assert_eq!(read(&stand, likes).await.last, status.last_id);
    relay.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_erased_is_told_as_taken_back() {
    let stand = told(1, MANY).await;
    for user in ["u1", "u2"] {
        stand.like(user, "blog:1").await.unwrap();
    }
    stand.like("u1", "blog:2").await.unwrap();
    stand.flush().await;
    let user = crate::stand::user("u1");
    erasure::request(&stand.service, &user).await.unwrap();
    let eraser = Eraser::new(&stand.service, &stand.flusher, &stand.settings);
    assert_eq!(eraser.run().await.unwrap(), 1);
    let mut likes = taken(&stand).await;
    // A reader knows that the pairs were there, and thumbd does not any more.
    let erased = likes.pairs.len() - rows(&stand).await.len();
    assert_eq!(erased, 2);
    likes.pairs.retain(|_, (liked, _)| *liked);
    assert_eq!(likes.pairs, rows(&stand).await);
    likes.counts.retain(|_, count| *count > 0);
    let mut stored = counts(&stand).await;
    stored.retain(|_, count| *count > 0);
    assert_eq!(likes.counts, stored);
}

/// What a reader makes of all events that wait.
async fn taken(stand: &Stand) -> Likes {
    let events = serde_json::to_value(stand.ledger.feed_page(MANY).await.unwrap()).unwrap();
    let mut likes = Likes::default();
    for event in events.as_array().unwrap() {
        likes.take(event);
    }
    likes
}

#[tokio::test(flavor = "multi_thread")]
async fn what_goes_with_a_target_is_told_as_taken_back_and_a_new_like_behind_it() {
    let stand = told(2, MANY).await;
    let target = crate::stand::target("blog:1");
    for user in ["u1", "u2", "u3"] {
        stand.like(user, "blog:1").await.unwrap();
        stand.like(user, "blog:2").await.unwrap();
    }
    stand.flush().await;
    stand.like("u4", "blog:1").await.unwrap();
    let eraser = Eraser::new(&stand.service, &stand.flusher, &stand.settings);
    let ask = erasure::request_target(&stand.service, &target);
    ask.await.unwrap();
    assert_eq!(eraser.run().await.unwrap(), 1);
    let told = taken(&stand).await;
    let pair = |user: &str| (user.to_owned(), "blog".to_owned(), "1".to_owned());
    for user in ["u1", "u2", "u3"] {
        assert!(!told.pairs[&pair(user)].0, "{user}");
    }
    // It never landed, so there is nothing to take back.
    assert_eq!(told.pairs.get(&pair("u4")), None);
    assert_eq!(told.counts[&("blog".to_owned(), "1".to_owned())], 0);
    eraser.restore(&target).await.unwrap();
    stand.like("u1", "blog:1").await.unwrap();
    stand.flush().await;
    let told = taken(&stand).await;
    assert!(told.pairs[&pair("u1")].0);
    let told: BTreeMap<_, _> = told.pairs.into_iter().filter(|(_, one)| one.0).collect();
    assert_eq!(told, rows(&stand).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_see_how_it_stands_and_resume_it() {
    let app = TestApp::with(|settings| settings.feed = FeedTarget::Stream).await;
    let status = app.admin(Method::GET, "/admin/v1/feed").await.json();
    assert_eq!(
        (&status["state"], &status["backlog_max"]),
        (&"running".into(), &1_000_000.into())
    );
    let again = app
        .admin(Method::POST, "/admin/v1/feed/resume")
        .await
        .json();
    assert!(again["last_id"].as_u64() > status["last_id"].as_u64());
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_killed_between_delivery_and_removal_doubles_nothing() {
    let env = servers::env().await;
    let settings = |failpoints| {
        [
            ("THUMBD_SLICE_SECONDS", "3600"),
            ("THUMBD_LEASE_TTL_MS", "3000"),
            ("THUMBD_FEED", "stream"),
            ("FAILPOINTS", failpoints),
        ]
    };
    // The first passing delivers the gap.
    let mut victim = Serve::start(&env, &settings("feed.delivered=2*hold")).await;
    assert_eq!(victim.like("u1", "blog/1").await.status, 200);
    victim.admin("/admin/v1/flushes").await.unwrap();
    victim.said("failpoint feed.delivered").await;
    victim.kill();
    let next = Serve::start(&env, &settings("")).await;
    assert_eq!(next.like("u2", "blog/1").await.status, 200);
    next.admin("/admin/v1/flushes").await.unwrap();
    let stand = Stand::on(Settings {
        slice_seconds: 3600,
        ..crate::app::settings(&env)
    })
    .await;
    delivered(&stand).await;
    let stream = format!("{}:v1:feed", env.key_prefix);
    // A gap, and for each like a thumb and a count.
    assert_eq!(stand.command::<i64>(&["XLEN", &stream]).await, 5);
    let likes = read(&stand, Likes::default()).await;
    assert_eq!(likes.pairs, rows(&stand).await);
    assert_eq!(likes.counts, counts(&stand).await);
    next.stop();
}
