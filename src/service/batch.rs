//! Likes and unlikes in batches.

use std::collections::HashMap;

use futures_util::future::join_all;

use super::thumb::{colds_of, count_outcome, thumb_of};
use super::{Outcome, Service, ServiceError};
use crate::domain::{Action, Operation, Target, UserId};
use crate::hot::{Answer, HotError, Thumb};

impl Service {
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
}
