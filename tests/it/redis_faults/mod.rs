//! What Redis can do to likes: forget scripts, hang, die, come back older or as another server, be full, refuse to write, have
//! another clock. Each test ends with rows, counts and answers that say the same.

mod clock;
mod frozen;
mod full;
mod herd;
mod large;
mod order;
mod overload;
mod pins;
mod replica;
mod restart;
mod scan;
mod scripts;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use thumbd::config::{Secret, Settings};
use thumbd::dev::{RedisOptions, RedisServer};

use crate::app::{Answer, TestApp};
use crate::servers::{TestEnv, env, redis_options};
use crate::stand::{Stand, command, raw_redis, settings};

/// Far above what anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks at a condition.
const POLL: Duration = Duration::from_millis(10);

/// A Redis of one test, which may be killed and started again on its files.
pub(crate) struct Own {
    pub(crate) server: RedisServer,
    _dir: TempDir,
}

impl Own {
    pub(crate) fn start(change: impl FnOnce(&mut RedisOptions)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut options = redis_options(dir.path());
        options.aof = false;
        change(&mut options);
        let server = RedisServer::start(options).unwrap();
        Self { server, _dir: dir }
    }

    /// Where its files are.
    fn data(&self) -> PathBuf {
        self.server.dir().join("data")
    }

    /// An environment on this Redis.
    async fn env(&self) -> TestEnv {
        TestEnv {
            redis_url: self.server.url(),
            ..env().await
        }
    }

    /// Everything below HTTP on this Redis.
    pub(crate) async fn stand(&self, change: impl FnOnce(&mut Settings)) -> Stand {
        stand_on(&self.server.url(), change).await
    }
}

async fn stand_on(redis_url: &str, change: impl FnOnce(&mut Settings)) -> Stand {
    let mut settings = Settings {
        redis_url: Some(Secret::new(redis_url)),
        redis_response_timeout_ms: 5000,
        // No test outlives it, so that all is in one slice until a test seals.
        slice_seconds: 3600,
        ..settings(1).await
    };
    change(&mut settings);
    Stand::on(settings).await
}

/// The same stores as those of an app, for the end of a test.
async fn stand_of(app: &TestApp) -> Stand {
    Stand::on(crate::app::settings(&app.env)).await
}

/// Waits until a condition holds.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < PATIENCE, "not in time: {what}");
        tokio::time::sleep(POLL).await;
    }
}

/// Waits until thumbd reaches Redis again by itself, with both of its connections.
pub(crate) async fn healed(t: &mut Stand) {
    let target = crate::stand::target("none:0");
    until("redis is reached", async || {
        let looked = t.hot.lookup(0, None, std::slice::from_ref(&target)).await;
        t.hot.peek(0).await.is_ok() && looked.is_ok()
    })
    .await;
    t.redis = raw_redis(&t.settings).await;
}

/// Asks until the answer is not 503; whoever is refused is told when to come again.
async fn accepted(mut ask: impl AsyncFnMut() -> Answer) -> Answer {
    let begun = Instant::now();
    loop {
        let answer = ask().await;
        if answer.status != 503 {
            assert_eq!(answer.status, 200, "{answer:?}");
            return answer;
        }
        assert!(answer.headers.contains_key("retry-after"), "{answer:?}");
        assert!(begun.elapsed() < PATIENCE, "not in time: {answer:?}");
        tokio::time::sleep(POLL).await;
    }
}

/// Makes a slice of likes of as many users on twenty targets. The first is liked as usual, the others are written into the slice
/// as a script would: nobody is resident, so nobody may look before they have landed.
async fn fill_slice(t: &Stand, entries: u64) {
    t.like("u0", "blog:0").await.unwrap();
    let live = t.peek(0).await.live[0];
    let (slice, version) = (t.key(0, &format!("slice:{live}")), live.0 * 1000 + 1);
    t.command::<()>(&["DEL", &t.key(0, "count:blog:0"), &t.user_key("u0")])
        .await;
    for from in (0..entries).step_by(5000) {
        let mut words = vec!["HSET".to_owned(), slice.clone()];
        for n in from..entries.min(from + 5000) {
            words.extend([format!("u{n} blog:{}", n % 20), version.to_string()]);
        }
        command::<()>(&t.redis, &words).await;
    }
}

async fn config(t: &Stand, name: &str, value: &str) {
    command::<()>(&t.redis, &["CONFIG", "SET", name, value]).await;
}

/// A field of `INFO`.
async fn info(t: &Stand, name: &str) -> String {
    let text: String = command(&t.redis, &["INFO"]).await;
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.unwrap_or_default().trim().to_owned()
}

/// The end of a test: nothing is left over, and rows, counts and answers say the same of all these users and targets.
pub(crate) async fn agree(t: &Stand, users: &[impl AsRef<str>], targets: &[impl AsRef<str>]) {
    t.check().await;
    for of in targets {
        let of = of.as_ref();
        let here = of_target(of);
        let rows = format!("SELECT COUNT(*) FROM thumb WHERE thumbed = 1 AND {here}");
        let rows = t.number(&rows).await;
        let stored =
            format!("SELECT COALESCE(CAST(SUM(count) AS SIGNED), 0) FROM thumb_count WHERE {here}");
        assert_eq!(t.number(&stored).await, rows, "{of}");
        for user in users {
            let user = user.as_ref();
            let liked = liked_in_rows(t, user, of).await;
            assert_eq!(
                t.look(user, of).await,
                (Some(liked), Some(rows)),
                "{user} {of}"
            );
        }
    }
    assert_eq!(t.verify().await.differences, []);
}

fn of_target(of: &str) -> String {
    let (kind, id) = of.split_once(':').unwrap();
    format!("target_id = '{id}' AND kind_id = (SELECT kind_id FROM kind WHERE name = '{kind}')")
}

/// Whether MySQL has a like.
async fn liked_in_rows(t: &Stand, user: &str, of: &str) -> bool {
    let here = of_target(of);
    let row =
        format!("SELECT COUNT(*) FROM thumb WHERE user_id = '{user}' AND thumbed = 1 AND {here}");
    t.number(&row).await == 1
}

/// The highest version that MySQL has.
async fn version_max(t: &Stand) -> i64 {
    t.number("SELECT CAST(COALESCE(MAX(version), 0) AS SIGNED) FROM thumb")
        .await
}
