//! Whether all is well, in one sentence, or what is wrong and what to do. Rules only: the facts are handed in.

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::pulse::Instance;
use super::tables::{Compensation, Tables};
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
    /// When a verification of this process ended last, and the differences that it found.
    pub(super) verified: Option<(DateTime<Utc>, u64)>,
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
        if let Some(count) = differences(facts).filter(|count| *count > 0) {
            let text = match count {
                1 => "1 difference was found".to_owned(),
                _ => format!("{count} differences were found"),
            };
            add(problem(
                format!("{text} between what is stored and what should be."),
                "Look with thumbd verify, mend with thumbd repair, and verify again.",
                "ThumbdCountsDiffer",
            ));
        }
        if let Some(count) = tables.quarantine.filter(|count| *count > 0) {
            add(problem(
                match count {
                    1 => "1 operation stands in quarantine.".to_owned(),
                    _ => format!("{count} operations stand in quarantine."),
                },
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
        for one in gone(facts) {
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

/// What was found last. A verification looks at all that the compensator looks at; the other way round it is not so.
fn differences(facts: &Facts<'_>) -> Option<u64> {
    let audits = facts.tables.compensations.iter();
    let audited = audits.filter_map(Compensation::audited).next();
    match (facts.verified, audited) {
        (Some((at, found)), Some((audited_at, _))) if at >= audited_at => Some(found),
        (verified, audited) => {
            let count = |found: Option<(DateTime<Utc>, u64)>| found.map(|(_, count)| count);
            count(verified).max(count(audited))
        }
    }
}

/// Instances that are missed. While Redis is away nobody is heard, and one that runs again under its name is not missed.
fn gone<'a>(facts: &'a Facts<'_>) -> impl Iterator<Item = &'a Instance> {
    let all = facts.instances;
    let again = move |gone: &Instance| {
        let mut speaking = all.iter().filter(|one| !one.is_silent());
        speaking.any(|one| one.says.name == gone.says.name)
    };
    let heard = facts.redis.as_ref().is_some_and(Result::is_ok);
    let missed = move |one: &&Instance| heard && one.is_silent() && !again(one);
    all.iter().filter(missed)
}

#[cfg(test)]
mod tests {
    use super::super::pulse::Says;
    use super::*;
    use crate::ledger::FeedStatus;

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

    fn instance(name: &str, silent_ms: u64) -> Instance {
        Instance {
            id: format!("{name} {silent_ms}"),
            silent_ms,
            says: Says {
                name: name.into(),
                ..Says::default()
            },
        }
    }

    #[test]
    fn a_later_verification_clears_what_the_compensator_found_but_not_the_other_way_round() {
        let now = Utc::now();
        let earlier = now - chrono::TimeDelta::hours(1);
        let found = |verified, audited| {
            let tables = Tables {
                compensations: vec![Compensation::found(audited)],
                ..Tables::default()
            };
            differences(&Facts {
                verified: Some(verified),
                ..facts(&tables)
            })
        };
        assert_eq!(found((now, 0), (earlier, 3)), Some(0));
        assert_eq!(found((earlier, 2), (now, 0)), Some(2));
        assert_eq!(found((earlier, 0), (now, 4)), Some(4));
        assert_eq!(differences(&facts(&Tables::default())), None);
    }

    #[test]
    fn one_that_runs_again_is_not_missed_nor_anybody_while_redis_is_away() {
        let tables = Tables::default();
        let instances = [instance("web1:1", 9000), instance("web2:1", 0)];
        let missed = Facts {
            instances: &instances,
            ..facts(&tables)
        };
        assert_eq!(sections(&missed), ["ThumbdInstanceDown"]);
        let away = Facts {
            redis: Some(Err("gone".into())),
            ..missed
        };
        assert_eq!(sections(&away), ["Redis"]);
        let again = [instance("web1:1", 9000), instance("web1:1", 0)];
        let again = Facts {
            instances: &again,
            ..facts(&tables)
        };
        assert_eq!(sections(&again), [""; 0]);
    }

    #[test]
    fn each_thing_that_is_wrong_is_said_the_gravest_first() {
        let silent = instance("web1:7468", 9000);
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
            database: Some(Err("gone".into())),
            flush: Some("the last flush failed".into()),
            backlog_full: true,
            verified: Some((Utc::now(), 1)),
            instances: &[silent],
            ..facts(&tables)
        };
        let want = [
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
            for section in want.into_iter().chain(["Redis"]) {
                assert!(headings.contains(&section), "{section} is no heading");
            }
        }
    }
}
