//! One field of a slice: the last state that a user wanted for a target within that slice.

use super::{IdError, Target, UserId, Version};

/// The final state of one user's thumb of one target within a slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Who.
    pub user: UserId,
    /// What.
    pub target: Target,
    /// Liked, or taken back.
    pub thumbed: bool,
    /// When, by the partition's clock.
    pub version: Version,
}

/// Bytes in a slice that no script of thumbd writes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// The field is not `<user> <target>`.
    #[error("field is not '<user> <target>'")]
    Field,
    /// User or target is not valid.
    #[error(transparent)]
    Id(#[from] IdError),
    /// The value is not a version with its sign.
    #[error("value is not a signed version")]
    Value,
}

impl Entry {
    /// Reads a field `<user> <target>` and its value: the version, negative for an unlike.
    pub fn parse(field: &[u8], value: &[u8]) -> Result<Self, EntryError> {
        let field = std::str::from_utf8(field).map_err(|_| EntryError::Field)?;
        let (user, target) = field.split_once(' ').ok_or(EntryError::Field)?;
        let value: i64 = std::str::from_utf8(value)
            .ok()
            .and_then(|text| text.parse().ok())
            .filter(|version| *version != 0 && *version != i64::MIN)
            .ok_or(EntryError::Value)?;
        Ok(Self {
            user: UserId::parse(user)?,
            target: Target::parse(target)?,
            thumbed: value > 0,
            version: Version(value.unsigned_abs()),
        })
    }

    /// The value that [`Entry::parse`] reads.
    pub fn value(&self) -> i64 {
        let version = self.version.0 as i64;
        if self.thumbed { version } else { -version }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_like_and_an_unlike_are_read() {
        let like = Entry::parse(b"u1 blog:42", b"1700000000000000").unwrap();
        assert_eq!(
            (like.user.as_str(), like.target.as_str()),
            ("u1", "blog:42")
        );
        assert!(like.thumbed);
        assert_eq!(like.version, Version(1_700_000_000_000_000));
        let unlike = Entry::parse(b"u1 blog:42", b"-5").unwrap();
        assert_eq!((unlike.thumbed, unlike.value()), (false, -5));
    }

    #[test]
    fn hand_written_bytes_are_refused() {
        for (field, value) in [
            (&b"u1"[..], &b"1"[..]),
            (b"u1 blog", b"1"),
            (b"u1 blog:1", b""),
            (b"u1 blog:1", b"0"),
            (b"u1 blog:1", b"1.5"),
            (b"\xff blog:1", b"1"),
            (b"u1 blog:1 x", b"1"),
        ] {
            assert!(Entry::parse(field, value).is_err(), "{field:?} {value:?}");
        }
    }
}
