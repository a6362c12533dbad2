//! The one test binary: everything that needs a real server.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests, too, end the test where something is not as it must be"
)]

mod app;
mod backlog;
mod batch;
mod chaos;
mod cluster;
mod count_cache;
mod crash;
mod dev_servers;
mod docs;
mod doctor;
mod durable;
mod erasure;
mod feed;
mod flush;
mod gone;
mod history;
mod hot;
mod http;
mod ledger;
mod limits;
mod lists;
mod live;
mod load;
mod logs;
mod lost_replies;
mod metrics;
mod model;
mod moving;
mod mysql_faults;
mod panics;
mod process;
mod quarantine;
mod reconnect;
mod redis_faults;
mod relayout;
mod repair;
mod road;
mod rolling;
mod schedule;
mod secrets;
mod sentinel;
mod serve;
mod servers;
mod service;
mod shutdown;
mod stand;
mod starting;
mod systemd;
mod tls;
mod torture;
mod two_flushers;
mod verify;
mod webhook;
