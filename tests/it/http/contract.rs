//! The document at `/openapi.json` against what the server does, and the page at `/docs`.

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::Value;

use crate::app::{ADMIN_TOKEN, SERVICE_KEY, TestApp, send};

/// Methods and paths of the document.
pub(super) fn operations(document: &Value) -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys() {
            found.insert((method.to_uppercase(), path.clone()));
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn the_document_has_just_the_routes() {
    let app = TestApp::start().await;
    let document = send(app.request(Method::GET, "/openapi.json")).await;
    assert_eq!(document.status, 200);
    assert_eq!(document.headers["content-type"], "application/json");
    assert_eq!(document.text, thumbd::http::openapi());
    let mut routes = BTreeSet::new();
    for address in thumbd::http::addresses() {
        let path = address
            .replace("{kind}", "blog")
            .replace("{id}", "1")
            .replace("{file}", "main.js")
            .replace("{user}", "u1");
        let answer = send(app.request(Method::PATCH, &path)).await;
        let allowed = answer.headers["allow"].to_str().unwrap().to_owned();
        for method in allowed.split(',').map(str::trim) {
            // HEAD is GET without a body, by HTTP itself.
            if method != "HEAD" {
                routes.insert((method.to_owned(), address.to_owned()));
            }
        }
    }
    assert_eq!(operations(&document.json()), routes);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_have_the_headers_that_the_document_requires() {
    let app = TestApp::start().await;
    let document: Value = serde_json::from_str(thumbd::http::openapi()).unwrap();
    let mut statuses = BTreeSet::new();
    for (method, path) in operations(&document) {
        // It has no end.
        if path == "/admin/v1/live" {
            continue;
        }
        let address = path
            .replace("{kind}", "blog")
            .replace("{id}", "1")
            .replace("{file}", "main.js")
            .replace("{user}", "u1");
        let operation = &document["paths"][&path][method.to_lowercase()];
        for traced in [false, true] {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            let request = app.request(method, &address);
            let mut request = match path.starts_with("/admin/") {
                true => request.bearer_auth(ADMIN_TOKEN),
                false => request.bearer_auth(SERVICE_KEY).header("X-User-Id", "u1"),
            };
            if traced {
                let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
                request = request.header("traceparent", parent);
            }
            let answer = send(request).await;
            let described = &operation["responses"][answer.status.to_string()]["headers"];
            let described = described.as_object().unwrap();
            assert!(described.len() >= 3, "{path}: {answer:?}");
            for (name, header) in described {
                let wanted = traced || header["required"] == true;
                assert!(
                    !wanted || answer.headers.contains_key(name),
                    "{path}: no {name}: {answer:?}"
                );
            }
            statuses.insert(answer.status);
        }
    }
    assert!(
        statuses.contains(&200) && statuses.contains(&415),
        "{statuses:?}"
    );
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_loads_nothing_from_elsewhere() {
    let app = TestApp::start().await;
    for (path, kind) in [
        ("/docs", "text/html; charset=utf-8"),
        ("/docs/page.js", "text/javascript; charset=utf-8"),
        ("/docs/page.css", "text/css; charset=utf-8"),
    ] {
        let answer = send(app.request(Method::GET, path)).await;
        assert_eq!(
            (
                answer.status,
                answer.headers["content-type"].to_str().unwrap()
            ),
            (200, kind)
        );
        let policy = answer.headers["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'"), "{policy}");
        assert!(
            !policy.contains("unsafe") && !policy.contains('*'),
            "{policy}"
        );
        assert_eq!(answer.headers["x-content-type-options"], "nosniff");
        for foreign in [
            "http://",
            "https://",
            "<style",
            "style=",
            "onclick",
            "javascript:",
        ] {
            assert!(!answer.text.contains(foreign), "{path} has {foreign}");
        }
    }
    app.finish().await;
}
