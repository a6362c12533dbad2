//! Real sentinels and the servers that they watch: a primary with two replicas, on loopback.

use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{Client, Cmd, FromRedisValue, RedisResult};
use tempfile::TempDir;

use crate::redis_faults::Own;
use crate::servers::{TestEnv, env, free_port, redis_program};

const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);
const SENTINELS: usize = 3;
/// The server goes when the other end of the pipe closes, whatever ends that one.
const GUARD: &str = r#""$@" & server=$!; read -r _; kill -s KILL "$server""#;

/// What watches, and what is watched; the first server is the primary at first.
pub(crate) struct Watched {
    servers: Vec<Mutex<Own>>,
    ports: Vec<u16>,
    sentinels: Vec<Sentinel>,
}

/// A sentinel; it is killed when it is dropped.
pub(crate) struct Sentinel {
    guard: Child,
    port: u16,
    _dir: TempDir,
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
    }
}

impl Sentinel {
    /// One that calls what it watches "main", and takes it for dead when `quorum` of them do. `more` are further lines of its file,
    /// in which PORT stands for the port.
    pub(crate) fn start(primary: u16, quorum: usize, more: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let port = free_port();
        let file = dir.path().join("sentinel.conf");
        let text = format!(
            "bind 127.0.0.1\ndir {}\nsentinel monitor main 127.0.0.1 {primary} {quorum}\n\
             sentinel down-after-milliseconds main 1000\nsentinel failover-timeout main 5000\n{}\n",
            dir.path().display(),
            more.replace("PORT", &port.to_string())
        );
        std::fs::write(&file, text).unwrap();
        let guard = Command::new("sh")
            .args(["-c", GUARD, "guard"])
            .arg(redis_program())
            .arg(file)
            .arg("--sentinel")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self {
            guard,
            port,
            _dir: dir,
        }
    }
}

impl Sentinel {
    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

impl Watched {
    pub(crate) async fn start() -> Self {
        let server = |of: Option<u16>| {
            Own::start(|options| {
                options.tcp = true;
                let mut words = "--repl-diskless-sync-delay 0".to_owned();
                if let Some(port) = of {
                    words += &format!(" --replicaof 127.0.0.1 {port}");
                }
                options.extra_args = words.split(' ').map(str::to_owned).collect();
            })
        };
        let primary = server(None);
        let port = primary.server.port().unwrap();
        let servers = [primary, server(Some(port)), server(Some(port))];
        let ports = servers.iter().map(|own| own.server.port().unwrap());
        let watched = Self {
            ports: ports.collect(),
            servers: servers.map(Mutex::new).into(),
            sentinels: (0..SENTINELS)
                .map(|_| Sentinel::start(port, 2, "port PORT"))
                .collect(),
        };
        watched.settled().await;
        watched
    }

    /// Waits until all sentinels know all, and both replicas have the primary's data.
    pub(crate) async fn settled(&self) {
        for sentinel in &self.sentinels {
            let known = [
                ("num-slaves", "2"),
                ("num-other-sentinels", "2"),
                ("flags", "master"),
            ];
            self.until("the sentinels know all", async || {
                let words = ["SENTINEL", "MASTER", "main"];
                let fields: RedisResult<Vec<String>> = ask(sentinel.port, &words).await;
                let fields = fields.unwrap_or_default();
                let has = |(name, value): &(&str, &str)| {
                    fields
                        .chunks(2)
                        .any(|pair| pair[0] == *name && pair[1] == *value)
                };
                known.iter().all(has)
            })
            .await;
        }
        self.until("the replicas have all", async || {
            let mut up = 0;
            for port in &self.ports {
                let text: RedisResult<String> = ask(*port, &["INFO", "replication"]).await;
                up += usize::from(text.is_ok_and(|text| text.contains("master_link_status:up")));
            }
            up == self.ports.len() - 1
        })
        .await;
    }

    async fn until(&self, what: &str, holds: impl AsyncFn() -> bool) {
        let begun = Instant::now();
        while !holds().await {
            assert!(begun.elapsed() < PATIENCE, "not in time: {what}");
            tokio::time::sleep(POLL).await;
        }
    }

    pub(crate) fn url(&self) -> String {
        let places = self.sentinels.iter();
        let places: Vec<_> = places
            .map(|one| format!("127.0.0.1:{}", one.port))
            .collect();
        format!("redis+sentinel://{}/main", places.join(","))
    }

    pub(crate) async fn env(&self) -> TestEnv {
        TestEnv {
            redis_url: self.url(),
            ..env().await
        }
    }

    pub(crate) fn server(&self, n: usize) -> MutexGuard<'_, Own> {
        self.servers[n].lock().unwrap()
    }

    /// What a server answers.
    pub(crate) async fn ask<T: FromRedisValue>(&self, n: usize, words: &[&str]) -> T {
        ask(self.ports[n], words).await.unwrap()
    }

    /// Has a sentinel swap the primary, though it is well.
    pub(crate) async fn swap(&self) {
        self.until("a sentinel begins a failover", async || {
            let words = ["SENTINEL", "FAILOVER", "main"];
            ask::<()>(self.sentinels[0].port, &words).await.is_ok()
        })
        .await;
    }

    /// Waits until most sentinels name a primary other than this one, and it says so itself.
    pub(crate) async fn another_than(&self, old: usize) {
        self.until("another primary", async || {
            let mut named = 0;
            for sentinel in &self.sentinels {
                let words = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main"];
                let place: RedisResult<(String, u16)> = ask(sentinel.port, &words).await;
                if let Ok((_, port)) = place
                    && port != self.ports[old]
                {
                    let role: RedisResult<String> = ask(port, &["INFO", "replication"]).await;
                    named += usize::from(role.is_ok_and(|text| text.contains("role:master")));
                }
            }
            2 * named > SENTINELS
        })
        .await;
    }

    /// Waits until a server is a replica that has all.
    pub(crate) async fn follows(&self, n: usize) {
        self.until("it follows", async || {
            let text: RedisResult<String> = ask(self.ports[n], &["INFO", "replication"]).await;
            text.is_ok_and(|text| text.contains("master_link_status:up"))
        })
        .await;
    }
}

async fn ask<T: FromRedisValue>(port: u16, words: &[&str]) -> RedisResult<T> {
    let client = Client::open(format!("redis://127.0.0.1:{port}"))?;
    let mut connection: MultiplexedConnection = client.get_multiplexed_async_connection().await?;
    let mut command = Cmd::new();
    for word in words {
        command.arg(word);
    }
    command.query_async(&mut connection).await
}
