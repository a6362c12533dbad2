//! Whether a new connection may get what the server has just refused to an old one.
//!
//! A server that takes no writes may no longer be the primary: behind a name or a load balancer new connections lead to the new
//! one, while nobody closes the old ones. And what a user may do in a database is decided when a connection is made. The pool has many
//! of them, and each looks well until it is refused; so none of those is used again that were made before the last refusal.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::LedgerError;

/// When the server last refused what it may grant to a new connection.
#[derive(Debug, Clone, Default)]
pub(super) struct Outdated(Arc<Mutex<Option<Instant>>>);

impl Outdated {
    /// Takes note of an error, if it is such a refusal.
    pub(super) fn note(&self, error: &LedgerError) {
        if error.is_of_the_connection() {
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
        let outdated = Outdated::default();
        let hour = Duration::from_secs(3600);
        outdated.note(&LedgerError::Timeout(hour));
        assert!(outdated.spares(hour));
        outdated.note(&LedgerError::Denied(sqlx::Error::RowNotFound));
        assert!(!outdated.spares(hour));
        std::thread::sleep(Duration::from_millis(2));
        assert!(outdated.spares(Duration::ZERO));
    }
}
