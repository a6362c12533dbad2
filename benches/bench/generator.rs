//! The process that makes load over HTTP: some connections, each with one request under way, from one thread.

use std::{
    cell::{Cell, RefCell},
    fmt,
    rc::Rc,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use anyhow::Context;
use serde::{Deserialize, Serialize};
use tokio::task::LocalSet;

use crate::{
    limits::{RETRY_WAIT, TRIES_MAX},
    pairs,
    window::{Outcome, Window, say, when_let_go},
    wire::{self, Connection},
};

static LET_GO: AtomicBool = AtomicBool::new(false);

/// What load to make.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Load {
    pub(crate) address: String,
    pub(crate) connections: usize,
    /// Operations of one request: 1 is a single like, more are a batch.
    pub(crate) operations: u64,
    /// The first pair to take.
    pub(crate) from: u64,
    pub(crate) until: Until,
    /// Requests per second in all; without, as many as go.
    pub(crate) rate: Option<f64>,
}

/// When the load ends.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Until {
    /// After some time to warm up and some time that counts.
    Time { ramp: Duration, length: Duration },
    /// When this many pairs were accepted. What is refused is sent again.
    Pairs { count: u64, everyone: bool },
    /// When the parent lets go.
    LetGo,
}

struct Shared {
    load: Load,
    window: Window,
    next: Cell<u64>,
    outcome: RefCell<Outcome>,
}

/// The worker's main function.
pub(crate) fn run(spec: &str) -> anyhow::Result<()> {
    let load: Load = serde_json::from_str(spec).context("read the load")?;
    when_let_go(|| LET_GO.store(true, Ordering::Relaxed));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let outcome = LocalSet::new().block_on(&runtime, drive(load))?;
    say(&serde_json::to_string(&outcome)?);
    Ok(())
}

async fn drive(load: Load) -> anyhow::Result<Outcome> {
    let mut connections = Vec::new();
    for _ in 0..load.connections {
        let connection = Connection::open(&load.address).await;
        connections.push(connection.with_context(|| format!("connect to {}", load.address))?);
    }
    let begin = Instant::now();
    let (window, announcer) = match load.until {
        Until::Time { ramp, length } => {
            let (window, announcer) = Window::announce(ramp, length);
            (window, Some(announcer))
        }
        _ => {
            say("go");
            let end = begin + Duration::from_secs(86_400);
            (Window { begin, end }, None)
        }
    };
    let shared = Rc::new(Shared {
        window,
        next: Cell::new(load.from),
        outcome: RefCell::default(),
        load,
    });
    let tasks: Vec<_> = connections
        .into_iter()
        .enumerate()
        .map(|(number, connection)| {
            tokio::task::spawn_local(converse(Rc::clone(&shared), number, connection))
        })
        .collect();
    for task in tasks {
        task.await?;
    }
    if let Some(announcer) = announcer {
        let _ = announcer.join();
    }
    let mut outcome = shared.outcome.take();
    outcome.used = shared.next.get() - shared.load.from;
    outcome.seconds = match shared.load.until {
        Until::Time { length, .. } => length.as_secs_f64(),
        _ => {
            say("end");
            begin.elapsed().as_secs_f64()
        }
    };
    Ok(outcome)
}

/// One connection's life.
async fn converse(shared: Rc<Shared>, number: usize, mut connection: Connection) {
    let load = &shared.load;
    let mut request = Vec::new();
    let pace = load
        .rate
        .map(|rate| Duration::from_secs_f64(load.connections as f64 / rate));
    let mut due =
        Instant::now() + pace.unwrap_or_default() * number as u32 / load.connections as u32;
    while let Some(operations) = shared.take(&mut request) {
        let mut sent = Instant::now();
        if let Some(pace) = pace {
            if sent < due {
                // The timer is coarse: an answer is timed from when it woke us, or from when it was due if we are late.
                tokio::time::sleep_until(due.into()).await;
                sent = Instant::now();
            } else {
                sent = due;
            }
            due += pace;
        }
        for attempt in 1..=TRIES_MAX {
            let sent = shared.send(&mut connection, &request, operations, sent);
            let Err(refusal) = sent.await else { break };
            shared.outcome.borrow_mut().failed(refusal, operations);
            if refusal == Refusal::NoAnswer {
                match Connection::open(&load.address).await {
                    Ok(new) => connection = new,
                    Err(_) => return,
                }
            }
            if attempt == TRIES_MAX || !matches!(load.until, Until::Pairs { .. }) {
                break;
            }
            tokio::time::sleep(RETRY_WAIT).await;
        }
    }
}

/// Why a request was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refusal {
    NoAnswer,
    Status(u16),
    /// Part of a batch, where all of it must be accepted.
    Part,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAnswer => f.write_str("no answer"),
            Self::Status(status) => write!(f, "{status}"),
            Self::Part => f.write_str("part of a batch"),
        }
    }
}

impl Shared {
    /// Writes the next request, if there is one, and says how many operations it has.
    fn take(&self, request: &mut Vec<u8>) -> Option<u64> {
        let from = self.next.get();
        let (left, order) = match self.load.until {
            Until::Time { .. } if Instant::now() >= self.window.end => return None,
            Until::Pairs { count, everyone } => (
                (self.load.from + count).saturating_sub(from),
                if everyone {
                    pairs::everyone
                } else {
                    pairs::pair
                },
            ),
            _ => (u64::MAX, pairs::pair as fn(u64) -> pairs::Pair),
        };
        if left == 0 || LET_GO.load(Ordering::Relaxed) {
            return None;
        }
        let operations = self.load.operations.min(left);
        self.next.set(from + operations);
        if self.load.operations == 1 {
            wire::like(request, order(from));
        } else {
            wire::batch(request, (from..from + operations).map(order));
        }
        Some(operations)
    }

    /// Sends a request and enters what came back; a refusal of the whole is given back.
    async fn send(
        &self,
        connection: &mut Connection,
        request: &[u8],
        operations: u64,
        sent: Instant,
    ) -> Result<(), Refusal> {
        let (status, body) = connection
            .exchange(request)
            .await
            .map_err(|_| Refusal::NoAnswer)?;
        if status != 200 {
            return Err(Refusal::Status(status));
        }
        let now = Instant::now();
        let accepted = match operations {
            _ if self.load.operations == 1 => 1,
            _ => wire::occurrences(body, r#""status":200"#),
        };
        if accepted < operations && matches!(self.load.until, Until::Pairs { .. }) {
            return Err(Refusal::Part);
        }
        let changed = wire::occurrences(body, r#""changed":true"#);
        let mut outcome = self.outcome.borrow_mut();
        outcome.failed("operation refused", operations.saturating_sub(accepted));
        outcome.accepted_in_all += accepted;
        if self.window.contains(now) {
            outcome.accepted += accepted;
            outcome.changed += changed;
        }
        if self.load.rate.is_some() {
            let micros = now.duration_since(sent).as_micros();
            outcome
                .latencies
                .push(micros.try_into().unwrap_or(u32::MAX));
        }
        Ok(())
    }
}
