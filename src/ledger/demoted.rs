//! Whether the server was seen to take no writes, as one does that is no longer the primary.
//!
//! Behind a name or a load balancer new connections lead to the new primary, while nobody closes the old ones. The pool has many
//! of them, and each looks well until somebody writes; so none of those is used again that were made before the first refusal.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::LedgerError;

/// When the server last refused a write because it takes none.
#[derive(Debug, Clone, Default)]
pub(super) struct Demoted(Arc<Mutex<Option<Instant>>>);

impl Demoted {
    /// Takes note of an error, if it says so.
    pub(super) fn note(&self, error: &LedgerError) {
        if error.is_read_only() {
            let now = Some(Instant::now());
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = now;
        }
    }

    /// Whether a connection of this age was made after that, so that it may be used.
    pub(super) fn spares(&self, age: Duration) -> bool {
        let at = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        at.is_none_or(|at| age < at.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_made_before_a_refusal_is_not_used() {
        let demoted = Demoted::default();
        let hour = Duration::from_secs(3600);
        demoted.note(&LedgerError::Timeout(hour));
        assert!(demoted.spares(hour));
        *demoted.0.lock().unwrap() = Some(Instant::now());
        assert!(!demoted.spares(hour));
        std::thread::sleep(Duration::from_millis(2));
        assert!(demoted.spares(Duration::ZERO));
    }
}
