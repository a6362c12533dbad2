//! Columns of the site's own that are set to the counts of a kind's targets, in the transaction that moves the counts.
//!
//! Which columns these are stands in `thumb_mirror`, and is read in each such transaction while `flush_state` is locked: so every
//! process sets them, whatever its own settings say, and none sets one that was taken away.
//! The column is set to the count and not moved by a difference, so whoever sets it again changes nothing. A target without a row
//! there is nobody's fault; any other failure fails the transaction, because a mirror that silently stays behind is worse than none.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use sqlx::mysql::MySqlRow;
use sqlx::{AssertSqlSafe, Row};

use super::session::{Session, Statement};
use super::sized::{Piece, Sized, list};
use super::{Ledger, LedgerError, apply, kinds, state};
use crate::config::Mirror;
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

/// What is stored. At most one row a kind.
const STORED: &str =
    "SELECT kind, site_table, id_column, count_column FROM thumb_mirror ORDER BY kind";

/// The columns as they were when they were looked at last, which is once as long as what is stored stays the same.
#[derive(Debug, Default)]
pub(super) struct Mirrors {
    looked: Mutex<Arc<Looked>>,
}

#[derive(Debug, Default)]
struct Looked {
    stored: Vec<(String, Mirror)>,
    columns: Vec<MirrorColumn>,
}

/// Targets by the number of their kind, in order.
pub(super) type Changed<'a> = BTreeMap<u16, Vec<&'a str>>;

/// How many targets of a kind have no row in the site's table.
pub(super) type Missing = Vec<(String, u64)>;

/// What the ids of a column can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ids {
    Signed { max: i64 },
    Unsigned { max: u64 },
    Text,
}

/// A mirror whose table has been looked at.
#[derive(Debug)]
pub struct MirrorColumn {
    kind: String,
    table: String,
    ids: Ids,
    find: Sized,
    update: Sized,
    first: Arc<str>,
    next: Arc<str>,
}

