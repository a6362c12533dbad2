//! All likes that the database has, row by row, in pages: bounded memory, and no lock.

use chrono::{DateTime, SecondsFormat};

use crate::domain::Version;
use crate::ledger::{Ledger, LedgerError, ThumbRow};
use crate::limits::PAGE_ROWS_MAX;

/// Gives the liked rows to `write`, all of them or those of one kind, in the order of the primary key, until it says that it has
/// enough. Each page is as it was at one moment; together they are not.
pub async fn export<E: From<LedgerError>>(
    ledger: &Ledger,
    kind: Option<&str>,
    mut write: impl FnMut(&ThumbRow) -> Result<(), E>,
) -> Result<u64, E> {
    let (mut after, mut count) = (None, 0);
    loop {
        let page = ledger.thumbs_page(after.as_ref(), PAGE_ROWS_MAX).await?;
        let wanted =
            |row: &&ThumbRow| row.thumbed && kind.is_none_or(|kind| row.target.kind() == kind);
        for row in page.rows.iter().filter(wanted) {
            write(row)?;
            count += 1;
        }
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(count),
        }
    }
}

/// A version as a time that reads back as the same version.
pub fn time_text(version: Version) -> String {
    let micros = i64::try_from(version.0).ok();
    match micros.and_then(DateTime::from_timestamp_micros) {
        Some(time) => time.to_rfc3339_opts(SecondsFormat::Micros, true),
        None => version.to_string(),
    }
}
