//! Targets that were erased: which are gone, what of the others is void, and the transactions that remove what is there.
//!
//! A target's row in `thumb_count` says up to which version its likes are void. While it is gone, that is all of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::LazyLock;

use sqlx::Row;

use super::counts::Moves;
use super::erased::{self, Erasure, OpenErasure, Void};
use super::mirror::{self, Mirrors, Missing};
use super::session::Session;
use super::sized::{Sized, list};
use super::stage::{self, StageRow};
use super::{Layout, Ledger, LedgerError, apply, kinds, outbox, state};
use crate::domain::{Entry, SliceId, Target, UserId, Version, partition_of_stored};
use crate::limits::{CASE_ARMS_MAX, ERASE_ROWS_MAX};
use crate::steps;

/// All likes of a target up to this are void while it is gone: higher than any version, and in either sort of BIGINT.
pub(super) const GONE: Version = Version(i64::MAX as u64);

/// Whether a target is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetState {
    /// It is not, or not any more.
    There,
    /// It is, and its likes are still being removed.
    Leaving,
    /// It is, and nothing of it is left.
    Gone,
}

/// What one transaction removed of a target.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ErasedLikes {
    /// Rows, the unliked ones included.
    pub rows: u64,
    /// Whose they were, each with the partition of the user and the version of the row.
    pub likes: Vec<(u16, UserId, Version)>,
    /// There may be more.
    pub more: bool,
}

/// Up to which version the likes of targets of a kind are void, of those where any are. An unused place asks for '', which is no id.
static VOID_UNTIL: LazyLock<Sized> = LazyLock::new(|| {
    Sized::new(&[1, 8, 64, CASE_ARMS_MAX], |size| {
        format!(
            "SELECT one.target_id, one.void_until \
             FROM kind JOIN thumb_count AS one FORCE INDEX (PRIMARY) ON one.kind_id = kind.kind_id \
             WHERE kind.name = ? AND one.target_id IN ({}) AND one.void_until > 0",
            list("?", size)
        )
    })
});

/// Adds what is void because of its target. Costs nothing for entries that are newer than the newest erasure, which are all as
/// long as no target is gone.
pub(super) async fn void<'a>(
    session: &mut Session,
    until: Version,
    entries: impl Iterator<Item = &'a Entry>,
    void: &mut Void,
) -> Result<(), LedgerError> {
    let asked: Vec<(usize, &Entry)> = entries
        .enumerate()
        .filter(|(_, entry)| entry.version <= until)
        .collect();
    let targets = asked.iter().map(|(_, entry)| &entry.target);
    let versions = void_until(session, targets).await?;
    for (at, entry) in asked {
        let Some(until) = versions.get(&entry.target) else {
            continue;
        };
        if entry.version <= *until {
            void.places.insert(at);
        }
        if *until == GONE {
            void.gone.insert(at);
        }
    }
    Ok(())
}

async fn void_until<'a>(
    session: &mut Session,
    targets: impl Iterator<Item = &'a Target>,
) -> Result<HashMap<&'a Target, Version>, LedgerError> {
    let mut asked: BTreeMap<&str, BTreeMap<&str, &Target>> = BTreeMap::new();
    for target in targets {
        let ids = asked.entry(target.kind()).or_default();
        ids.insert(target.id(), target);
    }
    let mut found = HashMap::new();
    for (kind, targets) in asked {
        let ids: Vec<&str> = targets.keys().copied().collect();
        for piece in VOID_UNTIL.padded(ids.len(), |at| ids[at].len() + 3) {
            let mut statement = piece.statement().bind(kind.to_owned());
            for id in &ids[piece.range.clone()] {
                statement = statement.bind((*id).to_owned());
            }
            for _ in 0..piece.padding {
                statement = statement.bind("");
            }
            for row in session.fetch_all(statement).await? {
                if let Some(target) = targets.get(row.try_get::<&str, _>(0)?) {
                    found.insert(*target, Version(row.try_get(1)?));
                }
            }
        }
    }
    Ok(found)
}

/// Whether a target is gone, by the number of its kind.
pub(super) async fn is_gone(
    session: &mut Session,
    kind_id: u16,
    id: &str,
) -> Result<bool, LedgerError> {
    const FIND: &str = "SELECT void_until FROM thumb_count WHERE kind_id = ? AND target_id = ?";
    let find = sqlx::query(FIND).bind(kind_id).bind(id.to_owned());
    let row = session.fetch_optional(find).await?;
    let until = row.map(|row| row.try_get(0)).transpose()?;
    Ok(until == Some(GONE.0))
}

