//! One column of the site's own: how its ids are compared, read and set.

use std::collections::HashMap;
use std::sync::Arc;

use sqlx::{AssertSqlSafe, Row as _};

use super::look::quoted;
use super::{SIZES, failed, padded};
use crate::config::Mirror;
use crate::ledger::session::{Session, Statement};
use crate::ledger::sized::{Sized, list};
use crate::ledger::{Ledger, LedgerError};

/// What the ids of a column can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ids {
    Signed { max: i64 },
    Unsigned { max: u64 },
    Text,
}

/// A mirror whose table has been looked at.
#[derive(Debug)]
pub struct MirrorColumn {
    pub(super) kind: String,
    table: String,
    ids: Ids,
    find: Sized,
    update: Sized,
    first: Arc<str>,
    next: Arc<str>,
}

impl Ids {
    /// By the names that information_schema gives.
    pub(super) fn of(data_type: &str, column_type: &str) -> Option<Self> {
        let bits = match data_type {
            "tinyint" => 8,
            "smallint" => 16,
            "mediumint" => 24,
            "int" => 32,
            "bigint" => 64,
            "char" | "varchar" | "varbinary" => return Some(Self::Text),
            _ => return None,
        };
        Some(if column_type.contains("unsigned") {
            Self::Unsigned {
                max: u64::MAX >> (64 - bits),
            }
        } else {
            Self::Signed {
                max: i64::MAX >> (64 - bits),
            }
        })
    }

    /// Whether an id can stand in the column. MySQL would take `42abc` and `042` for 42.
    fn takes(self, id: &str) -> bool {
        match self {
            Self::Text => true,
            Self::Signed { max } => id
                .parse::<i64>()
                .is_ok_and(|number| (-max - 1..=max).contains(&number) && number.to_string() == id),
            Self::Unsigned { max } => id
                .parse::<u64>()
                .is_ok_and(|number| number <= max && number.to_string() == id),
        }
    }

    /// Binds an id that is taken, as the column's type: so the index is used.
    fn bind(self, statement: Statement, id: &str) -> Statement {
        match self {
            Self::Text => statement.bind(id.to_owned()),
            Self::Signed { .. } => statement.bind(id.parse::<i64>().unwrap_or_default()),
            Self::Unsigned { .. } => statement.bind(id.parse::<u64>().unwrap_or_default()),
        }
    }

    /// The same for a comparison byte by byte: `Ab` is not `ab`, whatever the column's collation says.
    fn bind_exact(self, statement: Statement, id: &str) -> Statement {
        match self {
            Self::Text => statement.bind(id.as_bytes().to_vec()),
            _ => self.bind(statement, id),
        }
    }
}

impl MirrorColumn {
    pub(super) fn new(kind: &str, mirror: &Mirror, ids: Ids) -> Self {
        let (table, id, count) = quoted(mirror);
        // As bytes, whatever character set the column has.
        let text = match ids {
            Ids::Text => format!("CAST(CONVERT({id} USING utf8mb4) AS BINARY)"),
            _ => format!("CAST(CAST({id} AS CHAR) AS BINARY)"),
        };
        let exact = if ids == Ids::Text { &text } else { &id };
        let select = format!("SELECT {text}, CAST(COALESCE({count}, 0) AS SIGNED) FROM {table}");
        Self {
            kind: kind.to_owned(),
            ids,
            find: Sized::new(&SIZES, |size| {
                format!("{select} WHERE {id} IN ({})", list("?", size))
            }),
            // ELSE: the list compares by the column's collation and finds more than is meant.
            update: Sized::new(&SIZES, |size| {
                let arms = "WHEN ? THEN ? ".repeat(size);
                let ids = list("?", size);
                format!(
                    "UPDATE {table} SET {count} = CASE {exact} {arms}ELSE {count} END WHERE {id} IN ({ids})"
                )
            }),
            first: format!("{select} WHERE {id} IS NOT NULL ORDER BY {id} LIMIT ?").into(),
            next: format!("{select} WHERE {id} > ? ORDER BY {id} LIMIT ?").into(),
            table,
        }
    }

