//! The life of one private server: start, look, signal, stop, start again.

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use super::{
    DevError, POLL, READY_MAX, STALE_MAX, STOP_MAX,
    guard::{Guard, Guarded, signal},
    place::Place,
};

const LOG: &str = "server.log";
/// After a kill only the kernel has work to do.
const KILL_MAX: Duration = Duration::from_secs(10);
/// Below the range from which outgoing connections take theirs, so that a port stays free while its server is down.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// A server process. Dropping it stops it.
#[derive(Debug)]
pub struct Process {
    pub(super) name: &'static str,
    pub(super) program: PathBuf,
    pub(super) args: Vec<String>,
    pub(super) socket: PathBuf,
    /// Whether the server behind a socket serves.
    pub(super) ready: fn(&Path) -> bool,
    pub(super) ephemeral: bool,
    pub(super) guard: Option<Guard>,
    pub(super) pid: u32,
    /// Last: the directory is locked until the server has gone.
    pub(super) place: Place,
}

impl Process {
    /// The server's process id (of its last start).
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The directory that holds the server's data, log and socket.
    pub fn dir(&self) -> &Path {
        self.place.root()
    }

    /// Starts the server on its data and its old address, and waits until it serves. Nothing happens if it runs.
    pub fn restart(&mut self) -> Result<(), DevError> {
        if self.check().is_ok() {
            return Ok(());
        }
        self.guard = None;
        let pid_file = self.place.pid_file(STALE_MAX)?;
        let _ = fs::remove_file(&self.socket);
        let guard = Guard::spawn(Guarded {
            program: &self.program,
            args: &self.args,
            pid_file,
            log: self.place.log_create(LOG)?,
            stop_max: STOP_MAX,
            remove: self.ephemeral.then_some(self.place.root()),
        });
        let started = Instant::now();
        self.guard = Some(guard.map_err(DevError::io(format!("start {}", self.name)))?);
        while started.elapsed() < READY_MAX {
            self.check()?;
            if let Some(pid) = self.place.pid()
                && (self.ready)(&self.socket)
            {
                self.pid = pid;
                return Ok(());
            }
            thread::sleep(POLL);
        }
        let log = self.place.log_tail(LOG);
        let _ = self.stop();
        Err(DevError::NotReady {
            name: self.name,
            seconds: READY_MAX.as_secs(),
            log,
        })
    }

    /// An error if the server has ended or was stopped.
    pub fn check(&mut self) -> Result<(), DevError> {
        let status = match &mut self.guard {
            Some(guard) => guard
                .exited()
                .map_err(DevError::io(format!("look at {}", self.name)))?,
            None => {
                return Err(DevError::Io {
                    doing: format!("look at {}", self.name),
                    source: std::io::ErrorKind::NotFound.into(),
                });
            }
        };
        match status {
            None => Ok(()),
            Some(status) => Err(DevError::Exited {
                name: self.name,
                status,
                log: self.place.log_tail(LOG),
            }),
        }
    }

    /// Stops the server as its operator would, and waits for its end.
    pub fn stop(&mut self) -> Result<(), DevError> {
        let Some(mut guard) = self.guard.take() else {
            return Ok(());
        };
        guard.let_go();
        let seconds = STALE_MAX.as_secs();
        match guard
            .wait(STALE_MAX)
            .map_err(DevError::io(format!("stop {}", self.name)))?
        {
            Some(status) if self.ephemeral || status.success() => Ok(()),
            Some(status) => Err(DevError::Exited {
                name: self.name,
                status,
                log: self.place.log_tail(LOG),
            }),
            None => Err(DevError::NotStopped {
                name: self.name,
                seconds,
            }),
        }
    }

    /// Kills the server with -9 and waits for its end.
    pub fn kill(&mut self) -> Result<(), DevError> {
        self.signal("KILL")?;
        let Some(mut guard) = self.guard.take() else {
            return Ok(());
        };
        let gone = guard
            .wait(KILL_MAX)
            .map_err(DevError::io(format!("wait for {}", self.name)))?;
        gone.map(|_| ()).ok_or(DevError::NotStopped {
            name: self.name,
            seconds: KILL_MAX.as_secs(),
        })
    }

    /// Stops the server in its tracks: connections stay open, nothing answers.
    pub fn freeze(&mut self) -> Result<(), DevError> {
        self.signal("STOP")
    }

    /// Lets a frozen server go on.
    pub fn thaw(&mut self) -> Result<(), DevError> {
        self.signal("CONT")
    }

    fn signal(&mut self, name: &str) -> Result<(), DevError> {
        self.check()?;
        signal(name, self.pid).map_err(DevError::io(format!("send {name} to {}", self.name)))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.stop();
        if let Some(dir) = self.socket.parent().filter(|dir| *dir != self.place.root()) {
            let _ = fs::remove_file(&self.socket);
            let _ = fs::remove_dir(dir);
        }
    }
}

/// A port of 127.0.0.1 on which nothing listens.
pub(super) fn free_port() -> Result<u16, DevError> {
    let free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let (start, count) = (rand::random_range(PORTS), PORTS.end - PORTS.start);
    let mut ports = (0..count).map(|n| PORTS.start + (start - PORTS.start + n) % count);
    ports.find(free).ok_or_else(|| DevError::Io {
        doing: "find a free port".into(),
        source: std::io::ErrorKind::AddrInUse.into(),
    })
}

/// A path as it stands in a URL.
pub(super) fn url_path(path: &Path) -> String {
    use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
    const PATH: &AsciiSet = &NON_ALPHANUMERIC
        .remove(b'/')
        .remove(b'-')
        .remove(b'_')
        .remove(b'.');
    percent_encode(path.as_os_str().as_encoded_bytes(), PATH).to_string()
}