impl Ledger {
    /// Which of these targets are gone, in the order asked.
    pub async fn gone(&self, targets: &[Target]) -> Result<Vec<bool>, LedgerError> {
        if targets.is_empty() {
            return Ok(Vec::new());
        }
        let found = void_until(&mut self.session().await?, targets.iter()).await?;
        let gone = |target| found.get(target).is_some_and(|until| *until == GONE);
        Ok(targets.iter().map(gone).collect())
    }

    /// Notes that this target is gone: from now on nobody's like of it counts. If it is gone already, its job is given, done or not.
    pub async fn erase_target_begin(&self, target: &Target) -> Result<Erasure, LedgerError> {
        let mut session = self.session().await?;
        let kind_id = kind_id(&mut session, target).await?;
        let digest = erased::target_digest(&mut session, target).await?;
        let mut tries = 1;
        loop {
            match begin(&mut session, target, kind_id, digest).await {
                Ok(erasure) => return Ok(erasure),
                Err(error) => {
                    session.rollback().await;
                    apply::again(error, &session, &mut tries).await?;
                }
            }
        }
    }

    /// Removes rows of a target that is gone, up to a bound, and moves the counts, in one transaction, which leaves `token` as the
    /// mark of a change outside of a slice if it removes anything. What quarantine has of the target goes too.
    pub async fn erase_target_rows(
        &self,
        open: &OpenErasure,
        target: &Target,
        layout: &Layout,
        token: &str,
    ) -> Result<ErasedLikes, LedgerError> {
        let mut session = self.session().await?;
        let removal = Removal {
            job: open.id,
            kind_id: kind_id(&mut session, target).await?,
            target,
            layout,
            token,
        };
        let mut tries = 1;
        loop {
            match removal.run(&mut session, &self.mirrors).await {
                Ok((erased, missing, stopped)) => {
                    mirror::note(missing);
                    outbox::note(stopped);
                    // Committed is committed: if this fails, the connection is closed, which does the same.
                    let _ = stage::clear(&mut session).await;
                    return Ok(erased);
                }
                Err(error) => {
                    session.rollback().await;
                    apply::again(error, &session, &mut tries).await?;
                }
            }
        }
    }

    /// Ends the erasure of a target, which stays gone. False: something is still there.
    pub async fn erase_target_end(
        &self,
        open: &OpenErasure,
        target: &Target,
    ) -> Result<bool, LedgerError> {
        const ROW: &str = "SELECT 1 FROM thumb FORCE INDEX (thumb_by_target) \
            WHERE kind_id = ? AND target_id = ? LIMIT 1";
        const REFUSED: &str = "SELECT 1 FROM quarantine WHERE kind = ? AND target_id = ? LIMIT 1";
        let mut session = self.session().await?;
        let kind_id = kind_id(&mut session, target).await?;
        session.begin("START TRANSACTION").await?;
        state::read(&mut session, true).await?;
        let looks = [
            sqlx::query(ROW).bind(kind_id),
            sqlx::query(REFUSED).bind(target.kind().to_owned()),
        ];
        for look in looks {
            let look = look.bind(target.id().to_owned());
            if session.fetch_optional(look).await?.is_some() {
                session.rollback().await;
                return Ok(false);
            }
        }
        let ended = erased::end(&mut session, open).await?;
        session.commit().await?;
        Ok(ended)
    }

    /// Whether a target is gone.
    pub async fn target_state(&self, target: &Target) -> Result<TargetState, LedgerError> {
        let mut session = self.session().await?;
        let kinds = kinds::read(&mut session, &[target.kind()]).await?;
        let Some(kind_id) = kinds.get(target.kind()) else {
            return Ok(TargetState::There);
        };
        let digest = erased::target_digest(&mut session, target).await?;
        target_state(&mut session, target, *kind_id, digest).await
    }

    /// Lets a target be liked again from `version` on, which must be above every clock and below whatever is accepted afterwards;
    /// leaves `token` as the mark of a change outside of a slice. False: it is not gone, or something of it is still there.
    pub async fn target_restore(
        &self,
        target: &Target,
        version: Version,
        token: &str,
    ) -> Result<bool, LedgerError> {
        let mut session = self.session().await?;
        let kind_id = kind_id(&mut session, target).await?;
        let digest = erased::target_digest(&mut session, target).await?;
        let mut tries = 1;
        loop {
            match restore(&mut session, target, kind_id, digest, version, token).await {
                Ok(restored) => return Ok(restored),
                Err(error) => {
                    session.rollback().await;
                    apply::again(error, &session, &mut tries).await?;
                }
            }
        }
    }

    /// A Redis that is not sealed up to here is taken for an older copy from now on.
    pub async fn sealed_note(&self, sealed: SliceId) -> Result<(), LedgerError> {
        erased::sealed(&mut self.session().await?, sealed).await
    }
}

