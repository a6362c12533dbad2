//! Metrics of requests. All labels come from fixed lists, and their handles are made once.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use axum::http::{Method, StatusCode};
use metrics::{Gauge, Histogram};

use super::paths;
use crate::telemetry::names;

/// The last stands for every address that is not ours.
const ROUTES: [&str; 27] = [
    paths::LIKES,
    paths::LIKERS,
    paths::USER_LIKES,
    paths::RANKINGS,
    paths::LOOKUP,
    paths::BATCH,
    paths::FLUSHES,
    paths::COMPENSATIONS,
    paths::SLICES,
    paths::FEED,
    paths::FEED_RESUME,
    paths::LIVE,
    paths::VERIFICATIONS,
    paths::USERS,
    paths::TARGETS,
    paths::RESTORE,
    paths::JOBS,
    paths::HEALTHZ,
    paths::READYZ,
    paths::METRICS,
    paths::OPENAPI,
    paths::DOCS,
    paths::DOCS_SCRIPT,
    paths::DOCS_STYLE,
    paths::UI,
    paths::UI_FILE,
    "other",
];
const METHODS: [&str; 5] = ["GET", "PUT", "DELETE", "POST", "other"];
/// The last stands for a client that hung up before there was an answer.
const CLASSES: [&str; 6] = ["1xx", "2xx", "3xx", "4xx", "5xx", "gone"];
const GONE: usize = CLASSES.len() - 1;
const HANDLES: usize = ROUTES.len() * METHODS.len() * CLASSES.len();

/// Handles of one process; each is registered when it is first needed.
pub(super) struct Observer {
    histograms: Box<[OnceLock<Histogram>]>,
    in_flight: Gauge,
}

impl Observer {
    pub(super) fn new() -> Self {
        Self {
            histograms: (0..HANDLES).map(|_| OnceLock::new()).collect(),
            in_flight: metrics::gauge!(names::HTTP_REQUESTS_IN_FLIGHT),
        }
    }

    /// Begins a request; dropping what it gives ends it.
    pub(super) fn begin(&self, method: &Method, path: &str) -> Observed<'_> {
        self.in_flight.increment(1);
        Observed {
            observer: self,
            route: route(path),
            method: method_index(method),
            class: GONE,
            begun: Instant::now(),
        }
    }
}

/// A request under way.
pub(super) struct Observed<'a> {
    observer: &'a Observer,
    route: usize,
    method: usize,
    class: usize,
    begun: Instant,
}

impl Observed<'_> {
    /// The pattern of its address.
    pub(super) fn route(&self) -> &'static str {
        ROUTES[self.route]
    }

    pub(super) fn method(&self) -> &'static str {
        METHODS[self.method]
    }

    /// How long it has taken so far.
    pub(super) fn duration(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Notes how it was answered.
    pub(super) fn answered(mut self, status: StatusCode) {
        self.class = usize::from(status.as_u16() / 100).clamp(1, GONE) - 1;
    }
}

impl Drop for Observed<'_> {
    fn drop(&mut self) {
        let (route, method, class) = (self.route, self.method, self.class);
        let at = (route * METHODS.len() + method) * CLASSES.len() + class;
        let histogram = self.observer.histograms[at].get_or_init(|| {
            metrics::histogram!(
                names::HTTP_REQUEST_SECONDS,
                "route" => ROUTES[route],
                "method" => METHODS[method],
                "status" => CLASSES[class]
            )
        });
        histogram.record(self.begun.elapsed());
        self.observer.in_flight.decrement(1);
    }
}

/// The pattern of an address.
pub(super) fn pattern(path: &str) -> &'static str {
    ROUTES[route(path)]
}

fn route(path: &str) -> usize {
    let mut parts = path.split('/').skip(1);
    let named = match std::array::from_fn::<_, 6, _>(|_| parts.next()) {
        [Some("v1"), Some("likes"), Some(_), Some(_), None, _] => paths::LIKES,
        [
            Some("v1"),
            Some("likes"),
            Some(_),
            Some(_),
            Some("users"),
            None,
        ] => paths::LIKERS,
        [Some("v1"), Some("users"), Some(_), Some("likes"), None, _] => paths::USER_LIKES,
        [Some("v1"), Some("rankings"), Some(_), None, ..] => paths::RANKINGS,
        [Some("admin"), Some("v1"), Some("users"), Some(_), None, _] => paths::USERS,
        [Some("admin"), Some("v1"), Some("jobs"), Some(_), None, _] => paths::JOBS,
        [
            Some("admin"),
            Some("v1"),
            Some("targets"),
            Some(_),
            Some(_),
            None,
        ] => paths::TARGETS,
        [
            Some("admin"),
            Some("v1"),
            Some("targets"),
            Some(_),
            Some(_),
            Some("restore"),
        ] => paths::RESTORE,
        [Some("ui"), Some(_), None, ..] => paths::UI_FILE,
        _ => path,
    };
    let known = ROUTES.iter().position(|route| *route == named);
    known.unwrap_or(ROUTES.len() - 1)
}

fn method_index(method: &Method) -> usize {
    match *method {
        Method::GET => 0,
        Method::PUT => 1,
        Method::DELETE => 2,
        Method::POST => 3,
        _ => METHODS.len() - 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_bounded() {
        assert_eq!(ROUTES[route("/v1/likes/blog/1%2F2")], paths::LIKES);
        assert_eq!(ROUTES[route("/v1/batch")], paths::BATCH);
        assert_eq!(ROUTES[route("/v1/likes/users/users/users")], paths::LIKERS);
        assert_eq!(ROUTES[route("/v1/users/me/likes")], paths::USER_LIKES);
        assert_eq!(ROUTES[route("/v1/rankings/blog")], paths::RANKINGS);
        assert_eq!(ROUTES[route("/admin/v1/users/u1")], paths::USERS);
        assert_eq!(ROUTES[route("/admin/v1/jobs/7")], paths::JOBS);
        assert_eq!(ROUTES[route("/admin/v1/targets/blog/1")], paths::TARGETS);
        let restore = "/admin/v1/targets/blog/1/restore";
        assert_eq!(ROUTES[route(restore)], paths::RESTORE);
        assert_eq!(ROUTES[route("/ui/main.js")], paths::UI_FILE);
        assert_eq!(ROUTES[route("/ui")], paths::UI);
        for path in [
            "/",
            "/v1/likes/blog",
            "/v1/likes/blog/1/2",
            "/v1/likes/blog/1/users/x/users",
            "/v1/users/u1",
            "/v1/users/u1/likes/x",
            "/v1/rankings",
            "/admin/v1/users",
            "/admin/v1/targets/blog",
            "/ui/a/b",
            "/admin/v1/jobs/7/x",
            "/v1/rankings/a/b",
            "/x",
        ] {
            assert_eq!(ROUTES[route(path)], "other", "{path}");
        }
        assert_eq!(METHODS[method_index(&Method::PUT)], "PUT");
        assert_eq!(METHODS[method_index(&Method::PATCH)], "other");
    }
}
