//! The only composition root: builds all parts from the settings, runs them, and drains them in order.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::TcpListener;
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::config::{FeedTarget, Settings};
use crate::feed::Relay;
use crate::http::{self, Drained, Server};
use crate::jobs::Jobs;
use crate::ledger::{Ledger, LedgerOptions};
use crate::limits::{ADMIN_CONNECTIONS_MAX, HEARTBEAT_PAUSE, METRICS_UPKEEP};
use crate::live::Live;
use crate::relayout;
use crate::service::{Service, connect_ledger};
use crate::telemetry;

/// A thumbd that is ready to run.
pub struct App {
    address: SocketAddr,
    admin_address: Option<SocketAddr>,
    server: Server,
    /// For operators, on an address of its own.
    admin: Option<Server>,
    service: Service,
    jobs: Jobs,
    live: Live,
    relay: Option<Relay>,
    metrics: PrometheusHandle,
    request_timeout: Duration,
    shutdown: Duration,
    notice: Duration,
}

impl App {
    /// Binds the address, brings the schema up to date if the settings say so, connects and starts the jobs.
    pub async fn build(settings: Settings) -> anyhow::Result<Self> {
        settings.require_webhook()?;
        let metrics = telemetry::metrics_init()?;
        let (listener, address) = listen(settings.listen, "THUMBD_LISTEN, --listen").await?;
        let admin = match settings.admin_listen {
            Some(address) => Some(listen(address, "THUMBD_ADMIN_LISTEN, --admin-listen").await?),
            None => None,
        };
        let ledger = connect_ledger(&settings)?;
        let mut reached = ledger.reach().await;
        if reached.is_ok() {
            reached = ledger.check_schema().await;
        }
        if reached.is_ok() {
            reached = ledger.check_rights().await;
        }
        if reached.is_ok() && !settings.migrate_at_start {
            reached = ledger.check_migrated().await;
        }
        ledger.close().await;
        reached.context("database")?;
        if settings.migrate_at_start {
            migrate(&settings).await?;
        }
        relayout::ensure(&settings).await?;
        let service = Service::build(&settings).await?;
        let told = settings.feed != FeedTarget::Off;
        let set = service.ledger().feed_set(told, settings.feed_backlog_max);
        set.await.context("the change feed")?;
        let relay = told.then(|| Relay::new(&settings, &service)).transpose()?;
        let jobs = Jobs::start(&settings, &service).await?;
        let live = Live::start(&settings, &service, &jobs, &address.to_string());
        let fronts = http::fronts(
            &settings,
            service.clone(),
            jobs.clone(),
            live.clone(),
            metrics.clone(),
        );
        let server = |listener, front, max| Server::new(listener, front, &settings, max);
        Ok(Self {
            address,
            admin_address: admin.as_ref().map(|(_, address)| *address),
            server: server(listener, fronts.public, settings.connections_max),
            admin: admin
                .zip(fronts.inner)
                .map(|((listener, _), front)| server(listener, front, ADMIN_CONNECTIONS_MAX)),
            service,
            jobs,
            live,
            relay,
            metrics,
            request_timeout: Duration::from_millis(settings.request_timeout_ms),
            shutdown: Duration::from_secs(settings.shutdown_seconds),
            notice: Duration::from_millis(settings.shutdown_notice_ms),
        })
    }

    /// Where it listens: the real port, also if the settings asked for any.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where operators find it, if that is another address.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin_address
    }

    /// The jobs, to run one by hand.
    pub fn jobs(&self) -> &Jobs {
        &self.jobs
    }

    /// The service, without HTTP.
    pub fn service(&self) -> &Service {
        &self.service
    }

    /// Serves until `token` is cancelled, and as long as settings say behind it, or a background task has died; then answers what is under way and flushes.
    pub async fn run_until_stopped(self, token: CancellationToken) -> anyhow::Result<()> {
        let relay = self
            .relay
            .map(|relay| AbortOnDropHandle::new(tokio::spawn(relay.run())));
        let stop = async {
            token.cancelled().await;
            self.server.leave();
            tokio::time::sleep(self.notice).await;
        };
        let result = tokio::select! {
            () = stop => Ok(()),
            error = self.jobs.failed() => Err(error.context("a background task died")),
            error = self.server.accept() => Err(error.into()),
            Some(error) = accept(self.admin.as_ref()) => Err(error.into()),
            Some(died) = join(relay) => Err(anyhow::Error::from(died).context("the relay of the change feed died")),
            never = upkeep(&self.metrics) => match never {},
        };
        let begun = Instant::now();
        // Half of the time at most belongs to the requests: the flush must have the other.
        let drain = self.request_timeout.min(self.shutdown / 2);
        let admin = async {
            match self.admin {
                Some(server) => server.drain(drain).await,
                None => Drained::Whole,
            }
        };
        let (public, admin) = tokio::join!(self.server.drain(drain), admin);
        for drained in [public, admin] {
            if let Drained::Cut(count) = drained {
                tracing::warn!(count, "requests took too long and were cut");
            }
        }
        let _ = tokio::time::timeout(HEARTBEAT_PAUSE, self.live.sign_off()).await;
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

async fn listen(wanted: SocketAddr, setting: &str) -> anyhow::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(wanted).await;
    let listener = listener.with_context(|| format!("cannot listen on {wanted} ({setting})"))?;
    let address = listener.local_addr().context("the socket has no address")?;
    Ok((listener, address))
}

async fn accept(server: Option<&Server>) -> Option<std::io::Error> {
    Some(server?.accept().await)
}

/// Brings the schema up to date, by a connection of its own.
pub async fn migrate(settings: &Settings) -> anyhow::Result<()> {
    let options = LedgerOptions {
        connections_max: 1,
        acquire_timeout: Duration::from_millis(settings.database_acquire_timeout_ms),
        statement_timeout: Duration::from_millis(settings.database_statement_timeout_ms),
    };
    let url = settings.require_database_url()?;
    let ledger = Ledger::connect(url.expose(), options)?;
    let mut result = ledger.check_schema().await;
    if result.is_ok() {
        result = ledger.migrate().await;
    }
    ledger.close().await;
    result.context("the schema cannot be brought up to date")
}

/// Waits until the relay has died, if there is one.
async fn join(relay: Option<AbortOnDropHandle<std::convert::Infallible>>) -> Option<JoinError> {
    relay?.await.err()
}

/// Folds the histograms now and then.
async fn upkeep(metrics: &PrometheusHandle) -> std::convert::Infallible {
    loop {
        tokio::time::sleep(METRICS_UPKEEP).await;
        metrics.run_upkeep();
    }
}
