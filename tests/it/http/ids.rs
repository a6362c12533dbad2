//! Ids as they come: one answer each, and the same id in Redis, in MySQL, and after it was read back from there.

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, MySqlPool};

use super::connections::talk;
use crate::app::{SERVICE_KEY, TestApp, send};
use crate::stand::{command, raw_redis};

/// What stands in a path, and the id that it is, or the code and the limit of the answer.
type Case = (
    &'static str,
    Result<&'static str, (&'static str, Option<u64>)>,
);

const NOT_AN_ID: Result<&str, (&str, Option<u64>)> = Err(("field_invalid", None));

/// For users and targets alike.
const CASES: [Case; 26] = [
    // Case counts, and so do zeros: an id is a text.
    ("Ab", Ok("Ab")),
    ("ab", Ok("ab")),
    ("7", Ok("7")),
    ("007", Ok("007")),
    ("9007199254740993", Ok("9007199254740993")),
    // Decoded once, and a plus is a plus.
    ("%41c", Ok("Ac")),
    ("a%2Fb", Ok("a/b")),
    ("a%2fb", Ok("a/b")),
    ("a%252Fb", Ok("a%2Fb")),
    ("a%25252Fb", Ok("a%252Fb")),
    ("a+b", Ok("a+b")),
    ("a%3Fb%23c", Ok("a?b#c")),
    ("a:b|c{d}", Ok("a:b|c{d}")),
    ("...", Ok("...")),
    // What is no byte of an id.
    ("%00", NOT_AN_ID),
    ("a%00", NOT_AN_ID),
    ("a%0Ab", NOT_AN_ID),
    ("%7F", NOT_AN_ID),
    ("a%20b", NOT_AN_ID),
    ("a%20", NOT_AN_ID),
    ("%20a", NOT_AN_ID),
    // A thumb; e with an acute in one character and in two: refused, so nobody has to say whether the last two are the same.
    ("%F0%9F%91%8D", NOT_AN_ID),
    ("%C3%A9", NOT_AN_ID),
    ("e%CC%81", NOT_AN_ID),
    // No UTF-8 at all.
    ("%FF", Err(("path_invalid", None))),
    ("%C3%28", Err(("path_invalid", None))),
];

/// Sends a path as it is: a client would write it in its own way.
async fn raw(app: &TestApp, method: &str, path: &str, user: &str) -> (u16, Value) {
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-User-Id: {user}\r\nAuthorization: Bearer {SERVICE_KEY}\r\n\r\n"
    );
    let answer = talk(app.address, &head).await;
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let body = answer.split_once("\r\n\r\n").unwrap().1;
    (status, serde_json::from_str(body).unwrap())
}

fn refused(answer: &(u16, Value), field: &str, (code, limit): (&str, Option<u64>), what: &str) {
    let (status, body) = answer;
    assert_eq!(
        (*status, &body["code"]),
        (400, &json!(code)),
        "{what}: {body}"
    );
    if code == "field_invalid" {
        assert_eq!(
            (&body["field"], body["limit"].as_u64()),
            (&json!(field), limit),
            "{what}"
        );
    }
}

/// A column of MySQL.
async fn column(app: &TestApp, query: &str) -> BTreeSet<String> {
    let pool = MySqlPool::connect(&app.env.database_url).await.unwrap();
    let rows = sqlx::query_scalar::<_, String>(AssertSqlSafe(query));
    let rows = rows.fetch_all(&pool).await.unwrap();
    pool.close().await;
    rows.into_iter().collect()
}

