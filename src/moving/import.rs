//! Carries lines into MySQL chunk by chunk, beside requests and flushes, and tells Redis after each what was changed.
//!
//! It may die anywhere and be begun again from the start: what is there is not newer than its row and changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::sync::mpsc::Receiver;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::line::Line;
use crate::config::Settings;
use crate::domain::{Entry, Target, UserId, Version, partition_of};
use crate::flush::{FlushError, Flusher, Upto};
use crate::hot::HotError;
use crate::jobs::{JobError, Lease};
use crate::ledger::{ImportChunk, Imported, Layout, LedgerError};
use crate::limits::{IMPORT_HOLD, IMPORT_LEASE_MAX, IMPORT_PAUSE};
use crate::service::{Service, layout, new_generation};
use crate::steps;

/// What may be chosen.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Lines before this one are left out.
    pub from_line: u64,
    /// Lines that may be refused.
    pub errors_max: u64,
    /// Ends the import behind the chunk that is under way.
    pub stop: CancellationToken,
}

/// What has become of the lines so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// Lines that were read, without header and empty ones.
    pub lines: u64,
    /// Likes that were not there.
    pub likes: u64,
    /// Lines that said nothing new.
    pub already: u64,
    /// Lines whose user or target was erased since: they are left out.
    pub erased: u64,
    /// Lines that were not taken, those of the transaction that failed included.
    pub refused: u64,
    /// Up to here everything is in; an import from the next line goes on.
    pub reached: u64,
}

