//! The only composition root: builds all parts from the settings, runs them, and drains them in order.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::config::Settings;
use crate::http::{self, Drained, Server};
use crate::jobs::Jobs;
use crate::ledger::{Ledger, LedgerOptions};
use crate::limits::METRICS_UPKEEP;
use crate::relayout;
use crate::service::{Service, connect_ledger};
use crate::telemetry;

/// A thumbd that is ready to run.
pub struct App {
    address: SocketAddr,
    server: Server,
    service: Service,
    jobs: Jobs,
    metrics: PrometheusHandle,
    request_timeout: Duration,
    shutdown: Duration,
}

impl App {
    /// Binds the address, brings the schema up to date if the settings say so, connects and starts the jobs.
    pub async fn build(settings: Settings) -> anyhow::Result<Self> {
        let metrics = telemetry::metrics_init()?;
        let listener = TcpListener::bind(settings.listen).await;
        let listener = listener.with_context(|| format!("cannot listen on {}", settings.listen))?;
        let address = listener.local_addr().context("the socket has no address")?;
        let ledger = connect_ledger(&settings)?;
        let reached = ledger.reach().await;
        ledger.close().await;
        reached.context("database")?;
        if settings.migrate_at_start {
            migrate(&settings).await?;
        }
        relayout::ensure(&settings).await?;
        let service = Service::build(&settings).await?;
        let jobs = Jobs::start(&settings, &service).await?;
        let front = http::front(&settings, service.clone(), jobs.clone(), metrics.clone());
        Ok(Self {
            address,
            server: Server::new(listener, front, &settings),
            service,
            jobs,
            metrics,
            request_timeout: Duration::from_millis(settings.request_timeout_ms),
            shutdown: Duration::from_secs(settings.shutdown_seconds),
        })
    }

    /// Where it listens: the real port, also if the settings asked for any.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The jobs, to run one by hand.
    pub fn jobs(&self) -> &Jobs {
        &self.jobs
    }

    /// The service, without HTTP.
    pub fn service(&self) -> &Service {
        &self.service
    }

    /// Serves until `token` is cancelled or a background task has died; then answers what is under way and flushes.
    pub async fn run_until_stopped(self, token: CancellationToken) -> anyhow::Result<()> {
        let result = tokio::select! {
            () = token.cancelled() => Ok(()),
            error = self.jobs.failed() => Err(error.context("a background task died")),
            error = self.server.accept() => Err(error.into()),
            never = upkeep(&self.metrics) => match never {},
        };
        let begun = Instant::now();
        // Half of the time at most belongs to the requests: the flush must have the other.
        let drain = self.request_timeout.min(self.shutdown / 2);
        if let Drained::Cut(count) = self.server.drain(drain).await {
            tracing::warn!(count, "requests took too long and were cut");
        }
        let left = self.shutdown.saturating_sub(begun.elapsed());
        let flushed = match tokio::time::timeout(left, self.jobs.stop()).await {
            Ok(Ok(report)) => {
                tracing::info!(slices = report.slices, entries = report.entries, "flushed");
                Ok(())
            }
            Ok(Err(error)) => Err(error).context(UNFLUSHED),
            Err(_) => Err(anyhow::anyhow!("shutdown_seconds are over")).context(UNFLUSHED),
        };
        // What came first is the cause of what came later.
        result.and(flushed)
    }
}

const UNFLUSHED: &str = "the last flush did not end; Redis keeps what is left for the next start";

/// Brings the schema up to date, by a connection of its own.
pub async fn migrate(settings: &Settings) -> anyhow::Result<()> {
    let options = LedgerOptions {
        connections_max: 1,
        acquire_timeout: Duration::from_millis(settings.database_acquire_timeout_ms),
        statement_timeout: Duration::from_millis(settings.database_statement_timeout_ms),
    };
    let url = settings.require_database_url()?;
    let ledger = Ledger::connect(url.expose(), options)?;
    let result = ledger.migrate().await;
    ledger.close().await;
    result.context("the schema cannot be brought up to date")
}

/// Folds the histograms now and then.
async fn upkeep(metrics: &PrometheusHandle) -> std::convert::Infallible {
    loop {
        tokio::time::sleep(METRICS_UPKEEP).await;
        metrics.run_upkeep();
    }
}
