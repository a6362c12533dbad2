//! Walks through the residents of a partition, page by page, and looks again at what differs.
//!
//! A look is worth something only if the key was the same before and after it, if no flush has committed between its reads of
//! MySQL, and if the generation is still the same. Within it the order is: the key, the slices, the rows, the key again. So
//! the slices hold every operation that the key has seen, and what lands in between is met in the rows. A difference that is
//! the same in `LOOKS` such looks is reported; a key that does not come to rest within `TRIES_MAX` tries is counted as unsettled.

use std::time::Duration;

use futures_util::future::try_join_all;

use super::compare::compare;
use super::unflushed::Unflushed;
use super::{Difference, Place, Progress, Report, VerifyError};
use crate::hot::{Hot, HotError, Resident, ResidentKey, ScanCursor};
use crate::ledger::Ledger;
use crate::limits::COLD_KEYS_PER_QUERY_MAX;

/// Looks that must show the same difference.
const LOOKS: u32 = 3;
/// Tries to get them.
const TRIES_MAX: u32 = 12;
/// Pause before a look; long enough for an operation or a step of the flush to end.
const PAUSE: Duration = Duration::from_millis(20);
/// Users in memory at once: each may have thousands of likes.
const USERS_MAX: usize = COLD_KEYS_PER_QUERY_MAX;
/// Counts in memory at once.
const COUNTS_MAX: usize = 256;

/// The residents of one partition.
pub(super) struct Walk<'a> {
    pub(super) hot: &'a Hot,
    pub(super) ledger: &'a Ledger,
    pub(super) partition: u16,
}

/// A key that differed, and how often it did so in the same way.
struct Suspect {
    key: ResidentKey,
    wrong: Vec<Difference>,
    looks: u32,
}

