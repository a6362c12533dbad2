//! Erasures and their jobs; who was erased, and up to which version; and the transactions that remove what is there of a user.
//!
//! The id itself is kept only while there is work to do; afterwards a digest under a key of the database's own knows it again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::LazyLock;

use chrono::{DateTime, NaiveDateTime, Utc};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use sqlx::Row;
use sqlx::mysql::MySqlRow;

use super::counts::Moves;
use super::mirror::{self, Mirrors, Missing};
use super::session::Session;
use super::sized::{Sized, list};
use super::stage::StageRow;
use super::{FeedMark, FlushState, Layout, Ledger, LedgerError, apply, gone, outbox, state};
use crate::domain::{Entry, Kind, SliceId, Target, UserId, Version, partition_of};
use crate::limits::ERASE_ROWS_MAX;
use crate::steps;

/// An erasure as its job is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Erasure {
    /// The number of the job.
    pub id: u64,
    /// Nothing is left to do.
    pub done: bool,
    /// Rows that were removed so far.
    pub rows_removed: u64,
    /// When it was asked for, by the database's clock.
    pub created_at: DateTime<Utc>,
    /// When it was done.
    pub finished_at: Option<DateTime<Utc>>,
}

/// An erasure that is to be worked on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenErasure {
    /// The number of the job.
    pub id: u64,
    /// Who, or what.
    pub of: ErasureOf,
    /// What is not newer than this goes.
    pub version: Version,
}

/// Whose likes an erasure removes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ErasureOf {
    /// A user's.
    User(UserId),
    /// Those of a target.
    Target(Target),
}

/// What one transaction removed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Erased {
    /// Rows, the unliked ones included.
    pub rows: u64,
    /// Targets whose counts moved.
    pub targets: Vec<Target>,
    /// There may be more.
    pub more: bool,
}

pub(super) type Digest = [u8; 32];

/// Which entries are void, by their place.
#[derive(Debug, Clone, Default)]
pub(super) struct Void {
    /// All of them.
    pub(super) places: BTreeSet<usize>,
    /// Those whose target is gone now.
    pub(super) gone: BTreeSet<usize>,
}

/// The newest version up to which each of these digests was erased. An unused place asks for '', which is no digest.
static VERSIONS: LazyLock<Sized> = LazyLock::new(|| {
    Sized::new(&[1, 8, 64, 250], |size| {
        format!(
            "SELECT digest, MAX(version) FROM erased WHERE digest IN ({}) GROUP BY digest",
            list("?", size)
        )
    })
});

/// The columns of [`decode`].
const SHOWN: &str = "erased_id, state, rows_removed, created_at, finished_at";

fn digest(key: &[u8], scope: &str, id: &str) -> Digest {
    // A key of any length is taken.
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes every key");
    for part in [scope, ":", id] {
        mac.update(part.as_bytes());
    }
    mac.finalize().into_bytes().into()
}

fn user_digest(key: &[u8], user: &UserId) -> Digest {
    digest(key, "user", user.as_str())
}

pub(super) async fn target_digest(
    session: &mut Session,
    target: &Target,
) -> Result<Digest, LedgerError> {
    Ok(digest(&key(session).await?, "target", target.as_str()))
}

/// The key of the digests; made if there is none yet.
async fn key(session: &mut Session) -> Result<Vec<u8>, LedgerError> {
    const READ: &str = "SELECT secret FROM erased_key WHERE id = 1";
    if let Some(row) = session.fetch_optional(sqlx::query(READ)).await? {
        return Ok(row.try_get(0)?);
    }
    // Of two that make one at once, both then read the same.
    const MAKE: &str = "INSERT INTO erased_key (id, secret) VALUES (1, ?) ON DUPLICATE KEY UPDATE id = erased_key.id";
    let secret: [u8; 32] = rand::random();
    session
        .execute(sqlx::query(MAKE).bind(secret.to_vec()))
        .await?;
    let row = session.fetch_optional(sqlx::query(READ)).await?;
    Ok(row.ok_or(LedgerError::NotMigrated)?.try_get(0)?)
}

