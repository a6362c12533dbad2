//! thumbd: a like service. Redis answers at once, MySQL keeps the durable truth; no like is lost, doubled or miscounted.
//!
//! `ARCHITECTURE.md` has the code map and the invariants.

pub mod app;
pub mod auth;
pub mod cli;
pub mod config;
pub mod dev;
pub mod doctor;
pub mod domain;
pub mod erasure;
pub mod feed;
pub mod flush;
pub mod hot;
pub mod http;
pub mod jobs;
pub mod ledger;
pub mod limits;
pub mod live;
pub mod moving;
pub mod relayout;
pub mod repair;
pub mod service;
pub mod steps;
pub mod telemetry;
pub mod verify;