impl Walk<'_> {
    pub(super) async fn run(
        &self,
        report: &mut Report,
        on_progress: &mut impl FnMut(Progress),
    ) -> Result<(), VerifyError> {
        let peek = self.hot.peek(self.partition).await?;
        let Some(generation) = peek.generation else {
            report.partitions_empty += 1;
            return Ok(());
        };
        let wanted = self.hot.layout();
        if peek.layout != wanted {
            let found = peek.layout;
            return Err(HotError::Layout { found, wanted }.into());
        }
        let mut unflushed = Unflushed::read(self.hot, self.partition, &peek.live).await?;
        for (slice, field, reason) in std::mem::take(&mut unflushed.bad) {
            report.note(Difference {
                place: Place::SliceEntry,
                partition: Some(self.partition),
                key: format!("slice {slice}, {field:?}"),
                found: reason,
                expected: "'<user> <target>' and a signed version".to_owned(),
            });
        }
        for (users, keys_max) in [(true, USERS_MAX), (false, COUNTS_MAX)] {
            let mut cursor = ScanCursor::default();
            while !cursor.ended() {
                let keys = self
                    .hot
                    .resident_keys_page(self.partition, users, &mut cursor)
                    .await?;
                for keys in keys.chunks(keys_max) {
                    let seen = self.some(keys, &generation, &mut unflushed, report).await?;
                    if users {
                        report.users += seen;
                    } else {
                        report.counts += seen;
                    }
                    on_progress(Progress::Residents {
                        partition: self.partition,
                        seen: report.users + report.counts,
                    });
                }
            }
        }
        Ok(())
    }

    /// Compares some keys; gives how many of them were resident. What was unflushed some pages ago is good enough for the
    /// first look: what it makes differ by mistake is looked at again.
    async fn some(
        &self,
        keys: &[ResidentKey],
        generation: &str,
        unflushed: &mut Unflushed,
        report: &mut Report,
    ) -> Result<u64, VerifyError> {
        let residents = self.read(keys, generation).await?;
        let there: Vec<(&ResidentKey, Resident)> = keys
            .iter()
            .zip(residents)
            .filter_map(|(key, resident)| Some((key, resident?)))
            .collect();
        let (keys, residents): (Vec<_>, Vec<_>) = there.into_iter().unzip();
        let wrong = self.compare(unflushed, &residents).await?;
        let mut suspects: Vec<Suspect> = keys
            .into_iter()
            .zip(wrong)
            .filter(|(_, wrong)| !wrong.is_empty())
            .map(|(key, _)| Suspect {
                key: key.clone(),
                wrong: Vec::new(),
                looks: 0,
            })
            .collect();
        for _ in 0..TRIES_MAX {
            if suspects.is_empty() {
                break;
            }
            tokio::time::sleep(PAUSE).await;
            self.look(&mut suspects, generation, unflushed).await?;
            for settled in suspects.extract_if(.., |one| one.looks >= LOOKS) {
                settled.wrong.into_iter().for_each(|one| report.note(one));
            }
        }
        report.unsettled += suspects.len() as u64;
        Ok(residents.len() as u64)
    }

    /// One look at all suspects; those that are right, or gone, are none any more.
    async fn look(
        &self,
        suspects: &mut Vec<Suspect>,
        generation: &str,
        unflushed: &mut Unflushed,
    ) -> Result<(), VerifyError> {
        let keys: Vec<ResidentKey> = suspects.iter().map(|one| one.key.clone()).collect();
        let before = self.read(&keys, generation).await?;
        let peek = self.hot.peek(self.partition).await?;
        if peek.generation.as_deref() != Some(generation) {
            // All of it is cold now.
            suspects.clear();
            return Ok(());
        }
        *unflushed = Unflushed::read(self.hot, self.partition, &peek.live).await?;
        let state = self.ledger.flush_state().await?;
        let there: Vec<Resident> = before.iter().flatten().cloned().collect();
        let mut wrong = self.compare(unflushed, &there).await?.into_iter();
        let committed = self.ledger.flush_state().await? != state;
        let after = self.read(&keys, generation).await?;
        let mut keep = Vec::with_capacity(suspects.len());
        for (mut one, (before, after)) in suspects.drain(..).zip(before.into_iter().zip(after)) {
            let wrong = before.is_some().then(|| wrong.next()).flatten();
            match wrong {
                None => {}
                Some(wrong) if !same(&before, &after) || committed && !wrong.is_empty() => {
                    one.looks = 0;
                    one.wrong = wrong;
                    keep.push(one);
                }
                Some(wrong) if wrong.is_empty() => {}
                Some(wrong) => {
                    one.looks = if wrong == one.wrong { one.looks + 1 } else { 1 };
                    one.wrong = wrong;
                    keep.push(one);
                }
            }
        }
        *suspects = keep;
        Ok(())
    }

    async fn read(
        &self,
        keys: &[ResidentKey],
        generation: &str,
    ) -> Result<Vec<Option<Resident>>, VerifyError> {
        let reads = keys
            .iter()
            .map(|key| self.hot.resident(self.partition, key, generation));
        Ok(try_join_all(reads).await?)
    }

    async fn compare(
        &self,
        unflushed: &Unflushed,
        residents: &[Resident],
    ) -> Result<Vec<Vec<Difference>>, VerifyError> {
        let place = (self.partition, self.hot.partitions());
        compare(self.ledger, place, unflushed, residents).await
    }
}

/// Whether no operation came between two reads. An unpin in between changes only the last dirty slice, and fields have no order.
fn same(a: &Option<Resident>, b: &Option<Resident>) -> bool {
    match (a, b) {
        (Some(Resident::Count { part: a, .. }), Some(Resident::Count { part: b, .. })) => a == b,
        (Some(Resident::User { thumbs: a, .. }), Some(Resident::User { thumbs: b, .. })) => {
            let sorted = |thumbs: &[(crate::domain::Target, i64)]| {
                let mut versions: Vec<i64> = thumbs.iter().map(|(_, version)| *version).collect();
                versions.sort_unstable();
                versions
            };
            sorted(a) == sorted(b)
        }
        (Some(Resident::Gone { .. }), Some(Resident::Gone { .. })) => true,
        _ => false,
    }
}
