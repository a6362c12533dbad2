//! Carries one chunk of a slice into MySQL in one transaction: rows, counts and how far the flush has come, or nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sqlx::Row;

use super::counts::Moves;
use super::mirror::{self, Mirrors, Missing};
use super::quarantine::{self, Quarantined, Subject};
use super::session::Session;
use super::stage::{self, StageRow};
use super::{Layout, Ledger, LedgerError, erased, kinds, outbox, refuse, state};
use crate::domain::{Entry, SliceId, Version};
use crate::limits::{REFUSED_ENTRIES_MAX, REFUSED_ROUNDS_MAX, TRANSACTION_TRIES_MAX};
use crate::steps;
use crate::telemetry::names;

/// Longest wait before the first repetition; it doubles with each.
const RETRY_WAIT: Duration = Duration::from_millis(10);

/// A part of a slice, small enough for one transaction.
#[derive(Debug, Clone)]
pub struct Chunk {
    /// The slice.
    pub slice: SliceId,
    /// The chunk's number within the slice, from 0.
    pub number: u32,
    /// Nothing of this slice comes after it.
    pub last_of_slice: bool,
    /// The flusher's fence token, at most 32 characters.
    pub token: String,
    /// The layout of the keys that it was read from.
    pub layout: Layout,
    /// The newest slice that Redis saw land, over all partitions.
    pub landed_seen: SliceId,
    /// Entries, each with the partition it comes from.
    pub entries: Vec<(u16, Entry)>,
    /// What cannot be an entry: it goes to quarantine with this chunk.
    pub unreadable: Vec<Quarantined>,
}

/// What a chunk changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Applied {
    /// Rows that were written.
    pub rows_changed: u64,
    /// Entries that were not newer than what was there.
    pub rows_stale: u64,
    /// Targets whose count changed.
    pub counts_changed: u64,
    /// How often the transaction was begun.
    pub tries: u32,
    /// Entries that stand in quarantine now, by their place in the chunk, each with the reason.
    pub refused: BTreeMap<usize, String>,
    /// Entries that are void because their user or target was erased, by their place in the chunk: they changed nothing.
    pub void: BTreeSet<usize>,
    /// Those among them whose target is gone.
    pub gone: BTreeSet<usize>,
}

/// Places of entries in a chunk, each with the reason why it is not applied.
pub(super) type Refused = BTreeMap<usize, String>;

/// What is not applied.
#[derive(Debug, Clone, Default)]
pub(super) struct LeftOut {
    pub(super) refused: Refused,
    /// Places of entries that were erased: nobody hears of them any more.
    pub(super) void: BTreeSet<usize>,
}

impl LeftOut {
    fn has(&self, at: usize) -> bool {
        self.refused.contains_key(&at) || self.void.contains(&at)
    }

    fn is_empty(&self) -> bool {
        self.refused.is_empty() && self.void.is_empty()
    }

    fn extend(&mut self, more: Self) {
        self.refused.extend(more.refused);
        self.void.extend(more.void);
    }
}

/// How a transaction ended.
enum Ended {
    /// What it changed, targets that have no mirror, and whether the feed was stopped.
    Committed(Applied, Missing, bool),
    /// These must be left out; nothing was changed.
    LeaveOut(LeftOut),
}

impl Ledger {
    /// Applies a chunk. The same chunk may be applied again, in particular when the outcome of a commit is not known.
    /// An entry that MySQL refuses goes to quarantine in the same transaction.
    pub async fn apply(&self, chunk: &Chunk) -> Result<Applied, LedgerError> {
        if chunk.unreadable.len() > REFUSED_ENTRIES_MAX {
            return Err(LedgerError::TooManyRefused {
                limit: REFUSED_ENTRIES_MAX,
                reason: chunk.unreadable[0].reason.clone(),
            });
        }
        let mut session = self.session().await?;
        let mut out = LeftOut::default();
        let mut tries_all = 0;
        for round in 0..=REFUSED_ROUNDS_MAX {
            let rest = apply_rest(&mut session, &self.mirrors, chunk, &out, &mut tries_all);
            match rest.await {
                Ok(Ended::Committed(applied, missing, stopped)) => {
                    mirror::note(missing);
                    outbox::note(stopped);
                    return Ok(Applied {
                        tries: tries_all,
                        ..applied
                    });
                }
                Ok(Ended::LeaveOut(more)) => out.extend(more),
                Err(LedgerError::Refused(error)) if round < REFUSED_ROUNDS_MAX => {
                    let known = |at| out.has(at);
                    let found = refuse::find(&mut session, &chunk.entries, known).await?;
                    if found.is_empty() {
                        // All of them together are too much, none of them alone: no entry is to blame.
                        return Err(LedgerError::Refused(error));
                    }
                    out.refused.extend(found);
                }
                Err(error) => return Err(error),
            }
        }
        Err(LedgerError::TooManyRefused {
            limit: out.refused.len(),
            reason: out.refused.into_values().next().unwrap_or_default(),
        })
    }
}

