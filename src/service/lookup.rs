//! Reads: who likes what, and how many do.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;
use std::time::Instant;

use futures_util::future::join_all;

use super::cold::{Cold, ColdKey};
use super::{Service, ServiceError};
use crate::domain::{Target, UserId};
use crate::hot::{Looked, State};
use crate::limits::{COLD_ROUNDS_MAX, RECOVERING_POLL, RECOVERING_WAIT_MAX, RENEW_EVERY};
use crate::steps;
use crate::telemetry::names;

/// What is known of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Seen {
    /// Whether the caller likes it; `None` without a user, or if it cannot be known.
    pub liked: Option<bool>,
    /// How many like it; `None` if it cannot be known.
    pub count: Option<i64>,
}

/// What one partition said of each target.
type Part = Vec<(State, Option<i64>)>;

impl Service {
    /// The caller's states and the counts of these targets, in the order asked.
    pub async fn lookup(
        &self,
        user: Option<&UserId>,
        targets: &[Target],
    ) -> Result<Vec<Seen>, ServiceError> {
        let Some(counts) = &self.0.counts else {
            return self.look_up(user, targets).await;
        };
        if user.is_none() {
            let kept = counts.all(targets);
            let outcome = if kept.is_some() { "hit" } else { "miss" };
            metrics::counter!(names::COUNT_CACHE, "outcome" => outcome).increment(1);
            if let Some(kept) = kept {
                let seen = kept.into_iter().map(|count| Seen {
                    liked: None,
                    count: Some(count),
                });
                return Ok(seen.collect());
            }
        }
        let begun = counts.begin();
        let seen = self.look_up(user, targets).await?;
        for (target, one) in targets.iter().zip(&seen) {
            if let Some(count) = one.count {
                counts.answer(target, begun, count);
            }
        }
        Ok(seen)
    }

    /// The same, from the stores.
    async fn look_up(
        &self,
        user: Option<&UserId>,
        targets: &[Target],
    ) -> Result<Vec<Seen>, ServiceError> {
        let all: Vec<u16> = (0..self.0.hot.partitions()).collect();
        let parts = self.look(&all, user, targets).await?;
        let counts = sums(&parts, targets.len());
        let states: Vec<State> = match user {
            Some(user) => {
                let home = parts
                    .iter()
                    .find(|(partition, _)| *partition == self.home(user));
                home.map(|(_, part)| part.iter().map(|(state, _)| *state).collect())
                    .unwrap_or_default()
            }
            None => Vec::new(),
        };
        let mut seen: Vec<Seen> = counts
            .into_iter()
            .map(|count| Seen { liked: None, count })
            .collect();
        for (one, state) in seen.iter_mut().zip(&states) {
            one.liked = match state {
                State::Thumbed => Some(true),
                State::Not => Some(false),
                State::NotHeld | State::Cold | State::NoUser => None,
            };
        }
        if let Some(user) = user {
            self.ask_not_held(user, targets, &states, &mut seen).await?;
        }
        Ok(seen)
    }

    /// The sums of these partitions' parts, in the order asked.
    pub(super) async fn count_parts(
        &self,
        partitions: &[u16],
        targets: &[Target],
    ) -> Result<Vec<Option<i64>>, ServiceError> {
        let parts = self.look(partitions, None, targets).await?;
        Ok(sums(&parts, targets.len()))
    }

