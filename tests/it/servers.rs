//! Gives each test a database of its own on a real server, named by `THUMBD_TEST_DATABASE_URL` (an account that may create databases).

#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicU32, Ordering};

use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection};

/// What a test works on.
pub(crate) struct TestEnv {
    /// A fresh, empty database.
    pub(crate) database_url: String,
}

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A fresh environment.
pub(crate) async fn env() -> TestEnv {
    let base = std::env::var("THUMBD_TEST_DATABASE_URL")
        .expect("THUMBD_TEST_DATABASE_URL names a server for the tests");
    let name = format!(
        "it_{}_{}",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    );
    let mut connection = MySqlConnection::connect(&base).await.unwrap();
    for text in ["DROP DATABASE IF EXISTS", "CREATE DATABASE"] {
        connection
            .execute(AssertSqlSafe(format!("{text} {name}")))
            .await
            .unwrap();
    }
    let (server, _) = base.rsplit_once('/').unwrap();
    TestEnv {
        database_url: format!("{server}/{name}"),
    }
}
