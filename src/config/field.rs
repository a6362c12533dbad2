//! One setting: what it allows, its default, and how its text is read. Values arrive as text from wherever they were found.

use std::collections::HashMap;

use super::{ConfigError, Group, Source};

/// What a TOML file must hold for a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// A string.
    Text,
    /// An integer.
    Integer,
    /// `true` or `false`.
    Boolean,
    /// A table of tables, by kind.
    Kinds,
    /// An array of tables; its text is JSON.
    Tables,
}

type Read<T> = Box<dyn Fn(&str) -> Result<T, String>>;

/// How texts become a `T`.
pub(super) struct Rule<T> {
    pub(super) shape: Shape,
    pub(super) secret: bool,
    pub(super) allowed: String,
    pub(super) parse: Read<T>,
}

impl<T: 'static> Rule<T> {
    /// A setting that always has a value.
    pub(super) fn default(self, text: &'static str) -> Field<T> {
        Field {
            default: Some(text),
            absent: None,
            ..self.field()
        }
    }

    /// A setting whose absence is a value of its own.
    pub(super) fn absent(self, value: T) -> Field<T> {
        Field {
            absent: Some(value),
            ..self.field()
        }
    }

    /// A setting that may have no value.
    pub(super) fn optional(self) -> Field<Option<T>> {
        let parse = self.parse;
        Rule {
            shape: self.shape,
            secret: self.secret,
            allowed: self.allowed,
            parse: Box::new(move |text| parse(text).map(Some)),
        }
        .absent(None)
    }

    fn field(self) -> Field<T> {
        Field {
            rule: self,
            default: None,
            absent: None,
            example: None,
        }
    }
}

/// A rule with what holds when nothing is given.
pub(super) struct Field<T> {
    rule: Rule<T>,
    default: Option<&'static str>,
    absent: Option<T>,
    example: Option<&'static str>,
}

impl<T> Field<T> {
    /// What the example file shows, where there is no default.
    pub(super) fn example(self, text: &'static str) -> Self {
        Self {
            example: Some(text),
            ..self
        }
    }

    /// The value of the setting `name`.
    pub(super) fn read(self, name: &'static str, found: &Found) -> Result<T, ConfigError> {
        let (text, from) = match (found.0.get(name), self.default, self.absent) {
            (Some((text, from)), ..) => (text.as_str(), from.clone()),
            (None, Some(default), _) => (default, Source::Default),
            (None, None, Some(value)) => return Ok(value),
            (None, None, None) => return Err(ConfigError::Missing { setting: name }),
        };
        (self.rule.parse)(text).map_err(|problem| ConfigError::Value {
            setting: name,
            from,
            problem,
            allowed: self.rule.allowed,
        })
    }
}

/// What is known of a setting without its value.
#[derive(Debug)]
pub struct Setting {
    /// Its name, which is its TOML key.
    pub name: &'static str,
    /// What it belongs to.
    pub group: Group,
    /// One line: what it is, its unit, why one would change it.
    pub help: &'static str,
    /// What it allows, in words.
    pub allowed: String,
    /// Its default, as text.
    pub default: Option<&'static str>,
    /// What the example file shows where there is no default.
    pub example: Option<&'static str>,
    /// Whether it must not be seen; then there is no flag, but a `_FILE` variable.
    pub secret: bool,
    pub(super) shape: Shape,
}

impl Setting {
    /// Its environment variable.
    pub fn variable(&self) -> String {
        super::sources::variable(self.name)
    }

    pub(super) fn new<T>(
        name: &'static str,
        group: Group,
        help: &'static str,
        field: &Field<T>,
    ) -> Self {
        Self {
            name,
            group,
            help: help.trim(),
            allowed: field.rule.allowed.clone(),
            default: field.default,
            example: field.example,
            secret: field.rule.secret,
            shape: field.rule.shape,
        }
    }
}

/// The texts that were found, by setting, with their source.
#[derive(Debug, Default)]
pub(super) struct Found(pub(super) HashMap<&'static str, (String, Source)>);

impl Found {
    pub(super) fn is_flag(&self, name: &str) -> bool {
        matches!(self.0.get(name), Some((_, Source::Flag(_))))
    }

    /// `name = value (source)`.
    pub(super) fn described(&self, name: &str, value: u64) -> String {
        let from = self.0.get(name).map_or(&Source::Default, |(_, from)| from);
        format!("{name} = {value} ({from})")
    }
}
