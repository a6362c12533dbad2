//! Recognises a Redis that was emptied or rolled back, and a MySQL that forgot commits, and makes the partition distrust what is resident.

use super::ServiceError;
use crate::hot::{Generation, Hot, Peek, Reset};
use crate::ledger::{FlushState, Ledger};
use crate::steps;
use crate::telemetry::names;

/// How often a reset is tried while slices come and go in between.
const RESETS_MAX: usize = 5;

/// A generation that was never there: random, because a counter could be rolled back and repeat.
pub fn new_generation() -> Generation {
    format!("{:016x}", rand::random::<u64>())
}

/// What is wrong with a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Damage {
    Emptied,
    RolledBack,
    LedgerBehind,
    /// The same, and some of what it forgot is not kept any more.
    LedgerLost,
}

impl Damage {
    const ALL: [Self; 4] = [
        Self::Emptied,
        Self::RolledBack,
        Self::LedgerBehind,
        Self::LedgerLost,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Emptied => "emptied",
            Self::RolledBack => "rolled_back",
            Self::LedgerBehind => "ledger_behind",
            Self::LedgerLost => "ledger_lost",
        }
    }
}

/// Begins the counters of recoveries at 0: one that appears with its first event has not risen for whoever alerts on it.
pub(super) fn count_from_zero() {
    for cause in Damage::ALL {
        metrics::counter!(names::RECOVERIES, "cause" => cause.name()).increment(0);
    }
}

/// What is wrong with a partition, in a word, and nothing is done about it; `None`: nothing is.
pub async fn damage(
    hot: &Hot,
    ledger: &Ledger,
    partition: u16,
) -> Result<Option<&'static str>, ServiceError> {
    let found = look(hot, ledger, partition).await?;
    Ok(found.map(|(damage, ..)| damage.name()))
}

/// What is wrong with a partition, and what both stores said.
async fn look(
    hot: &Hot,
    ledger: &Ledger,
    partition: u16,
) -> Result<Option<(Damage, FlushState, Peek)>, ServiceError> {
    // For `sealed` MySQL is read first, for `done` Redis: a flusher may commit and mark in between.
    let before = ledger.flush_state().await?;
    steps::point("recover.state").await;
    let seen = hot.peek(partition).await?;
    steps::point("recover.peek").await;
    if let Some(damage) = sealed_damage(&before, &seen) {
        return Ok(Some((damage, before, seen)));
    }
    let after = ledger.flush_state().await?;
    Ok(ledger_damage(&after, &seen).map(|damage| (damage, after, seen)))
}

/// Checks a partition against MySQL and resets it if need be. True: it was reset.
pub async fn check(hot: &Hot, ledger: &Ledger, partition: u16) -> Result<bool, ServiceError> {
    let mut was_reset = false;
    for _ in 0..RESETS_MAX {
        let Some((damage, state, seen)) = look(hot, ledger, partition).await? else {
            return Ok(was_reset);
        };
        steps::point("recover.reset").await;
        let reset = Reset {
            seen: &seen,
            generation: &new_generation(),
            last: state.last,
            max_version: state.max_version,
            landed: Some(state.landed),
        };
        if hot.reset(partition, reset).await? {
            steps::point("recover.done").await;
            was_reset = true;
            metrics::counter!(names::RECOVERIES, "cause" => damage.name()).increment(1);
            if damage == Damage::LedgerLost {
                tracing::error!(
                    partition,
                    after = state.landed.0,
                    upto = seen.unkept.0,
                    "MySQL has lost likes: it has forgotten slices that are no longer kept in Redis"
                );
            }
            // An empty partition under an empty database is a first start.
            if damage == Damage::Emptied && state.last.0 == 0 {
                tracing::info!(partition, "partition initialised");
            } else {
                tracing::warn!(
                    partition,
                    cause = damage.name(),
                    sealed = seen.sealed.0,
                    done = seen.done.0,
                    last = state.last.0,
                    landed = state.landed.0,
                    live = seen.live.len(),
                    "partition was damaged: everything resident is cold until what is live has landed"
                );
            }
        }
    }
    Err(ServiceError::recovering())
}

/// Makes everything in a partition cold, although neither store was damaged.
pub async fn distrust(hot: &Hot, ledger: &Ledger, partition: u16) -> Result<(), ServiceError> {
    for _ in 0..RESETS_MAX {
        let state = ledger.flush_state().await?;
        let seen = hot.peek(partition).await?;
        let reset = Reset {
            seen: &seen,
            generation: &new_generation(),
            last: state.last,
            max_version: state.max_version,
            landed: Some(state.landed),
        };
        if hot.reset(partition, reset).await? {
            metrics::counter!(names::RECOVERIES, "cause" => "distrusted").increment(1);
            return Ok(());
        }
    }
    Err(ServiceError::recovering())
}

fn sealed_damage(state: &FlushState, seen: &Peek) -> Option<Damage> {
    if seen.generation.is_none() {
        Some(Damage::Emptied)
    } else if seen.sealed < state.last {
        Some(Damage::RolledBack)
    } else {
        None
    }
}

fn ledger_damage(state: &FlushState, seen: &Peek) -> Option<Damage> {
    if seen.done <= state.landed {
        None
    } else if seen.unkept > state.landed {
        Some(Damage::LedgerLost)
    } else {
        Some(Damage::LedgerBehind)
    }
}
