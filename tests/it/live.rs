//! What goes on, as it is told: the stream of snapshots, its bounds and its end, close looks, verification, and the files of the page.

use std::time::{Duration, Instant};

use reqwest::{Method, Response};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection as _, MySqlConnection};
use thumbd::limits::LIVE_STREAMS_MAX;

use crate::app::{ADMIN_TOKEN, TestApp, send};
use crate::serve::{PATIENCE, Serve, until};
use crate::servers;
use crate::stand::{command, raw_redis};

/// A stream that is read.
struct Events {
    response: Response,
    rest: String,
}

impl Events {
    async fn open(app: &TestApp) -> Self {
        let response = ask(app).await;
        assert_eq!(response.status(), 200);
        let headers = response.headers();
        assert_eq!(headers["content-type"], "text/event-stream");
        assert_eq!(headers["cache-control"], "no-store");
        Self {
            response,
            rest: String::new(),
        }
    }

    /// The next event; `None` at the end.
    async fn next(&mut self) -> Option<(String, Value)> {
        loop {
            if let Some((event, rest)) = self.rest.split_once("\n\n") {
                let (name, data) = event.split_once('\n').unwrap();
                let name = name.strip_prefix("event: ").unwrap().to_owned();
                let data = data.strip_prefix("data: ").unwrap();
                let data = serde_json::from_str(data).unwrap();
                self.rest = rest.to_owned();
                return Some((name, data));
            }
            let chunk = tokio::time::timeout(PATIENCE, self.response.chunk()).await;
            let chunk = chunk
                .expect("an event in time")
                .expect("no broken stream")?;
            self.rest.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }

    /// The first snapshot of which something is so.
    async fn snapshot(&mut self, what: &str, so: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let (name, data) = self.next().await.expect("the stream goes on");
            if name == "snapshot" && so(&data) {
                return data;
            }
            assert!(begun.elapsed() < PATIENCE, "not in time: {what}: {data:#}");
        }
    }
}

async fn ask(app: &TestApp) -> Response {
    let request = app.request(Method::GET, "/admin/v1/live");
    request.bearer_auth(ADMIN_TOKEN).send().await.unwrap()
}

