//! `thumbd serve`: the service on the servers that the settings name.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Command;
use tokio_util::sync::CancellationToken;

use super::signals::Signals;
use crate::app::App;
use crate::config::{ConfigError, KeyRule, Settings};
use crate::telemetry::one_line;

/// The command and its arguments.
pub(super) fn command() -> Command {
    Command::new("serve")
        .about("Serve likes over HTTP, on the Redis and the database of the settings")
}

/// Runs the command.
pub async fn run(settings: Settings) -> anyhow::Result<ExitCode> {
    settings.check_keys(KeyRule::Required)?;
    settings.require_redis_url()?;
    settings.require_database_url()?;
    // Until then a signal just ends the process: nothing was accepted yet.
    let app = App::build(settings).await.map_err(with_hint)?;
    let signals = Signals::listen().context("signals cannot be listened to")?;
    tracing::info!(address = %app.address(), version = env!("CARGO_PKG_VERSION"), "serving");
    if let Some(address) = app.admin_address() {
        tracing::info!(%address, "serving operators");
    }
    let token = CancellationToken::new();
    tokio::select! {
        result = app.run_until_stopped(token.clone()) => result?,
        never = signals.watch(token) => match never {},
    }
    Ok(ExitCode::SUCCESS)
}

/// Names the command that knows more, unless it is a setting that is wrong, or the address that is taken.
fn with_hint(error: anyhow::Error) -> anyhow::Error {
    if error.is::<ConfigError>() || error.is::<std::io::Error>() {
        return error;
    }
    let text = one_line(error.as_ref());
    anyhow::anyhow!("{text}; `thumbd doctor` with the same settings says more")
}
