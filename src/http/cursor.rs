//! Cursors: where a list goes on. Opaque to callers; base64url of a version, a place (a number and an id) and a digest that binds
//! them to the list they come from.
//!
//! A cursor is neither a secret nor a right: it names a place, and whoever made one by hand could read that list anyway.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use sha2::{Digest as _, Sha256};

use super::problem::Problem;
use crate::domain::{ID_BYTES_MAX, KIND_BYTES_MAX, Kind, Target, UserId};

/// The form of a cursor; another program may write another one.
const FORM: u8 = 1;
const DIGEST_BYTES: usize = 8;
/// Form, number, digest.
const FIXED_BYTES: usize = 1 + 8 + DIGEST_BYTES;
const BYTES_MAX: usize = FIXED_BYTES + KIND_BYTES_MAX + 1 + ID_BYTES_MAX;

/// A list, as far as a cursor must tell it from others.
#[derive(Debug, Clone, Copy)]
pub(super) enum List<'a> {
    /// Who likes a target.
    Likers(&'a Target),
    /// What a user likes, of all kinds or one.
    Likes(&'a UserId, Option<&'a Kind>),
    /// What is liked most.
    Ranking(&'a Kind),
}

impl List<'_> {
    /// The cursor for what is behind a place.
    pub(super) fn cursor(&self, number: u64, id: &str) -> String {
        let mut bytes = vec![FORM];
        bytes.extend(number.to_be_bytes());
        bytes.extend(id.as_bytes());
        bytes.extend(self.digest(&bytes));
        BASE64.encode(bytes)
    }

    /// The place of a cursor of this list. The number is that of a version or a count: neither is 0.
    pub(super) fn place<T>(
        &self,
        cursor: &str,
        id: impl FnOnce(&str) -> Option<T>,
    ) -> Result<(u64, T), Problem> {
        self.read(cursor, id).ok_or_else(|| {
            let detail = "cursor must be one that this list has given, with the same parameters";
            Problem::field("cursor", detail)
        })
    }

    fn read<T>(&self, cursor: &str, id: impl FnOnce(&str) -> Option<T>) -> Option<(u64, T)> {
        // Four characters for three bytes.
        if cursor.len() > BYTES_MAX.div_ceil(3) * 4 {
            return None;
        }
        let bytes = BASE64.decode(cursor).ok()?;
        let (place, digest) = bytes.split_at_checked(bytes.len().checked_sub(DIGEST_BYTES)?)?;
        if self.digest(place) != digest {
            return None;
        }
        let place = place.strip_prefix(&[FORM])?;
        let (number, text) = place.split_first_chunk()?;
        let number = u64::from_be_bytes(*number);
        if number == 0 || number > i64::MAX as u64 {
            return None;
        }
        Some((number, id(std::str::from_utf8(text).ok()?)?))
    }

    fn digest(&self, place: &[u8]) -> [u8; DIGEST_BYTES] {
        // Ids have no spaces, so no two lists are written alike.
        let name = match self {
            Self::Likers(target) => format!("likers {target} "),
            Self::Likes(user, kind) => format!("likes {user} {} ", kind.map_or("", Kind::as_str)),
            Self::Ranking(kind) => format!("ranking {kind} "),
        };
        let digest = Sha256::new()
            .chain_update(name)
            .chain_update(place)
            .finalize();
        let mut short = [0; DIGEST_BYTES];
        short.copy_from_slice(&digest[..DIGEST_BYTES]);
        short
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(id: &str) -> Option<String> {
        Some(id.to_owned())
    }

    #[test]
    fn a_cursor_belongs_to_one_list() {
        let (blog, photo) = (Kind::parse("blog").unwrap(), Kind::parse("photo").unwrap());
        let (one, two) = (
            Target::parse("blog:1").unwrap(),
            Target::parse("blog:2").unwrap(),
        );
        let (a, b) = (UserId::parse("a").unwrap(), UserId::parse("b").unwrap());
        let lists = [
            List::Likers(&one),
            List::Likers(&two),
            List::Likes(&a, None),
            List::Likes(&b, None),
            List::Likes(&a, Some(&blog)),
            List::Likes(&a, Some(&photo)),
            List::Ranking(&blog),
            List::Ranking(&photo),
        ];
        for (at, list) in lists.iter().enumerate() {
            let cursor = list.cursor(1_700_000_000_000_000, "blog:1");
            for (other, reader) in lists.iter().enumerate() {
                let read = reader.read(&cursor, text);
                let want = (other == at).then(|| (1_700_000_000_000_000, "blog:1".to_owned()));
                assert_eq!(read, want, "{list:?} read as {reader:?}");
            }
        }
    }

    #[test]
    fn no_other_text_is_a_cursor() {
        let kind = Kind::parse("blog").unwrap();
        let list = List::Ranking(&kind);
        let longest = "x".repeat(KIND_BYTES_MAX + 1 + ID_BYTES_MAX);
        assert!(list.read(&list.cursor(1, &longest), text).is_some());
        let right = list.cursor(7, "42");
        for at in 0..right.len() {
            for other in ["", "A", "_", "=", "%", "é"] {
                let mut wrong = right.clone();
                wrong.replace_range(at..=at, other);
                assert!(
                    wrong == right || list.read(&wrong, text).is_none(),
                    "{wrong}"
                );
            }
        }
        for wrong in [
            "",
            "A",
            "AAAA",
            &right[1..],
            &format!("{right}A"),
            &format!("{right}="),
            &"A".repeat(9999),
        ] {
            assert!(list.read(wrong, text).is_none(), "{wrong}");
        }
        // Well made, and no place of a list.
        for (number, id) in [(0, "42"), (u64::MAX, "42")] {
            assert!(list.read(&list.cursor(number, id), text).is_none());
        }
        assert!(list.read(&right, |_| None::<()>).is_none());
        let mut bytes = BASE64.decode(&right).unwrap();
        bytes.truncate(bytes.len() - DIGEST_BYTES);
        bytes[0] = FORM + 1;
        bytes.extend(list.digest(&bytes));
        assert!(list.read(&BASE64.encode(bytes), text).is_none());
    }
}
