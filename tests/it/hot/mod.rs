//! Every script on a real Redis, through `thumbd::hot`. The stored clock is set ahead of time, so that versions and slices are known.

mod faults;
mod fill;
mod flush;
mod heartbeat;
mod held;
mod lease;
mod many;
mod read;
mod recover;
mod thumb;

use std::collections::BTreeMap;

use redis::FromRedisValue;
use redis::aio::MultiplexedConnection;
use thumbd::config::Settings;
use thumbd::domain::{SliceId, Version};
use thumbd::hot::{
    Answer, ColdCount, ColdUser, Hot, HotError, Known, Moment, Peek, Sealed, Thumb, Unpin,
};

use crate::stand::{self, initialise, raw_redis, target, user};

/// The stored clock at the start of a test, in µs: the start of a window.
pub(crate) const CLOCK: u64 = 4_000_000_000_000_000;
/// The slice of that window.
pub(crate) const WINDOW: SliceId = SliceId(CLOCK / 1000);
/// The TTL that fills and unpins give.
pub(crate) const TTL: u64 = 1000;

/// One partition of a Redis without MySQL.
pub(crate) struct TestHot {
    pub(crate) settings: Settings,
    pub(crate) hot: Hot,
    pub(crate) redis: MultiplexedConnection,
    /// The partition that the test works on: the last one.
    pub(crate) p: u16,
    pub(crate) generation: String,
}

/// With one partition, and with four.
pub(crate) async fn both() -> [TestHot; 2] {
    [TestHot::start(1).await, TestHot::start(4).await]
}

impl TestHot {
    pub(crate) async fn start(partitions: u16) -> Self {
        Self::on(stand::settings(partitions).await).await
    }

    /// All partitions initialised, and the clock ahead.
    pub(crate) async fn on(settings: Settings) -> Self {
        let mut t = Self::empty(settings).await;
        for partition in 0..t.settings.partitions {
            t.generation = initialise(&t.hot, partition).await;
        }
        t.set("clock", CLOCK).await;
        t
    }

    /// Nothing is initialised.
    pub(crate) async fn empty(settings: Settings) -> Self {
        Self {
            hot: stand::hot(&settings).await,
            redis: raw_redis(&settings).await,
            p: settings.partitions - 1,
            generation: String::new(),
            settings,
        }
    }

    pub(crate) fn key(&self, rest: &str) -> String {
        stand::key(&self.settings, self.p, rest)
    }

    pub(crate) async fn command<T: FromRedisValue>(&self, words: &[&str]) -> T {
        stand::command(&self.redis, words).await
    }

    /// Sets a field of meta behind the scripts' back.
    pub(crate) async fn set(&self, field: &str, value: u64) {
        self.command::<()>(&["HSET", &self.key("meta"), field, &value.to_string()])
            .await;
    }

    pub(crate) async fn peek(&self) -> Peek {
        self.hot.peek(self.p).await.unwrap()
    }

    pub(crate) async fn moment(&self) -> Moment {
        let peek = self.peek().await;
        Moment {
            generation: peek.generation.unwrap(),
            sealed: peek.sealed.0,
        }
    }

    /// Makes users without likes and counts of 0 resident.
    pub(crate) async fn resident(&self, users: &[&str], targets: &[&str]) {
        let users: Vec<ColdUser> = users.iter().map(|one| cold_user(one, &[], true)).collect();
        let counts: Vec<ColdCount> = targets.iter().map(|one| cold_count(one, 0)).collect();
        assert!(self.fill(&self.moment().await, &users, &counts).await);
    }

    pub(crate) async fn fill(&self, at: &Moment, users: &[ColdUser], counts: &[ColdCount]) -> bool {
        self.hot.fill(self.p, at, users, counts).await.unwrap()
    }

    /// One call with several operations of one direction.
    pub(crate) async fn call(
        &self,
        thumb: bool,
        pairs: &[(&str, &str)],
    ) -> Vec<Result<Answer, HotError>> {
        let operations: Vec<Thumb> = pairs.iter().map(|(u, t)| operation(u, t, None)).collect();
        self.hot.thumb_many(self.p, thumb, &operations).await
    }

    pub(crate) async fn like(&self, user: &str, target: &str) -> Answer {
        self.call(true, &[(user, target)]).await.remove(0).unwrap()
    }

    pub(crate) async fn unlike(&self, user: &str, target: &str) -> Answer {
        self.call(false, &[(user, target)]).await.remove(0).unwrap()
    }

    pub(crate) async fn known(&self, thumb: bool, pair: (&str, &str), known: Known) -> Answer {
        let operation = operation(pair.0, pair.1, Some(known));
        self.hot.thumb(self.p, thumb, operation).await.unwrap()
    }

    /// The entries of a live slice.
    pub(crate) async fn slice(&self, id: SliceId) -> BTreeMap<String, i64> {
        self.command(&["HGETALL", &self.key(&format!("slice:{id}"))])
            .await
    }

    /// Seals as a flusher whose token is `fence`; gives back the live slices.
    pub(crate) async fn seal(&self, upto: SliceId, fence: &str) -> Vec<SliceId> {
        let sealed = self.hot.seal(self.p, upto, SliceId(0), fence, 60_000);
        match sealed.await.unwrap() {
            Sealed::Done { live, .. } => live,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn unpin(
        &self,
        slice: SliceId,
        fence: &str,
        (users, targets): (&[&str], &[&str]),
        user_fields_max: usize,
    ) -> bool {
        let users: Vec<_> = users.iter().map(|text| user(text)).collect();
        let targets: Vec<_> = targets.iter().map(|text| target(text)).collect();
        let unpin = Unpin {
            slice,
            fence,
            users: &users.iter().collect::<Vec<_>>(),
            targets: &targets.iter().collect::<Vec<_>>(),
            ttl_seconds: TTL,
            user_fields_max,
        };
        self.hot.unpin(self.p, unpin).await.unwrap()
    }

    pub(crate) async fn ttl(&self, rest: &str) -> i64 {
        self.command(&["TTL", &self.key(rest)]).await
    }

    /// The generation, completeness and last dirty slice of a user.
    pub(crate) async fn marker(&self, user: &str) -> Option<String> {
        self.command(&["HGET", &self.key(&format!("user:{user}")), "#"])
            .await
    }

    pub(crate) async fn exists(&self, rest: &str) -> bool {
        self.command(&["EXISTS", &self.key(rest)]).await
    }
}

pub(crate) fn operation(who: &str, what: &str, known: Option<Known>) -> Thumb {
    Thumb {
        user: user(who),
        target: target(what),
        known,
    }
}

pub(crate) fn cold_user(who: &str, thumbs: &[(&str, u64)], complete: bool) -> ColdUser {
    ColdUser {
        user: user(who),
        thumbs: thumbs
            .iter()
            .map(|(what, version)| (target(what), Version(*version)))
            .collect(),
        complete,
        ttl_seconds: TTL,
    }
}

pub(crate) fn cold_count(what: &str, part: i64) -> ColdCount {
    ColdCount {
        target: target(what),
        part: Some(part),
        ttl_seconds: TTL,
    }
}

pub(crate) fn done(changed: bool, part: i64) -> Answer {
    Answer::Done { changed, part }
}