/// Which of these entries are void. Behind the lock on `flush_state`, so that nobody is erased meanwhile.
pub(super) async fn void<'a>(
    session: &mut Session,
    state: &FlushState,
    entries: impl Iterator<Item = &'a Entry> + Clone,
) -> Result<Void, LedgerError> {
    let mut void = Void {
        places: void_of_users(session, state.erased_until, entries.clone()).await?,
        gone: BTreeSet::new(),
    };
    gone::void(session, state.targets_void_until, entries, &mut void).await?;
    Ok(void)
}

/// Costs nothing for entries that are newer than the newest erasure, which in quiet times are all.
async fn void_of_users<'a>(
    session: &mut Session,
    until: Version,
    entries: impl Iterator<Item = &'a Entry>,
) -> Result<BTreeSet<usize>, LedgerError> {
    let mut users: BTreeMap<&UserId, Vec<(usize, Version)>> = BTreeMap::new();
    for (at, entry) in entries.enumerate() {
        if entry.version <= until {
            let places = users.entry(&entry.user).or_default();
            places.push((at, entry.version));
        }
    }
    if users.is_empty() {
        return Ok(BTreeSet::new());
    }
    let key = key(session).await?;
    let users: Vec<(Digest, Vec<(usize, Version)>)> = users
        .into_iter()
        .map(|(user, places)| (user_digest(&key, user), places))
        .collect();
    let mut versions: HashMap<Vec<u8>, u64> = HashMap::new();
    for piece in VERSIONS.padded(users.len(), |_| size_of::<Digest>() + 3) {
        let mut statement = piece.statement();
        for (digest, _) in &users[piece.range.clone()] {
            statement = statement.bind(digest.to_vec());
        }
        for _ in 0..piece.padding {
            statement = statement.bind(Vec::<u8>::new());
        }
        for row in session.fetch_all(statement).await? {
            versions.insert(row.try_get(0)?, row.try_get(1)?);
        }
    }
    let mut void = BTreeSet::new();
    for (digest, places) in users {
        if let Some(erased) = versions.get(digest.as_slice()) {
            let not_newer = places
                .into_iter()
                .filter(|(_, version)| version.0 <= *erased);
            void.extend(not_newer.map(|(at, _)| at));
        }
    }
    Ok(void)
}

impl Ledger {
    /// Notes that what this user did up to `version` is void. While there is an unfinished erasure of the user, that one is moved
    /// on and given instead of a new one.
    pub async fn erase_begin(
        &self,
        user: &UserId,
        version: Version,
    ) -> Result<Erasure, LedgerError> {
        let mut session = self.session().await?;
        let key = key(&mut session).await?;
        let digest = user_digest(&key, user);
        let mut tries = 1;
        loop {
            match begin(&mut session, user, digest, version).await {
                Ok(erasure) => return Ok(erasure),
                Err(error) => {
                    session.rollback().await;
                    apply::again(error, &session, &mut tries).await?;
                }
            }
        }
    }

    /// Up to `limit` erasures that are not finished, oldest first.
    pub async fn erasures_open(&self, limit: u64) -> Result<Vec<OpenErasure>, LedgerError> {
        const OPEN: &str = "SELECT erased_id, plain_id, version, plain_kind FROM erased \
            WHERE state = 'open' ORDER BY erased_id LIMIT ?";
        let open = sqlx::query(OPEN).bind(limit);
        let rows = self.session().await?.fetch_all(open).await?;
        rows.iter()
            .map(|row| {
                let id: &str = row.try_get(1)?;
                let of = match row.try_get::<Option<&str>, _>(3)? {
                    None => UserId::parse(id).map(ErasureOf::User),
                    Some(kind) => {
                        let target = Kind::parse(kind).and_then(|kind| Target::new(&kind, id));
                        target.map(ErasureOf::Target)
                    }
                };
                Ok(OpenErasure {
                    id: row.try_get(0)?,
                    of: of.map_err(LedgerError::Row)?,
                    version: Version(row.try_get(2)?),
                })
            })
            .collect()
    }

    /// One erasure, unless it is so old that it was forgotten.
    pub async fn erasure(&self, id: u64) -> Result<Option<Erasure>, LedgerError> {
        let text = format!("SELECT {SHOWN} FROM erased WHERE erased_id = ?");
        let find = sqlx::query(sqlx::AssertSqlSafe(text)).bind(id);
        let row = self.session().await?.fetch_optional(find).await?;
        row.as_ref().map(decode).transpose()
    }

