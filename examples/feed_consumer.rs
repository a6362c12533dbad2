//! A reader of the change feed: keeps a copy of who likes what, however often it is told the same.
//!
//! `cargo run --example feed_consumer -- redis://127.0.0.1:6379 thumbd:v1:feed`; docs/feed.md says what the fields mean.

use std::collections::BTreeMap;

use serde_json::Value;

/// A user, a kind and the id of a target.
pub type Pair = (String, String, String);

/// What an event asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum Told {
    /// It was taken in.
    News,
    /// It was told before.
    Known,
    /// Something before it was missed: read everything anew, by `thumbd export` or the lists, and go on behind it.
    Missed,
}

/// A copy of the likes. Store `last` in the transaction that stores what an event changed: then each event counts once.
#[derive(Debug, Default)]
pub struct Likes {
    /// The last event that was taken in.
    pub last: u64,
    /// Pairs that were told, each with whether the user likes the target, and the version that said so.
    pub pairs: BTreeMap<Pair, (bool, u64)>,
    /// Counts that were told.
    pub counts: BTreeMap<(String, String), i64>,
}

impl Likes {
    /// Takes in an event.
    pub fn take(&mut self, event: &Value) -> Told {
        let id = event["id"].as_u64().unwrap_or(0);
        if id <= self.last {
            return Told::Known;
        }
        // Ids rise by one; where one is missing, the stream was cut or lost before it was read.
        let missed = event["type"] == "gap" || id != self.last + 1;
        self.last = id;
        let text = |field: &str| event[field].as_str().unwrap_or("").to_owned();
        match event["type"].as_str() {
            Some("thumb") => {
                let pair = (text("user"), text("kind"), text("target"));
                let said = (
                    event["liked"] == true,
                    event["version"].as_u64().unwrap_or(0),
                );
                // What was read anew may be newer than what is told.
                let known = self.pairs.entry(pair).or_default();
                if said.1 > known.1 {
                    *known = said;
                }
            }
            Some("count") => {
                let count = event["count"].as_i64().unwrap_or(0);
                self.counts.insert((text("kind"), text("target")), count);
            }
            _ => {}
        }
        if missed { Told::Missed } else { Told::News }
    }
}

/// Entries that are read at once.
const PAGE: &str = "500";
/// Longest wait for news, in ms.
const WAIT_MS: &str = "1000";

/// Streams, each with its name and its entries, which have an id and fields.
type Reply = Vec<(String, Vec<(String, BTreeMap<String, String>)>)>;

/// Reads the stream behind the last event that was taken in; waits a little if there is none. Gives how many it read.
pub fn read(
    connection: &mut redis::Connection,
    stream: &str,
    likes: &mut Likes,
) -> redis::RedisResult<usize> {
    // An entry has the id of its event.
    let behind = format!("{}-0", likes.last);
    let reply: Option<Reply> = redis::cmd("XREAD")
        .arg(&["COUNT", PAGE, "BLOCK", WAIT_MS, "STREAMS", stream, &behind])
        .query(connection)?;
    let streams = reply.unwrap_or_default();
    let mut read = 0;
    for (_, fields) in streams.iter().flat_map(|(_, entries)| entries) {
        let text = fields.get("event").map_or("", String::as_str);
        let event = serde_json::from_str(text).unwrap_or(Value::Null);
        if likes.take(&event) == Told::Missed {
            println!(
                "read everything anew: events before {} were missed",
                likes.last
            );
        }
        read += 1;
    }
    Ok(read)
}

#[allow(dead_code, reason = "a test takes this file in as a module")]
fn main() -> redis::RedisResult<()> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().unwrap_or("redis://127.0.0.1:6379".into());
    let stream = arguments.next().unwrap_or("thumbd:v1:feed".into());
    let mut connection = redis::Client::open(url)?.get_connection()?;
    let mut likes = Likes::default();
    loop {
        if read(&mut connection, &stream, &mut likes)? > 0 {
            let liked = likes.pairs.values().filter(|(liked, _)| *liked).count();
            println!("event {}: {liked} likes", likes.last);
        }
    }
}
