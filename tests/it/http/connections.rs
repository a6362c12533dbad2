//! Connections: slow, idle, cut off and too many of them; and the end of the process with them.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::app::TestApp;

const HEALTH: &str = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
/// Far above what anything here takes, far below the limits that must not be waited for.
const SOON: Duration = Duration::from_secs(5);

/// Sends a text and reads until the server closes.
pub(super) async fn talk(address: SocketAddr, text: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    to_end(&mut stream).await
}

async fn to_end(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    // A reset is an end, too.
    let _ = stream.read_to_end(&mut bytes).await;
    String::from_utf8(bytes).unwrap()
}

/// A connection that has had its answer and is kept alive.
async fn idle(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(HEALTH.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"}") {
        assert_ne!(stream.read_buf(&mut answer).await.unwrap(), 0);
    }
    stream
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_and_silent_clients_are_cut() {
    let app = TestApp::with(|settings| settings.header_timeout_ms = 100).await;
    for text in ["", "GET /healthz HTTP/1.1\r\nHost:"] {
        let answer = tokio::time::timeout(SOON, talk(app.address, text)).await;
        assert!(!answer.unwrap().contains("200 OK"));
    }
    let mut kept = idle(app.address).await;
    assert_eq!(
        tokio::time::timeout(SOON, to_end(&mut kept)).await.unwrap(),
        ""
    );
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_body_ends_with_the_request_timeout() {
    let app = TestApp::with(|settings| settings.request_timeout_ms = 200).await;
    let head = "POST /v1/lookup HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\nConnection: close\r\n\r\n{";
    let answer = tokio::time::timeout(SOON, talk(app.address, head))
        .await
        .unwrap();
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.contains("urn:thumbd:error:timeout"), "{answer}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_do_not_hold_up_the_end() {
    let app = TestApp::start().await;
    let address = app.address;
    let mut kept = idle(address).await;
    let mut fresh = TcpStream::connect(address).await.unwrap();
    let begun = Instant::now();
    app.finish().await;
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    assert_eq!(to_end(&mut kept).await, "");
    assert_eq!(to_end(&mut fresh).await, "");
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_under_way_is_answered_before_the_end() {
    let app = TestApp::start().await;
    let body = r#"{"targets":[{"kind":"blog","id":"1"}]}"#;
    let mut stream = TcpStream::connect(app.address).await.unwrap();
    let head = format!(
        "POST /v1/lookup HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    // The handler has begun to read the body when it asks for it.
    let mut go_on = [0; 25];
    stream.read_exact(&mut go_on).await.unwrap();
    assert!(go_on.starts_with(b"HTTP/1.1 100 "));
    app.token.cancel();
    while TcpStream::connect(app.address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    stream.write_all(body.as_bytes()).await.unwrap();
    let answer = to_end(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_never_ends_is_cut_at_the_end() {
    let app = TestApp::with(|settings| settings.shutdown_seconds = 1).await;
    let head = "POST /v1/lookup HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{";
    let mut stream = TcpStream::connect(app.address).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    let begun = Instant::now();
    app.finish().await;
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_beyond_the_bound_wait() {
    let app = TestApp::with(|settings| settings.connections_max = 1).await;
    let first = idle(app.address).await;
    let mut second = TcpStream::connect(app.address).await.unwrap();
    second.write_all(HEALTH.as_bytes()).await.unwrap();
    let mut byte = [0];
    let early = tokio::time::timeout(Duration::from_millis(100), second.read(&mut byte)).await;
    assert!(early.is_err(), "the bound does not hold");
    drop(first);
    assert_eq!(second.read(&mut byte).await.unwrap(), 1);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_hangs_up_is_counted_and_frees_its_place() {
    let app = TestApp::with(|settings| settings.connections_max = 1).await;
    let head = "POST /v1/lookup HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n";
    let mut stream = TcpStream::connect(app.address).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.read_exact(&mut [0; 25]).await.unwrap();
    drop(stream);
    let metrics = "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let text = tokio::time::timeout(SOON, talk(app.address, metrics))
        .await
        .unwrap();
    let lookups = "thumbd_http_request_seconds_count{route=\"/v1/lookup\",method=\"POST\"";
    let counted = ["4xx", "gone"].map(|status| format!("{lookups},status=\"{status}\"}}"));
    assert!(counted.iter().any(|line| text.contains(line)), "{text}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_sockets_that_drip_header_bytes_are_cut_and_hold_nobody_up() {
    let app = TestApp::with(|settings| settings.header_timeout_ms = 1000).await;
    let address = app.address;
    let drip = move || async move {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nX-A: ").await;
        // A byte now and then does not lengthen its life.
        while stream.write_all(b"a").await.is_ok() {
            let mut byte = [0; 1];
            let wait = Duration::from_millis(100);
            if let Ok(read) = tokio::time::timeout(wait, stream.read(&mut byte)).await {
                return read.unwrap_or(0) == 0;
            }
        }
        true
    };
    let slow: Vec<_> = (0..1000).map(|_| tokio::spawn(drip())).collect();
    for at in 0..20 {
        let like = tokio::time::timeout(SOON, app.like(&format!("u{at}"), "blog/1")).await;
        assert_eq!(like.unwrap().status, 200);
    }
    for slow in slow {
        let closed = tokio::time::timeout(SOON, slow).await.unwrap().unwrap();
        assert!(closed, "it was answered");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endless_chunked_body_and_a_huge_batch_are_cut_at_the_bound() {
    let app = TestApp::with(|settings| settings.body_bytes_max = 1024).await;
    let head = "POST /v1/batch HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer service-key\r\n";
    let mut stream = TcpStream::connect(app.address).await.unwrap();
    let chunked = format!("{head}Transfer-Encoding: chunked\r\n\r\n");
    stream.write_all(chunked.as_bytes()).await.unwrap();
    let endless = async {
        let mut sent = 0;
        let chunk = format!("400\r\n{}\r\n", "x".repeat(1024));
        while stream.write_all(chunk.as_bytes()).await.is_ok() {
            sent += chunk.len();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        sent
    };
    let sent = tokio::time::timeout(SOON, endless)
        .await
        .expect("it is cut");
    assert!(sent < 16 << 20, "{sent} bytes were taken");
    let huge = format!("{head}Content-Length: 99999999999\r\nConnection: close\r\n\r\n");
    let answer = tokio::time::timeout(SOON, talk(app.address, &huge)).await;
    let answer = answer.unwrap();
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert!(answer.contains("\"limit\":1024"), "{answer}");
    app.finish().await;
}
