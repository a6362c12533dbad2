//! `thumbd key`: makes a key and shows the lines that name it in the settings. It is stored nowhere.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::{Arg, ArgMatches, Command};

use super::say::say;
use crate::auth::{NamedKey, digest};

pub(super) fn command() -> Command {
    Command::new("key")
        .about("Make a key and the settings that name it; it is shown once and stored nowhere")
        .arg(
            Arg::new("name")
                .value_name("NAME")
                .required(true)
                .help("What it is called in the settings: 1 to 64 letters, digits, '-' and '_'"),
        )
        .arg(
            Arg::new("rights")
                .long("rights")
                .value_name("LIST")
                .default_value("write")
                .help("What its holder may do: read, write (includes read), admin"),
        )
        .arg(
            Arg::new("for-kinds")
                .long("for-kinds")
                .value_name("LIST")
                .help("With which kinds, if not with all"),
        )
}

pub(super) fn run(arguments: &ArgMatches) -> anyhow::Result<ExitCode> {
    let text = |name: &str| arguments.get_one::<String>(name).map(String::as_str);
    let hex = |bytes: &[u8]| {
        bytes.iter().fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        })
    };
    // The prefix lets those who look for leaked secrets find it.
    let key = format!("thumbd_{}", hex(&rand::random::<[u8; 32]>()));
    let list = |text: &str| -> Vec<String> {
        text.split(',').map(|part| part.trim().to_owned()).collect()
    };
    let mut table = toml::Table::new();
    table.insert("name".into(), text("name").unwrap_or_default().into());
    table.insert("sha256".into(), hex(&digest(key.as_bytes())).into());
    table.insert(
        "rights".into(),
        list(text("rights").unwrap_or_default()).into(),
    );
    if let Some(kinds) = text("for-kinds") {
        table.insert("kinds".into(), list(kinds).into());
    }
    // What the settings would refuse is refused here.
    NamedKey::parse_list(&serde_json::to_string(&[&table])?).map_err(anyhow::Error::msg)?;
    say!(
        "# The key, for its holder alone:\n# {key}\n[[keys]]\n{}",
        table.to_string().trim_end()
    );
    Ok(ExitCode::SUCCESS)
}
