//! Private, real servers as child processes, for `thumbd dev` and the tests: a Redis (or Valkey) and a MariaDB (or MySQL).
//!
//! They never outlive their owner, also when it is killed with -9 (see `guard`). Nothing here speaks SQL or more Redis
//! than a PING: clients live in `hot` and `ledger`. All calls block, for seconds at most, except those of [`Servers`].

mod error;
mod guard;
mod place;
mod process;
mod programs;
mod redis_server;
mod servers;
mod sql_server;

use std::time::Duration;

pub use error::DevError;
pub use process::Process;
pub use redis_server::{RedisOptions, RedisServer};
pub use servers::Servers;
pub use sql_server::{SqlOptions, SqlServer};

/// Longest wait for a server to answer: a crash recovery or a large AOF takes seconds, more means that something is wrong.
const READY_MAX: Duration = Duration::from_secs(60);
/// Longest graceful stop before a server is killed: both have written everything that matters by then.
const STOP_MAX: Duration = Duration::from_secs(20);
/// Longest wait for the server of a crashed earlier run: its guard kills it after `STOP_MAX`.
const STALE_MAX: Duration = Duration::from_secs(STOP_MAX.as_secs() + 5);
/// How often a wait looks again.
const POLL: Duration = Duration::from_millis(10);
