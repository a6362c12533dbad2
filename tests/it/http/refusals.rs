//! What is refused, and how that is said: one snapshot of all, so that their texts can be read side by side.

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::app::{ADMIN_TOKEN, SERVICE_KEY, TestApp, send};

async fn all(requests: Vec<(&str, RequestBuilder)>) -> Value {
    let mut shown = serde_json::Map::new();
    for (name, request) in requests {
        shown.insert(name.to_owned(), send(request).await.shown());
    }
    shown.into()
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not() {
    let app = TestApp::start().await;
    let like = |key: &str| {
        let request = app.request(Method::PUT, "/v1/likes/blog/1");
        request.header("X-User-Id", "u1").bearer_auth(key)
    };
    let flush = || app.request(Method::POST, "/admin/v1/flushes");
    let requests = vec![
        ("like with a wrong key", like("wrong-key")),
        ("like with the admin token", like(ADMIN_TOKEN)),
        (
            "like without a key",
            app.request(Method::PUT, "/v1/likes/blog/1")
                .header("X-User-Id", "u1"),
        ),
        (
            "like without key and user",
            app.request(Method::PUT, "/v1/likes/blog/1"),
        ),
        (
            "read of a user without a key",
            app.request(Method::GET, "/v1/likes/blog/1")
                .header("X-User-Id", "u1"),
        ),
        (
            "batch without a key",
            app.request(Method::POST, "/v1/batch").json(&json!({})),
        ),
        ("flush without a token", flush()),
        (
            "flush with the service key",
            flush().bearer_auth(SERVICE_KEY),
        ),
        (
            "slices without a token",
            app.request(Method::GET, "/admin/v1/slices"),
        ),
        (
            "compensation without a token",
            app.request(Method::POST, "/admin/v1/compensations"),
        ),
    ];
    insta::assert_json_snapshot!("who_may_not", all(requests).await);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_users_and_targets() {
    let app = TestApp::with(|settings| {
        let blog = thumbd::domain::Kind::parse("blog").unwrap();
        settings.kinds = thumbd::config::Kinds::only([blog]);
    })
    .await;
    let like = |path: &str| app.trusted(Method::PUT, &format!("/v1/likes/{path}"));
    let by = |user: &str| like("blog/1").header("X-User-Id", user);
    let long = "x".repeat(129);
    let of = |path: &str| like(path).header("X-User-Id", "u1");
    let requests = vec![
        ("no user", like("blog/1")),
        ("empty user", by("")),
        ("two users", by("u1").header("X-User-Id", "u2")),
        ("user with a space", by("u 1")),
        ("user beyond ASCII", by("\u{e9}")),
        ("long user", by(&long)),
        (
            "unlike without user",
            app.trusted(Method::DELETE, "/v1/likes/blog/1"),
        ),
        (
            "empty user in a read",
            app.trusted(Method::GET, "/v1/likes/blog/1")
                .header("X-User-Id", ""),
        ),
        ("wrong kind", of("Blog/1")),
        ("unknown kind", of("other/1")),
        (
            "unknown kind in a read",
            app.request(Method::GET, "/v1/likes/other/1"),
        ),
        ("long id", of(&format!("blog/{long}"))),
        ("id with a space", of("blog/a%20b")),
        ("id that is no UTF-8", of("blog/%ff")),
        ("id with a zero", of("blog/%00")),
    ];
    insta::assert_json_snapshot!("wrong_users_and_targets", all(requests).await);
    app.finish().await;
}

/// An HTTP client would resolve these itself.
#[tokio::test(flavor = "multi_thread")]
async fn dots_are_refused() {
    let app = TestApp::start().await;
    for id in [".", "..", "%2e", "%2E%2e"] {
        let head = format!(
            "PUT /v1/likes/blog/{id} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-User-Id: u1\r\nAuthorization: Bearer {SERVICE_KEY}\r\n\r\n"
        );
        let answer = super::connections::talk(app.address, &head).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{id}: {answer}");
        assert!(answer.contains("id must not be '.' or '..'"), "{answer}");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_bodies() {
    let app = TestApp::with(|settings| settings.body_bytes_max = 32 * 1024).await;
    let post = |path: &str, body: String| {
        let request = app.trusted(Method::POST, path);
        request
            .header("Content-Type", "application/json")
            .body(body)
    };
    let lookup = |body: Value| post("/v1/lookup", body.to_string());
    let batch = |body: &str| post("/v1/batch", body.to_owned());
    let target = json!({"kind": "blog", "id": "1"});
    let requests = vec![
        ("no JSON", batch("{\"operations\": [")),
        ("no object", batch("[]")),
        ("something behind it", batch("{\"operations\":[]} x")),
        ("unknown field", batch("{\"operations\":[],\"more\":1}")),
        (
            "a field twice",
            batch("{\"operations\":[],\"operations\":[]}"),
        ),
        ("no field", batch("{}")),
        ("no list", batch("{\"operations\":{}}")),
        ("no operations", batch("{\"operations\":[]}")),
        (
            "1001 operations",
            batch(&json!({"operations": vec![1; 1001]}).to_string()),
        ),
        (
            "201 targets",
            lookup(json!({"targets": vec![target.clone(); 201]})),
        ),
        ("no targets", lookup(json!({"targets": []}))),
        (
            "a number for an id",
            lookup(json!({"targets": [target, {"kind": "blog", "id": 1}]})),
        ),
        (
            "a user in a target",
            lookup(json!({"targets": [{"kind": "blog", "id": "1", "user": "u1"}]})),
        ),
        (
            "a target that is none",
            lookup(json!({"targets": ["blog:1"]})),
        ),
        (
            "a long id",
            lookup(json!({"targets": [{"kind": "blog", "id": "x".repeat(129)}]})),
        ),
        (
            "no content type",
            app.trusted(Method::POST, "/v1/batch").body("{}"),
        ),
        (
            "another content type",
            app.trusted(Method::POST, "/v1/lookup")
                .header("Content-Type", "text/plain")
                .body("{}"),
        ),
        ("too large", batch(&" ".repeat(33 * 1024))),
    ];
    insta::assert_json_snapshot!("wrong_bodies", all(requests).await);
    let full = json!({"operations": vec![json!({"op": "like"}); 1000]}).to_string();
    let full = send(batch(&full)).await.json();
    assert_eq!(full["results"].as_array().unwrap().len(), 1000);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_addresses_and_methods() {
    let app = TestApp::start().await;
    let requests = vec![
        ("root", app.request(Method::GET, "/")),
        (
            "a slash too many",
            app.request(Method::GET, "/v1/likes/blog/1/2"),
        ),
        ("no id", app.request(Method::GET, "/v1/likes/blog/")),
        (
            "POST to a target",
            app.request(Method::POST, "/v1/likes/blog/1"),
        ),
        ("GET of batch", app.request(Method::GET, "/v1/batch")),
        (
            "GET of flushes",
            app.request(Method::GET, "/admin/v1/flushes"),
        ),
        ("PUT of health", app.request(Method::PUT, "/healthz")),
    ];
    insta::assert_json_snapshot!("wrong_addresses_and_methods", all(requests).await);
    app.finish().await;
}
