//! A history of client operations, and whether a like service may have given it.
//!
//! Per user and target there must be some one-at-a-time order of the operations, each between its start and its end, that gives all
//! answers and the final row. An operation whose outcome nobody knows may have happened once after its start, or not at all. And a
//! count must lie between the sums of the least and the greatest states that were possible while it was asked for.

mod checker;
mod client;
mod live;
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

pub(crate) use client::Recorder;
pub(crate) use live::rows;

/// User and target.
pub(crate) type Pair = (String, String);

/// What a client asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    Like,
    Unlike,
    Read,
}

/// What it is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// The operation was accepted.
    Done { changed: bool, count: Option<i64> },
    /// What the read saw.
    Seen {
        liked: Option<bool>,
        count: Option<i64>,
    },
    /// Nothing was done.
    Refused,
    /// Nobody knows.
    Unknown,
}

/// One operation, with times since the beginning of the history.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub(crate) pair: Pair,
    pub(crate) call: Call,
    pub(crate) start: Duration,
    pub(crate) end: Duration,
    pub(crate) told: Told,
}

/// What a check looked at: a history in which nothing happens proves nothing.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Checked {
    pub(crate) changed: u64,
    pub(crate) unchanged: u64,
    pub(crate) seen: u64,
    pub(crate) counts: u64,
    pub(crate) refused: u64,
    pub(crate) unknown: u64,
}

/// Holds a history against the final rows, which lack what was never liked. An unknown outcome is settled at the latest `settled`
/// after the start.
pub(crate) fn check(
    events: &[Event],
    rows: &BTreeMap<Pair, bool>,
    settled: Duration,
) -> Result<Checked, String> {
    let mut checked = Checked::default();
    for event in events {
        match event.told {
            Told::Done { changed: true, .. } => checked.changed += 1,
            Told::Done { .. } => checked.unchanged += 1,
            Told::Seen { .. } => checked.seen += 1,
            Told::Refused => checked.refused += 1,
            Told::Unknown => checked.unknown += 1,
        }
    }
    let mut pairs: BTreeMap<&Pair, Vec<&Event>> = BTreeMap::new();
    for event in events {
        pairs.entry(&event.pair).or_default().push(event);
    }
    let mut possible: BTreeMap<&str, Vec<checker::Possible>> = BTreeMap::new();
    for (pair, events) in pairs {
        let row = rows.get(pair).copied().unwrap_or(false);
        let states = checker::order(&events, row, settled)
            .map_err(|problem| format!("{} {}: {problem}", pair.0, pair.1))?;
        possible.entry(&pair.1).or_default().push(states);
    }
    if let Some((pair, _)) = rows
        .iter()
        .find(|(pair, _)| !possible.contains_key(&*pair.1))
    {
        return Err(format!("{} {}: a row of nobody's", pair.0, pair.1));
    }
    for event in events {
        let (Told::Done { count, .. } | Told::Seen { count, .. }) = event.told else {
            continue;
        };
        let Some(count) = count else { continue };
        checked.counts += 1;
        let (mut low, mut high) = (0, 0);
        for states in &possible[&*event.pair.1] {
            let (least, greatest) = states.between(event.start, event.end);
            low += i64::from(least);
            high += i64::from(greatest);
        }
        if !(low..=high).contains(&count) {
            return Err(format!(
                "a count was never {count}, but {low} to {high}: {event:?}"
            ));
        }
    }
    Ok(checked)
}
