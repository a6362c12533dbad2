//! What may be wrong with MySQL or MariaDB.

use std::time::{Duration, Instant};

use sqlx::{AssertSqlSafe, MySqlPool};
use tempfile::TempDir;
use thumbd::config::{KindSettings, Kinds, Mirror, Secret, Settings};
use thumbd::dev::{SqlOptions, SqlServer};
use thumbd::domain::Kind;

use super::{NOBODY, PASSWORD, WRONG, bad, look, on, says, stand};
use crate::chaos::Proxy;
use crate::servers::{self, env};
use crate::stand::Stand;

/// A server of one test, with the tables of thumbd in it.
struct Own {
    server: SqlServer,
    pool: MySqlPool,
    settings: Settings,
    _directory: TempDir,
}

impl Own {
    async fn start(change: impl FnOnce(&mut SqlOptions)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut options = SqlOptions {
            flush_log_at_commit: 1,
            ..servers::sql_options(directory.path())
        };
        change(&mut options);
        let server = SqlServer::start(options).unwrap();
        let settings = Settings {
            database_url: Some(Secret::new(server.url())),
            ..on(&env().await)
        };
        Stand::on(settings.clone()).await;
        Self {
            pool: MySqlPool::connect(&server.url()).await.unwrap(),
            server,
            settings,
            _directory: directory,
        }
    }

