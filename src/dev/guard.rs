//! A shell between us and a server, so that the server goes when we go, whatever ends us.
//!
//! The guard reads a pipe whose other end only we hold. When that end closes (by `stop`, or by the kernel at our death) it
//! stops the server; when the server ends by itself the guard ends with its status. Both are in a process group of
//! their own: the terminal's Ctrl-C must not reach the server before thumbd has flushed into it.

use std::{
    fs::File,
    io,
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::POLL;

/// Arguments: seconds to stop in, a directory to remove at the end or nothing, the program and its arguments.
/// Descriptor 3 is the pipe. Descriptor 4 is the locked pid file, which the server inherits: it is free when all are gone.
const SCRIPT: &str = r#"
seconds=$1 remove=$2
shift 2
exec 3<&0 4>&1 </dev/null 1>&2
"$@" 3<&- &
server=$!
echo "$server" >&4
(
    read -r _ <&3
    [ -z "$remove" ] || kill -s KILL "$server"
    kill -s TERM "$server"
    kill -s CONT "$server"
    while [ "$seconds" -gt 0 ]; do
        sleep 1 3<&- 4>&-
        seconds=$((seconds - 1))
    done
    kill -s KILL "$server"
) 2>/dev/null &
watcher=$!
exec 3<&-
wait "$server"
status=$?
kill "$watcher"
[ -z "$remove" ] || rm -rf -- "$remove"
exit "$status"
"#;

/// What a guard starts and how it ends it.
pub(super) struct Guarded<'a> {
    pub(super) program: &'a Path,
    pub(super) args: &'a [String],
    /// Open for writing and locked.
    pub(super) pid_file: File,
    pub(super) log: File,
    pub(super) stop_max: Duration,
    /// The server's data are worth nothing: it is killed, and this directory removed behind it.
    pub(super) remove: Option<&'a Path>,
}

/// A running guard.
#[derive(Debug)]
pub(super) struct Guard {
    child: Child,
    owner: Option<ChildStdin>,
}

impl Guard {
    pub(super) fn spawn(what: Guarded<'_>) -> io::Result<Self> {
        let mut child = Command::new("sh")
            .args(["-c", SCRIPT, "thumbd-guard"])
            .arg(what.stop_max.as_secs().to_string())
            .arg(what.remove.unwrap_or(Path::new("")))
            .arg(what.program)
            .args(what.args)
            .stdin(Stdio::piped())
            .stdout(what.pid_file)
            .stderr(what.log)
            .process_group(0)
            .spawn()?;
        let owner = child.stdin.take();
        Ok(Self { child, owner })
    }

    /// How the server ended, if it has.
    pub(super) fn exited(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Tells the guard to stop the server.
    pub(super) fn let_go(&mut self) {
        self.owner = None;
    }

    /// Waits for the server's end, at most `max`.
    pub(super) fn wait(&mut self, max: Duration) -> io::Result<Option<ExitStatus>> {
        let deadline = Instant::now() + max;
        loop {
            let status = self.child.try_wait()?;
            if status.is_some() || Instant::now() >= deadline {
                return Ok(status);
            }
            thread::sleep(POLL);
        }
    }
}

/// Sends a signal by name. The shell's own `kill`: small images have no program of that name.
pub(super) fn signal(name: &str, pid: u32) -> io::Result<()> {
    let status = Command::new("sh")
        .args(["-c", r#"kill -s "$1" "$2""#, "kill", name, &pid.to_string()])
        .status()?;
    if status.success() {
        Ok(())
    } else {
        Err(io::Error::other(format!("kill: {status}")))
    }
}
