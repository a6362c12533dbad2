//! Who may do what: every address and method, for every kind of caller. An address without a rule here fails.

use std::collections::BTreeSet;

use chrono::Utc;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use reqwest::Method;
use serde_json::{Value, json};
use thumbd::auth::{NamedKey, TokenKeys};
use thumbd::config::Settings;

use crate::app::{ADMIN_TOKEN, SERVICE_KEY, TestApp, send};

pub(crate) const SECRET: &str = "a secret of thirty-two bytes or more";

/// The callers, in the order of the columns below.
const CALLERS: [&str; 9] = [
    "anyone",
    "junk",
    "service",
    "admin",
    "reader",
    "writer",
    "blog-only",
    "user u1",
    "expired u1",
];

/// What a request is about.
#[derive(Clone, Copy)]
enum About {
    /// A user in the header, or none, and the target's kind.
    Pair(Option<&'static str>, &'static str),
    /// Nothing that rights depend on.
    Nothing,
}
use About::{Nothing, Pair};

/// Method, address, what it is about, and a status for each caller.
type Rule = (&'static str, &'static str, About, [u16; CALLERS.len()]);

const LIKES: &str = "/v1/likes/{kind}/{id}";
const LIKERS: &str = "/v1/likes/{kind}/{id}/users";
/// The user stands in the path, `me` if there is none.
const USER_LIKES: &str = "/v1/users/{user}/likes";
const RANKINGS: &str = "/v1/rankings/{kind}";
/// Its answer has no end.
const LIVE: &str = "/admin/v1/live";
const U1: Option<&str> = Some("u1");
const U2: Option<&str> = Some("u2");

//                                         any  junk serv adm  read writ blog u1   exp
const WRITE_U1: [u16; CALLERS.len()] = [401, 401, 200, 403, 403, 200, 200, 200, 401];
const WRITE_U2: [u16; CALLERS.len()] = [401, 401, 200, 403, 403, 200, 200, 403, 401];
const WRITE_PHOTO: [u16; CALLERS.len()] = [401, 401, 200, 403, 403, 200, 403, 200, 401];
const WRITE_NONE: [u16; CALLERS.len()] = [401, 401, 400, 403, 403, 400, 400, 200, 401];
const READ_U1: [u16; CALLERS.len()] = [401, 401, 200, 403, 200, 200, 200, 200, 401];
const READ_U2: [u16; CALLERS.len()] = [401, 401, 200, 403, 200, 200, 200, 403, 401];
const READ_NONE: [u16; CALLERS.len()] = [200, 401, 200, 403, 200, 200, 200, 200, 401];
const READ_PHOTO: [u16; CALLERS.len()] = [200, 401, 200, 403, 200, 200, 403, 200, 401];
const LIST_ME: [u16; CALLERS.len()] = [401, 401, 400, 403, 400, 400, 400, 200, 401];
const ADMIN: [u16; CALLERS.len()] = [401, 401, 403, 200, 403, 403, 403, 403, 401];
const ASKED: [u16; CALLERS.len()] = [401, 401, 403, 202, 403, 403, 403, 403, 401];
const OPEN: [u16; CALLERS.len()] = [200, 200, 200, 200, 200, 200, 200, 200, 200];
const BATCH_U2: [u16; CALLERS.len()] = [401, 401, 200, 403, 403, 200, 200, 200, 401];

