//! Who may see who likes what, per kind. Everybody sees what is their own, whatever is set here.

/// Whose likes a caller is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visibility {
    /// Everybody's, to whoever may read.
    Public,
    /// Everybody's, to keys that may name any user; a user sees its own.
    Service,
    /// Its own, to the user alone that a request speaks for.
    Own,
}

/// What of a kind is shown to whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KindVisibility {
    /// The list of who likes a target.
    pub likers: Visibility,
    /// The list of what somebody else likes.
    pub user_likes: Visibility,
}

impl Default for KindVisibility {
    fn default() -> Self {
        Self {
            likers: Visibility::Public,
            user_likes: Visibility::Service,
        }
    }
}

/// The values of both settings.
const VALUES: [(&str, Visibility); 3] = [
    ("public", Visibility::Public),
    ("service", Visibility::Service),
    ("self", Visibility::Own),
];

impl KindVisibility {
    /// The names of the settings.
    pub(super) const KEYS: [&'static str; 2] = ["likers", "user_likes"];

    /// What the settings allow, in words.
    pub(super) const ALLOWED: &'static str = "likers (public, service or self; public unless set) and user_likes (the same; service unless set)";

    /// Reads settings, each `name=value`; the names are among [`Self::KEYS`].
    pub(super) fn parse<'a>(settings: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        let mut found = [None; 2];
        for setting in settings {
            let (name, text) = setting.split_once('=').unwrap_or((setting, ""));
            let value = VALUES.iter().find(|(word, _)| *word == text);
            let (_, value) =
                value.ok_or_else(|| format!("{name} is {text:?}, not public, service or self"))?;
            let slot = usize::from(name == Self::KEYS[1]);
            if found[slot].replace(*value).is_some() {
                return Err(format!("{name} stands there twice"));
            }
        }
        let default = Self::default();
        Ok(Self {
            likers: found[0].unwrap_or(default.likers),
            user_likes: found[1].unwrap_or(default.user_likes),
        })
    }

    /// Whether a setting of a kind is one of these.
    pub(super) fn is_key(setting: &str) -> bool {
        let (name, _) = setting.split_once('=').unwrap_or((setting, ""));
        Self::KEYS.contains(&name)
    }
}
