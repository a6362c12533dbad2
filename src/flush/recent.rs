//! What was flushed lately by this process, for whoever watches: one line a slice, in memory, bounded.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::{FlushError, FlushReport};
use crate::domain::{SliceId, Target};
use crate::limits::{LANDING_ERROR_BYTES_MAX, LANDINGS_KEPT, RISES_MAX};

/// A slice that landed, or did not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Landing {
    /// Its id, Unix ms.
    pub slice: u64,
    /// When its flush ended, by that machine's clock, Unix ms.
    pub finished_at_ms: u64,
    /// Its entries.
    pub entries: u64,
    /// Rows that were written.
    pub rows_changed: u64,
    /// Entries that went to quarantine.
    pub quarantined: u64,
    /// How long it took, in ms.
    pub duration_ms: u64,
    /// Why it failed, if it did.
    pub error: Option<String>,
    /// What rose most by it.
    pub rises: Vec<Rise>,
}

/// How much a target rose.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rise {
    /// The target, as `kind:id`.
    pub target: String,
    /// Likes less unlikes.
    pub by: i64,
}

/// The newest landings of a process, oldest first.
#[derive(Debug, Default)]
pub(super) struct Recent(Mutex<VecDeque<Landing>>);

impl Recent {
    /// Notes how the flush of a slice ended that began with one report and left another.
    pub(super) fn note(
        &self,
        slice: SliceId,
        begun: Instant,
        before: &FlushReport,
        after: &FlushReport,
        landed: &Result<Vec<Rise>, FlushError>,
    ) {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        let landing = Landing {
            slice: slice.0,
            finished_at_ms: millis(since_epoch.unwrap_or_default()),
            entries: after.entries - before.entries,
            rows_changed: after.rows_changed - before.rows_changed,
            quarantined: after.quarantined - before.quarantined,
            duration_ms: millis(begun.elapsed()),
            error: landed.as_ref().err().map(text),
            rises: landed.as_ref().ok().cloned().unwrap_or_default(),
        };
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // One that fails again and again stands there once.
        if all
            .back()
            .is_some_and(|last| last.slice == landing.slice && last.error.is_some())
        {
            all.pop_back();
        }
        if all.len() >= LANDINGS_KEPT {
            all.pop_front();
        }
        all.push_back(landing);
    }

    pub(super) fn newest(&self, most: usize) -> Vec<Landing> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().rev().take(most).cloned().collect()
    }
}

impl super::Flusher {
    /// What this process flushed lately, newest first.
    pub fn landings(&self, most: usize) -> Vec<Landing> {
        self.recent.newest(most)
    }
}

fn millis(length: std::time::Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

fn text(error: &FlushError) -> String {
    let mut text = error.to_string();
    let mut cut = text.len().min(LANDING_ERROR_BYTES_MAX);
    while !text.is_char_boundary(cut) {
        cut -= 1;
    }
    text.truncate(cut);
    text
}

/// What rises most, of entries that are in the order of their targets. One pass, and no memory but for the answer.
pub(super) fn rises<'a>(thumbs: impl Iterator<Item = (&'a Target, bool)>) -> Vec<Rise> {
    let mut most: Vec<(i64, &Target)> = Vec::with_capacity(RISES_MAX + 1);
    let mut keep = |by: i64, target| {
        let least = most.last().map_or(0, |(by, _)| *by);
        if by > 0 && (most.len() < RISES_MAX || by > least) {
            let at = most.partition_point(|(other, _)| *other >= by);
            most.insert(at, (by, target));
            most.truncate(RISES_MAX);
        }
    };
    let mut run: Option<(i64, &Target)> = None;
    for (target, thumbed) in thumbs {
        let by = if thumbed { 1 } else { -1 };
        run = match run {
            Some((sum, of)) if of == target => Some((sum + by, of)),
            ended => {
                if let Some((sum, of)) = ended {
                    keep(sum, of);
                }
                Some((by, target))
            }
        };
    }
    if let Some((sum, of)) = run {
        keep(sum, of);
    }
    let rise = |(by, target): (i64, &Target)| Rise {
        target: target.to_string(),
        by,
    };
    most.into_iter().map(rise).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_rises_most_stands_first_and_what_falls_does_not_stand_there() {
        let target = |id: usize| Target::parse(&format!("blog:{id:02}")).unwrap();
        let mut thumbs = Vec::new();
        for id in 0..RISES_MAX + 4 {
            thumbs.extend(std::iter::repeat_n((target(id), true), id));
            thumbs.push((target(id), false));
        }
        let rises = rises(thumbs.iter().map(|(target, thumbed)| (target, *thumbed)));
        assert_eq!(rises.len(), RISES_MAX);
        let highest = RISES_MAX + 3;
        assert_eq!(rises[0].target, target(highest).as_str());
        assert_eq!(rises[0].by, highest as i64 - 1);
        assert!(rises.windows(2).all(|pair| pair[0].by > pair[1].by));
        let falling = [(target(1), false), (target(2), true), (target(2), false)];
        let falling = falling.iter().map(|(target, thumbed)| (target, *thumbed));
        assert_eq!(super::rises(falling), []);
    }

    #[test]
    fn a_slice_that_fails_again_stands_there_once_until_it_lands() {
        let recent = Recent::default();
        let (before, mut after) = (FlushReport::default(), FlushReport::default());
        let note = |after: &FlushReport, landed: Result<Vec<Rise>, FlushError>| {
            recent.note(SliceId(7), Instant::now(), &before, after, &landed);
        };
        note(&after, Err(FlushError::Overtaken));
        note(&after, Err(FlushError::Panicked));
        assert_eq!(recent.newest(9).len(), 1);
        after.entries = 3;
        note(&after, Ok(Vec::new()));
        let newest = recent.newest(9);
        assert_eq!((newest.len(), newest[0].entries), (1, 3));
        for _ in 0..2 * LANDINGS_KEPT {
            note(&after, Ok(Vec::new()));
        }
        assert_eq!(recent.newest(usize::MAX).len(), LANDINGS_KEPT);
    }
}
