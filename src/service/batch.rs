//! Likes and unlikes in batches.

use std::collections::HashMap;

use futures_util::future::join_all;
use tokio::sync::Mutex;

use super::cold::Cold;
use super::thumb::{colds_of, count_outcome, thumb_of};
use super::{Outcome, Service, ServiceError};
use crate::domain::{Action, Operation, Target, UserId};
use crate::hot::{Answer, HotError, Thumb};

impl Service {
    /// Likes and unlikes, answered in the order given. Operations of one user on one target keep their order; one that fails
    /// does not spoil the others. Counts are not read.
    pub async fn batch(&self, operations: Vec<Operation>) -> Vec<Result<Outcome, ServiceError>> {
        if let Err(error) = self.check_backlog() {
            for operation in &operations {
                count_outcome(operation.action, Err(&error));
            }
            return vec![Err(error); operations.len()];
        }
        let targets = || operations.iter().map(|one| &one.target).collect();
        let counts = self.0.counts.as_ref();
        // Dropped at the end: the counts behind a batch are not read.
        let _write = counts.map(|counts| counts.write(targets()));
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
        let loading = Mutex::new(());
        // What stopped an operation and will stop all others that need the same: nobody waits for it once more.
        let mut stopped = None;
        // Pairs with an operation that was not accepted: what comes behind it waits for its repetition, or the repetition would win.
        let mut refused: HashMap<(&UserId, &Target), ServiceError> = HashMap::new();
        for round in rounds {
            let mut calls: HashMap<(u16, Action), Vec<usize>> = HashMap::new();
            for at in round {
                let operation = &operations[at];
                if let Some(error) = refused.get(&(&operation.user, &operation.target)) {
                    results[at] = Some(Err(error.clone()));
                    count_outcome(operation.action, Err(error));
                    continue;
                }
                calls
                    .entry((self.home(&operation.user), operation.action))
                    .or_default()
                    .push(at);
            }
            let calls = calls.into_iter().map(|((partition, action), ats)| {
                let call = Call {
                    partition,
                    action,
                    ats,
                    operations: &operations,
                    loading: &loading,
                };
                self.batch_call(call, stopped.clone())
            });
            let answers = join_all(calls).await;
            for (at, result) in answers.into_iter().flatten() {
                match &result {
                    // Its repetition will not be accepted either, so nobody waits for it.
                    Ok(_) | Err(ServiceError::TargetGone) => {}
                    Err(error) => {
                        stopped = stopped.or_else(|| stop(error));
                        let operation = &operations[at];
                        let pair = (&operation.user, &operation.target);
                        refused.entry(pair).or_insert_with(|| not_sent(error));
                    }
                }
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
        call: Call<'_>,
        mut stopped: Option<ServiceError>,
    ) -> Vec<(usize, Result<Outcome, ServiceError>)> {
        let thumbs: Vec<Thumb> = call
            .ats
            .iter()
            .map(|at| thumb_of(&call.operations[*at], None))
            .collect();
        let answers = self
            .0
            .hot
            .thumb_many(call.partition, call.action.thumbed(), &thumbs)
            .await;
        if stopped.is_none()
            && let Err(error) = self.load_together(&call, &answers).await
        {
            stopped = stop(&error);
        }
        let mut results = Vec::with_capacity(call.ats.len());
        for (at, answer) in call.ats.into_iter().zip(answers) {
            let result = match (answer, &stopped) {
                (Ok(Answer::Done { changed, .. }), _) => Ok(changed),
                (Ok(Answer::Limited { limit, wait }), _) => {
                    Err(ServiceError::rate_limited(limit, wait))
                }
                (Ok(Answer::Gone), _) => Err(ServiceError::TargetGone),
                (Err(error), _) => Err(error.into()),
                (Ok(_), Some(error)) => Err(error.clone()),
                (Ok(_), None) => self
                    .thumb_one(call.partition, &call.operations[at])
                    .await
                    .map(|(changed, _)| changed),
            };
            if let Err(error) = &result {
                stopped = stopped.or_else(|| stop(error));
            }
            count_outcome(call.action, result.as_ref().copied());
            self.changes_note(u64::from(matches!(result, Ok(true))));
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

    /// Loads all that was cold, as much at once as the queries take: a batch alone must not fill all places for loads, or it
    /// would refuse a part of itself.
    async fn load_together(
        &self,
        call: &Call<'_>,
        answers: &[Result<Answer, HotError>],
    ) -> Result<(), ServiceError> {
        let mut colds = HashMap::new();
        for (at, answer) in call.ats.iter().zip(answers) {
            if let Ok(Answer::Cold {
                user,
                count,
                at: moment,
            }) = answer
            {
                let operation = &call.operations[*at];
                for cold in colds_of(call.partition, operation, *user, *count, moment) {
                    colds.insert(cold.key.clone(), cold);
                }
            }
        }
        let colds: Vec<Cold> = colds.into_values().collect();
        for colds in colds.chunks(self.0.loader.together_max()) {
            let _one_at_a_time = call.loading.lock().await;
            self.0.loader.load(colds.to_vec()).await?;
        }
        Ok(())
    }
}

/// Operations of a batch that go in one call.
struct Call<'a> {
    partition: u16,
    action: Action,
    ats: Vec<usize>,
    operations: &'a [Operation],
    /// Whoever loads for this batch.
    loading: &'a Mutex<()>,
}

/// What an error of one operation means for those behind it that are not settled either; `None`: they may be luckier.
fn stop(error: &ServiceError) -> Option<ServiceError> {
    match error {
        ServiceError::DatabaseUnavailable { .. }
        | ServiceError::Recovering { .. }
        | ServiceError::RedisUnavailable { .. }
        | ServiceError::BacklogFull { .. }
        | ServiceError::RedisFull { .. } => Some(error.clone()),
        ServiceError::OutcomeUnknown { .. } => Some(not_sent(error)),
        ServiceError::Busy { .. }
        | ServiceError::RateLimited { .. }
        | ServiceError::TargetGone
        | ServiceError::Internal(_) => None,
    }
}

/// The same error for an operation that was not even sent, so that its outcome is known.
fn not_sent(error: &ServiceError) -> ServiceError {
    match error {
        ServiceError::OutcomeUnknown { retry_after } => ServiceError::RedisUnavailable {
            retry_after: *retry_after,
        },
        other => other.clone(),
    }
}
