//! `thumbd completions`: scripts with which shells complete commands and flags.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Arg, ArgMatches, Command, value_parser};
use clap_complete::Shell;

/// The command and its arguments.
pub(super) fn command() -> Command {
    Command::new("completions")
        .about("Print a script with which a shell completes commands and flags")
        .arg(
            Arg::new("shell")
                .value_name("SHELL")
                .required(true)
                .value_parser(value_parser!(Shell))
                .help("Which shell it is for"),
        )
}

/// Runs the command.
pub(super) fn run(arguments: &ArgMatches) -> anyhow::Result<ExitCode> {
    let shell: Shell = *arguments.get_one("shell").context("no shell")?;
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut super::command(), "thumbd", &mut script);
    // A closed pipe behind it is nobody's problem.
    let _ = std::io::stdout().write_all(&script);
    Ok(ExitCode::SUCCESS)
}
