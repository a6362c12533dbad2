//! The one test binary: everything that needs a real server.

mod dev_servers;
mod servers;
