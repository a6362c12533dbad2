//! The HTTP interface on real servers: what every route answers, and what it refuses.

mod connections;
mod contract;
mod refusals;
mod rights;
mod routes;
