//! A private Redis or Valkey.

use std::{
    fs,
    io::{Read, Write},
    ops::{Deref, DerefMut},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{
    DevError, Process,
    place::Place,
    process::{free_port, url_path},
    programs,
};

const PROGRAMS: [&str; 2] = ["redis-server", "valkey-server"];
const PING_MAX: Duration = Duration::from_secs(1);

/// How a private Redis runs. It never evicts.
#[derive(Debug, Clone)]
pub struct RedisOptions {
    /// Where its data, log and socket go.
    pub dir: PathBuf,
    /// The server program; otherwise the first one found.
    pub program: Option<PathBuf>,
    /// Whether it keeps an append-only file, written to disk every second.
    pub aof: bool,
    /// When it writes snapshots, as in `save`; empty for never.
    pub save: String,
    /// Whether it listens on a TCP port of 127.0.0.1 too, and `url` names that one.
    pub tcp: bool,
    /// Its data are worth nothing: it is killed instead of stopped, and `dir` removed when it has ended.
    pub ephemeral: bool,
    /// Further arguments, `--name value`.
    pub extra_args: Vec<String>,
}

impl RedisOptions {
    /// With an append-only file, on a unix socket.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        let dir = dir.into();
        Self {
            dir,
            program: None,
            aof: true,
            save: String::new(),
            tcp: false,
            ephemeral: false,
            extra_args: Vec::new(),
        }
    }
}

/// A running Redis; see [`Process`] for its life.
#[derive(Debug)]
pub struct RedisServer {
    process: Process,
    port: Option<u16>,
}

impl RedisServer {
    /// Starts a server and waits until it answers PONG.
    pub fn start(options: RedisOptions) -> Result<Self, DevError> {
        let program = programs::choose(options.program.as_deref(), &PROGRAMS, "redis-server")?;
        let place = Place::open(&options.dir)?;
        let data = place.path("data");
        fs::create_dir_all(&data).map_err(DevError::io(format!("create {}", data.display())))?;
        let socket = place.socket()?;
        let port = options.tcp.then(free_port).transpose()?;
        let mut args = vec![
            "--dir".into(),
            data.display().to_string(),
            "--unixsocket".into(),
            socket.display().to_string(),
            "--port".into(),
            port.unwrap_or(0).to_string(),
            "--appendonly".into(),
            if options.aof { "yes" } else { "no" }.into(),
            "--save".into(),
            options.save,
        ];
        args.extend("--unixsocketperm 700 --bind 127.0.0.1 --daemonize no --appendfsync everysec --maxmemory-policy noeviction".split(' ').map(String::from));
        args.extend(options.extra_args);
        let mut process = Process {
            name: "redis-server",
            program,
            args,
            socket,
            ready: answers_pong,
            ephemeral: options.ephemeral,
            guard: None,
            pid: 0,
            place,
        };
        process.restart()?;
        Ok(Self { process, port })
    }

    /// Its address, for the redis crate.
    pub fn url(&self) -> String {
        match self.port {
            Some(port) => format!("redis://127.0.0.1:{port}"),
            None => format!("redis+unix://{}", url_path(&self.process.socket)),
        }
    }

    /// Its TCP port, if it has one.
    pub fn port(&self) -> Option<u16> {
        self.port
    }
}

impl Deref for RedisServer {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl DerefMut for RedisServer {
    fn deref_mut(&mut self) -> &mut Process {
        &mut self.process
    }
}

fn answers_pong(socket: &Path) -> bool {
    let ask = || {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PING_MAX))?;
        stream.write_all(b"PING\r\n")?;
        let mut answer = [0; 7];
        stream.read_exact(&mut answer)?;
        Ok::<_, std::io::Error>(answer == *b"+PONG\r\n")
    };
    ask().unwrap_or(false)
}