/// Applies what is not left out; begins again after a deadlock or a lock wait timeout.
async fn apply_rest(
    session: &mut Session,
    mirrors: &Mirrors,
    chunk: &Chunk,
    out: &LeftOut,
    tries_all: &mut u32,
) -> Result<Ended, LedgerError> {
    let mut tries = 1;
    let rows = loop {
        let wanted = |at| !out.has(at);
        match prepare(session, &chunk.entries, wanted).await {
            Ok(rows) => break rows,
            Err(error) => again(error, session, &mut tries).await?,
        }
    };
    tries = 1;
    loop {
        *tries_all += 1;
        metrics::counter!(names::FLUSH_TRANSACTIONS).increment(1);
        match transact(session, mirrors, chunk, &rows, out).await {
            Ok(ended) => {
                if !rows.is_empty() {
                    // Committed is committed: if this fails, the connection is closed, which does the same.
                    let _ = stage::clear(session).await;
                }
                return Ok(ended);
            }
            Err(error) => {
                // After a lock wait timeout the rest of the transaction is still there: always begin again from the start.
                session.rollback().await;
                again(error, session, &mut tries).await?;
                metrics::counter!(names::TRANSACTION_RETRIES).increment(1);
            }
        }
    }
}

/// Waits before the next try, if there is one.
pub(super) async fn again(
    error: LedgerError,
    session: &Session,
    tries: &mut usize,
) -> Result<(), LedgerError> {
    let again =
        matches!(error, LedgerError::Busy(_)) && *tries < TRANSACTION_TRIES_MAX && session.usable();
    if !again {
        return Err(error);
    }
    let wait_max = RETRY_WAIT * (1 << *tries);
    *tries += 1;
    tokio::time::sleep(wait_max.mul_f64(rand::random_range(0.1..1.0))).await;
    Ok(())
}

/// What needs no transaction: the numbers of the kinds, and the staging table with the entries that are wanted.
pub(super) async fn prepare<'a>(
    session: &mut Session,
    entries: &'a [(u16, Entry)],
    wanted: impl Fn(usize) -> bool,
) -> Result<Vec<StageRow<'a>>, LedgerError> {
    let entries = || {
        let all = entries.iter().enumerate();
        all.filter(|(at, _)| wanted(*at))
    };
    let names: BTreeSet<&str> = entries()
        .map(|(_, (_, entry))| entry.target.kind())
        .collect();
    let numbers = kinds::numbers(session, &names).await?;
    let mut rows = Vec::new();
    for (at, (partition, entry)) in entries() {
        let kind_id = numbers.get(entry.target.kind()).copied();
        // It was there a moment ago, and kinds are never removed.
        let kind_id = kind_id.ok_or(LedgerError::Database(sqlx::Error::RowNotFound))?;
        rows.push(StageRow::new(at, entry, *partition, kind_id));
    }
    // In the order of the primary key, so that transactions meet each other's locks in the same order; newest first, to stay.
    rows.sort_unstable_by(|a, b| a.key().cmp(&b.key()).then(b.version.cmp(&a.version)));
    rows.dedup_by(|later, earlier| later.key() == earlier.key());
    if !rows.is_empty() {
        stage::fill(session, &rows).await?;
    }
    Ok(rows)
}

