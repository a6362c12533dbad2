//! The program itself: what it prints, its exit codes, what it leaves as it was; and completions of the command line.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use redis::IntoConnectionInfo as _;
use serde_json::Value;
use sqlx::{AssertSqlSafe, MySqlPool, Row as _};
use thumbd::dev::{RedisOptions, RedisServer, SqlOptions, SqlServer};

use super::{NOBODY, PASSWORD, no_secrets};
use crate::app::{ADMIN_TOKEN, SERVICE_KEY};
use crate::process::thumbd;
use crate::serve::Serve;
use crate::servers::{self, TestEnv};
use crate::stand;

/// Exit code and output.
fn run(words: &[&str], variables: &[(String, String)]) -> (Option<i32>, String) {
    let output = crate::serve::run(words, variables)
        .wait_with_output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(errors, "");
    no_secrets(&text);
    (output.status.code(), text)
}

fn variables(env: &TestEnv) -> Vec<(String, String)> {
    let variables = [
        ("THUMBD_SERVICE_KEY", SERVICE_KEY),
        ("THUMBD_ADMIN_TOKEN", ADMIN_TOKEN),
        ("THUMBD_REDIS_URL", &env.redis_url),
        ("THUMBD_DATABASE_URL", &env.database_url),
        ("THUMBD_KEY_PREFIX", &env.key_prefix),
        ("THUMBD_CONNECTIONS_MAX", "100"),
    ];
    variables
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec()
}

/// What both stores hold, down to the last byte.
async fn everything(env: &TestEnv) -> (String, String, BTreeMap<String, String>) {
    let settings = super::on(env);
    let redis = stand::raw_redis(&settings).await;
    let digest: String = stand::command(&redis, &["DEBUG", "DIGEST"]).await;
    let info: String = stand::command(&redis, &["INFO", "persistence"]).await;
    let changes = info.lines().find(|line| line.starts_with("rdb_changes"));
    let pool = MySqlPool::connect(&env.database_url).await.unwrap();
    let tables = "SELECT CAST(table_name AS CHAR), CAST(create_time AS CHAR) FROM information_schema.tables WHERE table_schema = DATABASE()";
    let mut sums = BTreeMap::new();
    for row in sqlx::query(tables).fetch_all(&pool).await.unwrap() {
        let (table, made): (String, String) = (row.get(0), row.get(1));
        let sum = sqlx::raw_sql(AssertSqlSafe(format!("CHECKSUM TABLE {table}")));
        let sum: i64 = sum.fetch_one(&pool).await.unwrap().get(1);
        sums.insert(table, format!("{made} {sum}"));
    }
    (digest, changes.unwrap().to_owned(), sums)
}

