//! The HTTP interface on real servers: what every route answers, and what it refuses.

mod connections;
mod contract;
mod cors;
mod ids;
mod refusals;
pub(crate) mod rights;
mod routes;