fn list<'a>(snapshot: &'a Value, name: &str) -> &'a Vec<Value> {
    snapshot[name].as_array().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_tells_of_likes_slices_and_what_landed() {
    let app = TestApp::start().await;
    let mut events = Events::open(&app).await;
    let (name, history) = events.next().await.unwrap();
    assert_eq!(name, "history");
    assert!(history["points"].is_array(), "{history}");
    for user in ["u1", "u2", "u3"] {
        app.like(user, "blog/1").await;
    }
    app.like("u1", "blog/2").await;
    let snapshot = events
        .snapshot("an open slice", |it| it["entries"] == 4)
        .await;
    let slice = &list(&snapshot, "slices")[0];
    assert_eq!(
        (&slice["state"], &slice["entries"]),
        (&json!("open"), &json!(4))
    );
    let well = |it: &Value| it["verdict"]["well"] == true;
    let snapshot = events.snapshot("all is well", well).await;
    assert_eq!(
        (&snapshot["redis"]["ok"], &snapshot["database"]["ok"]),
        (&json!(true), &json!(true))
    );
    let told = &list(&snapshot, "instances")[0];
    assert_eq!(told["id"], snapshot["instance"]);
    let port = format!(":{}", app.address.port());
    assert!(told["name"].as_str().unwrap().ends_with(&port), "{told}");

    let flushed = app.flush_now().await;
    let landed = |it: &Value| !list(it, "landings").is_empty() && list(it, "slices").is_empty();
    let snapshot = events.snapshot("the slice has landed", landed).await;
    let landing = &list(&snapshot, "landings")[0];
    assert_eq!(landing["entries"], flushed.entries);
    assert_eq!(landing["rows_changed"], 4);
    assert_eq!(
        (&landing["error"], &landing["instance"]),
        (&Value::Null, &snapshot["instance"])
    );
    let rising = json!([
        { "kind": "blog", "id": "1", "by": 3 },
        { "kind": "blog", "id": "2", "by": 1 }
    ]);
    assert_eq!(snapshot["rising"], rising);
    let counted = |it: &Value| list(it, "most_liked").len() == 2;
    let snapshot = events.snapshot("the most liked", counted).await;
    let most = json!({ "kind": "blog", "id": "1", "count": 3 });
    assert_eq!(snapshot["most_liked"][0], most);
    assert_eq!(snapshot["quarantine"], 0);
    // Four likes within a few points of the chart.
    let mut again = Events::open(&app).await;
    let (_, history) = again.next().await.unwrap();
    let points = list(&history, "points");
    let liked: f64 = points
        .iter()
        .map(|point| point["per_second"].as_f64().unwrap())
        .sum();
    assert!(liked > 0.0, "{history}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_are_bounded_and_end_with_the_process() {
    let app = TestApp::start().await;
    let mut streams = Vec::new();
    for _ in 0..LIVE_STREAMS_MAX {
        streams.push(Events::open(&app).await);
    }
    let refused = app.admin(Method::GET, "/admin/v1/live").await;
    assert_eq!(
        (refused.status, &refused.json()["code"]),
        (503, &json!("overloaded"))
    );
    assert_eq!(refused.headers["retry-after"], "5");
    // Whoever hangs up makes place.
    drop(streams.pop());
    until("a place is free", async || ask(&app).await.status() == 200).await;
    let begun = Instant::now();
    app.finish().await;
    // Nothing waits for streams: request_timeout_ms would be more.
    assert!(
        begun.elapsed() < Duration::from_secs(8),
        "{:?}",
        begun.elapsed()
    );
    for mut stream in streams {
        while stream.next().await.is_some() {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_stores_are_asked_only_while_somebody_looks() {
    let app = TestApp::start().await;
    let settings = crate::app::settings(&app.env);
    let redis = raw_redis(&settings).await;
    let probe = format!("{}:v1:{{0}}:probe", app.env.key_prefix);
    let probed = async || command::<bool>(&redis, &["EXISTS", &probe]).await;
    let events = Events::open(&app).await;
    until("Redis is asked", async || probed().await).await;
    drop(events);
    until("Redis is not asked any more", async || !probed().await).await;
    // The probe lives a second, as long as the pause between two: it would be seen.
    for _ in 0..30 {
        assert!(!probed().await);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn instances_hear_each_other_and_one_that_dies_is_missed() {
    let app = TestApp::start().await;
    let mut events = Events::open(&app).await;
    let names = |it: &Value| list(it, "instances").len();
    let hour = [("THUMBD_SLICE_SECONDS", "3600")];
    let (other, mut dying) =
        tokio::join!(Serve::start(&app.env, &hour), Serve::start(&app.env, &hour));
    // What another instance takes is in the same sum.
    events.snapshot("three", |it| names(it) == 3).await;
    other.like("u1", "blog/1").await;
    let rate = |it: &Value| it["point"]["per_second"].as_f64().unwrap();
    let told = events
        .snapshot("the like of the other", |it| rate(it) > 0.0)
        .await;
    let of = |one: &Value| one["per_second"].as_f64().unwrap();
    let sum: f64 = list(&told, "instances").iter().map(of).sum();
    assert!(sum > 0.0, "{told:#}");
    // One signs off, one does not.
    other.stop();
    events.snapshot("two", |it| names(it) == 2).await;
    dying.kill();
    let gone = |it: &Value| it["verdict"]["problems"][0]["runbook"] == "ThumbdInstanceDown";
    let snapshot = events.snapshot("one is missed", gone).await;
    let silent = list(&snapshot, "instances")
        .iter()
        .filter(|one| one["silent"] == true);
    assert_eq!(silent.count(), 1, "{snapshot:#}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slice_that_does_not_land_is_said_with_the_reason() {
    let app = TestApp::start().await;
    let mut events = Events::open(&app).await;
    app.like("u1", "blog/1").await;
    let url = crate::app::settings(&app.env).database_url.unwrap();
    let mut sql = MySqlConnection::connect(url.expose()).await.unwrap();
    let rename = |text: &'static str| sqlx::query(AssertSqlSafe(text));
    rename("RENAME TABLE thumb TO hidden")
        .execute(&mut sql)
        .await
        .unwrap();
    let flush = app.admin(Method::POST, "/admin/v1/flushes").await;
    assert_eq!(flush.status, 503);
    let failed = |it: &Value| it["landings"][0]["error"].is_string();
    let snapshot = events.snapshot("it failed", failed).await;
    let error = snapshot["landings"][0]["error"].as_str().unwrap();
    assert!(error.contains("database"), "{error}");
    let problems = &snapshot["verdict"]["problems"];
    assert_eq!(problems[0]["runbook"], "ThumbdFlushLate", "{problems}");
    rename("RENAME TABLE hidden TO thumb")
        .execute(&mut sql)
        .await
        .unwrap();
    app.flush_now().await;
    let landed = |it: &Value| it["landings"][0]["error"].is_null();
    let snapshot = events.snapshot("it landed", landed).await;
    assert_eq!(
        list(&snapshot, "landings").len(),
        1,
        "the same slice stands once"
    );
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_verification_finds_what_differs_one_at_a_time() {
    let app = TestApp::start().await;
    app.like("u1", "blog/1").await;
    app.flush_now().await;
    let verify = async || app.admin(Method::POST, "/admin/v1/verifications").await;
    let found = verify().await;
    assert_eq!(found.status, 200, "{found:?}");
    let found = found.json();
    assert_eq!(
        (&found["differences_total"], &found["rows"]),
        (&json!(0), &json!(1))
    );
    assert_eq!((&found["users"], &found["counts"]), (&json!(1), &json!(1)));

    let url = crate::app::settings(&app.env).database_url.unwrap();
    let mut sql = MySqlConnection::connect(url.expose()).await.unwrap();
    sqlx::raw_sql("LOCK TABLES thumb WRITE")
        .execute(&mut sql)
        .await
        .unwrap();
    let mut events = Events::open(&app).await;
    let (first, ()) = tokio::join!(verify(), async {
        let running = |it: &Value| it["verification"]["running"] == true;
        events.snapshot("it runs", running).await;
        let second = verify().await;
        assert_eq!(
            (second.status, &second.json()["code"]),
            (503, &json!("busy"))
        );
        sqlx::raw_sql("UNLOCK TABLES")
            .execute(&mut sql)
            .await
            .unwrap();
    });
    assert_eq!(first.status, 200, "{first:?}");

    sqlx::raw_sql("UPDATE thumb_count SET count = 7")
        .execute(&mut sql)
        .await
        .unwrap();
    let found = verify().await.json();
    assert_eq!(found["differences_total"], 1, "{found}");
    let first = &found["differences"][0];
    assert_eq!(
        (&first["key"], &first["found"], &first["expected"]),
        (&json!("blog:1"), &json!("7"), &json!("1"))
    );
    let differ = |it: &Value| it["verdict"]["problems"][0]["runbook"] == "ThumbdCountsDiffer";
    events.snapshot("it is said", differ).await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_close_look_tells_what_is_where() {
    let app = TestApp::with(|settings| settings.partitions = 2).await;
    let look = async |path: &str| {
        let answer = app.admin(Method::GET, path).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    };
    let cold = look("/admin/v1/targets/blog/a%2Fb").await;
    assert_eq!(
        (&cold["id"], &cold["count"], &cold["stored"]),
        (&json!("a/b"), &json!(0), &json!(0))
    );
    let resident = |it: &Value| {
        list(it, "partitions")
            .iter()
            .filter(|one| one["resident"] == true)
            .count()
    };
    assert_eq!(resident(&cold), 0);
    for user in ["u1", "u2", "u3", "u4"] {
        app.like(user, "blog/a%2Fb").await;
    }
    let dirty = look("/admin/v1/targets/blog/a%2Fb").await;
    assert_eq!(
        (&dirty["count"], &dirty["stored"], &dirty["unflushed"]),
        (&json!(4), &json!(0), &json!(4))
    );
    assert_eq!(dirty["likers"], json!([]));
    let parts = list(&dirty, "partitions");
    let sum: i64 = parts
        .iter()
        .map(|part| part["count"].as_i64().unwrap())
        .sum();
    assert_eq!((parts.len(), sum), (2, 4));
    assert!(
        parts.iter().any(|part| part["dirty_slice"].is_u64()),
        "{dirty}"
    );
    let user = look("/admin/v1/users/u1").await;
    assert_eq!(
        (&user["resident"], &user["held"]),
        (&json!("complete"), &json!(1))
    );
    assert!(user["dirty_slice"].is_u64(), "{user}");
    assert_eq!(user["likes"][0]["id"], "a/b");

    app.flush_now().await;
    let flushed = look("/admin/v1/targets/blog/a%2Fb").await;
    assert_eq!(
        (&flushed["count"], &flushed["stored"], &flushed["unflushed"]),
        (&json!(4), &json!(4), &json!(0))
    );
    assert_eq!(list(&flushed, "likers").len(), 4);
    assert_eq!(flushed["likers"][0]["user"], "u4");
    let nobody = look("/admin/v1/users/nobody").await;
    assert_eq!(
        (&nobody["resident"], &nobody["likes"]),
        (&json!("no"), &json!([]))
    );
    for (path, field) in [
        ("/admin/v1/targets/Blog/1", "kind"),
        ("/admin/v1/users/a%20b", "user"),
    ] {
        let answer = app.admin(Method::GET, path).await;
        assert_eq!(
            (answer.status, &answer.json()["field"]),
            (400, &json!(field)),
            "{path}"
        );
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_for_some_kinds_looks_at_those_alone() {
    use thumbd::auth::NamedKey;
    let hex: String = thumbd::auth::digest(b"blog-admin")
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let keys = json!([{ "name": "blog", "sha256": hex, "rights": ["admin"], "kinds": ["blog"] }]);
    let keys = NamedKey::parse_list(&keys.to_string()).unwrap();
    let app = TestApp::with(move |settings| settings.keys = keys).await;
    for (path, want) in [
        ("/admin/v1/targets/blog/1", 200),
        ("/admin/v1/targets/photo/1", 403),
        ("/admin/v1/users/u1", 403),
    ] {
        let answer = send(app.request(Method::GET, path).bearer_auth("blog-admin")).await;
        assert_eq!(answer.status, want, "{path}: {answer:?}");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_files_of_the_page_load_nothing_from_elsewhere() {
    let env = servers::env().await;
    let app = TestApp::on(env, |_| {}).await;
    for (path, kind) in [
        ("/ui", "text/html; charset=utf-8"),
        ("/ui/main.js", "text/javascript; charset=utf-8"),
        ("/ui/ui.css", "text/css; charset=utf-8"),
        ("/ui/icon.svg", "image/svg+xml"),
    ] {
        let answer = send(app.request(Method::GET, path)).await;
        let content_type = answer.headers["content-type"].to_str().unwrap();
        assert_eq!((answer.status, content_type), (200, kind));
        let policy = answer.headers["content-security-policy"].to_str().unwrap();
        assert!(
            policy.starts_with("default-src 'none'; script-src 'self';"),
            "{policy}"
        );
        assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
        assert!(
            !policy.contains("unsafe") && !policy.contains('*'),
            "{policy}"
        );
        assert_eq!(answer.headers["x-content-type-options"], "nosniff");
        assert_eq!(answer.headers["referrer-policy"], "no-referrer");
    }
    for path in [
        "/ui/",
        "/ui/none.js",
        "/ui/..%2Fpage.html",
        "/ui/vendor/LICENSE",
    ] {
        assert_eq!(
            send(app.request(Method::GET, path)).await.status,
            404,
            "{path}"
        );
    }
    app.finish().await;
}
