//! Moves the counts by what the rows really changed, inside the transaction that changed them.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use sqlx::Row;

use super::LedgerError;
use super::session::{Session, Statement};
use super::sized::{Piece, Sized, list};
use super::stage::StageRow;
use crate::limits::CASE_ARMS_MAX;

/// Differences by what the statements have in common (kind, and partition or none) and by target.
#[derive(Debug, Default)]
pub(super) struct Moves<'a> {
    groups: BTreeMap<(u16, Option<u16>), BTreeMap<&'a str, i64>>,
}

impl<'a> Moves<'a> {
    /// Notes that a row changed from `before` to what `row` says.
    pub(super) fn note(&mut self, row: &StageRow<'a>, before: bool, partitions: u16) {
        let difference = i64::from(row.thumbed) - i64::from(before);
        if difference == 0 {
            return;
        }
        let part = (partitions > 1).then_some(Some(row.partition));
        for group in [Some(None), part].into_iter().flatten() {
            *self
                .groups
                .entry((row.kind_id, group))
                .or_default()
                .entry(row.target)
                .or_default() += difference;
        }
    }

    /// The targets whose counts move, by kind.
    pub(super) fn changed(&self) -> BTreeMap<u16, Vec<&'a str>> {
        let whole = self.groups.iter().filter(|((_, part), _)| part.is_none());
        whole
            .map(|((kind_id, _), targets)| {
                let moved = targets.iter().filter(|(_, difference)| **difference != 0);
                (*kind_id, moved.map(|(target, _)| *target).collect())
            })
            .collect()
    }

    /// Writes all differences and says how many counts changed, the parts of partitions not included.
    pub(super) async fn write(&self, session: &mut Session) -> Result<u64, LedgerError> {
        let mut changed = 0;
        for (&(kind_id, partition), targets) in &self.groups {
            let moves: Vec<(&str, i64)> = targets
                .iter()
                .filter(|(_, difference)| **difference != 0)
                .map(|(target, difference)| (*target, *difference))
                .collect();
            match partition {
                None => {
                    WHOLE.write(session, &[kind_id], &moves).await?;
                    changed += moves.len() as u64;
                }
                Some(partition) => PART.write(session, &[kind_id, partition], &moves).await?,
            }
        }
        Ok(changed)
    }
}

/// The statements for one of the two tables of counts. Their first placeholders are the columns that a group has in common.
struct Table {
    lock: Sized,
    insert: Sized,
    update: Sized,
}

static WHOLE: LazyLock<Table> = LazyLock::new(|| Table::new("thumb_count", &["kind_id"]));
static PART: LazyLock<Table> =
    LazyLock::new(|| Table::new("thumb_count_part", &["kind_id", "partition_id"]));

/// Sizes of lists of targets.
const SIZES: [usize; 4] = [1, 8, 64, CASE_ARMS_MAX];

impl Table {
    fn new(table: &str, common: &[&str]) -> Self {
        let columns = common.join(", ");
        let equal = common
            .iter()
            .map(|column| format!("{column} = ?"))
            .collect::<Vec<_>>()
            .join(" AND ");
        let row = format!("({})", list("?", common.len() + 2));
        Self {
            // Which of these targets have a count already. By the primary key, also while a kind has few targets and the
            // ranking index looks cheaper: only the rows that are asked for may be locked.
            // A locking read, so that the answer holds until the commit.
            lock: Sized::new(&SIZES, |size| {
                let targets = list("?", size);
                format!(
                    "SELECT target_id FROM {table} FORCE INDEX (PRIMARY) \
                     WHERE {equal} AND target_id IN ({targets}) FOR UPDATE"
                )
            }),
            // The counts of the others begin with their difference. One that appeared after all is moved.
            insert: Sized::new(&SIZES, |size| {
                let rows = list(&row, size);
                format!(
                    "INSERT INTO {table} ({columns}, target_id, count) VALUES {rows} \
                     ON DUPLICATE KEY UPDATE count = {table}.count + VALUES(count)"
                )
            }),
            // ELSE 0: without it a target without an arm would become NULL.
            update: Sized::new(&SIZES, |size| {
                let arms = "WHEN ? THEN ? ".repeat(size);
                let targets = list("?", size);
                format!(
                    "UPDATE {table} FORCE INDEX (PRIMARY) SET count = count + CASE target_id {arms}ELSE 0 END \
                     WHERE {equal} AND target_id IN ({targets})"
                )
            }),
        }
    }

    async fn write(
        &self,
        session: &mut Session,
        common: &[u16],
        moves: &[(&str, i64)],
    ) -> Result<(), LedgerError> {
        let mut there = Vec::with_capacity(moves.len());
        for piece in self.lock.padded(moves.len(), |at| weight(&moves[at])) {
            let mut statement = bind_common(piece.statement(), common);
            statement = bind_targets(statement, &piece, moves);
            for row in session.fetch_all(statement).await? {
                there.push(row.try_get::<String, _>(0)?);
            }
        }
        there.sort_unstable();
        let (old, new): (Vec<_>, Vec<_>) = moves.iter().partition(|(target, _)| {
            there
                .binary_search_by(|one| one.as_str().cmp(target))
                .is_ok()
        });
        self.update(session, common, &old).await?;
        self.insert(session, common, &new).await
    }

    async fn update(
        &self,
        session: &mut Session,
        common: &[u16],
        moves: &[(&str, i64)],
    ) -> Result<(), LedgerError> {
        for piece in self
            .update
            .padded(moves.len(), |at| 2 * weight(&moves[at]) + 10)
        {
            let mut statement = piece.statement();
            for (target, difference) in &moves[piece.range.clone()] {
                statement = statement.bind(*target).bind(*difference);
            }
            for _ in 0..piece.padding {
                statement = statement.bind("").bind(0_i64);
            }
            statement = bind_targets(bind_common(statement, common), &piece, moves);
            session.execute(statement).await?;
        }
        Ok(())
    }

    async fn insert(
        &self,
        session: &mut Session,
        common: &[u16],
        moves: &[(&str, i64)],
    ) -> Result<(), LedgerError> {
        for piece in self.insert.exact(moves.len(), |at| weight(&moves[at]) + 18) {
            let mut statement = piece.statement();
            for (target, difference) in &moves[piece.range.clone()] {
                statement = bind_common(statement, common)
                    .bind(*target)
                    .bind(*difference);
            }
            session.execute(statement).await?;
        }
        Ok(())
    }
}

/// A target as an argument: its length, its bytes and two of type.
fn weight((target, _): &(&str, i64)) -> usize {
    target.len() + 3
}

fn bind_common(mut statement: Statement, common: &[u16]) -> Statement {
    for number in common {
        statement = statement.bind(*number);
    }
    statement
}

/// Binds a piece's targets; '' is no target.
fn bind_targets(mut statement: Statement, piece: &Piece<'_>, moves: &[(&str, i64)]) -> Statement {
    for (target, _) in &moves[piece.range.clone()] {
        statement = statement.bind(*target);
    }
    for _ in 0..piece.padding {
        statement = statement.bind("");
    }
    statement
}
