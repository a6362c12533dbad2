//! Private servers: they keep what they should, and go when they should.

use std::{
    env,
    fs::{self, File},
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use sqlx::{Connection, MySqlConnection};
use tempfile::tempdir;
use thumbd::dev::{DevError, RedisOptions, RedisServer, Servers, SqlOptions, SqlServer};

use crate::servers;

/// Set for the copy of this program that owns a server and is killed.
const OWNER_DIR: &str = "THUMBD_TEST_OWNER_DIR";

async fn redis_command(url: &str, command: &[&str]) -> redis::RedisResult<Option<String>> {
    let client = redis::Client::open(url)?;
    let config =
        redis::AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_millis(500)));
    let mut connection = client
        .get_multiplexed_async_connection_with_config(&config)
        .await?;
    let mut cmd = redis::Cmd::new();
    for word in command {
        cmd.arg(*word);
    }
    cmd.query_async(&mut connection).await
}

async fn sql(url: &str, statement: &'static str) {
    let mut connection = MySqlConnection::connect(url).await.unwrap();
    sqlx::raw_sql(statement)
        .execute(&mut connection)
        .await
        .unwrap();
}

async fn row_count(url: &str) -> i64 {
    let mut connection = MySqlConnection::connect(url).await.unwrap();
    sqlx::query_scalar("SELECT COUNT(*) FROM kept")
        .fetch_one(&mut connection)
        .await
        .unwrap()
}

#[tokio::test]
async fn every_test_has_its_own_database_and_prefix() {
    let (a, b) = (servers::env().await, servers::env().await);
    assert_ne!(a.key_prefix, b.key_prefix);
    sql(&a.database_url, "CREATE TABLE kept (id INT)").await;
    sql(
        &b.database_url,
        "CREATE TABLE kept (id INT); INSERT INTO kept VALUES (1)",
    )
    .await;
    assert_eq!(
        (
            row_count(&a.database_url).await,
            row_count(&b.database_url).await
        ),
        (0, 1)
    );
    redis_command(&a.redis_url, &["SET", &a.key_prefix, "1"])
        .await
        .unwrap();
    assert_eq!(
        redis_command(&b.redis_url, &["GET", &b.key_prefix])
            .await
            .unwrap(),
        None
    );
}

#[tokio::test]
async fn redis_keeps_its_aof_through_kill_and_restart() {
    let dir = tempdir().unwrap();
    let mut server = RedisServer::start(servers::redis_options(dir.path())).unwrap();
    let url = server.url();
    redis_command(&url, &["CONFIG", "SET", "appendfsync", "always"])
        .await
        .unwrap();
    redis_command(&url, &["SET", "kept", "yes"]).await.unwrap();
    let first = server.pid();
    server.kill().unwrap();
    assert!(redis_command(&url, &["PING"]).await.is_err());
    server.restart().unwrap();
    assert_ne!(server.pid(), first);
    assert_eq!(
        redis_command(&url, &["GET", "kept"])
            .await
            .unwrap()
            .as_deref(),
        Some("yes")
    );
}

#[tokio::test]
async fn redis_without_aof_forgets_and_keeps_its_port() {
    let dir = tempdir().unwrap();
    let options = RedisOptions {
        aof: false,
        tcp: true,
        ..servers::redis_options(dir.path())
    };
    let mut server = RedisServer::start(options).unwrap();
    let url = server.url();
    assert_eq!(url, format!("redis://127.0.0.1:{}", server.port().unwrap()));
    redis_command(&url, &["SET", "kept", "yes"]).await.unwrap();
    server.stop().unwrap();
    server.restart().unwrap();
    assert_eq!(redis_command(&url, &["GET", "kept"]).await.unwrap(), None);
}

#[tokio::test]
async fn a_frozen_redis_hangs_until_it_is_thawed() {
    let dir = tempdir().unwrap();
    let mut server = RedisServer::start(servers::redis_options(dir.path())).unwrap();
    server.freeze().unwrap();
    let error = redis_command(&server.url(), &["PING"]).await.unwrap_err();
    assert!(error.is_timeout(), "{error}");
    server.thaw().unwrap();
    assert_eq!(
        redis_command(&server.url(), &["PING"])
            .await
            .unwrap()
            .as_deref(),
        Some("PONG")
    );
    server.freeze().unwrap();
    let stopping = Instant::now();
    server.stop().expect("a frozen server stops cleanly too");
    assert!(
        stopping.elapsed() < Duration::from_secs(10),
        "{:?}",
        stopping.elapsed()
    );
}

#[tokio::test]
async fn sql_keeps_its_rows_through_stop_kill_and_restart() {
    let dir = tempdir().unwrap();
    let mut server = SqlServer::start(SqlOptions {
        tcp: true,
        ..servers::sql_options(dir.path())
    })
    .unwrap();
    let url = server.url();
    sql(
        &url,
        "CREATE TABLE kept (id INT PRIMARY KEY); INSERT INTO kept VALUES (1)",
    )
    .await;
    server.stop().unwrap();
    assert!(MySqlConnection::connect(&url).await.is_err());
    server.restart().unwrap();
    sql(&url, "INSERT INTO kept VALUES (2)").await;
    server.kill().unwrap();
    server.restart().unwrap();
    assert_eq!(row_count(&url).await, 2);
}

