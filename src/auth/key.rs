//! Named keys: a digest, what its holder may do, and with which kinds.

use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::domain::Kind;

/// What the holder of a key may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Right {
    /// Read, as any user.
    Read,
    /// Like and unlike as any user; includes reading.
    Write,
    /// The admin calls.
    Admin,
}

/// A key of which only the digest is known here.
#[derive(Clone, PartialEq, Eq)]
pub struct NamedKey {
    /// What it is called in logs; several keys may share a name while one takes the other's place.
    pub name: String,
    digest: [u8; 32],
    rights: Vec<Right>,
    /// `None`: all kinds.
    kinds: Option<Vec<Kind>>,
}

/// As it stands in the settings.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    name: String,
    sha256: String,
    rights: Vec<Right>,
    kinds: Option<Vec<String>>,
}

/// Longest name of a key.
const NAME_BYTES_MAX: usize = 64;

impl NamedKey {
    /// Reads a list of keys in JSON: `[{"name", "sha256", "rights", "kinds"}]`. The error names the key and the field.
    pub fn parse_list(json: &str) -> Result<Vec<Self>, String> {
        let texts: Vec<Text> = serde_json::from_str(json).map_err(|error| error.to_string())?;
        texts.into_iter().map(Self::parse).collect()
    }

    fn parse(text: Text) -> Result<Self, String> {
        let name = text.name;
        let right = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(right) {
            return Err(format!(
                "name {name:?} is not 1 to {NAME_BYTES_MAX} letters, digits, '-' and '_'"
            ));
        }
        let digest = parse_digest(&text.sha256)
            .ok_or_else(|| format!("sha256 of key {name} is not 64 hex digits"))?;
        if text.rights.is_empty() {
            return Err(format!("key {name} has no rights"));
        }
        let kinds = text.kinds.map(|kinds| {
            let kinds = kinds.iter().map(String::as_str).map(Kind::parse);
            kinds.collect::<Result<Vec<_>, _>>()
        });
        let kinds = kinds
            .transpose()
            .map_err(|error| format!("kinds of key {name}: {error}"))?;
        Ok(Self {
            digest,
            rights: text.rights,
            kinds,
            name,
        })
    }

    /// Whether this is the key. It takes the same time whatever is given.
    pub fn is(&self, digest: &[u8; 32]) -> bool {
        self.digest.ct_eq(digest).into()
    }

    /// Whether its holder may do this. Whoever may write may read.
    pub fn has(&self, right: Right) -> bool {
        self.rights.contains(&right) || right == Right::Read && self.rights.contains(&Right::Write)
    }

    /// Whether it is for all kinds.
    pub fn covers_all(&self) -> bool {
        self.kinds.is_none()
    }

    /// Whether its holder may do it with this kind.
    pub fn covers(&self, kind: &str) -> bool {
        let kinds = self.kinds.as_ref();
        kinds.is_none_or(|kinds| kinds.iter().any(|known| known.as_str() == kind))
    }
}

impl std::fmt::Debug for NamedKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NamedKey")
            .field("name", &self.name)
            .field("rights", &self.rights)
            .field("kinds", &self.kinds)
            .finish_non_exhaustive()
    }
}

/// What is kept of a key. A fast digest is enough: keys are random, nobody can go through all.
pub fn digest(key: &[u8]) -> [u8; 32] {
    Sha256::digest(key).into()
}

fn parse_digest(hex: &str) -> Option<[u8; 32]> {
    let mut digest = [0; 32];
    if hex.len() != 64 || !hex.is_ascii() {
        return None;
    }
    for (at, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(hex.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae";

    fn list(rest: &str) -> Result<Vec<NamedKey>, String> {
        NamedKey::parse_list(&format!(r#"[{{"name":"web",{rest}}}]"#))
    }

    #[test]
    fn a_key_is_known_by_its_digest_and_has_its_rights_and_kinds() {
        let keys = list(&format!(
            r#""sha256":"{HEX}","rights":["write"],"kinds":["blog"]"#
        ));
        let key = &keys.unwrap()[0];
        assert!(key.is(&digest(b"foo")) && !key.is(&digest(b"fooo")));
        assert!(key.has(Right::Read) && key.has(Right::Write) && !key.has(Right::Admin));
        assert!(key.covers("blog") && !key.covers("photo"));
        assert!(!format!("{key:?}").contains("2c26") && !format!("{key:?}").contains("digest"));
        let keys = list(&format!(r#""sha256":"{HEX}","rights":["read"]"#)).unwrap();
        assert!(keys[0].covers("photo") && keys[0].has(Right::Read) && !keys[0].has(Right::Write));
    }

    #[test]
    fn a_wrong_key_says_which_and_why() {
        let short = &HEX[1..];
        for (rest, part) in [
            (
                format!(r#""sha256":"{short}","rights":["read"]"#),
                "sha256 of key web",
            ),
            (
                format!(r#""sha256":"{short}+","rights":["read"]"#),
                "sha256 of key web",
            ),
            (format!(r#""sha256":"{HEX}","rights":[]"#), "no rights"),
            (format!(r#""sha256":"{HEX}","rights":["root"]"#), "root"),
            (
                format!(r#""sha256":"{HEX}","rights":["read"],"kinds":["Blog"]"#),
                "kinds of key web",
            ),
            (
                format!(r#""sha256":"{HEX}","rights":["read"],"x":1"#),
                "unknown field",
            ),
            (
                r#""sha256":"","rights":["read"],"name":"a b""#.to_owned(),
                "duplicate field",
            ),
        ] {
            let error = list(&rest).unwrap_err();
            assert!(error.contains(part), "{rest}: {error}");
        }
    }
}
