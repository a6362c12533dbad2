//! Every bound that is not a setting, in one place and with its reason. Bounds that an operator may want to move are in `config`.

use std::time::Duration;

/// Targets in one lookup: a page of a site shows at most about this many.
pub const LOOKUP_TARGETS_MAX: usize = 200;
/// Operations in one batch: a thousand take about 10 ms of Redis time, which the others have to wait.
pub const BATCH_OPERATIONS_MAX: usize = 1000;
/// Entries of a list in one answer: more would be scrolled through anyway.
pub const LIST_LIMIT_MAX: usize = 100;
/// Entries of a list in one answer for whoever does not say how many.
pub const LIST_LIMIT: usize = 20;
/// Queries for lists under way at once in a process: they must not take the connections that cold likes need.
pub const LIST_QUERIES_MAX: usize = 4;
/// Rows of a user that are read at once when those before were hidden by newer unlikes.
pub const LIST_ROWS_AGAIN: usize = 500;

/// Targets whose counts are kept in the process: some megabytes, and more than are hot at once.
pub const COUNT_CACHE_TARGETS_MAX: u64 = 10_000;
/// How long is remembered what was answered on a target that nobody asks for.
pub const COUNT_CACHE_LIFE: Duration = Duration::from_secs(60);

/// How often an operation is told *moved* before the caller gets 503: one per window is normal, on-demand seals add some.
pub const MOVED_RETRIES_MAX: usize = 5;
/// How often an operation or a read loads what is cold before the caller gets 503 or `null`: a second round is rare, a third is a race lost twice.
pub const COLD_ROUNDS_MAX: usize = 8;
/// How often a command follows a cluster's redirects, or waits for a slot in motion, before the caller gets 503: one after a
/// failover, two if the slot moves meanwhile.
pub const REDIRECTS_MAX: usize = 5;
/// Pause before a command is sent again some of whose keys have moved and some not: a small slot moves in some ten milliseconds.
pub const TRY_AGAIN_PAUSE: Duration = Duration::from_millis(20);
/// Least time between two questions who owns which slots, or who is primary: all that fail at once need one answer.
pub const TOPOLOGY_PAUSE: Duration = Duration::from_millis(100);
/// Pause between two looks at a recovering partition.
pub const RECOVERING_POLL: Duration = Duration::from_millis(100);
/// Longest total wait of a request for a recovering partition before it gets 503.
pub const RECOVERING_WAIT_MAX: Duration = Duration::from_millis(500);

/// Cold users or counts read by one MySQL query: enough to serve a burst in few round trips, few enough to plan well.
pub const COLD_KEYS_PER_QUERY_MAX: usize = 16;
/// MySQL queries for cold keys under way at once in a process.
pub const COLD_QUERIES_MAX: usize = 4;

/// Likes in one fill call: some 3 ms of Redis time. One user may be larger.
pub const FILL_THUMBS_MAX: usize = 5000;

/// Fields of one HSCAN page: about 1 ms of Redis time.
pub const HSCAN_PAGE: usize = 1000;
/// Keys per unpin or forget call: about 2 ms of Redis time.
pub const UNPIN_KEYS_MAX: usize = 500;
/// Keys per SCAN page.
pub const SCAN_PAGE: usize = 1000;
/// How often a slice is read again because HSCAN skipped fields, before the flush gives up until its next run.
pub const SLICE_READS_MAX: usize = 3;

/// How far a version may lie behind the end of its slice: each operation of a call has one of its own, µs apart.
pub const VERSION_SLACK_MS: u64 = 1000;
/// How often an undo looks again because slices have come meanwhile: one a window is normal.
pub const UNDO_TRIES_MAX: usize = 5;

/// Targets among which rows that may be pruned are looked for by one statement: few enough to end soon, hot ones among them.
pub const PRUNE_TARGETS_MAX: u64 = 200;
/// Rows that are pruned in one transaction: it holds up the flush for some ten milliseconds.
pub const PRUNE_ROWS_MAX: usize = 2000;
/// Pause between two measures of what only MySQL knows (quarantine, the last compensation): two small queries a process.
pub const LEDGER_MEASURE_PAUSE: Duration = Duration::from_secs(10);
/// Targets whose counts are mended in one transaction, which holds up the flush: a hot target takes a second.
pub const REPAIR_TARGETS_MAX: usize = 64;

/// Rows of a user that are erased in one transaction: it holds up the flush for some ten milliseconds.
pub const ERASE_ROWS_MAX: u64 = 1000;
/// Erasures that are taken up in one run of the job, before others have the lease.
pub const ERASURES_MAX: u64 = 16;
/// Such transactions of one erasure before others have their turn: they hold up whoever waits for a flush for a second or two.
pub const ERASE_TRANSACTIONS_MAX: usize = 64;
/// Pause before it is looked again for erasures that another process has left, or that failed: one small query.
pub const ERASE_LOOK_PAUSE: Duration = Duration::from_secs(5);

