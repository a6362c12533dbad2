//! Damage to the stores themselves: what is lost with it, and while it is not recognised or not mended nothing is promised.

use thumbd::domain::{Target, UserId};

use super::schedule::Run;
use super::world::Pairs;

/// What was damaged.
#[derive(Default)]
pub(super) struct Damage {
    /// The last step in which something was damaged.
    last: Option<u64>,
}

impl Damage {
    /// Whether something was damaged since that step.
    pub(super) fn blurs(&self, since: u64) -> bool {
        self.last.is_some_and(|last| last >= since)
    }

    pub(super) fn accepted(&mut self, _pair: (UserId, Target), _state: bool, _version: u64) {}

    pub(super) fn check(&self, _rows: &Pairs, _likes_only: bool) {}
}

impl Run<'_> {
    pub(super) async fn hurt(&mut self) {}

    pub(super) async fn watch(&mut self) {}
}