    async fn run(&self, text: &str) {
        let run = sqlx::raw_sql(AssertSqlSafe(text)).execute(&self.pool);
        run.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_server_is_set_to_is_found() {
    let own = Own::start(|_| {}).await;
    let settings = &own.settings;
    let report = look(settings).await;
    assert_eq!(bad(&report), [""; 0]);
    says(
        &report,
        "ok database durability",
        &["innodb_flush_log_at_trx_commit 1"],
    );

    own.run("SET GLOBAL innodb_flush_log_at_trx_commit = 2")
        .await;
    says(
        &look(settings).await,
        "warning database durability",
        &["innodb_flush_log_at_trx_commit = 1"],
    );
    own.run("SET GLOBAL innodb_flush_log_at_trx_commit = 1")
        .await;

    own.run("SET GLOBAL wait_timeout = 5").await;
    says(
        &look(settings).await,
        "warning database idle",
        &["5 s", "wait_timeout = 28800"],
    );
    own.run("SET GLOBAL wait_timeout = 28800").await;

    own.run("SET GLOBAL max_allowed_packet = 8192").await;
    says(
        &look(settings).await,
        "failure database packets",
        &["8192 bytes", "max_allowed_packet = 16777216"],
    );
    own.run("SET GLOBAL max_allowed_packet = 16777216").await;

    own.run("SET GLOBAL max_heap_table_size = 1048576").await;
    says(
        &look(settings).await,
        "failure database staging",
        &["flush_rows_max 20000", "max_heap_table_size = 16777216"],
    );
    own.run("SET GLOBAL max_heap_table_size = 16777216").await;

    let many = Settings {
        database_connections_max: 500,
        ..settings.clone()
    };
    says(
        &look(&many).await,
        "failure database connections",
        &["500 at most", "200 allowed", "max_connections = 635"],
    );

    own.run("SET GLOBAL read_only = 1").await;
    let report = look(settings).await;
    assert_eq!(
        bad(&report),
        ["failure database writes", "skipped database rights"]
    );
    says(
        &report,
        "failure database writes",
        &["read-only", "read_only = 0"],
    );
    own.run("SET GLOBAL read_only = 0").await;
    assert_eq!(bad(&look(settings).await), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_binary_log_of_statements_is_found() {
    let own = Own::start(|options| {
        options.extra_args = ["--log-bin=binlog", "--server-id=1", "--sync-binlog=0"]
            .map(str::to_owned)
            .to_vec();
    })
    .await;
    says(
        &look(&own.settings).await,
        "warning database durability",
        &["sync_binlog = 1"],
    );
    own.run("SET GLOBAL sync_binlog = 1").await;
    own.run("SET GLOBAL binlog_format = 'STATEMENT'").await;
    says(
        &look(&own.settings).await,
        "failure database binary log",
        &["READ COMMITTED", "binlog_format = 'ROW'"],
    );
    // It is as the check says: the server refuses what a start does.
    let ledger = thumbd::service::connect_ledger(&own.settings).unwrap();
    let error = ledger.migrate().await.unwrap_err();
    let error = thumbd::telemetry::one_line(&error);
    assert!(error.contains("BINLOG_FORMAT = STATEMENT"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_right_that_is_missing_is_found() {
    let t = stand().await;
    let name = &t.settings.key_prefix;
    t.script(&format!("CREATE USER {name}@localhost")).await;
    let url = t.settings.database_url.as_ref().unwrap().expose();
    let settings = Settings {
        database_url: Some(Secret::new(url.replace("://root@", &format!("://{name}@")))),
        ..t.settings.clone()
    };
    let rights = [
        "SELECT",
        "INSERT",
        "UPDATE",
        "DELETE",
        "CREATE TEMPORARY TABLES",
        "CREATE",
        "ALTER",
        "INDEX",
    ];
    let set = async |rights: &[&str]| {
        t.script(&format!("GRANT USAGE ON *.* TO {name}@localhost; REVOKE ALL PRIVILEGES, GRANT OPTION FROM {name}@localhost"))
            .await;
        let rights = rights.join(", ");
        t.script(&format!("GRANT {rights} ON {name}.* TO {name}@localhost"))
            .await;
    };
    set(&rights).await;
    assert_eq!(bad(&look(&settings).await), [""; 0]);
    for missing in &rights[1..] {
        let others: Vec<&str> = rights.into_iter().filter(|one| one != missing).collect();
        set(&others).await;
        let report = look(&settings).await;
        assert_eq!(bad(&report), ["failure database rights"], "{missing}");
        let grant = format!("GRANT {missing} ON `{name}`.* TO '{name}'@'localhost';");
        says(&report, "failure database rights", &[&grant]);
    }
    // Without SELECT nothing else can be looked at either.
    set(&rights[1..]).await;
    says(
        &look(&settings).await,
        "failure database rights",
        &["may not SELECT"],
    );
    // Whoever does not migrate needs less.
    set(&rights[..5]).await;
    let settings = Settings {
        migrate_at_start: false,
        ..settings
    };
    assert_eq!(bad(&look(&settings).await), [""; 0]);
    // A right on each table is as good as one on all.
    set(&["SELECT", "INSERT", "UPDATE", "CREATE TEMPORARY TABLES"]).await;
    says(
        &look(&settings).await,
        "failure database rights",
        &["GRANT DELETE"],
    );
    let tables = "SELECT CAST(table_name AS CHAR) FROM information_schema.tables WHERE table_schema = DATABASE()";
    let tables: Vec<(String,)> = sqlx::query_as(tables).fetch_all(&t.pool).await.unwrap();
    for (table,) in tables {
        t.script(&format!(
            "GRANT DELETE ON {name}.{table} TO {name}@localhost"
        ))
        .await;
    }
    assert_eq!(bad(&look(&settings).await), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn migrations_that_are_missing_changed_or_too_new_are_found() {
    let mut settings = on(&env().await);
    // Nothing is there yet: that is how one begins.
    let report = look(&settings).await;
    assert_eq!(
        bad(&report),
        ["skipped database tables", "skipped both layout"]
    );
    says(&report, "ok database schema", &["serve makes them"]);
    settings.migrate_at_start = false;
    says(
        &look(&settings).await,
        "failure database schema",
        &["1 (tables)", "thumbd migrate"],
    );

    let t = Stand::on(settings.clone()).await;
    assert_eq!(bad(&look(&settings).await), [""; 0]);
    t.sql("DELETE FROM _sqlx_migrations WHERE version = 5")
        .await;
    t.sql("UPDATE _sqlx_migrations SET success = FALSE WHERE version = 6")
        .await;
    says(
        &look(&settings).await,
        "failure database schema",
        &["5 (import), 6 (feed)", "thumbd migrate"],
    );
    settings.migrate_at_start = true;
    says(
        &look(&settings).await,
        "warning database schema",
        &["5 (import), 6 (feed)"],
    );
    t.ledger.migrate().await.unwrap();
    assert_eq!(bad(&look(&settings).await), [""; 0]);

    t.sql("UPDATE _sqlx_migrations SET checksum = 'x' WHERE version = 2")
        .await;
    says(&look(&settings).await, "failure database schema", &["[2]"]);
    t.sql("INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) VALUES (1000, 'later', TRUE, 'x', 1)").await;
    says(
        &look(&settings).await,
        "failure database schema",
        &["newer thumbd"],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_that_are_not_as_they_were_made_are_found() {
    let settings = on(&env().await);
    let pool = MySqlPool::connect(settings.database_url.as_ref().unwrap().expose());
    let pool = pool.await.unwrap();
    let run = async |text: &str| {
        sqlx::raw_sql(AssertSqlSafe(text))
            .execute(&pool)
            .await
            .unwrap();
    };
    run("CREATE TABLE thumb (of_another INT)").await;
    says(
        &look(&settings).await,
        "failure database schema",
        &["`thumb` is not thumbd's", "RENAME TABLE"],
    );
    run("DROP TABLE thumb").await;
    let t = Stand::on(settings.clone()).await;
    run("ALTER TABLE thumb MODIFY target_id VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci NOT NULL").await;
    let report = look(&settings).await;
    assert_eq!(bad(&report), ["failure database tables"]);
    let fix = "ALTER TABLE thumb MODIFY target_id varchar(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL";
    says(
        &report,
        "failure database tables",
        &["thumb.target_id", "utf8mb4_general_ci", fix],
    );
    run(fix).await;
    assert_eq!(bad(&look(&settings).await), [""; 0]);
    run("ALTER TABLE job_run ENGINE = MyISAM").await;
    let report = look(&settings).await;
    says(
        &report,
        "failure database tables",
        &["MyISAM", "ALTER TABLE job_run ENGINE = InnoDB"],
    );
    run("ALTER TABLE job_run ENGINE = InnoDB").await;
    t.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_stands_in_the_tables_is_told() {
    let t = stand().await;
    t.sql("INSERT INTO quarantine (user_id, kind, target_id, thumbed, version, reason, created_at) VALUES ('u1', 'blog', '1', 1, 1, 'x', NOW(6))").await;
    t.ledger.feed_set(true, 100_000).await.unwrap();
    says(
        &look(&t.settings).await,
        "ok database feed",
        &["1 events wait"],
    );
    t.sql("UPDATE flush_state SET feed_state = 2, feed_stopped_at = NOW(6)")
        .await;
    t.sql("INSERT INTO job_run (job, planned_at, owner, started_at, finished_at, outcome) VALUES ('compensate', '2020-01-01', 'x', NOW(6), NOW(6), 'done')").await;
    let report = look(&t.settings).await;
    let found = [
        "warning database quarantine",
        "warning database feed",
        "warning database compensator",
    ];
    assert_eq!(bad(&report), found);
    says(
        &report,
        found[0],
        &["1 operations", "thumbd quarantine list"],
    );
    says(&report, found[1], &["thumbd feed resume"]);
    says(&report, found[2], &["2020-01-01", "thumbd compensate"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mirror_that_does_not_fit_is_found() {
    let t = stand().await;
    let mirrored = |table: &str, column: &str| {
        let settings = KindSettings {
            mirror: Some(Mirror::parse(table, "id", column).unwrap()),
            ..KindSettings::default()
        };
        Settings {
            kinds: Kinds::with([(Kind::parse("blog").unwrap(), settings)]),
            ..t.settings.clone()
        }
    };
    t.sql("CREATE TABLE post (id INT PRIMARY KEY, likes INT, title TEXT)")
        .await;
    let right = mirrored("post", "likes");
    let report = look(&right).await;
    assert_eq!(bad(&report), [""; 0]);
    says(
        &report,
        "ok database mirrors",
        &["post.likes takes the counts of blog"],
    );
    for (table, column, word) in [
        ("post", "hearts", "no such table or column"),
        ("posts", "likes", "no such table or column"),
        ("post", "title", "an integer is wanted"),
    ] {
        let report = look(&mirrored(table, column)).await;
        assert_eq!(bad(&report), ["failure database mirrors"]);
        says(
            &report,
            "failure database mirrors",
            &["mirror of kind blog", word],
        );
    }
    // What is kept counts, whatever the settings say.
    t.ledger
        .mirrors_adopt(thumbd::service::mirrors(&right))
        .await
        .unwrap();
    says(
        &look(&t.settings).await,
        "ok database mirrors",
        &["post.likes takes the counts of blog; it is kept though these settings do not name it"],
    );
    t.sql("ALTER TABLE post ADD hearts INT").await;
    let report = look(&mirrored("post", "hearts")).await;
    assert_eq!(bad(&report), ["failure database mirrors"]);
    says(
        &report,
        "failure database mirrors",
        &[
            "is post/id/likes, the settings say post/id/hearts",
            "thumbd mirror remove blog",
        ],
    );
    t.sql("DROP TABLE post").await;
    says(
        &look(&t.settings).await,
        "failure database mirrors",
        &["no such table or column", "thumbd mirror remove blog"],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_lets_nobody_in_leaves_redis_to_be_looked_at() {
    let own = Own::start(|options| options.tcp = true).await;
    own.run(&format!("CREATE USER likes@'%' IDENTIFIED BY '{PASSWORD}'"))
        .await;
    own.run("GRANT ALL ON thumbd.* TO likes@'%'").await;
    let port = own.server.port().unwrap();
    let with = |url: String| Settings {
        database_url: Some(Secret::new(url)),
        database_acquire_timeout_ms: 1000,
        ..own.settings.clone()
    };
    let url = |password: &str, database: &str| {
        format!("mysql://likes:{password}@127.0.0.1:{port}/{database}")
    };
    assert_eq!(bad(&look(&with(url(PASSWORD, "thumbd"))).await), [""; 0]);
    let only_database = [
        "failure database reach",
        "skipped database rest",
        "skipped both stores",
    ];
    let report = look(&with(url(WRONG, "thumbd"))).await;
    assert_eq!(bad(&report), only_database);
    says(
        &report,
        "failure database reach",
        &[
            "Access denied",
            "THUMBD_DATABASE_URL",
            "WHERE user IN ('likes', '')",
        ],
    );
    let report = look(&with(url(PASSWORD, "no_such_one"))).await;
    assert_eq!(bad(&report), only_database);
    says(
        &report,
        "failure database reach",
        &[
            "GRANT SELECT, INSERT",
            "ON `no_such_one`.* TO 'likes'@",
            "if the database is not there",
        ],
    );
    let report = look(&with(format!("mysql://likes:{PASSWORD}@{NOBODY}/thumbd"))).await;
    assert_eq!(bad(&report), only_database);
    says(
        &report,
        "failure database reach",
        &["Connection refused", NOBODY],
    );
    says(&report, "ok redis role", &[]);

    let proxy = Proxy::before_url(&own.server.url()).await;
    proxy.black_hole(true);
    let begun = Instant::now();
    let report = look(&with(proxy.database_url(&own.server.url()))).await;
    assert!(
        begun.elapsed() < Duration::from_secs(30),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(bad(&report), only_database);
}
