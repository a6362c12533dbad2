//! What stands in the log: a request by its id and its trace, an outage where it begins and where it ends, and nobody's id.

use std::collections::HashSet;

use reqwest::Method;
use serde_json::{Value, json};

use crate::app::{ADMIN_TOKEN, SERVICE_KEY, send, settings};
use crate::chaos;
use crate::serve::{Serve, until};
use crate::servers::{self, TestEnv};
use crate::stand::Stand;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// A process whose log is JSON.
async fn start_json(env: &TestEnv, more: &[(&str, &str)]) -> Serve {
    let settings: Vec<(&str, &str)> = [
        ("THUMBD_SLICE_SECONDS", "3600"),
        ("THUMBD_LOG_FORMAT", "json"),
    ]
    .iter()
    .chain(more)
    .copied()
    .collect();
    let mut serve = Serve::spawn(env, &settings);
    let line = serve.said(r#""message":"serving""#).await;
    let line: Value = serde_json::from_str(&line).unwrap();
    serve.url = format!("http://{}", line["address"].as_str().unwrap());
    serve
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_found_by_its_id_and_its_trace() {
    let env = servers::env().await;
    let more = [
        ("THUMBD_LOG", "info,thumbd::http=debug"),
        ("FAILPOINTS", "thumb.answered=1*panic"),
    ];
    let serve = start_json(&env, &more).await;
    let like = |id: &str| {
        serve
            .one(Method::PUT, "u1", "blog/1")
            .header("X-Request-Id", id)
    };
    let traced = format!("00-{TRACE}-00f067aa0ba902b7-01");
    let failed = send(like("a-failure").header("traceparent", &traced)).await;
    assert_eq!(failed.status, 500);
    let answer = failed.headers["traceresponse"].to_str().unwrap();
    assert!(answer.starts_with(&format!("00-{TRACE}-")), "{answer}");
    let line = |words: &'static str| async {
        let line = serve.said(words).await;
        serde_json::from_str::<Value>(&line).unwrap()
    };
    let said = line("request failed").await;
    assert_eq!(
        (&said["request_id"], &said["trace_id"], &said["level"]),
        (&json!("a-failure"), &json!(TRACE), &json!("ERROR")),
        "{said}"
    );
    let said = serve.said(r#""message":"answered""#).await;
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(
        (&said["request_id"], &said["trace_id"], &said["level"]),
        (&json!("a-failure"), &json!(TRACE), &json!("DEBUG")),
        "{said}"
    );
    assert_eq!(
        (&said["method"], &said["route"], &said["status"]),
        (&json!("PUT"), &json!("/v1/likes/{kind}/{id}"), &json!(500)),
        "{said}"
    );
    assert!(said["duration_us"].as_u64() > Some(0), "{said}");

    // What is malformed is ignored.
    let bent = send(like("bent").header("traceparent", "00-4bf9-00f0-01")).await;
    assert_eq!(
        (bent.status, bent.headers.get("traceresponse")),
        (200, None)
    );
    let said = line(r#""request_id":"bent""#).await;
    assert_eq!(said.get("trace_id"), None, "{said}");

    // An item of a batch is found by the same.
    let body = json!({ "operations": [{ "op": "like", "user": "u1", "kind": "blog", "id": "2" }] });
    let batch = serve.client.post(format!("{}/v1/batch", serve.url));
    let batch = batch.header("traceparent", &traced).json(&body);
    let answer = send(batch.bearer_auth(SERVICE_KEY)).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let said = line(r#""route":"/v1/batch""#).await;
    assert_eq!(said["trace_id"], TRACE, "{said}");
    serve.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_is_told_where_it_begins_and_where_it_ends() {
    let env = servers::env().await;
    let (behind, redis, sql) = chaos::before(&env).await;
    let settings = [
        ("THUMBD_SLICE_SECONDS", "1"),
        ("THUMBD_DATABASE_ACQUIRE_TIMEOUT_MS", "200"),
    ];
    let serve = Serve::start(&behind, &settings).await;
    // The compensator of the first start would fail too.
    let compensated = "thumbd_last_compensation_timestamp_seconds";
    until("it has compensated", async || {
        serve.metric(compensated).await.is_some()
    })
    .await;
    assert_eq!(serve.like("u1", "blog/1").await.status, 200);
    let failed = r#"thumbd_flushes_total{task="flush",outcome="failed"}"#;
    for (proxy, name) in [(&sql, "MySQL"), (&redis, "Redis")] {
        let before = serve.metric(failed).await.unwrap();
        let lines = serve.lines().len();
        proxy.refuse(true);
        proxy.cut();
        // Requests and runs fail for a while.
        let mut users = 100..;
        until("runs fail", async || {
            let user = format!("{name}{}", users.next().unwrap());
            let status = serve.like(&user, "blog/1").await.status;
            assert!(status == 503 || status == 200, "{status}");
            serve.metric(failed).await > Some(before + 5.0)
        })
        .await;
        let told: Vec<String> = serve.lines().split_off(lines);
        let loud = |line: &&String| line.contains("ERROR") || line.contains("WARN");
        let loud: Vec<&String> = told.iter().filter(loud).collect();
        // One that was under way may end for another reason than those behind it.
        assert!((1..=2).contains(&loud.len()), "{name}: {told:#?}");
        proxy.heal();
        until("it is told that it is over", async || {
            let told = serve.lines().split_off(lines);
            told.iter().any(|line| line.contains("job is well again"))
        })
        .await;
    }
    serve.stop();
}

/// Begins every id of this test.
const CANARY: &str = "canary";

#[tokio::test(flavor = "multi_thread")]
async fn nobody_and_no_secret_stands_in_the_log_at_its_loudest() {
    let env = servers::env().await;
    let (behind, redis, sql) = chaos::before(&env).await;
    let more = [
        ("THUMBD_LOG", "trace"),
        ("THUMBD_DATABASE_ACQUIRE_TIMEOUT_MS", "200"),
    ];
    let serve = start_json(&behind, &more).await;
    let t = Stand::on(settings(&env)).await;
    let mut said = Said::default();
    t.script(
        "CREATE TRIGGER refuse BEFORE INSERT ON thumb FOR EACH ROW \
         BEGIN IF NEW.user_id = 'canary-poison' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no'; END IF; END",
    )
    .await;
    everything(&serve).await;
    let live = t.peek(0).await.live[0];
    let key = t.key(0, &format!("slice:{live}"));
    t.command::<()>(&["HSET", &key, "canary-unreadable", "5"])
        .await;
    serve.admin("/admin/v1/flushes").await.unwrap();
    said.hear(&serve);
    assert!(said.has("entries are in quarantine"), "{:#?}", said.lines);
    let erased = serve
        .client
        .delete(format!("{}/admin/v1/users/canary-1", serve.url));
    let erased = send(erased.bearer_auth(ADMIN_TOKEN)).await;
    assert_eq!(erased.status, 202, "{erased:?}");
    serve.said("a user was erased").await;
    said.hear(&serve);
    for proxy in [&sql, &redis] {
        proxy.refuse(true);
        proxy.cut();
        everything(&serve).await;
        let _ = serve.admin("/admin/v1/flushes").await;
        said.hear(&serve);
        proxy.heal();
        until("it is well again", async || {
            serve.admin("/admin/v1/flushes").await.is_ok()
        })
        .await;
    }
    said.hear(&serve);
    assert!(said.has("request failed"), "{:#?}", said.lines);
    assert!(said.has(r#""message":"answered""#), "{:#?}", said.lines);
    serve.stop();

    let password = env
        .database_url
        .split(['/', '@'])
        .nth(2)
        .unwrap_or_default();
    let password = password
        .split_once(':')
        .map_or("", |(_, password)| password);
    let secrets = [SERVICE_KEY, ADMIN_TOKEN, password];
    for line in &said.lines {
        assert!(!line.contains(CANARY), "{line}");
        for secret in secrets.iter().filter(|secret| !secret.is_empty()) {
            assert!(!line.contains(secret), "{line}");
        }
    }
}

/// Every line that was said so far: a process keeps the last ones only.
#[derive(Default)]
struct Said {
    lines: HashSet<String>,
}

impl Said {
    fn hear(&mut self, serve: &Serve) {
        self.lines.extend(serve.lines());
    }

    fn has(&self, words: &str) -> bool {
        self.lines.iter().any(|line| line.contains(words))
    }
}

/// Requests of all sorts in which users are named, well and badly. How they end is not looked at.
async fn everything(serve: &Serve) {
    for user in ["canary-1", "canary-2", "canary-poison"] {
        serve.like(user, "blog/1").await;
    }
    let long = format!("canary-{}", "x".repeat(300));
    for user in ["canary-1", "canary 2", &long] {
        serve.like(user, "blog/2").await;
        serve.get(user, "blog/1").await;
        send(serve.one(Method::DELETE, user, "blog/2")).await;
        send(serve.one(Method::GET, user, "blog/1/users")).await;
        let durable = serve.one(Method::PUT, user, "blog/3?durability=ledger&wait_ms=100");
        send(durable).await;
        let of = format!("{}/v1/users/{user}/likes", serve.url);
        send(serve.client.get(of).bearer_auth(SERVICE_KEY)).await;
    }
    serve
        .batch(vec![
            json!({ "op": "like", "user": "canary-3", "kind": "blog", "id": "1" }),
            json!({ "op": "like", "user": "canary 4", "kind": "blog", "id": "1" }),
            json!({ "op": "canary", "user": "canary-5", "kind": "blog", "id": "1" }),
        ])
        .await;
    let wrong = serve.client.put(format!("{}/v1/likes/blog/1", serve.url));
    let answer = send(
        wrong
            .bearer_auth("canary-key")
            .header("X-User-Id", "canary-6"),
    )
    .await;
    assert_eq!(answer.status, 401, "{answer:?}");
}
