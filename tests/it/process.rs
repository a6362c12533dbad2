//! The program as a process: what it prints when it serves, what signals do, what it refuses.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::servers;

/// Far above what a start or an end takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn thumbd(arguments: &[&str], variables: &[(&str, &str)]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thumbd"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("THUMBD_") {
            command.env_remove(name);
        }
    }
    command.args(arguments).envs(variables.iter().copied());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Reads lines until one holds `mark`, and gives what stands behind it.
pub(crate) fn behind(mark: &str, stream: &mut impl BufRead) -> String {
    let mut seen = String::new();
    loop {
        let mut line = String::new();
        assert_ne!(stream.read_line(&mut line).unwrap(), 0, "no {mark}: {seen}");
        if let Some((_, rest)) = line.split_once(mark) {
            return rest.split_whitespace().next().unwrap().to_owned();
        }
        seen += &line;
    }
}

pub(crate) fn signal(child: &Child, name: &str) {
    let kill = format!("kill -s {name} {}", child.id());
    assert!(
        Command::new("sh")
            .args(["-c", &kill])
            .status()
            .unwrap()
            .success()
    );
}

pub(crate) fn end(child: &mut Child) -> ExitStatus {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if begun.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("it does not end");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// As behind `| head`: what was asked for is done all the same, and no lease is left.
#[tokio::test]
async fn a_command_whose_reader_is_gone_does_its_work() {
    let env = servers::env().await;
    let variables = [
        ("THUMBD_REDIS_URL", env.redis_url.as_str()),
        ("THUMBD_DATABASE_URL", env.database_url.as_str()),
        ("THUMBD_KEY_PREFIX", env.key_prefix.as_str()),
    ];
    let run = |arguments: &[&str]| {
        let mut child = thumbd(arguments, &variables);
        drop(child.stdout.take());
        let status = end(&mut child);
        let mut said = String::new();
        child.stderr.unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(status.code(), Some(0), "{arguments:?}: {said}");
        assert!(!said.contains("panicked"), "{arguments:?}: {said}");
    };
    for arguments in [
        &["migrate"][..],
        &["flush"],
        &["compensate"],
        &["verify"],
        &["quarantine", "list"],
        &["quarantine", "retry", "--all"],
        &["repair"],
    ] {
        run(arguments);
    }
}

#[test]
fn serve_without_keys_names_what_is_missing() {
    let output = thumbd(&["serve"], &[]).wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("service_key"), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn serve_ends_well_on_sigterm_and_at_once_on_a_second_signal() {
    let env = servers::env().await;
    let variables = [
        ("THUMBD_LISTEN", "127.0.0.1:0"),
        ("THUMBD_SERVICE_KEY", "service-key"),
        ("THUMBD_ADMIN_TOKEN", "admin-token"),
        ("THUMBD_REDIS_URL", &*env.redis_url),
        ("THUMBD_DATABASE_URL", &*env.database_url),
        ("THUMBD_KEY_PREFIX", &*env.key_prefix),
    ];
    let mut child = thumbd(&["serve"], &variables);
    let mut log = BufReader::new(child.stderr.take().unwrap());
    behind("address=", &mut log);
    signal(&child, "TERM");
    assert_eq!(end(&mut child).code(), Some(0));

    let mut child = thumbd(&["serve"], &variables);
    let mut log = BufReader::new(child.stderr.take().unwrap());
    let address = behind("address=", &mut log);
    // A request that never ends keeps the first signal waiting.
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let head = "POST /v1/lookup HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n";
    std::io::Write::write_all(&mut stream, head.as_bytes()).unwrap();
    stream.read_exact(&mut [0; 12]).unwrap();
    signal(&child, "INT");
    behind("stopping;", &mut log);
    signal(&child, "INT");
    assert_eq!(end(&mut child).code(), Some(130));
}

#[tokio::test(flavor = "multi_thread")]
async fn dev_serves_on_servers_of_its_own_and_stops_them() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let arguments = [
        "dev",
        "--listen",
        "127.0.0.1:0",
        "--data",
        data.to_str().unwrap(),
    ];
    let mut child = thumbd(&arguments, &[]);
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let url = behind("thumbd serves on ", &mut output);
    let like = format!("{url}/v1/likes/blog/42");
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let answer = client.put(like).header("X-User-Id", "u1").send().await;
    assert_eq!(answer.unwrap().status(), 200);
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(data.join("thumbd.toml"))
            .unwrap()
            .permissions(),
    );
    assert_eq!(mode & 0o777, 0o600);
    signal(&child, "INT");
    assert_eq!(end(&mut child).code(), Some(0));
    let again = thumbd::dev::Servers::start(&data).await.unwrap();
    again.stop().await.unwrap();
}
