//! What `limit.lua` is told of each operation, and what it means if it refuses one.

use std::collections::HashMap;
use std::time::Duration;

use redis::Cmd;

use super::Thumb;
use super::keys::Keys;
use crate::config::{KindLimits, OperationRate, ToggleCooldown};
use crate::domain::Target;

/// A limit that was not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Too many changes of the user.
    Operations(OperationRate),
    /// Too many toggles of the pair.
    Toggles(ToggleCooldown),
}

/// The limits by kind; kinds that have none are not in it.
#[derive(Debug, Clone, Default)]
pub struct Limits(HashMap<String, KindLimits>);

impl FromIterator<(String, KindLimits)> for Limits {
    fn from_iter<I: IntoIterator<Item = (String, KindLimits)>>(limits: I) -> Self {
        let some = |(_, limits): &(String, KindLimits)| *limits != KindLimits::default();
        Self(limits.into_iter().filter(some).collect())
    }
}

impl Limits {
    fn of(&self, target: &Target) -> KindLimits {
        self.0.get(target.kind()).copied().unwrap_or_default()
    }

    /// Whether one of the operations is limited; otherwise the script is told nothing of limits.
    pub(super) fn hold(&self, operations: &[&Thumb]) -> bool {
        let mut targets = operations.iter().map(|operation| &operation.target);
        !self.0.is_empty() && targets.any(|target| self.0.contains_key(target.kind()))
    }

    /// Two keys per operation, behind all others.
    pub(super) fn add_keys(&self, call: &mut Cmd, keys: &Keys, operations: &[&Thumb]) {
        for Thumb { user, target, .. } in operations {
            let KindLimits {
                operations,
                toggles,
            } = self.of(target);
            call.arg(match operations {
                Some(_) => keys.rate(user, target),
                None => keys.meta(),
            });
            call.arg(match toggles {
                Some(_) => keys.toggle(user, target),
                None => keys.meta(),
            });
        }
    }

    /// Two arguments per operation, behind all others.
    pub(super) fn add_arguments(&self, call: &mut Cmd, operations: &[&Thumb]) {
        let pair = |one: u64, two: u64| format!("{one} {two}");
        for operation in operations {
            let limits = self.of(&operation.target);
            let rate = limits.operations;
            let rate = rate.map(|rate| pair(rate.interval_us(), rate.burst_us()));
            let toggles = limits.toggles;
            let toggles = toggles.map(|one| pair(one.first_ms * 1000, one.max_ms * 1000));
            call.arg(rate.unwrap_or_default());
            call.arg(toggles.unwrap_or_default());
        }
    }

    /// The limit of a code with which an operation was refused.
    pub(super) fn refused(&self, code: i64, target: &Target) -> Option<Limit> {
        let limits = self.of(target);
        match code {
            7 => limits.operations.map(Limit::Operations),
            8 => limits.toggles.map(Limit::Toggles),
            _ => None,
        }
    }
}

/// How long to wait, as the script says it.
pub(super) fn wait(ms: i64) -> Duration {
    Duration::from_millis(ms.unsigned_abs())
}
