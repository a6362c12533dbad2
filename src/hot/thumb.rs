//! Calls of `thumb.lua` and `unthumb.lua`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use metrics::Label;
use redis::Value;

use super::keys::Keys;
use super::limit::{self, Limit, Limits};
use super::reply::Reply;
use super::scripts::{Script, THUMB, UNTHUMB, UNTHUMB_KEPT};
use super::wire::Wire;
use super::{Hot, HotError, HotOptions, Moment, Trouble, bounded};
use crate::domain::{Target, UserId};
use crate::limits::MOVED_RETRIES_MAX;
use crate::telemetry::names;

/// What MySQL says of a target that a partial user does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// When the script said that it is not held.
    pub at: Moment,
    /// Whether there is a thumbed row.
    pub thumbed: bool,
}

/// An operation of one direction.
#[derive(Debug, Clone)]
pub struct Thumb {
    /// Who.
    pub user: UserId,
    /// What.
    pub target: Target,
    /// Only for a repetition after [`Answer::NotHeld`].
    pub known: Option<Known>,
}

/// What the script did with an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The state is as wanted.
    Done {
        /// Whether it was not so before.
        changed: bool,
        /// This partition's part of the target's count, afterwards.
        part: i64,
    },
    /// Load what is cold and come again.
    Cold {
        /// The user is cold.
        user: bool,
        /// The count is cold.
        count: bool,
        /// When this was so.
        at: Moment,
    },
    /// The user is partial and does not hold the target: ask MySQL and come again.
    NotHeld {
        /// When this was so.
        at: Moment,
    },
    /// The user has done too much of this lately: nothing was done.
    Limited {
        /// What was not kept.
        limit: Limit,
        /// After how long it is accepted, if nothing else comes in between.
        wait: Duration,
    },
    /// The target is gone: nothing was done. An unlike of it is done already.
    Gone,
    /// What was unflushed when the partition was found damaged has not landed yet, and this needs MySQL.
    Recovering,
    /// The partition is empty.
    Uninitialised,
}

/// One partition's way into Redis.
#[derive(Clone)]
pub(super) struct Line(Arc<LineInner>);

struct LineInner {
    options: HotOptions,
    limits: Arc<Limits>,
    keys: Keys,
    meta: String,
    slices: String,
    layout: String,
    wire: Wire,
    trouble: Arc<Trouble>,
    /// The slice that was open last; the script says when it no longer is.
    open: AtomicU64,
}

impl Line {
    pub(super) fn new(
        options: &HotOptions,
        limits: Arc<Limits>,
        keys: Keys,
        wire: Wire,
        trouble: Arc<Trouble>,
    ) -> Self {
        Self(Arc::new(LineInner {
            options: options.clone(),
            limits,
            meta: keys.meta(),
            slices: keys.slices(),
            layout: options.layout(),
            keys,
            wire,
            trouble,
            open: AtomicU64::new(0),
        }))
    }

    /// Runs operations of one direction in one script call, in their order. Only outcomes that are known are repeated here.
    pub(super) async fn call(
        &self,
        thumb: bool,
        operations: &[&Thumb],
    ) -> Result<Vec<Answer>, HotError> {
        let line = &*self.0;
        let script = match (thumb, line.options.keep_unlikes) {
            (true, _) => &*THUMB,
            (false, false) => &*UNTHUMB,
            (false, true) => &*UNTHUMB_KEPT,
        };
        let limited = line.limits.hold(operations);
        let keys_each = if limited { 4 } else { 2 };
        for _ in 0..=MOVED_RETRIES_MAX {
            let open = line.open.load(Ordering::Relaxed);
            let mut call = script.call(3 + keys_each * operations.len());
            call.arg(&line.meta)
                .arg(&line.slices)
                .arg(line.keys.slice(crate::domain::SliceId(open)));
            for operation in operations {
                call.arg(line.keys.user(&operation.user))
                    .arg(line.keys.count(&operation.target));
            }
            if limited {
                line.limits.add_keys(&mut call, &line.keys, operations);
            }
            call.arg(open).arg(line.options.slice_ms).arg(&line.layout);
            for operation in operations {
                call.arg(operation.user.as_str())
                    .arg(operation.target.as_str());
                match &operation.known {
                    None => call.arg(""),
                    Some(known) => call.arg(format!(
                        "{}{}:{}",
                        known.at.generation,
                        known.at.sealed,
                        u8::from(known.thumbed)
                    )),
                };
            }
            if limited {
                line.limits.add_arguments(&mut call, operations);
            }
            let sent = script.send(&line.wire, &call);
            let sent = bounded(&line.options, &line.trouble, 1, sent).await;
            let answers = sent.and_then(|value| line.answers(value, operations));
            count_outcomes(script, &answers, operations.len());
            if let Some(answers) = answers? {
                return Ok(answers);
            }
        }
        Err(HotError::MovedTooOften)
    }
}

