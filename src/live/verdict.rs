//! Whether all is well, in one sentence, or what is wrong and what to do. Rules only: the facts are handed in.

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::pulse::Instance;
use super::tables::Tables;
use crate::ledger::FeedState;
use crate::limits::COMPENSATED_WITHIN;

/// What is known.
pub(super) struct Facts<'a> {
    pub(super) now: DateTime<Utc>,
    /// `None`: not asked yet.
    pub(super) redis: Option<Result<(), String>>,
    pub(super) database: Option<Result<(), String>>,
    /// What is wrong with the flush.
    pub(super) flush: Option<String>,
    pub(super) backlog_full: bool,
    pub(super) tables: &'a Tables,
    /// Differences that the last verification of this process found.
    pub(super) verified: Option<u64>,
    pub(super) instances: &'a [Instance],
}

/// The sentence and its reasons, the gravest first.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Verdict {
    /// Null: not known yet.
    well: Option<bool>,
    problems: Vec<Problem>,
}

/// Something that is wrong.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Problem {
    /// What.
    text: String,
    /// What to do.
    remedy: &'static str,
    /// The section of docs/runbook.md.
    runbook: &'static str,
}

fn problem(text: impl Into<String>, remedy: &'static str, runbook: &'static str) -> Problem {
    Problem {
        text: text.into(),
        remedy,
        runbook,
    }
}

impl Verdict {
    pub(super) fn of(facts: &Facts<'_>) -> Self {
        let mut problems = Vec::new();
        let mut add = |one: Problem| problems.push(one);
        let tables = facts.tables;
        if let Some(Err(reason)) = &facts.redis {
            add(problem(
                format!("Redis does not take likes: {reason}."),
                "Likes get 503 until it does. Bring Redis back; nothing else need be done.",
                "Redis",
            ));
        }
        if let Some(Err(reason)) = &facts.database {
            add(problem(
                format!("The database does not answer: {reason}."),
                "Likes of whoever stands in Redis are accepted and wait there. Bring the database back.",
                "MySQL",
            ));
        }
        if facts.backlog_full {
            add(problem(
                "Too much waits for the database, so likes are refused.",
                "Find out why the flush does not keep up; backlog_entries_max is the limit.",
                "ThumbdFlushStuck",
            ));
        }
        if let Some(reason) = &facts.flush {
            add(problem(
                format!("The flush does not keep up: {reason}."),
                "Nothing is lost; the next run goes on. If this stays, the log has the reason.",
                "ThumbdFlushLate",
            ));
        }
        let of_last_audit = tables
            .compensations
            .first()
            .and_then(|run| run.differences());
        if let Some(count) = of_last_audit.max(facts.verified).filter(|count| *count > 0) {
            add(problem(
                format!(
                    "{count} differences were found between what is stored and what should be."
                ),
                "Look at them with thumbd verify, and mend them with thumbd repair.",
                "ThumbdCountsDiffer",
            ));
        }
        if let Some(count) = tables.quarantine.filter(|count| *count > 0) {
            add(problem(
                format!("{count} operations stand in quarantine."),
                "See why with thumbd quarantine list; then retry or drop them.",
                "ThumbdQuarantine",
            ));
        }
        if tables
            .feed
            .as_ref()
            .is_some_and(|feed| feed.state == FeedState::Stopped)
        {
            add(problem(
                "The change feed is stopped, because too much waited for its reader.",
                "Mend the reader, then let the feed go on with thumbd feed resume; it begins with a gap.",
                "ThumbdFeedStopped",
            ));
        }
        for one in facts.instances.iter().filter(|one| one.is_silent()) {
            add(problem(
                format!(
                    "Instance {} has been silent for {} s.",
                    one.says.name,
                    one.silent_ms / 1000
                ),
                "It died, or cannot reach Redis. The others do its work; start it again.",
                "ThumbdInstanceDown",
            ));
        }
        let overdue = |at: DateTime<Utc>| {
            facts.now - at > chrono::TimeDelta::from_std(COMPENSATED_WITHIN).unwrap_or_default()
        };
        if tables.compensated_at.is_some_and(overdue) {
            add(problem(
                "The compensator has not run for more than 26 hours.",
                "Run it with the button below, and look in the log why its schedule did not.",
                "ThumbdCompensationOverdue",
            ));
        }
        let known = facts.redis.is_some() && facts.database.is_some();
        Self {
            well: (known || !problems.is_empty()).then_some(problems.is_empty()),
            problems,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::pulse::Says;
    use crate::ledger::FeedStatus;
    use super::*;

    fn facts(tables: &Tables) -> Facts<'_> {
        Facts {
            now: Utc::now(),
            redis: Some(Ok(())),
            database: Some(Ok(())),
            flush: None,
            backlog_full: false,
            tables,
            verified: None,
            instances: &[],
        }
    }

    fn sections(facts: &Facts<'_>) -> Vec<&'static str> {
        let verdict = Verdict::of(facts);
        assert_eq!(verdict.well, Some(verdict.problems.is_empty()));
        verdict.problems.iter().map(|one| one.runbook).collect()
    }

    #[test]
    fn all_is_well_only_when_both_stores_have_said_so() {
        let tables = Tables::default();
        assert_eq!(sections(&facts(&tables)), [""; 0]);
        let unknown = Facts {
            redis: None,
            ..facts(&tables)
        };
        assert_eq!(Verdict::of(&unknown).well, None);
    }

    #[test]
    fn each_thing_that_is_wrong_is_said_the_gravest_first() {
        let silent = Instance {
            id: "a".into(),
            silent_ms: 9000,
            says: Says {
                name: "web1:7468".into(),
                ..Says::default()
            },
        };
        let tables = Tables {
            quarantine: Some(2),
            compensated_at: Some(Utc::now() - 2 * COMPENSATED_WITHIN),
            feed: Some(FeedStatus {
                state: FeedState::Stopped,
                stopped_at: None,
                backlog: 9,
                backlog_max: 8,
                age_ms: 0,
                last_id: 9,
            }),
            ..Tables::default()
        };
        let all = Facts {
            redis: Some(Err("redis has no memory left".into())),
            database: Some(Err("gone".into())),
            flush: Some("the last flush failed".into()),
            backlog_full: true,
            verified: Some(1),
            instances: &[silent],
            ..facts(&tables)
        };
        let want = [
            "Redis",
            "MySQL",
            "ThumbdFlushStuck",
            "ThumbdFlushLate",
            "ThumbdCountsDiffer",
            "ThumbdQuarantine",
            "ThumbdFeedStopped",
            "ThumbdInstanceDown",
            "ThumbdCompensationOverdue",
        ];
        assert_eq!(sections(&all), want);
        // They are headings of the runbook, where there is one.
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/runbook.md");
        if let Ok(runbook) = std::fs::read_to_string(path) {
            let headings = runbook.lines().filter(|line| line.starts_with('#'));
            let headings: Vec<_> = headings
                .map(|line| line.trim_start_matches('#').trim())
                .collect();
            for section in want {
                assert!(headings.contains(&section), "{section} is no heading");
            }
        }
    }
}
