//! The end of a run: everybody is gone, the clocks go on, the flush runs a few times. Then all must be at rest and agree.

use thumbd::domain::SliceId;
use thumbd::domain::partition_of;
use thumbd::flush::Upto;
use thumbd::hot::{Resident, ScanCursor};

use super::schedule::Run;
use super::world::Instance;

impl Run<'_> {
    pub(super) async fn settle(&mut self) {
        self.step += 1;
        self.world.jump(None, 100_000_000).await;
        let instance = self.world.instance().await;
        for turn in 0..4 {
            match instance.flusher.run(|| Upto::Now).await {
                Ok(report) => self.trace(format!("settling: {report:?}")),
                Err(error) => {
                    self.trace(format!("settling: {error}"));
                    assert!(
                        turn < 2 && self.scenario.damages(),
                        "A FLUSH FAILED at rest: {error}"
                    );
                }
            }
        }
        self.check_rows().await;
        for partition in 0..self.world.partitions {
            self.check_partition(&instance, partition).await;
        }
        self.world.give_back(instance);
    }

    async fn check_rows(&mut self) {
        let rows = self.world.rows().await;
        if self.scenario.damages() {
            self.damage.check(&rows, self.scenario.likes_only);
            self.truth.pairs = rows;
        } else {
            for (pair, want) in &self.truth.pairs {
                let row = rows.get(pair);
                let pruned = self.scenario.prune && row.is_none() && !want.0;
                assert!(
                    row == Some(want) || pruned,
                    "LOST OPERATION: {} {}",
                    pair.0,
                    pair.1
                );
            }
            let truth = &self.truth.pairs;
            assert!(
                rows.keys().all(|pair| truth.contains_key(pair)),
                "ROWS OF NOBODY"
            );
        }
        let audit = self.world.ledger.audit_counts(|_, _| ()).await.unwrap();
        assert_eq!(audit.differences_total, 0, "COUNT IS NOT ROWS: {audit:?}");
    }

    async fn check_partition(&mut self, instance: &Instance, partition: u16) {
        let peek = instance.hot.peek(partition).await.unwrap();
        assert!(peek.live.is_empty(), "SLICES LEFT: {:?}", peek.live);
        let found = instance.hot.slices_found(partition).await.unwrap();
        assert!(found.is_empty(), "SLICES NOT LISTED: {found:?}");
        for users in [true, false] {
            let mut cursor = ScanCursor::default();
            while !cursor.ended() {
                let page = instance.hot.residents_page(partition, users, &mut cursor);
                let residents = page.await.unwrap();
                for resident in residents {
                    self.check_resident(partition, resident);
                }
            }
        }
        if self.pins_may_stay() {
            return;
        }
        for of in ["user:", "count:"] {
            let keys = self.world.keys(partition, of).await;
            for (key, ttl) in self.world.ttls(keys).await {
                assert!(ttl >= 0, "PINNED FOR EVER: {key}");
            }
        }
    }

    /// A rollback by a moment brings back the fence with the pins: a flusher that had let go of a slice's keys then drops the
    /// slice, and nobody lets go of them again before their next operation. Their values are right all the same.
    fn pins_may_stay(&self) -> bool {
        self.scenario.rollback > 0.0
    }

    fn check_resident(&self, partition: u16, resident: Resident) {
        match resident {
            Resident::User {
                user,
                complete,
                thumbs,
                dirty,
            } => {
                assert!(
                    dirty == SliceId(0) || self.pins_may_stay(),
                    "DIRTY FOR EVER: {user}"
                );
                for ((of, target), (want, _)) in &self.truth.pairs {
                    let held = thumbs.iter().find(|(held, _)| held == target);
                    if of == &user && (complete || held.is_some()) {
                        let have = held.is_some_and(|(_, version)| *version > 0);
                        assert_eq!(have, *want, "WRONG RESIDENT USER: {user} {target}");
                    }
                }
                for (target, version) in thumbs {
                    let state = self.truth.state(&user, &target);
                    assert_eq!(version > 0, state, "WRONG RESIDENT USER: {user} {target}");
                }
            }
            Resident::Count {
                target,
                part,
                dirty,
            } => {
                assert!(
                    dirty == SliceId(0) || self.pins_may_stay(),
                    "DIRTY FOR EVER: {target}"
                );
                let likes = self.truth.pairs.iter().filter(|((user, of), (state, _))| {
                    *state
                        && of == &target
                        && partition_of(user, self.world.partitions) == partition
                });
                assert_eq!(
                    part,
                    likes.count() as i64,
                    "WRONG RESIDENT COUNT: {target} of partition {partition}"
                );
            }
            Resident::Gone { target } => panic!("GONE FOR NOTHING: {target}"),
        }
    }
}
