//! What `thumbd doctor` looks at in Redis: how the server is set up, and what the user may do there. Nothing here writes a key.

use std::collections::BTreeMap;

use redis::Value;

use super::address::Address;
use super::reply::{Reply, int, text};
use super::scripts::RIGHTS;
use super::server::field;
use super::wire::Server;
use super::{Hot, HotError, ServerInfo, keys};

/// How a server is set up, by `INFO` and `CONFIG GET`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspected {
    /// What a start looks at.
    pub server: ServerInfo,
    /// Name and version, for people.
    pub program: String,
    /// Whether it keeps an append-only file.
    pub append_only: bool,
    /// Whether its last write to the append-only file and its last snapshot succeeded.
    pub disk_ok: bool,
    /// Memory in use and most that may be, in bytes; 0 is no limit.
    pub memory: (u64, u64),
    /// Replicas that are connected.
    pub replicas: u64,
    /// How `redis-cli` finds it, without a password.
    pub redis_cli: String,
    /// Whether it was started with a file of settings, which `CONFIG REWRITE` needs.
    pub config_file: bool,
    /// `None`: the user may not ask for the configuration.
    pub config: Option<RedisConfig>,
}

/// What only `CONFIG GET` tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisConfig {
    /// `always`, `everysec` or `no`.
    pub append_fsync: String,
    /// When it writes snapshots; empty: never.
    pub save: String,
    /// Replicas without which it takes no writes.
    pub replicas_min: u64,
}

/// Commands that thumbd sends, or its scripts call, with the words behind them: M, L and F are a key of a partition, of a lease and
/// of the feed; I is that of the instances.
const COMMANDS: &[&str] = &[
    "DEL M",
    "EVAL x 1 M",
    "EVALSHA x 1 M",
    "EXISTS M",
    "EXPIRE M 1",
    "GET M",
    "HDEL M f",
    "HEXISTS M f",
    "HGET M f",
    "HGETALL M",
    "HLEN M",
    "HMGET M f",
    "HSCAN M 0",
    "HSET M f v",
    "INFO",
    "MGET M",
    "MSET M v",
    "PERSIST M",
    "PEXPIRE I 1",
    "PING",
    "RENAME M M",
    "SCAN 0",
    "SET L v",
    "SET M v",
    "TIME",
    "TTL M",
    "UNLINK M",
    "XADD F 1-0 f v",
    "XINFO STREAM F",
    "ZADD M 1 m",
    "ZCARD M",
    "ZRANGE M 0 1",
    "ZRANGEBYSCORE M 0 1",
    "ZREM M m",
    "ZSCORE M m",
];
/// What a client of a cluster, and one of sentinels, sends beside these.
const COMMANDS_CLUSTER: &[&str] = &["CLUSTER SLOTS"];
const COMMANDS_WATCHED: &[&str] = &["ROLE"];

impl Hot {
    /// Looks how the servers that may hold keys are set up.
    pub async fn inspect(&self) -> Result<Vec<Inspected>, HotError> {
        let mut all = Vec::new();
        for server in self.servers().await? {
            all.push(self.inspect_one(&server).await?);
        }
        Ok(all)
    }

    async fn inspect_one(&self, of: &Server) -> Result<Inspected, HotError> {
        let info = self.info(of, &redis::cmd("INFO")).await?;
        let number = |name| field(&info, name).parse().unwrap_or(0);
        let ok = |name| matches!(&*field(&info, name), "ok" | "");
        let server = self.server_info(of, &info);
        let program = match &*field(&info, "valkey_version") {
            "" => format!("Redis {}", server.version),
            valkey => format!("Valkey {valkey}"),
        };
        Ok(Inspected {
            server,
            program,
            append_only: field(&info, "aof_enabled") == "1",
            disk_ok: ok("aof_last_write_status") && ok("rdb_last_bgsave_status"),
            memory: (number("used_memory"), number("maxmemory")),
            replicas: number("connected_slaves"),
            redis_cli: self.redis_cli(of),
            config_file: !field(&info, "config_file").is_empty(),
            config: self.config(of).await?,
        })
    }

    fn redis_cli(&self, of: &Server) -> String {
        let watched = self.0.jobs.watched_place();
        let named = of.name().rsplit_once(':');
        let named = named.and_then(|(host, port)| Some((host, port.parse().ok()?)));
        let place = watched.as_ref().map(|(host, port)| (host.as_str(), *port));
        match Address::parse(&self.0.options.url) {
            Ok(address) => address.redis_cli(place.or(named)),
            Err(_) => "redis-cli".to_owned(),
        }
    }

