//! Starts that must be refused, each with one clear line, no password in it, and no lock left behind; and starts at the same time.

use std::collections::HashSet;
use std::os::unix::process::ExitStatusExt as _;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use sqlx::{AssertSqlSafe, Connection as _, MySqlConnection, MySqlPool, Row};
use tempfile::TempDir;
use thumbd::config::{Secret, Settings};
use thumbd::dev::{RedisOptions, RedisServer, SqlOptions, SqlServer};

use crate::app::{ADMIN_TOKEN, SERVICE_KEY};
use crate::chaos::{self, Proxy};
use crate::process::signal;
use crate::serve::{Serve, until};
use crate::servers::{self, TestEnv};
use crate::stand;

pub(crate) const PASSWORD: &str = "pw-Right-7";
const WRONG: &str = "pw-Wrong-8";
/// Nobody listens there.
const NOBODY: &str = "127.0.0.1:1";
/// Far above the waits for both servers.
const SOON: Duration = Duration::from_secs(30);

/// The one line of a start that is refused.
pub(crate) async fn refused(env: &TestEnv) -> String {
    refused_with(env, &[]).await
}

pub(crate) async fn refused_with(env: &TestEnv, settings: &[(&str, &str)]) -> String {
    let begun = Instant::now();
    let (status, lines) = Serve::spawn(env, settings).ended().await;
    assert_eq!(status.code(), Some(1), "{lines:#?}");
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    assert_eq!(lines.len(), 1, "{lines:#?}");
    let line = lines[0].clone();
    // Each cause is told once.
    let causes: Vec<&str> = line.split(": ").collect();
    let told: HashSet<&&str> = causes.iter().collect();
    assert_eq!(told.len(), causes.len(), "{line}");
    assert!(line.starts_with("thumbd: "), "{line}");
    for secret in [PASSWORD, WRONG, SERVICE_KEY, ADMIN_TOKEN] {
        assert!(!line.contains(secret), "{line}");
    }
    line
}

pub(crate) fn says(line: &str, words: &[&str]) {
    for words in words {
        assert!(line.contains(words), "'{words}' is missing: {line}");
    }
}

pub(crate) async fn raw_redis(url: &str) -> MultiplexedConnection {
    let settings = Settings {
        redis_url: Some(Secret::new(url)),
        ..Settings::default()
    };
    stand::raw_redis(&settings).await
}

async fn no_lease(redis: &MultiplexedConnection, env: &TestEnv) {
    let pattern = format!("{}:v1:lease:*", env.key_prefix);
    let leases: Vec<String> = stand::command(redis, &["KEYS", &pattern]).await;
    assert_eq!(leases, [""; 0]);
}

/// The stores of a test, looked at past everything that is in the way of thumbd.
pub(crate) struct Stores {
    pub(crate) env: TestEnv,
    pool: MySqlPool,
    /// A database server of its own, and its directory.
    _own: Option<(SqlServer, TempDir)>,
}

impl Stores {
    async fn fresh() -> Self {
        let env = servers::env().await;
        let pool = MySqlPool::connect(&env.database_url).await.unwrap();
        Self {
            env,
            pool,
            _own: None,
        }
    }

