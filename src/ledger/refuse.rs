//! Finds the entries that MySQL refuses: tries halves of a chunk in transactions that are rolled back, until each refused entry stands alone.

use super::apply::{self, Refused, Rules};
use super::session::Session;
use super::{LedgerError, state};
use crate::domain::Entry;
use crate::limits::REFUSED_ENTRIES_MAX;

/// Bytes of a reason that are kept.
const REASON_BYTES_MAX: usize = 255;

/// The entries among the wanted ones that are refused by themselves. Costs some twenty transactions for each.
pub(super) async fn find(
    session: &mut Session,
    entries: &[(u16, Entry)],
    known: impl Fn(usize) -> bool,
) -> Result<Refused, LedgerError> {
    let mut found = Refused::new();
    let whole = 0..entries.len();
    let mut ranges = vec![whole];
    while let Some(range) = ranges.pop() {
        let wanted = |at: usize| range.contains(&at) && !known(at);
        let reason = match attempt(session, entries, wanted).await {
            Ok(()) => continue,
            Err(LedgerError::Refused(error)) => reason(&error),
            Err(error) => return Err(error),
        };
        if range.len() > 1 {
            let middle = range.start + range.len() / 2;
            ranges.extend([middle..range.end, range.start..middle]);
        } else {
            if found.len() == REFUSED_ENTRIES_MAX {
                return Err(LedgerError::TooManyRefused {
                    limit: REFUSED_ENTRIES_MAX,
                    reason,
                });
            }
            found.insert(range.start, reason);
        }
    }
    Ok(found)
}

/// Does all that applying these entries does, and takes it back.
async fn attempt(
    session: &mut Session,
    entries: &[(u16, Entry)],
    wanted: impl Fn(usize) -> bool,
) -> Result<(), LedgerError> {
    let rows = apply::prepare(session, entries, wanted).await?;
    if rows.is_empty() {
        return Ok(());
    }
    session.begin("START TRANSACTION").await?;
    let result = async {
        let state = state::read(session, true).await?;
        let partitions = state.layout.map_or(1, |layout| layout.partitions);
        // What is void or below the horizon is left out by whoever applies.
        let written = apply::write(session, &rows, partitions, Rules::default());
        written.await.map(drop)
    }
    .await;
    session.rollback().await;
    result
}

/// What MySQL says, cut to what is kept.
fn reason(error: &sqlx::Error) -> String {
    let text = match error {
        sqlx::Error::Database(database) => database.message(),
        _ => "refused",
    };
    let mut end = text.len().min(REASON_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}