/// Who likes what is what was liked, and each id is its own.
async fn agrees(app: &TestApp, ids: &BTreeSet<String>, when: &str) {
    for id in ids {
        // The user who likes all of them, and the user of that name, who likes one.
        let one = json!([{ "kind": "blog", "id": id }, { "kind": "photo", "id": "1" }]);
        let all = app.lookup(Some("all"), one.clone()).await.json();
        let like = (&all["results"][0]["liked"], &all["results"][0]["count"]);
        assert_eq!(like, (&json!(true), &json!(1)), "{when}: {id}");
        let own = app.lookup(Some(id), one).await.json();
        let like = (&own["results"][1]["liked"], &own["results"][0]["liked"]);
        assert_eq!(like, (&json!(true), &json!(false)), "{when}: {id}");
    }
    let count = app.get("all", "photo/1").await.json();
    assert_eq!(count["count"], ids.len(), "{when}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_is_one_thing_everywhere() {
    let app = TestApp::start().await;
    let fixed = |text: String| -> &'static str { text.leak() };
    let longest = fixed("x".repeat(128));
    let mut cases: Vec<Case> = CASES.to_vec();
    cases.push((longest, Ok(longest)));
    // Encoded it may be three times as long.
    cases.push((fixed("%78".repeat(128)), Ok(longest)));
    cases.push((fixed("x".repeat(129)), Err(("field_invalid", Some(128)))));

    let mut ids = BTreeSet::new();
    for (written, want) in cases {
        let target = raw(&app, "PUT", &format!("/v1/likes/blog/{written}"), "all").await;
        let list = raw(&app, "GET", &format!("/v1/users/{written}/likes"), "x").await;
        match want {
            Ok(id) => {
                assert_eq!((target.0, &target.1["id"]), (200, &json!(id)), "{written}");
                assert_eq!(target.1["changed"], ids.insert(id.to_owned()), "{written}");
                let like = raw(&app, "PUT", "/v1/likes/photo/1", id).await;
                assert_eq!(like.0, 200, "{id}: {}", like.1);
                assert_eq!(list.0, 200, "{written}: {}", list.1);
                let list = raw(&app, "GET", &format!("/v1/users/{written}/likes"), "x").await;
                assert_eq!(list.1["likes"][0]["kind"], "photo", "{written}: {}", list.1);
            }
            Err(why) => {
                refused(&target, "id", why, written);
                refused(&list, "user", why, written);
            }
        }
    }
    agrees(&app, &ids, "in Redis").await;

    app.flush_now().await;
    agrees(&app, &ids, "after a flush").await;
    let targets = "SELECT CAST(target_id AS CHAR) FROM thumb WHERE user_id = 'all'";
    assert_eq!(column(&app, targets).await, ids);
    let users = "SELECT CAST(user_id AS CHAR) FROM thumb WHERE target_id = '1'";
    assert_eq!(column(&app, users).await, ids);

    // Everything is cold in a Redis that has lost it.
    let env = app.finish().await;
    let settings = crate::app::settings(&env);
    let redis = raw_redis(&settings).await;
    let keys = command::<Vec<String>>(&redis, &["KEYS", &format!("{}:*", env.key_prefix)]).await;
    for key in keys {
        command::<()>(&redis, &["DEL", &key]).await;
    }
    let app = TestApp::on(env, |_| {}).await;
    agrees(&app, &ids, "after a cold load").await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_in_a_body_is_a_text_and_nothing_else() {
    let app = TestApp::start().await;
    let long = "x".repeat(129);
    for wrong in [
        json!(7),
        json!(9_007_199_254_740_993_u64),
        json!(1.5),
        json!(true),
        Value::Null,
        json!(["1"]),
        json!({ "id": "1" }),
        json!(""),
        json!("a b"),
        json!("a "),
        json!(" a"),
        json!("a\u{0}"),
        json!("\u{1F44D}"),
        json!("\u{e9}"),
        json!("e\u{301}"),
        json!(long),
    ] {
        let lookup = app
            .lookup(Some("u1"), json!([{ "kind": "blog", "id": wrong }]))
            .await;
        let body = (lookup.status, lookup.json());
        let limit = body.1["limit"].as_u64();
        refused(
            &body,
            "targets[0].id",
            ("field_invalid", limit),
            &wrong.to_string(),
        );
        assert!(limit.is_none_or(|limit| limit == 128), "{}", body.1);
        let operations = json!([
            { "op": "like", "user": wrong, "kind": "blog", "id": "1" },
            { "op": "like", "user": "u1", "kind": "blog", "id": wrong },
        ]);
        let batch = app.batch(operations).await.json();
        for (at, field) in ["user", "id"].into_iter().enumerate() {
            let result = &batch["results"][at];
            let field = format!("operations[{at}].{field}");
            assert_eq!(
                (&result["status"], &result["error"]["field"]),
                (&json!(400), &json!(field)),
                "{wrong}"
            );
        }
    }
    // Dots would be rewritten by a proxy in a path, so they are no targets anywhere; users stand in no path of theirs alone.
    for id in [".", ".."] {
        let lookup = app
            .lookup(None, json!([{ "kind": "blog", "id": id }]))
            .await;
        assert_eq!(
            (lookup.status, &lookup.json()["field"]),
            (400, &json!("targets[0].id"))
        );
    }
    // A text of JSON may be written with escapes: what it says counts.
    let escaped =
        r#"{"operations":[{"op":"like","user":"\u0075\u0031","kind":"blog","id":"a\/b"}]}"#;
    let batch = app.trusted(Method::POST, "/v1/batch");
    let batch = batch
        .header("Content-Type", "application/json")
        .body(escaped);
    assert_eq!(send(batch).await.json()["results"][0]["changed"], true);
    assert_eq!(app.get("u1", "blog/a%2Fb").await.json()["liked"], true);
    app.finish().await;
}
