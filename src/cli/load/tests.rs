//! Runs against a small server of the same interface, which can fail on demand and remembers the order of what it accepted.

use std::collections::{HashMap, VecDeque};
use std::io::Write as _;
use std::sync::{Arc, Mutex};

use axum::Json;
use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{post, put};
use serde_json::{Value, json};

use super::*;
use crate::config::Secret;

/// What the server saw, and how it shall answer.
#[derive(Default)]
struct Seen {
    liked: HashMap<(String, String), bool>,
    /// Accepted operations in their order.
    accepted: Vec<(String, String, bool)>,
    /// Sizes of the calls.
    calls: Vec<usize>,
    in_flight: HashMap<(String, String), u32>,
    overlaps: u32,
    authorization: Option<String>,
    /// Answers 503 to the next operations of these users, each as often as it stands here.
    unavailable: VecDeque<String>,
    /// Calls that are still to be answered 503 as a whole.
    unavailable_calls: u32,
}

type Shared = Arc<Mutex<Seen>>;

impl Seen {
    fn apply(&mut self, user: &str, id: &str, liked: bool) -> Result<bool, StatusCode> {
        if let Some(at) = self
            .unavailable
            .iter()
            .position(|unavailable| unavailable == user)
        {
            self.unavailable.remove(at);
            return Err(StatusCode::SERVICE_UNAVAILABLE);
        }
        if id == "refused" {
            return Err(StatusCode::FORBIDDEN);
        }
        self.accepted.push((user.into(), id.into(), liked));
        Ok(self
            .liked
            .insert((user.into(), id.into()), liked)
            .unwrap_or(false)
            != liked)
    }
}

async fn one(
    State(seen): State<Shared>,
    Path((kind, id)): Path<(String, String)>,
    method: Method,
    headers: HeaderMap,
) -> Response {
    let user = headers["x-user-id"].to_str().unwrap().to_owned();
    let pair = (user.clone(), id.clone());
    {
        let mut seen = seen.lock().unwrap();
        seen.authorization = headers
            .get("authorization")
            .map(|value| value.to_str().unwrap().to_owned());
        seen.calls.push(1);
        let running = seen.in_flight.entry(pair.clone()).or_default();
        *running += 1;
        if *running > 1 {
            seen.overlaps += 1;
        }
    }
    // Answers of different length, so that what may overtake does.
    tokio::time::sleep(Duration::from_micros(u64::from(
        crc32fast::hash(id.as_bytes()) % 3000,
    )))
    .await;
    let mut seen = seen.lock().unwrap();
    *seen.in_flight.get_mut(&pair).unwrap() -= 1;
    if seen.unavailable_calls > 0 {
        seen.unavailable_calls -= 1;
        return (
            StatusCode::SERVICE_UNAVAILABLE,
            [("retry-after", "0")],
            Json(json!({"title": "busy"})),
        )
            .into_response();
    }
    let liked = method == Method::PUT;
    match seen.apply(&user, &id, liked) {
        Ok(changed) => {
            Json(json!({"kind": kind, "id": id, "liked": liked, "changed": changed, "count": 1}))
                .into_response()
        }
        Err(status) => (
            status,
            [("retry-after", "0")],
            Json(json!({"title": "no", "detail": format!("no to {id}")})),
        )
            .into_response(),
    }
}

async fn batch(State(seen): State<Shared>, Json(body): Json<Value>) -> Json<Value> {
    let mut seen = seen.lock().unwrap();
    let operations = body["operations"].as_array().unwrap();
    seen.calls.push(operations.len());
    let results: Vec<Value> = operations
        .iter()
        .map(|operation| {
            let text = |name: &str| operation[name].as_str().unwrap();
            assert_eq!(text("kind"), "blog");
            let liked = text("op") == "like";
            match seen.apply(text("user"), text("id"), liked) {
                Ok(changed) => json!({"status": 200, "liked": liked, "changed": changed}),
                Err(status) => {
                    json!({"status": status.as_u16(), "error": {"title": "no", "retry_after": 0}})
                }
            }
        })
        .collect();
    Json(json!({ "results": results }))
}

