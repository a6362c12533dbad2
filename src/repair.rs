//! Mends what `verify` finds: stored counts become what the rows say, and what is wrong in Redis is let go of, to be loaded again.
//!
//! The rows themselves are the truth and are never touched.

use std::collections::BTreeSet;

use crate::domain::{Kind, Target, UserId};
use crate::flush::{FlushError, Flusher, Upto};
use crate::hot::{Hot, HotError};
use crate::ledger::{CountRepair, Layout, Ledger, LedgerError};
use crate::limits::{REPAIR_TARGETS_MAX, UNPIN_KEYS_MAX};
use crate::moving::{self, Comparison};
use crate::service::new_generation;
use crate::steps;
use crate::verify::{self, Difference, Place, Report, VerifyError};

/// Something that was changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A count in the database.
    Count(CountRepair),
    /// A user in Redis is loaded again.
    User {
        /// The partition.
        partition: u16,
        /// Who.
        user: UserId,
    },
    /// A count in Redis is loaded again.
    Target {
        /// The partition.
        partition: u16,
        /// What.
        target: Target,
    },
    /// What stands in the site's own column.
    Mirror {
        /// The kind.
        kind: Kind,
        /// What differed.
        difference: moving::Difference,
    },
}

/// Why mending ended early. What was mended is mended; it may be begun again.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    /// Redis.
    #[error("redis")]
    Hot(#[from] HotError),
    /// MySQL.
    #[error("database")]
    Ledger(#[from] LedgerError),
    /// The flush before it.
    #[error("flush")]
    Flush(#[from] FlushError),
    /// The comparison.
    #[error("comparison")]
    Verify(#[from] VerifyError),
}

/// Flushes, and then compares and mends until nothing differs or mending does not help. Gives what still differs.
pub async fn run(
    (hot, ledger): (&Hot, &Ledger),
    flusher: &Flusher,
    layout: &Layout,
    mut on_change: impl FnMut(Change),
) -> Result<Report, RepairError> {
    // Little is dirty then, and what cannot be read is in quarantine.
    flusher.run(|| Upto::Now).await?;
    let mut left = u64::MAX;
    loop {
        let report = verify::run(hot, ledger, layout, |_| ()).await?;
        // It must get less with every pass, or something breaks as fast as it is mended.
        let pass = Pass { hot, ledger };
        if report.differences_total == 0 || report.differences_total >= left {
            pass.mirrors(&mut on_change).await?;
            return Ok(report);
        }
        left = report.differences_total;
        pass.counts(&report.differences, &mut on_change).await?;
        pass.residents(&report.differences, &mut on_change).await?;
    }
}

struct Pass<'a> {
    hot: &'a Hot,
    ledger: &'a Ledger,
}

impl Pass<'_> {
    async fn counts(
        &self,
        differences: &[Difference],
        on_change: &mut impl FnMut(Change),
    ) -> Result<(), RepairError> {
        let targets: BTreeSet<&str> = differences
            .iter()
            .filter(|one| one.place == Place::StoredCount)
            .map(|one| one.key.as_str())
            .collect();
        let targets: Vec<String> = targets.into_iter().map(str::to_owned).collect();
        for targets in targets.chunks(REPAIR_TARGETS_MAX) {
            // Of its own each time: whoever takes an older mark away leaves a newer one.
            let token = new_generation();
            let repairs = self.ledger.counts_repair(targets, &token).await?;
            steps::point("repair.counted").await;
            // What is no target was written by hand, and is not in Redis.
            let targets: Vec<Target> = targets
                .iter()
                .filter_map(|target| Target::parse(target).ok())
                .collect();
            for partition in 0..self.hot.partitions() {
                self.hot.forget(partition, &[], &targets).await?;
                steps::point("repair.forgotten").await;
            }
            self.ledger.outside_clear(&token).await?;
            for repair in repairs {
                on_change(Change::Count(repair));
            }
        }
        Ok(())
    }

    /// The site's own columns become what the counts say.
    async fn mirrors(&self, on_change: &mut impl FnMut(Change)) -> Result<(), RepairError> {
        for (name, mirror) in self.ledger.mirrors().await? {
            // What is no kind was written by hand.
            let Ok(kind) = Kind::parse(name.as_str()) else {
                continue;
            };
            let column = self.ledger.mirror_open(&name, &mirror).await?;
            let mut comparison = Comparison::new(self.ledger, kind.clone(), column);
            while let Some(differences) = comparison.next().await? {
                let ids: Vec<&str> = differences.iter().map(|one| one.id.as_str()).collect();
                if ids.is_empty() {
                    continue;
                }
                self.ledger.mirror_set(&name, &ids).await?;
                for difference in differences {
                    let kind = kind.clone();
                    on_change(Change::Mirror { kind, difference });
                }
            }
        }
        Ok(())
    }

    async fn residents(
        &self,
        differences: &[Difference],
        on_change: &mut impl FnMut(Change),
    ) -> Result<(), RepairError> {
        for partition in 0..self.hot.partitions() {
            let keys = |place| {
                differences
                    .iter()
                    .filter(move |one| one.place == place && one.partition == Some(partition))
                    .map(|one| one.key.as_str())
            };
            let users: BTreeSet<UserId> = keys(Place::ResidentUser)
                .filter_map(|key| UserId::parse(key.split(' ').next()?).ok())
                .collect();
            let targets: BTreeSet<Target> = keys(Place::ResidentCount)
                .filter_map(|key| Target::parse(key).ok())
                .collect();
            let (users, targets) = (Vec::from_iter(users), Vec::from_iter(targets));
            for users in users.chunks(UNPIN_KEYS_MAX) {
                self.hot.forget(partition, users, &[]).await?;
                for user in users.iter().cloned() {
                    on_change(Change::User { partition, user });
                }
            }
            for targets in targets.chunks(UNPIN_KEYS_MAX) {
                self.hot.forget(partition, &[], targets).await?;
                for target in targets.iter().cloned() {
                    on_change(Change::Target { partition, target });
                }
            }
        }
        Ok(())
    }
}
