//! The check of a configuration against its servers: what is as it should be, what is not, and what to type then.
//!
//! It only reads, and every wait is bounded. Where a start refuses something, it asks the same function.

mod database;
mod redis;
mod settings;
mod together;

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::config::{ConfigError, Settings};
use crate::limits::{DOCTOR_PART_MAX, DOCTOR_PINGS};
use crate::telemetry::one_line;

/// What is said of one thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It is as it should be.
    Ok,
    /// thumbd works, and something is worse than it could be.
    Warning,
    /// thumbd does not start, does not work, or may lose likes.
    Failure,
    /// It could not be looked at because of something that failed before.
    Skipped,
}

/// What a check is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// The settings and this machine.
    Settings,
    /// Redis.
    Redis,
    /// MySQL or MariaDB.
    Database,
    /// Both stores beside each other.
    Both,
}

impl Part {
    /// Its name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Settings => "settings",
            Self::Redis => "redis",
            Self::Database => "database",
            Self::Both => "both",
        }
    }
}

impl Status {
    /// Its name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Failure => "failure",
            Self::Skipped => "skipped",
        }
    }
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What it is about.
    pub part: Part,
    /// Its name, which stays the same from release to release.
    pub name: &'static str,
    /// How it is.
    pub status: Status,
    /// What was found.
    pub found: String,
    /// What to do, where something is to be done.
    pub fix: Option<String>,
}

/// All that was looked at, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// The checks.
    pub checks: Vec<Check>,
}

impl Report {
    /// How many have this status.
    pub fn count(&self, status: Status) -> usize {
        let checks = self.checks.iter();
        checks.filter(|check| check.status == status).count()
    }
}

/// What is to be looked at.
#[derive(Debug)]
pub struct Subject {
    /// The settings, or why there are none.
    pub settings: Result<Settings, ConfigError>,
    /// Files with secrets, each with a setting that it holds.
    pub secret_files: Vec<(&'static str, PathBuf)>,
    /// How many processes are to run.
    pub instances: u32,
}

/// Looks at everything.
pub async fn run(subject: &Subject) -> Report {
    let mut notes = Notes::default();
    settings::check(&mut notes, subject);
    let Ok(settings) = &subject.settings else {
        notes.part = Part::Both;
        notes.skip(
            "servers",
            "the servers: there are no settings to reach them by",
        );
        return Report {
            checks: notes.checks,
        };
    };
    notes.part = Part::Redis;
    let hot = bounded(&mut notes, async |notes| {
        redis::check(notes, settings).await
    })
    .await;
    notes.part = Part::Database;
    let instances = subject.instances;
    let ledger = bounded(&mut notes, async |notes| {
        database::check(notes, settings, instances).await
    });
    let ledger = ledger.await;
    notes.part = Part::Both;
    match (hot, ledger) {
        (Some(hot), Some(ledger)) => {
            bounded(&mut notes, async |notes| {
                together::check(notes, settings, hot, ledger).await;
                Some(())
            })
            .await;
        }
        _ => notes.skip("stores", "both stores beside each other"),
    }
    Report {
        checks: notes.checks,
    }
}

/// Looks at a part, for no longer than it may take. What was noted until then stays.
async fn bounded<T>(
    notes: &mut Notes,
    look: impl AsyncFnOnce(&mut Notes) -> Option<T>,
) -> Option<T> {
    if let Ok(found) = tokio::time::timeout(DOCTOR_PART_MAX, look(notes)).await {
        return found;
    }
    notes.fail(
        "time",
        format!("not done within {DOCTOR_PART_MAX:?}"),
        "look at the server and at the network to it, and run this again",
    );
    None
}

/// Writes down what was found.
struct Notes {
    part: Part,
    /// Which of several servers is looked at; empty where there is one.
    about: String,
    checks: Vec<Check>,
}

impl Default for Notes {
    fn default() -> Self {
        Self {
            part: Part::Settings,
            about: String::new(),
            checks: Vec::new(),
        }
    }
}

impl Notes {
    /// What follows is about this server of several.
    fn about(&mut self, server: &str) {
        server.clone_into(&mut self.about);
    }

    fn note(&mut self, name: &'static str, status: Status, found: String, fix: Option<String>) {
        let found = match &*self.about {
            "" => found,
            server => format!("{server}: {found}"),
        };
        self.checks.push(Check {
            part: self.part,
            name,
            status,
            found,
            fix,
        });
    }

    fn ok(&mut self, name: &'static str, found: impl Into<String>) {
        self.note(name, Status::Ok, found.into(), None);
    }

    fn warn(&mut self, name: &'static str, found: impl Into<String>, fix: impl Into<String>) {
        self.note(name, Status::Warning, found.into(), Some(fix.into()));
    }

    fn fail(&mut self, name: &'static str, found: impl Into<String>, fix: impl Into<String>) {
        self.note(name, Status::Failure, found.into(), Some(fix.into()));
    }

    fn skip(&mut self, name: &'static str, what: &str) {
        let found = format!("not looked at: {what}");
        self.note(name, Status::Skipped, found, None);
    }

    /// What failed because a server said no, or nothing.
    fn failed(&mut self, name: &'static str, error: impl Into<anyhow::Error>, fix: &str) {
        self.fail(name, one_line(error.into().as_ref()), fix);
    }
}

/// How long a server takes to answer, and how its clock goes.
struct Beat {
    median: Duration,
    max: Duration,
    /// By how many µs the server's clock is ahead of this machine's.
    ahead_us: i64,
}

impl Beat {
    /// Asks a server for its time in µs some times. Its clock is that of the fastest answer, halfway between question and answer.
    async fn take<E>(mut ask: impl AsyncFnMut() -> Result<u64, E>) -> Result<Self, E> {
        let mut answers = Vec::with_capacity(DOCTOR_PINGS);
        for _ in 0..DOCTOR_PINGS {
            let here = SystemTime::now().duration_since(UNIX_EPOCH);
            let begun = Instant::now();
            let there = ask().await?;
            let took = begun.elapsed();
            let halfway = here.unwrap_or_default() + took / 2;
            answers.push((took, there as i64 - halfway.as_micros() as i64));
        }
        answers.sort_unstable();
        Ok(Self {
            median: answers[answers.len() / 2].0,
            max: answers[answers.len() - 1].0,
            ahead_us: answers[0].1,
        })
    }

    fn note(&self, notes: &mut Notes, slow: Duration) {
        let found = format!(
            "{DOCTOR_PINGS} answers: {} in the median, {} at most",
            millis(self.median),
            millis(self.max)
        );
        if self.median > slow {
            notes.warn(
                "latency",
                found,
                format!(
                    "bring thumbd and the server closer together: {} in the median would be normal",
                    millis(slow)
                ),
            );
        } else {
            notes.ok("latency", found);
        }
    }
}

fn millis(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1000.0)
}
