//! A reader of the change feed's webhook: believes only what is signed and fresh, and keeps a copy of who likes what, however often
//! it is told the same.
//!
//! `WEBHOOK_SECRET=whsec_… cargo run --example webhook_consumer -- 127.0.0.1:8080` listens where
//! `THUMBD_FEED_WEBHOOK_URL=http://127.0.0.1:8080/` leads; docs/feed.md says what the fields mean.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::Value;
use sha2::Sha256;

/// The copy itself, which is the same for a reader of the stream.
#[path = "feed_consumer.rs"]
#[allow(
    dead_code,
    reason = "it also reads the stream, which is not needed here"
)]
pub mod feed_consumer;
use feed_consumer::{Likes, Told};

/// By how many seconds the time of a delivery may differ: an older one may be a recording.
const TOLERANCE_SECONDS: u64 = 300;
/// Largest delivery that is read: twice what thumbd sends.
const BODY_BYTES_MAX: usize = 128 * 1024;

/// Somebody who is told.
pub struct Consumer {
    key: Vec<u8>,
    likes: Mutex<Likes>,
}

impl Consumer {
    /// With a secret, which begins with `whsec_`.
    pub fn new(secret: &str) -> Option<Self> {
        let key = STANDARD.decode(secret.strip_prefix("whsec_")?).ok()?;
        Some(Self {
            key,
            likes: Mutex::default(),
        })
    }

    /// What it was told so far.
    pub fn likes(&self) -> std::sync::MutexGuard<'_, Likes> {
        self.likes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in a delivery at a moment, in Unix seconds. Only 2xx tells thumbd that it need not come again; so whoever stores what
    /// changed answers behind that.
    pub fn take(&self, headers: &HeaderMap, body: &[u8], now: u64) -> StatusCode {
        if !self.is_signed(headers, body, now) {
            return StatusCode::UNAUTHORIZED;
        }
        let Ok(events) = serde_json::from_slice::<Vec<Value>>(body) else {
            return StatusCode::BAD_REQUEST;
        };
        let mut likes = self.likes();
        for event in &events {
            // By their ids, rather than by that of the delivery: those also tell when something is missing.
            if likes.take(event) == Told::Missed {
                println!(
                    "read everything anew: events before {} were missed",
                    likes.last
                );
            }
        }
        StatusCode::NO_CONTENT
    }

    /// Whether one of the signatures is right, and its time too.
    fn is_signed(&self, headers: &HeaderMap, body: &[u8], now: u64) -> bool {
        let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let (Some(id), Some(timestamp), Some(signatures)) = (
            header("webhook-id"),
            header("webhook-timestamp"),
            header("webhook-signature"),
        ) else {
            return false;
        };
        let fresh = |at: u64| now.abs_diff(at) <= TOLERANCE_SECONDS;
        if !timestamp.parse().is_ok_and(fresh) {
            return false;
        }
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("HMAC takes every key");
        mac.update(format!("{id}.{timestamp}.").as_bytes());
        mac.update(body);
        // Two while a secret is replaced. `verify_slice` takes the same time for all that are wrong.
        signatures.split(' ').any(|signature| {
            let signature = signature.strip_prefix("v1,");
            let signature = signature.and_then(|text| STANDARD.decode(text).ok());
            signature.is_some_and(|bytes| mac.clone().verify_slice(&bytes).is_ok())
        })
    }
}

/// Listens for deliveries.
pub fn router(consumer: Arc<Consumer>) -> Router {
    Router::new()
        .route("/", post(receive))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(consumer)
}

async fn receive(
    State(consumer): State<Arc<Consumer>>,
    headers: HeaderMap,
    body: String,
) -> StatusCode {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |now| now.as_secs());
    let status = consumer.take(&headers, body.as_bytes(), now);
    let likes = consumer.likes();
    let liked = likes.pairs.values().filter(|(liked, _)| *liked).count();
    println!("{status}, event {}: {liked} likes", likes.last);
    status
}

#[allow(dead_code, reason = "a test takes this file in as a module")]
#[tokio::main]
async fn main() -> std::io::Result<()> {
    let secret = std::env::var("WEBHOOK_SECRET").unwrap_or_default();
    let Some(consumer) = Consumer::new(&secret) else {
        return Err(std::io::Error::other("WEBHOOK_SECRET is no whsec_…"));
    };
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:8080".into());
    let listener = tokio::net::TcpListener::bind(address).await?;
    axum::serve(listener, router(Arc::new(consumer))).await
}