    /// On a database server that listens on TCP: a client and a server that do not agree on whether they speak over a socket do not
    /// agree on how to send a password.
    pub(crate) async fn over_tcp() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let options = SqlOptions {
            tcp: true,
            ..servers::sql_options(directory.path())
        };
        let server = SqlServer::start(options).unwrap();
        let shared = servers::env().await;
        let mut root = MySqlConnection::connect(&server.url()).await.unwrap();
        let create = format!("CREATE DATABASE {}", shared.key_prefix);
        let create = sqlx::raw_sql(AssertSqlSafe(create)).execute(&mut root);
        create.await.unwrap();
        let env = TestEnv {
            database_url: server.database_url(&shared.key_prefix),
            ..shared
        };
        let pool = MySqlPool::connect(&env.database_url).await.unwrap();
        Self {
            env,
            pool,
            _own: Some((server, directory)),
        }
    }

    pub(crate) async fn run(&self, text: &str) {
        let run = sqlx::raw_sql(AssertSqlSafe(text)).execute(&self.pool);
        run.await.unwrap();
    }

    async fn number(&self, text: &str) -> i64 {
        let row = sqlx::query(AssertSqlSafe(text)).fetch_one(&self.pool);
        row.await.unwrap().get(0)
    }

    /// Nobody holds the lock of migrations or the lease. The server notices a moment later that a connection has ended.
    async fn nothing_is_left(&self) {
        let free = "SELECT IS_FREE_LOCK(CONCAT('thumbd-', SHA2(DATABASE(), 224)))";
        until("the lock is free", async || self.number(free).await == 1).await;
        no_lease(&raw_redis(&self.env.redis_url).await, &self.env).await;
    }

    /// Once what was wrong has been mended it comes up, and works.
    async fn starts(&self, env: &TestEnv) {
        let serve = Serve::start(env, &[("THUMBD_SLICE_SECONDS", "3600")]).await;
        assert_eq!(serve.like("u1", "blog/1").await.status, 200);
        serve.admin("/admin/v1/flushes").await.unwrap();
        assert_eq!(self.number("SELECT COUNT(*) FROM thumb").await, 1);
        serve.stop();
        self.nothing_is_left().await;
    }

    fn with_database(&self, url: impl Into<String>) -> TestEnv {
        TestEnv {
            database_url: url.into(),
            ..self.env.clone()
        }
    }

    fn with_redis(&self, url: impl Into<String>) -> TestEnv {
        TestEnv {
            redis_url: url.into(),
            ..self.env.clone()
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_that_start_at_once_on_an_empty_database_both_come_up() {
    let t = Stores::fresh().await;
    let settings = [("THUMBD_SLICE_SECONDS", "3600")];
    let mut two = [(); 2].map(|()| Serve::spawn(&t.env, &settings));
    for serve in &mut two {
        serve.serving().await;
    }
    for (serve, user) in two.iter().zip(["u1", "u2"]) {
        assert_eq!(serve.like(user, "blog/1").await.status, 200);
    }
    for serve in &two {
        let seen = serve.get("u1", "blog/1").await.json();
        assert_eq!(seen["count"], 2, "{seen}");
    }
    let files = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/migrations")).unwrap();
    let noted = "SELECT COUNT(*) FROM _sqlx_migrations WHERE success";
    assert_eq!(t.number(noted).await, files.count() as i64);
    assert_eq!(t.number("SELECT COUNT(*) FROM flush_state").await, 1);
    for serve in two {
        serve.verify().await;
        serve.stop();
    }
    t.nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_is_stopped_while_it_migrates_leaves_no_lock() {
    for point in ["migrate.locked", "migrate.table", "migrate.done"] {
        let t = Stores::fresh().await;
        let hold = format!("{point}=hold");
        let serve = Serve::spawn(&t.env, &[("FAILPOINTS", &hold)]);
        serve.said(&format!("failpoint {point}")).await;
        signal(&serve.child, "TERM");
        let (status, lines) = serve.ended().await;
        assert_eq!(status.signal(), Some(15), "{point}: {lines:#?}");
        t.nothing_is_left().await;
        t.starts(&t.env).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_in_the_way_is_named_and_nothing_is_begun() {
    for table in ["thumb", "job_run", "flush_state", "erased_key"] {
        let t = Stores::fresh().await;
        t.run(&format!("CREATE TABLE {table} (of_another INT)"))
            .await;
        let line = refused(&t.env).await;
        says(
            &line,
            &["the schema cannot be brought up to date", "in the way"],
        );
        says(&line, &[&format!("`{table}`")]);
        let tables =
            "SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE()";
        assert_eq!(t.number(tables).await, 1, "it began all the same");
        t.nothing_is_left().await;
        t.run(&format!("RENAME TABLE {table} TO elsewhere")).await;
        t.starts(&t.env).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_without_the_rights_fails_and_goes_on_once_they_are_given() {
    let t = Stores::over_tcp().await;
    let (env, name, _sql) = as_user(&t, PASSWORD).await;
    t.run(&format!(
        "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE TEMPORARY TABLES ON {name}.* TO {name}@localhost"
    ))
    .await;
    let line = refused(&env).await;
    says(
        &line,
        &["the schema cannot be brought up to date", "denied"],
    );
    t.nothing_is_left().await;
    // Some tables are there and others are not: as after a migration that broke off.
    t.run("CREATE TABLE kind (kind_id SMALLINT UNSIGNED NOT NULL AUTO_INCREMENT, name VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, PRIMARY KEY (kind_id), UNIQUE KEY kind_by_name (name))")
        .await;
    t.run(&format!("GRANT ALL ON {name}.* TO {name}@localhost"))
        .await;
    t.starts(&env).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_right_without_which_nothing_lands_is_missed_at_the_start() {
    let t = Stores::over_tcp().await;
    t.starts(&t.env).await;
    let (env, name, _sql) = as_user(&t, PASSWORD).await;
    t.run(&format!(
        "GRANT SELECT, INSERT, UPDATE ON {name}.* TO {name}@localhost"
    ))
    .await;
    let line = refused(&env).await;
    let grant =
        format!("GRANT DELETE, CREATE TEMPORARY TABLES ON `{name}`.* TO '{name}'@'localhost'");
    says(&line, &["may not DELETE, CREATE TEMPORARY TABLES", &grant]);
    t.run(&grant).await;
    t.run(&format!("GRANT CREATE ON {name}.* TO {name}@localhost"))
        .await;
    t.starts(&env).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_is_taken_is_named_with_its_setting() {
    let t = Stores::fresh().await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let line = refused_with(&t.env, &[("THUMBD_LISTEN", &address)]).await;
    let wanted = format!("cannot listen on {address} (THUMBD_LISTEN, --listen)");
    says(&line, &[&wanted, "in use"]);
    assert!(!line.contains("doctor"), "{line}");
    t.nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_that_was_changed_is_refused_until_it_is_mended() {
    let t = Stores::fresh().await;
    t.starts(&t.env).await;
    t.run("DELETE FROM thumb").await;
    t.run("DELETE FROM thumb_count").await;
    t.run("CREATE TABLE kept AS SELECT checksum FROM _sqlx_migrations WHERE version = 2")
        .await;
    t.run("UPDATE _sqlx_migrations SET checksum = 'x' WHERE version = 2")
        .await;
    let line = refused(&t.env).await;
    says(
        &line,
        &[
            "the schema cannot be brought up to date",
            "migration 2",
            "modified",
        ],
    );
    t.nothing_is_left().await;
    t.run("UPDATE _sqlx_migrations SET checksum = (SELECT checksum FROM kept) WHERE version = 2")
        .await;
    Serve::start(&t.env, &[("THUMBD_SLICE_SECONDS", "10")])
        .await
        .stop();
    t.nothing_is_left().await;
}

/// Migrations only add, so that instances can be replaced one by one.
#[tokio::test(flavor = "multi_thread")]
async fn an_older_program_works_on_a_newer_schema() {
    let t = Stores::fresh().await;
    Serve::start(&t.env, &[("THUMBD_SLICE_SECONDS", "3600")])
        .await
        .stop();
    t.run("INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) VALUES (999, 'later', TRUE, 'x', 1)")
        .await;
    t.run("ALTER TABLE thumb ADD COLUMN later INT NOT NULL DEFAULT 7")
        .await;
    t.starts(&t.env).await;
    let later = "SELECT COUNT(*) FROM _sqlx_migrations WHERE version = 999";
    assert_eq!(t.number(later).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schema_that_is_too_new_is_refused() {
    let t = Stores::fresh().await;
    Serve::start(&t.env, &[("THUMBD_SLICE_SECONDS", "3600")])
        .await
        .stop();
    t.run("INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) VALUES (1000, 'later', TRUE, 'x', 1)")
        .await;
    let line = refused(&t.env).await;
    says(&line, &["that of a newer thumbd (migration 1000)"]);
    t.nothing_is_left().await;
    t.run("DELETE FROM _sqlx_migrations WHERE version = 1000")
        .await;
    t.starts(&t.env).await;
}

/// A user of MySQL with this password and no rights yet, and the environment behind a proxy that logs in as that user.
pub(crate) async fn as_user(t: &Stores, password: &str) -> (TestEnv, String, Proxy) {
    let sql = Proxy::before_url(&t.env.database_url).await;
    let name = t.env.key_prefix.clone();
    t.run(&format!(
        "CREATE USER {name}@localhost IDENTIFIED BY '{PASSWORD}'"
    ))
    .await;
    let url = sql.database_url(&t.env.database_url);
    let url = url.replace("root@", &format!("{name}:{password}@"));
    (t.with_database(url), name, sql)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_of_mysql_is_refused() {
    let t = Stores::over_tcp().await;
    let (env, name, _sql) = as_user(&t, WRONG).await;
    t.run(&format!("GRANT ALL ON {name}.* TO {name}@localhost"))
        .await;
    let line = refused(&env).await;
    says(
        &line,
        &[
            "MySQL does not let thumbd in",
            "Access denied for user",
            &name,
        ],
    );
    t.nothing_is_left().await;
    let right = env.database_url.replace(WRONG, PASSWORD);
    t.starts(&t.with_database(right)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_does_not_exist_is_named() {
    let t = Stores::fresh().await;
    let name = format!("/{}", t.env.key_prefix);
    let url = t.env.database_url.replace(&name, "/no_such_one");
    assert_ne!(url, t.env.database_url);
    let line = refused(&t.with_database(url)).await;
    says(
        &line,
        &[
            "MySQL does not let thumbd in",
            "Unknown database",
            "no_such_one",
            "`thumbd doctor` with the same settings says more",
        ],
    );
    t.nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mysql_that_is_not_there_or_says_nothing_is_not_waited_for() {
    let t = Stores::fresh().await;
    let url = format!("mysql://root:{PASSWORD}@{NOBODY}/thumbd");
    let line = refused(&t.with_database(url)).await;
    let refused_by = format!("{NOBODY}: Connection refused");
    says(&line, &["MySQL is not available", &refused_by]);
    let (behind, _redis, sql) = chaos::before(&t.env).await;
    sql.black_hole(true);
    let line = refused(&behind).await;
    says(&line, &["MySQL did not answer within"]);
    t.nothing_is_left().await;
    sql.heal();
    t.starts(&behind).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_is_not_there_or_says_nothing_is_not_waited_for() {
    let t = Stores::fresh().await;
    let url = format!("redis://:{PASSWORD}@{NOBODY}");
    let line = refused(&t.with_redis(url)).await;
    says(&line, &["redis cannot be reached", "Connection refused"]);
    let (behind, redis, _sql) = chaos::before(&t.env).await;
    redis.black_hole(true);
    let line = refused(&behind).await;
    says(&line, &["redis cannot be reached", "timed out"]);
    t.nothing_is_left().await;
    redis.heal();
    t.starts(&behind).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_is_too_old_is_refused() {
    let t = Stores::fresh().await;
    let (behind, redis, _sql) = chaos::before(&t.env).await;
    for major in 7..10 {
        redis.rewrite(&format!("redis_version:{major}."), "redis_version:6.");
    }
    let line = refused(&behind).await;
    says(&line, &["redis cannot be used: redis 6.", "is too old"]);
    t.nothing_is_left().await;
    redis.heal();
    t.starts(&behind).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_or_missing_password_of_redis_is_refused() {
    let t = Stores::fresh().await;
    let directory = tempfile::tempdir().unwrap();
    let options = RedisOptions {
        aof: false,
        ..servers::redis_options(directory.path())
    };
    let server = RedisServer::start(options).unwrap();
    let redis = Proxy::before_url(&server.url()).await;
    let url = |password: &str| redis.redis_url().replace("://", &format!("://{password}@"));
    let raw = raw_redis(&server.url()).await;
    let require = ["CONFIG", "SET", "requirepass", PASSWORD];
    let _: String = stand::command(&raw, &require).await;
    let line = refused(&t.with_redis(url(&format!(":{WRONG}")))).await;
    says(&line, &["redis cannot be reached", "authentication failed"]);
    let line = refused(&t.with_redis(redis.redis_url())).await;
    says(&line, &["redis", "NOAUTH"]);
    no_lease(&raw, &t.env).await;
    t.nothing_is_left().await;
    t.starts(&t.with_redis(url(&format!(":{PASSWORD}")))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_right_to_migrate_a_missing_migration_is_named() {
    let t = Stores::fresh().await;
    let settings = [("THUMBD_MIGRATE_AT_START", "false")];
    let refused = async || {
        let (status, lines) = Serve::spawn(&t.env, &settings).ended().await;
        assert_eq!((status.code(), lines.len()), (Some(1), 1), "{lines:#?}");
        lines[0].clone()
    };
    says(
        &refused().await,
        &["migration 1 (tables) is missing", "thumbd migrate"],
    );
    t.starts(&t.env).await;
    // An older program has migrated last.
    t.run("DELETE FROM _sqlx_migrations WHERE version = 5")
        .await;
    says(
        &refused().await,
        &["migration 5 (import) is missing", "thumbd migrate"],
    );
    // One that was cut off counts as missing, too.
    t.run("UPDATE _sqlx_migrations SET success = FALSE WHERE version = 2")
        .await;
    says(&refused().await, &["migration 2 (job run) is missing"]);
    t.nothing_is_left().await;
    Serve::start(&t.env, &[]).await.stop();
    Serve::start(&t.env, &settings).await.stop();
}
