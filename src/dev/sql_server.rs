//! A private MariaDB or MySQL. Machine-wide configuration files do not matter to it.

use std::{
    fs::{self, File},
    io::Read,
    ops::{Deref, DerefMut},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use super::{
    DevError, Process, STALE_MAX,
    place::Place,
    process::{free_port, url_path},
    programs,
};

const NAME: &str = "the SQL server";
const PROGRAMS: [&str; 2] = ["mariadbd", "mysqld"];
const INSTALLERS: [&str; 2] = ["mariadb-install-db", "mysql_install_db"];
/// The client package only for `my_print_defaults`, which mariadb-install-db calls.
const PACKAGES: &str = "mariadb-server-core mariadb-client-core";
const GREETING_MAX: Duration = Duration::from_secs(1);
const NO_DEFAULTS: &str = "--no-defaults";
const INSTALL_LOG: &str = "install.log";

/// How a private SQL server runs.
#[derive(Debug, Clone)]
pub struct SqlOptions {
    /// Where its data, log and socket go.
    pub dir: PathBuf,
    /// The server program; otherwise the first one found.
    pub program: Option<PathBuf>,
    /// A database that is created when missing.
    pub database: String,
    /// 1: every commit is on disk; 2: survives a crash of the server; 0: of nothing, but fast.
    pub flush_log_at_commit: u8,
    /// Memory for pages.
    pub buffer_pool_mb: u32,
    /// Connections at once.
    pub connections_max: u32,
    /// Whether it listens on a TCP port of 127.0.0.1 too, and URLs name that one.
    pub tcp: bool,
    /// Its data are worth nothing: it is killed instead of stopped, and `dir` removed when it has ended.
    pub ephemeral: bool,
    /// Further arguments, `--name=value`.
    pub extra_args: Vec<String>,
}

impl SqlOptions {
    /// Durable, small, on a unix socket, with a database `thumbd`.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            program: None,
            database: "thumbd".into(),
            flush_log_at_commit: 1,
            buffer_pool_mb: 128,
            connections_max: 200,
            tcp: false,
            ephemeral: false,
            extra_args: Vec::new(),
        }
    }
}

/// A running MariaDB or MySQL; see [`Process`] for its life.
#[derive(Debug)]
pub struct SqlServer {
    process: Process,
    port: Option<u16>,
    database: String,
    mariadb: bool,
}

impl SqlServer {
    /// Installs the system tables into a new directory, starts the server and waits until it takes connections.
    pub fn start(options: SqlOptions) -> Result<Self, DevError> {
        let program = programs::choose(options.program.as_deref(), &PROGRAMS, PACKAGES)?;
        let mariadb = is_mariadb(&program)?;
        let place = Place::open(&options.dir)?;
        let first = first_args(&program);
        // Of its own: a MariaDB that starts removes every temporary table it finds there, those of running servers too.
        let tmp = place.path("tmp");
        fs::create_dir_all(&tmp).map_err(DevError::io(format!("create {}", tmp.display())))?;
        install(&place, &program, &first, &tmp, mariadb)?;
        let init = place.path("init.sql");
        fs::write(
            &init,
            format!(
                "CREATE DATABASE IF NOT EXISTS `{}` CHARACTER SET utf8mb4;\n",
                options.database
            ),
        )
        .map_err(DevError::io(format!("write {}", init.display())))?;
        let socket = place.socket()?;
        let port = options.tcp.then(free_port).transpose()?;
        let mut args = first;
        args.extend([
            format!("--datadir={}", place.path("data").display()),
            format!("--tmpdir={}", tmp.display()),
            format!("--socket={}", socket.display()),
            format!("--pid-file={}", place.path("mysqld.pid").display()),
            format!("--init-file={}", init.display()),
            format!(
                "--innodb-flush-log-at-trx-commit={}",
                options.flush_log_at_commit
            ),
            format!("--innodb-buffer-pool-size={}M", options.buffer_pool_mb),
            format!("--max-connections={}", options.connections_max),
            "--character-set-server=utf8mb4".into(),
            "--performance-schema=OFF".into(),
        ]);
        match port {
            Some(port) => {
                args.extend([format!("--port={port}"), "--bind-address=127.0.0.1".into()])
            }
            None => args.push("--skip-networking".into()),
        }
        if !mariadb {
            args.extend(["--mysqlx=OFF".into(), "--disable-log-bin".into()]);
        }
        args.extend(options.extra_args);
        let mut process = Process {
            name: NAME,
            program,
            args,
            socket,
            ready: greets,
            ephemeral: options.ephemeral,
            guard: None,
            pid: 0,
            place,
        };
        process.restart()?;
        Ok(Self {
            process,
            port,
            database: options.database,
            mariadb,
        })
    }

