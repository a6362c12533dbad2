//! Counts of targets that many read at once, kept in the process for some moments. Off unless the settings say otherwise.
//!
//! Within a process counts never go back because of it, and nobody's own like is hidden: what is kept was read by somebody who began
//! when all answers of this process on that target had been given. So an answer that others overtook is not kept, and takes away
//! what was kept if that is another count. The order is that of tickets, not of a clock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use moka::ops::compute::Op;
use moka::sync::Cache;

use crate::domain::Target;
use crate::limits::{COUNT_CACHE_LIFE, COUNT_CACHE_TARGETS_MAX};

/// What is kept, and how it may be used.
pub(super) struct CountCache {
    counts: Cache<Target, Kept>,
    tickets: AtomicU64,
    /// How old a count may be.
    age_max: Duration,
}

/// A count, and what must be known of the answers given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kept {
    /// `None`: of the answers given nobody knows which is the newest.
    count: Option<i64>,
    read_at: Instant,
    /// When the last answer was given.
    answered: u64,
}

/// When a read or a write began.
#[derive(Debug, Clone, Copy)]
pub(super) struct Begun {
    ticket: u64,
    at: Instant,
}

impl CountCache {
    /// `None` if nothing is to be kept.
    pub(super) fn new(age_max_ms: u64) -> Option<Self> {
        (age_max_ms > 0).then(|| Self {
            counts: Cache::builder()
                .max_capacity(COUNT_CACHE_TARGETS_MAX)
                .time_to_live(COUNT_CACHE_LIFE)
                .build(),
            tickets: AtomicU64::new(0),
            age_max: Duration::from_millis(age_max_ms),
        })
    }

    /// Must come before anything of the read or write is sent.
    pub(super) fn begin(&self) -> Begun {
        Begun {
            ticket: self.ticket(),
            at: Instant::now(),
        }
    }

    /// The counts of all these targets, if all are kept.
    pub(super) fn all(&self, targets: &[Target]) -> Option<Vec<i64>> {
        targets.iter().map(|target| self.one(target)).collect()
    }

    fn one(&self, target: &Target) -> Option<i64> {
        let kept = self.counts.get(target)?;
        kept.count.filter(|_| kept.read_at.elapsed() < self.age_max)
    }

    /// A read or a write is about to be answered with this count.
    pub(super) fn answer(&self, target: &Target, begun: Begun, count: i64) {
        let entry = self.counts.entry_by_ref(target);
        entry.and_compute_with(|kept| {
            let kept = kept.map(moka::Entry::into_value);
            Op::Put(behind(kept, begun, count, self.ticket()))
        });
    }

    /// Something may have happened to the target, and nobody knows the count. One that is not kept may be left alone: what comes
    /// next only makes it known.
    fn forget(&self, target: &Target) {
        let entry = self.counts.entry_by_ref(target);
        entry.and_compute_with(|kept| match kept.map(moka::Entry::into_value) {
            None => Op::Nop,
            Some(kept) => Op::Put(Kept {
                count: None,
                answered: self.ticket(),
                ..kept
            }),
        });
    }

    fn ticket(&self) -> u64 {
        self.tickets.fetch_add(1, Ordering::SeqCst)
    }

    /// A write begins. Unless it ends with a count, the targets are forgotten; also if its caller hangs up.
    pub(super) fn write<'a>(&'a self, targets: Vec<&'a Target>) -> Write<'a> {
        Write {
            begun: self.begin(),
            cache: self,
            targets,
        }
    }
}

/// A write under way.
pub(super) struct Write<'a> {
    cache: &'a CountCache,
    begun: Begun,
    targets: Vec<&'a Target>,
}

impl Write<'_> {
    /// It ends with the count of its only target.
    pub(super) fn answer(mut self, count: i64) {
        for target in std::mem::take(&mut self.targets) {
            self.cache.answer(target, self.begun, count);
        }
    }
}

impl Drop for Write<'_> {
    fn drop(&mut self) {
        for target in &self.targets {
            self.cache.forget(target);
        }
    }
}

/// What is kept behind an answer. Of a target that was not kept nobody knows what was answered before, so the first only makes it
/// known.
fn behind(kept: Option<Kept>, begun: Begun, count: i64, answered: u64) -> Kept {
    let Some(kept) = kept else {
        return Kept {
            count: None,
            read_at: begun.at,
            answered,
        };
    };
    let (count, read_at) = match kept.count {
        Some(same) if same == count => (Some(count), kept.read_at.max(begun.at)),
        _ if begun.ticket > kept.answered => (Some(count), begun.at),
        _ => (None, begun.at),
    };
    Kept {
        count,
        read_at,
        answered,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target() -> Target {
        Target::parse("blog:1").unwrap()
    }

    fn kept(cache: &CountCache) -> Option<i64> {
        cache.all(&[target()]).map(|counts| counts[0])
    }

    fn read(cache: &CountCache, count: i64) {
        cache.answer(&target(), cache.begin(), count);
    }

    #[test]
    fn the_second_read_is_kept_and_a_write_replaces_it() {
        assert!(CountCache::new(0).is_none());
        let cache = CountCache::new(60_000).unwrap();
        read(&cache, 5);
        assert_eq!(kept(&cache), None);
        read(&cache, 5);
        assert_eq!(kept(&cache), Some(5));
        let one = target();
        cache.write(vec![&one]).answer(6);
        assert_eq!(kept(&cache), Some(6));
        // A write that nobody knows the end of.
        drop(cache.write(vec![&one]));
        assert_eq!(kept(&cache), None);
        read(&cache, 6);
        assert_eq!(kept(&cache), Some(6));
    }

    #[test]
    fn an_answer_that_was_overtaken_is_not_kept() {
        let cache = CountCache::new(60_000).unwrap();
        read(&cache, 5);
        read(&cache, 5);
        let slow = cache.begin();
        let one = target();
        cache.write(vec![&one]).answer(6);
        // It read Redis before the write, or after it: nobody knows.
        cache.answer(&one, slow, 5);
        assert_eq!(kept(&cache), None);
        cache.answer(&one, slow, 5);
        assert_eq!(kept(&cache), None);
        read(&cache, 6);
        assert_eq!(kept(&cache), Some(6));
        // The same count says nothing new.
        let slow = cache.begin();
        read(&cache, 6);
        cache.answer(&one, slow, 6);
        assert_eq!(kept(&cache), Some(6));
    }

    #[test]
    fn a_read_from_before_an_unknown_write_is_not_kept() {
        let cache = CountCache::new(60_000).unwrap();
        let (one, slow) = (target(), cache.begin());
        // Not kept yet, and then known by an old read only.
        drop(cache.write(vec![&one]));
        cache.answer(&one, slow, 5);
        assert_eq!(kept(&cache), None);
        let slow = cache.begin();
        drop(cache.write(vec![&one]));
        cache.answer(&one, slow, 5);
        assert_eq!(kept(&cache), None);
    }

    #[test]
    fn what_is_kept_grows_old() {
        let cache = CountCache::new(50).unwrap();
        read(&cache, 5);
        let long_ago = Begun {
            at: Instant::now() - Duration::from_millis(50),
            ..cache.begin()
        };
        cache.answer(&target(), long_ago, 5);
        assert_eq!(kept(&cache), None);
        assert_eq!(cache.all(&[]), Some(Vec::new()));
    }
}
