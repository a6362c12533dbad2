//! The servers that all tests share, and what of them belongs to one test: a database and a key prefix of its own.
//!
//! A test that stops, kills or freezes a server starts one of its own, through `thumbd::dev`.

use std::{
    env,
    net::TcpListener,
    path::{Path, PathBuf},
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
};

use sqlx::{AssertSqlSafe, Connection, MySqlConnection};
use thumbd::dev::{RedisOptions, RedisServer, SqlOptions, SqlServer};

/// What one test works on.
#[derive(Debug, Clone)]
pub(crate) struct TestEnv {
    pub(crate) redis_url: String,
    /// An empty database.
    pub(crate) database_url: String,
    /// Its keys begin with this.
    pub(crate) key_prefix: String,
}

/// A fresh database and key prefix on the shared servers, which start with the first test that asks.
pub(crate) async fn env() -> TestEnv {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let shared = shared();
    let name = format!("t{}", COUNT.fetch_add(1, Ordering::Relaxed));
    let mut connection = MySqlConnection::connect(&shared.sql.url())
        .await
        .expect("connect to the shared SQL server");
    let create = format!("CREATE DATABASE {name} CHARACTER SET utf8mb4");
    sqlx::raw_sql(AssertSqlSafe(create))
        .execute(&mut connection)
        .await
        .expect("create a database");
    TestEnv {
        redis_url: shared.redis.url(),
        database_url: shared.sql.database_url(&name),
        key_prefix: name,
    }
}

/// The same on a Redis that only those tests share that often look through all of its keys.
pub(crate) async fn scanned_env() -> TestEnv {
    static REDIS: OnceLock<RedisServer> = OnceLock::new();
    let redis = REDIS.get_or_init(|| start_redis().expect("a Redis of its own"));
    TestEnv {
        redis_url: redis.url(),
        ..env().await
    }
}

/// A port at which nobody listens now.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// Whether tests take the long way: `THUMBD_SLOW_TESTS=1`.
pub(crate) fn slow() -> bool {
    env::var_os("THUMBD_SLOW_TESTS").is_some_and(|value| value == "1")
}

/// Options of a Redis that a test starts itself. `THUMBD_TEST_REDIS` chooses another program.
pub(crate) fn redis_options(dir: impl Into<PathBuf>) -> RedisOptions {
    RedisOptions {
        program: env::var_os("THUMBD_TEST_REDIS").map(Into::into),
        ..RedisOptions::new(dir)
    }
}

/// The server program, which can be a sentinel too.
pub(crate) fn redis_program() -> PathBuf {
    let chosen = env::var_os("THUMBD_TEST_REDIS");
    chosen.map_or_else(|| "redis-server".into(), PathBuf::from)
}

/// Options of a SQL server that a test starts itself: it survives its own crash, not the machine's.
/// `THUMBD_TEST_MYSQLD` chooses another program.
pub(crate) fn sql_options(dir: impl Into<PathBuf>) -> SqlOptions {
    SqlOptions {
        program: env::var_os("THUMBD_TEST_MYSQLD").map(Into::into),
        flush_log_at_commit: 2,
        buffer_pool_mb: 64,
        ..SqlOptions::new(dir)
    }
}

struct Shared {
    redis: RedisServer,
    sql: SqlServer,
}

/// A static is never dropped: the servers go, with their directories, when this process does.
fn shared() -> &'static Shared {
    static SHARED: OnceLock<Result<Shared, String>> = OnceLock::new();
    let start = || {
        let sql = SqlOptions {
            flush_log_at_commit: 0,
            buffer_pool_mb: 256,
            connections_max: 1000,
            ephemeral: true,
            ..sql_options(fresh_dir()?)
        };
        Ok(Shared {
            redis: start_redis()?,
            sql: SqlServer::start(sql).map_err(|e| e.to_string())?,
        })
    };
    SHARED
        .get_or_init(start)
        .as_ref()
        .unwrap_or_else(|error| panic!("no shared servers: {error}"))
}

fn start_redis() -> Result<RedisServer, String> {
    let redis = RedisOptions {
        aof: false,
        ephemeral: true,
        ..redis_options(fresh_dir()?)
    };
    RedisServer::start(redis).map_err(|e| e.to_string())
}

/// It goes with the server.
fn fresh_dir() -> Result<PathBuf, String> {
    tempfile::Builder::new()
        .prefix("thumbd-it-")
        .tempdir()
        .map(tempfile::TempDir::keep)
        .map_err(|e| e.to_string())
}

/// Starts the shared servers and gives back the SQL server's directory.
pub(crate) fn shared_sql_dir() -> &'static Path {
    shared().sql.dir()
}
