//! The program itself, run as a process: exit codes, and what stands where.

use std::process::{Command, Output};

use axum::extract::Path;
use axum::routing::put;
use axum::{Json, Router};

fn thumbd(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thumbd"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("THUMBD_") {
            command.env_remove(name);
        }
    }
    let command = command.args(arguments).envs(variables.iter().copied());
    command.output().expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A server that likes everything but the id `bad`.
async fn server() -> String {
    let like = |Path((kind, id)): Path<(String, String)>| async move {
        if id == "bad" {
            return Err((
                axum::http::StatusCode::BAD_REQUEST,
                r#"{"detail":"no bad ones"}"#,
            ));
        }
        Ok(Json(
            serde_json::json!({"kind": kind, "id": id, "liked": true, "changed": true, "count": 1}),
        ))
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let router = Router::new().route("/v1/likes/{kind}/{id}", put(like));
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

#[tokio::test(flavor = "multi_thread")]
async fn load_prints_its_table_and_fails_if_anything_failed() {
    let url = server().await;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("likes.csv");
    let path = file.to_str().unwrap();
    for (lines, code) in [
        ("u1,1\nu2,1\n", 0),
        ("u1,1\nu2,bad\n", 1),
        ("u1,1\nu2\n", 1),
    ] {
        std::fs::write(&file, lines).unwrap();
        let arguments = ["load", path, "--kind", "blog", "--url", &url];
        let output = tokio::task::block_in_place(|| thumbd(&arguments, &[]));
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(
            output.status.code(),
            Some(code),
            "{lines:?}: {stdout}{stderr}"
        );
        assert!(stdout.contains("unchanged"), "{stdout}");
        assert_eq!(stderr, "", "no bar where no terminal is");
        let refused = stdout.contains("400: no bad ones (first in line 2)");
        assert_eq!(refused, lines.contains("bad"), "{stdout}");
    }
}

#[test]
fn errors_are_one_line_with_their_cause() {
    let arguments = [
        "load",
        "/nowhere/x.csv",
        "--kind",
        "blog",
        "--url",
        "http://127.0.0.1:1",
    ];
    let output = thumbd(&arguments, &[]);
    assert_eq!(output.status.code(), Some(1));
    let stderr = text(&output.stderr);
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(
        stderr.starts_with("thumbd: /nowhere/x.csv cannot be opened: No such file"),
        "{stderr}"
    );
}

#[test]
fn wrong_command_lines_exit_2_and_wrong_surroundings_1() {
    let code =
        |arguments: &[&str], variables: &[(&str, &str)]| thumbd(arguments, variables).status.code();
    assert_eq!(code(&["--version"], &[]), Some(0));
    assert_eq!(code(&["serve", "--help"], &[]), Some(0));
    assert_eq!(code(&[], &[]), Some(2));
    assert_eq!(code(&["serve", "--partitons", "1"], &[]), Some(2));
    assert_eq!(code(&["serve", "--partitions", "0"], &[]), Some(2));
    assert_eq!(
        code(&["load", "x", "--kind", "Blog", "--url", "http://x"], &[]),
        Some(2)
    );
    assert_eq!(code(&["flush"], &[("THUMBD_PARTITIONS", "0")]), Some(1));
    assert_eq!(code(&["flush"], &[("THUMBD_PARTITION", "1")]), Some(1));
}
