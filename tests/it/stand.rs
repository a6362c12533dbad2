//! Everything below HTTP on the shared servers, stepped by hand: settings, both stores, the use cases and the flusher.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, ToRedisArgs};
use sqlx::{AssertSqlSafe, MySqlPool, Row};
use thumbd::config::{Secret, Settings};
use thumbd::domain::{Action, Operation, Target, UserId, partition_of};
use thumbd::flush::{FlushError, FlushReport, Flusher, Upto};
use thumbd::hot::{Hot, Peek, Reset};
use thumbd::ledger::{JobEnd, Ledger};
use thumbd::service::{Outcome, Service, ServiceError, connect_hot, layout, new_generation};
use thumbd::verify::{self, Report};

use crate::servers;

/// A service on a database and key prefix of its own.
pub(crate) struct Stand {
    pub(crate) settings: Settings,
    pub(crate) hot: Hot,
    pub(crate) ledger: Ledger,
    pub(crate) service: Service,
    pub(crate) flusher: Flusher,
    /// For looking behind the ledger's back.
    pub(crate) pool: MySqlPool,
    /// For looking behind the scripts' back.
    pub(crate) redis: MultiplexedConnection,
}

/// Settings of a test on the shared servers.
pub(crate) async fn settings(partitions: u16) -> Settings {
    let env = servers::env().await;
    Settings {
        redis_url: Some(Secret::new(env.redis_url)),
        database_url: Some(Secret::new(env.database_url)),
        key_prefix: env.key_prefix,
        partitions,
        ..Settings::default()
    }
}

/// A connection that knows no thumbd; of several servers, to the first that is named.
pub(crate) async fn raw_redis(settings: &Settings) -> MultiplexedConnection {
    let url = settings.redis_url.as_ref().unwrap().expose();
    let url = match url.split_once("+cluster").or(url.split_once("+sentinel")) {
        Some((scheme, list)) => format!("{scheme}{}", list.split(',').next().unwrap()),
        None => url.to_owned(),
    };
    let client = redis::Client::open(url).unwrap();
    client.get_multiplexed_async_connection().await.unwrap()
}

impl Stand {
    pub(crate) async fn start(partitions: u16) -> Self {
        Self::on(settings(partitions).await).await
    }

    /// Migrates, and initialises the partitions.
    pub(crate) async fn on(settings: Settings) -> Self {
        let url = settings.database_url.as_ref().unwrap().expose();
        let pool = MySqlPool::connect(url).await.unwrap();
        let ledger = thumbd::service::connect_ledger(&settings).unwrap();
        ledger.migrate().await.unwrap();
        let service = Service::build(&settings).await.unwrap();
        let (hot, ledger) = (service.hot().clone(), service.ledger().clone());
        Self {
            flusher: Flusher::new(hot.clone(), ledger.clone(), &settings),
            redis: raw_redis(&settings).await,
            settings,
            hot,
            ledger,
            service,
            pool,
        }
    }

    /// Another process on the same stores.
    pub(crate) async fn another(&self) -> Service {
        Service::build(&self.settings).await.unwrap()
    }

    pub(crate) async fn like(&self, user: &str, target: &str) -> Result<Outcome, ServiceError> {
        self.service.thumb(op(user, target, true)).await
    }

    pub(crate) async fn unlike(&self, user: &str, target: &str) -> Result<Outcome, ServiceError> {
        self.service.thumb(op(user, target, false)).await
    }

    /// Whether a user likes a target, and its count.
    pub(crate) async fn look(&self, user: &str, of: &str) -> (Option<bool>, Option<i64>) {
        let (user, of) = (self::user(user), target(of));
        let seen = self.service.lookup(Some(&user), &[of]).await.unwrap()[0];
        (seen.liked, seen.count)
    }

    pub(crate) async fn flush(&self) -> FlushReport {
        self.try_flush().await.unwrap()
    }

    pub(crate) async fn try_flush(&self) -> Result<FlushReport, FlushError> {
        self.flusher.run(|| Upto::Now).await
    }

    /// As if the compensator had just run: a process that starts does not run it.
    pub(crate) async fn compensated(&self) {
        let now = chrono::Utc::now();
        let run = self.ledger.job_begin("compensate", now, "test").await;
        let end = JobEnd {
            outcome: "done",
            detail: "",
            waited: Duration::ZERO,
            held: Duration::ZERO,
        };
        let run = run.unwrap().unwrap();
        self.ledger.job_end(run, "test", end).await.unwrap();
    }

    pub(crate) async fn peek(&self, partition: u16) -> Peek {
        self.hot.peek(partition).await.unwrap()
    }

    pub(crate) fn home(&self, user: &str) -> u16 {
        partition_of(&self::user(user), self.settings.partitions)
    }

    pub(crate) fn key(&self, partition: u16, rest: &str) -> String {
        key(&self.settings, partition, rest)
    }

    /// The key of a user in its home partition.
    pub(crate) fn user_key(&self, user: &str) -> String {
        self.key(self.home(user), &format!("user:{user}"))
    }

