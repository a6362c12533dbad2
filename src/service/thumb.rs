//! Like and unlike, one by one.

use std::time::Instant;

use super::cold::{Cold, ColdKey};
use super::{Service, ServiceError};
use crate::domain::{Action, Operation, Target, UserId, Version, partition_of};
use crate::hot::{Answer, Known, Moment, Thumb};
use crate::ledger::LedgerError;
use crate::limits::{COLD_ROUNDS_MAX, RECOVERING_POLL, RECOVERING_WAIT_MAX};
use crate::steps;
use crate::telemetry::names;

/// What became of an operation that was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// Whether the state was another one before.
    pub changed: bool,
    /// The target's count afterwards; `None` if a part of it cannot be known.
    pub count: Option<i64>,
}

/// What one try of an operation gave.
enum Try {
    Done { changed: bool, part: i64 },
    Again,
}

/// What the tries of an operation know of each other.
#[derive(Default)]
struct Tries {
    known: Option<Known>,
    recovering_since: Option<Instant>,
}

impl Service {
    /// Likes or unlikes. It is whole even if the caller hangs up: it happens or it does not.
    pub async fn thumb(&self, operation: Operation) -> Result<Outcome, ServiceError> {
        let partition = self.home(&operation.user);
        let counts = self.0.counts.as_ref();
        let write = counts.map(|counts| counts.write(vec![&operation.target]));
        let result = match self.check_backlog() {
            Ok(()) => self.thumb_one(partition, &operation).await,
            Err(error) => Err(error),
        };
        count_outcome(
            operation.action,
            result.as_ref().map(|(changed, _)| *changed),
        );
        let (changed, part) = result?;
        self.changes_note(u64::from(changed));
        let count = self.add_parts(partition, part, &operation.target).await;
        if let (Some(write), Some(count)) = (write, count) {
            write.answer(count);
        }
        Ok(Outcome { changed, count })
    }

    /// Tries until the operation is settled. Only known outcomes are repeated: a lost reply ends here, because a silent
    /// repetition could overtake somebody's unlike.
    pub(super) async fn thumb_one(
        &self,
        partition: u16,
        operation: &Operation,
    ) -> Result<(bool, i64), ServiceError> {
        let mut tries = Tries::default();
        for _ in 0..COLD_ROUNDS_MAX {
            let thumb = thumb_of(operation, tries.known.clone());
            let answer = self
                .0
                .hot
                .thumb(partition, operation.action.thumbed(), thumb)
                .await?;
            steps::point("thumb.answered").await;
            if let Try::Done { changed, part } = self
                .settle(partition, operation, answer, &mut tries)
                .await?
            {
                return Ok((changed, part));
            }
        }
        Err(ServiceError::busy())
    }

    async fn settle(
        &self,
        partition: u16,
        operation: &Operation,
        answer: Answer,
        tries: &mut Tries,
    ) -> Result<Try, ServiceError> {
        match answer {
            Answer::Done { changed, part } => return Ok(Try::Done { changed, part }),
            Answer::Cold { user, count, at } => {
                let colds = colds_of(partition, operation, user, count, &at);
                self.0.loader.load(colds).await?;
            }
            Answer::NotHeld { at } => {
                steps::point("thumb.not_held").await;
                let pair = (operation.user.clone(), operation.target.clone());
                let states = self.states(&[pair]).await?;
                let thumbed = matches!(states.first(), Some(Some((true, _))));
                tries.known = Some(Known { at, thumbed });
            }
            Answer::Limited { limit, wait } => return Err(ServiceError::rate_limited(limit, wait)),
            Answer::Gone => return Err(ServiceError::TargetGone),
            Answer::Recovering => {
                let since = tries.recovering_since.get_or_insert_with(Instant::now);
                if since.elapsed() > RECOVERING_WAIT_MAX {
                    return Err(ServiceError::recovering());
                }
                steps::pause("thumb.recovering", RECOVERING_POLL).await;
            }
            Answer::Uninitialised => {
                self.check(partition).await.map_err(ServiceError::known)?;
            }
        }
        Ok(Try::Again)
    }

    /// The whole count, if the other partitions' parts can be known.
    async fn add_parts(&self, partition: u16, part: i64, target: &Target) -> Option<i64> {
        let partitions = self.0.hot.partitions();
        if partitions == 1 {
            return Some(part);
        }
        let others: Vec<u16> = (0..partitions).filter(|one| *one != partition).collect();
        let parts = self
            .count_parts(&others, std::slice::from_ref(target))
            .await
            .ok()?;
        Some(part + parts.into_iter().next()??)
    }

    /// What MySQL says of pairs that partial users do not hold, within the time that a cold user may take.
    pub(super) async fn states(
        &self,
        pairs: &[(UserId, Target)],
    ) -> Result<Vec<Option<(bool, Version)>>, ServiceError> {
        let bound = self.0.loader.timeout();
        match tokio::time::timeout(bound, self.0.ledger.states(pairs)).await {
            Ok(states) => Ok(states?),
            Err(_) => Err(LedgerError::Timeout(bound).into()),
        }
    }

    pub(super) fn home(&self, user: &UserId) -> u16 {
        partition_of(user, self.0.hot.partitions())
    }
}

pub(super) fn thumb_of(operation: &Operation, known: Option<Known>) -> Thumb {
    Thumb {
        user: operation.user.clone(),
        target: operation.target.clone(),
        known,
    }
}

pub(super) fn colds_of(
    partition: u16,
    operation: &Operation,
    user: bool,
    count: bool,
    at: &Moment,
) -> Vec<Cold> {
    let user = user.then(|| ColdKey::User(operation.user.clone()));
    let count = count.then(|| ColdKey::Count(operation.target.clone()));
    user.into_iter()
        .chain(count)
        .map(|key| Cold {
            partition,
            key,
            at: at.clone(),
        })
        .collect()
}

pub(super) fn count_outcome(action: Action, result: Result<bool, &ServiceError>) {
    let action = if action.thumbed() { "like" } else { "unlike" };
    let outcome = match result {
        Ok(true) => "changed",
        Ok(false) => "unchanged",
        Err(error) => error.code(),
    };
    metrics::counter!(names::OPERATIONS, "action" => action, "outcome" => outcome).increment(1);
}
