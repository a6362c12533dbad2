//! What all handlers share, and the routes that tell of the process itself: alive, ready, metrics.

use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use metrics_exporter_prometheus::PrometheusHandle;
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio_util::task::TaskTracker;
use utoipa::ToSchema;

use super::admission::Admission;
use super::answer;
use super::auth::Keys;
use super::contract::schemas;
use crate::config::Kinds;
use crate::hot::Writes;
use crate::jobs::Jobs;
use crate::live::Live;
use crate::service::Service;
use crate::telemetry;

/// What all handlers share.
pub(super) struct Shared {
    pub(super) service: Service,
    pub(super) jobs: Jobs,
    pub(super) live: Live,
    pub(super) metrics: PrometheusHandle,
    pub(super) keys: Keys,
    pub(super) kinds: Kinds,
    pub(super) body_bytes_max: usize,
    pub(super) request_timeout: Duration,
    /// What may be under way at once.
    pub(super) admission: Arc<Admission>,
    /// Batches under way: they outlive a client that hangs up.
    pub(super) batches: TaskTracker,
    /// Whether the process is about to stop.
    pub(super) leaving: AtomicBool,
}

#[derive(Serialize, ToSchema)]
pub(super) struct Alive {
    status: &'static str,
}

/// `GET /healthz`: the process answers, whatever its servers do.
pub(super) async fn alive() -> Response {
    answer::json(StatusCode::OK, &Alive { status: "ok" })
}

#[derive(Serialize, ToSchema)]
pub(super) struct Ready {
    #[schema(schema_with = schemas::readiness)]
    status: &'static str,
    redis: Dependency,
    database: Dependency,
    flush: Flush,
}

#[derive(Serialize, ToSchema)]
#[schema(as = FlushHealth)]
struct Flush {
    #[serde(flatten)]
    health: Dependency,
    lag_ms: u64,
}

#[derive(Serialize, ToSchema)]
struct Dependency {
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
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

/// `GET /readyz`: 503 if Redis does not answer. If it takes no writes reads go on, without the database likes of resident users
/// go on, and a flush that fails costs nothing yet: taking every instance out of rotation would turn a partial outage into a whole
/// one. That is 200 and `degraded`. A process that is about to stop answers 503, so that nobody is sent to it any more.
pub(super) async fn ready(State(shared): State<Arc<Shared>>) -> Response {
    let health = shared.service.health().await;
    let answers = health.redis.is_ok();
    let redis = Dependency::from(health.redis.and_then(|writes| match writes {
        Writes::Taken => Ok(()),
        Writes::Refused(reason) => Err(reason.to_owned()),
    }));
    let database = Dependency::from(health.database);
    let (lag_ms, problem) = shared.jobs.flush_health();
    let flush = Flush {
        health: Dependency::from(problem.map_or(Ok(()), Err)),
        lag_ms,
    };
    let (status, word) = if shared.leaving.load(Ordering::Relaxed) {
        (StatusCode::SERVICE_UNAVAILABLE, "stopping")
    } else if !answers {
        (StatusCode::SERVICE_UNAVAILABLE, "unavailable")
    } else if redis.ok && database.ok && flush.health.ok {
        (StatusCode::OK, "ready")
    } else {
        (StatusCode::OK, "degraded")
    };
    let body = Ready {
        status: word,
        redis,
        database,
        flush,
    };
    answer::json(status, &body)
}

/// `GET /metrics`: open to all, for it holds neither users nor targets.
pub(super) async fn metrics(State(shared): State<Arc<Shared>>) -> Response {
    const TEXT: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    telemetry::process_measure();
    ([(header::CONTENT_TYPE, TEXT)], shared.metrics.render()).into_response()
}
