//! A real Redis Cluster of processes on loopback: built by hand, one node killed or frozen at a time, slots moved.

use std::net::TcpListener;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{Client, Cmd, FromRedisValue, RedisResult};
use thumbd::config::Settings;
use thumbd::dev::{RedisOptions, RedisServer};

use crate::redis_faults::Own;
use crate::servers::{TestEnv, env, free_port};
use crate::stand::key;

/// Far above what anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);
const SLOTS: usize = 16_384;
/// The nodes speak to each other there; servers for clients take theirs from below.
const BUS_PORTS: std::ops::Range<u16> = 10_000..20_000;

/// Masters first, then as many replicas, in the same order at the start.
pub(crate) struct Cluster {
    nodes: Vec<Mutex<Own>>,
    /// Where the nodes speak without TLS.
    ports: Vec<u16>,
    masters: usize,
}

impl Cluster {
    /// Starts three masters, with a replica each or without, and waits until the cluster serves. A master that does not answer
    /// for `node_timeout` is taken for dead.
    pub(crate) async fn start(replicas: bool, node_timeout: Duration) -> Self {
        Self::begin(replicas, node_timeout, |_| {}).await
    }

    /// Three masters that go with this process, and their directories with them.
    pub(crate) async fn lasting() -> Self {
        Self::begin(false, Duration::from_secs(15), |options| {
            options.ephemeral = true;
        })
        .await
    }

    /// Three masters that speak TLS to each other and to whoever comes over the addresses that they announce.
    pub(crate) async fn over_tls(settings: Vec<String>) -> Self {
        Self::begin(false, Duration::from_secs(15), move |options| {
            let port = free_port().to_string();
            let words = ["--tls-port", &port, "--tls-cluster", "yes"].map(str::to_owned);
            options.extra_args.extend(words);
            options.extra_args.extend(settings.iter().cloned());
        })
        .await
    }

    async fn begin(
        replicas: bool,
        node_timeout: Duration,
        change: impl Fn(&mut RedisOptions) + Clone + Send + 'static,
    ) -> Self {
        let masters = 3;
        let count = if replicas { 2 * masters } else { masters };
        let start = move || Mutex::new(node(node_timeout, change));
        let starting = (0..count).map(|_| tokio::task::spawn_blocking(start.clone()));
        let mut nodes = Vec::new();
        for node in futures_util::future::join_all(starting).await {
            nodes.push(node.unwrap());
        }
        let port = |node: &Mutex<Own>| node.lock().unwrap().server.port().unwrap();
        let cluster = Self {
            ports: nodes.iter().map(port).collect(),
            nodes,
            masters,
        };
        cluster.build().await;
        cluster
    }

    async fn build(&self) {
        for n in 0..self.nodes.len() {
            let epoch = (n + 1).to_string();
            self.ask::<()>(n, &["CLUSTER", "SET-CONFIG-EPOCH", &epoch])
                .await;
            if n < self.masters {
                let first = (SLOTS * n / self.masters).to_string();
                let last = (SLOTS * (n + 1) / self.masters - 1).to_string();
                self.ask::<()>(n, &["CLUSTER", "ADDSLOTSRANGE", &first, &last])
                    .await;
            }
        }
        for n in 1..self.nodes.len() {
            let (port, bus) = {
                let node = self.node(n);
                (self.ports[n].to_string(), bus_port(&node.server))
            };
            self.ask::<()>(0, &["CLUSTER", "MEET", "127.0.0.1", &port, &bus])
                .await;
        }
        self.until("all nodes know each other", async |n| {
            let known: String = self.ask(n, &["CLUSTER", "NODES"]).await;
            known.lines().count() == self.nodes.len() && !known.contains("handshake")
        })
        .await;
        for n in self.masters..self.nodes.len() {
            let master: String = self.ask(n - self.masters, &["CLUSTER", "MYID"]).await;
            self.ask::<()>(n, &["CLUSTER", "REPLICATE", &master]).await;
        }
        self.settled().await;
    }

    /// Waits until every node that runs sees a whole cluster, and each replica has its master's data.
    pub(crate) async fn settled(&self) {
        self.until("the cluster is whole", async |n| {
            if !self.runs(n) {
                return true;
            }
            let state: RedisResult<String> = self.try_ask(n, &["CLUSTER", "INFO"]).await;
            let role: RedisResult<String> = self.try_ask(n, &["INFO", "replication"]).await;
            let (Ok(state), Ok(role)) = (state, role) else {
                return false;
            };
            state.contains("cluster_state:ok")
                && (role.contains("role:master") || role.contains("master_link_status:up"))
        })
        .await;
    }

    async fn until(&self, what: &str, holds: impl AsyncFn(usize) -> bool) {
        let begun = Instant::now();
        for n in 0..self.nodes.len() {
            while !holds(n).await {
                assert!(begun.elapsed() < PATIENCE, "not in time: {what}");
                tokio::time::sleep(POLL).await;
            }
        }
    }

