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
/// Queries for lists under way at once in a process, and half of its connections at most: they must not take those that cold likes need.
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

/// How often a target is marked as gone again because Redis had changed behind the look at MySQL: somebody forgets or resets
/// something now and then, and never often.
pub const GONE_TRIES_MAX: usize = 8;
/// Rows of a user or target that are erased in one transaction: it holds up the flush for some ten milliseconds.
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
/// Bytes of one delivery to a webhook: what servers take by default, and some 300 events.
pub const FEED_WEBHOOK_BYTES_MAX: usize = 64 * 1024;
/// Longest wait for a connection to a webhook: a second loss of a packet is survived, and another address is tried in time.
pub const FEED_WEBHOOK_CONNECT_MAX: Duration = Duration::from_secs(5);
/// Longest wait for the answer of a webhook, connecting included: enough to store a batch, and the next flush brings more.
pub const FEED_WEBHOOK_ANSWER_MAX: Duration = Duration::from_secs(15);
/// Bytes that are read behind the head of an answer, and the time for it, so that the connection can be used again: nobody looks
/// at them, and a new connection costs little.
pub const FEED_WEBHOOK_REST_BYTES_MAX: usize = 16 * 1024;
/// See [`FEED_WEBHOOK_REST_BYTES_MAX`].
pub const FEED_WEBHOOK_REST_MAX: Duration = Duration::from_secs(1);
/// Longest head of an answer.
pub const FEED_WEBHOOK_HEAD_BYTES_MAX: usize = 32 * 1024;
/// How long an idle connection to a webhook is kept: longer than a window of ten seconds.
pub const FEED_WEBHOOK_IDLE_MAX: Duration = Duration::from_secs(30);
/// Longest `Retry-After` that is heeded: whoever mends a webhook wants to see it work.
pub const FEED_RETRY_AFTER_MAX: Duration = Duration::from_secs(60);
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

/// Slices of which a process remembers how they landed, for whoever watches: ten minutes.
pub const LANDINGS_KEPT: usize = 64;
/// Bytes of the reason for which a slice did not land that are shown: a line.
pub const LANDING_ERROR_BYTES_MAX: usize = 200;
/// Targets that are noted as rising by a slice: more than are shown, so that the sums of a minute are nearly right.
pub const RISES_MAX: usize = 10;
/// Landings that an instance tells the others of with each sign of life: it says them again while they are news.
pub const LANDINGS_TOLD: usize = 8;
/// Pause between two signs of life of an instance: one call of a script, as dear as a like.
pub const HEARTBEAT_PAUSE: Duration = Duration::from_secs(1);
/// An instance that has been silent for this long is said to be silent: several signs were missed.
pub const SILENT_AFTER: Duration = Duration::from_secs(5);
/// How long an instance that is silent is remembered: long enough to be seen, and to be told apart from one that signed off.
pub const SILENT_KEPT: Duration = Duration::from_secs(120);
/// Points of the charts that a process remembers: five minutes, one a second.
pub const LIVE_POINTS_MAX: usize = 300;
/// Streams of `/admin/v1/live` at once in a process: a few people who look, and some tabs that they forgot.
pub const LIVE_STREAMS_MAX: usize = 16;
/// Pause between two snapshots, and between two looks at whether the servers answer, while somebody watches.
pub const LIVE_PAUSE: Duration = Duration::from_secs(1);
/// Pause between two looks at what only MySQL knows, while somebody watches: some small queries.
pub const LIVE_TABLES_PAUSE: Duration = Duration::from_secs(5);
/// How long a stream waits for a reader that does not read before its connection is cut.
pub const LIVE_STALL_MAX: Duration = Duration::from_secs(10);
/// Live slices that a snapshot lists; all are counted.
pub const LIVE_SLICES_MAX: usize = 200;
/// Landings that a snapshot lists.
pub const LIVE_LANDINGS_MAX: usize = 32;
/// Targets of the lists of a snapshot.
pub const LIVE_TARGETS_MAX: usize = 10;
/// Kinds whose most liked targets are looked for: one query each.
pub const LIVE_KINDS_MAX: usize = 8;
/// Runs of the compensator that a snapshot lists.
pub const LIVE_COMPENSATIONS_MAX: u64 = 5;
/// What counts as rising: what has landed within this time.
pub const RISING_WINDOW: Duration = Duration::from_secs(60);
/// The compensator runs every night: after this one was missed.
pub const COMPENSATED_WITHIN: Duration = Duration::from_secs(26 * 3600);
/// Likers of a target, or likes of a user, that a close look shows.
pub const LOOK_NEWEST: usize = 20;
/// Differences that an answer to a verification lists; all are counted.
pub const VERIFIED_DIFFERENCES_MAX: usize = 50;

