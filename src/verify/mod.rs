//! A check that only reads: stored counts against rows, and what is resident in Redis against rows and unflushed entries.
//!
//! The system may be live meanwhile, and nothing is locked. So a key that differs is read again, together with everything
//! that it is compared with, and is reported only if the same difference stays; see `residents`.

mod compare;
mod residents;
mod unflushed;

use crate::hot::{Hot, HotError};
use crate::ledger::{Layout, Ledger, LedgerError};
use residents::Walk;

/// Differences that are listed; all are counted.
const DIFFERENCES_MAX: usize = 1000;

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A stored count, with rows.
    StoredCount,
    /// A resident user, with rows and unflushed entries.
    ResidentUser,
    /// A resident count, with rows and unflushed entries.
    ResidentCount,
    /// An entry of a slice that no script of thumbd writes.
    SliceEntry,
}

impl Place {
    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::StoredCount => "count in the database",
            Self::ResidentUser => "user in Redis",
            Self::ResidentCount => "count in Redis",
            Self::SliceEntry => "entry of a slice",
        }
    }
}

/// Something that is not as it must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// What was compared.
    pub place: Place,
    /// The partition, if it belongs to one.
    pub partition: Option<u16>,
    /// Which count, or which user's like of what.
    pub key: String,
    /// What is there.
    pub found: String,
    /// What should be there.
    pub expected: String,
}

/// What a check found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Rows looked at.
    pub rows: u64,
    /// Targets with rows.
    pub targets: u64,
    /// Resident users compared.
    pub users: u64,
    /// Resident counts compared.
    pub counts: u64,
    /// Keys that changed each time they were looked at: neither right nor wrong.
    pub unsettled: u64,
    /// Partitions that are not initialised: nothing is resident there.
    pub partitions_empty: u64,
    /// Differences in all.
    pub differences_total: u64,
    /// The first of them.
    pub differences: Vec<Difference>,
}

impl Report {
    fn note(&mut self, difference: Difference) {
        self.differences_total += 1;
        if self.differences.len() < DIFFERENCES_MAX {
            self.differences.push(difference);
        }
    }
}

/// How far a check has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Comparing stored counts with rows.
    Rows {
        /// Rows looked at.
        seen: u64,
        /// Rows there are, by the database's estimate.
        estimate: u64,
    },
    /// Comparing residents.
    Residents {
        /// The partition.
        partition: u16,
        /// Users and counts compared, in all partitions.
        seen: u64,
    },
}

/// Why a check could not be made.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// Redis.
    #[error("redis")]
    Hot(#[from] HotError),
    /// MySQL.
    #[error("database")]
    Ledger(#[from] LedgerError),
}

/// Compares everything once.
pub async fn run(
    hot: &Hot,
    ledger: &Ledger,
    layout: &Layout,
    mut on_progress: impl FnMut(Progress),
) -> Result<Report, VerifyError> {
    // Under another layout every partition's part would differ.
    if let Some(stored) = ledger.flush_state().await?.layout
        && stored != *layout
    {
        let wanted = layout.clone();
        return Err(LedgerError::LayoutChanged { stored, wanted }.into());
    }
    let mut report = Report::default();
    audit(ledger, &mut report, &mut on_progress).await?;
    for partition in 0..hot.partitions() {
        let walk = Walk {
            hot,
            ledger,
            partition,
        };
        walk.run(&mut report, &mut on_progress).await?;
    }
    Ok(report)
}

async fn audit(
    ledger: &Ledger,
    report: &mut Report,
    on_progress: &mut impl FnMut(Progress),
) -> Result<(), VerifyError> {
    let audit = ledger
        .audit_counts(|seen, estimate| on_progress(Progress::Rows { seen, estimate }))
        .await?;
    report.rows = audit.rows_seen;
    report.targets = audit.targets_seen;
    let unlisted = audit.differences_total - audit.differences.len() as u64;
    for one in audit.differences {
        report.note(Difference {
            place: Place::StoredCount,
            partition: one.partition,
            key: one.target,
            found: one
                .stored
                .map_or("none".to_owned(), |stored| stored.to_string()),
            expected: one.rows.to_string(),
        });
    }
    report.differences_total += unlisted;
    Ok(())
}
