//! The outbox of the change feed: what a transaction changed is written down in the same transaction, and taken out when delivered.
//!
//! Whether changes are told stands in `flush_state`, not in the settings of whoever writes: every program that changes rows or
//! counts tells of them, and reads that row anyway. Ids are given out behind the lock on it, so they rise in the order of commits.

use std::collections::{BTreeSet, HashMap};
use std::sync::LazyLock;

use chrono::{DateTime, NaiveDateTime, Utc};
use serde::Serialize;
use sqlx::Row;
use sqlx::mysql::MySqlRow;

use super::mirror::{self, Changed};
use super::session::Session;
use super::sized::{Sized, list};
use super::stage::StageRow;
use super::{Ledger, LedgerError, state};
use crate::limits::{FEED_DELETE_ROWS_MAX, STAGE_ROWS_MAX};

const THUMB: u8 = 1;
const COUNT: u8 = 2;
const GAP: u8 = 3;

/// Whether changes are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FeedState {
    /// Nobody asked for it.
    Off,
    /// They are.
    Running,
    /// Too much waited to be delivered: no more is written down until somebody resumes.
    Stopped,
}

impl FeedState {
    pub(super) fn read(number: u8) -> Self {
        match number {
            0 => Self::Off,
            1 => Self::Running,
            _ => Self::Stopped,
        }
    }
}

/// What stands in `flush_state` of the feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedMark {
    /// Whether changes are told.
    pub state: FeedState,
    /// The last id that was given out.
    pub last: u64,
    /// Most events that may wait.
    pub max: u64,
}

/// How the feed stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct FeedStatus {
    /// Whether changes are told.
    pub state: FeedState,
    /// When it was stopped, by MySQL's clock.
    #[schema(required = true)]
    pub stopped_at: Option<DateTime<Utc>>,
    /// Events that wait to be delivered.
    pub backlog: u64,
    /// Most that may wait.
    pub backlog_max: u64,
    /// Age of the oldest of them in ms.
    pub age_ms: u64,
    /// The last id that was given out.
    pub last_id: u64,
}

/// Something to be told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FeedEvent {
    /// Rises by one with each event, but for a gap, before which it jumps.
    pub id: u64,
    /// What happened.
    #[serde(flatten)]
    pub change: FeedChange,
    /// When it was written down, by MySQL's clock.
    pub at: DateTime<Utc>,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FeedChange {
    /// A row was written.
    Thumb {
        /// Who.
        user: String,
        /// The kind of the target.
        kind: String,
        /// Its id.
        target: String,
        /// Whether the user likes it now.
        liked: bool,
        /// When the user said so, Unix µs: the higher one of a pair is the newer one.
        version: u64,
    },
    /// A count was changed.
    Count {
        /// The kind of the target.
        kind: String,
        /// Its id.
        target: String,
        /// What it is now.
        count: i64,
    },
    /// Changes before this were not told: read everything anew.
    Gap,
}

/// An event that is written down.
struct New<'a> {
    number: u8,
    user: &'a str,
    kind_id: u16,
    target: &'a str,
    thumbed: bool,
    version: u64,
    count: i64,
}

impl New<'_> {
    const GAP: New<'static> = New {
        number: GAP,
        user: "",
        kind_id: 0,
        target: "",
        thumbed: false,
        version: 0,
        count: 0,
    };

    fn bytes(&self) -> usize {
        self.user.len() + self.target.len() + 2 + 8 + 1 + 2 + 1 + 8 + 8 + 8 * 2
    }
}

static INSERT: LazyLock<Sized> = LazyLock::new(|| {
    Sized::new(&[1, 8, 64, 128, STAGE_ROWS_MAX], |size| {
        format!(
            "INSERT INTO feed_event \
             (event_id, type, user_id, kind_id, target_id, thumbed, version, count, created_at) VALUES {}",
            list("(?,?,?,?,?,?,?,?,UTC_TIMESTAMP(6))", size)
        )
    })
});

