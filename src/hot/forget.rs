//! Calls of `forget.lua`.

use super::reply::int;
use super::scripts::FORGET;
use super::{Hot, HotError};
use crate::domain::{SliceId, Target, UserId};
use crate::limits::UNPIN_KEYS_MAX;

impl Hot {
    /// Lets go of users and counts of a partition whose rows were changed outside of a slice; gives how many were there.
    pub async fn forget(
        &self,
        partition: u16,
        users: &[UserId],
        targets: &[Target],
    ) -> Result<u64, HotError> {
        let least = Some(SliceId(0));
        self.forget_some(partition, users, targets, least).await
    }

    /// Lets go of a target, and seals the partition up to `least` at least.
    pub async fn forget_target(
        &self,
        partition: u16,
        target: &Target,
        least: SliceId,
    ) -> Result<u64, HotError> {
        let target = std::slice::from_ref(target);
        self.forget_some(partition, &[], target, Some(least)).await
    }

    /// The same as [`Hot::forget`] for any number, in calls of bounded size. Only the first raises `floor`: who reads MySQL behind
    /// it reads the change, and each raise closes the open slice.
    pub async fn forget_all(
        &self,
        partition: u16,
        users: &[UserId],
        targets: &[Target],
    ) -> Result<u64, HotError> {
        let mut there = 0;
        let mut least = Some(SliceId(0));
        for users in users.chunks(UNPIN_KEYS_MAX) {
            there += self
                .forget_some(partition, users, &[], least.take())
                .await?;
        }
        for targets in targets.chunks(UNPIN_KEYS_MAX) {
            there += self
                .forget_some(partition, &[], targets, least.take())
                .await?;
        }
        Ok(there)
    }

    async fn forget_some(
        &self,
        partition: u16,
        users: &[UserId],
        targets: &[Target],
        least: Option<SliceId>,
    ) -> Result<u64, HotError> {
        let keys = self.keys(partition);
        let mut call = FORGET.call(1 + users.len() + targets.len());
        call.arg(keys.meta());
        for user in users {
            call.arg(keys.user(user));
        }
        for target in targets {
            call.arg(keys.count(target));
        }
        call.arg(users.len());
        match least {
            Some(least) => call.arg(least.0),
            None => call.arg(""),
        };
        Ok(int(&self.job(&FORGET, &call).await?)?.unsigned_abs())
    }
}
