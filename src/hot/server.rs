//! What kind of server Redis is, and whether it can hold unflushed work.

use futures_util::future::join_all;
use redis::Value;

use super::wire::Server;
use super::{Hot, HotError};

/// What `INFO` says of a server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerInfo {
    /// `host:port` of a master of a cluster, else empty.
    pub name: String,
    /// `standalone`, `cluster` or `sentinel`.
    pub mode: String,
    /// What `redis_url` says that it is.
    pub mode_wanted: String,
    /// Version of Redis that it is compatible with.
    pub version: String,
    /// What it does when memory is full.
    pub eviction_policy: String,
    /// `master` or `slave`.
    pub role: String,
}

/// Whether a server that answers takes writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writes {
    /// It does.
    Taken,
    /// It does not, for this reason.
    Refused(&'static str),
}

/// Life of the key that a probe writes.
const PROBE_MS: u64 = 1000;

impl Hot {
    /// Asks all servers that may hold keys what they are.
    pub async fn server_infos(&self) -> Result<Vec<ServerInfo>, HotError> {
        let mut infos = Vec::new();
        for server in self.servers().await? {
            let text = self.info(&server, &redis::cmd("INFO")).await?;
            infos.push(self.server_info(&server, &text));
        }
        Ok(infos)
    }

    /// What a server is, by what it says of itself.
    pub(super) fn server_info(&self, server: &Server, info: &str) -> ServerInfo {
        ServerInfo {
            name: server.name().to_owned(),
            mode: field(info, "redis_mode"),
            mode_wanted: self.0.jobs.mode().to_owned(),
            version: field(info, "redis_version"),
            eviction_policy: field(info, "maxmemory_policy"),
            role: field(info, "role"),
        }
    }

    /// Which runs of which servers these are: each start has another id, and so has a replica that was promoted.
    pub async fn run_id(&self) -> Result<String, HotError> {
        // The connection of requests, too, must hear of another primary.
        let _ = self
            .bounded(1, async { Ok(self.0.requests.servers().await?) })
            .await;
        let mut ids = Vec::new();
        for server in self.servers().await? {
            ids.push(self.run_of(&server).await?.0);
        }
        Ok(ids.join(" "))
    }

    /// All servers that may hold keys.
    pub(super) async fn servers(&self) -> Result<Vec<Server>, HotError> {
        self.bounded(10, async { Ok(self.0.jobs.servers().await?) })
            .await
    }

    /// Which run of a server this is, and its role.
    pub(super) async fn run_of(&self, server: &Server) -> Result<(String, String), HotError> {
        let mut command = redis::cmd("INFO");
        command.arg("server").arg("replication");
        let text = self.info(server, &command).await?;
        Ok((field(&text, "run_id"), field(&text, "role")))
    }