/// Why an import ended early. What is in is in, see [`Summary::reached`]; it may be begun again.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// Redis.
    #[error("redis")]
    Hot(#[from] HotError),
    /// MySQL.
    #[error("database")]
    Ledger(#[from] LedgerError),
    /// A flush in between.
    #[error("flush")]
    Flush(#[from] FlushError),
    /// The lease.
    #[error("{0}")]
    Lease(#[from] JobError),
    /// Not all partitions answer.
    #[error("a partition of Redis cannot be reached")]
    Unreachable,
    /// More lines were refused than may be.
    #[error(
        "{refused} lines were refused, {allowed} are allowed (--max-errors); nothing of the transaction with the last of them was imported"
    )]
    TooManyRefused {
        /// How many were.
        refused: u64,
        /// How many may be.
        allowed: u64,
    },
}

/// One import.
pub struct Importer {
    service: Service,
    flusher: Flusher,
    layout: Layout,
    rows_max: usize,
    lease_life: Duration,
    options: Options,
    clamp: Version,
    summary: Summary,
    paused_at: Instant,
}

/// Lines that go into one transaction.
#[derive(Default)]
struct Batch {
    numbers: Vec<u64>,
    entries: Vec<(u16, Entry)>,
    /// Lines that were read, the refused ones included.
    lines: u64,
    refused: u64,
    last: u64,
    /// Nothing comes behind it.
    end: bool,
}

impl Importer {
    /// Flushes what was accepted so far, and stops pruning.
    pub async fn begin(
        service: &Service,
        settings: &Settings,
        options: Options,
    ) -> Result<Self, ImportError> {
        let mut importer = Self {
            flusher: Flusher::new(service.hot().clone(), service.ledger().clone(), settings),
            service: service.clone(),
            layout: layout(settings),
            rows_max: settings.flush_rows_max as usize,
            lease_life: Duration::from_millis(settings.lease_ttl_ms),
            summary: Summary {
                reached: options.from_line.saturating_sub(1),
                ..Summary::default()
            },
            options,
            clamp: Version(0),
            paused_at: Instant::now(),
        };
        importer.clamp = importer.lowest_clock().await?;
        let lease = importer.lease().await?;
        // What was accepted up to that clock has its row then: no given time can overtake it unseen.
        let flushed = importer.flusher.run(|| Upto::Now).await;
        let held = importer.service.ledger().import_hold().await;
        lease.release().await;
        if flushed?.partitions_skipped > 0 {
            return Err(ImportError::Unreachable);
        }
        held?;
        steps::point("import.begun").await;
        Ok(importer)
    }

    /// Below every operation that can still come.
    async fn lowest_clock(&self) -> Result<Version, HotError> {
        let mut lowest = u64::MAX;
        for partition in 0..self.layout.partitions {
            let peek = self.service.hot().peek(partition).await?;
            lowest = lowest.min(peek.clock.0.max(peek.time_ms * 1000));
        }
        Ok(Version(lowest.saturating_sub(1)))
    }

    /// What has become of the lines so far.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// Imports all lines. `on_refused` hears of each that is not taken, `on_chunk` of each transaction.
    pub async fn run(
        &mut self,
        lines: &mut Receiver<Line>,
        mut on_refused: impl FnMut(u64, &str),
        mut on_chunk: impl FnMut(&Summary),
    ) -> Result<(), ImportError> {
        loop {
            let batch = self.collect(lines, &mut on_refused).await?;
            let end = batch.end;
            if batch.lines > 0 {
                self.land(batch, &mut on_refused).await?;
                on_chunk(&self.summary);
                self.pause().await;
            }
            if end || self.options.stop.is_cancelled() {
                return Ok(());
            }
        }
    }

    async fn collect(
        &mut self,
        lines: &mut Receiver<Line>,
        on_refused: &mut impl FnMut(u64, &str),
    ) -> Result<Batch, ImportError> {
        let mut batch = Batch::default();
        while batch.entries.len() < self.rows_max {
            let line = tokio::select! {
                line = lines.recv() => line,
                () = self.options.stop.cancelled() => None,
                // Whoever sends the lines may be slow.
                () = tokio::time::sleep(IMPORT_HOLD / 4) => {
                    self.service.ledger().import_hold().await?;
                    continue;
                }
            };
            let Some(line) = line else {
                batch.end = true;
                break;
            };
            if line.number < self.options.from_line {
                continue;
            }
            batch.lines += 1;
            batch.last = line.number;
            match line.like {
                Ok(like) => {
                    let home = partition_of(&like.user, self.layout.partitions);
                    let entry = Entry {
                        user: like.user,
                        target: like.target,
                        thumbed: true,
                        version: like.version.min(self.clamp),
                    };
                    batch.numbers.push(line.number);
                    batch.entries.push((home, entry));
                }
                Err(problem) => self.refuse(&mut batch, line.number, &problem, on_refused)?,
            }
        }
        Ok(batch)
    }

    fn refuse(
        &mut self,
        batch: &mut Batch,
        number: u64,
        problem: &str,
        on_refused: &mut impl FnMut(u64, &str),
    ) -> Result<(), ImportError> {
        on_refused(number, problem);
        batch.refused += 1;
        self.summary.refused += 1;
        let refused = self.summary.refused;
        if refused > self.options.errors_max {
            return Err(ImportError::TooManyRefused {
                refused,
                allowed: self.options.errors_max,
            });
        }
        Ok(())
    }

    async fn land(
        &mut self,
        mut batch: Batch,
        on_refused: &mut impl FnMut(u64, &str),
    ) -> Result<(), ImportError> {
        let lease = self.lease().await?;
        let landed = self.land_held(&mut batch, on_refused).await;
        lease.release().await;
        let (likes, erased) = landed?;
        self.summary.lines += batch.lines;
        self.summary.likes += likes;
        self.summary.erased += erased;
        self.summary.already += batch.lines - batch.refused - erased - likes;
        self.summary.reached = batch.last;
        Ok(())
    }

    /// While the lease is held, so that no flush of others meets the mark. Gives how many likes are new, and how many are void.
    async fn land_held(
        &mut self,
        batch: &mut Batch,
        on_refused: &mut impl FnMut(u64, &str),
    ) -> Result<(u64, u64), ImportError> {
        let token = new_generation();
        let imported = loop {
            let imported = self.apply(&batch.entries, &token).await?;
            if imported.refused.is_empty() {
                break imported;
            }
            for (at, reason) in &imported.refused {
                let problem = format!("the database refuses it: {reason}");
                self.refuse(batch, batch.numbers[*at], &problem, on_refused)?;
            }
            leave_out(&mut batch.entries, &imported.refused);
            leave_out(&mut batch.numbers, &imported.refused);
        };
        steps::point("import.applied").await;
        if !imported.changed.is_empty() {
            self.tell(&batch.entries, &imported).await?;
            self.service.ledger().outside_clear(&token).await?;
            steps::point("import.told").await;
            // What was dirty cannot be loaded before it has landed.
            match self.flusher.run(|| Upto::Now).await {
                Ok(_) | Err(FlushError::Overtaken | FlushError::Unsealed(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let likes = imported.changed.iter().filter(|(_, new)| *new).count();
        Ok((likes as u64, imported.void as u64))
    }

    async fn apply(&self, entries: &[(u16, Entry)], token: &str) -> Result<Imported, ImportError> {
        let chunk = ImportChunk {
            token: token.to_owned(),
            layout: self.layout.clone(),
            entries: entries.to_vec(),
            clamp: self.clamp,
        };
        match self.service.ledger().import(&chunk).await {
            Err(LedgerError::OutsideOther) => {
                // Somebody died; a flush makes cold what he did not tell.
                self.flusher.run(|| Upto::Now).await?;
                Ok(self.service.ledger().import(&chunk).await?)
            }
            other => Ok(other?),
        }
    }

    /// Redis forgets what was changed.
    async fn tell(&self, entries: &[(u16, Entry)], imported: &Imported) -> Result<(), HotError> {
        let mut told: BTreeMap<u16, (BTreeSet<UserId>, BTreeSet<Target>)> = BTreeMap::new();
        for (at, new) in &imported.changed {
            let (partition, entry) = &entries[*at];
            let (users, targets) = told.entry(*partition).or_default();
            users.insert(entry.user.clone());
            if *new {
                targets.insert(entry.target.clone());
            }
        }
        for (partition, (users, targets)) in told {
            let (users, targets) = (Vec::from_iter(users), Vec::from_iter(targets));
            let hot = self.service.hot();
            hot.forget_all(partition, &users, &targets).await?;
            steps::point("import.forgotten").await;
        }
        Ok(())
    }

    /// Waits for as long as it takes: the compensator of a large site has it for minutes.
    async fn lease(&self) -> Result<Lease, JobError> {
        loop {
            let lease = Lease::wait(self.service.hot(), &new_generation(), self.lease_life).await;
            match lease {
                Err(JobError::LeaseHeld) if !self.options.stop.is_cancelled() => {
                    tracing::info!("the import waits for a job of another instance");
                }
                other => return other,
            }
        }
    }

    /// Lets others have the lease now and then.
    async fn pause(&mut self) {
        if self.paused_at.elapsed() > IMPORT_LEASE_MAX {
            tokio::time::sleep(IMPORT_PAUSE).await;
            self.paused_at = Instant::now();
        }
    }
}

/// Removes what stands at these places.
fn leave_out<T>(items: &mut Vec<T>, places: &BTreeMap<usize, String>) {
    let mut at = 0;
    items.retain(|_| {
        at += 1;
        !places.contains_key(&(at - 1))
    });
}
