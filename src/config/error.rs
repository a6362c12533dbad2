//! What can be wrong with a configuration. The texts are written for the operator; none holds a secret.

use std::fmt;
use std::path::PathBuf;

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A flag, with its dashes.
    Flag(String),
    /// An environment variable.
    Environment(String),
    /// The TOML file.
    Toml(PathBuf),
    /// A file of its own, named by a variable or a TOML key.
    File {
        /// The file.
        path: PathBuf,
        /// The variable or key that names it.
        named_by: String,
    },
    /// The default.
    Default,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => write!(f, "flag {flag}"),
            Self::Environment(variable) => write!(f, "variable {variable}"),
            Self::Toml(path) => write!(f, "file {}", path.display()),
            Self::File { path, named_by } => {
                write!(f, "file {}, named by {named_by}", path.display())
            }
            Self::Default => f.write_str("default"),
        }
    }
}

/// Why there are no settings.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A value that its setting does not allow.
    #[error("{setting} ({from}): {problem}; allowed: {allowed}")]
    Value {
        /// The setting.
        setting: &'static str,
        /// Where the value came from.
        from: Source,
        /// What is wrong with it.
        problem: String,
        /// What would be right.
        allowed: String,
    },
    /// A setting that the command cannot go without.
    #[error("{setting} is not set: give {variable}, {variable}_FILE, or {setting} in the file named by --config", variable = super::sources::variable(setting))]
    Missing {
        /// The setting.
        setting: &'static str,
    },
    /// A setting that the value of another one cannot go without.
    #[error("{setting} is not set, and {by} needs it: give {variable}, {variable}_FILE, or {setting} in the file named by --config", variable = super::sources::variable(setting))]
    Needed {
        /// The setting.
        setting: &'static str,
        /// The other one with its value.
        by: &'static str,
    },
    /// Two values that do not go together.
    #[error("{left} must be {relation} {right}: {why}")]
    Relation {
        /// The first setting with value and source.
        left: String,
        /// What should hold.
        relation: &'static str,
        /// The second setting with value and source.
        right: String,
        /// The reason.
        why: &'static str,
        /// Whether one of them is a flag.
        flagged: bool,
    },
    /// A secret given directly and as a file, in the same place.
    #[error("{first} and {second} are both set: leave one of them out")]
    Both {
        /// The direct one.
        first: String,
        /// The file.
        second: String,
    },
    /// A name that belongs to no setting.
    #[error("{name} ({from}) is no setting of thumbd{}", nearest.as_ref().map(|known| format!(": did you mean {known}?")).unwrap_or_default())]
    Unknown {
        /// The name.
        name: String,
        /// Where it stands.
        from: Source,
        /// A known name that is spelt almost like it.
        nearest: Option<String>,
    },
    /// A variable or flag that is not UTF-8.
    #[error("variable {variable} is not valid UTF-8")]
    Encoding {
        /// The variable.
        variable: String,
    },
    /// A file that cannot be read.
    #[error("{path} (named by {named_by}) cannot be read", path = path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The flag, variable or key that names it.
        named_by: String,
        /// The reason.
        #[source]
        source: std::io::Error,
    },
    /// A file that is not TOML.
    #[error("{path}, line {line}: not valid TOML: {problem}", path = path.display())]
    Toml {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The parser's words, without the line's text, which may hold a secret.
        problem: String,
    },
}

impl ConfigError {
    /// Whether the command line itself is wrong, which has an exit code of its own.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Value { from, .. } => matches!(from, Source::Flag(_)),
            Self::Relation { flagged, .. } => *flagged,
            Self::Missing { .. }
            | Self::Needed { .. }
            | Self::Both { .. }
            | Self::Unknown { .. }
            | Self::Encoding { .. }
            | Self::Unreadable { .. }
            | Self::Toml { .. } => false,
        }
    }
}