    /// The address of its own database, for sqlx.
    pub fn url(&self) -> String {
        self.database_url(&self.database)
    }

    /// The address of any of its databases, for sqlx.
    pub fn database_url(&self, database: &str) -> String {
        match self.port {
            Some(port) => format!("mysql://root@127.0.0.1:{port}/{database}"),
            None => format!(
                "mysql://root@localhost/{database}?ssl-mode=disabled&socket={}",
                url_path(&self.process.socket)
            ),
        }
    }

    /// Its TCP port, if it has one.
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// MariaDB, otherwise MySQL.
    pub fn is_mariadb(&self) -> bool {
        self.mariadb
    }
}

impl Deref for SqlServer {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl DerefMut for SqlServer {
    fn deref_mut(&mut self) -> &mut Process {
        &mut self.process
    }
}

fn is_mariadb(program: &Path) -> Result<bool, DevError> {
    let output = Command::new(program).arg("--version").output();
    let output = output.map_err(DevError::io(format!("run {} --version", program.display())))?;
    Ok(String::from_utf8_lossy(&output.stdout).contains("MariaDB"))
}

/// What must stand first. `--no-defaults` may stand nowhere else, so a wrapper script has to bring its own.
fn first_args(program: &Path) -> Vec<String> {
    let mut start = [0; 2];
    let script = File::open(program)
        .and_then(|mut file| file.read_exact(&mut start))
        .is_ok()
        && start == *b"#!";
    let root = Command::new("id")
        .arg("-u")
        .output()
        .is_ok_and(|output| output.stdout.trim_ascii() == b"0");
    let args = [
        (!script).then_some(NO_DEFAULTS),
        root.then_some("--user=root"),
    ];
    args.into_iter().flatten().map(String::from).collect()
}

/// Makes the data directory beside its final place: one that is there is whole.
fn install(
    place: &Place,
    program: &Path,
    first: &[String],
    tmp: &Path,
    mariadb: bool,
) -> Result<(), DevError> {
    let (data, partial) = (place.path("data"), place.path("data.partial"));
    if data.is_dir() {
        return Ok(());
    }
    // The installer inherits the locked file: a second start waits until it has ended.
    let pid_file = place.pid_file(STALE_MAX)?;
    let _ = fs::remove_dir_all(&partial);
    let mut command = if mariadb {
        // No --user: for its chown the script would have to quote our path, and a bootstrap may run as root without.
        // --force: a machine whose name does not resolve will do.
        let mut command = Command::new(installer(program)?);
        let defaults = first.iter().filter(|arg| *arg == NO_DEFAULTS);
        command.args(defaults).args([
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            "--force",
        ]);
        command
    } else {
        let mut command = Command::new(program);
        command.args(first).arg("--initialize-insecure");
        command
    };
    command
        .arg(format!("--datadir={}", partial.display()))
        .env("TMPDIR", tmp);
    let log = place.log_create(INSTALL_LOG)?;
    let output = log.try_clone().map_err(DevError::io("share the log"))?;
    let status = command.stdin(pid_file).stdout(output).stderr(log).status();
    let status = status.map_err(DevError::io("install the system tables"))?;
    if !status.success() {
        return Err(DevError::Exited {
            name: "the installation of the system tables",
            status,
            log: place.log_tail(INSTALL_LOG),
        });
    }
    fs::rename(&partial, &data).map_err(DevError::io(format!("rename {}", partial.display())))
}

/// The installer that belongs to the server, otherwise any.
fn installer(program: &Path) -> Result<PathBuf, DevError> {
    let prefix = program
        .parent()
        .and_then(Path::parent)
        .unwrap_or(Path::new("/"));
    let own = ["bin", "scripts"]
        .iter()
        .map(|dir| prefix.join(dir).join(INSTALLERS[0]))
        .find(|path| path.is_file());
    programs::choose(
        own.or_else(|| programs::find(&INSTALLERS)).as_deref(),
        &INSTALLERS,
        PACKAGES,
    )
}

/// Whether it takes connections: the first packet of one that does is numbered 0 and says protocol 10.
fn greets(socket: &Path) -> bool {
    let listen = || {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(GREETING_MAX))?;
        let mut packet = [0; 5];
        stream.read_exact(&mut packet)?;
        Ok::<_, std::io::Error>(packet[3..] == [0, 10])
    };
    listen().unwrap_or(false)
}
