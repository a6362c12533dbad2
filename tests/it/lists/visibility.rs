//! Who is shown who likes what: every setting, for every caller, in every form. What is not shown is as what is not there.

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use thumbd::config::{Kinds, Settings};

use super::{shorts, sql};
use crate::app::{ADMIN_TOKEN, Answer, SERVICE_KEY, TestApp, send};
use crate::http::rights::{guarded, token};

/// A kind of each value, for both settings.
const KINDS: [&str; 3] = ["open", "back", "own"];

/// Who asks, with which user in the header, for whom that speaks, and of which kinds it sees what others like.
type Caller = (
    String,
    Option<&'static str>,
    Option<&'static str>,
    [bool; 3],
);

fn callers() -> Vec<Caller> {
    let key = |name: &str, header| (name.to_owned(), header, header, [true, true, false]);
    let user = |name: &'static str| (token(name, 60), None, Some(name), [true, false, false]);
    vec![
        (String::new(), None, None, [true, false, false]),
        user("u1"),
        user("u2"),
        user("u3"),
        key("reader", None),
        key("writer", None),
        key(SERVICE_KEY, None),
        key(SERVICE_KEY, Some("u1")),
        key(SERVICE_KEY, Some("u2")),
        key("reader", Some("u3")),
    ]
}

fn kinds(settings: &mut Settings) {
    guarded(settings);
    let each = |kind: &str, value: &str| format!("{kind}+likers={value}+user_likes={value}");
    let values = KINDS.into_iter().zip(["public", "service", "self"]);
    let text: Vec<_> = values.map(|(kind, value)| each(kind, value)).collect();
    settings.kinds = Kinds::parse(&format!("{},open2+user_likes=public", text.join(","))).unwrap();
}

fn request(app: &TestApp, method: Method, path: &str, caller: &Caller) -> RequestBuilder {
    let mut request = app.request(method, path);
    if !caller.0.is_empty() {
        request = request.bearer_auth(&caller.0);
    }
    if let Some(user) = caller.1 {
        request = request.header("X-User-Id", user);
    }
    request
}

async fn get(app: &TestApp, path: &str, caller: &Caller) -> Answer {
    send(request(app, Method::GET, path, caller)).await
}

/// Everything that comes back, but the time.
fn bytes(mut answer: Answer) -> (u16, Vec<(String, String)>, String) {
    answer.headers.remove("date");
    let text = |value: &reqwest::header::HeaderValue| value.to_str().unwrap().to_owned();
    let headers = answer.headers.iter();
    let mut headers: Vec<_> = headers
        .map(|(name, value)| (name.to_string(), text(value)))
        .collect();
    headers.sort();
    (answer.status, headers, answer.text)
}

/// What nobody likes, and a user who likes nothing, are not told from what the caller may not see.
async fn is_hidden(app: &TestApp, caller: &Caller, there: &str, not_there: &str) {
    let there = bytes(get(app, there, caller).await);
    let not_there = bytes(get(app, not_there, caller).await);
    assert_eq!(there, not_there, "{caller:?}");
}

