//! The staging table: a chunk's entries in a temporary table of the session, so that all of them are compared and upserted
//! by one statement each, however many there are.

use std::sync::LazyLock;

use super::LedgerError;
use super::session::Session;
use super::sized::{Sized, list};
use crate::domain::{Entry, Version};
use crate::limits::STAGE_ROWS_MAX;

/// One entry, ready to be written.
#[derive(Debug, Clone, Copy)]
pub(super) struct StageRow<'a> {
    /// Where the entry stands in its chunk.
    pub(super) at: usize,
    pub(super) user: &'a str,
    pub(super) kind_id: u16,
    pub(super) target: &'a str,
    pub(super) thumbed: bool,
    pub(super) version: Version,
    pub(super) partition: u16,
}

impl<'a> StageRow<'a> {
    pub(super) fn new(at: usize, entry: &'a Entry, partition: u16, kind_id: u16) -> Self {
        Self {
            at,
            user: entry.user.as_str(),
            kind_id,
            target: entry.target.id(),
            thumbed: entry.thumbed,
            version: entry.version,
            partition,
        }
    }

    /// What it weighs as arguments: the ids with their lengths, the numbers, and two bytes of type for each.
    fn bytes(&self) -> usize {
        self.user.len() + self.target.len() + 2 + 4 + 2 + 1 + 8 + 6 * 2
    }

    /// The primary key of its row in `thumb`.
    pub(super) fn key(&self) -> (&'a str, u16, &'a str) {
        (self.user, self.kind_id, self.target)
    }
}

/// In memory, about 300 bytes a row; not part of any transaction, so it is filled once, before the first try.
const CREATE: &str = "CREATE TEMPORARY TABLE IF NOT EXISTS thumb_stage (
    seq INT UNSIGNED NOT NULL,
    user_id VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    kind_id SMALLINT UNSIGNED NOT NULL,
    target_id VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    thumbed TINYINT NOT NULL,
    version BIGINT UNSIGNED NOT NULL
) ENGINE = MEMORY";

static FILL: LazyLock<Sized> = LazyLock::new(|| {
    Sized::new(&[1, 8, 64, 128, STAGE_ROWS_MAX], |size| {
        format!(
            "INSERT INTO thumb_stage (seq, user_id, kind_id, target_id, thumbed, version) VALUES {}",
            list("(?,?,?,?,?,?)", size)
        )
    })
});

/// Empties the staging table and fills it with these rows, numbered from 0.
pub(super) async fn fill(session: &mut Session, rows: &[StageRow<'_>]) -> Result<(), LedgerError> {
    session.text(CREATE).await?;
    clear(session).await?;
    for piece in FILL.exact(rows.len(), |seq| rows[seq].bytes()) {
        let mut statement = piece.statement();
        for seq in piece.range {
            let row = &rows[seq];
            statement = statement
                .bind(seq as u32)
                .bind(row.user)
                .bind(row.kind_id)
                .bind(row.target)
                .bind(row.thumbed)
                .bind(row.version.0);
        }
        session.execute(statement).await?;
    }
    Ok(())
}

/// Empties the staging table, so that an idle connection holds no memory on the server.
pub(super) async fn clear(session: &mut Session) -> Result<(), LedgerError> {
    session.text("DELETE FROM thumb_stage").await
}

/// Lets the staged entries of this version give way to their rows, whatever these say: no row is as old as 0.
pub(super) async fn give_way(session: &mut Session, version: Version) -> Result<(), LedgerError> {
    const GIVE_WAY: &str = "UPDATE thumb_stage AS stage STRAIGHT_JOIN thumb \
        ON thumb.user_id = stage.user_id AND thumb.kind_id = stage.kind_id AND thumb.target_id = stage.target_id \
        SET stage.version = 0 WHERE stage.version = ?";
    let give_way = sqlx::query(GIVE_WAY).bind(version.0);
    session.execute(give_way).await.map(drop)
}
