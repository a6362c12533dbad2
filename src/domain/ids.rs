//! Users, kinds and targets: parsed once at the edge, valid for ever after.

use std::fmt;

/// Longest user id and longest target id, in bytes: the width of their columns.
pub const ID_BYTES_MAX: usize = 128;
/// Longest kind, in bytes.
pub const KIND_BYTES_MAX: usize = 32;

/// Why a text is not an id; the texts are written for API users.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// Empty, or longer than the limit.
    #[error("{field} must have 1 to {limit} bytes, this one has {bytes}")]
    Length {
        /// Name of the field.
        field: &'static str,
        /// Largest length in bytes.
        limit: usize,
        /// Actual length in bytes.
        bytes: usize,
    },
    /// A byte outside of printable ASCII, or a space.
    #[error("{field} must be printable ASCII without spaces, byte {position} is not")]
    Character {
        /// Name of the field.
        field: &'static str,
        /// Zero-based position of the first wrong byte.
        position: usize,
    },
    /// A kind that is not `[a-z][a-z0-9_-]*`.
    #[error(
        "{field} must begin with a-z and go on with a-z, 0-9, '_' or '-', byte {position} does not"
    )]
    Kind {
        /// Name of the field.
        field: &'static str,
        /// Zero-based position of the first wrong byte.
        position: usize,
    },
    /// `.` and `..` are rewritten by proxies and HTTP clients.
    #[error("{field} must not be '.' or '..'")]
    Dots {
        /// Name of the field.
        field: &'static str,
    },
}

impl IdError {
    /// The field that is wrong.
    pub fn field(&self) -> &'static str {
        match self {
            Self::Length { field, .. }
            | Self::Character { field, .. }
            | Self::Kind { field, .. }
            | Self::Dots { field } => field,
        }
    }

    /// The limit that was broken, where it is a number.
    pub fn limit(&self) -> Option<usize> {
        match self {
            Self::Length { limit, .. } => Some(*limit),
            _ => None,
        }
    }
}

fn check_length(field: &'static str, text: &str, limit: usize) -> Result<(), IdError> {
    if text.is_empty() || text.len() > limit {
        return Err(IdError::Length {
            field,
            limit,
            bytes: text.len(),
        });
    }
    Ok(())
}

fn check_id(field: &'static str, text: &str) -> Result<(), IdError> {
    check_length(field, text, ID_BYTES_MAX)?;
    match text.bytes().position(|byte| !byte.is_ascii_graphic()) {
        Some(position) => Err(IdError::Character { field, position }),
        None => Ok(()),
    }
}

/// A user: 1 to 128 bytes of printable ASCII without spaces. Case and leading zeros count.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UserId(String);

impl UserId {
    /// Checks and takes a user id.
    pub fn parse(text: impl Into<String>) -> Result<Self, IdError> {
        let text = text.into();
        check_id("user", &text)?;
        Ok(Self(text))
    }

    /// The id as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for UserId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A kind of target: `[a-z][a-z0-9_-]{0,31}`, for example `blog`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Kind(String);

impl Kind {
    /// Checks and takes a kind.
    pub fn parse(text: impl Into<String>) -> Result<Self, IdError> {
        let text = text.into();
        check_length("kind", &text, KIND_BYTES_MAX)?;
        let wrong = text.bytes().enumerate().position(|(at, byte)| match byte {
            b'a'..=b'z' => false,
            b'0'..=b'9' | b'_' | b'-' => at == 0,
            _ => true,
        });
        match wrong {
            Some(position) => Err(IdError::Kind {
                field: "kind",
                position,
            }),
            None => Ok(Self(text)),
        }
    }

    /// The kind as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What is liked: a kind and an id, written `kind:id`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Target {
    text: String,
    kind_bytes: usize,
}

impl Target {
    /// Joins a kind and the text of an id.
    pub fn new(kind: &Kind, id: &str) -> Result<Self, IdError> {
        check_id("id", id)?;
        if matches!(id, "." | "..") {
            return Err(IdError::Dots { field: "id" });
        }
        Ok(Self {
            text: format!("{kind}:{id}"),
            kind_bytes: kind.0.len(),
        })
    }

    /// Reads `kind:id`.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        let (kind, id) = text.split_once(':').unwrap_or((text, ""));
        Self::new(&Kind::parse(kind)?, id)
    }

    /// The whole text, `kind:id`.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The kind's text.
    pub fn kind(&self) -> &str {
        &self.text[..self.kind_bytes]
    }

    /// The id's text.
    pub fn id(&self) -> &str {
        &self.text[self.kind_bytes + 1..]
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The partition that keeps a user: CRC32 of the id, modulo `partitions` (SQL has the same function).
pub fn partition_of(user: &UserId, partitions: u16) -> u16 {
    partition_of_stored(user.as_str(), partitions)
}

/// The same of an id that stands in a table, where somebody may have written it by hand.
pub fn partition_of_stored(user: &str, partitions: u16) -> u16 {
    (crc32fast::hash(user.as_bytes()) % u32::from(partitions.max(1))) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_keep_case_zeros_and_punctuation() {
        for text in ["0", "007", "Ab", "a|b:c{d}%2F", &"x".repeat(128)] {
            assert_eq!(UserId::parse(text).unwrap().as_str(), text);
        }
    }

    #[test]
    fn wrong_users_name_field_and_limit() {
        let long = UserId::parse("x".repeat(129)).unwrap_err();
        assert_eq!(
            long.to_string(),
            "user must have 1 to 128 bytes, this one has 129"
        );
        assert_eq!(long.limit(), Some(128));
        for text in ["", " ", "a b", "é", "a\n", "\u{1F44D}"] {
            assert_eq!(UserId::parse(text).unwrap_err().field(), "user", "{text:?}");
        }
    }

    #[test]
    fn kinds_are_lower_case_words() {
        for text in ["a", "blog", "blog-post_2", &"a".repeat(32)] {
            assert!(Kind::parse(text).is_ok(), "{text:?}");
        }
        for text in ["", "2a", "-a", "Blog", "a:b", "a b", &"a".repeat(33)] {
            assert!(Kind::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn targets_split_at_the_first_colon() {
        let target = Target::parse("blog:a:b").unwrap();
        assert_eq!((target.kind(), target.id()), ("blog", "a:b"));
        for text in ["blog", "blog:", ":1", "blog:.", "blog:..", "blog:a b"] {
            assert!(Target::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn partitions_follow_crc32() {
        let user = UserId::parse("123456789").unwrap();
        assert_eq!(partition_of(&user, 1), 0);
        assert_eq!(u32::from(partition_of(&user, 1000)), 0xcbf4_3926_u32 % 1000);
    }
}
