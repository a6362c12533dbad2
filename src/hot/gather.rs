//! Gathers operations of the same moment into one script call. Nobody waits for company: while a call may fly, what is there flies.

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot};

use super::thumb::Line;
use super::{Answer, HotError, HotOptions, Thumb};

/// Calls that always may fly at once. More may only while they are small, so that a busy partition gathers.
const CALLS_FREE: usize = 2;
/// Operations under way up to which further calls may fly.
const SMALL: usize = 16;

type Waiter = oneshot::Sender<Result<Answer, HotError>>;

/// The queue in front of one partition and direction.
pub(super) struct Gatherer {
    queue: mpsc::Sender<(Thumb, Waiter)>,
}

impl Gatherer {
    /// Starts the task behind the queue; it ends with the last handle.
    pub(super) fn start(line: Line, thumb: bool, options: &HotOptions) -> Self {
        let (queue, calls) = mpsc::channel(options.queue_operations_max);
        let (operations_max, calls_max) = (options.gather_operations_max, options.gather_calls_max);
        tokio::spawn(gather(line, thumb, calls, operations_max, calls_max));
        Self { queue }
    }

    pub(super) async fn run(&self, operation: Thumb) -> Result<Answer, HotError> {
        let (waiter, answer) = oneshot::channel();
        self.queue
            .try_send((operation, waiter))
            .map_err(|_| HotError::QueueFull)?;
        // The task answers everybody, unless it died with the call under way.
        answer.await.unwrap_or(Err(HotError::Unknown(None)))
    }
}

async fn gather(
    line: Line,
    thumb: bool,
    mut queue: mpsc::Receiver<(Thumb, Waiter)>,
    operations_max: usize,
    calls_max: usize,
) {
    let mut flying = FuturesUnordered::new();
    let mut operations = 0;
    let mut batch = Vec::with_capacity(operations_max);
    loop {
        let free = flying.len() < CALLS_FREE || flying.len() < calls_max && operations < SMALL;
        tokio::select! {
            biased;
            Some((size, hangs)) = flying.next(), if !flying.is_empty() => {
                operations -= size;
                if hangs {
                    refuse(&mut queue);
                }
            }
            count = queue.recv_many(&mut batch, operations_max), if free => {
                if count == 0 {
                    break;
                }
                // Who hung up before the call wants nothing any more.
                batch.retain(|(_, waiter): &(Thumb, Waiter)| !waiter.is_closed());
                if !batch.is_empty() {
                    operations += batch.len();
                    flying.push(fly(line.clone(), thumb, std::mem::take(&mut batch)));
                }
            }
        }
    }
    while flying.next().await.is_some() {}
}

/// Redis hangs: those in the queue have waited for the call that nobody answered, and the next one would not be answered either.
fn refuse(queue: &mut mpsc::Receiver<(Thumb, Waiter)>) {
    // As many as there are now, or somebody who fills the queue could keep this busy.
    for _ in 0..queue.len() {
        if let Ok((_, waiter)) = queue.try_recv() {
            let _ = waiter.send(Err(HotError::not_sent()));
        }
    }
}

/// Gives back how many operations it carried, and whether Redis kept them waiting in vain.
async fn fly(line: Line, thumb: bool, batch: Vec<(Thumb, Waiter)>) -> (usize, bool) {
    let operations: Vec<&Thumb> = batch.iter().map(|(operation, _)| operation).collect();
    let result = line.call(thumb, &operations).await;
    let size = batch.len();
    let hangs = result.as_ref().is_err_and(HotError::hangs);
    match result {
        Ok(answers) => {
            for ((_, waiter), answer) in batch.into_iter().zip(answers) {
                let _ = waiter.send(Ok(answer));
            }
        }
        Err(error) => {
            for (_, waiter) in batch {
                let _ = waiter.send(Err(error.clone()));
            }
        }
    }
    (size, hangs)
}
