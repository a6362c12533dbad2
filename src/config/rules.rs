//! What each kind of setting allows, and how it is read.

use std::fmt::Display;
use std::net::SocketAddr;
use std::str::FromStr;

use tracing_subscriber::EnvFilter;

use super::field::{Rule, Shape};
use super::values::{Cron, FeedTarget, Kinds, LogFormat, Secret};
use super::{KindLimits, KindVisibility};
use crate::auth::{NamedKey, TokenKeys};

/// A rule of its parts.
pub(super) fn rule<T>(
    shape: Shape,
    allowed: impl Into<String>,
    parse: impl Fn(&str) -> Result<T, String> + 'static,
) -> Rule<T> {
    Rule {
        shape,
        secret: false,
        allowed: allowed.into(),
        parse: Box::new(parse),
    }
}

/// A whole number within bounds.
pub(super) fn range<T>(min: T, max: T) -> Rule<T>
where
    T: Copy + Display + FromStr + PartialOrd + 'static,
{
    rule(
        Shape::Integer,
        format!("{min} to {max}"),
        move |text| match text.parse::<T>() {
            Ok(number) if number < min => Err(format!("{text} is too small")),
            Ok(number) if number > max => Err(format!("{text} is too large")),
            Ok(number) => Ok(number),
            Err(_) if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) => {
                Err(format!("{text} is too large"))
            }
            Err(_) => Err(format!("{text:?} is not a whole number")),
        },
    )
}

pub(super) fn boolean() -> Rule<bool> {
    rule(Shape::Boolean, "true or false", |text| {
        text.parse()
            .map_err(|_| format!("{text:?} is neither true nor false"))
    })
}

pub(super) fn address() -> Rule<SocketAddr> {
    rule(
        Shape::Text,
        "an IP address and a port, such as 127.0.0.1:7468 or [::]:7468",
        |text| {
            let text = text
                .strip_prefix("localhost:")
                .map_or(text.into(), |port| format!("127.0.0.1:{port}"));
            text.parse()
                .map_err(|_| format!("{text:?} is not an address"))
        },
    )
}

/// A secret that fits into an HTTP header.
pub(super) fn secret(bytes_min: usize, bytes_max: usize) -> Rule<Secret> {
    let allowed = format!("{bytes_min} to {bytes_max} printable ASCII characters without spaces");
    let parse = move |text: &str| {
        if text.len() < bytes_min {
            Err(format!("has {} bytes, too few", text.len()))
        } else if text.len() > bytes_max {
            Err(format!("has {} bytes, too many", text.len()))
        } else if let Some(position) = text.bytes().position(|byte| !byte.is_ascii_graphic()) {
            Err(format!(
                "byte {position} is not printable ASCII, or is a space"
            ))
        } else {
            Ok(Secret::new(text))
        }
    };
    Rule {
        secret: true,
        ..rule(Shape::Text, allowed, parse)
    }
}

/// The address of Redis.
pub(super) fn redis_url() -> Rule<Secret> {
    let schemes = url(&[
        "redis",
        "rediss",
        "redis+cluster",
        "rediss+cluster",
        "redis+sentinel",
        "rediss+sentinel",
        "valkey",
        "valkeys",
        "unix",
        "redis+unix",
        "valkey+unix",
    ]);
    checked(schemes, crate::hot::check_url)
}

/// The address of MySQL or MariaDB.
pub(super) fn database_url() -> Rule<Secret> {
    checked(url(&["mysql", "mariadb"]), |text| {
        crate::ledger::check_url(text).map_err(str::to_owned)
    })
}

/// The same URL, which whoever connects to it can read too.
fn checked(url: Rule<Secret>, check: fn(&str) -> Result<(), String>) -> Rule<Secret> {
    Rule {
        secret: true,
        ..rule(url.shape, url.allowed, move |text| {
            let found = (url.parse)(text)?;
            check(text)?;
            Ok(found)
        })
    }
}

/// A URL that may hold a password; only its scheme is looked at here.
pub(super) fn url(schemes: &'static [&'static str]) -> Rule<Secret> {
    let allowed = format!(
        "a URL that begins with {}",
        schemes
            .iter()
            .map(|scheme| format!("{scheme}://"))
            .collect::<Vec<_>>()
            .join(", ")
    );
    let parse = move |text: &str| match text.split_once("://") {
        _ if text
            .chars()
            .any(|char| char.is_whitespace() || char.is_control()) =>
        {
            Err("holds white space or control characters".to_owned())
        }
        Some((scheme, rest)) if schemes.contains(&scheme) && !rest.is_empty() => {
            Ok(Secret::new(text))
        }
        Some((scheme, _)) if schemes.contains(&scheme) => {
            Err(format!("nothing follows {scheme}://"))
        }
        // What stands before "://" is not repeated: it may be a password put in the wrong place.
        Some(_) => Err("begins with another scheme".to_owned()),
        None => Err("is not a URL".to_owned()),
    };
    Rule {
        secret: true,
        ..rule(Shape::Text, allowed, parse)
    }
}