#[tokio::test(flavor = "multi_thread")]
async fn all_is_well_on_good_servers_and_nothing_is_changed_by_looking() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = servers::redis_options(directory.path().join("redis"));
    options.extra_args = ["--enable-debug-command", "yes"]
        .map(str::to_owned)
        .to_vec();
    let redis = RedisServer::start(RedisOptions {
        aof: true,
        ..options
    })
    .unwrap();
    let sql = SqlServer::start(SqlOptions {
        flush_log_at_commit: 1,
        ..servers::sql_options(directory.path().join("sql"))
    })
    .unwrap();
    let env = TestEnv {
        redis_url: redis.url(),
        database_url: sql.url(),
        key_prefix: "thumbd".into(),
    };
    // Before the first start, too.
    let variables = variables(&env);
    let before = everything(&env).await;
    let (code, text) = run(&["doctor"], &variables);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("there are no tables yet"), "{text}");
    assert_eq!(everything(&env).await, before);

    let serve = Serve::start(&env, &[]).await;
    assert_eq!(serve.like("u1", "blog/1").await.status, 200);
    serve.admin("/admin/v1/compensations").await.unwrap();
    assert_eq!(serve.like("u2", "blog/1").await.status, 200);
    // Beside it all is as well.
    let (code, text) = run(&["doctor"], &variables);
    assert_eq!(code, Some(0), "{text}");
    serve.stop();

    let before = everything(&env).await;
    assert!(before.2.contains_key("thumb"));
    let (code, text) = run(&["doctor"], &variables);
    assert_eq!(code, Some(0), "{text}");
    let bad = |line: &&str| !line.starts_with("ok ") && !line.contains(" latency ");
    let bad: Vec<&str> = text.lines().filter(bad).collect();
    assert_eq!(bad.len(), 1, "{text}");
    assert!(bad[0].ends_with(" 0 failures, 0 skipped"), "{text}");
    let (_, json) = run(&["doctor", "--json"], &variables);
    let json: Value = serde_json::from_str(&json).unwrap();
    let checks = json["checks"].as_array().unwrap();
    let names: Vec<String> = checks
        .iter()
        .map(|check| {
            format!(
                "{} {}",
                check["part"].as_str().unwrap(),
                check["name"].as_str().unwrap()
            )
        })
        .collect();
    insta::assert_snapshot!(names.join("\n"));
    assert_eq!(everything(&env).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_ends_it_with_1_a_warning_only_if_asked_and_a_wrong_flag_with_2() {
    let env = servers::env().await;
    let mut variables = variables(&env);
    // The shared servers keep nothing.
    let (code, text) = run(&["doctor"], &variables);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("failure  redis persistence"), "{text}");
    let at: redis::ConnectionInfo = env.redis_url.as_str().into_connection_info().unwrap();
    let redis::ConnectionAddr::Unix(path) = at.addr() else {
        panic!("{at:?}");
    };
    // Started without a file.
    let path = path.display();
    let fix = format!(
        "| fix: redis-cli -s {path} CONFIG SET appendonly yes, and --appendonly yes where it is started"
    );
    assert!(text.contains(&fix), "{text}");

    let own = crate::redis_faults::Own::start(|options| options.aof = true);
    variables.retain(|(name, _)| name != "THUMBD_REDIS_URL");
    variables.push(("THUMBD_REDIS_URL".into(), own.server.url()));
    let (code, text) = run(&["doctor"], &variables);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("warning  database durability"), "{text}");
    let (code, text) = run(&["doctor", "--strict"], &variables);
    assert_eq!(code, Some(1), "{text}");
    let (code, text) = run(&["doctor", "--instances", "1000"], &variables);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("16000 at most for 1000 instances"), "{text}");

    let (code, text) = run(&["doctor", "--partitions", "0"], &variables);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("failure  settings values"), "{text}");
    variables.push(("THUMBD_REQUEST_TIMEOUT_MS".into(), "1000".into()));
    let (code, text) = run(&["doctor", "--json"], &variables);
    assert_eq!(code, Some(1), "{text}");
    let json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["failures"], 1, "{text}");
    assert_eq!(json["checks"][0]["name"], "values", "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_are_looked_at_without_any_server() {
    let directory = tempfile::tempdir().unwrap();
    let secret = directory.path().join("redis-url");
    std::fs::write(&secret, format!("redis://:{PASSWORD}@{NOBODY}\n")).unwrap();
    let mode = |mode| std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(mode));
    let path = secret.to_str().unwrap().to_owned();
    let variables = [
        ("THUMBD_REDIS_URL_FILE", path.clone()),
        (
            "THUMBD_DATABASE_URL",
            format!("mysql://x:{PASSWORD}@{NOBODY}/thumbd"),
        ),
        ("THUMBD_CONNECTIONS_MAX", "1000000".to_owned()),
    ];
    let variables = variables
        .map(|(name, value)| (name.to_owned(), value))
        .to_vec();
    mode(0o644).unwrap();
    let (code, text) = run(&["doctor"], &variables);
    assert_eq!(code, Some(1), "{text}");
    let has = |text: &str, line: &str| assert!(text.contains(line), "no '{line}': {text}");
    has(&text, &format!("| fix: chmod u=rw,g=r,o= {path}"));
    has(&text, "failure  settings keys");
    has(&text, "serve refuses to start: service_key is not set");
    has(&text, "warning  settings open files");
    has(&text, "failure  redis reach");
    has(&text, "failure  database reach");
    mode(0o640).unwrap();
    let (_, text) = run(&["doctor"], &variables);
    has(&text, "has mode 0640");
    assert!(!text.contains("chmod"), "{text}");
    // A file of settings that holds a secret is one of a secret.
    let file = directory.path().join("thumbd.toml");
    std::fs::write(&file, format!("service_key = \"{SERVICE_KEY}\"\n")).unwrap();
    let readable = std::fs::Permissions::from_mode(0o604);
    std::fs::set_permissions(&file, readable).unwrap();
    let file = file.to_str().unwrap();
    let (_, text) = run(&["doctor", "--config", file], &variables);
    has(
        &text,
        &format!("{file}, which holds service_key, has mode 0604"),
    );
    // Nothing is set.
    let (code, text) = run(&["doctor"], &[]);
    assert_eq!(code, Some(1), "{text}");
    has(&text, "redis_url is not set");
    has(&text, "database_url is not set");
}

fn completions(shell: &str) -> String {
    let output = thumbd(&["completions", shell], &[])
        .wait_with_output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn bash_completes_commands_flags_and_values() {
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("thumbd.bash");
    std::fs::write(&script, completions("bash")).unwrap();
    let complete = |words: &[&str]| {
        let ask = format!(
            "source '{}' && COMP_WORDS=({}) COMP_CWORD={} && _thumbd thumbd '{}' '{}' && printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            script.display(),
            words.join(" "),
            words.len() - 1,
            words[words.len() - 1],
            words[words.len() - 2],
        );
        let output = Command::new("bash")
            .args(["--norc", "-c", &ask])
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(complete(&["thumbd", "doc"]), "doctor\n");
    assert_eq!(complete(&["thumbd", "doctor", "--js"]), "--json\n");
    assert_eq!(complete(&["thumbd", "completions", "zs"]), "zsh\n");
    assert_eq!(complete(&["thumbd", "quarantine", "re"]), "retry\n");
}

#[test]
fn completions_are_there_for_each_shell_and_hold_no_secret_flags() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = completions(shell);
        assert!(script.contains("doctor"), "{shell}");
        assert!(!script.contains("service-key"), "{shell}");
    }
    let output = thumbd(&["completions", "tcsh"], &[])
        .wait_with_output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
}
