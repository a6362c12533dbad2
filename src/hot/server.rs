//! What kind of server Redis is, and whether it can hold unflushed work.

use redis::Value;

use super::{Hot, HotError};

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

impl Hot {
    /// Asks the server what it is.
    pub async fn server_info(&self) -> Result<ServerInfo, HotError> {
        let text = match self.job_command(&redis::cmd("INFO")).await? {
            Value::BulkString(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Value::VerbatimString { text, .. } => text,
            other => return Err(super::reply::unexpected(&other)),
        };
        let field = |name: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
                .unwrap_or("")
                .trim()
                .to_owned()
        };
        Ok(ServerInfo {
            version: field("redis_version"),
            eviction_policy: field("maxmemory_policy"),
            role: field("role"),
        })
    }

    /// Asks for a sign of life.
    pub async fn ping(&self) -> Result<(), HotError> {
        self.job_command(&redis::cmd("PING")).await.map(drop)
    }
}

impl ServerInfo {
    /// Why thumbd must not work on this server, if it must not.
    pub fn problem(&self) -> Option<String> {
        let major: u32 = self.version.split('.').next()?.parse().unwrap_or(0);
        if major < 7 {
            return Some(format!(
                "redis {} is too old: scripts with flags need Redis 7.0 or Valkey",
                self.version
            ));
        }
        if self.eviction_policy.starts_with("allkeys") {
            return Some(format!(
                "maxmemory-policy is {}, which removes likes that are not in MySQL yet: set noeviction or volatile-lru",
                self.eviction_policy
            ));
        }
        if self.role != "master" {
            return Some(format!("the server is a {}, not a master", self.role));
        }
        None
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
