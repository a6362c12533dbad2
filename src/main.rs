//! The `thumbd` program: parse, call, exit code.

use std::process::ExitCode;

use thumbd::cli;
use thumbd::config::Environment;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::run(std::env::args_os(), &Environment::of_process())
}
