//! Loads cold users and counts from MySQL into Redis: one load per key at a time, many keys in one query, and never more than a bound.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use super::ServiceError;
use crate::domain::{Target, UserId};
use crate::hot::{ColdCount, ColdUser, Hot, Moment, TTL_SPREAD};
use crate::ledger::{Ledger, LedgerError};
use crate::limits::{COLD_KEYS_PER_QUERY_MAX, COLD_QUERIES_MAX, FILL_THUMBS_MAX};
use crate::steps;

/// What is cold.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum ColdKey {
    User(UserId),
    Count(Target),
}

/// Something cold in a partition, and when it was so.
#[derive(Debug, Clone)]
pub(super) struct Cold {
    pub(super) partition: u16,
    pub(super) key: ColdKey,
    pub(super) at: Moment,
}

/// Bounds of loading.
#[derive(Debug, Clone)]
pub(super) struct Bounds {
    pub(super) loads_max: usize,
    pub(super) timeout: Duration,
    pub(super) thumbs_max: usize,
    pub(super) ttl_seconds: u64,
}

type Waiter = oneshot::Sender<Result<(), ServiceError>>;

/// Loads what is cold. After a load the caller looks again; it may have been refused, or gone again.
#[derive(Clone)]
pub(super) struct Loader(Arc<Inner>);

struct Inner {
    hot: Hot,
    ledger: Ledger,
    bounds: Bounds,
    pending: Mutex<Pending>,
}

#[derive(Default)]
struct Pending {
    /// All keys that wait or are being loaded, with those who want them.
    waiters: HashMap<(u16, ColdKey), Vec<Waiter>>,
    /// Those that wait.
    queue: VecDeque<Cold>,
    /// Tasks that work on the queue.
    workers: usize,
}

impl Loader {
    pub(super) fn new(hot: Hot, ledger: Ledger, bounds: Bounds) -> Self {
        Self(Arc::new(Inner {
            hot,
            ledger,
            bounds,
            pending: Mutex::default(),
        }))
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.0
            .pending
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Keys that one caller should load at once: as many as the queries take, and never more than there are places.
    pub(super) fn together_max(&self) -> usize {
        (COLD_KEYS_PER_QUERY_MAX * COLD_QUERIES_MAX).min(self.0.bounds.loads_max)
    }

    /// Longest wait for what is cold.
    pub(super) fn timeout(&self) -> Duration {
        self.0.bounds.timeout
    }

    /// Waits until each of these was loaded once. The first error ends the waiting, and so does the time; the loading goes on.
    pub(super) async fn load(&self, colds: Vec<Cold>) -> Result<(), ServiceError> {
        let mut answers = Vec::with_capacity(colds.len());
        let mut start = 0;
        {
            let mut pending = self.pending();
            for cold in colds {
                let key = (cold.partition, cold.key.clone());
                let (waiter, answer) = oneshot::channel();
                let room = pending.waiters.len() < self.0.bounds.loads_max;
                match pending.waiters.get_mut(&key) {
                    Some(waiters) => waiters.push(waiter),
                    None if room => {
                        pending.waiters.insert(key, vec![waiter]);
                        pending.queue.push_back(cold);
                    }
                    None => {
                        answers.clear();
                        break;
                    }
                }
                answers.push(answer);
            }
            let wanted = pending.queue.len().div_ceil(COLD_KEYS_PER_QUERY_MAX);
            while pending.workers < COLD_QUERIES_MAX.min(wanted) {
                pending.workers += 1;
                start += 1;
            }
            metrics::gauge!(crate::telemetry::names::COLD_LOADS_PENDING)
                .set(pending.waiters.len() as f64);
        }
        for _ in 0..start {
            let loader = self.clone();
            steps::spawn(async move { loader.work().await });
        }
        if answers.is_empty() {
            metrics::counter!(crate::telemetry::names::COLD_LOADS, "outcome" => "refused")
                .increment(1);
            return Err(ServiceError::busy());
        }
        // Those in front of these may take their whole time, one query after another.
        let bound = self.0.bounds.timeout;
        let all = async {
            for answer in answers {
                answer.await.unwrap_or_else(|_| Err(ServiceError::busy()))?;
            }
            Ok(())
        };
        match tokio::time::timeout(bound, all).await {
            Ok(result) => result,
            Err(_) => Err(LedgerError::Timeout(bound).into()),
        }
    }

    /// Works until the queue is empty.
    async fn work(self) {
        let worker = Worker(&self);
        loop {
            let colds: Vec<Cold> = {
                let mut pending = self.pending();
                let count = pending.queue.len().min(COLD_KEYS_PER_QUERY_MAX);
                if count == 0 {
                    // Under the same lock: nobody can queue something that this worker does not see.
                    pending.workers -= 1;
                    std::mem::forget(worker);
                    return;
                }
                pending.queue.drain(..count).collect()
            };
            let keys: Vec<(u16, ColdKey)> = colds
                .iter()
                .map(|cold| (cold.partition, cold.key.clone()))
                .collect();
            let guard = Answering {
                loader: &self,
                keys,
            };
            let bound = self.0.bounds.timeout;
            let result = match tokio::time::timeout(bound, self.read_and_fill(colds)).await {
                Ok(result) => result.map_err(ServiceError::known),
                Err(_) => Err(LedgerError::Timeout(bound).into()),
            };
            guard.answer(&result);
        }
    }

    async fn read_and_fill(&self, colds: Vec<Cold>) -> Result<(), ServiceError> {
        let Inner {
            hot,
            ledger,
            bounds,
            ..
        } = &*self.0;
        steps::point("cold.read").await;
        let users: Vec<UserId> = colds
            .iter()
            .filter_map(|cold| match &cold.key {
                ColdKey::User(user) => Some(user.clone()),
                ColdKey::Count(_) => None,
            })
            .collect();
        let mut loaded = ledger.users(&users, bounds.thumbs_max).await?.into_iter();
        let mut fills: BTreeMap<(u16, Moment), (Vec<ColdUser>, Vec<Target>)> = BTreeMap::new();
        for cold in colds {
            let fill = fills.entry((cold.partition, cold.at)).or_default();
            match cold.key {
                ColdKey::User(_) => fill.0.extend(loaded.next().map(|one| ColdUser {
                    user: one.user,
                    thumbs: one.thumbs,
                    complete: one.complete,
                    ttl_seconds: life(bounds.ttl_seconds),
                })),
                ColdKey::Count(target) => fill.1.push(target),
            }
        }
        for ((partition, at), (users, targets)) in fills {
            let parts = ledger
                .cold_parts(partition, hot.partitions(), &targets)
                .await?;
            let counts: Vec<ColdCount> = targets
                .into_iter()
                .zip(parts)
                .map(|(target, part)| ColdCount {
                    target,
                    part,
                    ttl_seconds: life(bounds.ttl_seconds),
                })
                .collect();
            steps::point("cold.fill").await;
            // A refused fill is no error: the caller looks again.
            if !counts.is_empty() {
                hot.fill(partition, &at, &[], &counts).await?;
                steps::point("cold.filled").await;
            }
            // Redis copies a whole call before it runs it, and nobody else is served meanwhile.
            for chunk in chunks(&users) {
                hot.fill(partition, &at, chunk, &[]).await?;
                steps::point("cold.filled").await;
            }
        }
        Ok(())
    }
}

/// Users in chunks of a bounded number of likes, at least one user each.
fn chunks(users: &[ColdUser]) -> Vec<&[ColdUser]> {
    let mut chunks = Vec::new();
    let (mut start, mut thumbs) = (0, 0);
    for (at, user) in users.iter().enumerate() {
        if at > start && thumbs + user.thumbs.len() > FILL_THUMBS_MAX {
            chunks.push(&users[start..at]);
            (start, thumbs) = (at, 0);
        }
        thumbs += user.thumbs.len();
    }
    if start < users.len() {
        chunks.push(&users[start..]);
    }
    chunks
}

/// Spread, so that what was loaded together does not end together.
fn life(ttl_seconds: u64) -> u64 {
    ttl_seconds + rand::random_range(0..=ttl_seconds / TTL_SPREAD)
}

/// Gives its place back, also when the task dies.
struct Worker<'a>(&'a Loader);