    /// Whether an entry was erased.
    pub async fn is_void(&self, entry: &Entry) -> Result<bool, LedgerError> {
        let mut session = self.session().await?;
        let state = state::read(&mut session, false).await?;
        let void = void(&mut session, &state, std::iter::once(entry)).await?;
        Ok(!void.places.is_empty())
    }

    /// Removes rows of the user, up to a bound, and moves the counts, in one transaction, which leaves `token` as the mark of a
    /// change outside of a slice if it removes anything. What quarantine has of the user goes too.
    pub async fn erase_rows(
        &self,
        open: &OpenErasure,
        user: &UserId,
        layout: &Layout,
        token: &str,
    ) -> Result<Erased, LedgerError> {
        let mut session = self.session().await?;
        let mut tries = 1;
        loop {
            match remove(&mut session, &self.mirrors, (open, user), layout, token).await {
                Ok((erased, missing, stopped)) => {
                    mirror::note(missing);
                    outbox::note(stopped);
                    return Ok(erased);
                }
                Err(error) => {
                    session.rollback().await;
                    apply::again(error, &session, &mut tries).await?;
                }
            }
        }
    }

    /// Ends the erasure of a user, and forgets whose it was. A Redis that is not sealed up to `sealed` is taken for an older copy from now on.
    /// False: something is still there, or it was asked for again meanwhile.
    pub async fn erase_end(
        &self,
        open: &OpenErasure,
        user: &UserId,
        sealed: SliceId,
    ) -> Result<bool, LedgerError> {
        let mut session = self.session().await?;
        session.begin("START TRANSACTION").await?;
        state::read(&mut session, true).await?;
        const LEFT: &str = "SELECT 1 FROM thumb WHERE user_id = ? AND version <= ? LIMIT 1";
        const REFUSED: &str = "SELECT 1 FROM quarantine WHERE user_id = ? AND version <= ? LIMIT 1";
        for look in [LEFT, REFUSED] {
            let look = sqlx::query(look)
                .bind(user.as_str().to_owned())
                .bind(open.version.0);
            if session.fetch_optional(look).await?.is_some() {
                session.rollback().await;
                return Ok(false);
            }
        }
        let ended = end(&mut session, open).await?;
        self::sealed(&mut session, sealed).await?;
        session.commit().await?;
        Ok(ended)
    }
}

/// Ends a job, unless it was asked for again meanwhile, up to a later version.
pub(super) async fn end(session: &mut Session, open: &OpenErasure) -> Result<bool, LedgerError> {
    const END: &str = "UPDATE erased \
        SET state = 'done', plain_id = NULL, plain_kind = NULL, finished_at = UTC_TIMESTAMP(6) \
        WHERE erased_id = ? AND version = ? AND state = 'open'";
    let end = sqlx::query(END).bind(open.id).bind(open.version.0);
    Ok(session.execute(end).await? > 0)
}

/// A Redis that is not sealed up to here is taken for an older copy from now on.
pub(super) async fn sealed(session: &mut Session, sealed: SliceId) -> Result<(), LedgerError> {
    const SEALED: &str = "UPDATE flush_state SET last = GREATEST(last, ?) WHERE id = 1";
    let note = sqlx::query(SEALED).bind(sealed.0);
    session.execute(note).await.map(drop)
}

/// The newest job of these.
pub(super) async fn newest(
    session: &mut Session,
    digest: Digest,
) -> Result<Option<Erasure>, LedgerError> {
    let text =
        format!("SELECT {SHOWN} FROM erased WHERE digest = ? ORDER BY erased_id DESC LIMIT 1");
    let find = sqlx::query(sqlx::AssertSqlSafe(text)).bind(digest.to_vec());
    let row = session.fetch_optional(find).await?;
    row.as_ref().map(decode).transpose()
}