    pub(super) async fn info(
        &self,
        server: &Server,
        command: &redis::Cmd,
    ) -> Result<String, HotError> {
        let sent = async { Ok(server.send(command).await?) };
        match self.bounded(10, sent).await? {
            Value::BulkString(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Value::VerbatimString { text, .. } => Ok(text),
            other => Err(super::reply::unexpected(&other)),
        }
    }

    /// Tries a write, for nothing that INFO says tells all reasons to refuse one; an error if there is no answer. With a cluster,
    /// on every master that has a partition: while one of them takes writes, most users can be served.
    pub async fn writes(&self) -> Result<Writes, HotError> {
        let all = self.0.partitions.iter().map(|part| part.keys.probe());
        let probes = self.0.requests.spread(all);
        let mut worst = Ok(Writes::Taken);
        for outcome in join_all(probes.iter().map(|key| self.probe(key))).await {
            match outcome {
                Ok(Writes::Taken) => return Ok(Writes::Taken),
                other => worst = other,
            }
        }
        worst
    }

    async fn probe(&self, key: &str) -> Result<Writes, HotError> {
        let mut command = redis::cmd("SET");
        command.arg(key).arg("").arg("PX").arg(PROBE_MS);
        // By the connection of requests: the other one may be busy with a long reply.
        let set = self.bounded(1, async { Ok(self.0.requests.send(&command).await?) });
        match set.await {
            Ok(_) => Ok(Writes::Taken),
            Err(HotError::Full) => Ok(Writes::Refused("redis has no memory left")),
            Err(HotError::Refused(error)) => match error.code() {
                Some("MISCONF") => Ok(Writes::Refused("redis cannot write to its disk")),
                Some("READONLY") => Ok(Writes::Refused("redis is a read-only replica")),
                Some("NOREPLICAS") => Ok(Writes::Refused("redis has too few replicas")),
                Some("CLUSTERDOWN") => Ok(Writes::Refused("the redis cluster is down")),
                _ => Err(HotError::Refused(error)),
            },
            Err(error) => Err(error),
        }
    }
}

/// A field of what `INFO` says; empty if there is none.
pub(super) fn field(info: &str, name: &str) -> String {
    info.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .unwrap_or("")
        .trim()
        .to_owned()
}

impl ServerInfo {
    /// Why thumbd must not work on this server, if it must not.
    pub fn problem(&self) -> Option<String> {
        let problem = self
            .mode_problem()
            .or_else(|| self.version_problem())
            .or_else(|| self.eviction_problem())
            .or_else(|| self.role_problem())?;
        if self.name.is_empty() {
            return Some(problem);
        }
        Some(format!("{}: {problem}", self.name))
    }

    /// Why this is another sort of server than the settings say.
    pub fn mode_problem(&self) -> Option<String> {
        // Servers that only speak the protocol may name no mode.
        if self.mode.is_empty() || self.mode == self.mode_wanted {
            return None;
        }
        let schemes = match self.mode.as_str() {
            "cluster" => "redis+cluster:// or rediss+cluster://",
            "sentinel" => "redis+sentinel://HOST:PORT,…/NAME or rediss+sentinel://",
            _ => "redis:// or rediss://",
        };
        Some(format!(
            "the server's mode is {}: redis_url must begin with {schemes}",
            self.mode
        ))
    }

    /// Why this version will not do.
    pub fn version_problem(&self) -> Option<String> {
        let major = self.version.split('.').next();
        let major: u32 = major.and_then(|major| major.parse().ok()).unwrap_or(0);
        (major < 7).then(|| {
            format!(
                "redis {} is too old: scripts with flags need Redis 7.0 or Valkey",
                self.version
            )
        })
    }

    /// Why what it does when memory is full will not do.
    pub fn eviction_problem(&self) -> Option<String> {
        self.eviction_policy.starts_with("allkeys").then(|| {
            format!(
                "maxmemory-policy is {}, which removes likes that are not in MySQL yet: set noeviction or volatile-lru",
                self.eviction_policy
            )
        })
    }

    /// Why its role will not do.
    pub fn role_problem(&self) -> Option<String> {
        (self.role != "master").then(|| format!("the server is a {}, not a master", self.role))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_that_lose_likes_are_refused() {
        let good = ServerInfo {
            name: String::new(),
            mode: "standalone".into(),
            mode_wanted: "standalone".into(),
            version: "7.0.15".into(),
            eviction_policy: "noeviction".into(),
            role: "master".into(),
        };
        assert_eq!(good.problem(), None);
        let with = |change: fn(&mut ServerInfo)| {
            let mut info = good.clone();
            change(&mut info);
            info.problem()
        };
        assert!(with(|info| info.version = "6.2.1".into()).is_some());
        assert!(with(|info| info.eviction_policy = "allkeys-lru".into()).is_some());
        assert!(with(|info| info.role = "slave".into()).is_some());
        assert!(with(|info| info.eviction_policy = "volatile-lfu".into()).is_none());
        let problem = with(|info| {
            info.mode = "cluster".into();
            info.name = "a:1".into();
        });
        assert_eq!(
            problem.unwrap(),
            "a:1: the server's mode is cluster: redis_url must begin with redis+cluster:// or rediss+cluster://"
        );
    }
}