async fn transact(
    session: &mut Session,
    mirrors: &Mirrors,
    chunk: &Chunk,
    rows: &[StageRow<'_>],
    out: &LeftOut,
) -> Result<Ended, LedgerError> {
    session.begin("START TRANSACTION").await?;
    let state = state::read(session, true).await?;
    let partitions = check(&state, chunk, rows)?;
    let entries = chunk.entries.iter().map(|(_, entry)| entry);
    let erased::Void { places: void, gone } = erased::void(session, &state, entries).await?;
    let mut applied = Applied::default();
    let mut missing = Missing::new();
    let mut stopped = false;
    if !rows.is_empty() {
        let known = quarantine::known(session).await?;
        let leave_out = LeftOut {
            refused: rows_out(rows, known),
            void: void_likes(rows, &void),
        };
        if !leave_out.is_empty() {
            session.rollback().await;
            return Ok(Ended::LeaveOut(leave_out));
        }
        let rules = Rules {
            horizon: state.prune_horizon,
            clamp: None,
            void: Some(&void),
        };
        match write(session, rows, partitions, rules).await? {
            Ok(written) => {
                let counts = written.moves.changed();
                missing = mirror::copy(session, mirrors, &counts).await?;
                stopped =
                    outbox::record(session, &state.feed, rows, &written.changed, &counts).await?;
                applied = written.applied;
            }
            Err(leave_out) => {
                session.rollback().await;
                return Ok(Ended::LeaveOut(leave_out));
            }
        }
    }
    applied.void.extend(&out.void);
    for (at, reason) in &out.refused {
        // Nothing is kept of what was erased, for whatever reason it is left out.
        if void.contains(at) {
            applied.void.insert(*at);
            continue;
        }
        let (partition, entry) = &chunk.entries[*at];
        let one = Quarantined::entry(*partition, chunk.slice, entry, reason);
        quarantine::insert(session, &one).await?;
        applied.refused.insert(*at, reason.clone());
    }
    applied.gone = applied.void.intersection(&gone).copied().collect();
    for one in &chunk.unreadable {
        let entry = match &one.subject {
            Subject::Entry(entry) => Some(entry),
            Subject::Bytes { .. } => None,
        };
        let void = erased::void(session, &state, entry.into_iter()).await?;
        if void.places.is_empty() {
            quarantine::insert(session, one).await?;
        }
    }
    let landed = if chunk.last_of_slice {
        chunk.slice
    } else {
        SliceId(0)
    };
    let max_version = rows.iter().map(|row| row.version).max().unwrap_or_default();
    let advance = sqlx::query(include_str!("sql/advance.sql"))
        .bind(chunk.slice.0)
        .bind(landed.0)
        .bind(max_version.0)
        .bind(chunk.slice.0)
        .bind(chunk.number)
        .bind(&chunk.token);
    session.execute(advance).await?;
    steps::holding("ledger.commit").await;
    session.commit().await?;
    steps::holding("ledger.committed").await;
    Ok(Ended::Committed(applied, missing, stopped))
}

/// What of the staged rows stands in quarantine already: it was refused before, by this or an earlier flusher.
fn rows_out(rows: &[StageRow<'_>], known: Vec<(u32, String)>) -> Refused {
    known
        .into_iter()
        .filter_map(|(seq, reason)| Some((rows.get(seq as usize)?.at, reason)))
        .collect()
}

/// Likes among the staged rows that are void. A void unlike takes away what there is, and is left out only where nothing is.
pub(super) fn void_likes(rows: &[StageRow<'_>], void: &BTreeSet<usize>) -> BTreeSet<usize> {
    rows.iter()
        .filter(|row| row.thumbed && void.contains(&row.at))
        .map(|row| row.at)
        .collect()
}

/// Which entries give way.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rules<'r> {
    /// What is older and has no row is given back.
    pub(super) horizon: Version,
    /// An entry of just this version says nothing about the order: it counts only where no row is.
    pub(super) clamp: Option<Version>,
    /// Places of entries that were erased; those without a row are given back.
    pub(super) void: Option<&'r BTreeSet<usize>>,
}

/// What was written.
#[derive(Debug, Default)]
pub(super) struct Written<'a> {
    pub(super) applied: Applied,
    /// Places of the entries whose rows were written, each with whether its row said the same before.
    pub(super) changed: Vec<(usize, bool)>,
    /// The counts that moved.
    pub(super) moves: Moves<'a>,
}

/// Compares, upserts and moves the counts, within a transaction. Gives back what is older than the horizon and has no row:
/// its row may have been pruned, so nobody knows any more whether it is still wanted. The same with what is void and has no row.
pub(super) async fn write<'a>(
    session: &mut Session,
    rows: &[StageRow<'a>],
    partitions: u16,
    rules: Rules<'_>,
) -> Result<Result<Written<'a>, LeftOut>, LedgerError> {
    let compare = sqlx::query(include_str!("sql/compare.sql"));
    let mut before = vec![None; rows.len()];
    for row in session.fetch_all(compare).await? {
        let seq: u32 = row.try_get(0)?;
        let thumbed: i8 = row.try_get(1)?;
        let version: u64 = row.try_get(2)?;
        before[seq as usize] = Some((thumbed != 0, version));
    }
    let mut out = LeftOut::default();
    for (row, _) in rows.iter().zip(&before).filter(|(_, row)| row.is_none()) {
        if rules.void.is_some_and(|void| void.contains(&row.at)) {
            out.void.insert(row.at);
        } else if row.version < rules.horizon {
            out.refused.insert(row.at, PRUNED.to_owned());
        }
    }
    if !out.is_empty() {
        return Ok(Err(out));
    }
    let mut written = Written::default();
    let mut clamped = false;
    for (row, before) in rows.iter().zip(before) {
        let says_nothing = before.is_some() && rules.clamp == Some(row.version);
        clamped |= says_nothing;
        match before {
            Some((_, version)) if says_nothing || version >= row.version.0 => {
                written.applied.rows_stale += 1;
            }
            _ => {
                let thumbed = before.is_some_and(|(thumbed, _)| thumbed);
                written.changed.push((row.at, thumbed == row.thumbed));
                written.moves.note(row, thumbed, partitions);
            }
        }
    }
    written.applied.rows_changed = written.changed.len() as u64;
    if let (true, Some(clamp)) = (clamped, rules.clamp) {
        stage::give_way(session, clamp).await?;
    }
    if !written.changed.is_empty() {
        let upsert = sqlx::query(include_str!("sql/upsert.sql"));
        session.execute(upsert).await?;
        written.applied.counts_changed = written.moves.write(session).await?;
    }
    Ok(Ok(written))
}

