//! Answers of every route when all is well.

use reqwest::Method;
use serde_json::{Value, json};

use crate::app::{Answer, SERVICE_KEY, TestApp, send};

fn bodies(answers: &[Answer]) -> Vec<Value> {
    answers.iter().map(Answer::json).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_like_an_unlike_and_reads() {
    let app = TestApp::start().await;
    insta::assert_json_snapshot!("like", app.like("u1", "blog/42").await.shown());
    insta::assert_json_snapshot!("read_with_user", app.get("u1", "blog/42").await.shown());
    let again = app.like("u1", "blog/42").await;
    let other = app.like("u2", "blog/42").await;
    let gone = app.unlike("u1", "blog/42").await;
    let absent = app.unlike("u1", "blog/42").await;
    insta::assert_json_snapshot!("writes", bodies(&[again, other, gone, absent]));
    let read = send(app.request(Method::GET, "/v1/likes/blog/42")).await;
    insta::assert_json_snapshot!("read_without_user", read.shown());
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_are_decoded_once() {
    let app = TestApp::start().await;
    for (path, id) in [
        ("a%2Fb", "a/b"),
        ("a%252Fb", "a%2Fb"),
        ("a+b", "a+b"),
        ("a:b", "a:b"),
        ("%41b", "Ab"),
        ("...", "..."),
    ] {
        let answer = app.like("u1", &format!("blog/{path}")).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.json()["id"], id);
        let seen = app
            .lookup(Some("u1"), json!([{"kind": "blog", "id": id}]))
            .await;
        assert_eq!(seen.json()["results"][0]["liked"], true, "{seen:?}");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lookup_answers_in_order() {
    let app = TestApp::start().await;
    app.like("u1", "blog/1").await;
    app.like("u2", "blog/1").await;
    app.like("u2", "photo/2").await;
    let targets = json!([
        {"kind": "photo", "id": "2"},
        {"kind": "blog", "id": "none"},
        {"kind": "blog", "id": "1"},
        {"kind": "photo", "id": "2"},
    ]);
    let with = app.lookup(Some("u1"), targets.clone()).await;
    insta::assert_json_snapshot!("lookup_with_user", with.shown());
    let without = app.lookup(None, targets).await;
    insta::assert_json_snapshot!("lookup_without_user", without.json());
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_answers_each_by_itself() {
    let app = TestApp::with(|settings| {
        let kinds = ["blog", "photo"].map(|kind| thumbd::domain::Kind::parse(kind).unwrap());
        settings.kinds = thumbd::config::Kinds::only(kinds);
    })
    .await;
    let answer = app
        .batch(json!([
            {"op": "like", "user": "u1", "kind": "blog", "id": "1"},
            {"op": "like", "user": 1, "kind": "blog", "id": "1"},
            {"op": "unlike", "user": "u1", "kind": "blog", "id": "1"},
            {"op": "like", "user": "u1", "kind": "blog", "id": "1"},
            {"op": "like", "user": "u1", "kind": "blog", "id": "1"},
            {"op": "love", "user": "u1", "kind": "blog", "id": "1"},
            {"op": "like", "user": "u 1", "kind": "blog", "id": "1"},
            {"op": "like", "user": "u1", "kind": "other", "id": "1"},
            {"op": "like", "user": "u1", "kind": "blog", "id": ".."},
            {"op": "like", "user": "u1", "kind": "blog", "id": "1", "extra": 1},
            {"op": "like", "user": "u1", "kind": "blog"},
            {"op": "like", "user": null, "kind": ["blog"], "id": {"a": 1}},
            {"op": "like", "user": "u\u{e9}", "kind": "blog", "id": "1"},
            "like",
            null,
            {"op": "unlike", "user": "u3", "kind": "photo", "id": "1"},
        ]))
        .await;
    insta::assert_json_snapshot!("batch", answer.shown());
    assert_eq!(app.get("u1", "blog/1").await.json()["count"], 1);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn admin_calls_include_what_came_before() {
    let app = TestApp::start().await;
    app.like("u1", "blog/1").await;
    let flush = app.admin(Method::POST, "/admin/v1/flushes").await;
    assert_eq!(
        (flush.status, &flush.json()["entries"]),
        (200, &json!(1)),
        "{flush:?}"
    );
    let slices = app.admin(Method::GET, "/admin/v1/slices").await;
    assert_eq!(slices.json()["slices"], json!([]), "{slices:?}");
    assert!(slices.json()["last_flush"].is_object(), "{slices:?}");
    let compensation = app.admin(Method::POST, "/admin/v1/compensations").await;
    assert_eq!(compensation.status, 200, "{compensation:?}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_process_tells_of_itself() {
    let app = TestApp::start().await;
    let alive = send(app.request(Method::GET, "/healthz")).await;
    insta::assert_json_snapshot!("healthz", alive.shown());
    let ready = send(app.request(Method::GET, "/readyz")).await;
    insta::assert_json_snapshot!("readyz", ready.shown());
    app.like("u1", "blog/1").await;
    let metrics = send(app.request(Method::GET, "/metrics")).await;
    assert_eq!(
        metrics.headers["content-type"],
        "text/plain; version=0.0.4; charset=utf-8"
    );
    let like = r#"thumbd_http_request_seconds_count{route="/v1/likes/{kind}/{id}",method="PUT",status="2xx"}"#;
    assert!(metrics.text.contains(like), "{}", metrics.text);
    assert!(metrics.text.contains("thumbd_http_requests_in_flight"));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn request_ids_are_repeated_or_made() {
    let app = TestApp::start().await;
    let url = format!("http://{}/v1/none", app.address);
    let made = send(app.client.get(&url)).await;
    let id = made.headers["x-request-id"].to_str().unwrap();
    assert_eq!(
        (id.len(), made.json()["request_id"].as_str()),
        (32, Some(id))
    );
    let forged = send(app.client.get(&url).header("X-Request-Id", "a b")).await;
    assert_ne!(forged.headers["x-request-id"], "a b");
    let like = app.like("u1", "blog/1").await;
    assert_eq!(like.headers["x-request-id"], crate::app::REQUEST_ID);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_keys_all_is_open() {
    let app = TestApp::with(|settings| {
        (settings.service_key, settings.admin_token) = (None, None);
    })
    .await;
    let like = app
        .request(Method::PUT, "/v1/likes/blog/1")
        .header("X-User-Id", "u1");
    assert_eq!(send(like).await.status, 200);
    let flush = send(app.request(Method::POST, "/admin/v1/flushes")).await;
    assert_eq!(flush.status, 200, "{flush:?}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_can_be_closed() {
    let app = TestApp::with(|settings| settings.read_requires_key = true).await;
    let read = || app.request(Method::GET, "/v1/likes/blog/1");
    assert_eq!(send(read()).await.status, 401);
    assert_eq!(send(read().bearer_auth("wrong-key")).await.status, 401);
    assert_eq!(send(read().bearer_auth(SERVICE_KEY)).await.status, 200);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flush_and_a_restart_change_no_answer() {
    let app = TestApp::start().await;
    app.like("u1", "blog/1").await;
    app.flush_now().await;
    app.like("u2", "blog/1").await;
    app.unlike("u1", "blog/2").await;
    let before = app.get("u1", "blog/1").await.text;
    let app = TestApp::on(app.finish().await, |_| {}).await;
    assert_eq!(app.get("u1", "blog/1").await.text, before);
    assert_eq!(app.like("u2", "blog/1").await.json()["changed"], false);
    app.finish().await;
}