/// Notes, in a transaction that removed rows for a job, how many, and that Redis has to be told.
pub(super) async fn note(
    session: &mut Session,
    job: u64,
    rows: u64,
    token: &str,
) -> Result<(), LedgerError> {
    const NOTE: &str = "UPDATE erased SET rows_removed = rows_removed + ? WHERE erased_id = ?";
    const MARK: &str = "UPDATE flush_state SET outside_token = ? WHERE id = 1";
    session
        .execute(sqlx::query(NOTE).bind(rows).bind(job))
        .await?;
    let mark = sqlx::query(MARK).bind(token.to_owned());
    session.execute(mark).await.map(drop)
}

/// Forgets erasures below which no entry without a row is taken any more. Those of targets that are gone are never below.
pub(super) async fn prune(session: &mut Session, horizon: Version) -> Result<(), LedgerError> {
    const PRUNE: &str = "DELETE FROM erased WHERE state = 'done' AND version < ?";
    let prune = sqlx::query(PRUNE).bind(horizon.0);
    session.execute(prune).await.map(drop)
}

async fn begin(
    session: &mut Session,
    user: &UserId,
    digest: Digest,
    version: Version,
) -> Result<Erasure, LedgerError> {
    const MOVE: &str =
        "UPDATE erased SET version = GREATEST(version, ?) WHERE digest = ? AND state = 'open'";
    const INSERT: &str = "INSERT INTO erased (scope, digest, plain_id, version, state, created_at) \
        VALUES ('user', ?, ?, ?, 'open', UTC_TIMESTAMP(6))";
    const RAISE: &str = "UPDATE flush_state SET max_version = GREATEST(max_version, ?), \
        erased_until = GREATEST(erased_until, ?) WHERE id = 1";
    session.begin("START TRANSACTION").await?;
    // A transaction that applies entries comes before this or behind it.
    state::read(session, true).await?;
    let moved = sqlx::query(MOVE).bind(version.0).bind(digest.to_vec());
    if session.execute(moved).await? == 0 {
        let insert = sqlx::query(INSERT)
            .bind(digest.to_vec())
            .bind(user.as_str().to_owned())
            .bind(version.0);
        session.execute(insert).await?;
    }
    // A Redis that is emptied begins above it.
    let raise = sqlx::query(RAISE).bind(version.0).bind(version.0);
    session.execute(raise).await?;
    let text = format!("SELECT {SHOWN} FROM erased WHERE digest = ? AND state = 'open' LIMIT 1");
    let find = sqlx::query(sqlx::AssertSqlSafe(text)).bind(digest.to_vec());
    let row = session.fetch_optional(find).await?;
    let erasure = decode(&row.ok_or(LedgerError::NotMigrated)?)?;
    session.commit().await?;
    Ok(erasure)
}

