//! The HTTP interface: routes, what they take, what they answer. The only user of `axum`; what a call does lies in `service` and `jobs`.

mod admin;
mod answer;
mod auth;
mod batch;
mod body;
mod caching;
mod cursor;
mod durability;
mod fields;
mod front;
mod likes;
mod list_query;
mod lists;
mod lookup;
mod observe;
mod problem;
mod request_id;
mod server;
mod state;
mod subject;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post, put};

use crate::config::Settings;
use crate::jobs::Jobs;
use crate::service::Service;
use metrics_exporter_prometheus::PrometheusHandle;

pub use front::Front;
pub use server::{Drained, Server};

use auth::Keys;
use problem::Problem;
use state::Shared;

/// All addresses, once: routes and the labels of metrics.
mod paths {
    pub(super) const LIKES: &str = "/v1/likes/{kind}/{id}";
    pub(super) const LIKERS: &str = "/v1/likes/{kind}/{id}/users";
    pub(super) const USER_LIKES: &str = "/v1/users/{user}/likes";
    pub(super) const RANKINGS: &str = "/v1/rankings/{kind}";
    pub(super) const LOOKUP: &str = "/v1/lookup";
    pub(super) const BATCH: &str = "/v1/batch";
    pub(super) const FLUSHES: &str = "/admin/v1/flushes";
    pub(super) const COMPENSATIONS: &str = "/admin/v1/compensations";
    pub(super) const SLICES: &str = "/admin/v1/slices";
    pub(super) const HEALTHZ: &str = "/healthz";
    pub(super) const READYZ: &str = "/readyz";
    pub(super) const METRICS: &str = "/metrics";
}

/// Builds everything that stands between a connection and the service.
pub fn front(
    settings: &Settings,
    service: Service,
    jobs: Jobs,
    metrics: PrometheusHandle,
) -> Arc<Front> {
    let shared = Arc::new(Shared {
        service,
        jobs,
        metrics,
        keys: Keys::new(settings),
        kinds: settings.kinds.clone(),
        body_bytes_max: settings.body_bytes_max,
        request_timeout: Duration::from_millis(settings.request_timeout_ms),
        batches: Default::default(),
    });
    let limit = DefaultBodyLimit::max(settings.body_bytes_max);
    // Nothing is wrapped around the routes of likes: what all requests need is in `front`, around the router.
    let router = Router::new()
        .route(
            paths::LIKES,
            put(likes::put).delete(likes::delete).get(likes::get),
        )
        .route(paths::LIKERS, get(lists::likers))
        .route(paths::USER_LIKES, get(lists::likes))
        .route(paths::RANKINGS, get(lists::ranking))
        .route(paths::LOOKUP, post(lookup::post).layer(limit))
        .route(paths::BATCH, post(batch::post).layer(limit))
        .route(paths::FLUSHES, post(admin::flush))
        .route(paths::COMPENSATIONS, post(admin::compensate))
        .route(paths::SLICES, get(admin::slices))
        .route(paths::HEALTHZ, get(state::alive))
        .route(paths::READYZ, get(state::ready))
        .route(paths::METRICS, get(state::metrics))
        .method_not_allowed_fallback(async || Problem::method_not_allowed())
        .fallback(async || Problem::not_found())
        .with_state(shared.clone());
    Arc::new(Front::new(router, shared, settings))
}