    /// Sets what stands beside these ids to their counts; gives how many have no row.
    pub(super) async fn copy(
        &self,
        session: &mut Session,
        counts: &[(&str, i64)],
    ) -> Result<u64, LedgerError> {
        let ids: Vec<&str> = counts.iter().map(|(id, _)| *id).collect();
        let there = self.find(session, &ids).await?;
        let mut present = counts.to_vec();
        present.retain(|(id, _)| there.contains_key(*id));
        let missing = counts.len() - present.len();
        for piece in self
            .update
            .padded(present.len(), |at| 2 * present[at].0.len() + 20)
        {
            let mut statement = piece.statement();
            for (id, count) in padded(&piece, &present) {
                statement = self.ids.bind_exact(statement, id).bind((*count).max(0));
            }
            for (id, _) in padded(&piece, &present) {
                statement = self.ids.bind(statement, id);
            }
            session.execute(statement).await?;
        }
        Ok(missing as u64)
    }

    /// What stands beside these ids; one without a row is left out.
    async fn find(
        &self,
        session: &mut Session,
        ids: &[&str],
    ) -> Result<HashMap<String, i64>, LedgerError> {
        let mut taken = ids.to_vec();
        taken.retain(|id| self.ids.takes(id));
        let mut found = HashMap::with_capacity(taken.len());
        for piece in self.find.padded(taken.len(), |at| taken[at].len() + 3) {
            let mut statement = piece.statement();
            for id in padded(&piece, &taken) {
                statement = self.ids.bind(statement, id);
            }
            for row in session.fetch_all(statement).await? {
                found.insert(text(row.try_get(0)?), row.try_get(1)?);
            }
        }
        Ok(found)
    }

    /// What can be tried again stays what it is; all else is the mirror's own failure, and no entry's.
    pub(super) fn failed(&self, error: LedgerError) -> LedgerError {
        failed(&self.kind, &self.table, error, "it cannot be read or set")
    }
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8_lossy(&bytes).into_owned()
}

impl Ledger {
    /// Up to `limit` ids behind `after`, or from the start, in the order of the column; each with what stands beside it.
    pub async fn mirror_page(
        &self,
        column: &MirrorColumn,
        after: Option<&str>,
        limit: u64,
    ) -> Result<Vec<(String, i64)>, LedgerError> {
        let page = match after {
            Some(after) => {
                let next = sqlx::query(AssertSqlSafe(Arc::clone(&column.next)));
                column.ids.bind(next, after)
            }
            None => sqlx::query(AssertSqlSafe(Arc::clone(&column.first))),
        };
        let rows = self.session().await?.fetch_all(page.bind(limit)).await;
        let rows = rows.map_err(|error| column.failed(error))?;
        rows.iter()
            .map(|row| Ok((text(row.try_get(0)?), row.try_get(1)?)))
            .collect()
    }

    /// What stands beside these ids; one without a row is left out.
    pub async fn mirror_counts(
        &self,
        column: &MirrorColumn,
        ids: &[&str],
    ) -> Result<HashMap<String, i64>, LedgerError> {
        let found = column.find(&mut self.session().await?, ids).await;
        found.map_err(|error| column.failed(error))
    }
}

#[cfg(test)]
mod tests {
    use super::Ids;

    #[test]
    fn only_canonical_integers_within_the_range_stand_in_an_integer_column() {
        let int = Ids::of("int", "int(11)").unwrap();
        for (id, taken) in [
            ("42", true),
            ("-7", true),
            ("-2147483648", true),
            ("2147483648", false),
            ("42abc", false),
            ("042", false),
            ("+42", false),
            ("-0", false),
            ("4.2", false),
            ("", false),
        ] {
            assert_eq!(int.takes(id), taken, "{id}");
        }
        let big = Ids::of("bigint", "bigint(20) unsigned").unwrap();
        assert!(big.takes("18446744073709551615") && !big.takes("-1"));
        assert!(!big.takes("18446744073709551616"));
        assert!(Ids::of("varchar", "varchar(40)").unwrap().takes("042"));
        assert_eq!(Ids::of("decimal", "decimal(10,0)"), None);
    }
}
