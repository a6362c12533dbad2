//! Migrations: at the same time, cut off, from an older program, and on databases with other defaults.

use thumbd::ledger::{Ledger, LedgerError, LedgerOptions};

use super::{TestLedger, layout};
use crate::servers;

#[tokio::test]
async fn four_processes_migrate_at_once() {
    let url = servers::env().await.database_url;
    let run = || async {
        let ledger = Ledger::connect(&url, LedgerOptions::default()).unwrap();
        ledger.migrate().await.unwrap();
        ledger.adopt_layout(&layout(1)).await.unwrap();
        ledger.flush_state().await.unwrap()
    };
    let (a, b, c, d) = tokio::join!(run(), run(), run(), run());
    assert!(a == b && b == c && c == d);
}

#[tokio::test]
async fn a_database_without_tables_says_so() {
    let url = servers::env().await.database_url;
    let ledger = Ledger::connect(&url, LedgerOptions::default()).unwrap();
    ledger.ping().await.unwrap();
    let error = ledger.flush_state().await.unwrap_err();
    assert!(matches!(error, LedgerError::NotMigrated), "{error:?}");
}

#[tokio::test]
async fn an_old_program_leaves_a_newer_schema_alone() {
    let t = TestLedger::start(1).await;
    t.run(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
         VALUES (999, 'later', TRUE, 'x', 1)",
    )
    .await;
    t.run("ALTER TABLE thumb ADD COLUMN later INT NOT NULL DEFAULT 7")
        .await;
    t.ledger.migrate().await.unwrap();
    assert_eq!(t.apply(10, &[("u1 blog:1", 11)]).await, (1, 0, 1));
    t.check().await;
}

#[tokio::test]
async fn a_migration_that_was_cut_off_is_run_again() {
    let t = TestLedger::start(1).await;
    t.run("UPDATE _sqlx_migrations SET success = FALSE WHERE version = 1")
        .await;
    t.run("DROP TABLE job_run").await;
    t.ledger.migrate().await.unwrap();
    assert_eq!(t.number("SELECT COUNT(*) FROM job_run").await, 0);
    t.check().await;
}

#[tokio::test]
async fn the_lock_is_free_again_when_its_holder_is_gone() {
    let t = TestLedger::start(1).await;
    let mut holder = t.pool.acquire().await.unwrap();
    let held = sqlx::query("SELECT GET_LOCK(CONCAT('thumbd-', SHA2(DATABASE(), 224)), 0)");
    held.fetch_one(&mut *holder).await.unwrap();
    let migrate = t.ledger.migrate();
    let leave = async move { holder.close().await.unwrap() };
    let (migrated, ()) = tokio::join!(migrate, leave);
    migrated.unwrap();
    t.check().await;
}

#[tokio::test]
async fn other_defaults_of_database_and_url_change_nothing() {
    let url = servers::env().await.database_url;
    let pool = sqlx::MySqlPool::connect(&url).await.unwrap();
    let name: String = sqlx::query_scalar("SELECT DATABASE()")
        .fetch_one(&pool)
        .await
        .unwrap();
    sqlx::raw_sql(sqlx::AssertSqlSafe(format!(
        "ALTER DATABASE {name} CHARACTER SET latin1"
    )))
    .execute(&pool)
    .await
    .unwrap();
    let odd = format!("{url}&charset=latin1&timezone=%2B05:30");
    let ledger = Ledger::connect(&odd, LedgerOptions::default()).unwrap();
    ledger.migrate().await.unwrap();
    ledger.adopt_layout(&layout(1)).await.unwrap();
    let t = TestLedger {
        ledger,
        pool,
        url,
        partitions: 1,
    };
    assert_eq!(
        t.apply(10, &[("Ab blog:1", 11), ("ab blog:1", 12)]).await,
        (2, 0, 1)
    );
    let users = t.ledger.users(&[super::user("ab")], 5).await.unwrap();
    assert_eq!(users[0].thumbs.len(), 1);
    assert_eq!(
        t.number(
            "SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE() \
             AND character_set_name = 'latin1' AND table_name <> '_sqlx_migrations'"
        )
        .await,
        0
    );
    t.check().await;
}

#[tokio::test]
async fn urls_that_cannot_work_are_refused_at_once() {
    for url in [
        "",
        "postgres://a@b/c",
        "mysql://a@b",
        "mysql://a@b/",
        "mysql://a@b:x/c",
    ] {
        let result = Ledger::connect(url, LedgerOptions::default());
        assert!(matches!(result, Err(LedgerError::Url(_))), "{url}");
    }
}
