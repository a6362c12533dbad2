//! Which mirrors there are: the table `thumb_mirror`, and what a process knows of the columns that it names.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use sqlx::Row as _;
use sqlx::mysql::MySqlRow;

use super::column::MirrorColumn;
use super::look::look;
use crate::config::Mirror;
use crate::ledger::session::Session;
use crate::ledger::{Ledger, LedgerError, apply, state};

/// What is stored. At most one row a kind.
const STORED: &str =
    "SELECT kind, site_table, id_column, count_column FROM thumb_mirror ORDER BY kind";

/// The columns as they were when they were looked at last, which is once as long as what is stored stays the same.
#[derive(Debug, Default)]
pub(in crate::ledger) struct Mirrors {
    looked: Mutex<Arc<Looked>>,
}

#[derive(Debug, Default)]
pub(super) struct Looked {
    stored: Vec<(String, Mirror)>,
    pub(super) columns: Vec<MirrorColumn>,
}

impl Mirrors {
    /// The columns that are to be set, in the transaction that has `flush_state` locked.
    pub(super) async fn current(&self, session: &mut Session) -> Result<Arc<Looked>, LedgerError> {
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

/// Those of the wanted mirrors that are not stored yet.
fn unstored<'a>(
    stored: Vec<(String, Mirror)>,
    wanted: &[(&'a str, &'a Mirror)],
) -> Result<Vec<(&'a str, &'a Mirror)>, LedgerError> {
    let known: HashMap<String, Mirror> = stored.into_iter().collect();
    let mut new = Vec::new();
    for (kind, mirror) in wanted {
        match known.get(*kind) {
            None => new.push((*kind, *mirror)),
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
    Ok(new)
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
    for (kind, mirror) in unstored(stored(session).await?, wanted)? {
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

impl Ledger {
    /// Stores mirrors that are wanted and not known yet, after a look whether all can be set; the error says what is missing.
    /// Another column than the stored one is refused: two processes would take turns at which of both stays behind.
    pub async fn mirrors_adopt(
        &self,
        wanted: impl IntoIterator<Item = (&str, &Mirror)>,
    ) -> Result<(), LedgerError> {
        let mut session = self.session().await?;
        let wanted: Vec<(&str, &Mirror)> = wanted.into_iter().collect();
        // Not only under the lock: a look may wait for whoever alters the site's table, and the flush would wait with it.
        for (kind, mirror) in &wanted {
            look(&mut session, kind, mirror, true).await?;
        }
        // What is stored already needs no lock, which a flush may hold for long.
        if unstored(stored(&mut session).await?, &wanted)?.is_empty() {
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
}
