//! Calls of `fill.lua`.

use super::scripts::FILL;
use super::{Hot, HotError, Moment};
use crate::domain::{Target, UserId, Version};

/// What MySQL says of a user who was cold.
#[derive(Debug, Clone)]
pub struct ColdUser {
    /// Who.
    pub user: UserId,
    /// Liked targets.
    pub thumbs: Vec<(Target, Version)>,
    /// Whether these are all.
    pub complete: bool,
    /// How long it stays, in seconds.
    pub ttl_seconds: u64,
}

/// What MySQL says of a count that was cold.
#[derive(Debug, Clone)]
pub struct ColdCount {
    /// What.
    pub target: Target,
    /// This partition's part of its count; `None`: the target is gone.
    pub part: Option<i64>,
    /// How long it stays, in seconds.
    pub ttl_seconds: u64,
}

impl Hot {
    /// Makes users and counts resident that were cold at `at`. False: something may have happened since, begin again.
    pub async fn fill(
        &self,
        partition: u16,
        at: &Moment,
        users: &[ColdUser],
        counts: &[ColdCount],
    ) -> Result<bool, HotError> {
        let keys = self.keys(partition);
        let mut call = FILL.call(1 + users.len() + counts.len());
        call.arg(keys.meta());
        for one in users {
            call.arg(keys.user(&one.user));
        }
        for one in counts {
            call.arg(keys.count(&one.target));
        }
        call.arg(&at.generation).arg(at.sealed);
        for one in users {
            call.arg("u")
                .arg(one.ttl_seconds)
                .arg(if one.complete { "c" } else { "p" })
                .arg(one.thumbs.len());
            for (target, version) in &one.thumbs {
                call.arg(target.as_str()).arg(version.0);
            }
        }
        for one in counts {
            call.arg("c").arg(one.ttl_seconds);
            match one.part {
                Some(part) => call.arg(part),
                None => call.arg("g"),
            };
        }
        let value = self.request(&FILL, &call).await?;
        Ok(super::reply::int(&value)? == 0)
    }
}
