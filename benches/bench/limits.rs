//! Sizes of the data and of the load: what is realistic, and what fits into some minutes on two cores.

use std::time::Duration;

/// Users that like.
pub(crate) const USERS: u64 = 20_000;
/// Targets that are liked.
pub(crate) const TARGETS: u64 = 2_000;
/// Length of a slice where the 10-second job runs.
pub(crate) const SLICE_SECONDS: u64 = 10;
/// Time between the first request and the first that counts.
pub(crate) const RAMP: Duration = Duration::from_millis(300);
/// Longest start of a server, and longest wait for one line of a worker beyond its own time.
pub(crate) const START_MAX: Duration = Duration::from_secs(60);
/// Longest on-demand flush.
pub(crate) const FLUSH_MAX: Duration = Duration::from_secs(600);
/// How often a request that must succeed is sent again.
pub(crate) const TRIES_MAX: u32 = 40;
/// Wait before it is sent again.
pub(crate) const RETRY_WAIT: Duration = Duration::from_millis(50);
/// What thumbd knows a site's back end by, here.
pub(crate) const SERVICE_KEY: &str = "bench-service-key";
/// What thumbd knows its operator by, here.
pub(crate) const ADMIN_TOKEN: &str = "bench-admin-token";