    /// What a partial user does not hold is clean, so MySQL is exact.
    async fn ask_not_held(
        &self,
        user: &UserId,
        targets: &[Target],
        states: &[State],
        seen: &mut [Seen],
    ) -> Result<(), ServiceError> {
        let asked: Vec<usize> = (0..states.len())
            .filter(|at| states[*at] == State::NotHeld)
            .collect();
        if asked.is_empty() {
            return Ok(());
        }
        let pairs: Vec<_> = asked
            .iter()
            .map(|at| (user.clone(), targets[*at].clone()))
            .collect();
        match self.states(&pairs).await {
            Ok(rows) => {
                for (at, row) in asked.into_iter().zip(rows) {
                    seen[at].liked = Some(matches!(row, Some((true, _))));
                }
                Ok(())
            }
            Err(ServiceError::DatabaseUnavailable { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Reads partitions until nothing is cold, or what is cold cannot be loaded.
    async fn look(
        &self,
        partitions: &[u16],
        user: Option<&UserId>,
        targets: &[Target],
    ) -> Result<Vec<(u16, Part)>, ServiceError> {
        let mut parts: HashMap<u16, Part> = HashMap::new();
        let mut left = partitions.to_vec();
        let mut recovering_since = None;
        for _ in 0..COLD_ROUNDS_MAX {
            let looks = left.iter().map(|partition| async {
                let user = user.filter(|user| self.home(user) == *partition);
                let looked = self.0.hot.lookup(*partition, user, targets).await;
                self.renew_some(*partition, user, targets);
                (*partition, looked)
            });
            let looked = join_all(looks).await;
            left.clear();
            let mut colds = BTreeMap::new();
            let mut wait = false;
            for (partition, looked) in looked {
                match looked.map_err(|error| ServiceError::from(error).known())? {
                    Looked::Uninitialised => {
                        self.check(partition).await.map_err(ServiceError::known)?;
                        left.push(partition);
                    }
                    Looked::Found {
                        at,
                        recovering,
                        targets: part,
                    } => {
                        let user = user.filter(|user| self.home(user) == partition);
                        let keys = cold_keys(user, targets, &part);
                        if !keys.is_empty() {
                            left.push(partition);
                            wait |= recovering;
                        }
                        for key in keys {
                            let at = at.clone();
                            colds.insert((partition, key.clone()), Cold { partition, key, at });
                        }
                        parts.insert(partition, part);
                    }
                }
            }
            steps::point("look.read").await;
            if left.is_empty() {
                break;
            }
            if wait {
                let since = recovering_since.get_or_insert_with(Instant::now);
                if since.elapsed() > RECOVERING_WAIT_MAX {
                    return Err(ServiceError::recovering());
                }
                steps::pause("look.recovering", RECOVERING_POLL).await;
            } else if !colds.is_empty() {
                match self.0.loader.load(colds.into_values().collect()).await {
                    Ok(()) => {}
                    // What is resident is right all the same; the rest is not known. A full Redis takes in nothing.
                    Err(
                        ServiceError::DatabaseUnavailable { .. }
                        | ServiceError::RedisFull { .. }
                        | ServiceError::RedisUnavailable { .. },
                    ) => break,
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(partitions
            .iter()
            .map(|partition| {
                let part = parts.remove(partition);
                (
                    *partition,
                    part.unwrap_or_else(|| vec![(State::Cold, None); targets.len()]),
                )
            })
            .collect())
    }

    /// Now and then a read renews the life of what it read; nobody waits for it.
    fn renew_some(&self, partition: u16, user: Option<&UserId>, targets: &[Target]) {
        if !self
            .0
            .lookups
            .fetch_add(1, Ordering::Relaxed)
            .is_multiple_of(RENEW_EVERY)
        {
            return;
        }
        let (service, user, targets) = (self.clone(), user.cloned(), targets.to_vec());
        tokio::spawn(async move {
            let ttl = service.0.resident_ttl_seconds;
            let renewed = service
                .0
                .hot
                .renew(partition, user.as_ref(), &targets, ttl)
                .await;
            metrics::counter!(names::RENEWALS).increment(renewed.unwrap_or(0));
        });
    }
}

fn cold_keys(user: Option<&UserId>, targets: &[Target], part: &Part) -> Vec<ColdKey> {
    let user_cold = part.iter().any(|(state, _)| *state == State::Cold);
    let user = user.filter(|_| user_cold).cloned().map(ColdKey::User);
    let counts = targets
        .iter()
        .zip(part)
        .filter(|(_, (_, count))| count.is_none())
        .map(|(target, _)| ColdKey::Count(target.clone()));
    user.into_iter().chain(counts).collect()
}

/// The parts of each target added up; `None` if one is not known.
fn sums(parts: &[(u16, Part)], targets: usize) -> Vec<Option<i64>> {
    (0..targets)
        .map(|at| parts.iter().map(|(_, part)| part[at].1).sum())
        .collect()
}
