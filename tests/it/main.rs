//! The one test binary: everything that needs a real server.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests, too, end the test where something is not as it must be"
)]

mod dev_servers;
mod ledger;
mod model;
mod servers;