/// A short text without spaces at its ends.
pub(super) fn text(bytes_max: usize) -> Rule<String> {
    let allowed = format!("1 to {bytes_max} bytes");
    rule(Shape::Text, allowed, move |text| {
        if text.is_empty() || text.len() > bytes_max || text.trim() != text {
            return Err(format!("has {} bytes, or a space at an end", text.len()));
        }
        Ok(text.to_owned())
    })
}

pub(super) fn named_keys() -> Rule<Vec<NamedKey>> {
    let allowed =
        "tables [[keys]] with name, sha256, rights (read, write, admin) and kinds; elsewhere JSON";
    Rule {
        // The digests are no secrets; but nobody wants this as a flag, and a file of its own is handy.
        secret: true,
        ..rule(Shape::Tables, allowed, NamedKey::parse_list)
    }
}

pub(super) fn jwt_secret() -> Rule<TokenKeys> {
    Rule {
        secret: true,
        ..rule(Shape::Text, "32 bytes or more", TokenKeys::secret)
    }
}

pub(super) fn jwt_keys() -> Rule<TokenKeys> {
    let allowed = "a JWK set in JSON, or a public key in PEM; best as a file of its own";
    Rule {
        secret: true,
        ..rule(Shape::Text, allowed, TokenKeys::parse)
    }
}

pub(super) fn kinds() -> Rule<Kinds> {
    rule(
        Shape::Kinds,
        format!(
            "a comma list of kinds [a-z][a-z0-9_-]{{0,31}}, each alone or with :TABLE/ID_COLUMN/COUNT_COLUMN behind it if its counts are copied to a column of your own, and with further settings as +NAME=VALUE+…; in TOML a table [kinds.NAME] for each, empty or with mirror_table, mirror_id_column and mirror_count_column, or {}, or {}",
            KindLimits::allowed(),
            KindVisibility::ALLOWED
        ),
        Kinds::parse,
    )
}

pub(super) fn key_prefix() -> Rule<String> {
    rule(
        Shape::Text,
        "1 to 32 characters of a-z, 0-9, '_' and '-'",
        |text| {
            let right = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-');
            if (1..=32).contains(&text.len()) && text.bytes().all(right) {
                Ok(text.to_owned())
            } else {
                Err(format!("{text:?} is not a prefix"))
            }
        },
    )
}

pub(super) fn cron() -> Rule<Cron> {
    rule(
        Shape::Text,
        "six fields such as \"0 0 2 * * *\", or five, which run at second 0",
        Cron::parse,
    )
}

pub(super) fn time_zone() -> Rule<chrono_tz::Tz> {
    rule(
        Shape::Text,
        "an IANA time zone such as UTC or Europe/Berlin",
        |text| {
            text.parse()
                .map_err(|_| format!("{text:?} is not a known time zone"))
        },
    )
}

pub(super) fn log_filter() -> Rule<String> {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    rule(
        Shape::Text,
        "off, error, warn, info, debug or trace, or a comma list of these and target=level",
        |text| {
            if text.trim().is_empty() {
                return Err("is empty".to_owned());
            }
            // A bare word that is no level would name a target: a misspelt level would silence everything else.
            let word = text.split(',').map(str::trim).find(|part| {
                !part.contains(['=', ':', '['])
                    && !LEVELS.contains(&part.to_ascii_lowercase().as_str())
            });
            if let Some(word) = word {
                return Err(format!(
                    "{word:?} is not a level (for a target write {word}=debug)"
                ));
            }
            EnvFilter::builder()
                .parse(text)
                .map_err(|error| format!("{text:?}: {error}"))?;
            Ok(text.to_owned())
        },
    )
}

pub(super) fn feed() -> Rule<FeedTarget> {
    rule(Shape::Text, "off, stream or webhook", |text| match text {
        "off" => Ok(FeedTarget::Off),
        "stream" => Ok(FeedTarget::Stream),
        "webhook" => Ok(FeedTarget::Webhook),
        _ => Err(format!("{text:?} is no target of the feed")),
    })
}

pub(super) fn log_format() -> Rule<LogFormat> {
    rule(Shape::Text, "text or json", |text| match text {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err(format!("{text:?} is not a format")),
    })
}
