//! What the three lists answer, and to whom.

use reqwest::Method;
use serde_json::json;

use super::{ask, entries, shorts, sql, walk};
use crate::app::{SERVICE_KEY, TestApp, send};

/// Rows of known moments.
async fn known(app: &TestApp) {
    sql(
        app,
        "INSERT INTO kind (kind_id, name) VALUES (1, 'blog'), (2, 'photo');
         INSERT INTO thumb (user_id, kind_id, target_id, thumbed, version) VALUES
            ('u1', 1, '42', 1, 1700000000123456),
            ('u2', 1, '42', 1, 1700000001000000),
            ('u3', 1, '42', 0, 1700000002000000),
            ('u1', 2, 'a/b', 1, 1700000003999999),
            ('u1', 1, '43', 0, 1700000004000000);
         INSERT INTO thumb_count (kind_id, target_id, count) VALUES
            (1, '42', 2), (1, '43', 0), (1, '44', 7), (1, '45', 2), (2, 'a/b', 1);
         UPDATE flush_state SET last = 1700000000000, landed = 1700000000000",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_answer_as_documented() {
    let app = TestApp::start().await;
    let empty = ask(&app, None, "/v1/likes/blog/42/users").await;
    let none = json!({"users": [], "cursor": null, "flushed_until": null});
    assert_eq!(empty.json(), none);
    known(&app).await;
    let mut shown = Vec::new();
    for path in [
        "/v1/likes/blog/42/users",
        "/v1/likes/blog/42/users?limit=1",
        "/v1/users/u1/likes",
        "/v1/users/u1/likes?kind=blog",
        "/v1/users/u1/likes?limit=1",
        "/v1/rankings/blog",
        "/v1/rankings/blog?limit=2",
        "/v1/rankings/song",
        "/v1/users/nobody/likes?kind=song",
    ] {
        shown.push(json!({ path: ask(&app, None, path).await.json() }));
    }
    insta::assert_json_snapshot!("lists", shown);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_like_of_this_moment_is_on_top_and_a_fresh_unlike_hides() {
    let app = TestApp::with(|settings| settings.partitions = 3).await;
    for user in ["u1", "u2", "u3"] {
        app.like(user, "blog/1").await;
    }
    app.like("u1", "photo/9").await;
    app.flush_now().await;
    app.unlike("u1", "photo/9").await;
    app.unlike("u2", "blog/1").await;
    app.like("u4", "blog/1").await;
    app.like("u1", "photo/10").await;
    let mine = ["photo:10", "blog:1"];
    let of_u4 = ["u4", "u3", "u2", "u1"];
    for flushed in [false, true] {
        let likes = ask(&app, Some("u1"), "/v1/users/me/likes").await;
        assert_eq!(shorts(&likes), mine, "{flushed}");
        let likes = ask(&app, None, "/v1/users/u1/likes?kind=photo").await;
        assert_eq!(shorts(&likes), mine[..1], "{flushed}");
        let users = walk(&app, Some("u4"), "/v1/likes/blog/1/users?limit=2").await;
        // Only its own are seen before the flush.
        let u2 = |user: &&&str| !flushed || **user != "u2";
        let want: Vec<&str> = of_u4.iter().filter(u2).copied().collect();
        assert_eq!(users.entries, want, "{flushed}");
        let users = ask(&app, Some("u2"), "/v1/likes/blog/1/users").await;
        let u4 = ["u4"].into_iter().filter(|_| flushed);
        let want: Vec<&str> = u4.chain(["u3", "u1"]).collect();
        assert_eq!(shorts(&users), want, "{flushed}");
        let users = ask(&app, None, "/v1/likes/blog/1/users").await;
        let want: &[&str] = if flushed {
            &["u4", "u3", "u1"]
        } else {
            &["u3", "u2", "u1"]
        };
        assert_eq!(shorts(&users), want, "{flushed}");
        app.flush_now().await;
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_accepted_before_flushed_until_is_in() {
    let app = TestApp::with(|settings| settings.partitions = 2).await;
    let path = "/v1/likes/blog/1/users";
    for n in 0..3 {
        app.like(&format!("u{n}"), "blog/1").await;
        app.flush_now().await;
    }
    app.like("late", "blog/1").await;
    let json = ask(&app, None, path).await.json();
    let until = json["flushed_until"].as_str().unwrap();
    // What is missing was accepted later than that, by the moment that its own list tells.
    let likes = ask(&app, None, "/v1/users/late/likes").await;
    let late = entries(&likes)[0]["liked_at"].as_str().unwrap().to_owned();
    assert!(until <= late.as_str(), "{until} {late}");
    assert_eq!(json["users"].as_array().unwrap().len(), 3);
    app.flush_now().await;
    let json = ask(&app, None, path).await.json();
    let later = json["flushed_until"].as_str().unwrap();
    assert!(later > until, "{until} {later}");
    assert_eq!(json["users"].as_array().unwrap().len(), 4);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn users_lists_need_the_key_and_the_others_what_reads_need() {
    let open = TestApp::start().await;
    let closed = TestApp::with(|settings| settings.read_requires_key = true).await;
    let likers = "/v1/likes/blog/1/users";
    let ranking = "/v1/rankings/blog";
    let likes = "/v1/users/u1/likes";
    // Path, whether the user is named, status without a key where reads are open, and where they are not.
    for (path, named, in_open, in_closed) in [
        (likers, false, 200, 401),
        (ranking, false, 200, 401),
        (likes, false, 200, 401),
        ("/v1/users/me/likes", true, 401, 401),
        (likers, true, 401, 401),
        (ranking, true, 401, 401),
    ] {
        for (app, want) in [(&open, in_open), (&closed, in_closed)] {
            for key in [None, Some("wrong-key"), Some(SERVICE_KEY)] {
                let mut request = app.request(Method::GET, path);
                if named {
                    request = request.header("X-User-Id", "u1");
                }
                if let Some(key) = key {
                    request = request.bearer_auth(key);
                }
                let want = match key {
                    None => want,
                    Some(SERVICE_KEY) => 200,
                    Some(_) => 401,
                };
                let answer = send(request).await;
                assert_eq!(answer.status, want, "{path} {named} {key:?}: {answer:?}");
            }
        }
    }
    let nobody = ask(&open, None, "/v1/users/me/likes").await;
    assert_eq!(
        (nobody.status, &nobody.json()["code"]),
        (400, &json!("user_missing"))
    );
    open.finish().await;
    closed.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_lists_are_refused_by_name() {
    let app = TestApp::with(|settings| {
        let kinds = [thumbd::domain::Kind::parse("blog").unwrap()];
        settings.kinds = thumbd::config::Kinds::only(kinds);
    })
    .await;
    for (path, code, field) in [
        ("/v1/likes/blog/1/users?limit=0", "field_invalid", "limit"),
        ("/v1/users/u1/likes?limit=101", "field_invalid", "limit"),
        ("/v1/rankings/blog?limit=x", "field_invalid", "limit"),
        (
            "/v1/rankings/blog?limit=1&limit=1",
            "field_invalid",
            "limit",
        ),
        ("/v1/users/u1/likes?kind=Blog", "field_invalid", "kind"),
        ("/v1/users/u1/likes?kind=photo", "kind_unknown", "kind"),
        ("/v1/rankings/photo", "kind_unknown", "kind"),
        ("/v1/likes/photo/1/users", "kind_unknown", "kind"),
        ("/v1/users/a%20b/likes", "field_invalid", "user"),
        ("/v1/users/u1/likes?limt=5", "field_invalid", "limt"),
        ("/v1/rankings/blog?kind=blog", "field_invalid", "kind"),
    ] {
        let answer = ask(&app, None, path).await;
        let json = answer.json();
        assert_eq!(
            (answer.status, &json["code"], &json["field"]),
            (400, &json!(code), &json!(field)),
            "{path}: {answer:?}"
        );
    }
    let post = send(app.trusted(Method::POST, "/v1/rankings/blog")).await;
    assert_eq!(post.status, 405, "{post:?}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_measured_by_their_route() {
    let app = TestApp::start().await;
    for path in [
        "/v1/likes/blog/1/users",
        "/v1/users/u1/likes",
        "/v1/rankings/blog",
    ] {
        ask(&app, None, path).await;
    }
    let metrics = send(app.request(Method::GET, "/metrics")).await.text;
    for route in [
        "/v1/likes/{kind}/{id}/users",
        "/v1/users/{user}/likes",
        "/v1/rankings/{kind}",
    ] {
        let line = format!("thumbd_http_request_seconds_count{{route=\"{route}\",method=\"GET\"");
        assert!(metrics.contains(&line), "{metrics}");
    }
    app.finish().await;
}
