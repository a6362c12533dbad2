//! How a process is brought to a point, and what must be true after it was killed there.

use std::collections::BTreeMap;

use reqwest::{Method, RequestBuilder};
use thumbd::config::{Secret, Settings};
use thumbd::domain::SliceId;
use thumbd::hot::Reset;
use thumbd::service::{new_generation, recover_check};

use crate::app::{ADMIN_TOKEN, SERVICE_KEY, send};
use crate::serve::Serve;
use crate::servers::{self, TestEnv};
use crate::stand::{Stand, op};

/// How a process comes to a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scene {
    /// It starts on an empty database.
    FirstStart,
    /// It starts where there is unflushed work.
    Start,
    /// It starts on a Redis that was emptied after a flush.
    StartOnEmptied,
    /// A user and a target that nobody has heard of.
    ColdLike,
    ColdRead,
    ColdList,
    /// A user in Redis: the operation is through when the process dies.
    WarmUnlike,
    /// A user with more likes than Redis holds.
    PartialUnlike,
    /// Redis has lost a seal, and the operation needs what is cold.
    RecoveringLike,
    RecoveringRead,
    RecoveringList,
    /// A flush of several chunks, with a like that comes in between.
    Flush,
    /// A flush of a slice with an operation that MySQL refuses.
    Poison,
    /// A slice that is closed but not listed.
    Compensate,
}