impl Ids {
    /// By the names that information_schema gives.
    fn of(data_type: &str, column_type: &str) -> Option<Self> {
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
    fn new(kind: &str, mirror: &Mirror, ids: Ids) -> Self {
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
    async fn copy(
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
    fn failed(&self, error: LedgerError) -> LedgerError {
        failed(&self.kind, &self.table, error, "it cannot be read or set")
    }
}

/// A piece's items; the places that are left over take the last one again, which changes nothing.
fn padded<'a, T>(piece: &Piece<'_>, items: &'a [T]) -> impl Iterator<Item = &'a T> {
    let last = piece.range.end - 1;
    let padding = std::iter::repeat_n(&items[last], piece.padding);
    items[piece.range.clone()].iter().chain(padding)
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8_lossy(&bytes).into_owned()
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

/// Table, id and count, in quotes; their names hold none.
fn quoted(mirror: &Mirror) -> (String, String, String) {
    let quote = |name: &str| format!("`{name}`");
    let table = match mirror.schema() {
        Some(schema) => format!("{}.{}", quote(schema), quote(mirror.table())),
        None => quote(mirror.table()),
    };
    (
        table,
        quote(mirror.id_column()),
        quote(mirror.count_column()),
    )
}

impl Mirrors {
    /// The columns that are to be set, in the transaction that has `flush_state` locked.
    async fn current(&self, session: &mut Session) -> Result<Arc<Looked>, LedgerError> {
        let stored = stored(session).await?;
        let known = Arc::clone(&self.looked.lock().unwrap_or_else(PoisonError::into_inner));
        if known.stored == stored {
            return Ok(known);
        }
        let mut columns = Vec::with_capacity(stored.len());
        for (kind, mirror) in &stored {
            columns.push(look(session, kind, mirror, true).await?);
        }
        let looked = Arc::new(Looked { stored, columns });
        *self.looked.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&looked);
        Ok(looked)
    }
}

/// What is stored now.
async fn stored(session: &mut Session) -> Result<Vec<(String, Mirror)>, LedgerError> {
    let rows = session.fetch_all(sqlx::query(STORED)).await?;
    let decode = |row: &MySqlRow| {
        let kind: String = row.try_get(0)?;
        let names: (String, String, String) = (row.try_get(1)?, row.try_get(2)?, row.try_get(3)?);
        match Mirror::parse(&names.0, &names.1, &names.2) {
            Ok(mirror) => Ok((kind, mirror)),
            // Written by hand.
            Err(problem) => Err(LedgerError::Mirror {
                kind,
                table: names.0,
                problem,
                source: None,
            }),
        }
    };
    rows.iter().map(decode).collect()
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

/// Looks whether table and columns are there, of types that fit, and may be used as they will be.
async fn look(
    session: &mut Session,
    kind: &str,
    mirror: &Mirror,
    write: bool,
) -> Result<MirrorColumn, LedgerError> {
    let (table, id, count) = quoted(mirror);
    let rights = rights(session, mirror, write).await?;
    let mut tries = vec![format!("SELECT {id}, {count} FROM {table} LIMIT 0")];
    if write {
        // It finds no row, but the server looks whether it may.
        tries.push(format!(
            "UPDATE {table} SET {count} = CASE {id} WHEN NULL THEN 0 ELSE {count} END WHERE {id} IN (NULL)"
        ));
    }
    for text in tries {
        let tried = session.execute(sqlx::query(AssertSqlSafe(text)).persistent(false));
        tried
            .await
            .map_err(|error| failed(kind, &table, error, &rights))?;
    }
    let unfit = |problem: String| LedgerError::Mirror {
        kind: kind.to_owned(),
        table: table.clone(),
        problem,
        source: None,
    };
    let (id_type, id_full) = column_type(session, mirror, mirror.id_column()).await?;
    let ids = Ids::of(&id_type, &id_full).ok_or_else(|| {
        unfit(format!(
            "the id column is of type {id_full}; an integer, CHAR, VARCHAR or VARBINARY is wanted"
        ))
    })?;
    let (count_type, count_full) = column_type(session, mirror, mirror.count_column()).await?;
    if !matches!(
        Ids::of(&count_type, &count_full),
        Some(Ids::Signed { .. } | Ids::Unsigned { .. })
    ) {
        return Err(unfit(format!(
            "the count column is of type {count_full}; an integer is wanted"
        )));
    }
    Ok(MirrorColumn::new(kind, mirror, ids))
}

/// What the database user needs, as a statement to paste.
async fn rights(
    session: &mut Session,
    mirror: &Mirror,
    write: bool,
) -> Result<String, LedgerError> {
    let who = sqlx::query("SELECT CAST(CURRENT_USER() AS CHAR), CAST(DATABASE() AS CHAR)");
    let row = session.fetch_optional(who.persistent(false)).await?;
    let row = row.ok_or(LedgerError::Database(sqlx::Error::RowNotFound))?;
    let (user, database): (String, String) = (row.try_get(0)?, row.try_get(1)?);
    let (user, host) = user.rsplit_once('@').unwrap_or((&user, "%"));
    let (_, id, count) = quoted(mirror);
    let schema = mirror.schema().unwrap_or(&database);
    let update = if write {
        format!(", UPDATE ({count})")
    } else {
        String::new()
    };
    Ok(format!(
        "it cannot be used; the database user needs GRANT SELECT ({id}, {count}){update} \
         ON `{schema}`.`{}` TO '{user}'@'{host}'",
        mirror.table()
    ))
}

/// A column's type in short and in full.
async fn column_type(
    session: &mut Session,
    mirror: &Mirror,
    column: &str,
) -> Result<(String, String), LedgerError> {
    const TYPE: &str = "SELECT LOWER(CAST(data_type AS CHAR)), LOWER(CAST(column_type AS CHAR)) \
        FROM information_schema.columns \
        WHERE table_schema = COALESCE(?, DATABASE()) AND table_name = ? AND column_name = ?";
    let find = sqlx::query(TYPE)
        .bind(mirror.schema().map(str::to_owned))
        .bind(mirror.table().to_owned())
        .bind(column.to_owned())
        .persistent(false);
    let row = session.fetch_optional(find).await?;
    let row = row.ok_or(LedgerError::Database(sqlx::Error::RowNotFound))?;
    Ok((row.try_get(0)?, row.try_get(1)?))
}

impl Ledger {
    /// Stores mirrors that are wanted and not known yet, after a look whether all can be set; the error says what is missing.
    /// Another column than the stored one is refused: two processes would take turns at which of both stays behind.
    pub async fn mirrors_adopt(
        &self,
        wanted: impl IntoIterator<Item = (&str, &Mirror)>,
    ) -> Result<(), LedgerError> {
        let mut session = self.session().await?;
        let wanted: Vec<(&str, &Mirror)> = wanted.into_iter().collect();
        for (kind, mirror) in &wanted {
            look(&mut session, kind, mirror, true).await?;
        }
        // What is stored already needs no lock, which a flush may hold for long.
        if missing(stored(&mut session).await?, &wanted)?.is_empty() {
            return self.mirrors.current(&mut session).await.map(drop);
        }
        let mut tries = 1;
        loop {
            match adopt(&mut session, &self.mirrors, &wanted).await {
                Ok(()) => return Ok(()),
                Err(error) => {
                    session.rollback().await;
                    apply::again(error, &session, &mut tries).await?;
                }
            }
        }
    }

    /// The mirrors that are kept, by kind.
    pub async fn mirrors(&self) -> Result<Vec<(String, Mirror)>, LedgerError> {
        stored(&mut self.session().await?).await
    }

    /// Lets go of a kind's mirror, if it has one; the column stays as it is. Nobody sets it any more when this has ended.
    pub async fn mirror_remove(&self, kind: &str) -> Result<bool, LedgerError> {
        let mut session = self.session().await?;
        session.begin("START TRANSACTION").await?;
        state::read(&mut session, true).await?;
        let remove = sqlx::query("DELETE FROM thumb_mirror WHERE kind = ?").bind(kind.to_owned());
        let removed = session.execute(remove).await?;
        session.commit().await?;
        Ok(removed > 0)
    }

    /// Looks whether one mirror can be set.
    pub async fn mirror_check(&self, kind: &str, mirror: &Mirror) -> Result<(), LedgerError> {
        look(&mut self.session().await?, kind, mirror, true)
            .await
            .map(drop)
    }

    /// Looks at a mirror that is only to be read.
    pub async fn mirror_open(
        &self,
        kind: &str,
        mirror: &Mirror,
    ) -> Result<MirrorColumn, LedgerError> {
        look(&mut self.session().await?, kind, mirror, false).await
    }

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

/// Those of the wanted mirrors that are not stored yet.
fn missing<'a>(
    stored: Vec<(String, Mirror)>,
    wanted: &[(&'a str, &'a Mirror)],
) -> Result<Vec<(&'a str, &'a Mirror)>, LedgerError> {
    let known: HashMap<String, Mirror> = stored.into_iter().collect();
    let mut missing = Vec::new();
    for (kind, mirror) in wanted {
        match known.get(*kind) {
            None => missing.push((*kind, *mirror)),
            Some(stored) if stored == *mirror => {}
            Some(stored) => {
                return Err(LedgerError::MirrorOther {
                    kind: (*kind).to_owned(),
                    stored: Box::new(stored.clone()),
                    wanted: Box::new((*mirror).clone()),
                });
            }
        }
    }
    Ok(missing)
}

async fn adopt(
    session: &mut Session,
    mirrors: &Mirrors,
    wanted: &[(&str, &Mirror)],
) -> Result<(), LedgerError> {
    const STORE: &str =
        "INSERT INTO thumb_mirror (kind, site_table, id_column, count_column) VALUES (?, ?, ?, ?)";
    session.begin("START TRANSACTION").await?;
    // Nobody moves counts while this is locked, and whoever does so afterwards sets what is stored here.
    state::read(session, true).await?;
    for (kind, mirror) in missing(stored(session).await?, wanted)? {
        let store = sqlx::query(STORE)
            .bind(kind.to_owned())
            .bind(mirror.site_table())
            .bind(mirror.id_column().to_owned())
            .bind(mirror.count_column().to_owned());
        session.execute(store).await?;
    }
    mirrors.current(session).await?;
    session.commit().await
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
