//! One run: recover, seal; then per slice, oldest first: read, apply, mark, unpin, drop.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::quarantine::{self, Refused, Why};
use super::read::off_the_workers;
use super::recent::{Rise, rises};
use super::{FlushError, FlushReport, Flusher, Upto};
use crate::domain::{Entry, SliceId, Target, UserId};
use crate::hot::{Peek, Sealed, Unpin};
use crate::ledger::{Chunk, Quarantined};
use crate::limits::UNPIN_KEYS_MAX;
use crate::service::{ServiceError, distrust, new_generation, recover_check};
use crate::steps;
use crate::telemetry::names;

/// What a run holds after it has sealed.
struct Work {
    fence: String,
    /// Per slice the partitions in which it lives.
    slices: BTreeMap<SliceId, BTreeSet<u16>>,
    /// The partitions that were sealed, each with kept slices that may go.
    partitions: BTreeMap<u16, Vec<SliceId>>,
    /// The newest slice of which Redis or this run knows that it landed.
    landed: SliceId,
}

/// The entries of a slice, and where each user and each target of a partition stands first.
struct Batch {
    entries: Vec<(u16, Entry)>,
    users: Vec<u32>,
    targets: Vec<u32>,
    /// What rises most by them.
    rises: Vec<Rise>,
}

impl Batch {
    fn new(mut entries: Vec<(u16, Entry)>, rows_max: usize) -> Self {
        // Neighbours in the table go into the same transaction.
        entries.sort_unstable_by(|(_, a), (_, b)| (&a.user, &a.target).cmp(&(&b.user, &b.target)));
        // Only of a user who needs several transactions is the time of each entry seen from outside: by the change feed.
        for of_user in entries.chunk_by_mut(|(_, a), (_, b)| a.user == b.user) {
            if of_user.len() > rows_max {
                of_user.sort_unstable_by_key(|(_, entry)| entry.version);
            }
        }
        let all = || (0..entries.len() as u32).collect::<Vec<u32>>();
        let (mut users, mut targets) = (all(), all());
        let user = |at: &u32| (entries[*at as usize].0, &entries[*at as usize].1.user);
        users.sort_unstable_by(|a, b| user(a).cmp(&user(b)));
        users.dedup_by(|a, b| user(a) == user(b));
        let target = |at: &u32| (entries[*at as usize].0, &entries[*at as usize].1.target);
        targets.sort_unstable_by(|a, b| target(a).cmp(&target(b)));
        let thumbs = targets.iter().map(|at| &entries[*at as usize].1);
        let rises = rises(thumbs.map(|entry| (&entry.target, entry.thumbed)));
        targets.dedup_by(|a, b| target(a) == target(b));
        Self {
            users,
            targets,
            rises,
            entries,
        }
    }

    /// The entries in parts of at most `max`, at least one. A user stands in several only if they have more than that; the parts
    /// are then in the order of time.
    fn chunks(&self, max: usize) -> Vec<&[(u16, Entry)]> {
        let (mut chunks, mut rest) = (Vec::new(), self.entries.as_slice());
        while rest.len() > max {
            let cut = &rest[max].1.user;
            let before = rest.partition_point(|(_, entry)| entry.user < *cut);
            let (chunk, behind) = rest.split_at(if before == 0 { max } else { before });
            chunks.push(chunk);
            rest = behind;
        }
        chunks.push(rest);
        chunks
    }

    /// Users or targets of one partition, each once.
    fn pick<'a, T>(&'a self, partition: u16, ats: &[u32], of: fn(&Entry) -> &T) -> Vec<&'a T> {
        ats.iter()
            .map(|at| &self.entries[*at as usize])
            .filter(|(home, _)| *home == partition)
            .map(|(_, entry)| of(entry))
            .collect()
    }
}

impl Flusher {
    /// Runs once. `upto` is asked immediately before sealing, so that whoever came until then is served by this run.
    pub async fn run(&self, upto: impl FnOnce() -> Upto + Send) -> Result<FlushReport, FlushError> {
        let started = Instant::now();
        let mut report = FlushReport::default();
        let result = self.run_into(upto, &mut report).await;
        self.current.store(0, Ordering::Relaxed);
        report.duration_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        result.map(|()| report)
    }

    async fn run_into(
        &self,
        upto: impl FnOnce() -> Upto + Send,
        report: &mut FlushReport,
    ) -> Result<(), FlushError> {
        let partitions = timed("recover", self.recover(report)).await?;
        let mut work = timed("seal", self.seal(partitions, upto, report)).await?;
        for (slice, homes) in std::mem::take(&mut work.slices) {
            self.current.store(slice.0, Ordering::Relaxed);
            let (begun, before) = (Instant::now(), report.clone());
            let landed = self.land(slice, &homes, &mut work, report).await;
            self.recent.note(slice, begun, &before, report, &landed);
            landed?;
        }
        Ok(())
    }

