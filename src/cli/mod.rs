//! The command line: one file a command, each with its own arguments. Settings come from `config`; what a command does lies in the modules that it calls.
#![warn(clippy::print_stdout)]

mod compare;
pub mod compensate;
mod completions;
pub mod dev;
mod dev_text;
mod doctor;
mod export;
mod feed;
pub mod flush;
mod import;
mod key;
mod lines;
pub mod load;
pub mod migrate;
mod mirror;
mod quarantine;
mod repair;
mod say;
pub mod serve;
mod signals;
pub mod verify;

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Arg, ArgMatches, Command};

use crate::config::{CONFIG_FLAG, ConfigError, Environment, Group, Settings, flags, table};
use crate::telemetry::{self, one_line};

/// Exit code of a command line that is wrong.
const USAGE: u8 = 2;

const ALL: &[Group] = &[
    Group::Service,
    Group::Redis,
    Group::Database,
    Group::Jobs,
    Group::Residents,
    Group::Gathering,
    Group::Feed,
    Group::Http,
];
const BOTH_STORES: &[Group] = &[Group::Redis, Group::Database, Group::Jobs, Group::Residents];

/// The whole command line.
pub fn command() -> Command {
    let config = Arg::new(CONFIG_FLAG)
        .long(CONFIG_FLAG)
        .value_name("FILE")
        .global(true)
        .help("TOML file with settings [env: THUMBD_CONFIG]");
    let log = flags(&[Group::Log]).into_iter().map(|arg| arg.global(true));
    Command::new("thumbd")
        .version(env!("CARGO_PKG_VERSION"))
        .about("A like service: Redis answers at once, MySQL keeps the durable truth.")
        .after_help(
            "Settings come from flags, then THUMBD_ variables, then the TOML file, then defaults.\n\
             Exit codes: 0 done, 1 failed or differences found, 2 wrong command line.",
        )
        .subcommand_required(true)
        .arg_required_else_help(true)
        .arg(config)
        .args(log)
        .subcommand(with_settings(serve::command(), ALL))
        .subcommand(with_settings(dev::command(), ALL))
        .subcommand(with_settings(migrate::command(), &[Group::Database]))
        .subcommand(with_settings(flush::command(), BOTH_STORES))
        .subcommand(with_settings(compensate::command(), BOTH_STORES))
        .subcommand(with_settings(verify::command(), BOTH_STORES))
        .subcommand(with_settings(repair::command(), BOTH_STORES))
        .subcommand(with_settings(doctor::command(), ALL))
        .subcommand(quarantine::command())
        .subcommand(feed::command())
        .subcommand(mirror::command())
        .subcommand(key::command())
        .subcommand(with_settings(import::command(), BOTH_STORES))
        .subcommand(with_settings(export::command(), &[Group::Database]))
        .subcommand(with_settings(compare::command(), &[Group::Database]))
        .subcommand(load::command())
        .subcommand(completions::command())
}

/// Adds the flags of these groups, and names their secrets, which have none.
pub(super) fn with_settings(command: Command, groups: &[Group]) -> Command {
    let secrets: Vec<String> = table()
        .iter()
        .filter(|setting| setting.secret && groups.contains(&setting.group))
        .map(|setting| format!("  {:<26} {}", setting.variable(), setting.help))
        .collect();
    let secrets = format!(
        "Secrets (never flags; also as …_FILE, which names a file, or in the TOML file):\n{}",
        secrets.join("\n")
    );
    command.args(flags(groups)).after_help(secrets)
}

/// Runs a command line to its exit code. Errors are one line on stderr.
pub fn run(arguments: impl IntoIterator<Item = OsString>, environment: &Environment) -> ExitCode {
    let matches = match command().try_get_matches_from(arguments) {
        Ok(matches) => matches,
        Err(error) => {
            // A closed pipe behind --help is nobody's problem.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(USAGE));
        }
    };
    match dispatch(&matches, environment) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("thumbd: {}", one_line(error.as_ref()));
            let usage = error
                .downcast_ref::<ConfigError>()
                .is_some_and(ConfigError::is_usage);
            if usage {
                ExitCode::from(USAGE)
            } else {
                ExitCode::FAILURE
            }
        }
    }
}

fn dispatch(matches: &ArgMatches, environment: &Environment) -> anyhow::Result<ExitCode> {
    let (name, arguments) = matches.subcommand().context("no command")?;
    // They need no settings.
    match name {
        // It makes some.
        "key" => return key::run(arguments),
        "completions" => return completions::run(arguments),
        _ => {}
    }
    // Of a command of commands the innermost knows all flags.
    let innermost = arguments.subcommand().map_or(arguments, |(_, inner)| inner);
    let settings = Settings::load(innermost, environment);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("the runtime cannot start")?;
    let result = runtime.block_on(async {
        if name == "doctor" {
            return doctor::run(arguments, settings, environment).await;
        }
        let settings = settings?;
        telemetry::log_init(&settings)?;
        match name {
            "serve" => serve::run(settings).await,
            "dev" => dev::run(settings, dev::Arguments::read(arguments)?).await,
            "migrate" => migrate::run(settings).await,
            "flush" => flush::run(settings).await,
            "compensate" => compensate::run(settings).await,
            "verify" => verify::run(settings).await,
            "quarantine" => {
                quarantine::run(settings, quarantine::Arguments::read(arguments)?).await
            }
            "feed" => feed::run(settings, feed::Arguments::read(arguments)?).await,
            "mirror" => mirror::run(settings, mirror::Arguments::read(arguments)?).await,
            "repair" => repair::run(settings).await,
            "import" => import::run(settings, import::Arguments::read(arguments)?).await,
            "export" => export::run(settings, export::Arguments::read(arguments)).await,
            "compare" => compare::run(settings, compare::Arguments::read(arguments)?).await,
            "load" => load::run(settings, load::Arguments::read(arguments)?).await,
            _ => anyhow::bail!("no command {name}"),
        }
    });
    // Commands drain what they started; only a read of standard input may be left, and cannot be ended.
    runtime.shutdown_background();
    result
}

#[cfg(test)]
mod tests;