const RULES: &[Rule] = &[
    ("PUT", LIKES, Pair(U1, "blog"), WRITE_U1),
    ("PUT", LIKES, Pair(U2, "blog"), WRITE_U2),
    ("PUT", LIKES, Pair(U1, "photo"), WRITE_PHOTO),
    ("PUT", LIKES, Pair(None, "blog"), WRITE_NONE),
    ("DELETE", LIKES, Pair(U1, "blog"), WRITE_U1),
    ("DELETE", LIKES, Pair(U2, "blog"), WRITE_U2),
    ("DELETE", LIKES, Pair(U1, "photo"), WRITE_PHOTO),
    ("DELETE", LIKES, Pair(None, "blog"), WRITE_NONE),
    ("GET", LIKES, Pair(U1, "blog"), READ_U1),
    ("GET", LIKES, Pair(U2, "blog"), READ_U2),
    ("GET", LIKES, Pair(None, "blog"), READ_NONE),
    ("GET", LIKES, Pair(None, "photo"), READ_PHOTO),
    ("HEAD", LIKES, Pair(U1, "blog"), READ_U1),
    ("GET", LIKERS, Pair(U1, "blog"), READ_U1),
    ("GET", LIKERS, Pair(U2, "blog"), READ_U2),
    ("GET", LIKERS, Pair(None, "blog"), READ_NONE),
    ("GET", LIKERS, Pair(None, "photo"), READ_PHOTO),
    ("HEAD", LIKERS, Pair(None, "blog"), READ_NONE),
    ("GET", USER_LIKES, Pair(U1, "blog"), READ_NONE),
    // What a caller is not shown is empty: `visibility` looks at that.
    ("GET", USER_LIKES, Pair(U2, "blog"), READ_NONE),
    ("GET", USER_LIKES, Pair(U1, "photo"), READ_PHOTO),
    ("GET", USER_LIKES, Pair(None, "blog"), LIST_ME),
    ("HEAD", USER_LIKES, Pair(U2, "blog"), READ_NONE),
    ("GET", RANKINGS, Pair(None, "blog"), READ_NONE),
    ("GET", RANKINGS, Pair(None, "photo"), READ_PHOTO),
    ("HEAD", RANKINGS, Pair(None, "blog"), READ_NONE),
    ("POST", "/v1/lookup", Pair(U1, "blog"), READ_U1),
    ("POST", "/v1/lookup", Pair(U2, "blog"), READ_U2),
    ("POST", "/v1/lookup", Pair(None, "blog"), READ_NONE),
    ("POST", "/v1/lookup", Pair(None, "photo"), READ_PHOTO),
    // Users stand in the body, and each operation has a status of its own: see below.
    ("POST", "/v1/batch", Pair(U2, "blog"), BATCH_U2),
    ("POST", "/admin/v1/flushes", Nothing, ADMIN),
    ("POST", "/admin/v1/compensations", Nothing, ADMIN),
    ("GET", "/admin/v1/slices", Nothing, ADMIN),
    ("HEAD", "/admin/v1/slices", Nothing, ADMIN),
    ("GET", "/admin/v1/feed", Nothing, ADMIN),
    ("HEAD", "/admin/v1/feed", Nothing, ADMIN),
    ("POST", "/admin/v1/feed/resume", Nothing, ADMIN),
    ("GET", LIVE, Nothing, ADMIN),
    ("HEAD", LIVE, Nothing, ADMIN),
    ("POST", "/admin/v1/verifications", Nothing, ADMIN),
    ("GET", "/admin/v1/targets/{kind}/{id}", Nothing, ADMIN),
    ("HEAD", "/admin/v1/targets/{kind}/{id}", Nothing, ADMIN),
    ("GET", "/admin/v1/users/{user}", Nothing, ADMIN),
    ("HEAD", "/admin/v1/users/{user}", Nothing, ADMIN),
    ("DELETE", "/admin/v1/users/{user}", Nothing, ASKED),
    // The target is there.
    (
        "PUT",
        "/admin/v1/targets/{kind}/{id}/restore",
        Nothing,
        ADMIN,
    ),
    ("DELETE", "/admin/v1/targets/{kind}/{id}", Nothing, ASKED),
    // The first job of the lines above.
    ("GET", "/admin/v1/jobs/{id}", Nothing, ADMIN),
    ("HEAD", "/admin/v1/jobs/{id}", Nothing, ADMIN),
    ("GET", "/healthz", Nothing, OPEN),
    ("HEAD", "/healthz", Nothing, OPEN),
    ("GET", "/readyz", Nothing, OPEN),
    ("HEAD", "/readyz", Nothing, OPEN),
    ("GET", "/metrics", Nothing, OPEN),
    ("HEAD", "/metrics", Nothing, OPEN),
    ("GET", "/openapi.json", Nothing, OPEN),
    ("HEAD", "/openapi.json", Nothing, OPEN),
    ("GET", "/docs", Nothing, OPEN),
    ("HEAD", "/docs", Nothing, OPEN),
    ("GET", "/docs/page.js", Nothing, OPEN),
    ("HEAD", "/docs/page.js", Nothing, OPEN),
    ("GET", "/docs/page.css", Nothing, OPEN),
    ("HEAD", "/docs/page.css", Nothing, OPEN),
    ("GET", "/ui", Nothing, OPEN),
    ("HEAD", "/ui", Nothing, OPEN),
    ("GET", "/ui/{file}", Nothing, OPEN),
    ("HEAD", "/ui/{file}", Nothing, OPEN),
];