async fn server() -> (Shared, String) {
    let seen = Shared::default();
    let router = Router::new()
        .route("/v1/likes/{kind}/{id}", put(one).delete(one))
        .route("/v1/batch", post(batch))
        .with_state(seen.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (seen, url)
}

/// A file that is removed with the value.
fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    file
}

fn arguments(file: &tempfile::NamedTempFile, url: &str) -> Arguments {
    Arguments {
        file: file.path().to_str().unwrap().to_owned(),
        kind: Kind::parse("blog").unwrap(),
        url: url.to_owned(),
        concurrency: 32,
        rate: 0,
        batch: 1,
        tries: 3,
    }
}

/// Many users and targets, every pair liked and unliked in turn a few times, shuffled by arithmetic.
fn toggles() -> (String, HashMap<(String, String), Vec<bool>>) {
    let mut text = String::new();
    let mut expected: HashMap<(String, String), Vec<bool>> = HashMap::new();
    for step in 0..1500_u32 {
        let (user, id) = (
            format!("u{}", step * 7 % 10),
            format!("t{}", step * 13 % 30),
        );
        let liked = step / 90 % 2 == 0;
        text += &format!("{user},{id},{}\n", if liked { "like" } else { "unlike" });
        expected.entry((user, id)).or_default().push(liked);
    }
    (text, expected)
}

fn order(seen: &Seen) -> HashMap<(String, String), Vec<bool>> {
    let mut order: HashMap<(String, String), Vec<bool>> = HashMap::new();
    for (user, id, liked) in &seen.accepted {
        order
            .entry((user.clone(), id.clone()))
            .or_default()
            .push(*liked);
    }
    order
}

#[tokio::test]
async fn single_calls_keep_the_order_of_a_pair() {
    let (seen, url) = server().await;
    let (text, expected) = toggles();
    let tally = replay(
        &Settings::default(),
        &arguments(&file(text.as_bytes()), &url),
    )
    .await
    .unwrap();
    let seen = seen.lock().unwrap();
    assert_eq!(
        (tally.counts()[0], tally.counts()[3], seen.overlaps),
        (1500, 0, 0)
    );
    assert_eq!(order(&seen), expected);
}

#[tokio::test]
async fn batches_are_full_and_keep_the_order_of_a_pair() {
    let (seen, url) = server().await;
    let (text, expected) = toggles();
    let file = file(text.as_bytes());
    let tally = replay(
        &Settings::default(),
        &Arguments {
            batch: 400,
            ..arguments(&file, &url)
        },
    )
    .await
    .unwrap();
    let seen = seen.lock().unwrap();
    assert_eq!(tally.counts()[0], 1500);
    assert_eq!(order(&seen), expected);
    assert_eq!(seen.calls, [400, 400, 400, 300]);
}

#[tokio::test]
async fn a_second_run_changes_nothing() {
    let (_seen, url) = server().await;
    let file = file(b"user,target\nu1,1\nu1,2\nu2,1\n");
    let arguments = arguments(&file, &url);
    let first = replay(&Settings::default(), &arguments).await.unwrap();
    assert_eq!(first.counts(), [3, 3, 0, 0]);
    let second = replay(&Settings::default(), &arguments).await.unwrap();
    assert_eq!(second.counts(), [3, 0, 3, 0]);
}

#[tokio::test]
async fn what_is_answered_503_is_sent_again_and_counts_once() {
    let (seen, url) = server().await;
    seen.lock().unwrap().unavailable = ["u1", "u1"].map(str::to_owned).into();
    let file = file(b"u1,1\nu2,1\n");
    let tally = replay(&Settings::default(), &arguments(&file, &url))
        .await
        .unwrap();
    assert_eq!(tally.counts(), [2, 2, 0, 0]);
    assert_eq!(seen.lock().unwrap().calls.len(), 4);
}

#[tokio::test]
async fn tries_are_bounded() {
    let (seen, url) = server().await;
    seen.lock().unwrap().unavailable_calls = 3;
    let file = file(b"u1,1\n");
    let tally = replay(&Settings::default(), &arguments(&file, &url))
        .await
        .unwrap();
    assert_eq!(tally.counts(), [1, 0, 0, 1]);
    assert!(
        tally.table().contains("1 × 503: busy (first in line 1)"),
        "{}",
        tally.table()
    );
    assert_eq!(seen.lock().unwrap().calls.len(), 3);
}

