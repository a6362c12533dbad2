//! Calls of web pages from elsewhere: what browsers are told, and that nobody is told anything unless it is switched on.

use reqwest::{Method, RequestBuilder};
use thumbd::config::{Origins, Settings};

use crate::app::{ADMIN_TOKEN, Answer, SERVICE_KEY, TestApp, send};

const PAGE: &str = "https://www.example.com";
const FOREIGN: &str = "https://www.example.com.evil.example";
const LIKE: &str = "/v1/likes/blog/1";

fn pages(settings: &mut Settings) {
    settings.cors_origins = Some(Origins::Only(vec![PAGE.to_owned()]));
}

/// Everything that is said of other pages; and `Vary`.
fn told(answer: &Answer) -> Vec<(String, String)> {
    let headers = answer.headers.iter();
    let told = headers.filter(|(name, _)| {
        name.as_str().starts_with("access-control-") || name.as_str() == "vary"
    });
    let text = told.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_lowercase()));
    let mut text: Vec<_> = text.collect();
    text.sort();
    text
}

fn preflight(app: &TestApp, path: &str, origin: &str) -> RequestBuilder {
    let request = app.request(Method::OPTIONS, path).header("Origin", origin);
    request
        .header("Access-Control-Request-Method", "PUT")
        .header("Access-Control-Request-Headers", "authorization,x-user-id")
}

fn pair(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

const EXPOSED: &str = "retry-after,ratelimit,ratelimit-policy,etag,x-request-id,traceresponse";
const HEADERS: &str = "authorization,content-type,if-none-match,x-user-id,x-request-id,traceparent";

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_told_anything_while_it_is_off() {
    let app = TestApp::start().await;
    let answer = send(preflight(&app, LIKE, PAGE)).await;
    assert_eq!((answer.status, told(&answer)), (405, vec![]));
    let read = app.request(Method::GET, LIKE).header("Origin", PAGE);
    let answer = send(read).await;
    let vary = pair("vary", "authorization, x-user-id");
    assert_eq!((answer.status, told(&answer)), (200, vec![vary]));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_is_named_may_ask_first_and_then_call() {
    let app = TestApp::with(pages).await;
    let answer = send(preflight(&app, LIKE, PAGE)).await;
    let want = [
        pair("access-control-allow-headers", HEADERS),
        pair("access-control-allow-methods", "get,put,delete,post"),
        pair("access-control-allow-origin", PAGE),
        pair("access-control-max-age", "600"),
        pair("vary", "origin"),
    ];
    assert_eq!((answer.status, &*answer.text), (200, ""), "{answer:?}");
    assert_eq!(told(&answer), want);
    assert!(answer.headers.contains_key("x-request-id"), "{answer:?}");

    let from = |request: RequestBuilder| request.header("Origin", PAGE);
    let like = from(app.trusted(Method::PUT, LIKE)).header("X-User-Id", "u1");
    let read = from(app.request(Method::GET, LIKE));
    let known = from(app.request(Method::GET, LIKE)).header("If-None-Match", "*");
    let refused = from(app.request(Method::PUT, LIKE));
    let nowhere = from(app.request(Method::GET, "/v1/nothing"));
    // Errors too, or a page would never learn why.
    for (request, status, varies) in [
        (like, 200, false),
        (read, 200, true),
        (known, 304, true),
        (refused, 401, false),
        (nowhere, 404, false),
    ] {
        let answer = send(request).await;
        let mut want = vec![
            pair("access-control-allow-origin", PAGE),
            pair("access-control-expose-headers", EXPOSED),
        ];
        if varies {
            want.push(pair("vary", "authorization, x-user-id"));
        }
        want.push(pair("vary", "origin"));
        assert_eq!((answer.status, told(&answer)), (status, want), "{answer:?}");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_page_is_not_allowed_and_caches_know_why() {
    let app = TestApp::with(pages).await;
    for origin in [
        FOREIGN,
        "null",
        "http://www.example.com",
        "https://example.com",
    ] {
        let asked = send(preflight(&app, LIKE, origin)).await;
        let read = app.request(Method::GET, LIKE).header("Origin", origin);
        for answer in [asked, send(read).await] {
            let told = told(&answer);
            assert!(told.contains(&pair("vary", "origin")), "{told:?}");
            let allowed = told
                .iter()
                .any(|(name, _)| name == "access-control-allow-origin");
            assert!(!allowed, "{origin}: {told:?}");
        }
    }
    // Without an origin it is as it ever was, but for caches.
    let answer = send(app.request(Method::GET, LIKE)).await;
    assert!(told(&answer).contains(&pair("vary", "origin")));
    // Operators' calls are no business of pages.
    for path in ["/admin/v1/slices", "/metrics", "/healthz"] {
        let asked = send(preflight(&app, path, PAGE)).await;
        assert_eq!((asked.status, told(&asked)), (405, vec![]), "{path}");
        let get = app.request(Method::GET, path).header("Origin", PAGE);
        let get = send(get.bearer_auth(ADMIN_TOKEN)).await;
        assert_eq!((get.status, told(&get)), (200, vec![]), "{path}");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_pages_may_call_but_never_with_cookies() {
    let app = TestApp::with(|settings| settings.cors_origins = Some(Origins::Any)).await;
    for request in [
        preflight(&app, LIKE, FOREIGN),
        app.request(Method::GET, LIKE).header("Origin", FOREIGN),
        app.request(Method::GET, LIKE)
            .header("Origin", FOREIGN)
            .bearer_auth(SERVICE_KEY),
    ] {
        let told = told(&send(request).await);
        assert!(
            told.contains(&pair("access-control-allow-origin", "*")),
            "{told:?}"
        );
        assert!(
            told.iter()
                .all(|(name, _)| name != "access-control-allow-credentials")
        );
    }
    app.finish().await;
}