pub(crate) fn token(user: &str, seconds: i64) -> String {
    let claims = json!({ "sub": user, "exp": Utc::now().timestamp() + seconds });
    let key = EncodingKey::from_secret(SECRET.as_bytes()).unwrap();
    encode(&Header::new(Algorithm::HS256), &claims, &key).unwrap()
}

/// The bearer of each caller.
fn bearers() -> [Option<String>; CALLERS.len()] {
    let fixed = |text: &str| Some(text.to_owned());
    [
        None,
        fixed("junk"),
        fixed(SERVICE_KEY),
        fixed(ADMIN_TOKEN),
        fixed("reader"),
        fixed("writer"),
        fixed("blog-only"),
        Some(token("u1", 60)),
        Some(token("u1", -60)),
    ]
}

pub(crate) fn guarded(settings: &mut Settings) {
    let key = |name: &str, right: &str, kinds: Value| {
        let digest = thumbd::auth::digest(name.as_bytes());
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut key = json!({ "name": name, "sha256": hex, "rights": [right] });
        if !kinds.is_null() {
            key["kinds"] = kinds;
        }
        key
    };
    let keys = json!([
        key("reader", "read", Value::Null),
        key("writer", "write", Value::Null),
        key("blog-only", "write", json!(["blog"])),
    ]);
    settings.keys = NamedKey::parse_list(&keys.to_string()).unwrap();
    settings.jwt_secret = Some(TokenKeys::secret(SECRET).unwrap());
}

