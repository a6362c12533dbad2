//! All tests against real servers, in one binary.

mod ledger;
mod servers;
