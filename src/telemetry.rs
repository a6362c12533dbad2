//! Logs, metrics and errors of the process: where they go and how they look. What is logged and measured is decided where it happens.

use std::error::Error;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Instant;

use anyhow::Context as _;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use metrics_process::Collector;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::config::{LogFormat, Settings};
use crate::limits::PROCESS_MEASURE_PAUSE;

/// Names of the metrics, so that none is spelt twice.
pub mod names {
    /// Histogram, seconds: how long an HTTP request took.
    pub const HTTP_REQUEST_SECONDS: &str = "thumbd_http_request_seconds";
    /// Counter by `action` and `outcome`: what became of operations.
    pub const OPERATIONS: &str = "thumbd_operations_total";
    /// Histogram, seconds, by `script`: how long a script call took, from sending to the reply.
    pub const SCRIPT_SECONDS: &str = "thumbd_script_seconds";
    /// Counter by `script` and `outcome`: what the scripts did with likes and unlikes.
    pub const SCRIPT_OPERATIONS: &str = "thumbd_script_operations_total";
    /// Counter by `outcome`: cold users and counts that were to be loaded.
    pub const COLD_LOADS: &str = "thumbd_cold_loads_total";
    /// Gauge: cold users and counts that wait or are being loaded.
    pub const COLD_LOADS_PENDING: &str = "thumbd_cold_loads_pending";
    /// Gauge, seconds: age of the oldest operation that MySQL does not have.
    pub const FLUSH_LAG_SECONDS: &str = "thumbd_flush_lag_seconds";
    /// Gauge: operations that MySQL does not have.
    pub const UNFLUSHED_ENTRIES: &str = "thumbd_unflushed_entries";
    /// Counter: leases that lapsed while their run went on.
    pub const LEASES_LOST: &str = "thumbd_leases_lost_total";
    /// Counter: entries that went to quarantine.
    pub const QUARANTINED: &str = "thumbd_quarantined_entries_total";
    /// Counter by `outcome`: runs of the flush.
    pub const FLUSHES: &str = "thumbd_flushes_total";
    /// Histogram, seconds: how long a run of the flush took.
    pub const FLUSH_SECONDS: &str = "thumbd_flush_seconds";
    /// Histogram, seconds, by `step`: how long a step of a flush took.
    pub const FLUSH_STEP_SECONDS: &str = "thumbd_flush_step_seconds";
    /// Gauge: 1 while this process holds the lease.
    pub const LEASE_HELD: &str = "thumbd_lease_held";
    /// Gauge: counts that were not what the rows say, in the last compensation of any process.
    pub const COUNT_DIFFERENCES: &str = "thumbd_count_differences";
    /// Gauge: entries that stand in quarantine.
    pub const QUARANTINE_ENTRIES: &str = "thumbd_quarantine_entries";
    /// Gauge, Unix seconds: for when the compensation that last ended well was planned, in any process.
    pub const COMPENSATED_TIMESTAMP: &str = "thumbd_last_compensation_timestamp_seconds";
    /// Gauge by `state`: connections to MySQL.
    pub const DATABASE_CONNECTIONS: &str = "thumbd_database_connections";
    /// Gauge by `version`, always 1: which program this is.
    pub const BUILD_INFO: &str = "thumbd_build_info";
    /// Counter: entries that were carried into MySQL.
    pub const FLUSHED_ENTRIES: &str = "thumbd_flushed_entries_total";
    /// Counter: rows that were changed in MySQL.
    pub const FLUSHED_ROWS: &str = "thumbd_flushed_rows_total";
    /// Counter: transactions that were begun to carry a slice into MySQL.
    pub const FLUSH_TRANSACTIONS: &str = "thumbd_flush_transactions_total";
    /// Counter: those of them that were begun because another had to end.
    pub const TRANSACTION_RETRIES: &str = "thumbd_transaction_retries_total";
    /// Counter by `cause`: partitions that were initialised or reset.
    pub const RECOVERIES: &str = "thumbd_recoveries_total";
    /// Counter: lives that were renewed because somebody read.
    pub const RENEWALS: &str = "thumbd_renewals_total";
    /// Counter by `outcome`: reads of counts that the process may answer from memory.
    pub const COUNT_CACHE: &str = "thumbd_count_cache_total";
    /// Counter by `kind`: targets whose count changed and that have no row in the site's own table.
    pub const MIRROR_MISSING: &str = "thumbd_mirror_missing_total";
    /// Counter by `class`: requests that were refused because too much was under way.
    pub const SHED_REQUESTS: &str = "thumbd_shed_requests_total";
    /// Gauge: events of the change feed that wait to be delivered.
    pub const FEED_BACKLOG: &str = "thumbd_feed_backlog_events";
    /// Gauge, seconds: age of the oldest of them.
    pub const FEED_AGE_SECONDS: &str = "thumbd_feed_age_seconds";
    /// Gauge: 1 while the feed is stopped because too much waited.
    pub const FEED_STOPPED: &str = "thumbd_feed_stopped";
    /// Counter: events that were delivered.
    pub const FEED_DELIVERED: &str = "thumbd_feed_delivered_events_total";
    /// Counter: deliveries that failed and are tried again.
    pub const FEED_FAILURES: &str = "thumbd_feed_failures_total";
    /// Gauge: HTTP requests under way.
    pub const HTTP_REQUESTS_IN_FLIGHT: &str = "thumbd_http_requests_in_flight";
}

