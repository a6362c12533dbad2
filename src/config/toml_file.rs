//! The TOML file as a source: its keys, its types, and the files of secrets that it names.

use std::path::Path;

use super::field::{Found, Setting, Shape};
use super::sources::{nearest, secret_file};
use super::values::{Mirror, NAME_ALLOWED};
use super::{ConfigError, KindLimits, KindVisibility, Source, table};

/// Adds what the file holds and nothing before it has given.
pub(super) fn add(found: &mut Found, path: &Path, named_by: &str) -> Result<(), ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Unreadable {
        path: path.to_owned(),
        named_by: named_by.to_owned(),
        source,
    })?;
    let file: toml::Table = text
        .parse()
        .map_err(|error: toml::de::Error| ConfigError::Toml {
            path: path.to_owned(),
            line: 1 + error.span().map_or(0, |span| {
                text[..span.start.min(text.len())].matches('\n').count()
            }),
            problem: error.message().to_owned(),
        })?;
    let mut known = Vec::new();
    for setting in table() {
        known.push(setting.name.to_owned());
        if setting.secret {
            known.push(format!("{}_file", setting.name));
        }
    }
    for key in file.keys() {
        if !known.contains(key) {
            return Err(unknown_key(key.clone(), path, &known));
        }
    }
    for setting in table() {
        if let Some(value) = toml_setting(setting, &file, path)? {
            found.0.entry(setting.name).or_insert(value);
        }
    }
    Ok(())
}

fn unknown_key(name: String, path: &Path, known: &[String]) -> ConfigError {
    ConfigError::Unknown {
        nearest: nearest(&name, known),
        name,
        from: Source::Toml(path.to_owned()),
    }
}

fn toml_setting(
    setting: &Setting,
    file: &toml::Table,
    path: &Path,
) -> Result<Option<(String, Source)>, ConfigError> {
    let file_key = format!("{}_file", setting.name);
    let secret_path = if setting.secret {
        file.get(&file_key)
    } else {
        None
    };
    let from = Source::Toml(path.to_owned());
    match (file.get(setting.name), secret_path) {
        (Some(_), Some(_)) => Err(ConfigError::Both {
            first: setting.name.to_owned(),
            second: file_key,
        }),
        (Some(value), None) => {
            let text = toml_text(setting, value, path)?;
            Ok(Some((text, from)))
        }
        (None, Some(toml::Value::String(named))) => {
            // Relative to the file that names it, so that the pair can be moved.
            let secret_path = path.parent().unwrap_or(Path::new("")).join(named);
            secret_file(secret_path, file_key).map(Some)
        }
        (None, Some(_)) => Err(ConfigError::Value {
            setting: setting.name,
            from,
            problem: format!("{file_key} is not a string"),
            allowed: "the path of a file".to_owned(),
        }),
        (None, None) => Ok(None),
    }
}

/// The text of a TOML value, if it has the type that the setting asks for.
fn toml_text(setting: &Setting, value: &toml::Value, path: &Path) -> Result<String, ConfigError> {
    use toml::Value;
    match (setting.shape, value) {
        (Shape::Text, Value::String(text)) => Ok(text.clone()),
        (Shape::Integer, Value::Integer(number)) => Ok(number.to_string()),
        (Shape::Boolean, Value::Boolean(flag)) => Ok(flag.to_string()),
        (Shape::Kinds, Value::Table(kinds)) => kinds_text(kinds, path),
        (Shape::Tables, Value::Array(tables)) => {
            serde_json::to_string(tables).map_err(|error| ConfigError::Value {
                setting: setting.name,
                from: Source::Toml(path.to_owned()),
                problem: error.to_string(),
                allowed: setting.allowed.clone(),
            })
        }
        (shape, other) => {
            let wanted = match shape {
                Shape::Text => "a string",
                Shape::Integer => "an integer",
                Shape::Boolean => "a boolean",
                Shape::Kinds => "tables [kinds.NAME]",
                Shape::Tables => "an array of tables",
            };
            Err(ConfigError::Value {
                setting: setting.name,
                from: Source::Toml(path.to_owned()),
                problem: format!(
                    "the file has a value of type {}, not {wanted}",
                    other.type_str()
                ),
                allowed: setting.allowed.clone(),
            })
        }
    }
}

