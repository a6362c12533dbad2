//! The types of settings that are more than a number: they cannot be invalid.

use std::collections::BTreeMap;
use std::fmt;

use super::{KindLimits, KindVisibility};
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
    /// Where the counts of this kind are copied to.
    pub mirror: Option<Mirror>,
    /// Who may see who likes what of it.
    pub visibility: KindVisibility,
}

/// Longest name of a table or a column.
const NAME_BYTES_MAX: usize = 64;
/// What a name of a table or a column is made of here, so that it can be quoted.
pub(super) const NAME_ALLOWED: &str = "1 to 64 characters of A-Z, a-z, 0-9, '_' and '$'";

/// A column of the site's own that is set to the count of the target whose id stands beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirror {
    schema: Option<String>,
    table: String,
    id_column: String,
    count_column: String,
}

impl Mirror {
    /// Checks the names; the table may be `schema.table` on the same server.
    pub fn parse(table: &str, id_column: &str, count_column: &str) -> Result<Self, String> {
        let (schema, name) = match table.split_once('.') {
            Some((schema, name)) => (Some(schema), name),
            None => (None, table),
        };
        for name in schema.into_iter().chain([name, id_column, count_column]) {
            let right = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$');
            if !(1..=NAME_BYTES_MAX).contains(&name.len()) || !name.bytes().all(right) {
                return Err(format!("{name:?} is not a name of {NAME_ALLOWED}"));
            }
        }
        if id_column.eq_ignore_ascii_case(count_column) {
            return Err(format!("{id_column} cannot be both id and count"));
        }
        Ok(Self {
            schema: schema.map(str::to_owned),
            table: name.to_owned(),
            id_column: id_column.to_owned(),
            count_column: count_column.to_owned(),
        })
    }

    /// Reads `TABLE/ID_COLUMN/COUNT_COLUMN`.
    pub(super) fn parse_text(text: &str) -> Result<Self, String> {
        match text.split('/').collect::<Vec<_>>()[..] {
            [table, id_column, count_column] => Self::parse(table, id_column, count_column),
            _ => Err(format!("{text:?} is not TABLE/ID_COLUMN/COUNT_COLUMN")),
        }
    }

    /// `table` or `schema.table`, as [`Mirror::parse`] reads it.
    pub fn site_table(&self) -> String {
        match &self.schema {
            Some(schema) => format!("{schema}.{}", self.table),
            None => self.table.clone(),
        }
    }

    /// The schema, if it is not thumbd's own.
    pub fn schema(&self) -> Option<&str> {
        self.schema.as_deref()
    }

    /// The table's name.
    pub fn table(&self) -> &str {
        &self.table
    }

    /// The column that holds the ids of targets.
    pub fn id_column(&self) -> &str {
        &self.id_column
    }

    /// The column that is set.
    pub fn count_column(&self) -> &str {
        &self.count_column
    }
}

/// `TABLE/ID_COLUMN/COUNT_COLUMN`, as settings have it.
impl fmt::Display for Mirror {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = self.site_table();
        write!(f, "{table}/{}/{}", self.id_column, self.count_column)
    }
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

    /// Reads a comma list of kinds, each with its mirror and its other settings behind it: `blog:t/id/n,photo+likers=self+…`.
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

    /// The kinds whose counts are copied, each with where to.
    pub fn mirrors(&self) -> impl Iterator<Item = (&Kind, &Mirror)> {
        let all = self.0.iter().flatten();
        all.filter_map(|(kind, settings)| Some((kind, settings.mirror.as_ref()?)))
    }

    /// The limits of each kind that the settings name.
    pub fn limits(&self) -> impl Iterator<Item = (&Kind, KindLimits)> {
        let all = self.0.iter().flatten();
        all.map(|(kind, settings)| (kind, settings.limits))
    }

    /// Who may see who likes what of a kind; of one that the settings do not name it is as if nothing was set.
    pub fn visibility(&self, kind: &str) -> KindVisibility {
        let mut all = self.0.iter().flatten();
        let named = all.find(|(name, _)| name.as_str() == kind);
        named.map_or_else(KindVisibility::default, |(_, settings)| settings.visibility)
    }

    /// The same kinds without limits, for what an operator does.
    pub fn without_limits(mut self) -> Self {
        for settings in self.0.iter_mut().flat_map(BTreeMap::values_mut) {
            settings.limits = KindLimits::default();
        }
        self
    }
}

/// One kind, with its mirror and its other settings if it has any.
fn kind(text: &str) -> Result<(Kind, KindSettings), String> {
    let mut parts = text.trim().split('+');
    let first = parts.next().unwrap_or_default();
    let (name, mirror) = match first.split_once(':') {
        Some((name, mirror)) => (name, Some(Mirror::parse_text(mirror)?)),
        None => (first, None),
    };
    let kind = Kind::parse(name).map_err(|error| error.to_string())?;
    let (seen, limits): (Vec<_>, Vec<_>) = parts.partition(|one| KindVisibility::is_key(one));
    let settings = KindSettings {
        limits: KindLimits::parse(limits.into_iter())?,
        visibility: KindVisibility::parse(seen.into_iter())?,
        mirror,
    };
    Ok((kind, settings))
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

/// Where changes are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FeedTarget {
    /// Nowhere.
    Off,
    /// In a stream in Redis.
    Stream,
    /// To an address, by HTTP.
    Webhook,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}