const PRUNED: &str = "older than the prune horizon: a newer unlike may have been pruned, so it may not be wanted any more";

/// Whether this chunk may be applied now, and how many partitions there are.
fn check(
    state: &state::FlushState,
    chunk: &Chunk,
    rows: &[StageRow<'_>],
) -> Result<u16, LedgerError> {
    let partitions = partitions(state, &chunk.layout, rows)?;
    if state.landed < chunk.landed_seen {
        return Err(LedgerError::LandedBehind {
            landed: state.landed,
            seen: chunk.landed_seen,
        });
    }
    // The chunk before it must be there and ours; or this very one, when its commit was not answered and it comes again.
    let progress = &state.progress;
    let follows = progress.slice == chunk.slice
        && progress.token == chunk.token
        && (progress.number.checked_add(1) == Some(chunk.number)
            || progress.number == chunk.number);
    if chunk.number > 0 && !follows {
        return Err(LedgerError::Overtaken);
    }
    Ok(partitions)
}

/// The number of partitions, if this is the stored layout and the rows fit it.
pub(super) fn partitions(
    state: &state::FlushState,
    wanted: &Layout,
    rows: &[StageRow<'_>],
) -> Result<u16, LedgerError> {
    let partitions = match &state.layout {
        Some(layout) if layout == wanted => layout.partitions,
        // Whoever was started with the old settings must not write beside those with the new ones.
        Some(layout) => {
            return Err(LedgerError::LayoutChanged {
                stored: layout.clone(),
                wanted: wanted.clone(),
            });
        }
        None => return Err(LedgerError::LayoutMissing),
    };
    match rows.iter().find(|row| row.partition >= partitions) {
        Some(row) => Err(LedgerError::PartitionOutside {
            partition: row.partition,
            partitions,
        }),
        None => Ok(partitions),
    }
}