/// Keys of a table `[kinds.NAME]` that make a mirror.
const MIRROR_KEYS: [&str; 3] = ["mirror_table", "mirror_id_column", "mirror_count_column"];

/// `[kinds.blog]` and `[kinds.photo]` as `blog,photo`; a mirror follows behind a colon, each other setting behind a plus.
fn kinds_text(kinds: &toml::Table, path: &Path) -> Result<String, ConfigError> {
    let mut texts = Vec::with_capacity(kinds.len());
    for (kind, settings) in kinds {
        let toml::Value::Table(settings) = settings else {
            return Err(unknown_key(format!("kinds.{kind}"), path, &[]));
        };
        let known = MIRROR_KEYS.into_iter().chain(KindLimits::keys());
        let known = known.chain(KindVisibility::KEYS);
        let known = known.map(|key| format!("kinds.{kind}.{key}"));
        let known: Vec<String> = known.collect();
        for key in settings.keys() {
            let key = format!("kinds.{kind}.{key}");
            if !known.contains(&key) {
                return Err(unknown_key(key, path, &known));
            }
        }
        let value = |problem, allowed| ConfigError::Value {
            setting: "kinds",
            from: Source::Toml(path.to_owned()),
            problem,
            allowed,
        };
        let mirror = mirror_text(kind, settings).map_err(|problem| {
            let keys = MIRROR_KEYS.join(", ");
            value(
                problem,
                format!("all of {keys} or none, each {NAME_ALLOWED}"),
            )
        })?;
        let limits =
            limits_text(kind, settings).map_err(|problem| value(problem, KindLimits::allowed()))?;
        let seen = visibility_text(kind, settings);
        let seen = seen.map_err(|problem| value(problem, KindVisibility::ALLOWED.to_owned()))?;
        texts.push(format!("{kind}{mirror}{limits}{seen}"));
    }
    Ok(texts.join(","))
}

fn limits_text(kind: &str, settings: &toml::Table) -> Result<String, String> {
    let mut text = String::new();
    for key in KindLimits::keys() {
        match settings.get(key) {
            Some(toml::Value::Integer(number)) => text += &format!("+{key}={number}"),
            Some(_) => return Err(format!("kinds.{kind}.{key} is not an integer")),
            None => {}
        }
    }
    Ok(text)
}

fn visibility_text(kind: &str, settings: &toml::Table) -> Result<String, String> {
    let mut text = String::new();
    for key in KindVisibility::KEYS {
        match settings.get(key) {
            // What would end the setting is no value of it either.
            Some(toml::Value::String(value)) if !value.contains([',', '+']) => {
                text += &format!("+{key}={value}");
            }
            Some(toml::Value::String(value)) => {
                return Err(format!(
                    "kinds.{kind}.{key} is {value:?}, not public, service or self"
                ));
            }
            Some(_) => return Err(format!("kinds.{kind}.{key} is not a string")),
            None => {}
        }
    }
    Ok(text)
}

fn mirror_text(kind: &str, settings: &toml::Table) -> Result<String, String> {
    if !MIRROR_KEYS.iter().any(|key| settings.contains_key(*key)) {
        return Ok(String::new());
    }
    let text = |key: &str| match settings.get(key) {
        Some(toml::Value::String(text)) => Ok(text.as_str()),
        Some(_) => Err(format!("kinds.{kind}.{key} is not a string")),
        None => Err(format!("kinds.{kind}.{key} is missing")),
    };
    let [table, id_column, count_column] = MIRROR_KEYS.map(text);
    let mirror = Mirror::parse(table?, id_column?, count_column?);
    mirror
        .map(|mirror| format!(":{mirror}"))
        .map_err(|problem| format!("kinds.{kind}: {problem}"))
}
