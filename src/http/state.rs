//! What all handlers share, and the routes that tell of the process itself: alive, ready, metrics.

use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use metrics_exporter_prometheus::PrometheusHandle;
use serde::Serialize;
use std::sync::Arc;
use tokio_util::task::TaskTracker;

use super::answer;
use super::auth::Keys;
use crate::config::Kinds;
use crate::jobs::Jobs;
use crate::service::Service;

/// What all handlers share.
pub(super) struct Shared {
    pub(super) service: Service,
    pub(super) jobs: Jobs,
    pub(super) metrics: PrometheusHandle,
    pub(super) keys: Keys,
    pub(super) kinds: Kinds,
    pub(super) body_bytes_max: usize,
    /// Batches under way: they outlive a client that hangs up.
    pub(super) batches: TaskTracker,
}

#[derive(Serialize)]
struct Alive {
    status: &'static str,
}

/// `GET /healthz`: the process answers, whatever its servers do.
pub(super) async fn alive() -> Response {
    answer::json(StatusCode::OK, &Alive { status: "ok" })
}

#[derive(Serialize)]
struct Ready {
    status: &'static str,
    redis: Dependency,
    database: Dependency,
}

#[derive(Serialize)]
struct Dependency {
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

impl From<Result<(), String>> for Dependency {
    fn from(health: Result<(), String>) -> Self {
        Self {
            ok: health.is_ok(),
            problem: health.err(),
        }
    }
}

/// `GET /readyz`: 503 without Redis. Without the database likes of resident users go on, so taking every
/// instance out of rotation would turn a partial outage into a whole one: that is 200 and `degraded`.
pub(super) async fn ready(State(shared): State<Arc<Shared>>) -> Response {
    let health = shared.service.health().await;
    let redis = Dependency::from(health.redis);
    let database = Dependency::from(health.database);
    let (status, word) = match (redis.ok, database.ok) {
        (true, true) => (StatusCode::OK, "ready"),
        (true, false) => (StatusCode::OK, "degraded"),
        (false, _) => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
    };
    let body = Ready {
        status: word,
        redis,
        database,
    };
    answer::json(status, &body)
}

/// `GET /metrics`: open to all, for it holds neither users nor targets.
pub(super) async fn metrics(State(shared): State<Arc<Shared>>) -> Response {
    const TEXT: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    ([(header::CONTENT_TYPE, TEXT)], shared.metrics.render()).into_response()
}
