//! A small server of thumbd's interface for tests: it fails on demand and remembers the order of what it accepted.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{post, put};
use axum::{Json, Router};
use serde_json::{Value, json};

/// What the server saw, and how it shall answer.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) liked: HashMap<(String, String), bool>,
    /// Accepted operations in their order.
    pub(super) accepted: Vec<(String, String, bool)>,
    /// Sizes of the calls.
    pub(super) calls: Vec<usize>,
    pub(super) in_flight: HashMap<(String, String), u32>,
    pub(super) overlaps: u32,
    pub(super) authorization: Option<String>,
    /// Answers 503 to the next operations of these users, each as often as it stands here.
    pub(super) unavailable: VecDeque<String>,
    /// Answers 429 to the next operations of these users, likewise.
    pub(super) limited: VecDeque<String>,
    /// Calls that are still to be answered 503 as a whole.
    pub(super) unavailable_calls: u32,
}

pub(super) type Shared = Arc<Mutex<Seen>>;

impl Seen {
    fn apply(&mut self, user: &str, id: &str, liked: bool) -> Result<bool, StatusCode> {
        let refusals = [
            (&mut self.unavailable, StatusCode::SERVICE_UNAVAILABLE),
            (&mut self.limited, StatusCode::TOO_MANY_REQUESTS),
        ];
        for (users, status) in refusals {
            if let Some(at) = users.iter().position(|refused| refused == user) {
                users.remove(at);
                return Err(status);
            }
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

/// Starts a server on a free port.
pub(super) async fn server() -> (Shared, String) {
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