    /// Carries one slice; gives what rose most by it.
    async fn land(
        &self,
        slice: SliceId,
        homes: &BTreeSet<u16>,
        work: &mut Work,
        report: &mut FlushReport,
    ) -> Result<Vec<Rise>, FlushError> {
        let (mut batch, unreadable) = timed("read", self.read(slice, homes, &work.fence)).await?;
        let rises = std::mem::take(&mut batch.rises);
        let apply = self.apply(slice, &batch, unreadable, work, report);
        let refused = timed("apply", apply).await?;
        work.landed = work.landed.max(slice);
        report.slices += 1;
        report.entries += batch.entries.len() as u64;
        timed("finish", self.finish(slice, &batch, &refused, work)).await?;
        off_the_workers(move || drop(batch)).await?;
        Ok(rises)
    }

    /// Checks all partitions; gives back those that can be reached.
    async fn recover(&self, report: &mut FlushReport) -> Result<Vec<u16>, FlushError> {
        self.recover_outside().await?;
        let mut reached = Vec::new();
        let mut unreached = None;
        for partition in 0..self.hot.partitions() {
            match recover_check(&self.hot, &self.ledger, partition).await {
                Ok(_) => reached.push(partition),
                Err(
                    error @ (ServiceError::RedisUnavailable { .. }
                    | ServiceError::OutcomeUnknown { .. }),
                ) => {
                    report.partitions_skipped += 1;
                    unreached = Some(error);
                }
                Err(error) => return Err(error.into()),
            }
            steps::point("flush.recovered").await;
        }
        match unreached {
            Some(error) if reached.is_empty() => Err(error.into()),
            _ => Ok(reached),
        }
    }

    /// Somebody changed rows outside of a slice and died before Redis was told: nothing resident can be trusted.
    async fn recover_outside(&self) -> Result<(), FlushError> {
        let token = self.ledger.flush_state().await?.outside_token;
        if token.is_empty() {
            return Ok(());
        }
        tracing::warn!("a repair did not end: everything resident is loaded again");
        for partition in 0..self.hot.partitions() {
            distrust(&self.hot, &self.ledger, partition).await?;
            steps::point("flush.distrusted").await;
        }
        Ok(self.ledger.outside_clear(&token).await?)
    }

    async fn seal(
        &self,
        partitions: Vec<u16>,
        upto: impl FnOnce() -> Upto + Send,
        report: &mut FlushReport,
    ) -> Result<Work, FlushError> {
        // Before Redis: a flusher in between can only make `sealed` newer than this.
        let last = self.ledger.flush_state().await?.last;
        steps::point("flush.state").await;
        let upto = upto();
        let mut end = SliceId(0);
        for partition in &partitions {
            let peek = self.hot.peek(*partition).await?;
            // A reset may have sealed one partition behind the others: what it holds up to there must land now, and so must theirs.
            end = end.max(self.end(&peek, upto)).max(peek.sealed);
        }
        steps::point("flush.upto").await;
        let mut work = Work {
            fence: new_generation(),
            slices: BTreeMap::new(),
            partitions: BTreeMap::new(),
            landed: SliceId(0),
        };
        for partition in partitions {
            let keep_ms = self.bounds.keep_ms;
            match self
                .hot
                .seal(partition, end, last, &work.fence, keep_ms)
                .await?
            {
                Sealed::Done {
                    done,
                    sealed,
                    live,
                    over,
                } => {
                    work.landed = work.landed.max(done);
                    report.sealed_upto = report.sealed_upto.max(sealed.0);
                    // One sealed further since may list slices that are open elsewhere: those would be marked and dropped unread.
                    for slice in live.into_iter().filter(|slice| *slice <= end) {
                        work.slices.entry(slice).or_default().insert(partition);
                    }
                    work.partitions.insert(partition, over);
                }
                Sealed::Behind | Sealed::Uninitialised => {
                    return Err(FlushError::Unsealed(partition));
                }
            }
            steps::point("flush.sealed").await;
        }
        Ok(work)
    }

    /// How far a partition asks to be sealed.
    fn end(&self, peek: &Peek, upto: Upto) -> SliceId {
        let slice_ms = self.hot.slice_ms();
        // A clock that was ahead has made slices of the future; waiting for them would leave them unflushed for as long.
        let ahead = (peek.clock.0 / 1000).max(peek.sealed.0) > peek.time_ms + slice_ms;
        match upto {
            Upto::PreviousWindow if !ahead => SliceId::before_window(peek.time_ms, slice_ms),
            _ => SliceId(peek.time_ms).max(peek.live.last().copied().unwrap_or_default()),
        }
    }

