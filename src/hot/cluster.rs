//! A Redis Cluster: which master has a key, and what it means when one says that another has it.
//!
//! The client's own cluster connection sends a command again when its connection breaks. A like whose outcome is unknown must not
//! be sent again, because somebody's unlike may have come in between. So only what a server has refused is repeated here.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use redis::{Arg, Cmd, ConnectionInfo, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};
use tokio::sync::Mutex;

use super::address::{at, place};
use super::link::{Link, Waits};
use super::trouble::Trouble;
use crate::limits::{REDIRECTS_MAX, TOPOLOGY_PAUSE, TRY_AGAIN_PAUSE};

/// Slots of a cluster: a constant of its protocol.
const SLOTS: usize = 16_384;

/// Clones share connections and what is known of the cluster.
#[derive(Clone)]
pub(super) struct Cluster(Arc<Inner>);

struct Inner {
    /// How to speak to any node.
    like: ConnectionInfo,
    waits: Waits,
    seeds: Vec<Arc<Node>>,
    map: RwLock<Map>,
    /// When the cluster was asked last.
    asked: Mutex<Option<Instant>>,
    trouble: Arc<Trouble>,
}

/// A server of the cluster.
pub(super) struct Node {
    /// `host:port`.
    pub(super) name: String,
    pub(super) link: Link,
}

struct Map {
    owners: Vec<Option<Arc<Node>>>,
    /// Everybody who owns a slot or was named by a redirect since.
    nodes: HashMap<String, Arc<Node>>,
}

impl Cluster {
    /// Asks the seeds for the cluster; fails if none can tell.
    pub(super) async fn connect(
        seeds: &[ConnectionInfo],
        waits: Waits,
        trouble: Arc<Trouble>,
    ) -> RedisResult<Self> {
        let named = |info: &ConnectionInfo| {
            let (host, port) = place(info).ok_or(unusable("a seed is no TCP address"))?;
            let link = Link::lazy(info.clone(), waits)?;
            let name = name(host, port);
            Ok::<_, RedisError>(Arc::new(Node { name, link }))
        };
        let like = seeds.first().ok_or(unusable("there is no seed"))?.clone();
        let cluster = Self(Arc::new(Inner {
            like,
            waits,
            seeds: seeds.iter().map(named).collect::<RedisResult<_>>()?,
            map: RwLock::new(Map {
                owners: vec![None; SLOTS],
                nodes: HashMap::new(),
            }),
            asked: Mutex::default(),
            trouble,
        }));
        cluster.refresh().await?;
        Ok(cluster)
    }

