//! What MySQL or MariaDB can do to the flush: go away, hang, refuse, forget. Likes of who is resident go on; the flush fails loudly,
//! keeps everything, and lands it by itself when the database is well. Each test ends with rows, counts and answers that say the same.

mod crowd;
mod forgets;
mod gone;
mod locks;
mod packets;
mod poison;
mod read_only;
mod rights;
mod statements;
mod zone;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection as _, MySqlConnection, Row as _};
use tempfile::TempDir;
use thumbd::config::Settings;
use thumbd::dev::SqlServer;

use crate::app::{self, Answer, TestApp};
use crate::redis_faults::{agree, until};
use crate::servers::{TestEnv, env, sql_options};
use crate::stand::Stand;

/// What thumbd may wait for the database in these tests: for a connection, for something cold, for one statement.
const ACQUIRE: Duration = Duration::from_millis(500);
const COLD: Duration = Duration::from_millis(700);
const STATEMENT: Duration = Duration::from_secs(2);
/// What a busy machine may add.
const SLACK: Duration = Duration::from_secs(2);
/// Those whose likes go on: u0, u1 and so on.
const USERS: usize = 8;

/// The rights of the README, which are not those of an administrator.
const RIGHTS: &str =
    "SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, INDEX, CREATE TEMPORARY TABLES";

/// A SQL server of one test.
struct Own {
    server: SqlServer,
    _dir: TempDir,
}

impl Own {
    fn start(arguments: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut options = sql_options(dir.path());
        options.extra_args = arguments.iter().copied().map(Into::into).collect();
        let server = SqlServer::start(options).unwrap();
        Self { server, _dir: dir }
    }

    /// An environment on this server, as its administrator.
    async fn env(&self) -> TestEnv {
        TestEnv {
            database_url: self.server.url(),
            ..env().await
        }
    }

    async fn root(&self) -> Direct {
        Direct::to(&self.server.url()).await
    }

    /// Where its files are.
    fn data(&self) -> PathBuf {
        self.server.dir().join("data")
    }

    /// Another server with a copy of the files of this one, which is stopped.
    fn copy(&self) -> Self {
        let dir = tempfile::tempdir().unwrap();
        copy_files(&self.data(), &dir.path().join("data"));
        let server = SqlServer::start(sql_options(dir.path())).unwrap();
        Self { server, _dir: dir }
    }
}

fn copy_files(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").args([from, to]).status();
    assert!(copied.unwrap().success());
}

/// The same environment for a user as the README describes it, without rights beyond its database.
async fn as_user(env: &TestEnv) -> TestEnv {
    let mut root = Direct::to(&env.database_url).await;
    let user = user_of(env);
    root.run(&format!("CREATE USER {user}")).await;
    root.grant(RIGHTS, env).await;
    let name = format!("://{}@", env.key_prefix);
    TestEnv {
        database_url: env.database_url.replacen("://root@", &name, 1),
        ..env.clone()
    }
}

fn user_of(env: &TestEnv) -> String {
    format!("'{}'@'localhost'", env.key_prefix)
}

/// A connection that knows no thumbd.
struct Direct(MySqlConnection);

impl Direct {
    async fn to(url: &str) -> Self {
        Self(MySqlConnection::connect(url).await.unwrap())
    }

    async fn run(&mut self, text: &str) {
        let script = sqlx::raw_sql(AssertSqlSafe(text));
        script.execute(&mut self.0).await.unwrap();
    }

    async fn grant(&mut self, rights: &str, env: &TestEnv) {
        let database = self.database().await;
        let user = user_of(env);
        self.run(&format!("GRANT {rights} ON `{database}`.* TO {user}"))
            .await;
    }

    async fn revoke(&mut self, rights: &str, env: &TestEnv) {
        let database = self.database().await;
        let user = user_of(env);
        self.run(&format!("REVOKE {rights} ON `{database}`.* FROM {user}"))
            .await;
    }

    async fn database(&mut self) -> String {
        let name = sqlx::query("SELECT DATABASE()").fetch_one(&mut self.0);
        name.await.unwrap().get(0)
    }