#[tokio::test]
async fn an_interrupted_installation_begins_again() {
    let dir = tempdir().unwrap();
    fs::create_dir(dir.path().join("data.partial")).unwrap();
    fs::write(dir.path().join("data.partial/ibdata1"), "half").unwrap();
    let server = SqlServer::start(servers::sql_options(dir.path())).unwrap();
    sql(&server.url(), "CREATE TABLE kept (id INT)").await;
}

#[tokio::test]
async fn dev_servers_find_yesterdays_data_and_notice_a_death() {
    // So deep that no unix socket fits.
    let top = tempdir().unwrap();
    let dir = top.path().join("d".repeat(120)).join("with space");
    let servers = Servers::start(&dir).await.unwrap();
    redis_command(&servers.redis_url(), &["SET", "kept", "yes"])
        .await
        .unwrap();
    sql(
        &servers.database_url(),
        "CREATE TABLE kept (id INT); INSERT INTO kept VALUES (1)",
    )
    .await;
    let second = Servers::start(&dir).await.unwrap_err();
    assert!(
        matches!(&second, DevError::InUse(used) if *used == dir.canonicalize().unwrap()),
        "{second}"
    );
    servers.stop().await.unwrap();

    let mut servers = Servers::start(&dir).await.unwrap();
    assert_eq!(
        redis_command(&servers.redis_url(), &["GET", "kept"])
            .await
            .unwrap()
            .as_deref(),
        Some("yes")
    );
    assert_eq!(row_count(&servers.database_url()).await, 1);
    assert!(
        tokio::time::timeout(Duration::from_millis(700), servers.died())
            .await
            .is_err()
    );
    let _ = redis_command(&servers.redis_url(), &["SHUTDOWN"]).await;
    let death = servers.died().await;
    assert!(
        matches!(
            death,
            DevError::Exited {
                name: "redis-server",
                ..
            }
        ),
        "{death}"
    );
}

#[test]
fn a_missing_program_is_one_clear_line() {
    let dir = tempdir().unwrap();
    let program = Some("/nowhere/redis-server".into());
    let error = RedisServer::start(RedisOptions {
        program,
        ..RedisOptions::new(dir.path())
    })
    .unwrap_err();
    insta::assert_snapshot!(error, @"/nowhere/redis-server not found: install it (Debian, Ubuntu: apt-get install redis-server)");
    let program = Some("/nowhere/mariadbd".into());
    let error = SqlServer::start(SqlOptions {
        program,
        ..SqlOptions::new(dir.path())
    })
    .unwrap_err();
    insta::assert_snapshot!(error, @"/nowhere/mariadbd not found: install it (Debian, Ubuntu: apt-get install mariadb-server-core mariadb-client-core)");
}

#[test]
fn a_server_that_cannot_start_shows_its_log() {
    let dir = tempdir().unwrap();
    let options = RedisOptions {
        extra_args: vec!["--no-such-setting".into(), "1".into()],
        ..servers::redis_options(dir.path())
    };
    let error = RedisServer::start(options).unwrap_err();
    assert!(matches!(error, DevError::Exited { .. }), "{error}");
    assert!(error.to_string().contains("no-such-setting"), "{error}");
}

/// Not a test by itself: owns a server until it is killed.
#[test]
fn owner_process() {
    let Some(dir) = env::var_os(OWNER_DIR) else {
        return;
    };
    let server = RedisServer::start(servers::redis_options(dir)).unwrap();
    let shared = servers::shared_sql_dir();
    println!("\nowner: {} {}", server.pid(), shared.display());
    thread::sleep(Duration::from_secs(60));
}

#[test]
fn servers_go_when_their_owner_is_killed() {
    let dir = tempdir().unwrap();
    let mut owner = Command::new(env::current_exe().unwrap())
        .args(["--exact", "dev_servers::owner_process", "--nocapture"])
        .env(OWNER_DIR, dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(owner.stdout.take().unwrap()).lines();
    let line = lines
        .map(Result::unwrap)
        .find(|line| line.starts_with("owner: "))
        .expect("the servers of the owner");
    let words: Vec<_> = line.split(' ').collect();
    let (pid, shared_dir) = (words[1], Path::new(words[2]));
    assert_eq!(
        fs::read_to_string(dir.path().join("pid")).unwrap().trim(),
        pid
    );
    assert!(shared_dir.join("data").is_dir());
    let locked = || {
        File::open(dir.path().join("pid"))
            .unwrap()
            .try_lock()
            .is_err()
    };
    assert!(locked(), "the server holds its pid file");

    owner.kill().unwrap();
    owner.wait().unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while locked() || shared_dir.exists() {
        assert!(
            Instant::now() < deadline,
            "server {pid} or {} outlived its owner",
            shared_dir.display()
        );
        thread::sleep(Duration::from_millis(20));
    }
    // The same directory at once, as after a crash.
    RedisServer::start(servers::redis_options(dir.path())).unwrap();
}
