//! Both servers of `thumbd dev`.

use std::{path::Path, time::Duration};

use tokio::task::spawn_blocking;

use super::{DevError, RedisOptions, RedisServer, SqlOptions, SqlServer, place::Place};

const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A Redis and a SQL server on one data directory. Dropping them stops them.
#[derive(Debug)]
pub struct Servers {
    redis: RedisServer,
    sql: SqlServer,
    _place: Place,
}

impl Servers {
    /// Starts both at once, on `dir/redis` and `dir/sql`.
    pub async fn start(dir: &Path) -> Result<Self, DevError> {
        let place = Place::open(dir)?;
        let (redis_dir, sql_dir) = (place.path("redis"), place.path("sql"));
        let redis = spawn_blocking(|| RedisServer::start(RedisOptions::new(redis_dir)));
        let sql = spawn_blocking(|| SqlServer::start(SqlOptions::new(sql_dir)));
        // Both are awaited before either error is given back: a half-started pair is dropped, and so stopped, here.
        let (redis, sql) = (finish(redis).await, finish(sql).await);
        Ok(Self {
            redis: redis?,
            sql: sql?,
            _place: place,
        })
    }

    /// The address of Redis, for the redis crate.
    pub fn redis_url(&self) -> String {
        self.redis.url()
    }

    /// The address of the database, for sqlx.
    pub fn database_url(&self) -> String {
        self.sql.url()
    }

    /// Waits until one of them has ended by itself, and says how. Safe to drop.
    pub async fn died(&mut self) -> DevError {
        loop {
            if let Err(error) = self.redis.check().and_then(|()| self.sql.check()) {
                return error;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Stops both at once and waits for their end.
    pub async fn stop(self) -> Result<(), DevError> {
        let Self {
            mut redis,
            mut sql,
            _place,
        } = self;
        let redis = spawn_blocking(move || redis.stop());
        let sql = spawn_blocking(move || sql.stop());
        let (redis, sql) = (finish(redis).await, finish(sql).await);
        redis.and(sql)
    }
}

async fn finish<T>(task: tokio::task::JoinHandle<Result<T, DevError>>) -> Result<T, DevError> {
    task.await.map_err(|error| DevError::Io {
        doing: "run a task".into(),
        source: error.into(),
    })?
}
