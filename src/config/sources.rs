//! Where values are looked for: flags, environment, TOML file, files of secrets. They are only collected here, as text; reading them is the fields' work.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgMatches};

use super::field::{Found, Setting, Shape};
use super::{ConfigError, Group, Source, table, toml_file};

/// The flag that names the TOML file.
pub const CONFIG_FLAG: &str = "config";
/// The variable that names the TOML file.
pub const CONFIG_VARIABLE: &str = "THUMBD_CONFIG";

const PREFIX: &str = "THUMBD_";
/// Longest file of a secret: a mistaken path should not be read into memory.
const SECRET_FILE_BYTES_MAX: u64 = 64 * 1024;

/// The environment of a run, handed over by the caller.
#[derive(Debug, Clone, Default)]
pub struct Environment(Vec<(String, OsString)>);

impl Environment {
    /// The environment of this process.
    pub fn of_process() -> Self {
        std::env::vars_os().collect()
    }

    fn text(&self, variable: &str) -> Result<Option<&str>, ConfigError> {
        let Some((_, value)) = self.0.iter().find(|(name, _)| name == variable) else {
            return Ok(None);
        };
        let text = value.to_str().ok_or_else(|| ConfigError::Encoding {
            variable: variable.to_owned(),
        })?;
        Ok(Some(text))
    }
}

impl<N: Into<OsString>, V: Into<OsString>> FromIterator<(N, V)> for Environment {
    /// Keeps what begins with `THUMBD_`.
    fn from_iter<I: IntoIterator<Item = (N, V)>>(variables: I) -> Self {
        let ours = variables.into_iter().filter_map(|(name, value)| {
            let name = name.into().into_string().ok()?;
            name.starts_with(PREFIX).then(|| (name, value.into()))
        });
        Self(ours.collect())
    }
}

/// `THUMBD_UPPER_NAME`.
pub(super) fn variable(setting: &str) -> String {
    format!("{PREFIX}{}", setting.to_ascii_uppercase())
}

/// `kebab-name`.
fn flag(setting: &str) -> String {
    setting.replace('_', "-")
}

/// The flags of all settings of these groups that are no secrets, in the table's order.
pub fn flags(groups: &[Group]) -> Vec<Arg> {
    let wanted = |setting: &&Setting| !setting.secret && groups.contains(&setting.group);
    table()
        .iter()
        .filter(wanted)
        .map(|setting| {
            let default = setting
                .default
                .map(|text| format!("default: {text}; "))
                .unwrap_or_default();
            let value = match setting.shape {
                Shape::Text => "TEXT",
                Shape::Integer => "N",
                Shape::Boolean => "BOOL",
                Shape::Kinds => "LIST",
                Shape::Tables => "JSON",
            };
            Arg::new(setting.name)
                .long(flag(setting.name))
                .value_name(value)
                .allow_hyphen_values(setting.shape == Shape::Integer)
                .help(format!(
                    "{} [{default}allowed: {}; env: {}]",
                    setting.help,
                    setting.allowed,
                    variable(setting.name)
                ))
                .help_heading(setting.group.heading())
        })
        .collect()
}

/// Collects all values. The order of precedence is the order of the calls.
pub(super) fn find(flags: &ArgMatches, environment: &Environment) -> Result<Found, ConfigError> {
    let mut found = Found::default();
    check_names(environment)?;
    for setting in table() {
        if let Some(text) = flag_text(flags, setting.name) {
            let from = Source::Flag(format!("--{}", flag(setting.name)));
            found.0.insert(setting.name, (text.to_owned(), from));
        } else if let Some(value) = environment_value(setting, environment)? {
            found.0.insert(setting.name, value);
        }
    }
    let file = match flag_text(flags, CONFIG_FLAG) {
        Some(path) => Some((path, "--config")),
        None => environment
            .text(CONFIG_VARIABLE)?
            .map(|path| (path, CONFIG_VARIABLE)),
    };
    if let Some((path, named_by)) = file {
        toml_file::add(&mut found, Path::new(path), named_by)?;
    }
    Ok(found)
}