/// The number of the target's kind, which gets one if it has none.
async fn kind_id(session: &mut Session, target: &Target) -> Result<u16, LedgerError> {
    let numbers = kinds::numbers(session, &BTreeSet::from([target.kind()])).await?;
    let number = numbers.get(target.kind()).copied();
    number.ok_or(LedgerError::Database(sqlx::Error::RowNotFound))
}

async fn target_state(
    session: &mut Session,
    target: &Target,
    kind_id: u16,
    digest: erased::Digest,
) -> Result<TargetState, LedgerError> {
    const OPEN: &str = "SELECT 1 FROM erased WHERE digest = ? AND state = 'open' LIMIT 1";
    if !is_gone(session, kind_id, target.id()).await? {
        return Ok(TargetState::There);
    }
    let open = sqlx::query(OPEN).bind(digest.to_vec());
    Ok(match session.fetch_optional(open).await? {
        Some(_) => TargetState::Leaving,
        None => TargetState::Gone,
    })
}

async fn begin(
    session: &mut Session,
    target: &Target,
    kind_id: u16,
    digest: erased::Digest,
) -> Result<Erasure, LedgerError> {
    const INSERT: &str = "INSERT INTO erased \
        (scope, digest, plain_kind, plain_id, version, state, created_at) \
        VALUES ('target', ?, ?, ?, ?, 'open', UTC_TIMESTAMP(6))";
    const MARK: &str = "INSERT INTO thumb_count (kind_id, target_id, count, void_until) \
        VALUES (?, ?, 0, ?) ON DUPLICATE KEY UPDATE void_until = VALUES(void_until)";
    const RAISE: &str = "UPDATE flush_state SET targets_void_until = ? WHERE id = 1";
    session.begin("START TRANSACTION").await?;
    // A transaction that applies entries comes before this or behind it.
    state::read(session, true).await?;
    let known = match target_state(session, target, kind_id, digest).await? {
        TargetState::There => None,
        TargetState::Leaving | TargetState::Gone => erased::newest(session, digest).await?,
    };
    let erasure = match known {
        Some(erasure) => erasure,
        None => {
            let insert = sqlx::query(INSERT)
                .bind(digest.to_vec())
                .bind(target.kind().to_owned())
                .bind(target.id().to_owned())
                .bind(GONE.0);
            session.execute(insert).await?;
            let mark = sqlx::query(MARK).bind(kind_id);
            let mark = mark.bind(target.id().to_owned()).bind(GONE.0);
            session.execute(mark).await?;
            session.execute(sqlx::query(RAISE).bind(GONE.0)).await?;
            let erasure = erased::newest(session, digest).await?;
            erasure.ok_or(LedgerError::NotMigrated)?
        }
    };
    session.commit().await?;
    Ok(erasure)
}

async fn restore(
    session: &mut Session,
    target: &Target,
    kind_id: u16,
    digest: erased::Digest,
    version: Version,
    token: &str,
) -> Result<bool, LedgerError> {
    const UNMARK: &str =
        "UPDATE thumb_count SET void_until = ? WHERE kind_id = ? AND target_id = ?";
    const NOTE: &str = "UPDATE erased SET version = ? WHERE digest = ? AND version = ?";
    const NEWEST: &str = "SELECT MAX(version) FROM erased WHERE scope = 'target'";
    const LOWER: &str = "UPDATE flush_state SET targets_void_until = ?, \
        max_version = GREATEST(max_version, ?), outside_token = ? WHERE id = 1";
    session.begin("START TRANSACTION").await?;
    let state = state::read(session, true).await?;
    if !state.outside_token.is_empty() && state.outside_token != token {
        return Err(LedgerError::OutsideOther);
    }
    if target_state(session, target, kind_id, digest).await? != TargetState::Gone {
        session.rollback().await;
        return Ok(false);
    }
    let unmark = sqlx::query(UNMARK).bind(version.0).bind(kind_id);
    session.execute(unmark.bind(target.id().to_owned())).await?;
    let note = sqlx::query(NOTE).bind(version.0);
    session
        .execute(note.bind(digest.to_vec()).bind(GONE.0))
        .await?;
    let newest = session.fetch_optional(sqlx::query(NEWEST)).await?;
    let newest: Option<u64> = newest.map_or(Ok(None), |row| row.try_get(0))?;
    let lower = sqlx::query(LOWER)
        .bind(newest.unwrap_or(version.0))
        .bind(version.0)
        .bind(token.to_owned());
    session.execute(lower).await?;
    steps::holding("restore.commit").await;
    session.commit().await?;
    Ok(true)
}

/// Rows of a target that are to be removed.
struct Removal<'a> {
    job: u64,
    kind_id: u16,
    target: &'a Target,
    layout: &'a Layout,
    token: &'a str,
}

/// A removed row is told with a version above its own: readers take the higher one for the newer.
const LATER: u64 = 1;