/// Upper bounds of all histograms, in seconds: half a millisecond is a like, half a minute a large flush.
pub const BUCKETS_SECONDS: [f64; 16] = [
    0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0,
];

/// Sends the logs of this process to stderr. Once per process.
pub fn log_init(settings: &Settings) -> anyhow::Result<()> {
    tracing::subscriber::set_global_default(subscriber(settings, std::io::stderr)?)
        .context("logs are already going elsewhere")
}

/// A subscriber that writes to `writer` what the settings ask for.
pub fn subscriber<W>(
    settings: &Settings,
    writer: W,
) -> anyhow::Result<Box<dyn tracing::Subscriber + Send + Sync>>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let filter = EnvFilter::builder()
        .parse(&settings.log)
        .context("log does not parse")?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writer);
    Ok(match settings.log_format {
        LogFormat::Text => {
            use std::io::IsTerminal as _;
            Box::new(builder.with_ansi(std::io::stderr().is_terminal()).finish())
        }
        LogFormat::Json => Box::new(builder.json().flatten_event(true).finish()),
    })
}

/// Collects the metrics of this process. May be called again, as tests do: all calls answer the same handle.
///
/// Somebody must call [`PrometheusHandle::run_upkeep`] every few seconds, or histograms that nobody scrapes grow.
pub fn metrics_init() -> anyhow::Result<PrometheusHandle> {
    static HANDLE: Mutex<Option<PrometheusHandle>> = Mutex::new(None);
    let mut handle = HANDLE
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(handle) = handle.as_ref() {
        return Ok(handle.clone());
    }
    let installed = PrometheusBuilder::new()
        .set_buckets(&BUCKETS_SECONDS)
        .context("the buckets are empty")?
        .install_recorder()
        .context("metrics are already going elsewhere")?;
    describe();
    metrics::gauge!(names::BUILD_INFO, "version" => env!("CARGO_PKG_VERSION")).set(1.0);
    Ok(handle.insert(installed).clone())
}

/// The table of all metrics: what each counts is said once, for whoever reads it and for `# HELP`.
const TABLE: &str = include_str!("../docs/metrics.md");

/// Tells what each metric is, as the documentation does.
fn describe() {
    for (name, sort, text) in described() {
        match sort {
            "counter" => metrics::describe_counter!(name, text),
            "gauge" => metrics::describe_gauge!(name, text),
            _ => metrics::describe_histogram!(name, text),
        }
    }
}

