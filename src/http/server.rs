//! Connections: accepted up to a bound, served, and at the end drained within a time.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::http::Request;
use futures_util::future::{Either, select};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Front;
use crate::config::Settings;
use crate::limits::{ACCEPT_PAUSE, CONNECTION_BUFFER_BYTES_MAX};

/// How a drain ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drained {
    /// Every request was answered.
    Whole,
    /// Time ran out; this many connections or batches were cut.
    Cut(usize),
}

/// What a handler whose answer has no end knows of its connection.
#[derive(Clone)]
pub(super) struct Connection {
    /// The process stops: answers are to come to their end.
    pub(super) closing: CancellationToken,
    /// Cut the connection: its client does not read.
    pub(super) hang_up: CancellationToken,
}

/// Serves HTTP/1.1 on one address. HTTP/2 is left to the proxy in front: its streams would multiply every bound.
pub struct Server {
    listener: TcpListener,
    front: Arc<Front>,
    builder: http1::Builder,
    slots: Arc<Semaphore>,
    connections: TaskTracker,
    /// Told to finish what they have begun.
    closing: CancellationToken,
    /// Told to end at once.
    cut: CancellationToken,
}

impl Server {
    /// Makes a server of an open socket.
    pub fn new(
        listener: TcpListener,
        front: Arc<Front>,
        settings: &Settings,
        connections_max: usize,
    ) -> Self {
        let mut builder = http1::Builder::new();
        // hyper counts an idle keep-alive connection as one that waits for headers, so this closes those too.
        builder
            .timer(TokioTimer::new())
            .max_buf_size(CONNECTION_BUFFER_BYTES_MAX)
            .header_read_timeout(Duration::from_millis(settings.header_timeout_ms));
        Self {
            listener,
            front,
            builder,
            slots: Arc::new(Semaphore::new(connections_max)),
            connections: TaskTracker::new(),
            closing: CancellationToken::new(),
            cut: CancellationToken::new(),
        }
    }

    /// Accepts connections; ends only by being dropped. Beyond the bound they wait in the kernel's queue.
    pub async fn accept(&self) -> io::Error {
        let mut failing = false;
        loop {
            let Ok(slot) = self.slots.clone().acquire_owned().await else {
                return io::Error::other("the semaphore of connections is closed");
            };
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    failing = false;
                    self.connections.spawn(self.serve(stream, slot));
                }
                Err(error) if of_one_connection(&error) => {}
                Err(error) => {
                    if !failing {
                        tracing::error!(%error, "connections cannot be accepted");
                    }
                    failing = true;
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn serve(
        &self,
        stream: TcpStream,
        slot: OwnedSemaphorePermit,
    ) -> impl Future<Output = ()> + Send + use<> {
        let front = self.front.clone();
        let builder = self.builder.clone();
        let (closing, cut) = (self.closing.clone(), self.cut.clone());
        let known = Connection {
            closing: closing.clone(),
            hang_up: CancellationToken::new(),
        };
        let hang_up = known.hang_up.clone();
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(known.clone());
            front.clone().answer(request)
        });
        async move {
            let _slot = slot;
            // Without it a small answer may wait for the acknowledgement of the one before.
            let _ = stream.set_nodelay(true);
            let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
            let served = async {
                // Errors are those of the client: hung up, too slow, no HTTP.
                let closing = pin!(closing.cancelled());
                if let Either::Right(_) = select(connection.as_mut(), closing).await {
                    connection.as_mut().graceful_shutdown();
                    let _ = select(connection, pin!(cut.cancelled())).await;
                }
            };
            let _ = select(pin!(served), pin!(hang_up.cancelled())).await;
        }
    }

    /// Has the process, at all of its addresses, say that it is not ready any more; nothing else changes.
    pub fn leave(&self) {
        self.front.leave();
    }

    /// Stops listening, closes idle connections, waits for requests and batches at most `limit`, then cuts.
    pub async fn drain(self, limit: Duration) -> Drained {
        drop(self.listener);
        self.closing.cancel();
        self.connections.close();
        let batches = self.front.batches();
        let rest = async {
            self.connections.wait().await;
            batches.close();
            batches.wait().await;
        };
        let result = match tokio::time::timeout(limit, rest).await {
            Ok(()) => Drained::Whole,
            Err(_) => Drained::Cut(self.connections.len() + batches.len()),
        };
        self.cut.cancel();
        result
    }
}

/// Whether only the connection that was to be accepted is gone.
fn of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    let kinds = [
        ConnectionAborted,
        ConnectionRefused,
        ConnectionReset,
        Interrupted,
    ];
    kinds.contains(&error.kind())
}
