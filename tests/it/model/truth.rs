//! What is true: the accepted operations, and how states and counts have changed with them.

use std::collections::BTreeMap;

use thumbd::domain::{Target, UserId};
use thumbd::service::Outcome;

use super::actors::Answered;
use super::world::Pairs;

/// Values with the step since which they hold, oldest first.
pub(super) type History<T> = Vec<(u64, T)>;

/// The truth so far.
#[derive(Default)]
pub(super) struct Truth {
    pub(super) pairs: Pairs,
    pub(super) counts: BTreeMap<Target, History<i64>>,
    pub(super) states: BTreeMap<(UserId, Target), History<bool>>,
    /// Reads that ended, for what is never to fall: target, step of the end, count.
    pub(super) reads: Vec<(Target, u64, i64)>,
    pub(super) partitions: u16,
    pub(super) likes_only: bool,
}

impl Truth {
    pub(super) fn state(&self, user: &UserId, target: &Target) -> bool {
        let pair = self.pairs.get(&(user.clone(), target.clone()));
        pair.is_some_and(|(state, _)| *state)
    }

    pub(super) fn count(&self, target: &Target) -> i64 {
        let likes = self.pairs.iter();
        likes
            .filter(|((_, of), (state, _))| of == target && *state)
            .count() as i64
    }

    /// An operation was accepted in this step.
    pub(super) fn accept(&mut self, step: u64, pair: (UserId, Target), state: bool, version: u64) {
        if let Some((_, before)) = self.pairs.get(&pair) {
            assert!(
                version > *before,
                "CLOCK WENT BACK: {version} after {before}"
            );
        }
        self.pairs.insert(pair, (state, version));
        self.note(step);
    }

    /// Everything may have changed in this step.
    pub(super) fn note(&mut self, step: u64) {
        let mut counts: BTreeMap<&Target, i64> = self.counts.keys().map(|of| (of, 0)).collect();
        for ((_, target), (state, _)) in &self.pairs {
            *counts.entry(target).or_default() += i64::from(*state);
        }
        let changed: Vec<(Target, i64)> = counts
            .into_iter()
            .filter(|(target, now)| {
                let history = self.counts.get(*target);
                history.and_then(|all| all.last()).map_or(0, |last| last.1) != *now
            })
            .map(|(target, now)| (target.clone(), now))
            .collect();
        for (target, now) in changed {
            self.counts.entry(target).or_default().push((step, now));
        }
        let gone: Vec<_> = self
            .states
            .keys()
            .filter(|pair| !self.pairs.contains_key(*pair))
            .cloned()
            .collect();
        let all = self.pairs.iter().map(|(pair, one)| (pair.clone(), one.0));
        for (pair, now) in all.chain(gone.into_iter().map(|pair| (pair, false))) {
            let history = self.states.entry(pair).or_default();
            if history.last().is_some_and(|last| last.1) != now {
                history.push((step, now));
            }
        }
    }

    /// The answer to a client that has come to its end.
    pub(super) fn check_outcome(
        &self,
        step: u64,
        wanted: bool,
        target: &Target,
        answered: Answered,
        outcome: Outcome,
    ) {
        assert_eq!(
            outcome.changed, answered.accepted,
            "WRONG ANSWER: changed, but the partition's clock says otherwise"
        );
        assert_eq!(
            outcome.changed,
            answered.state_before != wanted,
            "WRONG ANSWER: the state was {} before, {wanted} was wanted",
            answered.state_before
        );
        if self.partitions == 1 {
            assert_eq!(
                outcome.count,
                Some(answered.count_after),
                "WRONG COUNT IN AN ANSWER"
            );
        } else if let Some(count) = outcome.count {
            self.check_count(answered.step, step, target, count);
        }
    }

    /// A count that was read between two steps.
    pub(super) fn check_count(&self, began: u64, ended: u64, target: &Target, count: i64) {
        let (values, changes) = window(self.counts.get(target), began, ended);
        // Partitions are read one after the other: likes alone cannot leave the range, likes and unlikes by each change once.
        let slack = if self.likes_only || self.partitions == 1 {
            0
        } else {
            changes
        };
        let low = values.iter().min().copied().unwrap_or_default() - slack;
        let high = values.iter().max().copied().unwrap_or_default() + slack;
        assert!(
            (low..=high).contains(&count),
            "WRONG READ: {target} is {count}, was within {low}..={high}"
        );
    }

    /// A state that was read between two steps.
    pub(super) fn check_state(
        &self,
        began: u64,
        ended: u64,
        user: &UserId,
        target: &Target,
        liked: bool,
    ) {
        let history = self.states.get(&(user.clone(), target.clone()));
        let (values, _) = window(history, began, ended);
        assert!(
            values.contains(&liked),
            "WRONG READ: {user} {target} is {liked}, was {values:?}"
        );
    }

    /// Under likes alone a later read never sees less.
    pub(super) fn check_growth(&mut self, began: u64, ended: u64, target: &Target, count: i64) {
        for (of, before, less) in &self.reads {
            assert!(
                of != target || *before > began || *less <= count,
                "A READ WENT DOWN: {target} from {less} to {count}"
            );
        }
        self.reads.push((target.clone(), ended, count));
    }
}

/// All values that held at some moment after step `began` and up to `ended`, and how often they changed.
fn window<T: Copy + Default>(
    history: Option<&History<T>>,
    began: u64,
    ended: u64,
) -> (Vec<T>, i64) {
    let history = history.map(Vec::as_slice).unwrap_or_default();
    let before = history.iter().rev().find(|(step, _)| *step <= began);
    let mut values = vec![before.map(|(_, value)| *value).unwrap_or_default()];
    let after = history
        .iter()
        .filter(|(step, _)| (began + 1..=ended).contains(step));
    values.extend(after.map(|(_, value)| *value));
    let changes = values.len() as i64 - 1;
    (values, changes)
}