    async fn config(&self, of: &Server) -> Result<Option<RedisConfig>, HotError> {
        let mut command = redis::cmd("CONFIG");
        command
            .arg("GET")
            .arg(&["appendfsync", "save", "min-replicas-to-write"]);
        let sent = async { Ok(of.send(&command).await?) };
        let pairs: Vec<Value> = match self.bounded(10, sent).await {
            Ok(Value::Array(values)) => values,
            Ok(Value::Map(pairs)) => pairs.into_iter().flat_map(|(k, v)| [k, v]).collect(),
            // It is renamed, or not for this user.
            Ok(_) | Err(HotError::Protocol(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut found = BTreeMap::new();
        let mut pairs = pairs.into_iter();
        while let (Some(name), Some(value)) = (pairs.next(), pairs.next()) {
            found.insert(text(name)?, text(value)?);
        }
        let mut take = |name| found.remove(name).unwrap_or_default();
        Ok(Some(RedisConfig {
            append_fsync: take("appendfsync"),
            save: take("save"),
            replicas_min: take("min-replicas-to-write").parse().unwrap_or(0),
        }))
    }

    /// Names of the commands that the user may not run on thumbd's keys, and that thumbd needs.
    pub async fn commands_refused(&self) -> Result<Vec<&'static str>, HotError> {
        let prefix = &self.0.options.prefix;
        let (of_partition, lease) = (self.keys(0).meta(), keys::lease(prefix, "flush"));
        let feed = keys::feed(prefix);
        let instances = keys::instances(prefix);
        let further = match Address::parse(&self.0.options.url) {
            Ok(Address::Cluster(_)) => COMMANDS_CLUSTER,
            Ok(Address::Watched { .. }) => COMMANDS_WATCHED,
            _ => &[],
        };
        let commands: Vec<&'static str> = COMMANDS.iter().chain(further).copied().collect();
        let mut call = RIGHTS.call(0);
        for command in &commands {
            let words: Vec<&str> = command.split(' ').collect();
            call.arg(words.len());
            for word in words {
                call.arg(match word {
                    "M" => &of_partition,
                    "L" => &lease,
                    "F" => &feed,
                    "I" => &instances,
                    other => other,
                });
            }
        }
        let mut refused = Vec::new();
        let mut reply = Reply::new(self.job(&RIGHTS, &call).await?)?;
        while reply.left() > 0 {
            let place = int(&reply.next()?)?;
            let command = usize::try_from(place - 1)
                .ok()
                .and_then(|at| commands.get(at));
            let name = command.and_then(|command| command.split(' ').next());
            refused.extend(name);
        }
        refused.dedup();
        Ok(refused)
    }

    /// The server's clock, Unix µs.
    pub async fn time_us(&self) -> Result<u64, HotError> {
        let mut reply = Reply::new(self.job_command(&redis::cmd("TIME")).await?)?;
        let mut number = || {
            let text = reply.text()?;
            let bad = |_| HotError::Protocol("a time is not a number".into());
            text.parse::<u64>().map_err(bad)
        };
        Ok(number()? * 1_000_000 + number()?)
    }

    /// The user that the address names, `default` if none.
    pub fn user(&self) -> String {
        let user = Address::parse(&self.0.options.url)
            .ok()
            .and_then(|address| address.user());
        user.unwrap_or_else(|| "default".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::hot::scripts::TEXTS;

    /// What stands in quotes behind `mark` in a text.
    fn behind<'a>(mark: &'a str, text: &'a str) -> impl Iterator<Item = &'a str> {
        let quoted = |rest: &'a str| rest.split(['\'', '"']).next().unwrap_or_default();
        text.split(mark).skip(1).map(quoted)
    }

    #[test]
    fn the_commands_are_those_of_the_scripts_and_of_this_module() {
        let mut used = BTreeSet::from(["EVAL", "EVALSHA"]);
        for (_, text) in TEXTS {
            used.extend(behind("call('", text));
        }
        let mut files = Vec::new();
        for file in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src/hot")).unwrap() {
            files.push(std::fs::read_to_string(file.unwrap().path()).unwrap());
        }
        for text in &files {
            // Spelt so that it does not find itself.
            used.extend(behind(concat!("redis::", "cmd(\""), text));
        }
        // Only the doctor's, which goes without; and what is asked of sentinels.
        assert!(used.remove("CONFIG") && used.remove("SENTINEL"));
        let known = [COMMANDS, COMMANDS_CLUSTER, COMMANDS_WATCHED].concat();
        let known = known.iter().filter_map(|command| command.split(' ').next());
        assert_eq!(used, known.collect());
    }
}
