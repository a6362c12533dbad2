//! Like and unlike, one by one and in batches.

use std::collections::HashMap;
use std::time::Instant;

use futures_util::future::join_all;

use super::cold::{Cold, ColdKey};
use super::{Service, ServiceError, recover};
use crate::domain::{Action, Operation, Target, UserId, partition_of};
use crate::hot::{Answer, HotError, Known, Moment, Thumb};
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
        let result = self.thumb_one(partition, &operation).await;
        count_outcome(
            operation.action,
            result.as_ref().map(|(changed, _)| *changed),
        );
        let (changed, part) = result?;
        Ok(Outcome {
            changed,
            count: self.add_parts(partition, part, &operation.target).await,
        })
    }

    /// Likes and unlikes, answered in the order given. Operations of one user on one target keep their order; one that fails
    /// does not spoil the others. Counts are not read.
    pub async fn batch(&self, operations: Vec<Operation>) -> Vec<Result<Outcome, ServiceError>> {
        let mut results: Vec<Option<Result<Outcome, ServiceError>>> = vec![None; operations.len()];
        // What is later on the same pair and wants something else goes in a later round, in which the earlier one is settled.
        let mut last: HashMap<(&UserId, &Target), (usize, Action)> = HashMap::new();
        let mut rounds: Vec<Vec<usize>> = Vec::new();
        for (at, operation) in operations.iter().enumerate() {
            let round = match last.get(&(&operation.user, &operation.target)) {
                None => 0,
                Some((round, action)) if *action == operation.action => *round,
                Some((round, _)) => round + 1,
            };
            last.insert(
                (&operation.user, &operation.target),
                (round, operation.action),
            );
            if rounds.len() <= round {
                rounds.resize_with(round + 1, Vec::new);
            }
            rounds[round].push(at);
        }
        for round in rounds {
            let mut calls: HashMap<(u16, Action), Vec<usize>> = HashMap::new();
            for at in round {
                let operation = &operations[at];
                calls
                    .entry((self.home(&operation.user), operation.action))
                    .or_default()
                    .push(at);
            }
            let calls = calls.into_iter().map(|((partition, action), ats)| {
                self.batch_call(partition, action, ats, &operations)
            });
            for (at, result) in join_all(calls).await.into_iter().flatten() {
                results[at] = Some(result);
            }
        }
        let lost = || {
            Err(ServiceError::Internal(
                "an operation of a batch got no answer".into(),
            ))
        };
        results
            .into_iter()
            .map(|result| result.unwrap_or_else(lost))
            .collect()
    }

    /// Operations of one partition and direction; those that are not settled at once go on one by one, in their order.
    async fn batch_call(
        &self,
        partition: u16,
        action: Action,
        ats: Vec<usize>,
        operations: &[Operation],
    ) -> Vec<(usize, Result<Outcome, ServiceError>)> {
        let thumbs: Vec<Thumb> = ats
            .iter()
            .map(|at| thumb_of(&operations[*at], None))
            .collect();
        let answers = self
            .0
            .hot
            .thumb_many(partition, action.thumbed(), &thumbs)
            .await;
        self.load_together(partition, &ats, &answers, operations)
            .await;
        let mut results = Vec::with_capacity(ats.len());
        for (at, answer) in ats.into_iter().zip(answers) {
            let result = match answer {
                Ok(Answer::Done { changed, .. }) => Ok(changed),
                Err(error) => Err(error.into()),
                Ok(_) => self
                    .thumb_one(partition, &operations[at])
                    .await
                    .map(|(changed, _)| changed),
            };
            count_outcome(action, result.as_ref().copied());
            results.push((
                at,
                result.map(|changed| Outcome {
                    changed,
                    count: None,
                }),
            ));
        }
        results
    }

    /// Loads all that was cold in a batch at once. Errors are met again, one by one, by those whom they concern.
    async fn load_together(
        &self,
        partition: u16,
        ats: &[usize],
        answers: &[Result<Answer, HotError>],
        operations: &[Operation],
    ) {
        let mut colds = HashMap::new();
        for (at, answer) in ats.iter().zip(answers) {
            if let Ok(Answer::Cold {
                user,
                count,
                at: moment,
            }) = answer
            {
                for cold in colds_of(partition, &operations[*at], *user, *count, moment) {
                    colds.insert(cold.key.clone(), cold);
                }
            }
        }
        if !colds.is_empty() {
            let _ = self.0.loader.load(colds.into_values().collect()).await;
        }
    }

    /// Tries until the operation is settled. Only known outcomes are repeated: a lost reply ends here, because a silent
    /// repetition could overtake somebody's unlike.
    async fn thumb_one(
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
                let states = self.0.ledger.states(&[pair]).await?;
                let thumbed = matches!(states.first(), Some(Some((true, _))));
                tries.known = Some(Known { at, thumbed });
            }
            Answer::Recovering => {
                let since = tries.recovering_since.get_or_insert_with(Instant::now);
                if since.elapsed() > RECOVERING_WAIT_MAX {
                    return Err(ServiceError::recovering());
                }
                steps::pause("thumb.recovering", RECOVERING_POLL).await;
            }
            Answer::Uninitialised => {
                recover::check(&self.0.hot, &self.0.ledger, partition).await?;
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

    pub(super) fn home(&self, user: &UserId) -> u16 {
        partition_of(user, self.0.hot.partitions())
    }
}

fn thumb_of(operation: &Operation, known: Option<Known>) -> Thumb {
    Thumb {
        user: operation.user.clone(),
        target: operation.target.clone(),
        known,
    }
}

fn colds_of(
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

fn count_outcome(action: Action, result: Result<bool, &ServiceError>) {
    let action = if action.thumbed() { "like" } else { "unlike" };
    let outcome = match result {
        Ok(true) => "changed",
        Ok(false) => "unchanged",
        Err(error) => error.code(),
    };
    metrics::counter!(names::OPERATIONS, "action" => action, "outcome" => outcome).increment(1);
}
