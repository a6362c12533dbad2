//! Calls of `gone.lua` and `strip.lua`: what becomes of a target that is gone, and of the likes of it.

use super::reply::int;
use super::scripts::{GONE, STRIP};
use super::{Hot, HotError, Moment};
use crate::domain::{SliceId, Target, UserId, Version};
use crate::limits::UNPIN_KEYS_MAX;

impl Hot {
    /// Marks a target as gone in a partition, and seals it up to `least` at least. MySQL said so behind the moment `seen`. False:
    /// it may have been restored since, ask again.
    pub async fn mark_gone(
        &self,
        partition: u16,
        seen: &Moment,
        target: &Target,
        least: SliceId,
        ttl_seconds: u64,
    ) -> Result<bool, HotError> {
        let keys = self.keys(partition);
        let mut call = GONE.call(2);
        call.arg(keys.meta())
            .arg(keys.count(target))
            .arg(&seen.generation)
            .arg(seen.sealed)
            .arg(least.0)
            .arg(ttl_seconds);
        Ok(int(&self.job(&GONE, &call).await?)? == 1)
    }

    /// Takes likes of targets that are gone out of what their users hold, up to a version each; gives how many were there. With
    /// `rows_removed` what was read of MySQL before is not filled in any more.
    pub async fn strip(
        &self,
        partition: u16,
        likes: &[(&UserId, &Target, Version)],
        rows_removed: bool,
    ) -> Result<u64, HotError> {
        let keys = self.keys(partition);
        let mut there = 0;
        for (at, likes) in likes.chunks(UNPIN_KEYS_MAX).enumerate() {
            let mut call = STRIP.call(1 + likes.len());
            call.arg(keys.meta());
            for (user, ..) in likes {
                call.arg(keys.user(user));
            }
            // Each raise closes the open slice.
            call.arg(u8::from(rows_removed && at == 0));
            for (_, target, version) in likes {
                call.arg(target.as_str()).arg(version.0);
            }
            there += int(&self.job(&STRIP, &call).await?)?.unsigned_abs();
        }
        Ok(there)
    }
}
