//! What Redis has and MySQL may not have yet: the entries of a partition's live slices. As large as the backlog of the flush.

use std::collections::{HashMap, HashSet};

use super::VerifyError;
use crate::domain::{Entry, SliceId, Target, UserId, Version};
use crate::hot::Hot;

/// The last state that slices hold per user and target, and the bytes that cannot be read as one.
#[derive(Debug, Default)]
pub(super) struct Unflushed {
    users: HashMap<UserId, HashMap<Target, (bool, Version)>>,
    targets: HashMap<Target, HashSet<UserId>>,
    /// Slice, field and what is wrong with it.
    pub(super) bad: Vec<(SliceId, String, String)>,
}

impl Unflushed {
    /// Reads all slices that are live now, the open ones too. One that lands meanwhile may look empty: its rows are there then.
    pub(super) async fn read(
        hot: &Hot,
        partition: u16,
        live: &[SliceId],
    ) -> Result<Self, VerifyError> {
        let mut unflushed = Self::default();
        for slice in live {
            let mut cursor = 0;
            loop {
                let (next, page) = hot.slice_page(partition, *slice, cursor).await?;
                for (field, value) in page {
                    match Entry::parse(&field, &value) {
                        Ok(entry) => unflushed.add(entry),
                        Err(error) => unflushed.bad.push((
                            *slice,
                            String::from_utf8_lossy(&field).into_owned(),
                            error.to_string(),
                        )),
                    }
                }
                cursor = next;
                if cursor == 0 {
                    break;
                }
            }
        }
        // HSCAN may give a field twice.
        unflushed.bad.sort();
        unflushed.bad.dedup();
        Ok(unflushed)
    }

    fn add(&mut self, entry: Entry) {
        let users = self.targets.entry(entry.target.clone()).or_default();
        users.insert(entry.user.clone());
        let targets = self.users.entry(entry.user).or_default();
        let last = targets
            .entry(entry.target)
            .or_insert((entry.thumbed, entry.version));
        if last.1 < entry.version {
            *last = (entry.thumbed, entry.version);
        }
    }

    /// Targets with unflushed states of a user.
    pub(super) fn of_user(&self, user: &UserId) -> Option<&HashMap<Target, (bool, Version)>> {
        self.users.get(user)
    }

    /// All users with an unflushed state of a target.
    pub(super) fn of_target(&self, target: &Target) -> impl Iterator<Item = &UserId> {
        self.targets.get(target).into_iter().flatten()
    }

    /// The state of a pair with what its row says: the last version wins.
    pub(super) fn state(
        &self,
        user: &UserId,
        target: &Target,
        row: Option<(bool, Version)>,
    ) -> bool {
        let entry = self.users.get(user).and_then(|targets| targets.get(target));
        match (entry, row) {
            (Some((thumbed, version)), Some((_, stored))) if *version > stored => *thumbed,
            (Some((thumbed, _)), None) => *thumbed,
            (_, Some((thumbed, _))) => thumbed,
            (None, None) => false,
        }
    }
}