    /// Sends a command to the master of its key, and follows those who say that another has it. Nothing is sent again whose
    /// outcome is unknown.
    pub(super) async fn send(&self, command: &Cmd) -> RedisResult<Value> {
        let slot = slot(key(command));
        let mut told = None;
        for turn in 0.. {
            let (node, result) = match told.take() {
                Some(node) => {
                    let node: Arc<Node> = node;
                    let result = node.link.send_asking(command).await;
                    (node, result)
                }
                None => {
                    let node = self.owner(slot).await?;
                    let result = node.link.send(command).await;
                    (node, result)
                }
            };
            let error = match result {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            match error.kind() {
                ErrorKind::Server(ServerErrorKind::Moved) => {
                    // Somebody else answers for the slot now, and may know less.
                    self.0.trouble.note();
                    self.refresh_soon();
                    if turn == REDIRECTS_MAX {
                        return Err(error);
                    }
                    let next = self.redirected(&error, &node)?;
                    self.write().owners[usize::from(slot)] = Some(next);
                }
                ErrorKind::Server(ServerErrorKind::Ask) if turn < REDIRECTS_MAX => {
                    told = Some(self.redirected(&error, &node)?);
                }
                // Some of the keys are here, some there, until the slot has moved whole.
                ErrorKind::Server(ServerErrorKind::TryAgain) if turn < REDIRECTS_MAX => {
                    tokio::time::sleep(TRY_AGAIN_PAUSE).await;
                }
                ErrorKind::Server(ServerErrorKind::ClusterDown) | ErrorKind::Io => {
                    self.refresh_soon();
                    return Err(error);
                }
                _ => return Err(error),
            }
        }
        Err(unusable("redirected too often"))
    }

    /// All masters that own slots, as the cluster says now.
    pub(super) async fn masters(&self) -> RedisResult<Vec<Arc<Node>>> {
        self.refresh().await?;
        let map = self.read();
        let owners = map.owners.iter().flatten();
        let masters: BTreeMap<_, _> = owners.map(|node| (&node.name, node)).collect();
        Ok(masters.into_values().cloned().collect())
    }

    /// Who has a key, as far as it is known.
    pub(super) fn owner_name(&self, key: &[u8]) -> Option<String> {
        let owner = &self.read().owners[usize::from(slot(key))];
        owner.as_ref().map(|node| node.name.clone())
    }

    async fn owner(&self, slot: u16) -> RedisResult<Arc<Node>> {
        let owner = || self.read().owners[usize::from(slot)].clone();
        if let Some(node) = owner() {
            return Ok(node);
        }
        self.refresh().await?;
        owner().ok_or_else(|| unusable("no master of the cluster owns the slot"))
    }

    fn redirected(&self, error: &RedisError, by: &Node) -> RedisResult<Arc<Node>> {
        let strange = || unusable("a redirect names no server");
        let (to, _) = error.redirect_node().ok_or_else(strange)?;
        let (host, port) = to.rsplit_once(':').ok_or_else(strange)?;
        let port = port.parse().map_err(|_| strange())?;
        // A server that does not know its own name means the one by which it was reached.
        let host = if host.is_empty() { by.host() } else { host };
        self.node(&mut self.write(), host, port)
    }

    fn node(&self, map: &mut Map, host: &str, port: u16) -> RedisResult<Arc<Node>> {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = name(host, port);
        if let Some(node) = map.nodes.get(&name) {
            return Ok(Arc::clone(node));
        }
        let link = Link::lazy(at(&self.0.like, host, port), self.0.waits)?;
        let node = Arc::new(Node {
            name: name.clone(),
            link,
        });
        map.nodes.insert(name, Arc::clone(&node));
        Ok(node)
    }

    /// Asks the cluster who owns what, without anybody's waiting for it.
    fn refresh_soon(&self) {
        // Whoever asks right now asks for all.
        if self.0.asked.try_lock().is_ok() {
            let cluster = self.clone();
            tokio::spawn(async move { cluster.refresh().await });
        }
    }

    /// Asks all known nodes who owns what, and believes the first that knows. Not more often than every `TOPOLOGY_PAUSE`.
    async fn refresh(&self) -> RedisResult<()> {
        let mut asked = self.0.asked.lock().await;
        if asked.is_some_and(|at| at.elapsed() < TOPOLOGY_PAUSE) {
            return Ok(());
        }
        let known: BTreeMap<String, Arc<Node>> = {
            let map = self.read();
            let nodes = self.0.seeds.iter().chain(map.nodes.values());
            nodes
                .map(|node| (node.name.clone(), node.clone()))
                .collect()
        };
        let mut command = redis::cmd("CLUSTER");
        command.arg("SLOTS");
        let command = &command;
        let mut answers: FuturesUnordered<_> = known
            .into_values()
            .map(|node| async move { (node.link.send(command).await, node) })
            .collect();
        let wait = tokio::time::sleep(self.0.waits.connect * 2);
        tokio::pin!(wait);
        let mut problem = unusable("no node of the cluster answers in time");
        loop {
            let answer = tokio::select! {
                answer = answers.next() => answer,
                () = &mut wait => None,
            };
            let Some((answer, node)) = answer else {
                *asked = Some(Instant::now());
                return Err(problem);
            };
            match answer.and_then(|value| self.learn(&value, &node)) {
                Ok(()) => {
                    *asked = Some(Instant::now());
                    return Ok(());
                }
                Err(error) => problem = error,
            }
        }
    }

    /// Takes over what a node says of the slots.
    fn learn(&self, slots: &Value, by: &Node) -> RedisResult<()> {
        let ranges = ranges(slots).ok_or_else(|| unusable("the slots cannot be read"))?;
        if ranges.is_empty() {
            return Err(unusable("the cluster has no slots: has it been created?"));
        }
        let mut map = self.write();
        let mut owners = vec![None; SLOTS];
        for Range {
            first,
            last,
            host,
            port,
        } in ranges
        {
            let host = if host.is_empty() { by.host() } else { &host };
            let node = self.node(&mut map, host, port)?;
            owners[first..=last].fill(Some(node));
        }
        let used: HashMap<_, _> = owners
            .iter()
            .flatten()
            .map(|node| (node.name.clone(), node.clone()))
            .collect();
        *map = Map {
            owners,
            nodes: used,
        };
        Ok(())
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Map> {
        self.0.map.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Map> {
        self.0.map.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Node {
    fn host(&self) -> &str {
        self.name.rsplit_once(':').map_or("", |(host, _)| host)
    }
}

fn name(host: &str, port: u16) -> String {
    format!("{host}:{port}")
}

/// Nothing was sent, and nothing was done.
fn unusable(why: &'static str) -> RedisError {
    RedisError::from((ErrorKind::Client, why))
}

/// Consecutive slots of one master.
struct Range {
    first: usize,
    last: usize,
    host: String,
    port: u16,
}

/// The reply to `CLUSTER SLOTS`: first and last slot, master, replicas.
fn ranges(slots: &Value) -> Option<Vec<Range>> {
    let number = |value: &Value| match value {
        Value::Int(number) => usize::try_from(*number).ok(),
        _ => None,
    };
    let Value::Array(rows) = slots else {
        return None;
    };
    let range = |row: &Value| {
        let Value::Array(row) = row else { return None };
        let [first, last, Value::Array(master), ..] = row.as_slice() else {
            return None;
        };
        let host = match master.first()? {
            Value::BulkString(host) => String::from_utf8(host.clone()).ok()?,
            Value::Nil => String::new(),
            _ => return None,
        };
        let last = number(last)?;
        Some(Range {
            first: number(first)?,
            last: (last < SLOTS).then_some(last)?,
            host,
            port: number(master.get(1)?)?.try_into().ok()?,
        })
    };
    rows.iter().map(range).collect()
}

/// The first key of a command of thumbd: of a script it stands behind text and number, else in front.
fn key(command: &Cmd) -> &[u8] {
    let mut words = command.args_iter().map(|word| match word {
        Arg::Simple(bytes) => bytes,
        _ => b"",
    });
    let script = matches!(words.next(), Some(b"EVALSHA" | b"EVAL"));
    words.nth(if script { 2 } else { 0 }).unwrap_or(b"")
}

/// The slot of a key, by the hash tag if it has one.
fn slot(key: &[u8]) -> u16 {
    let tag = || {
        let from = key.iter().position(|byte| *byte == b'{')? + 1;
        let length = key[from..].iter().position(|byte| *byte == b'}')?;
        (length > 0).then(|| &key[from..from + length])
    };
    crc16(tag().unwrap_or(key)) % SLOTS as u16
}

/// CRC-16/XMODEM, as the cluster's specification names it.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 {
                crc << 1
            } else {
                (crc << 1) ^ 0x1021
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot(b"foo"), 12_182);
        assert_eq!(slot(b"thumbd:v1:{foo}:user:a{b}c"), 12_182);
        assert_eq!(slot(b"foo{}{bar}"), crc16(b"foo{}{bar}") % 16_384);
    }

    #[test]
    fn the_key_of_a_script_stands_behind_text_and_number() {
        let mut call = redis::cmd("EVALSHA");
        call.arg("hash").arg(2).arg("k1").arg("k2").arg("v");
        assert_eq!(key(&call), b"k1");
        let mut get = redis::cmd("GET");
        get.arg("k3");
        assert_eq!(key(&get), b"k3");
    }
}