/// Writes down what a transaction changed, within it: the rows at the places `written` of their chunk, and these counts, as they
/// are now. True: too much waits, and the feed was stopped instead.
pub(super) async fn record(
    session: &mut Session,
    mark: &FeedMark,
    rows: &[StageRow<'_>],
    written: &[(usize, bool)],
    counts: &Changed<'_>,
) -> Result<bool, LedgerError> {
    if mark.state != FeedState::Running {
        return Ok(false);
    }
    let written: BTreeSet<usize> = written.iter().map(|(at, _)| *at).collect();
    let mut thumbs: Vec<&StageRow<'_>> = rows
        .iter()
        .filter(|row| written.contains(&row.at))
        .collect();
    // They stand in the order of the primary key; told is in the order in which it happened.
    thumbs.sort_by_key(|row| row.version);
    let new = thumbs.len() + counts.values().map(Vec::len).sum::<usize>();
    if new == 0 {
        return Ok(false);
    }
    if backlog(session, mark.last).await?.0 + new as u64 > mark.max {
        session
            .text("UPDATE flush_state SET feed_state = 2, feed_stopped_at = UTC_TIMESTAMP(6) WHERE id = 1")
            .await?;
        return Ok(true);
    }
    let thumbs = thumbs.into_iter().map(|row| New {
        number: THUMB,
        user: row.user,
        kind_id: row.kind_id,
        target: row.target,
        thumbed: row.thumbed,
        version: row.version.0,
        count: 0,
    });
    let mut events: Vec<New<'_>> = thumbs.collect();
    for (&kind_id, targets) in counts {
        let stored: HashMap<String, i64> = mirror::counts(session, kind_id, targets).await?;
        events.extend(targets.iter().map(|target| New {
            number: COUNT,
            kind_id,
            target,
            count: stored.get(*target).copied().unwrap_or(0),
            ..New::GAP
        }));
    }
    insert(session, mark.last, &events).await?;
    Ok(false)
}

/// Says it when a transaction that stopped the feed was committed.
pub(super) fn note(stopped: bool) {
    if stopped {
        tracing::error!(
            "the change feed was stopped: more than feed_backlog_max events wait to be delivered. Likes and the flush go on. \
             When events are delivered again: thumbd feed resume"
        );
    }
}

/// Inserts events behind the id `last`, and remembers how far the ids are given out.
async fn insert(session: &mut Session, last: u64, events: &[New<'_>]) -> Result<(), LedgerError> {
    for piece in INSERT.exact(events.len(), |at| events[at].bytes()) {
        let mut statement = piece.statement();
        for at in piece.range {
            let event = &events[at];
            statement = statement
                .bind(last + 1 + at as u64)
                .bind(event.number)
                .bind(event.user)
                .bind(event.kind_id)
                .bind(event.target)
                .bind(event.thumbed)
                .bind(event.version)
                .bind(event.count);
        }
        session.execute(statement).await?;
    }
    let remember = sqlx::query("UPDATE flush_state SET feed_last = ? WHERE id = 1");
    let remember = remember.bind(last + events.len() as u64);
    session.execute(remember).await.map(drop)
}

/// How many events wait, and the age of the oldest in ms. Ids have no gaps between two of them that wait.
async fn backlog(session: &mut Session, last: u64) -> Result<(u64, u64), LedgerError> {
    const OLDEST: &str = "SELECT event_id, \
        CAST(TIMESTAMPDIFF(MICROSECOND, created_at, UTC_TIMESTAMP(6)) AS SIGNED) \
        FROM feed_event ORDER BY event_id LIMIT 1";
    let Some(oldest) = session.fetch_optional(sqlx::query(OLDEST)).await? else {
        return Ok((0, 0));
    };
    let (id, age_us): (u64, i64) = (oldest.try_get(0)?, oldest.try_get(1)?);
    let waiting = (last + 1).saturating_sub(id);
    Ok((waiting, age_us.max(0).unsigned_abs() / 1000))
}

/// Begins to tell, or begins again: nothing waits any more, and a gap is the first that is told. The ids jump to the time of now
/// in µs, so that they are new also under a MySQL that forgot which ones it gave out.
async fn begin(session: &mut Session, last: u64) -> Result<(), LedgerError> {
    session.text("DELETE FROM feed_event").await?;
    session
        .text("UPDATE flush_state SET feed_state = 1, feed_stopped_at = NULL WHERE id = 1")
        .await?;
    let now = sqlx::query("SELECT CAST(UNIX_TIMESTAMP(UTC_TIMESTAMP(6)) * 1000000 AS UNSIGNED)");
    let row = session.fetch_optional(now).await?;
    let now: u64 = row.map_or(Ok(0), |row| row.try_get(0))?;
    insert(session, last.max(now), &[New::GAP]).await
}

impl Ledger {
    /// Switches the feed on, with a gap as its first event, or off; `max` events may wait. If it is as wanted already, and be it
    /// stopped, only `max` changes.
    pub async fn feed_set(&self, on: bool, max: u64) -> Result<(), LedgerError> {
        let mut session = self.session().await?;
        let mark = state::read(&mut session, false).await?.feed;
        if mark.state == FeedState::Off {
            // Somebody may have died who switched it off.
            empty(&mut session, mark.last).await?;
            if !on {
                return Ok(());
            }
        }
        session.begin("START TRANSACTION").await?;
        let mark = state::read(&mut session, true).await?.feed;
        if on {
            let set = sqlx::query("UPDATE flush_state SET feed_max = ? WHERE id = 1");
            session.execute(set.bind(max)).await?;
            if mark.state == FeedState::Off {
                begin(&mut session, mark.last).await?;
            }
        } else {
            session
                .text("UPDATE flush_state SET feed_state = 0 WHERE id = 1")
                .await?;
        }
        session.commit().await?;
        if !on {
            empty(&mut session, mark.last).await?;
        }
        Ok(())
    }

    /// Drops what waits and begins again with a gap, whose id is above `known`. Does nothing while the feed is off.
    pub async fn feed_resume(&self, known: u64) -> Result<FeedStatus, LedgerError> {
        let mut session = self.session().await?;
        let mark = state::read(&mut session, false).await?.feed;
        if mark.state != FeedState::Off {
            // Most of it outside of the transaction, which holds up the flush.
            empty(&mut session, mark.last).await?;
            session.begin("START TRANSACTION").await?;
            let mark = state::read(&mut session, true).await?.feed;
            if mark.state != FeedState::Off {
                begin(&mut session, mark.last.max(known)).await?;
            }
            session.commit().await?;
        }
        status(&mut session).await
    }

    /// How the feed stands.
    pub async fn feed_status(&self) -> Result<FeedStatus, LedgerError> {
        status(&mut self.session().await?).await
    }

    /// The oldest events that wait, at most `limit`.
    pub async fn feed_page(&self, limit: u64) -> Result<Vec<FeedEvent>, LedgerError> {
        const PAGE: &str = "SELECT event.event_id, event.type, event.user_id, COALESCE(kind.name, ''), \
            event.target_id, event.thumbed, event.version, event.count, event.created_at \
            FROM feed_event AS event LEFT JOIN kind ON kind.kind_id = event.kind_id \
            ORDER BY event.event_id LIMIT ?";
        let page = sqlx::query(PAGE).bind(limit);
        let rows = self.session().await?.fetch_all(page).await?;
        rows.iter().map(|row| Ok(decode(row)?)).collect()
    }

    /// Binds events that wait, from the oldest up to `last`, into one batch, so that whoever delivers it, also behind a crash,
    /// delivers the same. Gives the last event of it, which is another one if it was bound before, or nothing if it is gone.
    pub async fn feed_bind(&self, first: u64, last: u64) -> Result<Option<u64>, LedgerError> {
        const BIND: &str =
            "UPDATE feed_event SET batch_last = ? WHERE event_id = ? AND batch_last = 0";
        const BOUND: &str = "SELECT batch_last FROM feed_event WHERE event_id = ?";
        let mut session = self.session().await?;
        let bind = sqlx::query(BIND).bind(last).bind(first);
        session.execute(bind).await?;
        let bound = session.fetch_optional(sqlx::query(BOUND).bind(first));
        Ok(bound.await?.map(|row| row.try_get(0)).transpose()?)
    }

    /// Takes out what was delivered: all up to this id, which was the last of a page.
    pub async fn feed_delivered(&self, upto: u64) -> Result<(), LedgerError> {
        let remove = sqlx::query("DELETE FROM feed_event WHERE event_id <= ?").bind(upto);
        self.session().await?.execute(remove).await.map(drop)
    }
}

/// Removes events up to an id, some at a time.
async fn empty(session: &mut Session, upto: u64) -> Result<(), LedgerError> {
    loop {
        let remove = sqlx::query("DELETE FROM feed_event WHERE event_id <= ? LIMIT ?");
        let remove = remove.bind(upto).bind(FEED_DELETE_ROWS_MAX);
        if session.execute(remove).await? < FEED_DELETE_ROWS_MAX {
            return Ok(());
        }
    }
}

async fn status(session: &mut Session) -> Result<FeedStatus, LedgerError> {
    let mark = state::read(session, false).await?.feed;
    let (backlog, age_ms) = backlog(session, mark.last).await?;
    let stopped = sqlx::query("SELECT feed_stopped_at FROM flush_state WHERE id = 1");
    let row = session.fetch_optional(stopped).await?;
    let stopped_at: Option<NaiveDateTime> = row.map_or(Ok(None), |row| row.try_get(0))?;
    Ok(FeedStatus {
        state: mark.state,
        stopped_at: stopped_at
            .filter(|_| mark.state == FeedState::Stopped)
            .map(|at| at.and_utc()),
        backlog,
        backlog_max: mark.max,
        age_ms,
        last_id: mark.last,
    })
}

fn decode(row: &MySqlRow) -> Result<FeedEvent, sqlx::Error> {
    let number: u8 = row.try_get(1)?;
    let at: NaiveDateTime = row.try_get(8)?;
    let change = match number {
        THUMB => FeedChange::Thumb {
            user: row.try_get(2)?,
            kind: row.try_get(3)?,
            target: row.try_get(4)?,
            liked: row.try_get::<i8, _>(5)? != 0,
            version: row.try_get(6)?,
        },
        COUNT => FeedChange::Count {
            kind: row.try_get(3)?,
            target: row.try_get(4)?,
            count: row.try_get(7)?,
        },
        _ => FeedChange::Gap,
    };
    Ok(FeedEvent {
        id: row.try_get(0)?,
        change,
        at: at.and_utc(),
    })
}