/// The files that hold secrets of this run, each with a setting that it holds.
pub fn secret_files(
    flags: &ArgMatches,
    environment: &Environment,
) -> Result<Vec<(&'static str, PathBuf)>, ConfigError> {
    let found = find(flags, environment)?;
    let secrets = table().iter().filter(|setting| setting.secret);
    let files = secrets.filter_map(|setting| match found.0.get(setting.name) {
        Some((_, Source::File { path, .. } | Source::Toml(path))) => {
            Some((setting.name, path.clone()))
        }
        _ => None,
    });
    let mut files: Vec<_> = files.collect();
    // Of several secrets in one file the first will do.
    files.sort_by(|one, other| one.1.cmp(&other.1));
    files.dedup_by(|one, other| one.1 == other.1);
    Ok(files)
}

/// The value of a flag, or nothing if this command does not have it.
fn flag_text<'a>(flags: &'a ArgMatches, name: &str) -> Option<&'a str> {
    flags
        .try_get_one::<String>(name)
        .ok()
        .flatten()
        .map(String::as_str)
}

fn environment_value(
    setting: &Setting,
    environment: &Environment,
) -> Result<Option<(String, Source)>, ConfigError> {
    let direct = variable(setting.name);
    let file = format!("{direct}_FILE");
    let text = environment.text(&direct)?;
    let path = if setting.secret {
        environment.text(&file)?
    } else {
        None
    };
    match (text, path) {
        (Some(_), Some(_)) => Err(ConfigError::Both {
            first: direct,
            second: file,
        }),
        (Some(text), None) => Ok(Some((text.to_owned(), Source::Environment(direct)))),
        (None, Some(path)) => secret_file(PathBuf::from(path), file).map(Some),
        (None, None) => Ok(None),
    }
}

/// A secret's file without the line end that editors put behind it.
pub(super) fn secret_file(
    path: PathBuf,
    named_by: String,
) -> Result<(String, Source), ConfigError> {
    let text =
        read_bounded(&path, SECRET_FILE_BYTES_MAX).map_err(|source| ConfigError::Unreadable {
            path: path.clone(),
            named_by: named_by.clone(),
            source,
        })?;
    let text = text.strip_suffix('\n').unwrap_or(&text);
    let text = text.strip_suffix('\r').unwrap_or(text).to_owned();
    Ok((text, Source::File { path, named_by }))
}

fn read_bounded(path: &Path, bytes_max: u64) -> std::io::Result<String> {
    use std::io::{Error, ErrorKind, Read};
    let mut text = String::new();
    std::fs::File::open(path)?
        .take(bytes_max + 1)
        .read_to_string(&mut text)?;
    if text.len() as u64 > bytes_max {
        return Err(Error::new(
            ErrorKind::FileTooLarge,
            format!("more than {bytes_max} bytes"),
        ));
    }
    Ok(text)
}

/// Refuses `THUMBD_` variables that are no settings: a misspelt one would silently be a default.
fn check_names(environment: &Environment) -> Result<(), ConfigError> {
    let mut known = vec![CONFIG_VARIABLE.to_owned()];
    for setting in table() {
        known.push(variable(setting.name));
        if setting.secret {
            known.push(format!("{}_FILE", variable(setting.name)));
        }
    }
    for (name, _) in &environment.0 {
        if !known.contains(name) && !is_service_link(name) {
            return Err(ConfigError::Unknown {
                name: name.clone(),
                from: Source::Environment(name.clone()),
                nearest: nearest(name, &known),
            });
        }
    }
    Ok(())
}

/// Kubernetes puts such variables into every container of a namespace that has a Service named thumbd.
fn is_service_link(name: &str) -> bool {
    name.starts_with("THUMBD_SERVICE_HOST")
        || name.starts_with("THUMBD_SERVICE_PORT")
        || name == "THUMBD_PORT"
        || name.starts_with("THUMBD_PORT_")
}

/// The known name that differs by the fewest characters, if these are few.
pub(super) fn nearest(name: &str, known: &[String]) -> Option<String> {
    let (distance, best) = known
        .iter()
        .map(|known| (distance(name, known), known))
        .min()?;
    (distance <= 3 && 2 * distance <= name.len()).then(|| best.clone())
}

/// Levenshtein distance.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[right.len()]
}
