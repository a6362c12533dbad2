//! Cursors and pages: exact ends, ties, and texts that no list has given.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use serde_json::json;

use super::{ask, shorts, sql, walk};
use crate::app::TestApp;

/// Users u0… like blog:1, and u0 likes blog:0… and photo:0…; counts of blog:0… are 1, 1, 1, 2, 2, 2, …
async fn many(app: &TestApp, number: usize) {
    let mut rows = Vec::new();
    let mut counts = Vec::new();
    for n in 0..number {
        rows.push(format!("('u{n}', 1, 'x', 1, 1700000000000000)"));
        for kind in [2, 3] {
            rows.push(format!("('v', {kind}, '{n}', 1, 1700000000000000)"));
        }
        counts.push(format!("(2, '{n}', {})", 1 + n / 3));
    }
    sql(
        app,
        &format!(
            "INSERT INTO kind (kind_id, name) VALUES (1, 'blog'), (2, 'photo'), (3, 'audio');
             INSERT INTO thumb (user_id, kind_id, target_id, thumbed, version) VALUES {};
             INSERT INTO thumb_count (kind_id, target_id, count) VALUES {}",
            rows.join(","),
            counts.join(",")
        ),
    )
    .await;
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_likes_of_one_moment_are_each_seen_once() {
    let app = TestApp::start().await;
    many(&app, 1000).await;
    let users = walk(&app, None, "/v1/likes/blog/x/users?limit=37").await;
    let want = (0..1000).map(|n| format!("u{n}")).collect();
    assert_eq!(sorted(users.entries), sorted(want));
    // MySQL breaks the ties by numbers of kinds, which are not in the order of their names.
    let likes = walk(&app, None, "/v1/users/v/likes?limit=99").await;
    let of = |kind: &str| (0..1000).map(|n| format!("{kind}:{n}")).collect::<Vec<_>>();
    assert_eq!(
        sorted(likes.entries),
        sorted([of("photo"), of("audio")].concat())
    );
    let likes = walk(&app, None, "/v1/users/v/likes?limit=99&kind=photo").await;
    assert_eq!(sorted(likes.entries), sorted(of("photo")));
    let ranking = walk(&app, None, "/v1/rankings/photo?limit=10").await;
    let counts = ranking
        .entries
        .iter()
        .map(|one| one.split_once('=').unwrap());
    let counts: Vec<u64> = counts.map(|(_, count)| count.parse().unwrap()).collect();
    assert!(counts.is_sorted_by(|a, b| a >= b));
    let want = (0..1000)
        .map(|n| format!("photo:{n}={}", 1 + n / 3))
        .collect();
    assert_eq!(sorted(ranking.entries), sorted(want));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ties_go_the_same_way_from_redis_and_from_mysql() {
    let app = TestApp::start().await;
    many(&app, 30).await;
    let path = "/v1/users/v/likes?limit=7";
    let before = walk(&app, None, path).await.entries;
    // Now the user is dirty, and complete: the same likes come from Redis.
    app.like("v", "blog/new").await;
    let after = walk(&app, None, path).await.entries;
    assert_eq!(after[0], "blog:new");
    assert_eq!(after[1..], before);
    // In the middle of a walk, too: one answer from Redis, the next from MySQL.
    let first = ask(&app, None, path).await;
    app.flush_now().await;
    let cursor = first.json()["cursor"].as_str().unwrap().to_owned();
    let second = ask(&app, None, &format!("{path}&cursor={cursor}")).await;
    assert_eq!([shorts(&first), shorts(&second)].concat(), after[..14]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn as_many_entries_as_the_limit_end_without_an_empty_answer() {
    let app = TestApp::start().await;
    many(&app, 12).await;
    for path in [
        "/v1/likes/blog/x/users?",
        "/v1/users/v/likes?kind=photo&",
        "/v1/rankings/photo?",
    ] {
        for (limit, want) in [
            (13, vec![12]),
            (12, vec![12]),
            (11, vec![11, 1]),
            (6, vec![6, 6]),
            (5, vec![5, 5, 2]),
            (1, vec![1; 12]),
        ] {
            let walk = walk(&app, None, &format!("{path}limit={limit}")).await;
            assert_eq!(walk.pages, want, "{path}{limit}");
        }
        // Twelve by default, and there are twenty of them at most.
        assert_eq!(walk(&app, None, path).await.pages, [12]);
    }
    assert_eq!(walk(&app, None, "/v1/users/v/likes?").await.pages, [20, 4]);
    // The same with a page from Redis.
    app.like("v", "blog/new").await;
    let walked = walk(&app, None, "/v1/users/v/likes?limit=5").await;
    assert_eq!(walked.pages, [5, 5, 5, 5, 5]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_that_its_list_has_not_given_is_refused() {
    let app = TestApp::start().await;
    many(&app, 30).await;
    let lists = [
        "/v1/likes/blog/x/users?limit=3",
        "/v1/likes/blog/y/users?limit=3",
        "/v1/users/v/likes?limit=3",
        "/v1/users/u1/likes?limit=3",
        "/v1/users/v/likes?limit=3&kind=photo",
        "/v1/users/v/likes?limit=3&kind=audio",
        "/v1/rankings/photo?limit=3",
        "/v1/rankings/audio?limit=3",
    ];
    let mut cursors = Vec::new();
    for path in lists {
        let json = ask(&app, None, path).await.json();
        cursors.extend(
            json["cursor"]
                .as_str()
                .map(|cursor| (path, cursor.to_owned())),
        );
    }
    assert_eq!(cursors.len(), 5);
    let refused = async |path: &str, cursor: &str| {
        let answer = ask(&app, None, &format!("{path}&cursor={cursor}")).await;
        let json = answer.json();
        let found = (answer.status, &json["code"], &json["field"]);
        assert_eq!(
            found,
            (400, &json!("field_invalid"), &json!("cursor")),
            "{path} {cursor}"
        );
    };
    for (from, cursor) in &cursors {
        for path in lists {
            if path == *from {
                let next = ask(&app, None, &format!("{path}&cursor={cursor}")).await;
                assert_eq!(shorts(&next).len(), 3, "{next:?}");
            } else {
                refused(path, cursor).await;
            }
        }
        let mut bytes = BASE64.decode(cursor).unwrap();
        for at in 0..bytes.len() {
            bytes[at] ^= 1;
            refused(from, &BASE64.encode(&bytes)).await;
            bytes[at] ^= 1;
        }
        refused(from, &BASE64.encode(&bytes[..bytes.len() - 1])).await;
    }
    let path = lists[0];
    for wrong in [
        "",
        "x",
        "%00",
        "%ff",
        "AAAA",
        "1",
        "null",
        "%27%20OR%201=1",
        &"A".repeat(5000),
    ] {
        refused(path, wrong).await;
    }
    // Another limit is another part of the same list.
    let (_, cursor) = &cursors[0];
    let path = format!("/v1/likes/blog/x/users?limit=100&cursor={cursor}");
    assert_eq!(shorts(&ask(&app, None, &path).await).len(), 27);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ranking_leaves_out_what_nobody_likes_any_more() {
    let app = TestApp::start().await;
    for (user, target) in [
        ("u1", "blog/a"),
        ("u2", "blog/a"),
        ("u1", "blog/b"),
        ("u1", "blog/c"),
    ] {
        app.like(user, target).await;
    }
    app.flush_now().await;
    app.unlike("u1", "blog/c").await;
    let before = ["blog:a=2", "blog:c=1", "blog:b=1"];
    let ranking = ask(&app, None, "/v1/rankings/blog").await;
    assert_eq!(shorts(&ranking), before, "as of the last flush");
    app.flush_now().await;
    let ranking = ask(&app, None, "/v1/rankings/blog").await;
    assert_eq!(shorts(&ranking), ["blog:a=2", "blog:b=1"]);
    let walked = walk(&app, None, "/v1/rankings/blog?limit=1").await;
    assert_eq!(walked.pages, [1, 1]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_another_hand_do_not_end_a_list() {
    let app = TestApp::start().await;
    many(&app, 6).await;
    // Ids that the service takes from nobody, between the others and at the end.
    sql(
        &app,
        "INSERT INTO thumb (user_id, kind_id, target_id, thumbed, version) VALUES
            ('u 3', 1, 'x', 1, 1700000000000000), ('', 1, 'x', 1, 1700000000000000), ('u 2', 1, 'x', 1, 1),
            ('v', 2, '2 3', 1, 1700000000000000), ('v', 2, '', 1, 1), ('v', 3, '.', 1, 1800000000000000);
         INSERT INTO thumb_count (kind_id, target_id, count) VALUES (2, '1 1', 1), (2, '', 1), (2, 'x y', 9)",
    )
    .await;
    for limit in [1, 2, 5] {
        for (path, want) in [
            ("/v1/likes/blog/x/users?", 6),
            ("/v1/users/v/likes?", 12),
            ("/v1/users/v/likes?kind=photo&", 6),
            ("/v1/rankings/photo?", 6),
        ] {
            let walked = walk(&app, None, &format!("{path}limit={limit}")).await;
            assert_eq!(
                walked.entries.len(),
                want,
                "{path}{limit} {:?}",
                walked.entries
            );
        }
    }
    app.finish().await;
}