impl LineInner {
    /// What the script says of each operation. `None`: another slice is open, and nothing was done.
    fn answers(
        &self,
        value: Value,
        operations: &[&Thumb],
    ) -> Result<Option<Vec<Answer>>, HotError> {
        let mut reply = Reply::new(value)?;
        match reply.int()? {
            0 => answers(reply, operations, &self.limits).map(Some),
            1 => {
                self.open.store(reply.unsigned()?, Ordering::Relaxed);
                Ok(None)
            }
            2 => Ok(Some(vec![Answer::Uninitialised; operations.len()])),
            _ => Err(HotError::Layout {
                found: reply.text()?,
                wanted: self.layout.clone(),
            }),
        }
    }
}

/// Counts what became of the operations of one call.
fn count_outcomes(
    script: &Script,
    answers: &Result<Option<Vec<Answer>>, HotError>,
    operations: usize,
) {
    let count = |outcome: &'static str, count: u64| {
        let labels = [
            Label::new("script", script.name()),
            Label::from_static_parts("outcome", outcome),
        ];
        metrics::counter!(names::SCRIPT_OPERATIONS, labels.iter()).increment(count);
    };
    match answers {
        Ok(Some(answers)) => {
            for (at, outcome) in OUTCOMES.iter().enumerate() {
                let same = answers.iter().filter(|answer| answer.outcome() == at);
                match same.count() as u64 {
                    0 => {}
                    some => count(outcome, some),
                }
            }
        }
        Ok(None) => count("moved", operations as u64),
        Err(_) => count("failed", operations as u64),
    }
}

/// Names of the answers, as metrics tell them.
const OUTCOMES: [&str; 8] = [
    "changed",
    "unchanged",
    "cold",
    "not_held",
    "limited",
    "recovering",
    "uninitialised",
    "gone",
];

impl Answer {
    /// Its place in [`OUTCOMES`].
    fn outcome(&self) -> usize {
        match self {
            Self::Done { changed: true, .. } => 0,
            Self::Done { changed: false, .. } => 1,
            Self::Cold { .. } => 2,
            Self::NotHeld { .. } => 3,
            Self::Limited { .. } => 4,
            Self::Recovering => 5,
            Self::Uninitialised => 6,
            Self::Gone => 7,
        }
    }
}

fn answers(
    mut reply: Reply,
    operations: &[&Thumb],
    limits: &Limits,
) -> Result<Vec<Answer>, HotError> {
    let generation = reply.text()?;
    let sealed = reply.unsigned()?;
    let at = || Moment {
        generation: generation.clone(),
        sealed,
    };
    if reply.left() != 2 * operations.len() {
        return Err(HotError::Protocol("a reply has another length".into()));
    }
    operations
        .iter()
        .map(|operation| {
            let (code, part) = (reply.int()?, reply.int()?);
            let cold = |user, count| Answer::Cold {
                user,
                count,
                at: at(),
            };
            Ok(match code {
                1 | -1 => Answer::Done {
                    changed: code == 1,
                    part,
                },
                2 => cold(true, false),
                3 => cold(false, true),
                4 => cold(true, true),
                5 => Answer::Recovering,
                6 => Answer::NotHeld { at: at() },
                9 => Answer::Gone,
                other => match limits.refused(other, &operation.target) {
                    Some(limit) => Answer::Limited {
                        limit,
                        wait: limit::wait(part),
                    },
                    None => return Err(HotError::Protocol(format!("code {other}"))),
                },
            })
        })
        .collect()
}

impl Hot {
    /// One operation; it shares a script call with others of the same moment.
    pub async fn thumb(
        &self,
        partition: u16,
        thumb: bool,
        operation: Thumb,
    ) -> Result<Answer, HotError> {
        let part = self.part(partition);
        let gatherer = if thumb { &part.thumbs } else { &part.unthumbs };
        gatherer.run(operation).await
    }

    /// Many operations of one direction, in calls of bounded size, in their order. An error belongs to the operations of its call;
    /// but if Redis hangs, the others are not sent.
    pub async fn thumb_many(
        &self,
        partition: u16,
        thumb: bool,
        operations: &[Thumb],
    ) -> Vec<Result<Answer, HotError>> {
        let line = &self.part(partition).line;
        let mut results = Vec::with_capacity(operations.len());
        let mut hangs = false;
        for chunk in operations.chunks(self.0.options.gather_operations_max) {
            if hangs {
                results.extend(chunk.iter().map(|_| Err(HotError::not_sent())));
                continue;
            }
            let refs: Vec<&Thumb> = chunk.iter().collect();
            match line.call(thumb, &refs).await {
                Ok(answers) => results.extend(answers.into_iter().map(Ok)),
                Err(error) => {
                    hangs = error.hangs();
                    results.extend(chunk.iter().map(|_| Err(error.clone())));
                }
            }
        }
        results
    }
}
