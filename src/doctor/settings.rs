//! The settings by themselves, the files of their secrets, and what this machine allows.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::{Notes, Subject};
use crate::config::{KeyRule, Settings};
use crate::limits::{ADMIN_CONNECTIONS_MAX, DOCTOR_FILES_SPARE};
use crate::telemetry::one_line;

/// Permissions of everybody, and of the group to write: whoever has them may read or change a secret.
const TOO_MANY: u32 = 0o027;

pub(super) fn check(notes: &mut Notes, subject: &Subject) {
    match &subject.settings {
        Ok(settings) => {
            notes.ok("values", "all settings are allowed and fit together");
            keys(notes, settings);
            open_files(notes, settings);
        }
        Err(error) => notes.fail(
            "values",
            one_line(error),
            "correct it; `thumbd serve --help` lists all settings with what they allow",
        ),
    }
    secret_files(notes, &subject.secret_files);
}

fn keys(notes: &mut Notes, settings: &Settings) {
    match settings.check_keys(KeyRule::Required) {
        Ok(()) => notes.ok("keys", "callers and administrators have keys"),
        Err(error) => notes.fail(
            "keys",
            format!("serve refuses to start: {error}"),
            "export THUMBD_SERVICE_KEY=$(openssl rand -hex 24) THUMBD_ADMIN_TOKEN=$(openssl rand -hex 24)",
        ),
    }
}

fn secret_files(notes: &mut Notes, files: &[(&'static str, impl AsRef<Path>)]) {
    for (setting, path) in files {
        let path = path.as_ref().display();
        match std::fs::metadata(path.to_string()) {
            Ok(metadata) => {
                let mode = metadata.mode() & 0o7777;
                if mode & TOO_MANY == 0 {
                    notes.ok("files", format!("{path} has mode {mode:04o}"));
                } else {
                    notes.warn(
                        "files",
                        format!("{path}, which holds {setting}, has mode {mode:04o}: others may read or change it"),
                        format!("chmod u=rw,g=r,o= {path}"),
                    );
                }
            }
            Err(error) => notes.fail(
                "files",
                format!("{path}, which holds {setting}: {error}"),
                "give the user of thumbd the right to look at it",
            ),
        }
    }
}

/// Each connection is an open file.
fn open_files(notes: &mut Notes, settings: &Settings) {
    let Some(allowed) = files_max() else {
        notes.skip(
            "open files",
            "this system does not say how many a process may have",
        );
        return;
    };
    let admin = if settings.admin_listen.is_some() {
        ADMIN_CONNECTIONS_MAX
    } else {
        0
    };
    let connections = (settings.connections_max + admin) as u64;
    let needed = connections + u64::from(settings.database_connections_max) + DOCTOR_FILES_SPARE;
    let found = format!(
        "{allowed} allowed for a process started from here, {needed} needed at most (connections_max {})",
        settings.connections_max
    );
    if needed > allowed {
        notes.warn(
            "open files",
            found,
            format!("ulimit -n {needed} before the start (LimitNOFILE={needed} in a systemd unit), or a lower THUMBD_CONNECTIONS_MAX"),
        );
    } else {
        notes.ok("open files", found);
    }
}

/// The soft limit, where the system tells it.
fn files_max() -> Option<u64> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    match line.split_whitespace().next()? {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    }
}