/// Longest life of an admin request: a compensation of a big site takes long, and its caller waits for the report.
pub const ADMIN_REQUEST_MAX: Duration = Duration::from_secs(3600);
/// Most connections at once on the address of operators: a few people and scrapers.
pub const ADMIN_CONNECTIONS_MAX: usize = 128;
/// Most bytes that a connection buffers, and so the longest head of a request: a like has about 300.
pub const CONNECTION_BUFFER_BYTES_MAX: usize = 64 * 1024;
/// Pause after a failed accept, mostly for want of file descriptors: an error at once would only spin.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Least time between two measures of the process: whoever may scrape must not be able to keep it busy with reading its open files.
pub const PROCESS_MEASURE_PAUSE: Duration = Duration::from_secs(1);
/// How often histograms are folded: in between each measurement is kept by itself.
pub const METRICS_UPKEEP: Duration = Duration::from_secs(5);

/// How long whoever had no connection in time waits to learn why: a server that is not there says so at once, and who waits has
/// waited `database_acquire_timeout_ms` already.
pub const REACH_WAIT: Duration = Duration::from_millis(100);
/// For so long what was learned is told to all, so that an outage costs one further try a second.
pub const REACH_PAUSE: Duration = Duration::from_secs(1);

/// Longest look of `thumbd doctor` at one server, all waits together: who calls it waits for it.
pub const DOCTOR_PART_MAX: Duration = Duration::from_secs(60);
/// Times that it asks a server for its clock, to see how long an answer takes: a median needs some.
pub const DOCTOR_PINGS: usize = 20;
/// An answer that takes longer than this in the median is slow: a like waits for at least one of Redis.
pub const DOCTOR_PING_SLOW: Duration = Duration::from_millis(20);
/// By how much clocks may differ: the flush begins 250 ms behind a window by this machine's clock, and windows are Redis's.
pub const DOCTOR_CLOCKS_APART_MAX: Duration = Duration::from_secs(1);
/// Used part of Redis's memory, in percent, from which on it is nearly full.
pub const DOCTOR_MEMORY_PERCENT_MAX: u64 = 80;
/// A server that closes connections which were idle for less than this has us make a new one for every few requests.
pub const DOCTOR_IDLE_MIN: Duration = Duration::from_secs(60);
/// Files that a process has open beside its connections, at most.
pub const DOCTOR_FILES_SPARE: u64 = 64;
/// Bytes of a row of the staging table, at most: so much of `max_heap_table_size` a row of a transaction takes.
pub const STAGE_ROW_BYTES_MAX: u64 = 320;
/// Least `max_allowed_packet`, in bytes: what a statement and its arguments take at most.
pub const PACKET_BYTES_MIN: u64 = 16 * 1024;

const _: () = assert!(STATEMENT_BYTES_MAX < PACKET_BYTES_MIN as usize);
const _: () = assert!(LANDINGS_TOLD <= LANDINGS_KEPT && LIVE_TARGETS_MAX <= RISES_MAX);
const _: () = assert!(LIST_LIMIT <= LIST_LIMIT_MAX);
const _: () = assert!(FEED_WEBHOOK_CONNECT_MAX.as_secs() < FEED_WEBHOOK_ANSWER_MAX.as_secs());
const _: () = assert!(STAGE_ROWS_MAX * 8 < 65_535);
const _: () = assert!(CASE_ARMS_MAX * 3 + 1 < 65_535);
