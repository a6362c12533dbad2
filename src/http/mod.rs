//! The HTTP interface: routes, what they take, what they answer. The only user of `axum`; what a call does lies in `service` and `jobs`.

mod admin;
mod admission;
mod answer;
mod asset;
mod auth;
mod batch;
mod body;
mod caching;
mod contract;
mod cors;
mod cursor;
mod durability;
mod fields;
mod front;
mod likes;
mod list_query;
mod lists;
mod live;
mod look;
mod lookup;
mod observe;
mod parameters;
mod problem;
mod request_id;
mod server;
mod state;
mod subject;
mod trace;
mod ui;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{MethodRouter, get, post, put};

use crate::config::Settings;
use crate::jobs::Jobs;
use crate::live::Live;
use crate::service::Service;
use metrics_exporter_prometheus::PrometheusHandle;

pub use contract::document as openapi;
pub use front::Front;
pub use server::{Drained, Server};

use admission::Admission;
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
    pub(super) const FEED: &str = "/admin/v1/feed";
    pub(super) const FEED_RESUME: &str = "/admin/v1/feed/resume";
    pub(super) const LIVE: &str = "/admin/v1/live";
    pub(super) const VERIFICATIONS: &str = "/admin/v1/verifications";
    pub(super) const USERS: &str = "/admin/v1/users/{user}";
    pub(super) const TARGETS: &str = "/admin/v1/targets/{kind}/{id}";
    pub(super) const RESTORE: &str = "/admin/v1/targets/{kind}/{id}/restore";
    pub(super) const JOBS: &str = "/admin/v1/jobs/{id}";
    pub(super) const HEALTHZ: &str = "/healthz";
    pub(super) const READYZ: &str = "/readyz";
    pub(super) const METRICS: &str = "/metrics";
    pub(super) const OPENAPI: &str = "/openapi.json";
    pub(super) const DOCS: &str = "/docs";
    pub(super) const DOCS_SCRIPT: &str = "/docs/page.js";
    pub(super) const DOCS_STYLE: &str = "/docs/page.css";
    pub(super) const UI: &str = "/ui";
    pub(super) const UI_FILE: &str = "/ui/{file}";
}

/// All addresses with their methods. Nothing is wrapped around those of likes: what all requests need is in `front`, around the
/// router.
fn routes(body_bytes_max: usize) -> Vec<(&'static str, MethodRouter<Arc<Shared>>)> {
    let limit = DefaultBodyLimit::max(body_bytes_max);
    let likes = put(likes::put).delete(likes::delete).get(likes::get);
    vec![
        (paths::LIKES, likes),
        (paths::LIKERS, get(lists::likers)),
        (paths::USER_LIKES, get(lists::likes)),
        (paths::RANKINGS, get(lists::ranking)),
        (paths::LOOKUP, post(lookup::post).layer(limit)),
        (paths::BATCH, post(batch::post).layer(limit)),
        (paths::FLUSHES, post(admin::flush)),
        (paths::COMPENSATIONS, post(admin::compensate)),
        (paths::SLICES, get(admin::slices)),
        (paths::FEED, get(admin::feed)),
        (paths::FEED_RESUME, post(admin::feed_resume)),
        (paths::RESTORE, put(admin::restore_target)),
        (paths::LIVE, get(live::live)),
        (paths::VERIFICATIONS, post(live::verify)),
        (
            paths::TARGETS,
            get(look::target).delete(admin::erase_target),
        ),
        (paths::USERS, get(look::user).delete(admin::erase_user)),
        (paths::JOBS, get(admin::job)),
        (paths::HEALTHZ, get(state::alive)),
        (paths::READYZ, get(state::ready)),
        (paths::METRICS, get(state::metrics)),
        (paths::OPENAPI, get(contract::openapi)),
        (paths::DOCS, get(contract::page)),
        (paths::DOCS_SCRIPT, get(contract::script)),
        (paths::DOCS_STYLE, get(contract::style)),
        (paths::UI, get(ui::page)),
        (paths::UI_FILE, get(ui::file)),
    ]
}

/// All addresses, as the documents write them.
pub fn addresses() -> Vec<&'static str> {
    routes(0).into_iter().map(|(path, _)| path).collect()
}

/// What stands between connections and the service.
pub struct Fronts {
    /// For everybody.
    pub public: Arc<Front>,
    /// For operators, if they have an address of their own.
    pub inner: Option<Arc<Front>>,
}

/// Whether an address is for operators alone. The probes are for both: a load balancer asks where it sends requests.
fn is_inner(path: &str) -> bool {
    let page = path == paths::UI || path == paths::UI_FILE;
    path.starts_with("/admin/") || path == paths::METRICS || page
}

fn is_probe(path: &str) -> bool {
    path == paths::HEALTHZ || path == paths::READYZ
}

/// Builds everything that stands between a connection and the service.
pub fn fronts(
    settings: &Settings,
    service: Service,
    jobs: Jobs,
    live: Live,
    metrics: PrometheusHandle,
) -> Fronts {
    let shared = Arc::new(Shared {
        service,
        jobs,
        live,
        metrics,
        keys: Keys::new(settings),
        kinds: settings.kinds.clone(),
        body_bytes_max: settings.body_bytes_max,
        request_timeout: Duration::from_millis(settings.request_timeout_ms),
        admission: Arc::new(Admission::new(settings.operations_in_flight_max)),
        batches: Default::default(),
        leaving: Default::default(),
    });
    let front = |wanted: fn(&str) -> bool| {
        let routes = routes(settings.body_bytes_max).into_iter();
        let router = routes
            .filter(|(path, _)| wanted(path))
            .fold(Router::new(), |router, (path, methods)| {
                router.route(path, methods)
            })
            .method_not_allowed_fallback(async || Problem::method_not_allowed())
            .fallback(async || Problem::not_found())
            .with_state(shared.clone());
        Arc::new(Front::new(router, wanted, shared.clone(), settings))
    };
    match settings.admin_listen {
        None => Fronts {
            public: front(|_| true),
            inner: None,
        },
        Some(_) => Fronts {
            public: front(|path| !is_inner(path)),
            inner: Some(front(|path| is_inner(path) || is_probe(path))),
        },
    }
}