    /// A number from the second column of `SHOW …`, or from the only one.
    async fn number(&mut self, text: &str) -> i64 {
        let row = sqlx::raw_sql(AssertSqlSafe(text)).fetch_one(&mut self.0);
        let row = row.await.unwrap();
        let last = row.len() - 1;
        let text: Result<String, _> = row.try_get(last);
        text.map_or_else(|_| row.get(last), |text| text.parse().unwrap())
    }

    /// The other connections on this one's database.
    async fn others(&mut self) -> Vec<u64> {
        let others = sqlx::query(
            "SELECT CAST(id AS UNSIGNED) FROM information_schema.processlist \
             WHERE db = DATABASE() AND id <> CONNECTION_ID()",
        );
        let rows = others.fetch_all(&mut self.0).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// Kills them. Some may have gone by themselves.
    async fn kill_others(&mut self) {
        for id in self.others().await {
            let kill = sqlx::raw_sql(AssertSqlSafe(format!("KILL {id}")));
            let _ = kill.execute(&mut self.0).await;
        }
    }
}

/// An app that flushes by itself every second, and what its users were told.
struct Scene {
    app: TestApp,
    /// Its stores, without any proxy.
    direct: TestEnv,
    /// Whether they like blog/1.
    told: BTreeMap<String, bool>,
}

fn eager(settings: &mut Settings) {
    settings.slice_seconds = 1;
    // Longer than any test.
    settings.keep_seconds = 600;
    impatient(settings);
}

fn impatient(settings: &mut Settings) {
    settings.database_acquire_timeout_ms = ACQUIRE.as_millis() as u64;
    settings.cold_timeout_ms = COLD.as_millis() as u64;
    settings.database_statement_timeout_ms = STATEMENT.as_millis() as u64;
}

/// An app that flushes only when it is asked, and has nothing else to do.
async fn quiet(env: TestEnv, change: impl FnOnce(&mut Settings)) -> TestApp {
    let app = TestApp::on(env, change).await;
    until("it has compensated", async || {
        app.jobs.status().await.unwrap().last_compensation.is_some()
    })
    .await;
    app
}

impl Scene {
    async fn begin(env: TestEnv) -> Self {
        Self::behind(env.clone(), env).await
    }

    /// The app sees its stores through proxies.
    async fn behind(env: TestEnv, direct: TestEnv) -> Self {
        let told = (0..USERS).map(|n| (format!("u{n}"), false)).collect();
        let mut scene = Self::again(env, direct, told).await;
        scene.goes_on().await;
        scene.lands().await;
        scene
    }

    /// On stores where users were told something before.
    async fn again(env: TestEnv, direct: TestEnv, told: BTreeMap<String, bool>) -> Self {
        Self {
            app: TestApp::on(env, eager).await,
            direct,
            told,
        }
    }

    /// More likes than fit into the smallest table in memory.
    async fn many_like(&mut self) {
        let users = self.many("like", true).await;
        self.told.extend(users.into_iter().map(|user| (user, true)));
    }

    /// Those are resident, so that their likes need no database.
    async fn many_are_known(&mut self) {
        self.many("unlike", false).await;
    }

    async fn many(&self, op: &str, changed: bool) -> Vec<String> {
        let users: Vec<String> = (0..500).map(|n| format!("many{n}")).collect();
        let one = |user: &String| json!({ "op": op, "user": user, "kind": "blog", "id": "1" });
        let answer = self.app.batch(users.iter().map(one).collect()).await;
        for result in answer.json()["results"].as_array().unwrap() {
            assert_eq!(result["changed"], changed, "{result}");
        }
        users
    }

    /// The usual users change their mind, and is told what is so.
    async fn goes_on(&mut self) {
        let mut count = self.told.values().filter(|liked| **liked).count();
        for (user, liked) in self
            .told
            .iter_mut()
            .filter(|(user, _)| user.starts_with('u'))
        {
            let begun = Instant::now();
            let answer = if *liked {
                count -= 1;
                self.app.unlike(user, "blog/1").await
            } else {
                count += 1;
                self.app.like(user, "blog/1").await
            };
            *liked = !*liked;
            assert!(begun.elapsed() < SLACK, "{answer:?}");
            let seen = (answer.status, answer.json());
            let want = json!({ "kind": "blog", "id": "1", "liked": *liked, "changed": true, "count": count });
            assert_eq!(seen, (200, want), "{user}");
        }
    }

