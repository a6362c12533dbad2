//! The HTTP interface on real servers: what every route answers, and what it refuses.

mod connections;
mod cors;
mod refusals;
pub(crate) mod rights;
mod routes;
