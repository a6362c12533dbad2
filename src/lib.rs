//! thumbd: a like service. Redis answers at once, MySQL keeps the durable truth; no like is lost, doubled or miscounted.
//!
//! `ARCHITECTURE.md` has the code map and the invariants.

<<<<<<< HEAD
pub mod dev;
=======
pub mod cli;
pub mod config;
>>>>>>> h2
pub mod domain;
pub mod limits;
pub mod telemetry;
