//! Keeps calls in flight: as many as allowed, at the rate asked for, and never two at once that hold the same user and target.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::Context as _;
use indicatif::ProgressBar;
use tokio::sync::mpsc::Receiver;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::Arguments;
use super::client::{Answer, Client};
use super::lines::Line;
use super::tally::Tally;
use crate::domain::{Operation, Target, UserId};

/// Calls in a row that get no answer, all their tries included, before the rest of the file is given up.
const UNANSWERED_CALLS_MAX: u32 = 64;
/// How far a slow stretch is caught up with, above the rate asked for.
const CATCH_UP_MAX: Duration = Duration::from_secs(1);

type Pair = (UserId, Target);

/// A call under way: what it sends, and the lines from which that comes.
struct Call {
    operations: Vec<Operation>,
    lines: Vec<u64>,
}

/// Owns all that changes during a run; the calls only bring back their answers.
pub(super) struct Driver {
    client: Client,
    concurrency: usize,
    batch: usize,
    pace: Option<Pace>,
    calls: JoinSet<(Call, Answer)>,
    in_flight: HashSet<Pair>,
    unanswered_calls: u32,
    tally: Tally,
    progress: ProgressBar,
}

impl Driver {
    pub(super) fn new(
        client: Client,
        arguments: &Arguments,
        progress: ProgressBar,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            client,
            concurrency: arguments.concurrency,
            batch: arguments.batch,
            pace: (arguments.rate > 0).then(|| Pace::new(arguments.rate)),
            calls: JoinSet::new(),
            in_flight: HashSet::new(),
            unanswered_calls: 0,
            tally: Tally::new()?,
            progress,
        })
    }

    /// Sends all lines and waits for all answers; gives up on a server that no longer answers at all.
    pub(super) async fn drive(&mut self, mut lines: Receiver<Line>) -> anyhow::Result<()> {
        while let Some(call) = self.next_call(&mut lines).await? {
            if let Some(pace) = &mut self.pace {
                pace.wait(call.operations.len()).await;
            }
            while self.must_wait(&call) {
                self.take_answer().await?;
            }
            if self.unanswered_calls >= UNANSWERED_CALLS_MAX {
                self.stop("No answer to many calls in a row");
                return Ok(());
            }
            let pairs = call.operations.iter().map(pair);
            self.in_flight.extend(pairs);
            let client = self.client.clone();
            self.calls.spawn(async move {
                let answer = client.send(&call.operations).await;
                (call, answer)
            });
        }
        while !self.calls.is_empty() {
            self.take_answer().await?;
        }
        Ok(())
    }

    /// Ends a run before its time.
    pub(super) fn stop(&mut self, why: &'static str) {
        self.calls.abort_all();
        self.tally.stop(why);
    }

    pub(super) fn into_tally(self) -> Tally {
        self.tally
    }

    /// The next operations in the file's order: a full batch, or what is left.
    async fn next_call(&mut self, lines: &mut Receiver<Line>) -> anyhow::Result<Option<Call>> {
        let mut call = Call {
            operations: Vec::with_capacity(self.batch),
            lines: Vec::with_capacity(self.batch),
        };
        while call.operations.len() < self.batch {
            let line = tokio::select! {
                biased;
                Some(done) = self.calls.join_next() => {
                    self.count(done)?;
                    continue;
                }
                line = lines.recv() => line,
            };
            match line {
                Some(Line {
                    number,
                    operation: Ok(operation),
                }) => {
                    call.operations.push(operation);
                    call.lines.push(number);
                }
                Some(Line {
                    number,
                    operation: Err(problem),
                }) => self.tally.bad_line(problem, number),
                None => break,
            }
        }
        Ok((!call.operations.is_empty()).then_some(call))
    }

    fn must_wait(&self, call: &Call) -> bool {
        self.calls.len() >= self.concurrency
            || call
                .operations
                .iter()
                .any(|operation| self.in_flight.contains(&pair(operation)))
    }

    async fn take_answer(&mut self) -> anyhow::Result<()> {
        match self.calls.join_next().await {
            Some(done) => self.count(done),
            None => Ok(()),
        }
    }

    fn count(
        &mut self,
        done: Result<(Call, Answer), tokio::task::JoinError>,
    ) -> anyhow::Result<()> {
        let (call, answer) = done.context("a call died")?;
        for operation in &call.operations {
            self.in_flight.remove(&pair(operation));
        }
        self.unanswered_calls = if answer.answered {
            0
        } else {
            self.unanswered_calls + 1
        };
        self.tally.add(answer, &call.lines);
        if !self.progress.is_hidden() {
            self.progress.set_message(self.tally.line());
        }
        Ok(())
    }
}

fn pair(operation: &Operation) -> Pair {
    (operation.user.clone(), operation.target.clone())
}

/// Spreads operations evenly over time.
struct Pace {
    per_operation: Duration,
    next: Instant,
}

impl Pace {
    fn new(rate: u64) -> Self {
        Self {
            per_operation: Duration::from_secs(1).div_f64(rate as f64),
            next: Instant::now(),
        }
    }

    async fn wait(&mut self, operations: usize) {
        sleep_until(self.next).await;
        let earliest = Instant::now()
            .checked_sub(CATCH_UP_MAX)
            .unwrap_or(self.next);
        self.next = self.next.max(earliest) + self.per_operation.mul_f64(operations as f64);
    }
}
