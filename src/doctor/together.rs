//! Both stores beside each other: layout, damage, what waits to land, clocks.

use std::time::Duration;

use super::Notes;
use crate::config::Settings;
use crate::flush::{Flusher, SealedLengths};
use crate::hot::{Hot, HotError};
use crate::jobs::lag_max;
use crate::ledger::Ledger;
use crate::limits::DOCTOR_CLOCKS_APART_MAX;
use crate::service::{ServiceError, damage, layout};

/// What helps where a question failed.
const AGAIN: &str = "look at the server that is named, and run this again";

pub(super) async fn check(
    notes: &mut Notes,
    settings: &Settings,
    (hot, redis_ahead_us): (Hot, i64),
    (ledger, database_ahead_us, migrated): (Ledger, i64, bool),
) {
    clocks(notes, redis_ahead_us, database_ahead_us);
    if !migrated {
        return notes.skip(
            "layout",
            "layout and partitions, before all tables are there",
        );
    }
    match stored_layout(notes, settings, &ledger).await {
        Ok(true) => {}
        Ok(false) => return notes.skip("partitions", "partitions under another layout"),
        Err(error) => return notes.failed("layout", error, AGAIN),
    }
    match partitions(notes, &hot, &ledger).await {
        Ok(true) => {}
        Ok(false) => return notes.skip("flush", "what waits to land"),
        Err(error) => return notes.failed("partitions", error, AGAIN),
    }
    if let Err(error) = flush(notes, settings, hot, ledger).await {
        notes.failed("flush", error, AGAIN);
    }
}

fn clocks(notes: &mut Notes, redis_us: i64, database_us: i64) {
    let seconds = |us: i64| us as f64 / 1e6;
    let found = format!(
        "beside this machine's clock Redis's is {:+.3} s, the database's {:+.3} s",
        seconds(redis_us),
        seconds(database_us)
    );
    let all = [redis_us, database_us, redis_us - database_us];
    let apart = all.iter().map(|us| us.unsigned_abs()).max().unwrap_or(0);
    if Duration::from_micros(apart) > DOCTOR_CLOCKS_APART_MAX {
        notes.warn(
            "clocks",
            found,
            "let all three machines follow the same time: timedatectl set-ntp true, or chronyc makestep",
        );
    } else {
        notes.ok("clocks", found);
    }
}

/// Whether everything in the database was written under the layout of the settings, or nothing was yet.
async fn stored_layout(
    notes: &mut Notes,
    settings: &Settings,
    ledger: &Ledger,
) -> anyhow::Result<bool> {
    let wanted = layout(settings);
    let stored = ledger.flush_state().await?.layout;
    let Some(stored) = stored.filter(|stored| *stored != wanted) else {
        notes.ok("layout", wanted.to_string());
        return Ok(true);
    };
    notes.fail(
        "layout",
        format!("the database was written with {stored}, the settings say {wanted}"),
        format!(
            "THUMBD_PARTITIONS={} THUMBD_SLICE_SECONDS={} THUMBD_KEY_PREFIX={}; or, to change it, stop all instances and start one",
            stored.partitions,
            stored.slice_ms / 1000,
            stored.key_prefix
        ),
    );
    Ok(false)
}

/// Whether the partitions in Redis are those of the settings. Damage is no obstacle: it is mended by the next start or flush.
async fn partitions(notes: &mut Notes, hot: &Hot, ledger: &Ledger) -> Result<bool, ServiceError> {
    let first_start = ledger.flush_state().await?.layout.is_none();
    let mut damaged = Vec::new();
    for partition in 0..hot.partitions() {
        let seen = hot.peek(partition).await?;
        if seen.generation.is_some() && !seen.layout.is_empty() && seen.layout != hot.layout() {
            let (found, wanted) = (seen.layout, hot.layout());
            notes.failed(
                "partitions",
                HotError::Layout { found, wanted },
                "set partitions and slice_seconds to those of the database, or another key_prefix",
            );
            return Ok(false);
        }
        if let Some(damage) = damage(hot, ledger, partition).await? {
            damaged.push(format!("{partition} {damage}"));
        }
    }
    let all = hot.partitions();
    if damaged.is_empty() {
        notes.ok("partitions", format!("all {all} agree with the database"));
    } else if first_start {
        notes.ok(
            "partitions",
            "not there yet: serve makes them when it starts",
        );
    } else {
        notes.warn(
            "partitions",
            format!("a store was damaged since: partition {}", damaged.join(", ")),
            "thumbd flush recovers them, and a thumbd serve does so by itself; docs/guarantees.md says what it means",
        );
    }
    Ok(true)
}

async fn flush(
    notes: &mut Notes,
    settings: &Settings,
    hot: Hot,
    ledger: Ledger,
) -> anyhow::Result<()> {
    let landed = ledger.flush_state().await?.landed;
    let now_ms = hot.time_us().await? / 1000;
    let landed = match landed.0 {
        0 => "nothing has landed yet".to_owned(),
        id => format!(
            "the newest slice that landed began {} s ago",
            now_ms.saturating_sub(id) / 1000
        ),
    };
    let flusher = Flusher::new(hot, ledger, settings);
    let standing = flusher.standing(&mut SealedLengths::default()).await?;
    let found = format!(
        "{} entries wait, the oldest for {} s; {landed}",
        standing.entries,
        standing.lag_ms / 1000
    );
    if Duration::from_millis(standing.lag_ms) > lag_max(settings) {
        notes.warn(
            "flush",
            found,
            "start a thumbd serve, or see in the log of the one that runs why it does not flush; thumbd flush does it by hand",
        );
    } else if standing.entries > settings.backlog_entries_max {
        notes.fail(
            "flush",
            format!("{found}: more than backlog_entries_max, so likes are refused"),
            "thumbd flush",
        );
    } else {
        notes.ok("flush", found);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::{Beat, Status};

    #[tokio::test]
    async fn clocks_that_differ_are_told() {
        for (redis, database, status) in [
            (0, 0, Status::Ok),
            (900_000, 0, Status::Ok),
            (0, 2_000_000, Status::Warning),
            (-2_000_000, -2_000_000, Status::Warning),
            (700_000, -700_000, Status::Warning),
        ] {
            let mut notes = Notes::default();
            clocks(&mut notes, redis, database);
            assert_eq!(notes.checks[0].status, status, "{redis} {database}");
        }
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let ahead = now.unwrap().as_micros() as u64 + 10_000_000;
        let beat = Beat::take(async || Ok::<_, ()>(ahead)).await.unwrap();
        assert!(
            (5_000_000..=10_000_000).contains(&beat.ahead_us),
            "{}",
            beat.ahead_us
        );
    }
}
