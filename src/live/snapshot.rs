//! One look at everything: what a snapshot says, put together from what the other tasks have found.

use std::collections::HashMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::pulse::{Instance, Point};
use super::tables::{Compensation, Liked};
use super::verdict::{Facts, Verdict};
use super::{Watched, locked, verification};
use crate::flush::{Landing, SliceInfo};
use crate::hot::Writes;
use crate::ledger::FeedStatus;
use crate::limits::{LIVE_LANDINGS_MAX, LIVE_SLICES_MAX, LIVE_TARGETS_MAX, RISING_WINDOW};

/// Everything that is shown. Its lists are bounded.
#[derive(Serialize)]
pub(super) struct Snapshot {
    at: DateTime<Utc>,
    version: &'static str,
    /// The instance that says this.
    instance: String,
    partitions: u16,
    slice_seconds: u64,
    verdict: Verdict,
    /// The newest point of the charts.
    point: Option<Point>,
    /// Operations that MySQL does not have.
    entries: u64,
    slices: Vec<SliceInfo>,
    landings: Vec<Landed>,
    most_liked: Vec<Liked>,
    rising: Vec<Rising>,
    instances: Vec<Told>,
    /// Which instance has the lease just now.
    lease: Option<String>,
    redis: Option<Store>,
    database: Option<Store>,
    /// How long both took to answer, in ms.
    stores_ms: Option<u64>,
    flush: Store,
    quarantine: Option<u64>,
    feed: Option<FeedStatus>,
    compensations: Vec<Compensation>,
    verification: verification::Standing,
}

/// A landing, and whose.
#[derive(Serialize)]
struct Landed {
    instance: String,
    #[serde(flatten)]
    landing: Landing,
}

/// A target that rises, as far as the slices of the last minute tell.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Rising {
    kind: String,
    id: String,
    by: i64,
}

/// An instance, without what is told elsewhere.
#[derive(Serialize)]
struct Told {
    id: String,
    name: String,
    version: String,
    started_at: Option<DateTime<Utc>>,
    per_second: f64,
    silent_ms: u64,
    silent: bool,
    /// When it flushed last, Unix ms.
    flushed_at_ms: Option<u64>,
}

/// Whether something is well.
#[derive(Serialize)]
struct Store {
    ok: bool,
    problem: Option<String>,
}

impl From<Result<(), String>> for Store {
    fn from(health: Result<(), String>) -> Self {
        Self {
            ok: health.is_ok(),
            problem: health.err(),
        }
    }
}

impl Snapshot {
    pub(super) fn of(watched: &Watched) -> Self {
        let now = Utc::now();
        let heard = watched.pulse.heard();
        let standing = watched.jobs.standing();
        let stores = locked(&watched.stores).clone();
        let tables = locked(&watched.tables).clone();
        let verification = watched.verification.standing();
        let (_, flush) = watched.jobs.flush_health();
        let redis = stores.as_ref().map(|stores| match &stores.redis {
            Ok(Writes::Taken) => Ok(()),
            Ok(Writes::Refused(reason)) => Err((*reason).to_owned()),
            Err(error) => Err(error.clone()),
        });
        let database = stores.as_ref().map(|stores| stores.database.clone());
        let verdict = Verdict::of(&Facts {
            now,
            redis: redis.clone(),
            database: database.clone(),
            flush: flush.clone(),
            backlog_full: watched.service.backlog_is_full(),
            tables: &tables,
            verified: verification.verified(),
            instances: &heard,
        });
        let landings = landings(&heard);
        Self {
            at: now,
            version: env!("CARGO_PKG_VERSION"),
            instance: watched.jobs.owner().to_owned(),
            partitions: watched.service.hot().partitions(),
            slice_seconds: watched.slice_seconds,
            verdict,
            point: watched.pulse.last(),
            entries: standing.entries,
            slices: standing
                .slices
                .iter()
                .take(LIVE_SLICES_MAX)
                .cloned()
                .collect(),
            rising: rising(&landings, now),
            landings,
            most_liked: tables.most_liked,
            instances: heard.iter().map(told).collect(),
            lease: stores.as_ref().and_then(|stores| stores.lease.clone()),
            redis: redis.map(Store::from),
            database: database.map(Store::from),
            stores_ms: stores.map(|stores| stores.took.as_millis() as u64),
            flush: Store::from(flush.map_or(Ok(()), Err)),
            quarantine: tables.quarantine,
            feed: tables.feed,
            compensations: tables.compensations,
            verification,
        }
    }
}

