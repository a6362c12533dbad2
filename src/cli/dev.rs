//! `thumbd dev`: the service on private servers of its own, for trying it out and for working on it.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Arg, ArgMatches, Command, value_parser};
use tokio_util::sync::CancellationToken;

use super::dev_text;
use super::signals::Signals;
use crate::app::App;
use crate::config::{KeyRule, Secret, Settings};
use crate::dev::Servers;

/// The command and its arguments.
pub(super) fn command() -> Command {
    Command::new("dev")
        .about("Serve likes on private Redis and database servers, which it starts and stops")
        .arg(
            Arg::new("data")
                .long("data")
                .value_name("DIR")
                .default_value(".thumbd")
                .value_parser(value_parser!(PathBuf))
                .help("Directory in which the servers keep their data"),
        )
}

/// What only this command is told.
#[derive(Debug, Clone)]
pub struct Arguments {
    /// Directory of the servers' data.
    pub data: PathBuf,
}

impl Arguments {
    /// Takes the arguments from the command line.
    pub(super) fn read(matches: &ArgMatches) -> anyhow::Result<Self> {
        let data = matches
            .get_one::<PathBuf>("data")
            .context("--data is missing")?;
        Ok(Self { data: data.clone() })
    }
}

/// Runs the command.
pub async fn run(settings: Settings, arguments: Arguments) -> anyhow::Result<ExitCode> {
    settings.check_keys(KeyRule::OptionalOnLoopback)?;
    let signals = Signals::listen().context("signals cannot be listened to")?;
    let token = CancellationToken::new();
    tokio::select! {
        result = serve(settings, arguments, token.clone()) => result?,
        never = signals.watch(token) => match never {},
    }
    Ok(ExitCode::SUCCESS)
}

/// The servers start first and stop last: the last flush goes into them.
async fn serve(
    settings: Settings,
    arguments: Arguments,
    token: CancellationToken,
) -> anyhow::Result<()> {
    let mut servers = Servers::start(&arguments.data).await?;
    let settings = Settings {
        redis_url: Some(Secret::new(servers.redis_url())),
        database_url: Some(Secret::new(servers.database_url())),
        ..settings
    };
    let result = tokio::select! {
        result = run_app(&settings, &arguments.data, token.clone()) => result,
        // A stop is on its way already where the token is cancelled; the app then has its own time limit.
        error = servers.died() => Err(error.into()),
    };
    let stopped = servers.stop().await;
    result?;
    Ok(stopped?)
}

async fn run_app(settings: &Settings, data: &Path, token: CancellationToken) -> anyhow::Result<()> {
    let config = data.join("thumbd.toml");
    let text = dev_text::config(settings)?;
    write_private(&config, &text).with_context(|| format!("cannot write {}", config.display()))?;
    let app = tokio::select! {
        app = App::build(settings.clone()) => app?,
        () = token.cancelled() => return Ok(()),
    };
    // As it was called, so that the lines work where they are pasted.
    let program = std::env::args().next().unwrap_or_else(|| "thumbd".into());
    // Whoever closed the pipe does not want to read it.
    let addresses = (app.address(), app.admin_address());
    let text = dev_text::welcome(settings, addresses, &config, &program);
    let _ = std::io::stdout().write_all(text.as_bytes());
    app.run_until_stopped(token).await
}

/// Only the owner may read it: it names servers without passwords. The rename keeps readers from half a file.
fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    let new = path.with_extension("toml.new");
    let _ = std::fs::remove_file(&new);
    let mut options = std::fs::OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)?;
    file.write_all(text.as_bytes())?;
    std::fs::rename(&new, path)
}
