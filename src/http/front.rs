//! What every request goes through: its id, its time limit, its measure, and the writing of problems. One plain function instead of a stack of layers.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody as _};
use axum::http::{HeaderValue, Request, header};
use axum::response::{IntoResponse as _, Response};
use futures_util::FutureExt as _;
use hyper::body::Incoming;
use tokio_util::task::TaskTracker;
use tower::Service as _;

use super::observe::Observer;
use super::problem::Problem;
use super::request_id;
use super::state::Shared;
use crate::config::Settings;
use crate::limits::ADMIN_REQUEST_MAX;

const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// Answers the requests of all connections.
pub struct Front {
    router: Router,
    shared: Arc<Shared>,
    observer: Observer,
    request_timeout: Duration,
}

impl Front {
    pub(super) fn new(router: Router, shared: Arc<Shared>, settings: &Settings) -> Self {
        Self {
            router,
            shared,
            observer: Observer::new(),
            request_timeout: Duration::from_millis(settings.request_timeout_ms),
        }
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
        let limit = if path.starts_with("/admin/") {
            ADMIN_REQUEST_MAX
        } else {
            self.request_timeout
        };
        let request_id = request_id::of(request.headers());
        // The one route that logs by itself finds the id where a caller would have put it.
        if !request.body().is_end_stream() {
            let headers = request.headers_mut();
            headers.insert(request_id::HEADER, request_id.clone());
        }
        let request = request.map(|body| match body.is_end_stream() {
            true => Body::empty(),
            false => Body::new(body),
        });
        let handler = AssertUnwindSafe(self.router.clone().call(request)).catch_unwind();
        let mut response = match tokio::time::timeout(limit, handler).await {
            Ok(Ok(Ok(response))) => response,
            Ok(Ok(Err(never))) => match never {},
            Ok(Err(_)) => Problem::internal("a handler panicked".to_owned()).into_response(),
            Err(_) => Problem::timeout().into_response(),
        };
        if let Some(problem) = response.extensions_mut().remove::<Problem>() {
            problem.log(&request_id);
            problem.write(&mut response, &request_id);
        }
        let headers = response.headers_mut();
        headers.entry(header::CACHE_CONTROL).or_insert(NO_STORE);
        headers.insert(request_id::HEADER, request_id);
        observed.answered(response.status());
        Ok(response)
    }
}
