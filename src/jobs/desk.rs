//! Where schedules and requests leave word for the task that runs the jobs.

use std::sync::{Mutex, MutexGuard, PoisonError};

use chrono::{DateTime, Utc};
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

use super::{JobError, LastRun};
use crate::flush::{CompensationReport, FlushReport};

/// Requests that wait for one run at most; more are told to come again.
const WAITERS_MAX: usize = 10_000;

pub(super) type Waiter<R> = oneshot::Sender<Result<R, JobError>>;
type Answer<R> = oneshot::Receiver<Result<R, JobError>>;

/// What the task is to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    Flush,
    /// With the time that it was planned for, if it was planned.
    Compensate(Option<DateTime<Utc>>),
    /// Somebody is to be erased.
    Erase,
    End,
}

#[derive(Default)]
struct Words {
    flush_due: bool,
    erase_due: bool,
    compensation_due: Option<DateTime<Utc>>,
    flush_waiters: Vec<Waiter<FlushReport>>,
    compensation_waiters: Vec<Waiter<CompensationReport>>,
    last_flush: Option<LastRun<FlushReport>>,
    last_compensation: Option<LastRun<CompensationReport>>,
    stopping: bool,
}

/// The desk. Word that is left while a job runs is for the next one.
#[derive(Default)]
pub(super) struct Desk {
    words: Mutex<Words>,
    changed: Notify,
    dead: CancellationToken,
}

impl Desk {
    fn words(&self) -> MutexGuard<'_, Words> {
        self.words.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A window has ended.
    pub(super) fn flush_due(&self) {
        self.words().flush_due = true;
        self.changed.notify_one();
    }

    /// Somebody was asked to be erased.
    pub(super) fn erase_due(&self) {
        self.words().erase_due = true;
        self.changed.notify_one();
    }

    /// The compensator's time has come.
    pub(super) fn compensation_due(&self, planned: DateTime<Utc>) {
        self.words().compensation_due = Some(planned);
        self.changed.notify_one();
    }

    pub(super) fn ask_flush(&self) -> Result<Answer<FlushReport>, JobError> {
        self.ask(|words| &mut words.flush_waiters)
    }

    pub(super) fn ask_compensation(&self) -> Result<Answer<CompensationReport>, JobError> {
        self.ask(|words| &mut words.compensation_waiters)
    }

    /// The last flush: nothing can be asked for after it.
    pub(super) fn ask_last_flush(&self) -> Result<Answer<FlushReport>, JobError> {
        let answer = self.ask(|words| &mut words.flush_waiters)?;
        self.words().stopping = true;
        Ok(answer)
    }

    fn ask<R>(
        &self,
        waiters: fn(&mut Words) -> &mut Vec<Waiter<R>>,
    ) -> Result<Answer<R>, JobError> {
        let mut words = self.words();
        if words.stopping || self.dead.is_cancelled() {
            return Err(JobError::Stopping);
        }
        if waiters(&mut words).len() >= WAITERS_MAX {
            return Err(JobError::Busy);
        }
        let (waiter, answer) = oneshot::channel();
        waiters(&mut words).push(waiter);
        self.changed.notify_one();
        Ok(answer)
    }

    /// Waits for something to do.
    pub(super) async fn next(&self) -> Work {
        loop {
            {
                let mut words = self.words();
                let planned = words.compensation_due.take();
                if planned.is_some() || !words.compensation_waiters.is_empty() {
                    return Work::Compensate(planned);
                }
                if std::mem::take(&mut words.flush_due) || !words.flush_waiters.is_empty() {
                    return Work::Flush;
                }
                if words.stopping {
                    return Work::End;
                }
                // Behind everything that somebody waits for.
                if std::mem::take(&mut words.erase_due) {
                    return Work::Erase;
                }
            }
            self.changed.notified().await;
        }
    }

    /// Whether somebody waits for a flush or a compensation.
    pub(super) fn is_asked(&self) -> bool {
        let words = self.words();
        !words.flush_waiters.is_empty() || !words.compensation_waiters.is_empty()
    }

    /// Those whom a run that seals now will serve.
    pub(super) fn take_flush(&self) -> Vec<Waiter<FlushReport>> {
        std::mem::take(&mut self.words().flush_waiters)
    }

    pub(super) fn take_compensation(&self) -> Vec<Waiter<CompensationReport>> {
        std::mem::take(&mut self.words().compensation_waiters)
    }

    pub(super) fn note_flush(&self, last: LastRun<FlushReport>) {
        self.words().last_flush = Some(last);
    }

    pub(super) fn note_compensation(&self, last: LastRun<CompensationReport>) {
        self.words().last_compensation = Some(last);
    }

    pub(super) fn last_runs(
        &self,
    ) -> (
        Option<LastRun<FlushReport>>,
        Option<LastRun<CompensationReport>>,
    ) {
        let words = self.words();
        (words.last_flush.clone(), words.last_compensation.clone())
    }

    /// Nobody works here any more: whoever waits is told.
    pub(super) fn close(&self) {
        self.dead.cancel();
        let mut words = self.words();
        words.flush_waiters.clear();
        words.compensation_waiters.clear();
    }

    pub(super) async fn dead(&self) {
        self.dead.cancelled().await;
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn windows_that_end_while_a_flush_runs_make_one_more_run() {
        let desk = Desk::default();
        desk.flush_due();
        assert_eq!(desk.next().now_or_never(), Some(Work::Flush));
        for _ in 0..3 {
            desk.flush_due();
        }
        assert_eq!(desk.next().now_or_never(), Some(Work::Flush));
        assert_eq!(desk.next().now_or_never(), None);
    }

    #[test]
    fn who_waits_is_told_when_nobody_comes_any_more() {
        let desk = Desk::default();
        let flush = desk.ask_flush().unwrap();
        let compensation = desk.ask_compensation().unwrap();
        desk.close();
        assert!(flush.now_or_never().unwrap().is_err());
        assert!(compensation.now_or_never().unwrap().is_err());
        assert!(matches!(desk.ask_flush(), Err(JobError::Stopping)));
    }
}