async fn likes(app: &TestApp) {
    for kind in KINDS {
        app.like("u1", &format!("{kind}/1")).await;
        app.like("u2", &format!("{kind}/1")).await;
        app.like("u2", &format!("{kind}/2")).await;
    }
    app.flush_now().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_show_what_the_caller_may_see_and_nothing_else() {
    let app = TestApp::with(kinds).await;
    likes(&app).await;
    for caller in callers() {
        let myself = caller.2;
        for (kind, sees) in KINDS.into_iter().zip(caller.3) {
            let likers = |id: &str| format!("/v1/likes/{kind}/{id}/users");
            let mut want = vec!["u2", "u1"];
            want.retain(|user| sees || myself == Some(user));
            let shown = shorts(&get(&app, &likers("1"), &caller).await);
            assert_eq!(shown, want, "{kind} {caller:?}");
            if !sees && myself != Some("u2") {
                is_hidden(&app, &caller, &likers("2"), &likers("none")).await;
            }

            let likes = |user: &str| format!("/v1/users/{user}/likes?kind={kind}");
            if sees || myself == Some("u2") {
                let shown = shorts(&get(&app, &likes("u2"), &caller).await);
                assert_eq!(
                    shown,
                    [format!("{kind}:2"), format!("{kind}:1")],
                    "{caller:?}"
                );
            } else {
                is_hidden(&app, &caller, &likes("u2"), &likes("nobody")).await;
            }
        }
        // Of all kinds, those that it may see.
        let all = |user: &str| format!("/v1/users/{user}/likes");
        let kinds = KINDS.into_iter().zip(caller.3).rev();
        let shown = kinds.filter(|(_, sees)| *sees || myself == Some("u2"));
        let want: Vec<_> = shown
            .flat_map(|(kind, _)| [format!("{kind}:2"), format!("{kind}:1")])
            .collect();
        assert_eq!(
            shorts(&get(&app, &all("u2"), &caller).await),
            want,
            "{caller:?}"
        );
    }
    // A like of this moment is the user's own, and nobody else's business.
    app.like("u3", "own/2").await;
    for (name, want) in [("u1", vec![]), ("u3", vec!["u3"])] {
        let caller = (token(name, 60), None, Some(name), [false; 3]);
        let shown = shorts(&get(&app, "/v1/likes/own/2/users", &caller).await);
        assert_eq!(shown, want);
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_caller_may_not_see_is_as_what_is_not_there_in_every_form() {
    let app = TestApp::with(kinds).await;
    likes(&app).await;
    let anyone = (String::new(), None, None, [false; 3]);
    let user = (token("u1", 60), None, Some("u1"), [false; 3]);
    let admin = (ADMIN_TOKEN.to_owned(), None, None, [false; 3]);
    for (caller, status) in [(anyone, 401), (user, 403), (admin, 403)] {
        for kind in KINDS {
            // One target, and many: nobody speaks for another user, whether that one likes anything or not.
            let path = format!("/v1/likes/{kind}/1");
            let body = json!({ "targets": [{ "kind": kind, "id": "1" }] });
            let mut answers: Vec<Value> = Vec::new();
            for name in ["u2", "nobody"] {
                let one = request(&app, Method::GET, &path, &caller).header("X-User-Id", name);
                let many = request(&app, Method::POST, "/v1/lookup", &caller);
                let many = many.header("X-User-Id", name).json(&body);
                let (one, many) = (bytes(send(one).await), bytes(send(many).await));
                assert_eq!((one.0, many.0), (status, status), "{one:?} {many:?}");
                answers.push(json!([one, many]));
            }
            assert_eq!(answers[0], answers[1]);
        }
    }
    // A tag that is known, and a cursor from somebody who sees more, tell nothing either.
    let user = (token("u1", 60), None, Some("u1"), [false; 3]);
    let key = (SERVICE_KEY.to_owned(), None, None, [true; 3]);
    let path = "/v1/likes/back/1/users?limit=1";
    let first = get(&app, path, &key).await.json();
    assert_eq!(first["users"][0]["user"], "u2");
    let path = format!("{path}&cursor={}", first["cursor"].as_str().unwrap());
    assert_eq!(shorts(&get(&app, &path, &user).await), ["u1"]);
    let stranger = (token("u3", 60), None, Some("u3"), [false; 3]);
    assert!(shorts(&get(&app, &path, &stranger).await).is_empty());
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_walk_through_some_kinds_meets_each_like_of_them_once() {
    let app = TestApp::with(kinds).await;
    // Likes of one moment, as an import makes them.
    sql(
        &app,
        "INSERT INTO kind (kind_id, name) VALUES (1, 'own'), (2, 'open2'), (3, 'back'), (4, 'open');
         INSERT INTO thumb (user_id, kind_id, target_id, thumbed, version)
         SELECT 'u9', kind_id, id, 1, moment FROM kind,
            (SELECT 'a' AS id UNION SELECT 'b' UNION SELECT '~') AS ids,
            (SELECT 7000000 AS moment) AS moments;
         INSERT INTO thumb (user_id, kind_id, target_id, thumbed, version)
         SELECT 'u9', kind_id, 'late', 1, 7000001 FROM kind",
    )
    .await;
    let anyone = (String::new(), None, None, [false; 3]);
    let want = [
        "open:late",
        "open2:late",
        "open:~",
        "open:b",
        "open:a",
        "open2:~",
        "open2:b",
        "open2:a",
    ];
    for dirty in [false, true] {
        let mut want = want.map(str::to_owned).to_vec();
        if dirty {
            app.like("u9", "open/new").await;
            app.like("u9", "own/new").await;
            want.insert(0, "open:new".to_owned());
        }
        for limit in [1, 2, 3, 20] {
            let (mut found, mut cursor) = (Vec::new(), String::new());
            loop {
                let path = format!("/v1/users/u9/likes?limit={limit}{cursor}");
                let answer = get(&app, &path, &anyone).await;
                found.extend(shorts(&answer));
                assert!(found.len() <= want.len(), "{found:?}");
                match answer.json()["cursor"].as_str() {
                    Some(next) => cursor = format!("&cursor={next}"),
                    None => break,
                }
            }
            assert_eq!(found, want, "limit {limit}, dirty {dirty}");
        }
    }
    app.finish().await;
}
