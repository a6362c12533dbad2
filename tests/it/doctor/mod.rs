//! `thumbd doctor` on real servers: all is well, each thing that may be wrong is found, and nothing is changed by looking.

mod database;
mod program;
mod redis;
mod together;

use thumbd::config::{Secret, Settings};
use thumbd::doctor::{self, Check, Report, Status, Subject};

use crate::app::{ADMIN_TOKEN, SERVICE_KEY};
use crate::servers::TestEnv;
use crate::stand::{self, Stand};

/// Nobody listens there.
const NOBODY: &str = "127.0.0.1:1";
const PASSWORD: &str = "pw-Right-7";
const WRONG: &str = "pw-Wrong-8";

/// Settings that are well in themselves.
fn well(settings: Settings) -> Settings {
    Settings {
        service_key: Some(Secret::new(SERVICE_KEY)),
        admin_token: Some(Secret::new(ADMIN_TOKEN)),
        connections_max: 100,
        ..settings
    }
}

/// A stand on the shared servers, with likes that have landed.
async fn stand() -> Stand {
    let t = Stand::on(Settings {
        slice_seconds: 3600,
        ..well(stand::settings(1).await)
    })
    .await;
    t.like("u1", "blog:1").await.unwrap();
    t.flush().await;
    t
}

fn on(env: &TestEnv) -> Settings {
    well(Settings {
        redis_url: Some(Secret::new(&env.redis_url)),
        database_url: Some(Secret::new(&env.database_url)),
        key_prefix: env.key_prefix.clone(),
        ..Settings::default()
    })
}

async fn look(settings: &Settings) -> Report {
    let subject = Subject {
        settings: Ok(settings.clone()),
        secret_files: Vec::new(),
        instances: 1,
    };
    doctor::run(&subject).await
}

/// All that is not well, in short, but for what the shared servers are by intention, and for a machine that is busy.
fn bad(report: &Report) -> Vec<String> {
    let usual = [
        "failure redis persistence",
        "warning database durability",
        "warning redis latency",
        "warning database latency",
    ];
    let checks = report.checks.iter();
    let bad = checks.filter(|check| check.status != Status::Ok).map(short);
    bad.filter(|short| !usual.contains(&&**short)).collect()
}

fn short(check: &Check) -> String {
    format!(
        "{} {} {}",
        check.status.name(),
        check.part.name(),
        check.name
    )
}

/// The one check of this kind, which has all these words in what was found or in what to do.
fn says(report: &Report, wanted: &str, words: &[&str]) {
    let found = report.checks.iter().find(|check| short(check) == wanted);
    let found = found.unwrap_or_else(|| panic!("no {wanted}: {report:#?}"));
    let text = format!("{} {}", found.found, found.fix.as_deref().unwrap_or(""));
    for word in words {
        assert!(text.contains(word), "'{word}' is missing: {text}");
    }
    no_secrets(&format!("{report:?}"));
}

fn no_secrets(text: &str) {
    for secret in [PASSWORD, WRONG, SERVICE_KEY, ADMIN_TOKEN] {
        assert!(!text.contains(secret), "{text}");
    }
}
