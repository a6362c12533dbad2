//! SIGTERM and SIGINT: the first asks for a graceful stop, the second ends the process at once.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// From here on signals no longer end the process by themselves.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Cancels `token` at the first signal. Give it to `select!` beside what the token stops.
    pub(super) async fn watch(mut self, token: CancellationToken) -> std::convert::Infallible {
        self.next().await;
        tracing::info!("stopping; a second signal ends at once");
        token.cancel();
        let number = self.next().await;
        eprintln!("thumbd: ended at once; Redis keeps what is not flushed");
        std::process::exit(128 + number);
    }

    async fn next(&mut self) -> i32 {
        tokio::select! {
            Some(()) = self.interrupt.recv() => SignalKind::interrupt().as_raw_value(),
            Some(()) = self.terminate.recv() => SignalKind::terminate().as_raw_value(),
            else => std::future::pending().await,
        }
    }
}
