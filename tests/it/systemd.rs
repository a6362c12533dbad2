//! The unit for systemd: its numbers fit the settings, its names are settings, and systemd finds no fault in it.

use std::process::Command;

use thumbd::config::{Settings, table};

const UNIT: &str = include_str!("../../ops/systemd/thumbd.service");

/// Values of a directive, in order.
fn values<'a>(name: &'a str) -> impl Iterator<Item = &'static str> + 'a {
    let value = move |line: &'static str| line.strip_prefix(name)?.strip_prefix('=');
    UNIT.lines().filter_map(value)
}

fn number(name: &str) -> u64 {
    values(name).next().unwrap().parse().unwrap()
}

#[test]
fn the_unit_fits_the_settings() {
    let settings = Settings::default();
    assert!(number("TimeoutStopSec") > settings.shutdown_seconds);
    let files = settings.connections_max as u64 + u64::from(settings.database_connections_max);
    assert!(number("LimitNOFILE") > files + 200);
    let loaded: Vec<&str> = values("LoadCredential").collect();
    let mut named = 0;
    for variable in values("Environment") {
        let (variable, path) = variable.split_once('=').unwrap();
        let setting = table()
            .iter()
            .find(|one| one.variable() + "_FILE" == variable);
        let setting = setting.unwrap_or_else(|| panic!("{variable} is no setting"));
        assert!(setting.secret);
        assert_eq!(path, format!("%d/{}", setting.name));
        let file = format!("{0}:/etc/thumbd/secrets/{0}", setting.name);
        assert!(loaded.contains(&&*file), "{file}");
        named += 1;
    }
    assert_eq!(named, loaded.len());
}

/// Where systemd is installed.
#[test]
fn systemd_finds_no_fault_in_the_unit() {
    let directory = tempfile::tempdir().unwrap();
    let unit = directory.path().join("thumbd.service");
    let program = env!("CARGO_BIN_EXE_thumbd");
    std::fs::write(&unit, UNIT.replace("/usr/local/bin/thumbd", program)).unwrap();
    let verify = Command::new("systemd-analyze")
        .args(["verify", "--man=no"])
        .arg(&unit)
        .output();
    match verify {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && text.is_empty(), "{text}");
        }
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound),
    }
}