    /// All of a slice, from all partitions in which it lives.
    async fn read(
        &self,
        slice: SliceId,
        homes: &BTreeSet<u16>,
        fence: &str,
    ) -> Result<(Batch, Vec<Quarantined>), FlushError> {
        let (mut entries, mut unreadable) = (Vec::new(), Vec::new());
        for partition in homes {
            let read = self.read_slice(*partition, slice, fence).await?;
            entries.extend(read.entries.into_iter().map(|entry| (*partition, entry)));
            unreadable.extend(read.unreadable);
            steps::point("flush.read").await;
        }
        let rows_max = self.bounds.rows_max;
        let batch = off_the_workers(move || Batch::new(entries, rows_max)).await?;
        Ok((batch, unreadable))
    }

    async fn apply(
        &self,
        slice: SliceId,
        batch: &Batch,
        unreadable: Vec<Quarantined>,
        work: &Work,
        report: &mut FlushReport,
    ) -> Result<Vec<Refused>, FlushError> {
        let chunks = batch.chunks(self.bounds.rows_max);
        let last = chunks.len() - 1;
        let (mut out, mut reasons) = (Vec::new(), Vec::new());
        for (number, entries) in chunks.into_iter().enumerate() {
            let applied = self
                .ledger
                .apply(&Chunk {
                    slice,
                    number: number as u32,
                    last_of_slice: number == last,
                    token: work.fence.clone(),
                    layout: self.layout.clone(),
                    landed_seen: work.landed,
                    entries: entries.to_vec(),
                    unreadable: if number == 0 {
                        unreadable.clone()
                    } else {
                        Vec::new()
                    },
                })
                .await?;
            for (at, reason) in applied.refused {
                out.push(refused(&entries[at], Why::Refused));
                reasons.push(reason);
            }
            for at in &applied.void {
                let why = match applied.gone.contains(at) {
                    true => Why::Gone,
                    false => Why::Void,
                };
                out.push(refused(&entries[*at], why));
            }
            report.rows_changed += applied.rows_changed;
            report.rows_stale += applied.rows_stale;
            report.counts_changed += applied.counts_changed;
            report.retries += u64::from(applied.tries.saturating_sub(1));
            steps::point("flush.applied").await;
        }
        report.quarantined += (reasons.len() + unreadable.len()) as u64;
        quarantine::note(slice, &reasons, &unreadable);
        Ok(out)
    }

    /// What follows a commit: mark in every partition, let go of users and counts, drop.
    async fn finish(
        &self,
        slice: SliceId,
        batch: &Batch,
        refused: &[Refused],
        work: &mut Work,
    ) -> Result<(), FlushError> {
        for (partition, over) in &mut work.partitions {
            if !self.hot.mark(*partition, slice, &work.fence).await? {
                return Err(FlushError::Overtaken);
            }
            steps::point("flush.marked").await;
            self.undo(*partition, slice, &work.fence, refused).await?;
            let users = batch.pick(*partition, &batch.users, |entry| &entry.user);
            let targets = batch.pick(*partition, &batch.targets, |entry| &entry.target);
            for users in users.chunks(UNPIN_KEYS_MAX) {
                self.unpin(*partition, slice, &work.fence, users, &[])
                    .await?;
            }
            for targets in targets.chunks(UNPIN_KEYS_MAX) {
                self.unpin(*partition, slice, &work.fence, &[], targets)
                    .await?;
            }
            let over = std::mem::take(over);
            let keep_ms = self.bounds.keep_ms;
            if !self
                .hot
                .drop_slice(*partition, slice, &work.fence, keep_ms, &over)
                .await?
            {
                return Err(FlushError::Overtaken);
            }
            steps::point("flush.dropped").await;
        }
        Ok(())
    }

    async fn unpin(
        &self,
        partition: u16,
        slice: SliceId,
        fence: &str,
        users: &[&UserId],
        targets: &[&Target],
    ) -> Result<(), FlushError> {
        let unpin = Unpin {
            slice,
            fence,
            users,
            targets,
            ttl_seconds: self.bounds.ttl_seconds,
            user_fields_max: self.bounds.user_fields_max,
        };
        if !self.hot.unpin(partition, unpin).await? {
            return Err(FlushError::Overtaken);
        }
        steps::point("flush.unpinned").await;
        Ok(())
    }
}

fn refused((partition, entry): &(u16, Entry), why: Why) -> Refused {
    Refused {
        partition: *partition,
        entry: entry.clone(),
        why,
    }
}

/// Measures a step, also one that fails.
async fn timed<R>(step: &'static str, doing: impl Future<Output = R>) -> R {
    let started = Instant::now();
    let result = doing.await;
    metrics::histogram!(names::FLUSH_STEP_SECONDS, "step" => step)
        .record(started.elapsed().as_secs_f64());
    result
}
