//! Looks at a table of the site's own: whether it and its columns are there, fit, and may be used.

use sqlx::{AssertSqlSafe, Row as _};

use super::column::{Ids, MirrorColumn};
use super::failed;
use crate::config::Mirror;
use crate::ledger::session::Session;
use crate::ledger::{Ledger, LedgerError};

/// Table, id and count, in quotes; their names hold none.
pub(super) fn quoted(mirror: &Mirror) -> (String, String, String) {
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

/// Looks whether table and columns are there, of types that fit, and may be used as they will be.
pub(super) async fn look(
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
}
