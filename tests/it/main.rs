//! The one test binary: everything that needs a real server.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests, too, end the test where something is not as it must be"
)]

mod app;
mod batch;
mod chaos;
mod dev_servers;
mod flush;
mod hot;
mod http;
mod ledger;
mod model;
mod process;
mod quarantine;
mod redis_faults;
mod repair;
mod road;
mod servers;
mod service;
mod stand;
mod verify;