    /// Waits until the flush has failed for this reason; readiness tells of it without taking the process out of rotation.
    async fn fails(&self, reason: &str) {
        let mut last = String::new();
        let begun = Instant::now();
        until("the flush fails", async || {
            let status = self.app.jobs.status().await.unwrap();
            last = status
                .last_flush
                .and_then(|run| run.error)
                .unwrap_or_default();
            assert!(begun.elapsed() < Duration::from_secs(30), "{last}");
            last.contains(reason)
        })
        .await;
        let ready = self.ready().await;
        assert_eq!(ready["status"], "degraded", "{ready}");
        assert_eq!(ready["flush"]["ok"], false, "{ready}");
        assert!(ready["flush"]["problem"].is_string(), "{ready}");
    }

    async fn ready(&self) -> Value {
        let asked = self.app.admin(Method::GET, "/readyz");
        let ready = within(ACQUIRE + STATEMENT, asked).await;
        assert_eq!(ready.status, 200, "{ready:?}");
        ready.json()
    }

    /// Likes of who is cold are refused, and what is not known is null, both without a long wait.
    async fn cold_is_refused(&self) {
        let user = stranger();
        let answer = within(COLD, self.app.like(&user, "blog/1")).await;
        assert_eq!(answer.status, 503, "{answer:?}");
        assert_eq!(answer.json()["code"], "database_unavailable");
        assert!(answer.headers.contains_key("retry-after"), "{answer:?}");
        let answer = within(COLD, self.app.get(&user, "blog/2")).await;
        let want = json!({ "kind": "blog", "id": "2", "liked": null, "count": null });
        assert_eq!((answer.status, answer.json()), (200, want));
        let ready = self.ready().await;
        assert_eq!(ready["database"]["ok"], false, "{ready}");
    }

    /// Whoever is cold is served.
    async fn cold_is_served(&self) {
        let answer = within(COLD, self.app.get(&stranger(), "blog/1")).await;
        assert_eq!(
            (answer.status, &answer.json()["liked"]),
            (200, &json!(false))
        );
    }

    /// Waits until all has landed, though nobody asks for it, and readiness says so.
    async fn lands(&self) {
        until("all lands", async || {
            let status = self.app.jobs.status().await.unwrap();
            let well = status.last_flush.is_some_and(|run| run.error.is_none());
            let landed = well && status.entries == 0 && self.ready().await["status"] == "ready";
            landed && self.rows().await.is_ok_and(|rows| rows == self.liking())
        })
        .await;
    }

    /// Whoever likes it, by what they were told.
    fn liking(&self) -> BTreeSet<String> {
        let liking = self.told.iter().filter(|(_, liked)| **liked);
        liking.map(|(user, _)| user.clone()).collect()
    }

    /// The same by the rows.
    async fn rows(&self) -> sqlx::Result<BTreeSet<String>> {
        let mut connection = MySqlConnection::connect(&self.direct.database_url).await?;
        let rows = sqlx::query("SELECT user_id FROM thumb JOIN kind USING (kind_id) WHERE name = 'blog' AND target_id = '1' AND thumbed = 1")
            .fetch_all(&mut connection)
            .await?;
        connection.close().await?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    /// The end: all lands by itself, and rows, counts and answers are what users were told.
    async fn agrees(mut self) {
        self.lands().await;
        self.cold_is_served().await;
        self.goes_on().await;
        self.lands().await;
        self.app.finish().await;
        let mut settings = app::settings(&self.direct);
        eager(&mut settings);
        let t = Stand::on(settings).await;
        let some = self.told.keys().take(USERS);
        let users: Vec<&String> = some.chain(self.told.keys().rev().take(USERS)).collect();
        agree(&t, &users, &["blog:1"]).await;
    }
}

/// Nobody has heard of this user.
fn stranger() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("stranger{}", COUNT.fetch_add(1, Ordering::Relaxed))
}

/// An answer that must come in this time.
async fn within(budget: Duration, asked: impl Future<Output = Answer>) -> Answer {
    let begun = Instant::now();
    let answer = asked.await;
    let took = begun.elapsed();
    assert!(took < budget + SLACK, "{took:?}: {answer:?}");
    answer
}
