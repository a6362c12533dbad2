//! Columns of the site's own that are set to the counts of a kind's targets, in the transaction that moves the counts.
//!
//! Which columns these are stands in `thumb_mirror`, and is read in each such transaction while `flush_state` is locked: so every
//! process sets them, whatever its own settings say, and none sets one that was taken away (`stored`).
//!
//! The column is set to the count and not moved by a difference, so whoever sets it again changes nothing. A target without a row
//! there is nobody's fault; any other failure fails the transaction, because a mirror that silently stays behind is worse than none.

mod column;
mod look;
mod stored;

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

use sqlx::Row as _;

pub use column::MirrorColumn;
pub(in crate::ledger) use stored::Mirrors;

use super::session::Session;
use super::sized::{Piece, Sized, list};
use super::{Ledger, LedgerError, apply, kinds, state};
use crate::limits::CASE_ARMS_MAX;
use crate::telemetry::names;

/// Sizes of lists of ids.
const SIZES: [usize; 4] = [1, 8, 64, CASE_ARMS_MAX];

/// The counts of targets, as they are in this transaction.
static COUNTS: LazyLock<Sized> = LazyLock::new(|| {
    Sized::new(&SIZES, |size| {
        format!(
            "SELECT target_id, count FROM thumb_count FORCE INDEX (PRIMARY) \
             WHERE kind_id = ? AND target_id IN ({})",
            list("?", size)
        )
    })
});

/// Targets by the number of their kind, in order.
pub(super) type Changed<'a> = BTreeMap<u16, Vec<&'a str>>;

/// How many targets of a kind have no row in the site's table.
pub(super) type Missing = Vec<(String, u64)>;

/// A piece's items; the places that are left over take the last one again, which changes nothing.
fn padded<'a, T>(piece: &Piece<'_>, items: &'a [T]) -> impl Iterator<Item = &'a T> {
    let last = piece.range.end - 1;
    let padding = std::iter::repeat_n(&items[last], piece.padding);
    items[piece.range.clone()].iter().chain(padding)
}

fn failed(kind: &str, table: &str, error: LedgerError, problem: &str) -> LedgerError {
    let (problem, source) = match error {
        LedgerError::Busy(_) | LedgerError::Unavailable(_) | LedgerError::Timeout(_) => {
            return error;
        }
        // MySQL does not tell those who may not know.
        LedgerError::Denied(error) => (format!("it is not there, or {problem}"), Some(error)),
        LedgerError::Refused(error) | LedgerError::Database(error) => {
            (problem.to_owned(), Some(error))
        }
        _ => ("there is no such table or column".to_owned(), None),
    };
    LedgerError::Mirror {
        kind: kind.to_owned(),
        table: table.to_owned(),
        problem,
        source,
    }
}

/// Sets the mirrors of these targets to their counts, within the transaction that changed them and has `flush_state` locked.
pub(super) async fn copy(
    session: &mut Session,
    mirrors: &Mirrors,
    changed: &Changed<'_>,
) -> Result<Missing, LedgerError> {
    let mut without_row = Missing::new();
    if changed.is_empty() {
        return Ok(without_row);
    }
    let looked = mirrors.current(session).await?;
    if looked.columns.is_empty() {
        return Ok(without_row);
    }
    let names = looked.columns.iter().map(|column| column.kind.as_str());
    let numbers = kinds::read(session, &names.collect::<Vec<_>>()).await?;
    for column in &looked.columns {
        let kind_id = numbers.get(&column.kind).copied();
        let targets = kind_id.and_then(|kind_id| changed.get(&kind_id));
        if let Some(targets) = targets {
            let count = copy_counts(session, column, kind_id, targets).await?;
            without_row.push((column.kind.clone(), count));
        }
    }
    Ok(without_row)
}

/// Sets one mirror; a kind without a number has no likes yet.
async fn copy_counts(
    session: &mut Session,
    column: &MirrorColumn,
    kind_id: Option<u16>,
    targets: &[&str],
) -> Result<u64, LedgerError> {
    let counts = match kind_id {
        Some(kind_id) => counts(session, kind_id, targets).await?,
        None => HashMap::new(),
    };
    let counts: Vec<(&str, i64)> = targets
        .iter()
        .map(|target| (*target, counts.get(*target).copied().unwrap_or(0)))
        .collect();
    let copied = column.copy(session, &counts).await;
    copied.map_err(|error| column.failed(error))
}

/// Counts the targets without a row, once their transaction has committed.
pub(super) fn note(missing: Missing) {
    for (kind, count) in missing {
        metrics::counter!(names::MIRROR_MISSING, "kind" => kind).increment(count);
    }
}

/// The stored counts of these targets; one that has none is left out.
pub(super) async fn counts(
    session: &mut Session,
    kind_id: u16,
    targets: &[&str],
) -> Result<HashMap<String, i64>, LedgerError> {
    let mut counts = HashMap::with_capacity(targets.len());
    for piece in COUNTS.padded(targets.len(), |at| targets[at].len() + 3) {
        let mut statement = piece.statement().bind(kind_id);
        for target in padded(&piece, targets) {
            statement = statement.bind((*target).to_owned());
        }
        for row in session.fetch_all(statement).await? {
            counts.insert(row.try_get(0)?, row.try_get(1)?);
        }
    }
    Ok(counts)
}

impl Ledger {
    /// Sets the mirror of some targets of a kind to their counts.
    pub async fn mirror_set(&self, kind: &str, ids: &[&str]) -> Result<(), LedgerError> {
        let mut session = self.session().await?;
        let mut tries = 1;
        loop {
            match set(&mut session, &self.mirrors, kind, ids).await {
                Ok(()) => return Ok(()),
                Err(error) => {
                    session.rollback().await;
                    apply::again(error, &session, &mut tries).await?;
                }
            }
        }
    }
}

async fn set(
    session: &mut Session,
    mirrors: &Mirrors,
    kind: &str,
    ids: &[&str],
) -> Result<(), LedgerError> {
    session.begin("START TRANSACTION").await?;
    // No count moves while this is locked.
    state::read(session, true).await?;
    let looked = mirrors.current(session).await?;
    let column = looked.columns.iter().find(|column| column.kind == kind);
    if let Some(column) = column {
        let numbers = kinds::read(session, &[kind]).await?;
        copy_counts(session, column, numbers.get(kind).copied(), ids).await?;
    }
    session.commit().await
}
