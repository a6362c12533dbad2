//! Damage to the stores themselves: a Redis that was emptied or rolled back, a MySQL that forgot its last commit.
//!
//! Until damage is recognised and what is unflushed has landed again, nothing is promised; what neither store has is lost.

use std::collections::BTreeMap;

use rand::RngExt;
use thumbd::domain::{Target, UserId, partition_of};
use thumbd::hot::Peek;

use super::schedule::Run;
use super::stores::Snapshot;
use super::world::Pairs;

/// An operation that was accepted.
struct Accepted {
    pair: (UserId, Target),
    step: u64,
    state: bool,
    version: u64,
    lost: bool,
}

/// What was damaged, and what is not mended yet.
#[derive(Default)]
pub(super) struct Damage {
    accepted: Vec<Accepted>,
    /// Partitions that were damaged, with the generation that the damage left.
    partitions: BTreeMap<u16, Option<String>>,
    ledger: bool,
    now: bool,
    last: Option<u64>,
    snapshots: Vec<(u64, u16, Snapshot)>,
}

impl Damage {
    /// Whether anything was damaged since that step.
    pub(super) fn blurs(&self, since: u64) -> bool {
        self.now || self.last.is_some_and(|last| last >= since)
    }

    pub(super) fn accepted(
        &mut self,
        step: u64,
        pair: (UserId, Target),
        state: bool,
        version: u64,
    ) {
        self.accepted.push(Accepted {
            pair,
            step,
            state,
            version,
            lost: false,
        });
    }

    /// No operation may be missing that was not lost with a store.
    pub(super) fn check(&self, rows: &Pairs, likes_only: bool) {
        let mut pairs: BTreeMap<_, Vec<&Accepted>> = BTreeMap::new();
        for one in &self.accepted {
            pairs.entry(&one.pair).or_default().push(one);
        }
        for (pair, all) in pairs {
            // With one lost in between, any state may be the right one.
            if !likes_only && all.iter().any(|one| one.lost) {
                continue;
            }
            let kept = all.into_iter().filter(|one| !one.lost);
            if let Some(want) = kept.max_by_key(|one| one.version) {
                let have = rows.get(pair).is_some_and(|(state, _)| *state);
                assert_eq!(have, want.state, "LOST OPERATION: {} {}", pair.0, pair.1);
            }
        }
    }

    /// Marks what a partition had taken in after a step and MySQL does not have.
    fn lose(&mut self, partition: u16, partitions: u16, after: u64, rows: &Pairs) {
        for one in &mut self.accepted {
            let landed = rows.get(&one.pair).is_some_and(|row| row.1 >= one.version);
            let here = partition_of(&one.pair.0, partitions) == partition;
            one.lost |= here && one.step > after && !landed;
        }
    }
}

impl Run<'_> {
    /// Damages something, now and then.
    pub(super) async fn hurt(&mut self) {
        let partition = self.rng.random_range(0..self.world.partitions);
        if self.rng.random_bool(self.scenario.empty) {
            self.trace(format!("partition {partition} is emptied"));
            self.broken(partition, 0, None).await;
        }
        if self.scenario.rollback > 0.0 && self.rng.random_bool(0.08) {
            let snapshot = self.world.snapshot(partition).await;
            self.damage.snapshots.push((self.step, partition, snapshot));
            if self.damage.snapshots.len() > 6 {
                self.damage.snapshots.remove(0);
            }
        }
        if self.rng.random_bool(self.scenario.rollback) && !self.damage.snapshots.is_empty() {
            let at = self.rng.random_range(0..self.damage.snapshots.len());
            let (step, partition, snapshot) = self.damage.snapshots.swap_remove(at);
            self.trace(format!("partition {partition} is as after step {step}"));
            self.broken(partition, step, Some(snapshot)).await;
        }
        if self.rng.random_bool(self.scenario.forget) && !self.damage.ledger {
            self.forget().await;
        }
        self.clocks = self.world.clocks().await;
    }

    async fn broken(&mut self, partition: u16, step: u64, snapshot: Option<Snapshot>) {
        self.totals.damages += 1;
        let rows = self.world.rows().await;
        self.damage
            .lose(partition, self.world.partitions, step, &rows);
        self.world.restore(partition, snapshot).await;
        let peek = self.world.observer.peek(partition).await.unwrap();
        self.damage.partitions.insert(partition, peek.generation);
        self.damage.snapshots.retain(|(_, of, _)| *of != partition);
    }

    async fn forget(&mut self) {
        let newer = self.world.rows().await;
        if !self.world.forget().await {
            return;
        }
        self.totals.damages += 1;
        self.trace("MySQL forgets its last commit".to_owned());
        self.damage.ledger = true;
        let older = self.world.rows().await;
        let mut held = Pairs::new();
        for of in ["slice:", "kept:"] {
            newest(&mut held, self.world.entries(of).await);
        }
        for (pair, (_, version)) in newer {
            let stands = |pairs: &Pairs| pairs.get(&pair).is_some_and(|one| one.1 >= version);
            if !stands(&older) && !stands(&held) {
                // Redis has lost it too, in another fault.
                for one in &mut self.damage.accepted {
                    one.lost |= one.pair == pair && one.version == version;
                }
            }
        }
    }

    /// Looks what is true now, and whether everything is mended.
    pub(super) async fn watch(&mut self) {
        if !self.scenario.damages() {
            return;
        }
        if self.scenario.forget > 0.0 {
            self.world.remember().await;
        }
        let state = self.world.flush_state().await;
        let mut peeks: Vec<Peek> = Vec::new();
        for partition in 0..self.world.partitions {
            peeks.push(self.world.observer.peek(partition).await.unwrap());
        }
        let waits = |peek: &Peek| {
            peek.done > state.landed || peek.live.first().is_some_and(|one| *one <= peek.sealed)
        };
        self.damage.ledger &= peeks.iter().any(waits);
        self.damage
            .partitions
            .retain(|partition, left| peeks[usize::from(*partition)].generation == *left);
        let wrong = |peek: &Peek| {
            peek.generation.is_none()
                || peek.sealed < state.last
                || peek.done < peek.barrier
                || peek.done > state.landed
        };
        self.damage.now =
            self.damage.ledger || !self.damage.partitions.is_empty() || peeks.iter().any(wrong);
        if self.damage.now {
            self.damage.last = Some(self.step);
        }
        let mut pairs = self.world.rows().await;
        newest(&mut pairs, self.world.entries("slice:").await);
        self.truth.pairs = pairs;
        self.truth.note(self.step);
    }
}

/// The last one wins.
fn newest(pairs: &mut Pairs, others: Vec<((UserId, Target), (bool, u64))>) {
    for (pair, other) in others {
        let stands = pairs.entry(pair).or_insert(other);
        if stands.1 < other.1 {
            *stands = other;
        }
    }
}