/// Name, type and meaning of each metric in the table.
fn described() -> impl Iterator<Item = (&'static str, &'static str, String)> {
    TABLE.lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("| `")?.split_once("` | ")?;
        let (sort, rest) = rest.split_once(" |")?;
        let (_, text) = rest.strip_suffix(" |")?.rsplit_once("| ")?;
        Some((name, sort, text.replace('`', "")))
    })
}

/// Measures memory, CPU and files of this process, for whoever is about to look at the metrics. It reads `/proc`, a line for each open
/// connection too, so it does nothing if somebody has just looked.
pub fn process_measure() {
    static COLLECTOR: LazyLock<Collector> = LazyLock::new(Collector::default);
    static LAST: Mutex<Option<Instant>> = Mutex::new(None);
    {
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_some_and(|last| last.elapsed() < PROCESS_MEASURE_PAUSE) {
            return;
        }
        *last = Some(Instant::now());
    }
    COLLECTOR.collect();
}

/// An error with its causes, in one line whatever they hold.
pub fn one_line(error: &(dyn Error + 'static)) -> String {
    let mut texts: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(cause) = next {
        next = cause.source();
        let text = cause.to_string();
        // Some errors of libraries repeat their cause in their own text.
        if !texts.last().is_some_and(|last| last.ends_with(&text)) {
            texts.push(text);
        }
    }
    let text = texts.join(": ");
    text.split(['\n', '\r'])
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::io::Write;
    use std::sync::Arc;

    use super::*;

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn logged(log: &str, log_format: LogFormat) -> String {
        let buffer = Buffer::default();
        let writer = buffer.clone();
        let settings = Settings {
            log: log.into(),
            log_format,
            ..Settings::default()
        };
        let subscriber = subscriber(&settings, move || writer.clone()).unwrap();
        tracing::subscriber::with_default(subscriber, || {
            tracing::debug!("quiet");
            tracing::warn!(slice = 7, "loud");
        });
        String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn text_lines_follow_the_filter() {
        let text = logged("info", LogFormat::Text);
        assert!(
            text.contains("WARN") && text.contains("loud") && text.contains("slice=7"),
            "{text}"
        );
        assert!(!text.contains("quiet"), "{text}");
        assert!(logged("thumbd=debug", LogFormat::Text).contains("quiet"));
        assert_eq!(logged("off", LogFormat::Text), "");
    }

    #[test]
    fn json_lines_are_objects_with_fields_at_the_top() {
        let line: serde_json::Value =
            serde_json::from_str(&logged("warn", LogFormat::Json)).unwrap();
        assert_eq!(line["message"], "loud");
        assert_eq!(line["slice"], 7);
        assert_eq!(line["level"], "WARN");
    }

    #[test]
    fn the_documentation_names_all_metrics_and_no_others() {
        let in_source: BTreeSet<&str> = include_str!("telemetry.rs")
            .lines()
            .filter_map(|line| {
                let (_, rest) = line
                    .trim()
                    .strip_prefix("pub const ")?
                    .split_once(": &str = \"")?;
                rest.strip_suffix("\";")
            })
            .collect();
        let in_documentation: BTreeSet<&str> = described()
            .map(|(name, _, _)| name)
            .filter(|name| name.starts_with("thumbd_"))
            .collect();
        assert!(in_source.contains(names::OPERATIONS), "{in_source:?}");
        assert_eq!(in_source, in_documentation);
    }

    #[test]
    fn histograms_have_buckets_and_the_handle_is_shared() {
        let handle = metrics_init().unwrap();
        metrics::histogram!(names::HTTP_REQUEST_SECONDS).record(0.004);
        let text = metrics_init().unwrap().render();
        assert_eq!(text, handle.render());
        assert!(
            text.contains("thumbd_http_request_seconds_bucket{le=\"0.005\"} 1"),
            "{text}"
        );
        let help = "# HELP thumbd_http_request_seconds how long a request took, from its head to its answer\n";
        assert!(text.contains(help), "{text}");
        assert!(
            text.contains("thumbd_http_request_seconds_bucket{le=\"0.003\"} 0"),
            "{text}"
        );
    }
}
