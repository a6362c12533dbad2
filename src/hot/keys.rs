//! Every key name in Redis. The part in braces is the hash tag: all keys of a partition lie in one slot of a cluster.

use crate::domain::{SliceId, Target, UserId};

/// The names of one partition.
#[derive(Debug, Clone)]
pub(super) struct Keys {
    base: String,
}

impl Keys {
    pub(super) fn new(prefix: &str, partition: u16) -> Self {
        Self {
            base: format!("{prefix}:v1:{{{partition}}}:"),
        }
    }

    fn name(&self, parts: [&str; 2]) -> String {
        let mut name = String::with_capacity(self.base.len() + parts[0].len() + parts[1].len());
        name.push_str(&self.base);
        name.push_str(parts[0]);
        name.push_str(parts[1]);
        name
    }

    pub(super) fn meta(&self) -> String {
        self.name(["meta", ""])
    }

    pub(super) fn slices(&self) -> String {
        self.name(["slices", ""])
    }

    pub(super) fn kept(&self) -> String {
        self.name(["kept", ""])
    }

    pub(super) fn slice(&self, id: SliceId) -> String {
        self.name(["slice:", &id.to_string()])
    }

    pub(super) fn kept_slice(&self, id: SliceId) -> String {
        self.name(["kept:", &id.to_string()])
    }

    pub(super) fn user(&self, user: &UserId) -> String {
        self.name(["user:", user.as_str()])
    }

    pub(super) fn count(&self, target: &Target) -> String {
        self.name(["count:", target.as_str()])
    }

    /// What one user has changed lately among the targets of a kind. No kind has a colon, so the last one ends the user.
    pub(super) fn rate(&self, user: &UserId, target: &Target) -> String {
        self.name(["rate:", &format!("{user}:{}", target.kind())])
    }

    /// How often a user has toggled a target lately. No user has a space.
    pub(super) fn toggle(&self, user: &UserId, target: &Target) -> String {
        self.name(["toggle:", &format!("{user} {target}")])
    }

    /// Written to see whether the server of this partition takes writes; it holds nothing.
    pub(super) fn probe(&self) -> String {
        self.name(["probe", ""])
    }

    /// A SCAN pattern for this partition's keys of one type (`slice`, `user`, `count`).
    pub(super) fn pattern(&self, of: &str) -> String {
        // Prefix and partition hold no glob characters; braces are none in Redis.
        self.name([of, ":*"])
    }

    /// What stands behind the type in a key that a SCAN found.
    pub(super) fn rest<'a>(&self, of: &str, key: &'a str) -> Option<&'a str> {
        key.strip_prefix(&self.base)?
            .strip_prefix(of)?
            .strip_prefix(':')
    }
}

/// The lease of a job; no partition owns it.
pub(super) fn lease(prefix: &str, job: &str) -> String {
    format!("{prefix}:v1:lease:{job}")
}

/// The stream of the change feed; no partition owns it.
pub(super) fn feed(prefix: &str) -> String {
    format!("{prefix}:v1:feed")
}

/// The last event that a webhook was told; no partition owns it.
pub(super) fn feed_told(prefix: &str) -> String {
    format!("{prefix}:v1:feed:told")
}

/// The instances that live; no partition owns them.
pub(super) fn instances(prefix: &str) -> String {
    format!("{prefix}:v1:instances")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_spelt_as_designed() {
        let keys = Keys::new("thumbd", 3);
        let user = UserId::parse("u{1}").unwrap();
        let target = Target::parse("blog:42").unwrap();
        assert_eq!(keys.meta(), "thumbd:v1:{3}:meta");
        assert_eq!(keys.slices(), "thumbd:v1:{3}:slices");
        assert_eq!(keys.kept(), "thumbd:v1:{3}:kept");
        assert_eq!(keys.slice(SliceId(10)), "thumbd:v1:{3}:slice:10");
        assert_eq!(keys.kept_slice(SliceId(10)), "thumbd:v1:{3}:kept:10");
        assert_eq!(keys.user(&user), "thumbd:v1:{3}:user:u{1}");
        assert_eq!(keys.count(&target), "thumbd:v1:{3}:count:blog:42");
        assert_eq!(keys.rate(&user, &target), "thumbd:v1:{3}:rate:u{1}:blog");
        assert_eq!(
            keys.toggle(&user, &target),
            "thumbd:v1:{3}:toggle:u{1} blog:42"
        );
        assert_eq!(keys.rest("slice", "thumbd:v1:{3}:slice:10"), Some("10"));
        assert_eq!(keys.rest("slice", "thumbd:v1:{33}:slice:10"), None);
        assert_eq!(lease("thumbd", "flush"), "thumbd:v1:lease:flush");
        assert_eq!(feed("thumbd"), "thumbd:v1:feed");
        assert_eq!(feed_told("thumbd"), "thumbd:v1:feed:told");
        assert_eq!(instances("thumbd"), "thumbd:v1:instances");
        assert_eq!(keys.probe(), "thumbd:v1:{3}:probe");
    }
}