/// How long an import that says nothing stops pruning: it writes every few moments, and one that died must not stop it for ever.
pub const IMPORT_HOLD: Duration = Duration::from_secs(600);
/// How long an import holds the lease before it lets others have it: a durable write waits for its own flush.
pub const IMPORT_LEASE_MAX: Duration = Duration::from_secs(1);
/// Pause in which others can take the lease: they look every 100 ms.
pub const IMPORT_PAUSE: Duration = Duration::from_millis(150);
/// Rows or counts of one page of an export or a comparison.
pub const PAGE_ROWS_MAX: u64 = 2000;

/// Events that the relay of the feed carries in one call: some 2 ms of Redis time.
pub const FEED_PAGE: u64 = 500;
/// Pause before the relay looks again: events come with a flush, every few seconds.
pub const FEED_PAUSE: Duration = Duration::from_millis(200);
/// Longest pause of a relay that cannot deliver: a server that comes back is found soon, and one that is away is not bothered.
pub const FEED_PAUSE_MAX: Duration = Duration::from_secs(10);
/// Events that are dropped by one statement: few enough that nobody waits for it.
pub const FEED_DELETE_ROWS_MAX: u64 = 5000;

/// How often a layout that is to end is flushed before the change is given up: more than once only if somebody still writes.
pub const RETIRE_TRIES_MAX: usize = 3;

/// Arms of one CASE: 250 were fastest, 5 000 cost 3.5 times as much per row.
pub const CASE_ARMS_MAX: usize = 250;
/// Rows of one multi-row INSERT into the staging table: more were no faster, and 256 with short ids fit into `STATEMENT_BYTES_MAX`.
pub const STAGE_ROWS_MAX: usize = 256;
/// Bytes of the arguments of one statement, where it can be cut: what fits into one TLS record (16 KB) is sent at once. Of more,
/// the rest waits 40 ms for the other side's delayed acknowledgement, because sqlx leaves Nagle's algorithm on.
pub const STATEMENT_BYTES_MAX: usize = 15_000;
/// How often a transaction begins again after a deadlock or lock wait timeout before the run fails.
pub const TRANSACTION_TRIES_MAX: usize = 5;
/// Entries of one transaction that quarantine takes: each costs some twenty transactions to find. More of them mean that a rule of
/// the database is wrong, and not the entries: then the flush stops, and says so.
pub const REFUSED_ENTRIES_MAX: usize = 1000;
/// How often a chunk is applied again without what was refused: once for what was erased, once for what quarantine knows, once for
/// what is below the horizon, once for what MySQL refuses, and once for what it refuses only then.
pub const REFUSED_ROUNDS_MAX: usize = 5;

/// Share of lookups that also look at the remaining life of what they read, to renew it: every 16th.
pub const RENEW_EVERY: u64 = 16;

/// Runs of a job that are removed at once when they are old: one comes a day, so this catches up with whatever there is.
pub const JOB_RUNS_PER_PRUNE: u64 = 1000;
/// How long runs of the compensator stay in `job_run`: long enough to compare a quarter with the one before.
pub const JOB_RUNS_KEPT: Duration = Duration::from_secs(90 * 86_400);
/// Least time between two seals on demand: each is a transaction and a new slice for those who like next, and whoever waits for
/// the ledger waits for some ten milliseconds of it anyway.
pub const SEAL_PAUSE: Duration = Duration::from_millis(100);
/// Pause before a planned run of the compensator is looked at again that another instance may be at: it may have died in it.
pub const UNSETTLED_PAUSE: Duration = Duration::from_secs(1);
/// Pause before a durable write asks again after a flush that failed: the database is away, and the log has it already.
pub const DURABLE_PAUSE: Duration = Duration::from_millis(200);
/// Pause before each check of a partition behind a trouble with Redis: a server that comes back has a herd to answer first.
pub const RECHECK_PAUSE: Duration = Duration::from_millis(250);
/// Readiness tells of the flush when the oldest operation waits longer than this, or than three windows and ten seconds.
pub const FLUSH_LAG_MAX: Duration = Duration::from_secs(30);

/// How long a browser remembers what it was told of calls from elsewhere: a page asks once, and a change is soon everywhere.
pub const CORS_MAX_AGE: Duration = Duration::from_secs(600);
/// Part of `operations_in_flight_max` that writes may take, as a fraction: the rest is for reads, of which there are more, and which
/// leave no work behind.
pub const WRITES_SHARE: (usize, usize) = (3, 4);

/// Longest life of an admin request: a compensation of a big site takes long, and its caller waits for the report.
pub const ADMIN_REQUEST_MAX: Duration = Duration::from_secs(3600);
/// Most connections at once on the address of operators: a few people and scrapers.
pub const ADMIN_CONNECTIONS_MAX: usize = 128;
/// Most bytes that a connection buffers, and so the longest head of a request: a like has about 300.
pub const CONNECTION_BUFFER_BYTES_MAX: usize = 64 * 1024;
/// Pause after a failed accept, mostly for want of file descriptors: an error at once would only spin.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How often histograms are folded: in between each measurement is kept by itself.
pub const METRICS_UPKEEP: Duration = Duration::from_secs(5);

const _: () = assert!(LIST_LIMIT <= LIST_LIMIT_MAX);
const _: () = assert!(STAGE_ROWS_MAX * 8 < 65_535);
const _: () = assert!(CASE_ARMS_MAX * 3 + 1 < 65_535);