    /// Where thumbd finds it: all nodes are seeds.
    pub(crate) fn url(&self) -> String {
        let seeds: Vec<_> = self.ports.iter().map(|port| seed(*port)).collect();
        format!("redis+cluster://{}", seeds.join(","))
    }

    /// The same over TLS.
    pub(crate) async fn tls_url(&self) -> String {
        let mut seeds = Vec::new();
        for n in 0..self.nodes.len() {
            let found: Vec<String> = self.ask(n, &["CONFIG", "GET", "tls-port"]).await;
            seeds.push(seed(found[1].parse().unwrap()));
        }
        format!("rediss+cluster://{}", seeds.join(","))
    }

    /// An environment on it.
    pub(crate) async fn env(&self) -> TestEnv {
        TestEnv {
            redis_url: self.url(),
            ..env().await
        }
    }

    pub(crate) fn node(&self, n: usize) -> MutexGuard<'_, Own> {
        self.nodes[n].lock().unwrap()
    }

    pub(crate) fn port(&self, n: usize) -> u16 {
        self.ports[n]
    }

    pub(crate) fn count(&self) -> usize {
        self.nodes.len()
    }

    fn runs(&self, n: usize) -> bool {
        self.node(n).server.check().is_ok()
    }

    /// Waits until some node other than `old` is master of a partition.
    pub(crate) async fn failed_over(&self, settings: &Settings, partition: u16, old: usize) {
        let begun = Instant::now();
        while self.owner(settings, partition).await == old {
            assert!(begun.elapsed() < PATIENCE, "no failover");
            tokio::time::sleep(POLL).await;
        }
    }

    pub(crate) fn kill(&self, n: usize) {
        self.node(n).server.kill().unwrap();
    }

    pub(crate) fn restart(&self, n: usize) {
        self.node(n).server.restart().unwrap();
    }

    /// What a node answers, whether the key is its own or not.
    pub(crate) async fn try_ask<T: FromRedisValue>(
        &self,
        n: usize,
        words: &[&str],
    ) -> RedisResult<T> {
        let client = Client::open(format!("redis://{}", seed(self.ports[n]))).unwrap();
        let mut connection: MultiplexedConnection =
            client.get_multiplexed_async_connection().await?;
        let mut command = Cmd::new();
        for word in words {
            command.arg(word);
        }
        command.query_async(&mut connection).await
    }

    pub(crate) async fn ask<T: FromRedisValue>(&self, n: usize, words: &[&str]) -> T {
        self.try_ask(n, words).await.unwrap()
    }

    /// The node that is master of a partition now.
    pub(crate) async fn owner(&self, settings: &Settings, partition: u16) -> usize {
        let meta = key(settings, partition, "meta");
        let begun = Instant::now();
        loop {
            for n in 0..self.nodes.len() {
                let has: RedisResult<i64> = self.try_ask(n, &["EXISTS", &meta]).await;
                if has.is_ok() {
                    return n;
                }
            }
            assert!(begun.elapsed() < PATIENCE, "nobody has {meta}");
            tokio::time::sleep(POLL).await;
        }
    }

    /// Runs a command on the master of a partition, behind the scripts' back.
    pub(crate) async fn command<T: FromRedisValue>(
        &self,
        settings: &Settings,
        partition: u16,
        words: &[&str],
    ) -> T {
        let owner = self.owner(settings, partition).await;
        self.ask(owner, words).await
    }
}

/// Servers of which none is part of a cluster yet.
fn node(node_timeout: Duration, change: impl Fn(&mut RedisOptions)) -> Own {
    let listener = BUS_PORTS
        .cycle()
        .skip(rand::random_range(0..BUS_PORTS.len()))
        .take(BUS_PORTS.len())
        .find_map(|port| TcpListener::bind(("127.0.0.1", port)).ok())
        .unwrap();
    let bus = listener.local_addr().unwrap().port();
    drop(listener);
    Own::start(|options| {
        options.tcp = true;
        options.extra_args = format!(
            "--cluster-enabled yes --cluster-config-file nodes.conf --cluster-port {bus} \
             --cluster-node-timeout {} --cluster-require-full-coverage no \
             --cluster-replica-validity-factor 0 --repl-diskless-sync-delay 0",
            node_timeout.as_millis()
        )
        .split(' ')
        .map(str::to_owned)
        .collect();
        change(options);
    })
}

fn bus_port(server: &RedisServer) -> String {
    // It stands in the file that the node keeps of itself: host:port@bus.
    let file = std::fs::read_to_string(server.dir().join("data/nodes.conf")).unwrap();
    let (_, rest) = file.split_once('@').unwrap();
    rest.chars().take_while(char::is_ascii_digit).collect()
}

fn seed(port: u16) -> String {
    format!("127.0.0.1:{port}")
}
