//! Child processes and the CPU time they take: this program in another role, or thumbd.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    net::TcpListener,
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};

use crate::{
    limits::{ADMIN_TOKEN, FLUSH_MAX, SERVICE_KEY, START_MAX},
    window::Outcome,
};

/// Ticks per second in /proc: 100 on every Linux that Rust's std supports, whatever the kernel's own clock.
const TICKS_PER_SECOND: f64 = 100.0;

/// This program in another role. It goes when this value goes, or its owner.
pub(crate) struct Worker {
    child: Child,
    stdout: BufReader<ChildStdout>,
    stdin: Option<ChildStdin>,
}

/// An outcome and the CPU seconds that some processes took within its window.
#[derive(Debug)]
pub(crate) struct Sample {
    pub(crate) outcome: Outcome,
    pub(crate) cpu: Vec<f64>,
}

impl Sample {
    /// CPU microseconds per accepted like of the process with this place in the list.
    pub(crate) fn cpu_per_like(&self, process: usize) -> f64 {
        self.cpu[process] * 1e6 / self.outcome.accepted as f64
    }
}

impl Worker {
    pub(crate) fn spawn(role: &str, spec: &str) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(role);
        if !spec.is_empty() {
            command.arg(spec);
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("start {role}"))?;
        let stdout = child.stdout.take().context("a worker without stdout")?;
        let stdin = child.stdin.take();
        Ok(Self {
            child,
            stdout: BufReader::new(stdout),
            stdin,
        })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line that it says.
    pub(crate) fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        if self.stdout.read_line(&mut line)? == 0 {
            bail!("a worker ended before its time: {}", self.child.wait()?);
        }
        Ok(line.trim_end().to_owned())
    }

    /// Waits for the worker's window and gives back what became of it.
    pub(crate) fn measure(mut self, pids: &[u32]) -> anyhow::Result<Sample> {
        self.expect("go")?;
        let before = cpu_seconds(pids)?;
        self.finish(pids, &before)
    }

    /// Waits until the measurement has begun.
    pub(crate) fn expect(&mut self, word: &str) -> anyhow::Result<()> {
        match self.line()? {
            line if line == word => Ok(()),
            line => bail!("a worker said {line:?} instead of {word}"),
        }
    }

    /// Tells it to end now and gives back what became of it.
    pub(crate) fn let_go(mut self) -> anyhow::Result<Outcome> {
        self.stdin = None;
        Ok(self.finish(&[], &[])?.outcome)
    }

    fn finish(mut self, pids: &[u32], before: &[f64]) -> anyhow::Result<Sample> {
        self.expect("end")?;
        let cpu = cpu_seconds(pids)?
            .iter()
            .zip(before)
            .map(|(after, before)| after - before)
            .collect();
        let outcome = serde_json::from_str(&self.line()?).context("read an outcome")?;
        Ok(Sample { outcome, cpu })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The thumbd that is measured. Its data are worth nothing, so dropping it kills it.
pub(crate) struct Thumbd {
    child: Child,
    pub(crate) address: String,
    client: reqwest::Client,
}

/// What thumbd says about an on-demand flush.
#[derive(Debug, serde::Deserialize)]
pub(crate) struct Flushed {
    pub(crate) entries: u64,
    pub(crate) rows_changed: u64,
}

impl Thumbd {
    /// Starts `thumbd serve` and waits until it is ready.
    pub(crate) async fn start(
        program: &Path,
        dir: &Path,
        redis_url: &str,
        database_url: &str,
        slice_seconds: u64,
    ) -> anyhow::Result<Self> {
        // Free a moment ago: nobody else on this machine is likely to take it in the meantime.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let log = dir.join("thumbd.log");
        let child = self::program(program, redis_url, database_url, slice_seconds)
            .arg("serve")
            .env("THUMBD_LISTEN", &address)
            .env("THUMBD_SERVICE_KEY", SERVICE_KEY)
            .env("THUMBD_ADMIN_TOKEN", ADMIN_TOKEN)
            // The largest that is allowed: a flush of a million entries is one request.
            .env(
                "THUMBD_REQUEST_TIMEOUT_MS",
                FLUSH_MAX.as_millis().to_string(),
            )
            .stdin(Stdio::null())
            .stdout(File::create(dir.join("thumbd.out"))?)
            .stderr(File::create(&log)?)
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        // Nothing drives the client between two calls, so it would not see that thumbd closed an idle connection.
        let client = reqwest::Client::builder()
            .timeout(FLUSH_MAX)
            .pool_max_idle_per_host(0)
            .build()?;
        let mut thumbd = Self {
            child,
            address,
            client,
        };
        thumbd
            .ready()
            .await
            .with_context(|| fs::read_to_string(&log).unwrap_or_default())?;
        Ok(thumbd)
    }

    async fn ready(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + START_MAX;
        let url = format!("http://{}/readyz", self.address);
        loop {
            if let Some(status) = self.child.try_wait()? {
                bail!("thumbd serve ended at its start: {status}");
            }
            match self.client.get(&url).send().await {
                Ok(answer) if answer.status() == 200 => return Ok(()),
                _ if Instant::now() > deadline => bail!("thumbd serve does not become ready"),
                _ => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Has everything accepted so far carried into the database.
    pub(crate) async fn flush(&self) -> anyhow::Result<Flushed> {
        let url = format!("http://{}/admin/v1/flushes", self.address);
        let request = self.client.post(url).bearer_auth(ADMIN_TOKEN);
        let answer = request.send().await.context("flush")?;
        let status = answer.status();
        let body = answer.text().await.context("flush")?;
        if status != 200 {
            bail!("a flush was answered with {status}: {body}");
        }
        serde_json::from_str(&body).with_context(|| format!("read {body}"))
    }
}

impl Drop for Thumbd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program on some servers, with no settings but these.
pub(crate) fn program(
    program: &Path,
    redis_url: &str,
    database_url: &str,
    slice_seconds: u64,
) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("THUMBD_") {
            command.env_remove(name);
        }
    }
    command
        .env("THUMBD_REDIS_URL", redis_url)
        .env("THUMBD_DATABASE_URL", database_url)
        .env("THUMBD_SLICE_SECONDS", slice_seconds.to_string())
        .env("THUMBD_LOG", "warn");
    command
}

/// User and system time of some processes so far.
pub(crate) fn cpu_seconds(pids: &[u32]) -> anyhow::Result<Vec<f64>> {
    pids.iter().map(|pid| cpu_of(*pid)).collect()
}

fn cpu_of(pid: u32) -> anyhow::Result<f64> {
    let path = format!("/proc/{pid}/stat");
    let text = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    // The name, which may contain anything, stands in brackets; user and system time are the 14th and 15th field.
    let ticks: Option<u64> = text.rsplit_once(')').and_then(|(_, rest)| {
        let mut fields = rest.split_whitespace().skip(11);
        let user: u64 = fields.next()?.parse().ok()?;
        let system: u64 = fields.next()?.parse().ok()?;
        Some(user + system)
    });
    Ok(ticks.with_context(|| format!("{path} has no times"))? as f64 / TICKS_PER_SECOND)
}
