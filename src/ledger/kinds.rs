//! Kinds and their numbers. Not kept in the process: a MySQL that forgot commits could number them anew, and one small
//! read per chunk is nothing.

use std::collections::{BTreeSet, HashMap};
use std::sync::LazyLock;

use sqlx::Row;

use super::LedgerError;
use super::session::Session;
use super::sized::{Sized, light, list};

/// Numbers of the kinds that are asked for; an unused place asks for '', which is no kind.
static NUMBERS: LazyLock<Sized> = LazyLock::new(|| {
    Sized::new(&[1, 8, 64], |size| {
        format!(
            "SELECT kind_id, name FROM kind WHERE name IN ({})",
            list("?", size)
        )
    })
});

/// Adds a kind. One that somebody else added meanwhile stays as it is.
const ADD: &str = "INSERT INTO kind (name) VALUES (?) ON DUPLICATE KEY UPDATE name = kind.name";

/// The numbers of these kinds; those that are new get one, outside of any transaction.
pub(super) async fn numbers(
    session: &mut Session,
    names: &BTreeSet<&str>,
) -> Result<HashMap<String, u16>, LedgerError> {
    let names: Vec<&str> = names.iter().copied().collect();
    let mut found = read(session, &names).await?;
    let missing: Vec<&str> = names
        .iter()
        .copied()
        .filter(|name| !found.contains_key(*name))
        .collect();
    for name in &missing {
        session.execute(sqlx::query(ADD).bind(*name)).await?;
    }
    found.extend(read(session, &missing).await?);
    Ok(found)
}

/// The numbers of those of these kinds that have one.
pub(super) async fn read(
    session: &mut Session,
    names: &[&str],
) -> Result<HashMap<String, u16>, LedgerError> {
    let mut found = HashMap::new();
    for piece in NUMBERS.padded(names.len(), light) {
        let mut statement = piece.statement();
        for name in &names[piece.range.clone()] {
            statement = statement.bind(*name);
        }
        for _ in 0..piece.padding {
            statement = statement.bind("");
        }
        for row in session.fetch_all(statement).await? {
            found.insert(row.try_get(1)?, row.try_get(0)?);
        }
    }
    Ok(found)
}