fn request(
    app: &TestApp,
    (method, address, about, _): &Rule,
    bearer: Option<&String>,
) -> reqwest::RequestBuilder {
    let (user, kind) = match about {
        Pair(user, kind) => (*user, *kind),
        Nothing => (None, "blog"),
    };
    let path = address.replace("{kind}", kind).replace("{id}", "1");
    let path = path.replace("{file}", "main.js");
    let mut path = path.replace("{user}", user.unwrap_or("me"));
    if *address == USER_LIKES {
        path += &format!("?kind={kind}");
    }
    let mut request = app.request(method.parse().unwrap(), &path);
    if let Some(bearer) = bearer {
        request = request.bearer_auth(bearer);
    }
    match *address {
        "/v1/batch" => {
            let operation = json!({ "op": "like", "user": user, "kind": kind, "id": "1" });
            return request.json(&json!({ "operations": [operation] }));
        }
        "/v1/lookup" => {
            request = request.json(&json!({ "targets": [{ "kind": kind, "id": "1" }] }));
        }
        USER_LIKES => return request,
        _ => {}
    }
    match user {
        Some(user) => request.header("X-User-Id", user),
        None => request,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_address_has_its_rule_for_every_caller() {
    let app = TestApp::with(guarded).await;
    let bearers = bearers();
    let mut wrong = Vec::new();
    for rule in RULES {
        for (at, caller) in CALLERS.iter().enumerate() {
            let answer = request(&app, rule, bearers[at].as_ref()).send().await;
            let answer = answer.expect("an answer");
            let status = answer.status().as_u16();
            let (method, address, ..) = rule;
            if *address == LIVE && status == 200 {
                assert_eq!(rule.3[at], 200, "{method} {address} by {caller}");
                continue;
            }
            let text = answer.text().await.expect("a whole body");
            if status != rule.3[at] {
                wrong.push(format!(
                    "{method} {address} by {caller}: {status} instead of {}: {text}",
                    rule.3[at]
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    // Whatever an address answers to has a rule.
    let ruled: BTreeSet<_> = RULES.iter().map(|rule| (rule.0, rule.1)).collect();
    for address in thumbd::http::addresses() {
        let path = address
            .replace("{kind}", "blog")
            .replace("{id}", "1")
            .replace("{file}", "main.js")
            .replace("{user}", "u1");
        let answer = send(app.request(Method::PATCH, &path)).await;
        assert_eq!(answer.status, 405, "{address}");
        let allowed = answer.headers["allow"].to_str().unwrap().to_owned();
        for method in allowed.split(',').map(str::trim) {
            assert!(
                ruled.contains(&(method, address)),
                "{method} {address} has no rule"
            );
        }
    }
    app.finish().await;
}

/// Which schemes of the document open an address, as the rules have it: whoever gets 200 for one of them.
#[test]
fn the_document_names_who_may() {
    let document: Value = serde_json::from_str(thumbd::http::openapi()).unwrap();
    let schemes = [
        ("anyone", ""),
        ("service", "serviceKey"),
        ("admin", "adminToken"),
        ("writer", "namedKey"),
        ("user u1", "userToken"),
    ];
    for (method, address) in super::contract::operations(&document) {
        let rules = RULES
            .iter()
            .filter(|rule| (rule.0, rule.1) == (method.as_str(), address.as_str()));
        let rules: Vec<_> = rules.collect();
        let may = |caller: &str| {
            let at = CALLERS.iter().position(|name| *name == caller).unwrap();
            rules.iter().any(|rule| matches!(rule.3[at], 200 | 202))
        };
        let security = &document["paths"][&address][method.to_lowercase()]["security"];
        let mut named = BTreeSet::new();
        for requirement in security.as_array().unwrap() {
            let names = requirement.as_object().unwrap().keys();
            named.insert(names.map(String::as_str).next().unwrap_or_default());
        }
        let open = CALLERS.iter().all(|caller| may(caller));
        let mut wanted = BTreeSet::new();
        if !open {
            let who = schemes.iter().filter(|(caller, _)| may(caller));
            wanted.extend(who.map(|(_, scheme)| *scheme));
        }
        // No caller of the rules has a named key with the right `admin`.
        if wanted.contains("adminToken") {
            wanted.insert("namedKey");
        }
        assert_eq!(named, wanted, "{method} {address}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_can_have_an_address_of_their_own() {
    let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let app = TestApp::with(|settings| settings.admin_listen = Some(any)).await;
    let inner = app.admin_address.unwrap();
    for address in thumbd::http::addresses() {
        let path = address
            .replace("{kind}", "blog")
            .replace("{id}", "1")
            .replace("{file}", "main.js")
            .replace("{user}", "u1");
        let at = async |socket| {
            let url = format!("http://{socket}{path}");
            send(app.client.patch(url)).await.status
        };
        let (public, private) = (at(app.address).await, at(inner).await);
        let operators =
            path.starts_with("/admin/") || path.starts_with("/ui") || path == "/metrics";
        let probe = path == "/healthz" || path == "/readyz";
        // 405: it is there, with other methods.
        let want = |there| if there { 405 } else { 404 };
        assert_eq!(
            (public, private),
            (want(!operators), want(operators || probe)),
            "{path}"
        );
    }
    let url = format!("http://{inner}/admin/v1/flushes");
    assert_eq!(send(app.client.post(&url)).await.status, 401);
    let flush = send(app.client.post(&url).bearer_auth(ADMIN_TOKEN)).await;
    assert_eq!(flush.status, 200, "{flush:?}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn operations_of_a_batch_are_judged_one_by_one() {
    let app = TestApp::with(guarded).await;
    let operation =
        |user: &str, kind: &str| json!({ "op": "like", "user": user, "kind": kind, "id": "1" });
    let operations = json!([
        operation("u1", "blog"),
        operation("u2", "blog"),
        operation("u1", "photo")
    ]);
    for (bearer, want) in [
        (token("u1", 60), [200, 403, 200]),
        ("blog-only".to_owned(), [200, 200, 403]),
    ] {
        let batch = app.request(Method::POST, "/v1/batch").bearer_auth(bearer);
        let answer = send(batch.json(&json!({ "operations": operations }))).await;
        let results = answer.json()["results"].clone();
        let statuses: Vec<_> = results
            .as_array()
            .unwrap()
            .iter()
            .map(|result| result["status"].as_u64().unwrap())
            .collect();
        assert_eq!(statuses, want, "{results}");
    }
    // What was refused did not happen.
    let seen = app.get("u2", "photo/1").await.json();
    assert_eq!((&seen["liked"], &seen["count"]), (&json!(false), &json!(1)));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_of_a_user_is_the_user() {
    let app = TestApp::with(guarded).await;
    let by = |method, path: &str| app.request(method, path).bearer_auth(token("u7", 60));
    let like = send(by(Method::PUT, "/v1/likes/blog/1")).await.json();
    assert_eq!((&like["liked"], &like["count"]), (&json!(true), &json!(1)));
    let seen = send(by(Method::GET, "/v1/likes/blog/1")).await.json();
    assert_eq!(seen["liked"], true);
    assert_eq!(app.get("u7", "blog/1").await.json()["liked"], true);
    let other = by(Method::DELETE, "/v1/likes/blog/1").header("X-User-Id", "u8");
    let other = send(other).await;
    assert_eq!(
        (other.status, &other.json()["code"], &other.json()["field"]),
        (403, &json!("forbidden"), &json!("X-User-Id"))
    );
    app.finish().await;
}
