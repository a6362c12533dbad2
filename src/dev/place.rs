//! A server's directory: locked by its owner, and by the server itself as long as it lives.

use std::{
    fs::{self, DirBuilder, File, TryLockError},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use super::{DevError, POLL};

/// A unix socket's path has room for 107 bytes; some programs append to it.
const SOCKET_PATH_MAX: usize = 100;
/// A child has copies of our descriptors, and so of a lock just given up, between its fork and its exec.
const FORK_MAX: Duration = Duration::from_millis(500);
const LOG_TAIL_LINES: usize = 15;

/// A directory that this process owns while the value lives.
#[derive(Debug)]
pub(super) struct Place {
    root: PathBuf,
    _lock: File,
}

impl Place {
    /// Creates the directory where needed and locks it.
    pub(super) fn open(dir: &Path) -> Result<Self, DevError> {
        let doing = || DevError::io(format!("open the directory {}", dir.display()));
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .map_err(doing())?;
        let root = dir.canonicalize().map_err(doing())?;
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(root.join("lock"))
            .map_err(doing())?;
        match lock_within(&lock, FORK_MAX) {
            Ok(()) => Ok(Self { root, _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(DevError::InUse(root)),
            Err(TryLockError::Error(source)) => Err(doing()(source)),
        }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// The emptied pid file, locked: waits for a server of a crashed earlier run, which its guard is stopping.
    pub(super) fn pid_file(&self, wait_max: Duration) -> Result<File, DevError> {
        let path = self.path("pid");
        let doing = || DevError::io(format!("lock {}", path.display()));
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(doing())?;
        lock_within(&file, wait_max).map_err(|error| match error {
            TryLockError::WouldBlock => DevError::Stale {
                dir: self.root.clone(),
                seconds: wait_max.as_secs(),
            },
            TryLockError::Error(source) => doing()(source),
        })?;
        file.set_len(0).map_err(doing())?;
        Ok(file)
    }

    /// The pid that the guard wrote, once it has.
    pub(super) fn pid(&self) -> Option<u32> {
        fs::read_to_string(self.path("pid"))
            .ok()?
            .strip_suffix('\n')?
            .parse()
            .ok()
    }

    /// A new log; the one before is kept as `….old`.
    pub(super) fn log_create(&self, name: &str) -> Result<File, DevError> {
        let path = self.path(name);
        let _ = fs::rename(&path, path.with_extension("log.old"));
        File::create(&path).map_err(DevError::io(format!("create {}", path.display())))
    }

    /// The last lines of a log.
    pub(super) fn log_tail(&self, name: &str) -> String {
        let bytes = fs::read(self.path(name)).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
    }

    /// Where the server's socket goes: here, or, where that path is too long, in a short private directory.
    pub(super) fn socket(&self) -> Result<PathBuf, DevError> {
        let here = self.path("socket");
        if here.as_os_str().len() <= SOCKET_PATH_MAX {
            return Ok(here);
        }
        let name = crc32fast::hash(self.root.as_os_str().as_encoded_bytes());
        let owner = fs::metadata(self.path("lock"))
            .map_err(DevError::io("read the lock"))?
            .uid();
        let dir = std::env::temp_dir().join(format!("thumbd-{owner}-{name:08x}"));
        private_dir(&dir, owner)
            .map_err(DevError::io(format!("use the directory {}", dir.display())))?;
        Ok(dir.join("socket"))
    }
}

fn lock_within(file: &File, max: Duration) -> Result<(), TryLockError> {
    let deadline = Instant::now() + max;
    loop {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => thread::sleep(POLL),
            result => return result,
        }
    }
}

/// Creates `dir` for this user alone, or makes sure that it is so.
fn private_dir(dir: &Path, owner: u32) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        other => return other,
    }
    let found = fs::symlink_metadata(dir)?;
    if found.is_dir() && found.uid() == owner && found.mode() & 0o077 == 0 {
        Ok(())
    } else {
        Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "it belongs to somebody else",
        ))
    }
}