async fn remove(
    session: &mut Session,
    mirrors: &Mirrors,
    (open, of): (&OpenErasure, &UserId),
    layout: &Layout,
    token: &str,
) -> Result<(Erased, Missing, bool), LedgerError> {
    const FIND: &str = "SELECT thumb.kind_id, kind.name, thumb.target_id, thumb.thumbed \
        FROM thumb FORCE INDEX (PRIMARY) JOIN kind ON kind.kind_id = thumb.kind_id \
        WHERE thumb.user_id = ? AND thumb.version <= ? \
        ORDER BY thumb.kind_id, thumb.target_id LIMIT ? FOR UPDATE";
    const REMOVE: &str = "DELETE FROM thumb WHERE user_id = ? AND version <= ? \
        AND (kind_id < ? OR kind_id = ? AND target_id <= ?)";
    session.begin("START TRANSACTION").await?;
    let state = state::read(session, true).await?;
    let partitions = apply::partitions(&state, layout, &[])?;
    if !state.outside_token.is_empty() && state.outside_token != token {
        return Err(LedgerError::OutsideOther);
    }
    quarantine(session, open, of).await?;
    let user = of.as_str();
    let find = sqlx::query(FIND)
        .bind(user.to_owned())
        .bind(open.version.0)
        .bind(ERASE_ROWS_MAX);
    let found = session.fetch_all(find).await?;
    let mut rows: Vec<(u16, String, String, bool)> = Vec::with_capacity(found.len());
    for row in found {
        let thumbed: i8 = row.try_get(3)?;
        rows.push((
            row.try_get(0)?,
            row.try_get(1)?,
            row.try_get(2)?,
            thumbed != 0,
        ));
    }
    let mut missing = Missing::new();
    let mut stopped = false;
    if let Some((kind_id, _, last, _)) = rows.last() {
        let remove = sqlx::query(REMOVE)
            .bind(user.to_owned())
            .bind(open.version.0)
            .bind(*kind_id)
            .bind(*kind_id)
            .bind(last.clone());
        session.execute(remove).await?;
        let mut moves = Moves::default();
        let mut taken_back = Vec::with_capacity(rows.len());
        let home = partition_of(of, partitions);
        for (at, (kind_id, _, target, thumbed)) in rows.iter().enumerate() {
            let none = StageRow {
                at,
                user,
                kind_id: *kind_id,
                target,
                thumbed: false,
                version: open.version,
                partition: home,
            };
            moves.note(&none, *thumbed, partitions);
            if *thumbed {
                taken_back.push(none);
            }
        }
        (missing, stopped) = tell(session, mirrors, &state.feed, &moves, &taken_back).await?;
        note(session, open.id, rows.len() as u64, token).await?;
    }
    steps::holding("erase.commit").await;
    session.commit().await?;
    let more = rows.len() as u64 == ERASE_ROWS_MAX;
    let erased = Erased {
        rows: rows.len() as u64,
        more,
        // What is no target was written by hand, and is not in Redis.
        targets: rows
            .iter()
            .filter(|row| row.3)
            .filter_map(|(_, kind, id, _)| super::cold::target(kind, id).ok())
            .collect(),
    };
    Ok((erased, missing, stopped))
}

/// The one place where erasing moves counts, and whatever follows them. The feed hears that the likes were taken back, so that
/// its readers can forget them too. True: that stopped the feed.
pub(super) async fn tell(
    session: &mut Session,
    mirrors: &Mirrors,
    feed: &FeedMark,
    moves: &Moves<'_>,
    taken_back: &[StageRow<'_>],
) -> Result<(Missing, bool), LedgerError> {
    moves.write(session).await?;
    let counts = moves.changed();
    let missing = mirror::copy(session, mirrors, &counts).await?;
    let written: Vec<(usize, bool)> = taken_back.iter().map(|row| (row.at, true)).collect();
    let stopped = outbox::record(session, feed, taken_back, &written, &counts).await?;
    Ok((missing, stopped))
}

/// What quarantine has of the user: entries, and bytes that begin as an entry of the user would.
async fn quarantine(
    session: &mut Session,
    open: &OpenErasure,
    user: &UserId,
) -> Result<(), LedgerError> {
    const ENTRIES: &str = "DELETE FROM quarantine WHERE user_id = ? AND version <= ?";
    const BYTES: &str =
        "DELETE FROM quarantine WHERE raw_field IS NOT NULL AND LEFT(raw_field, ?) = ?";
    let user = user.as_str();
    let entries = sqlx::query(ENTRIES)
        .bind(user.to_owned())
        .bind(open.version.0);
    session.execute(entries).await?;
    let begins = format!("{user} ").into_bytes();
    let bytes = sqlx::query(BYTES).bind(begins.len() as u64).bind(begins);
    session.execute(bytes).await.map(drop)
}

fn decode(row: &MySqlRow) -> Result<Erasure, LedgerError> {
    let created_at: NaiveDateTime = row.try_get(3)?;
    let finished_at: Option<NaiveDateTime> = row.try_get(4)?;
    Ok(Erasure {
        id: row.try_get(0)?,
        done: row.try_get::<&str, _>(1)? == "done",
        rows_removed: row.try_get(2)?,
        created_at: created_at.and_utc(),
        finished_at: finished_at.map(|at| at.and_utc()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_that_of_its_key_and_user() {
        let user = |text| UserId::parse(text).unwrap();
        let known = user_digest(b"key", &user("u1"));
        assert_eq!(known, user_digest(b"key", &user("u1")));
        assert_ne!(known, user_digest(b"key", &user("u2")));
        assert_ne!(known, user_digest(b"other", &user("u1")));
        assert_ne!(known, digest(b"key", "target", "u1"));
    }
}
