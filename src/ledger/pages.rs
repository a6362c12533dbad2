//! All rows and all counts, page by page in the order of their primary keys, for comparing them with Redis.

use std::sync::LazyLock;

use sqlx::{AssertSqlSafe, Row};

use super::cold::target;
use super::{Ledger, LedgerError};
use crate::domain::{Target, UserId, Version};

/// A row of `thumb`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThumbRow {
    /// Who.
    pub user: UserId,
    /// What.
    pub target: Target,
    /// Liked, or taken back.
    pub thumbed: bool,
    /// When.
    pub version: Version,
}

/// A stored count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountRow {
    /// What.
    pub target: Target,
    /// How many like it.
    pub count: i64,
}

/// Some rows, and where to go on; `None` at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<R, C> {
    /// The rows.
    pub rows: Vec<R>,
    /// Where the next page begins.
    pub next: Option<C>,
}

/// A place in `thumb`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ThumbCursor {
    user_id: String,
    kind_id: u16,
    target_id: String,
}

/// A place in `thumb_count`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CountCursor {
    kind_id: u16,
    target_id: String,
}

/// Three ranges of the primary key, each in its order: the rest of the kind, of the user, of the table. Each begins where
/// it must, however many rows a user has; a row constructor comparison or an OR would not everywhere.
static THUMBS: LazyLock<String> = LazyLock::new(|| {
    [
        "thumb.user_id = ? AND thumb.kind_id = ? AND thumb.target_id > ?",
        "thumb.user_id = ? AND thumb.kind_id > ?",
        "thumb.user_id > ?",
    ]
    .iter()
    .enumerate()
    .map(|(part, range)| {
        format!(
            "(SELECT STRAIGHT_JOIN {part} AS part, thumb.user_id, thumb.kind_id, kind.name, thumb.target_id, \
             thumb.thumbed, thumb.version \
             FROM thumb FORCE INDEX (PRIMARY) JOIN kind ON kind.kind_id = thumb.kind_id \
             WHERE {range} ORDER BY thumb.user_id, thumb.kind_id, thumb.target_id LIMIT ?)"
        )
    })
    .collect::<Vec<_>>()
    .join(" UNION ALL ")
        + " ORDER BY part, user_id, kind_id, target_id LIMIT ?"
});

/// The same for counts, with two ranges.
static COUNTS: LazyLock<String> = LazyLock::new(|| {
    [
        "one.kind_id = ? AND one.target_id > ?",
        "one.kind_id > ?",
    ]
    .iter()
    .enumerate()
    .map(|(part, range)| {
        format!(
            "(SELECT STRAIGHT_JOIN {part} AS part, one.kind_id, kind.name, one.target_id, one.count \
             FROM thumb_count AS one FORCE INDEX (PRIMARY) JOIN kind ON kind.kind_id = one.kind_id \
             WHERE {range} ORDER BY one.kind_id, one.target_id LIMIT ?)"
        )
    })
    .collect::<Vec<_>>()
    .join(" UNION ALL ")
        + " ORDER BY part, kind_id, target_id LIMIT ?"
});

impl Ledger {
    /// Up to `limit` rows of `thumb` behind `after`, or from the start.
    pub async fn thumbs_page(
        &self,
        after: Option<&ThumbCursor>,
        limit: u64,
    ) -> Result<Page<ThumbRow, ThumbCursor>, LedgerError> {
        let from = after.cloned().unwrap_or_default();
        let statement = sqlx::query(AssertSqlSafe(THUMBS.as_str()))
            .bind(from.user_id.clone())
            .bind(from.kind_id)
            .bind(from.target_id)
            .bind(limit)
            .bind(from.user_id.clone())
            .bind(from.kind_id)
            .bind(limit)
            .bind(from.user_id)
            .bind(limit)
            .bind(limit);
        let found = self.session().await?.fetch_all(statement).await?;
        let mut rows = Vec::with_capacity(found.len());
        for row in &found {
            let thumbed: i8 = row.try_get(5)?;
            rows.push(ThumbRow {
                user: UserId::parse(row.try_get::<&str, _>(1)?).map_err(LedgerError::Row)?,
                target: target(row.try_get(3)?, row.try_get(4)?).map_err(LedgerError::Row)?,
                thumbed: thumbed != 0,
                version: Version(row.try_get(6)?),
            });
        }
        let next = match found.last() {
            Some(row) if found.len() as u64 == limit => Some(ThumbCursor {
                user_id: row.try_get(1)?,
                kind_id: row.try_get(2)?,
                target_id: row.try_get(4)?,
            }),
            _ => None,
        };
        Ok(Page { rows, next })
    }

    /// Up to `limit` stored counts behind `after`, or from the start.
    pub async fn counts_page(
        &self,
        after: Option<&CountCursor>,
        limit: u64,
    ) -> Result<Page<CountRow, CountCursor>, LedgerError> {
        let from = after.cloned().unwrap_or_default();
        let statement = sqlx::query(AssertSqlSafe(COUNTS.as_str()))
            .bind(from.kind_id)
            .bind(from.target_id)
            .bind(limit)
            .bind(from.kind_id)
            .bind(limit)
            .bind(limit);
        let found = self.session().await?.fetch_all(statement).await?;
        let mut rows = Vec::with_capacity(found.len());
        for row in &found {
            rows.push(CountRow {
                target: target(row.try_get(2)?, row.try_get(3)?).map_err(LedgerError::Row)?,
                count: row.try_get(4)?,
            });
        }
        let next = match found.last() {
            Some(row) if found.len() as u64 == limit => Some(CountCursor {
                kind_id: row.try_get(1)?,
                target_id: row.try_get(3)?,
            }),
            _ => None,
        };
        Ok(Page { rows, next })
    }
}
