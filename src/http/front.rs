//! What every request goes through: its id, its place, its time limit, its measure, and the writing of problems. One plain function instead of a stack of layers.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody as _};
use axum::http::{HeaderValue, Request, header};
use axum::response::{IntoResponse as _, Response};
use futures_util::FutureExt as _;
use hyper::body::Incoming;
use tokio_util::task::TaskTracker;
use tower::{Layer as _, Service as _, service_fn};
use tower_http::cors::CorsLayer;

use super::admission::Class;
use super::cors;
use super::observe::Observer;
use super::parameters;
use super::problem::Problem;
use super::request_id;
use super::state::Shared;
use super::trace::{self, Trace};
use crate::config::Settings;
use crate::limits::ADMIN_REQUEST_MAX;

const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// Answers the requests of all connections.
pub struct Front {
    router: Router,
    /// Whether the router has an address, by its pattern.
    has: fn(&str) -> bool,
    shared: Arc<Shared>,
    observer: Observer,
    /// Around what web pages may call.
    cors: Option<CorsLayer>,
    request_timeout: Duration,
}

impl Front {
    pub(super) fn new(
        router: Router,
        has: fn(&str) -> bool,
        shared: Arc<Shared>,
        settings: &Settings,
    ) -> Self {
        Self {
            router,
            has,
            shared,
            observer: Observer::new(),
            cors: settings.cors_origins.as_ref().map(cors::layer),
            request_timeout: Duration::from_millis(settings.request_timeout_ms),
        }
    }

    /// The process is about to stop: readiness says so.
    pub(super) fn leave(&self) {
        self.shared.leaving.store(true, Ordering::Relaxed);
    }

    /// Batches that go on although their clients may be gone.
    pub(super) fn batches(&self) -> &TaskTracker {
        &self.shared.batches
    }

    /// Answers one request.
    pub(super) async fn answer(
        self: Arc<Self>,
        mut request: Request<Incoming>,
    ) -> Result<Response, Infallible> {
        let path = request.uri().path();
        let observed = self.observer.begin(request.method(), path);
        let cors = self.cors.as_ref().filter(|_| path.starts_with("/v1/"));
        let limit = if path.starts_with("/admin/") {
            ADMIN_REQUEST_MAX
        } else {
            self.request_timeout
        };
        let request_id = request_id::of(request.headers());
        let trace = Trace::of(request.headers());
        // The one route that logs by itself finds the id where a caller would have put it.
        if !request.body().is_end_stream() {
            let headers = request.headers_mut();
            headers.insert(request_id::HEADER, request_id.clone());
        }
        let request = request.map(|body| match body.is_end_stream() {
            true => Body::empty(),
            false => Body::new(body),
        });
        let admit = |request| self.admit(request, limit);
        let Ok(mut response) = match cors {
            Some(cors) => cors.layer(service_fn(admit)).call(request).await,
            None => admit(request).await,
        };
        if let Some(problem) = response.extensions_mut().remove::<Problem>() {
            problem.log(&request_id, trace);
            problem.write(&mut response, &request_id);
        }
        let headers = response.headers_mut();
        headers.entry(header::CACHE_CONTROL).or_insert(NO_STORE);
        if let Some(trace) = &trace {
            headers.insert(trace::ANSWER, trace.answer());
        }
        headers.insert(request_id::HEADER, request_id.clone());
        let status = response.status();
        // The pattern of the address and not the address, which names users and targets.
        tracing::debug!(
            request_id = request_id.to_str().unwrap_or_default(),
            trace_id = trace.as_ref().map(Trace::id),
            method = observed.method(),
            route = observed.route(),
            status = status.as_u16(),
            duration_us = observed.duration().as_micros() as u64,
            "answered"
        );
        observed.answered(status);
        Ok(response)
    }

    /// Runs the handler of a request, unless it is one of too many.
    async fn admit(&self, request: Request<Body>, limit: Duration) -> Result<Response, Infallible> {
        if let Err(problem) = parameters::check(request.method(), request.uri(), self.has) {
            return Ok(problem.into_response());
        }
        let class = Class::of(request.method(), request.uri().path());
        let enter = |class| self.shared.admission.enter(class, 1);
        Ok(match class.map(enter).transpose() {
            Ok(_places) => self.handle(request, limit).await,
            Err(problem) => problem.into_response(),
        })
    }

    /// Runs the handler of a request within its time.
    async fn handle(&self, request: Request<Body>, limit: Duration) -> Response {
        let handler = AssertUnwindSafe(self.router.clone().call(request)).catch_unwind();
        match tokio::time::timeout(limit, handler).await {
            Ok(Ok(Ok(response))) => response,
            Ok(Ok(Err(never))) => match never {},
            Ok(Err(_)) => Problem::internal("a handler panicked".to_owned()).into_response(),
            Err(_) => Problem::timeout().into_response(),
        }
    }
}