fn told(one: &Instance) -> Told {
    let newest = one.says.landings.first();
    Told {
        id: one.id.clone(),
        name: one.says.name.clone(),
        version: one.says.version.clone(),
        started_at: one.says.started_at,
        per_second: one.says.per_second,
        silent_ms: one.silent_ms,
        silent: one.is_silent(),
        flushed_at_ms: newest.map(|landing| landing.finished_at_ms),
    }
}

/// The newest landings of all instances.
fn landings(heard: &Arc<[Instance]>) -> Vec<Landed> {
    let of_one = |one: &Instance| {
        let instance = one.id.clone();
        let landed = |landing: &Landing| Landed {
            instance: instance.clone(),
            landing: landing.clone(),
        };
        one.says.landings.iter().map(landed).collect::<Vec<_>>()
    };
    let mut all: Vec<Landed> = heard.iter().flat_map(of_one).collect();
    all.sort_by_key(|one| std::cmp::Reverse(one.landing.finished_at_ms));
    all.truncate(LIVE_LANDINGS_MAX);
    all
}

/// Sums of what rose most by each slice of the last minute: a target that is never among the first of a slice is missed.
fn rising(landings: &[Landed], now: DateTime<Utc>) -> Vec<Rising> {
    let since = now - RISING_WINDOW;
    let since_ms = u64::try_from(since.timestamp_millis()).unwrap_or(0);
    let mut sums: HashMap<&str, i64> = HashMap::new();
    let newest = landings.iter().map(|one| &one.landing);
    for landing in newest.filter(|one| one.finished_at_ms >= since_ms && one.error.is_none()) {
        for rise in &landing.rises {
            *sums.entry(&rise.target).or_default() += rise.by;
        }
    }
    let mut sums: Vec<(&str, i64)> = sums.into_iter().collect();
    sums.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
    let split = |(target, by): (&str, i64)| {
        let (kind, id) = target.split_once(':')?;
        Some(Rising {
            kind: kind.to_owned(),
            id: id.to_owned(),
            by,
        })
    };
    sums.into_iter()
        .filter_map(split)
        .take(LIVE_TARGETS_MAX)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flush::Rise;

    #[test]
    fn what_rises_is_summed_over_the_slices_of_the_last_minute() {
        let now = Utc::now();
        let landed = |seconds_ago: i64, rises: &[(&str, i64)], error: Option<&str>| Landed {
            instance: "a".into(),
            landing: Landing {
                finished_at_ms: (now.timestamp_millis() - 1000 * seconds_ago) as u64,
                error: error.map(str::to_owned),
                rises: rises
                    .iter()
                    .map(|(target, by)| Rise {
                        target: (*target).to_owned(),
                        by: *by,
                    })
                    .collect(),
                ..Landing::default()
            },
        };
        let landings = [
            landed(1, &[("blog:1", 2), ("blog:2", 1)], None),
            landed(30, &[("blog:2", 4), ("photo:a:b", 3)], None),
            landed(2, &[("blog:1", 90)], Some("failed")),
            landed(61, &[("blog:1", 90)], None),
        ];
        let rising = rising(&landings, now);
        let rising: Vec<_> = rising
            .iter()
            .map(|one| (one.kind.as_str(), one.id.as_str(), one.by))
            .collect();
        assert_eq!(
            rising,
            [("blog", "2", 5), ("photo", "a:b", 3), ("blog", "1", 2)]
        );
    }
}