/// User and target → liked, by what was accepted.
type Pairs = BTreeMap<(String, String), bool>;
type Case = (&'static str, u32, Scene);

/// Few, so that a user with three likes is partial.
const RESIDENT_THUMBS_MAX: u32 = 2;
/// More than the hundred rows that are the least bound of a transaction.
const MANY: usize = 130;

struct Stage {
    case: Case,
    env: TestEnv,
    partitions: u16,
    /// Nothing on a first start.
    stand: Option<Stand>,
    pairs: Pairs,
}

pub(super) async fn restarted(case: Case, partitions: u16) {
    let mut stage = Stage::set(case, partitions).await;
    let victim = stage.spawn(&stage.failpoint());
    stage.play(victim).await;
    let mut next = stage.spawn("");
    next.serving().await;
    stage.check(next).await;
}

pub(super) async fn taken_over(case: Case, partitions: u16) {
    let mut stage = Stage::set(case, partitions).await;
    // On a first start both begin at once, and the other waits for the lock.
    let first = case.2 == Scene::FirstStart;
    let mut other = (!first).then(|| stage.spawn(""));
    if let Some(other) = &mut other {
        other.serving().await;
    }
    if case.2 == Scene::StartOnEmptied {
        stage.empty().await;
    }
    let victim = stage.spawn(&stage.failpoint());
    if first {
        victim.said(&format!("failpoint {}", case.0)).await;
        other = Some(stage.spawn(""));
    }
    stage.play(victim).await;
    let mut other = other.unwrap();
    other.serving().await;
    stage.check(other).await;
}

impl Stage {
    async fn set(case: Case, partitions: u16) -> Self {
        let env = servers::env().await;
        let mut stage = Self {
            case,
            env,
            partitions,
            stand: None,
            pairs: Pairs::new(),
        };
        if case.2 != Scene::FirstStart {
            stage.prepare().await;
        }
        stage
    }

    fn settings(&self) -> Settings {
        Settings {
            redis_url: Some(Secret::new(&self.env.redis_url)),
            database_url: Some(Secret::new(&self.env.database_url)),
            key_prefix: self.env.key_prefix.clone(),
            partitions: self.partitions,
            slice_seconds: 3600,
            resident_thumbs_max: RESIDENT_THUMBS_MAX,
            database_connections_max: 4,
            ..Settings::default()
        }
    }

    /// Landed likes, and others that have not landed.
    async fn prepare(&mut self) {
        let stand = Stand::on(self.settings()).await;
        // Or the compensator would run at each start and come to points before it should.
        stand.compensated().await;
        for user in ["u1", "u2", "u3"] {
            self.accept(&stand, user, "blog:1", true).await;
        }
        for id in 2..5 {
            self.accept(&stand, "u7", &format!("blog:{id}"), true).await;
        }
        stand.flush().await;
        self.accept(&stand, "u1", "blog:1", false).await;
        // In both partitions, if there are two.
        for user in ["u4", "u5", "u6"] {
            self.accept(&stand, user, "blog:1", true).await;
        }
        match self.case.2 {
            Scene::StartOnEmptied => {
                stand.flush().await;
                self.stand = Some(stand);
                return self.empty().await;
            }
            Scene::PartialUnlike => {
                // As if its time were over: then the newest are loaded.
                let _: i64 = stand.command(&["DEL", &stand.user_key("u7")]).await;
            }
            Scene::RecoveringLike | Scene::RecoveringRead | Scene::RecoveringList => {
                for partition in 0..self.partitions {
                    roll_back(&stand, partition).await;
                }
            }
            Scene::Flush => {
                let like = |n: usize| op(&format!("m{n}"), "blog:1", true);
                let operations: Vec<_> = (0..MANY).map(like).collect();
                for result in stand.service.batch(operations).await {
                    assert!(result.unwrap().changed);
                }
                for n in 0..MANY {
                    self.pairs.insert((format!("m{n}"), "blog:1".into()), true);
                }
            }
            Scene::Poison => {
                let refuse = "CREATE TRIGGER refuse BEFORE INSERT ON thumb FOR EACH ROW \
                     BEGIN IF NEW.user_id = 'poison' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no'; END IF; END";
                stand.script(refuse).await;
                self.accept(&stand, "poison", "blog:1", true).await;
                // What is in quarantine is as if it had never been.
                self.pairs.remove(&("poison".into(), "blog:1".into()));
            }
            Scene::Compensate => {
                for partition in 0..self.partitions {
                    strand(&stand, partition).await;
                }
            }
            _ => {}
        }
        self.stand = Some(stand);
    }

    async fn accept(&mut self, stand: &Stand, user: &str, target: &str, thumb: bool) {
        let outcome = stand.service.thumb(op(user, target, thumb)).await;
        assert!(outcome.unwrap().changed);
        self.pairs.insert((user.into(), target.into()), thumb);
    }

    /// Removes all of this test's keys.
    async fn empty(&self) {
        let stand = self.stand.as_ref().unwrap();
        let pattern = format!("{}:*", self.env.key_prefix);
        let keys: Vec<String> = stand.command(&["KEYS", &pattern]).await;
        let mut words = vec!["DEL"];
        words.extend(keys.iter().map(String::as_str));
        let _: i64 = stand.command(&words).await;
    }

    fn failpoint(&self) -> String {
        format!("{}={}*hold", self.case.0, self.case.1)
    }

    fn spawn(&self, failpoints: &str) -> Serve {
        let partitions = self.partitions.to_string();
        let thumbs_max = RESIDENT_THUMBS_MAX.to_string();
        let settings = [
            ("THUMBD_SLICE_SECONDS", "3600"),
            ("THUMBD_LEASE_TTL_MS", "3000"),
            ("THUMBD_FLUSH_ROWS_MAX", "100"),
            ("THUMBD_PARTITIONS", &partitions),
            ("THUMBD_RESIDENT_THUMBS_MAX", &thumbs_max),
            ("FAILPOINTS", failpoints),
        ];
        Serve::spawn(&self.env, &settings)
    }

    /// What brings a process that serves to the point.
    fn request(&self, to: &Serve) -> Option<RequestBuilder> {
        let admin = |path| {
            let call = to.client.post(format!("{}{path}", to.url));
            Some(call.bearer_auth(ADMIN_TOKEN))
        };
        match self.case.2 {
            Scene::FirstStart | Scene::Start | Scene::StartOnEmptied => None,
            Scene::Flush | Scene::Poison => admin("/admin/v1/flushes"),
            Scene::Compensate => admin("/admin/v1/compensations"),
            Scene::ColdRead | Scene::RecoveringRead => Some(to.one(Method::GET, "u9", "blog/1")),
            Scene::ColdList | Scene::RecoveringList => {
                let url = format!("{}/v1/users/u9/likes", to.url);
                Some(to.client.get(url).bearer_auth(SERVICE_KEY))
            }
            Scene::ColdLike | Scene::RecoveringLike => Some(to.one(Method::PUT, "u9", "blog/9")),
            Scene::WarmUnlike => Some(to.one(Method::DELETE, "u2", "blog/1")),
            Scene::PartialUnlike => Some(to.one(Method::DELETE, "u7", "blog/2")),
        }
    }

    /// The operation whose answer the client never gets.
    fn operation(&self) -> Option<(&'static str, &'static str, bool)> {
        match self.case.2 {
            Scene::ColdLike | Scene::RecoveringLike => Some(("u9", "blog:9", true)),
            Scene::WarmUnlike => Some(("u2", "blog:1", false)),
            Scene::PartialUnlike => Some(("u7", "blog:2", false)),
            _ => None,
        }
    }

    /// Brings a process to the point and kills it.
    async fn play(&mut self, mut victim: Serve) {
        let (point, _, scene) = self.case;
        if !matches!(
            scene,
            Scene::FirstStart | Scene::Start | Scene::StartOnEmptied
        ) {
            victim.serving().await;
        }
        let request = self.request(&victim);
        let asking = request.map(|request| tokio::spawn(request.send()));
        victim.said(&format!("failpoint {point}")).await;
        if scene == Scene::Flush {
            // Accepted while a flush is under way, and not of that flush.
            let answer = victim.like("u3", "blog/7").await;
            assert_eq!(answer.status, 200, "{point}: {answer:?}");
            self.pairs.insert(("u3".into(), "blog:7".into()), true);
        }
        victim.kill();
        if let Some(asking) = asking {
            let answer = asking.await.unwrap();
            assert!(answer.is_err(), "{point}: it was answered: {answer:?}");
        }
        // As if the time of a killed owner were over.
        if let Some(stand) = self.stand.as_ref().filter(|_| point != "flush.applied") {
            let lease = format!("{}:v1:lease:flush", self.env.key_prefix);
            let _: i64 = stand.command(&["DEL", &lease]).await;
        }
    }

    /// The next process answers rightly, and what was accepted lands once.
    async fn check(mut self, next: Serve) {
        let (point, passing, scene) = self.case;
        let what = format!("{point}, passing {passing}, {} partitions", self.partitions);
        if matches!(
            scene,
            Scene::RecoveringLike | Scene::RecoveringRead | Scene::RecoveringList
        ) {
            let answer = send(self.request(&next).unwrap()).await;
            assert_eq!(answer.status, 503, "{what}: {answer:?}");
            assert_eq!(answer.json()["code"], "recovering", "{what}");
            next.admin("/admin/v1/flushes").await.unwrap();
        }
        if let Some((user, target, thumb)) = self.operation() {
            let answer = send(self.request(&next).unwrap()).await;
            assert_eq!(answer.status, 200, "{what}: {answer:?}");
            // Only there it had been done before.
            let changed = point != "thumb.answered";
            assert_eq!(answer.json()["changed"], changed, "{what}");
            self.pairs.insert((user.into(), target.into()), thumb);
        }
        // A second flush has nothing left to do for the first one's slices.
        let path = match scene {
            Scene::Compensate => "/admin/v1/compensations",
            _ => "/admin/v1/flushes",
        };
        next.admin(path)
            .await
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        let stand = match self.stand.take() {
            Some(stand) => stand,
            None => {
                let answer = next.like("u1", "blog/1").await;
                assert_eq!(answer.status, 200, "{what}: {answer:?}");
                self.pairs.insert(("u1".into(), "blog:1".into()), true);
                Stand::on(self.settings()).await
            }
        };
        for ((user, target), thumb) in &self.pairs {
            let seen = next.get(user, &target.replace(':', "/")).await.json();
            assert_eq!(seen["liked"], *thumb, "{what}: {user} {target}");
            let count = self
                .pairs
                .iter()
                .filter(|((_, of), on)| of == target && **on);
            assert_eq!(seen["count"], count.count(), "{what}: {target}");
        }
        stand.check().await;
        let rows = stand.number("SELECT COUNT(*) FROM thumb").await;
        assert_eq!(rows, self.pairs.len() as i64, "{what}");
        let liked = stand
            .number("SELECT COUNT(*) FROM thumb WHERE thumbed = 1")
            .await;
        let right = self.pairs.values().filter(|thumb| **thumb).count() as i64;
        let counts = stand
            .number("SELECT CAST(SUM(count) AS SIGNED) FROM thumb_count")
            .await;
        assert_eq!((liked, counts), (right, right), "{what}");
        for partition in 0..self.partitions {
            assert!(
                !recover_check(&stand.hot, &stand.ledger, partition)
                    .await
                    .unwrap()
            );
        }
        stand.pool.close().await;
        stand.ledger.close().await;
    }
}

/// What is resident becomes cold and unflushed work must land first, as after a loss that was recognised.
async fn roll_back(stand: &Stand, partition: u16) {
    let state = stand.ledger.flush_state().await.unwrap();
    let reset = Reset {
        seen: &stand.peek(partition).await,
        generation: &new_generation(),
        last: state.last,
        max_version: state.max_version,
        landed: Some(state.landed),
    };
    assert!(stand.hot.reset(partition, reset).await.unwrap());
}

/// Closes what is open and takes it out of the list.
async fn strand(stand: &Stand, partition: u16) {
    let last = stand.ledger.flush_state().await.unwrap().last;
    let upto = SliceId(stand.peek(partition).await.time_ms);
    let sealed = stand.hot.seal(partition, upto, last, "dead", 60_000).await;
    sealed.unwrap();
    let _: i64 = stand
        .command(&["DEL", &stand.key(partition, "slices")])
        .await;
}
