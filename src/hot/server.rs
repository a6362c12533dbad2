//! What kind of server Redis is, and whether it can hold unflushed work.

use redis::Value;

use super::{Hot, HotError, keys};

/// What `INFO` says of a server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerInfo {
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
    /// Asks the server what it is.
    pub async fn server_info(&self) -> Result<ServerInfo, HotError> {
        Ok(ServerInfo::of(&self.info(&redis::cmd("INFO")).await?))
    }

    /// Which run of the server this is: each start has another id.
    pub async fn run_id(&self) -> Result<String, HotError> {
        let mut command = redis::cmd("INFO");
        command.arg("server");
        Ok(field(&self.info(&command).await?, "run_id"))
    }

    pub(super) async fn info(&self, command: &redis::Cmd) -> Result<String, HotError> {
        match self.job_command(command).await? {
            Value::BulkString(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Value::VerbatimString { text, .. } => Ok(text),
            other => Err(super::reply::unexpected(&other)),
        }
    }

    /// Tries a write, for nothing that INFO says tells all reasons to refuse one; an error if there is no answer.
    pub async fn writes(&self) -> Result<Writes, HotError> {
        let mut command = redis::cmd("SET");
        command
            .arg(keys::probe(&self.0.options.prefix))
            .arg("")
            .arg("PX")
            .arg(PROBE_MS);
        // By the connection of requests: the other one may be busy with a long reply.
        let set = self.bounded(1, async { Ok(self.0.requests.send(&command).await?) });
        match set.await {
            Ok(_) => Ok(Writes::Taken),
            Err(HotError::Full) => Ok(Writes::Refused("redis has no memory left")),
            Err(HotError::Refused(error)) => match error.code() {
                Some("MISCONF") => Ok(Writes::Refused("redis cannot write to its disk")),
                Some("READONLY") => Ok(Writes::Refused("redis is a read-only replica")),
                Some("NOREPLICAS") => Ok(Writes::Refused("redis has too few replicas")),
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
    pub(super) fn of(info: &str) -> Self {
        Self {
            version: field(info, "redis_version"),
            eviction_policy: field(info, "maxmemory_policy"),
            role: field(info, "role"),
        }
    }

    /// Why thumbd must not work on this server, if it must not.
    pub fn problem(&self) -> Option<String> {
        self.version_problem()
            .or_else(|| self.eviction_problem())
            .or_else(|| self.role_problem())
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
    }
}