impl Drop for Worker<'_> {
    fn drop(&mut self) {
        self.0.pending().workers -= 1;
    }
}

/// Takes the keys out of the pending ones, also when the task dies: then the waiters see their channel closed.
struct Answering<'a> {
    loader: &'a Loader,
    keys: Vec<(u16, ColdKey)>,
}

impl Answering<'_> {
    fn answer(mut self, result: &Result<(), ServiceError>) {
        let outcome = if result.is_ok() { "loaded" } else { "failed" };
        metrics::counter!(crate::telemetry::names::COLD_LOADS, "outcome" => outcome)
            .increment(self.keys.len() as u64);
        for waiter in self.take() {
            let _ = waiter.send(result.clone());
        }
    }

    fn take(&mut self) -> Vec<Waiter> {
        let mut pending = self.loader.pending();
        let keys = std::mem::take(&mut self.keys);
        let waiters = keys
            .into_iter()
            .flat_map(|key| pending.waiters.remove(&key).unwrap_or_default())
            .collect();
        metrics::gauge!(crate::telemetry::names::COLD_LOADS_PENDING)
            .set(pending.waiters.len() as f64);
        waiters
    }
}

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::Version;

    #[test]
    fn large_users_are_filled_in_calls_of_bounded_size() {
        let user = |thumbs: usize| ColdUser {
            user: UserId::parse("u").unwrap(),
            thumbs: vec![(Target::parse("blog:1").unwrap(), Version(1)); thumbs],
            complete: true,
            ttl_seconds: 1,
        };
        let users = [1, FILL_THUMBS_MAX, 2 * FILL_THUMBS_MAX, 1, 1].map(user);
        let sizes: Vec<usize> = chunks(&users).iter().map(|chunk| chunk.len()).collect();
        assert_eq!(sizes, [1, 1, 1, 2]);
        assert!(chunks(&[]).is_empty());
    }
}
