//! The types of settings that are more than a number: they cannot be invalid.

use std::collections::BTreeMap;
use std::fmt;

use super::KindLimits;
use crate::domain::Kind;

/// A text that must not be seen: it prints as `[secret]`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Hides a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself; the only way to it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

/// Settings of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KindSettings {
    /// What one user may change of it.
    pub limits: KindLimits,
}

/// Which kinds are accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kinds(Option<BTreeMap<Kind, KindSettings>>);

impl Kinds {
    /// Any well-formed kind.
    pub const fn any() -> Self {
        Self(None)
    }

    /// These kinds and no others.
    pub fn only(kinds: impl IntoIterator<Item = Kind>) -> Self {
        let kinds = kinds.into_iter();
        Self::with(kinds.map(|kind| (kind, KindSettings::default())))
    }

    /// These kinds and no others, each with its settings.
    pub fn with(kinds: impl IntoIterator<Item = (Kind, KindSettings)>) -> Self {
        Self(Some(kinds.into_iter().collect()))
    }

    /// Reads a comma list of kinds, each with its limits behind it: `blog,photo+toggle_cooldown_ms=1000+…`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let kinds: Result<Vec<_>, String> = text.split(',').map(kind).collect();
        kinds
            .map(Self::with)
            .map_err(|problem| format!("{text:?}: {problem}"))
    }

    /// Whether this kind is accepted.
    pub fn allows(&self, kind: &Kind) -> bool {
        self.0.as_ref().is_none_or(|kinds| kinds.contains_key(kind))
    }

    /// The accepted kinds in alphabetical order, if they are a closed list.
    pub fn names(&self) -> Option<impl Iterator<Item = &Kind>> {
        self.0.as_ref().map(BTreeMap::keys)
    }

    /// The limits of each kind that the settings name.
    pub fn limits(&self) -> impl Iterator<Item = (&Kind, KindLimits)> {
        let all = self.0.iter().flatten();
        all.map(|(kind, settings)| (kind, settings.limits))
    }

    /// The same kinds without limits, for what an operator does.
    pub fn without_limits(mut self) -> Self {
        for settings in self.0.iter_mut().flat_map(BTreeMap::values_mut) {
            settings.limits = KindLimits::default();
        }
        self
    }
}

/// One kind, with its limits if it has any.
fn kind(text: &str) -> Result<(Kind, KindSettings), String> {
    let mut parts = text.trim().split('+');
    let kind = Kind::parse(parts.next().unwrap_or_default()).map_err(|error| error.to_string())?;
    let limits = KindLimits::parse(parts)?;
    Ok((kind, KindSettings { limits }))
}

/// A schedule of six fields, as the scheduler takes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cron(String);

impl Cron {
    /// Checks a schedule of six fields, or of five, which runs at second 0.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut fields: Vec<&str> = text.split_whitespace().collect();
        if fields.len() == 5 {
            fields.insert(0, "0");
        }
        if fields.len() != 6 {
            return Err(format!("{text:?} has {} fields", fields.len()));
        }
        let six = fields.join(" ");
        let schedule = schedule(&six).map_err(|error| {
            let reason = error.to_string();
            format!("{text:?} is no schedule: {}", reason.trim_end_matches('.'))
        })?;
        schedule
            .find_next_occurrence(&chrono::DateTime::UNIX_EPOCH, false)
            .map_err(|_| format!("{text:?} never comes"))?;
        Ok(Self(six))
    }

    /// The six fields.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What computes the planned times.
    pub(crate) fn schedule(&self) -> Result<croner::Cron, croner::errors::CronError> {
        schedule(&self.0)
    }
}

fn schedule(six: &str) -> Result<croner::Cron, croner::errors::CronError> {
    let parser = croner::parser::CronParser::builder();
    let parser = parser.seconds(croner::parser::Seconds::Required);
    parser.dom_and_dow(true).build().parse(six)
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}
