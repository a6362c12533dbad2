//! What caches may keep of a read, and answers that the caller has already.

use reqwest::{Method, RequestBuilder};

use crate::app::{Answer, SERVICE_KEY, TestApp, send};

const READS: [&str; 3] = [
    "/v1/likes/blog/1",
    "/v1/likes/blog/1/users",
    "/v1/rankings/blog",
];

fn header<'a>(answer: &'a Answer, name: &str) -> &'a str {
    answer
        .headers
        .get(name)
        .map_or("", |value| value.to_str().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_everybody_may_read_is_public() {
    let open = TestApp::start().await;
    let closed = TestApp::with(|settings| settings.read_requires_key = true).await;
    let keyed = |app: &TestApp, path: &str| app.request(Method::GET, path).bearer_auth(SERVICE_KEY);
    for path in READS {
        let control = async |request: RequestBuilder| {
            let answer = send(request).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            assert_eq!(header(&answer, "vary"), "Authorization, X-User-Id");
            header(&answer, "cache-control").to_owned()
        };
        let anonymous = open.request(Method::GET, path);
        assert_eq!(control(anonymous).await, "public, max-age=1", "{path}");
        let private = "private, no-store";
        assert_eq!(control(keyed(&open, path)).await, private, "{path}");
        assert_eq!(control(keyed(&closed, path)).await, private, "{path}");
        let named = keyed(&open, path).header("X-User-Id", "u1");
        assert_eq!(control(named).await, private, "{path}");
        let wrong = open.request(Method::GET, path).bearer_auth("wrong-key");
        let wrong = send(wrong).await;
        assert_eq!(
            (wrong.status, header(&wrong, "cache-control")),
            (401, "no-store")
        );
        let refused = send(closed.request(Method::GET, path)).await;
        assert_eq!(
            (refused.status, header(&refused, "cache-control")),
            (401, "no-store")
        );
    }
    let likes = send(keyed(&open, "/v1/users/u1/likes")).await;
    assert_eq!(header(&likes, "cache-control"), "private, no-store");
    let like = open.like("u1", "blog/1").await;
    assert_eq!(header(&like, "cache-control"), "no-store");
    open.finish().await;
    closed.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_not_changed_is_not_sent_again() {
    let app = TestApp::start().await;
    app.like("u1", "blog/1").await;
    app.flush_now().await;
    for path in READS.into_iter().chain(["/v1/users/u1/likes"]) {
        let get = |tag: &str| app.trusted(Method::GET, path).header("If-None-Match", tag);
        let first = send(app.trusted(Method::GET, path)).await;
        let tag = header(&first, "etag").to_owned();
        assert!(tag.starts_with('"') && tag.ends_with('"'), "{path} {tag}");
        for known in [
            tag.clone(),
            format!("W/{tag}"),
            format!("\"x\", {tag}"),
            "*".into(),
        ] {
            let again = send(get(&known)).await;
            assert_eq!((again.status, &*again.text), (304, ""), "{path} {known}");
            assert_eq!(header(&again, "etag"), tag);
            assert_eq!(header(&again, "vary"), "Authorization, X-User-Id");
            assert_eq!(header(&again, "cache-control"), "private, no-store");
        }
        let other = send(get("\"x\"")).await;
        assert_eq!(
            (other.status, other.text),
            (200, first.text.clone()),
            "{path}"
        );
        let head = send(app.trusted(Method::HEAD, path)).await;
        assert_eq!((head.status, &*head.text), (200, ""), "{path}");
        assert_eq!(header(&head, "etag"), tag, "{path}");
        assert_eq!(
            header(&head, "content-length"),
            first.text.len().to_string(),
            "{path}"
        );
        let head = app
            .trusted(Method::HEAD, path)
            .header("If-None-Match", &tag);
        assert_eq!(send(head).await.status, 304, "{path}");
        // Another like is another answer.
        app.like(&format!("u{}", path.len()), "blog/1").await;
        app.like("u1", &format!("blog/{}", path.len())).await;
        app.flush_now().await;
        let changed = send(get(&tag)).await;
        assert_eq!(changed.status, 200, "{path}: {changed:?}");
        assert_ne!(header(&changed, "etag"), tag, "{path}");
    }
    app.finish().await;
}
