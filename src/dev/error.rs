//! What can go wrong with private servers; every text tells a person at a terminal what to do.

use std::{io, path::PathBuf, process::ExitStatus};

/// Why a private server did not start, stop or stay.
#[derive(Debug, thiserror::Error)]
pub enum DevError {
    /// A server program is not installed.
    #[error("{program} not found: install it (Debian, Ubuntu: apt-get install {packages})")]
    Missing {
        /// The program or programs looked for.
        program: String,
        /// The Debian packages that have it.
        packages: &'static str,
    },
    /// Another process owns the directory.
    #[error("{} is in use by another thumbd: stop that one, or start with another directory and port: THUMBD_LISTEN=127.0.0.1:0 thumbd dev --data DIR", .0.display())]
    InUse(PathBuf),
    /// The server of an earlier run has not gone.
    #[error("a server of an earlier run still uses {} after {seconds} s", .dir.display())]
    Stale {
        /// Its directory.
        dir: PathBuf,
        /// How long was waited.
        seconds: u64,
    },
    /// A server or its installation ended by itself.
    #[error("{name} ended ({status}); the end of its log:\n{log}")]
    Exited {
        /// Which server.
        name: &'static str,
        /// How it ended; a shell's 128 + n stands for signal n.
        status: ExitStatus,
        /// The last lines of its log.
        log: String,
    },
    /// A server runs, but does not answer.
    #[error("{name} does not answer after {seconds} s; the end of its log:\n{log}")]
    NotReady {
        /// Which server.
        name: &'static str,
        /// How long was waited.
        seconds: u64,
        /// The last lines of its log.
        log: String,
    },
    /// A server had to be left running or be killed.
    #[error("{name} did not stop within {seconds} s")]
    NotStopped {
        /// Which server.
        name: &'static str,
        /// How long was waited.
        seconds: u64,
    },
    /// The operating system refused something.
    #[error("cannot {doing}")]
    Io {
        /// What was being done, and to what.
        doing: String,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}

impl DevError {
    /// For `map_err`: says what was being done.
    pub(super) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }
}