#[tokio::test]
async fn a_batch_repeats_what_comes_behind_an_operation_that_must_be_repeated() {
    let (seen, url) = server().await;
    seen.lock().unwrap().unavailable = ["u1"].map(str::to_owned).into();
    let file = file(b"u1,1,like\nu2,1\nu1,2\nu1,1,unlike\n");
    let tally = replay(
        &Settings::default(),
        &Arguments {
            batch: 10,
            ..arguments(&file, &url)
        },
    )
    .await
    .unwrap();
    let seen = seen.lock().unwrap();
    assert_eq!(seen.calls, [4, 2]);
    assert!(
        !seen.liked[&("u1".into(), "1".into())],
        "the unlike came last in the file"
    );
    assert_eq!(tally.counts(), [4, 4, 0, 0]);
}

#[tokio::test]
async fn gzip_is_unpacked_and_ids_and_key_are_sent_as_they_are() {
    let (seen, url) = server().await;
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed
        .write_all(b"user,target,op\nu:1,a/b?c#%2F+\xc2\n\"u,1\",a/b?c#%2F+,\n")
        .unwrap();
    let settings = Settings {
        service_key: Some(Secret::new("service-key")),
        ..Settings::default()
    };
    let file = file(&packed.finish().unwrap());
    let tally = replay(&settings, &arguments(&file, &url)).await.unwrap();
    let seen = seen.lock().unwrap();
    assert_eq!(
        seen.accepted,
        [("u,1".to_owned(), "a/b?c#%2F+".to_owned(), true)]
    );
    assert_eq!(seen.authorization.as_deref(), Some("Bearer service-key"));
    assert!(
        tally
            .table()
            .contains("bad line: not valid UTF-8 (first in line 2)"),
        "{}",
        tally.table()
    );
}

#[tokio::test]
async fn failures_are_listed_bounded_and_the_rest_goes_on() {
    let (_seen, url) = server().await;
    let mut text = String::from("u1,refused\nu2,refused\n");
    for fields in 3..20 {
        text += &format!("u{}\n", ",x".repeat(fields));
    }
    text += "u1,1\n";
    let file = file(text.as_bytes());
    let tally = replay(
        &Settings::default(),
        &Arguments {
            concurrency: 1,
            ..arguments(&file, &url)
        },
    )
    .await
    .unwrap();
    assert_eq!(tally.counts(), [3, 1, 0, 19]);
    let table = tally.table();
    let listed: Vec<&str> = table
        .lines()
        .skip_while(|line| !line.contains("lines that could"))
        .collect();
    insta::assert_snapshot!(listed.join("\n"));
}

#[tokio::test]
async fn the_rate_is_kept() {
    let (_seen, url) = server().await;
    let text: String = (0..50).map(|id| format!("u,{id}\n")).collect();
    let file = file(text.as_bytes());
    let begun = std::time::Instant::now();
    replay(
        &Settings::default(),
        &Arguments {
            rate: 200,
            ..arguments(&file, &url)
        },
    )
    .await
    .unwrap();
    // 49 gaps of 5 ms; only the lower bound does not depend on the machine.
    assert!(
        begun.elapsed() >= Duration::from_millis(240),
        "{:?}",
        begun.elapsed()
    );
}

#[tokio::test]
async fn a_server_that_is_not_there_ends_the_run() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let text: String = (0..10_000).map(|id| format!("u,{id}\n")).collect();
    let file = file(text.as_bytes());
    let tally = replay(
        &Settings::default(),
        &Arguments {
            tries: 1,
            ..arguments(&file, &url)
        },
    )
    .await
    .unwrap();
    assert!(tally.stopped() && !tally.complete());
    assert!(tally.counts()[0] < 1000, "{:?}", tally.counts());
    assert!(tally.table().contains("no answer:"), "{}", tally.table());
}

#[test]
fn addresses_are_checked() {
    assert_eq!(
        client::base_url("http://127.0.0.1:7468/").unwrap(),
        "http://127.0.0.1:7468"
    );
    assert_eq!(
        client::base_url("http://host/likes/").unwrap(),
        "http://host/likes"
    );
    for text in ["https://host", "host:7468", "host", "http://host?x", ""] {
        assert!(client::base_url(text).is_err(), "{text}");
    }
}