impl Removal<'_> {
    async fn run(
        &self,
        session: &mut Session,
        mirrors: &Mirrors,
    ) -> Result<(ErasedLikes, Missing, bool), LedgerError> {
        const OPEN: &str = "SELECT 1 FROM erased WHERE erased_id = ? AND state = 'open'";
        const REMOVE: &str = "DELETE thumb FROM thumb_stage AS stage STRAIGHT_JOIN thumb \
            ON thumb.user_id = stage.user_id AND thumb.kind_id = stage.kind_id AND thumb.target_id = stage.target_id";
        let users = self.users(session).await?;
        let staged: Vec<StageRow<'_>> = users.iter().map(|user| self.row(0, user)).collect();
        stage::fill(session, &staged).await?;
        session.begin("START TRANSACTION").await?;
        let state = state::read(session, true).await?;
        let partitions = apply::partitions(&state, self.layout, &[])?;
        if !state.outside_token.is_empty() && state.outside_token != self.token {
            return Err(LedgerError::OutsideOther);
        }
        // Somebody else may have ended it, and what is there now was liked behind a restoration.
        let open = sqlx::query(OPEN).bind(self.job);
        if session.fetch_optional(open).await?.is_none() {
            session.rollback().await;
            return Ok((ErasedLikes::default(), Missing::new(), false));
        }
        self.quarantine(session).await?;
        let mut erased = ErasedLikes {
            more: users.len() as u64 == ERASE_ROWS_MAX,
            ..ErasedLikes::default()
        };
        let mut moves = Moves::default();
        let mut taken_back = Vec::new();
        let compare = sqlx::query(include_str!("sql/compare.sql"));
        for row in session.fetch_all(compare).await? {
            let at = row.try_get::<u32, _>(0)? as usize;
            let thumbed = row.try_get::<i8, _>(1)? != 0;
            let version: u64 = row.try_get(2)?;
            let partition = partition_of_stored(&users[at], partitions);
            let none = StageRow {
                version: Version(version + LATER),
                partition,
                ..self.row(at, &users[at])
            };
            moves.note(&none, thumbed, partitions);
            if thumbed {
                taken_back.push(none);
            }
            erased.rows += 1;
            // What is no id was written by hand, and is not in Redis.
            if let Ok(user) = UserId::parse(users[at].as_str()) {
                erased.likes.push((partition, user, Version(version)));
            }
        }
        let (mut missing, mut stopped) = (Missing::new(), false);
        if erased.rows > 0 {
            session.execute(sqlx::query(REMOVE)).await?;
            let told = erased::tell(session, mirrors, &state.feed, &moves, &taken_back);
            (missing, stopped) = told.await?;
            erased::note(session, self.job, erased.rows, self.token).await?;
        }
        steps::holding("erase.commit").await;
        session.commit().await?;
        Ok((erased, missing, stopped))
    }

    fn row<'r>(&'r self, at: usize, user: &'r str) -> StageRow<'r> {
        StageRow {
            at,
            user,
            kind_id: self.kind_id,
            target: self.target.id(),
            thumbed: false,
            version: Version(0),
            partition: 0,
        }
    }

    /// Some whose rows are there, in the order of the primary key; without a lock, so it is looked again behind it.
    async fn users(&self, session: &mut Session) -> Result<Vec<String>, LedgerError> {
        const FIND: &str = "SELECT user_id FROM thumb FORCE INDEX (thumb_by_target) \
            WHERE kind_id = ? AND target_id = ? LIMIT ?";
        let find = sqlx::query(FIND)
            .bind(self.kind_id)
            .bind(self.target.id().to_owned())
            .bind(ERASE_ROWS_MAX);
        let rows = session.fetch_all(find).await?;
        let users = rows.iter().map(|row| row.try_get(0));
        let mut users = users.collect::<Result<Vec<String>, _>>()?;
        users.sort_unstable();
        Ok(users)
    }

    /// What quarantine has of the target: entries, and bytes that end as an entry of the target would.
    async fn quarantine(&self, session: &mut Session) -> Result<(), LedgerError> {
        const ENTRIES: &str = "DELETE FROM quarantine WHERE kind = ? AND target_id = ?";
        const BYTES: &str =
            "DELETE FROM quarantine WHERE raw_field IS NOT NULL AND RIGHT(raw_field, ?) = ?";
        let entries = sqlx::query(ENTRIES)
            .bind(self.target.kind().to_owned())
            .bind(self.target.id().to_owned());
        session.execute(entries).await?;
        let ends = format!(" {}", self.target).into_bytes();
        let bytes = sqlx::query(BYTES).bind(ends.len() as u64).bind(ends);
        session.execute(bytes).await.map(drop)
    }
}
