//! `thumbd doctor`: whether the settings and both servers are as they should be, one line a check.

use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde_json::json;

use super::USAGE;
use super::say::{say, say_text};
use crate::config::{ConfigError, Environment, Settings, secret_files};
use crate::doctor::{Report, Status, Subject};
use crate::telemetry;

/// The command and its arguments.
pub(super) fn command() -> Command {
    let flag = |name| Arg::new(name).long(name).action(ArgAction::SetTrue);
    Command::new("doctor")
        .about("Check the settings and both servers, change nothing, and say what to do; exit 1 if anything fails")
        .arg(flag("json").help("Print one JSON object"))
        .arg(flag("strict").help("Exit 1 for warnings too"))
        .arg(
            Arg::new("instances")
                .long("instances")
                .value_name("N")
                .default_value("1")
                .value_parser(value_parser!(u32).range(1..=10_000))
                .help("How many thumbd serve are to run: all their connections must fit into the database"),
        )
}

/// Runs the command. Settings that cannot be read are its first finding.
pub(super) async fn run(
    arguments: &ArgMatches,
    settings: Result<Settings, ConfigError>,
    environment: &Environment,
) -> anyhow::Result<ExitCode> {
    if let Ok(settings) = &settings {
        telemetry::log_init(settings)?;
    }
    let subject = Subject {
        settings,
        // What cannot be read there is told with the settings.
        secret_files: secret_files(arguments, environment).unwrap_or_default(),
        instances: arguments.get_one("instances").copied().unwrap_or(1),
    };
    let report = crate::doctor::run(&subject).await;
    if arguments.get_flag("json") {
        say!("{:#}", json(&report));
    } else {
        say_text(&text(&report));
    }
    let usage = subject.settings.as_ref().err();
    Ok(if usage.is_some_and(ConfigError::is_usage) {
        ExitCode::from(USAGE)
    } else if report.count(Status::Failure) > 0
        || arguments.get_flag("strict") && report.count(Status::Warning) > 0
    {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn json(report: &Report) -> serde_json::Value {
    json!({
        "checks": report.checks,
        "ok": report.count(Status::Ok),
        "warnings": report.count(Status::Warning),
        "failures": report.count(Status::Failure),
        "skipped": report.count(Status::Skipped),
    })
}

/// A line a check, and one that sums up.
fn text(report: &Report) -> String {
    let mut text = String::new();
    for check in &report.checks {
        let what = format!("{} {}", check.part.name(), check.name);
        text += &format!("{:<8} {what:<22} {}", check.status.name(), check.found);
        if let Some(fix) = &check.fix {
            text += &format!(" | fix: {fix}");
        }
        text.push('\n');
    }
    text + &format!(
        "{} ok, {} warnings, {} failures, {} skipped\n",
        report.count(Status::Ok),
        report.count(Status::Warning),
        report.count(Status::Failure),
        report.count(Status::Skipped)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::{Check, Part};

    fn report() -> Report {
        let check = |part, name, status, fix: Option<&str>| Check {
            part,
            name,
            status,
            found: "so it is".to_owned(),
            fix: fix.map(str::to_owned),
        };
        Report {
            checks: vec![
                check(Part::Settings, "values", Status::Ok, None),
                check(Part::Redis, "eviction", Status::Failure, Some("CONFIG SET")),
                check(Part::Both, "clocks", Status::Skipped, None),
            ],
        }
    }

    #[test]
    fn a_check_is_a_line_with_its_fix() {
        insta::assert_snapshot!(text(&report()), @r"
        ok       settings values        so it is
        failure  redis eviction         so it is | fix: CONFIG SET
        skipped  both clocks            so it is
        1 ok, 0 warnings, 1 failures, 1 skipped
        ");
    }

    #[test]
    fn json_has_the_same() {
        let json = json(&report());
        assert_eq!(json["failures"], 1);
        let fix = serde_json::json!({
            "part": "redis",
            "name": "eviction",
            "status": "failure",
            "found": "so it is",
            "fix": "CONFIG SET",
        });
        assert_eq!(json["checks"][1], fix);
        assert_eq!(json["checks"][0]["fix"], serde_json::Value::Null);
    }
}
