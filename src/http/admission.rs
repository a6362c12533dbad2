//! How much may be under way at once. Beyond it the next one is refused at once and told when to come again, instead of waiting
//! behind what waits already. Writes are refused first: most people only look. Probes, metrics and admin calls always pass.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::http::Method;
use metrics::Counter;

use super::paths;
use super::problem::Problem;
use crate::limits::WRITES_SHARE;
use crate::telemetry::names;

/// What is refused together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Read,
    Write,
}

impl Class {
    /// `None`: it is never refused.
    pub(super) fn of(method: &Method, path: &str) -> Option<Self> {
        match *method {
            _ if !path.starts_with("/v1/") => None,
            Method::GET | Method::HEAD => Some(Self::Read),
            Method::POST if path == paths::LOOKUP => Some(Self::Read),
            Method::PUT | Method::DELETE | Method::POST => Some(Self::Write),
            _ => None,
        }
    }
}

/// The places of one process.
pub(super) struct Admission {
    taken: AtomicUsize,
    reads_max: usize,
    writes_max: usize,
    shed_reads: Counter,
    shed_writes: Counter,
}

/// Places that are taken until this is dropped.
pub(super) struct Places {
    of: Arc<Admission>,
    count: usize,
}

impl Admission {
    /// Up to `max` operations at once, and writes up to their share of it.
    pub(super) fn new(max: usize) -> Self {
        let (part, whole) = WRITES_SHARE;
        let shed = |class| metrics::counter!(names::SHED_REQUESTS, "class" => class);
        Self {
            taken: AtomicUsize::new(0),
            reads_max: max,
            writes_max: (max * part / whole).max(1),
            shed_reads: shed("read"),
            shed_writes: shed("write"),
        }
    }

    /// Takes as many places as there are operations, or none. While a place is free, one request may have more than are left: a
    /// batch that is larger than the bound would never be accepted otherwise.
    pub(super) fn enter(self: &Arc<Self>, class: Class, count: usize) -> Result<Places, Problem> {
        let (max, shed) = match class {
            Class::Read => (self.reads_max, &self.shed_reads),
            Class::Write => (self.writes_max, &self.shed_writes),
        };
        let more = |taken: usize| (taken < max).then(|| taken.saturating_add(count));
        let relaxed = Ordering::Relaxed;
        match self.taken.fetch_update(relaxed, relaxed, more) {
            Ok(_) => Ok(Places {
                of: self.clone(),
                count,
            }),
            Err(_) => {
                shed.increment(1);
                Err(Problem::overloaded(later()))
            }
        }
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        self.of.taken.fetch_sub(self.count, Ordering::Relaxed);
    }
}

/// One to three seconds: whoever was refused in the same moment must not come back in the same moment.
fn later() -> Duration {
    Duration::from_millis(rand::random_range(1000..=3000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_shed_before_reads_and_others_never() {
        let admission = Arc::new(Admission::new(8));
        let enter = |class, count| admission.enter(class, count).ok();
        let writes: Vec<_> = (0..6).map(|_| enter(Class::Write, 1).unwrap()).collect();
        assert!(enter(Class::Write, 1).is_none());
        let reads: Vec<_> = (0..2).map(|_| enter(Class::Read, 1).unwrap()).collect();
        assert!(enter(Class::Read, 1).is_none());
        drop(writes);
        // One batch may have more than are left, and then nothing else begins.
        let batch = enter(Class::Write, 1000).unwrap();
        assert!(enter(Class::Write, 1).is_none() && enter(Class::Read, 1).is_none());
        drop((batch, reads));
        assert_eq!(admission.taken.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_is_refused_goes_by_method_and_address() {
        for (method, path, class) in [
            (Method::GET, "/v1/likes/blog/1", Some(Class::Read)),
            (Method::HEAD, "/v1/rankings/blog", Some(Class::Read)),
            (Method::POST, "/v1/lookup", Some(Class::Read)),
            (Method::POST, "/v1/batch", Some(Class::Write)),
            (Method::PUT, "/v1/likes/blog/1", Some(Class::Write)),
            (Method::DELETE, "/v1/likes/blog/1", Some(Class::Write)),
            (Method::OPTIONS, "/v1/likes/blog/1", None),
            (Method::GET, "/healthz", None),
            (Method::GET, "/readyz", None),
            (Method::GET, "/metrics", None),
            (Method::POST, "/admin/v1/flushes", None),
        ] {
            assert_eq!(Class::of(&method, path), class, "{method} {path}");
        }
    }
}