    /// Runs a command behind the scripts' back.
    pub(crate) async fn command<T: FromRedisValue>(&self, words: &[&str]) -> T {
        command(&self.redis, words).await
    }

    /// Runs SQL behind the ledger's back.
    pub(crate) async fn sql(&self, text: &str) {
        let query = sqlx::query(AssertSqlSafe(text));
        query.execute(&self.pool).await.unwrap();
    }

    /// Runs SQL that cannot be prepared.
    pub(crate) async fn script(&self, text: &str) {
        let script = sqlx::raw_sql(AssertSqlSafe(text));
        script.execute(&self.pool).await.unwrap();
    }

    /// One number from SQL.
    pub(crate) async fn number(&self, text: &str) -> i64 {
        let query = sqlx::query(AssertSqlSafe(text));
        query
            .fetch_one(&self.pool)
            .await
            .unwrap()
            .try_get(0)
            .unwrap()
    }

    pub(crate) async fn verify(&self) -> Report {
        verify::run(&self.hot, &self.ledger, &layout(&self.settings), |_| {})
            .await
            .unwrap()
    }

    /// Runs the program on these stores; gives its exit code and what it printed.
    pub(crate) async fn program(&self, words: &[&str]) -> (Option<i32>, String) {
        let variables = self.variables();
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let run = move || {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let output = crate::serve::run(&words, &variables);
            let output = output.wait_with_output().unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            let errors = String::from_utf8(output.stderr).unwrap();
            (output.status.code(), text + &errors)
        };
        tokio::task::spawn_blocking(run).await.unwrap()
    }

    /// The environment of a program on these stores.
    pub(crate) fn variables(&self) -> Vec<(String, String)> {
        let settings = &self.settings;
        let url = |url: &Option<Secret>| url.as_ref().unwrap().expose().to_owned();
        let mut variables = vec![
            ("THUMBD_REDIS_URL", url(&settings.redis_url)),
            ("THUMBD_DATABASE_URL", url(&settings.database_url)),
            ("THUMBD_KEY_PREFIX", settings.key_prefix.clone()),
            ("THUMBD_PARTITIONS", settings.partitions.to_string()),
            ("THUMBD_SLICE_SECONDS", settings.slice_seconds.to_string()),
            ("THUMBD_FLUSH_ROWS_MAX", settings.flush_rows_max.to_string()),
        ];
        let mirrors = settings.kinds.mirrors().map(|(kind, mirror)| {
            let (table, id) = (mirror.table(), mirror.id_column());
            format!("{kind}:{table}/{id}/{}", mirror.count_column())
        });
        let kinds = mirrors.collect::<Vec<_>>().join(",");
        if !kinds.is_empty() {
            variables.push(("THUMBD_KINDS", kinds));
        }
        let named = variables.into_iter();
        named
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }

    /// The end of a test: Redis and MySQL agree now, and after a flush nothing is left over.
    pub(crate) async fn check(&self) {
        let report = self.verify().await;
        assert_eq!(report.differences, []);
        self.flush().await;
        let report = self.verify().await;
        assert_eq!(report.differences, []);
        for partition in 0..self.settings.partitions {
            assert_eq!(self.peek(partition).await.live, []);
        }
    }
}

pub(crate) fn key(settings: &Settings, partition: u16, rest: &str) -> String {
    format!("{}:v1:{{{partition}}}:{rest}", settings.key_prefix)
}

pub(crate) async fn command<T: FromRedisValue>(
    redis: &MultiplexedConnection,
    words: &[impl ToRedisArgs],
) -> T {
    let mut command = redis::Cmd::new();
    for word in words {
        command.arg(word);
    }
    command.query_async(&mut redis.clone()).await.unwrap()
}

/// A partition's first generation, under an empty MySQL.
pub(crate) async fn initialise(hot: &Hot, partition: u16) -> String {
    let generation = new_generation();
    let reset = Reset {
        seen: &hot.peek(partition).await.unwrap(),
        generation: &generation,
        last: thumbd::domain::SliceId(0),
        max_version: thumbd::domain::Version(0),
        landed: None,
    };
    assert!(hot.reset(partition, reset).await.unwrap());
    generation
}

/// A connection without the use cases, and without MySQL.
pub(crate) async fn hot(settings: &Settings) -> Hot {
    connect_hot(settings).await.unwrap()
}

pub(crate) fn op(user: &str, target: &str, thumb: bool) -> Operation {
    Operation {
        user: self::user(user),
        target: self::target(target),
        action: if thumb {
            Action::Thumb
        } else {
            Action::Unthumb
        },
    }
}

pub(crate) fn user(text: &str) -> UserId {
    UserId::parse(text).unwrap()
}

pub(crate) fn target(text: &str) -> Target {
    Target::parse(text).unwrap()
}

/// The outcome of an operation in short.
pub(crate) fn outcome(changed: bool, count: i64) -> Outcome {
    Outcome {
        changed,
        count: Some(count),
    }
}
