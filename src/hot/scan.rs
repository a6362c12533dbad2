//! Reads through all keys of a kind with SCAN: leftover slices for the compensator, residents for `verify`.

use redis::Value;

use super::reply::Reply;
use super::wire::Server;
use super::{Hot, HotError};
use crate::domain::{SliceId, Target, UserId};
use crate::limits::SCAN_PAGE;

/// A user or a count that is resident.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resident {
    /// A user.
    User {
        /// Who.
        user: UserId,
        /// Whether an absent target means "not liked".
        complete: bool,
        /// Targets with their signed versions.
        thumbs: Vec<(Target, i64)>,
        /// The last slice with an operation that MySQL may not have.
        dirty: SliceId,
    },
    /// A count.
    Count {
        /// What.
        target: Target,
        /// This partition's part.
        part: i64,
        /// The last slice with an operation that MySQL may not have.
        dirty: SliceId,
    },
    /// A target that is gone.
    Gone {
        /// What.
        target: Target,
    },
}

/// The name of what may be resident.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResidentKey {
    /// A user.
    User(UserId),
    /// A count.
    Count(Target),
}

/// How far a SCAN of all servers has come. The default is its beginning.
#[derive(Default)]
pub struct ScanCursor {
    /// The server under way, which run of it this is, and its cursor.
    at: Option<(Server, String, u64)>,
    /// Servers that come afterwards.
    left: Vec<Server>,
    begun: bool,
    ended: bool,
}

impl ScanCursor {
    /// Whether all has been seen.
    pub fn ended(&self) -> bool {
        self.ended
    }
}

impl Hot {
    /// All slices of a partition that are there, listed or not.
    pub async fn slices_found(&self, partition: u16) -> Result<Vec<SliceId>, HotError> {
        let mut found = Vec::new();
        let mut cursor = ScanCursor::default();
        while !cursor.ended() {
            let names = self.scan_page(partition, "slice", &mut cursor).await?;
            found.extend(names.iter().filter_map(|id| id.parse().ok().map(SliceId)));
        }
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    /// One page of the residents of the current generation. One may come twice.
    pub async fn residents_page(
        &self,
        partition: u16,
        users: bool,
        cursor: &mut ScanCursor,
    ) -> Result<Vec<Resident>, HotError> {
        let found = self.resident_keys_page(partition, users, cursor).await?;
        let generation = self.peek(partition).await?.generation.unwrap_or_default();
        let mut residents = Vec::with_capacity(found.len());
        for key in found {
            residents.extend(self.resident(partition, &key, &generation).await?);
        }
        Ok(residents)
    }

    /// One page of the names of users or counts, of whatever generation. One may come twice.
    pub async fn resident_keys_page(
        &self,
        partition: u16,
        users: bool,
        cursor: &mut ScanCursor,
    ) -> Result<Vec<ResidentKey>, HotError> {
        let of = if users { "user" } else { "count" };
        let names = self.scan_page(partition, of, cursor).await?;
        let key = |name: String| {
            if users {
                UserId::parse(name).ok().map(ResidentKey::User)
            } else {
                Target::parse(&name).ok().map(ResidentKey::Count)
            }
        };
        Ok(names.into_iter().filter_map(key).collect())
    }

    /// What stands under a name, if it is resident in this generation.
    pub async fn resident(
        &self,
        partition: u16,
        key: &ResidentKey,
        generation: &str,
    ) -> Result<Option<Resident>, HotError> {
        let keys = self.keys(partition);
        Ok(match key {
            ResidentKey::User(user) => {
                let mut command = redis::cmd("HGETALL");
                command.arg(keys.user(user));
                decode_user(user.clone(), self.job_command(&command).await?, generation)
            }
            ResidentKey::Count(target) => {
                let mut command = redis::cmd("GET");
                command.arg(keys.count(target));
                let value = self.job_command(&command).await?;
                decode_count(target.clone(), &value, generation)
            }
        })
    }

    /// Names behind the type, of the keys of one type, from the next page of one server after the other: while the slot of a
    /// partition moves, its keys lie on two. A server that cannot be asked is an error, and no end.
    async fn scan_page(
        &self,
        partition: u16,
        of: &str,
        cursor: &mut ScanCursor,
    ) -> Result<Vec<String>, HotError> {
        if !cursor.begun {
            cursor.left = self.servers().await?;
            cursor.at = self.scan_next(cursor).await?;
            cursor.begun = true;
        }
        // After an error there is no going on: a part would pass for the whole.
        let (server, run, at) = cursor.at.take().ok_or(HotError::ScanCut)?;
        let keys = self.keys(partition);
        let mut command = redis::cmd("SCAN");
        command
            .arg(at)
            .arg("MATCH")
            .arg(keys.pattern(of))
            .arg("COUNT")
            .arg(SCAN_PAGE);
        let page = self.bounded(10, async { Ok(server.send(&command).await?) });
        let mut reply = Reply::new(page.await?)?;
        let next = reply
            .text()?
            .parse()
            .map_err(|_| HotError::Protocol("a cursor is not a number".into()))?;
        let mut names = Reply::new(reply.next()?)?;
        let mut found = Vec::with_capacity(names.left());
        while names.left() > 0 {
            found.extend(keys.rest(of, &names.text()?).map(str::to_owned));
        }
        if next != 0 {
            cursor.at = Some((server, run, next));
            return Ok(found);
        }
        // Another run has another order: its cursor would have left keys out. And a replica may have less.
        let (now, role) = self.run_of(&server).await?;
        if now != run || role != "master" {
            return Err(HotError::ScanCut);
        }
        cursor.at = self.scan_next(cursor).await?;
        cursor.ended = cursor.at.is_none();
        Ok(found)
    }

    async fn scan_next(
        &self,
        cursor: &mut ScanCursor,
    ) -> Result<Option<(Server, String, u64)>, HotError> {
        let Some(server) = cursor.left.pop() else {
            return Ok(None);
        };
        let run = self.run_of(&server).await?.0;
        Ok(Some((server, run, 0)))
    }
}

fn decode_user(user: UserId, value: Value, generation: &str) -> Option<Resident> {
    let values = match value {
        Value::Array(values) => values,
        Value::Map(pairs) => pairs.into_iter().flat_map(|(k, v)| [k, v]).collect(),
        _ => return None,
    };
    let texts: Vec<&str> = values.iter().filter_map(text).collect();
    let mut marker = None;
    let mut thumbs = Vec::new();
    for pair in texts.chunks_exact(2) {
        if pair[0] == "#" {
            marker = pair[1].strip_prefix(generation);
        } else if let (Ok(target), Ok(version)) = (Target::parse(pair[0]), pair[1].parse()) {
            thumbs.push((target, version));
        }
    }
    let marker = marker?;
    Some(Resident::User {
        user,
        complete: marker.starts_with('c'),
        thumbs,
        dirty: SliceId(marker.get(1..)?.parse().ok()?),
    })
}

fn decode_count(target: Target, value: &Value, generation: &str) -> Option<Resident> {
    let (part, dirty) = text(value)?.strip_prefix(generation)?.split_once(':')?;
    if part == "g" {
        return Some(Resident::Gone { target });
    }
    Some(Resident::Count {
        target,
        part: part.parse().ok()?,
        dirty: SliceId(dirty.parse().ok()?),
    })
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}
