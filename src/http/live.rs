//! `GET /admin/v1/live`: one snapshot a second as server-sent events; and `POST /admin/v1/verifications`.
//!
//! A stream ends when its reader hangs up, when its key opens nothing any more, when the process stops, and after the longest life
//! of an admin request. A reader that does not read loses snapshots, never the newest, and in the end its connection.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::answer;
use super::problem::Problem;
use super::server::Connection;
use super::state::Shared;
use crate::limits::{ADMIN_REQUEST_MAX, LIVE_STALL_MAX};
use crate::live::{VerificationError, Watcher};

const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");
/// Keeps proxies from collecting a stream.
const UNBUFFERED: (&str, &str) = ("x-accel-buffering", "no");
/// How long a place is not worth asking for again.
const FULL_PAUSE: Duration = Duration::from_secs(5);

pub(super) async fn live(
    State(shared): State<Arc<Shared>>,
    Extension(connection): Extension<Connection>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    shared.keys.caller(&headers)?.check_admin()?;
    let watcher = shared.live.watch();
    let watcher = watcher.ok_or_else(|| Problem::overloaded(FULL_PAUSE))?;
    // One that waits, while the one before is sent: the newest snapshot is always the next.
    let (sender, receiver) = mpsc::channel(1);
    let may_watch = move || {
        let caller = shared.keys.caller(&headers);
        caller.is_ok_and(|caller| caller.check_admin().is_ok())
    };
    let feed = feed(watcher, sender, connection, may_watch, LIVE_STALL_MAX);
    tokio::spawn(timeout(ADMIN_REQUEST_MAX, feed));
    let events = stream::unfold(receiver, async |mut receiver| {
        let event: Bytes = receiver.recv().await?;
        Some((Ok::<_, Infallible>(event), receiver))
    });
    let headers = [(header::CONTENT_TYPE, EVENTS)];
    Ok((headers, [UNBUFFERED], Body::from_stream(events)).into_response())
}

/// Hands events to a connection until either has enough.
async fn feed(
    mut watcher: Watcher,
    sender: mpsc::Sender<Bytes>,
    connection: Connection,
    may_watch: impl Fn() -> bool,
    stall_max: Duration,
) {
    let mut event = event("history", &watcher.history);
    loop {
        match timeout(stall_max, sender.send(event)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return,
            Err(_) => return connection.hang_up.cancel(),
        }
        let changed = tokio::select! {
            changed = watcher.snapshots.changed() => changed.is_ok(),
            () = sender.closed() => false,
            () = connection.closing.cancelled() => false,
        };
        if !changed || !may_watch() {
            return;
        }
        event = self::event("snapshot", &watcher.snapshots.borrow_and_update());
    }
}

/// JSON has no line breaks of its own.
fn event(name: &str, json: &str) -> Bytes {
    format!("event: {name}\ndata: {json}\n\n").into()
}

pub(super) async fn verify(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    shared.keys.caller(&headers)?.check_admin()?;
    match shared.live.verify().await {
        Ok(found) => Ok(answer::json(StatusCode::OK, &found)),
        Err(VerificationError::Busy) => Err(Problem::verification_busy()),
        Err(VerificationError::Service(error)) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::watch;
    use tokio_util::sync::CancellationToken;

    use super::*;

    fn connection() -> Connection {
        Connection {
            closing: CancellationToken::new(),
            hang_up: CancellationToken::new(),
        }
    }

    const SHORT: Duration = Duration::from_millis(20);

    #[tokio::test]
    async fn a_reader_that_does_not_read_is_cut_and_others_get_the_newest() {
        let (snapshots, receiver) = watch::channel(Arc::from(""));
        let (sender, mut events) = mpsc::channel(1);
        let known = connection();
        let watcher = Watcher::of(receiver);
        let feed = feed(watcher, sender, known.clone(), || true, SHORT);
        let feed = tokio::spawn(feed);
        let read = events.recv().await.unwrap();
        assert_eq!(read, "event: history\ndata: {}\n\n");
        // Two wait for a reader who reads nothing for a while.
        snapshots.send_replace(Arc::from("1"));
        let first = events.recv().await.unwrap();
        assert_eq!(first, "event: snapshot\ndata: 1\n\n");
        snapshots.send_replace(Arc::from("2"));
        snapshots.send_replace(Arc::from("3"));
        assert_eq!(events.recv().await.unwrap(), "event: snapshot\ndata: 3\n\n");
        // One stands in the channel, the next one is not taken.
        for text in ["4", "5"] {
            snapshots.send_replace(Arc::from(text));
            tokio::time::sleep(SHORT).await;
        }
        timeout(Duration::from_secs(60), feed)
            .await
            .unwrap()
            .unwrap();
        assert!(known.hang_up.is_cancelled());
    }

    #[tokio::test]
    async fn a_key_that_opens_nothing_any_more_ends_the_stream() {
        let (snapshots, receiver) = watch::channel(Arc::from(""));
        let (sender, mut events) = mpsc::channel(1);
        let feed = feed(Watcher::of(receiver), sender, connection(), || false, SHORT);
        let feed = tokio::spawn(feed);
        assert!(events.recv().await.is_some());
        snapshots.send_replace(Arc::from("1"));
        assert!(events.recv().await.is_none());
        feed.await.unwrap();
    }
}
