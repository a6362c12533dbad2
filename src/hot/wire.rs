//! The way to Redis, whatever stands behind it: one server, a cluster, or a primary that sentinels watch.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, RedisError, RedisResult, Value};

use super::address::Address;
use super::cluster::{Cluster, Node};
use super::link::{Link, Waits};
use super::sentinel::{Place, Watched};
use super::trouble::Trouble;
use super::{HotError, HotOptions};

/// Clones share the connections.
#[derive(Clone)]
pub(super) enum Wire {
    One(Link),
    Cluster(Cluster),
    Watched(Watched),
}

/// One server that keys may lie on.
#[derive(Clone)]
pub(super) enum Server {
    /// The only one there is.
    Only(Wire),
    /// A master of a cluster.
    Master(Arc<Node>),
}

impl Wire {
    /// Connects; fails if Redis cannot be reached now.
    pub(super) async fn connect(
        options: &HotOptions,
        response_timeout: Duration,
        trouble: &Arc<Trouble>,
    ) -> Result<Self, HotError> {
        let waits = Waits {
            connect: options.connect_timeout,
            response: response_timeout,
        };
        let trouble = Arc::clone(trouble);
        Ok(match Address::parse(&options.url).map_err(HotError::Url)? {
            Address::One(info) => Self::One(Link::connect(info, waits).await?),
            Address::Cluster(seeds) => {
                let cluster = Cluster::connect(&seeds, waits, trouble).await;
                Self::Cluster(cluster.map_err(at_start)?)
            }
            Address::Watched {
                sentinels,
                name,
                server,
            } => {
                let watched = Watched::connect(sentinels, name, server, waits, trouble).await;
                Self::Watched(watched.map_err(at_start)?)
            }
        })
    }

    /// Sends a command to whoever has its key. An error that the server answers is an error here too.
    pub(super) async fn send(&self, command: &Cmd) -> RedisResult<Value> {
        // Boxed, or the future of every call would have room for the longest way, on one server too.
        match self {
            Self::One(link) => link.send(command).await,
            Self::Cluster(cluster) => Box::pin(cluster.send(command)).await,
            Self::Watched(watched) => Box::pin(watched.send(command)).await,
        }
    }

    /// All servers that may hold keys, as they are now.
    pub(super) async fn servers(&self) -> RedisResult<Vec<Server>> {
        Ok(match self {
            Self::One(_) => vec![Server::Only(self.clone())],
            Self::Cluster(cluster) => {
                let masters = Box::pin(cluster.masters()).await?;
                masters.into_iter().map(Server::Master).collect()
            }
            Self::Watched(watched) => {
                Box::pin(watched.look()).await;
                vec![Server::Only(self.clone())]
            }
        })
    }

    /// Of some keys, one per server that has any.
    pub(super) fn spread(&self, keys: impl IntoIterator<Item = String>) -> Vec<String> {
        let mut seen = HashSet::new();
        let mut keys = keys.into_iter();
        match self {
            Self::Cluster(cluster) => keys
                .filter(|key| seen.insert(cluster.owner_name(key.as_bytes())))
                .collect(),
            _ => keys.next().into_iter().collect(),
        }
    }

    /// Where the primary is now that sentinels watch.
    pub(super) fn watched_place(&self) -> Option<Place> {
        match self {
            Self::Watched(watched) => watched.place(),
            _ => None,
        }
    }

    /// What `INFO` must call the mode of a server behind this.
    pub(super) fn mode(&self) -> &'static str {
        match self {
            Self::Cluster(_) => "cluster",
            _ => "standalone",
        }
    }
}

/// Nothing of anybody's was sent yet.
fn at_start(error: RedisError) -> HotError {
    if error.detail().is_some_and(|text| text.contains(NO_CLUSTER)) {
        return HotError::Url("names a cluster, but the server is in no cluster".to_owned());
    }
    match HotError::from(error) {
        HotError::Unknown(Some(error)) => HotError::Unreachable(error),
        other => other,
    }
}

/// How a server answers that is none of a cluster.
const NO_CLUSTER: &str = "cluster support disabled";

impl Server {
    /// `host:port` of a master of a cluster, else empty.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Only(_) => "",
            Self::Master(node) => &node.name,
        }
    }

    pub(super) async fn send(&self, command: &Cmd) -> RedisResult<Value> {
        match self {
            Self::Only(wire) => wire.send(command).await,
            Self::Master(node) => node.link.send(command).await,
        }
    }
}
