//! The schedules. They only leave word at the desk: runs of the scheduler may overlap, and it does not make up for missed ones.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use chrono::{DateTime, Utc};
use tokio_cron_scheduler::{Job, JobScheduler};

use super::desk::Desk;
use super::plan::Plan;
use crate::config::Settings;

/// What time it is.
pub type Clock = Arc<dyn Fn() -> DateTime<Utc> + Send + Sync>;

/// How long after the end of a window it is flushed: Redis's clock may be a little behind this machine's.
const AFTER_WINDOW: Duration = Duration::from_millis(250);

/// Starts the schedules of the flush and of the compensator.
pub(super) async fn start(
    settings: &Settings,
    desk: &Arc<Desk>,
    clock: Clock,
) -> anyhow::Result<JobScheduler> {
    let scheduler = JobScheduler::new().await.context("the scheduler")?;
    scheduler
        .add(flush_job(settings.slice_seconds, Arc::clone(desk))?)
        .await
        .context("the schedule of the flush")?;
    let plan = Plan::new(&settings.compensate_cron, settings.time_zone, clock())?;
    scheduler
        .add(compensation_job(plan, Arc::clone(desk), clock)?)
        .await
        .context("the schedule of the compensator")?;
    scheduler.start().await.context("the scheduler")?;
    Ok(scheduler)
}

/// Looks at the plan every second. The scheduler only ticks: the plan decides, by the clock that it is given.
fn compensation_job(plan: Plan, desk: Arc<Desk>, clock: Clock) -> anyhow::Result<Job> {
    let plan = Arc::new(Mutex::new(plan));
    let look = move |_, _| -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
        let due = plan
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .due(clock());
        if let Some(planned) = due {
            desk.compensation_due(planned);
        }
        Box::pin(async {})
    };
    Job::new_async("* * * * * *", look).context("the schedule of the compensator")
}

/// At the end of every window, where windows fit into a minute; otherwise every so often.
fn flush_job(slice_seconds: u64, desk: Arc<Desk>) -> anyhow::Result<Job> {
    let tick = move |_, _| -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
        let desk = Arc::clone(&desk);
        Box::pin(async move {
            tokio::time::sleep(AFTER_WINDOW).await;
            desk.flush_due();
        })
    };
    let job = if slice_seconds == 1 {
        Job::new_async("* * * * * *", tick)
    } else if slice_seconds < 60 && 60 % slice_seconds == 0 {
        Job::new_async(format!("*/{slice_seconds} * * * * *"), tick)
    } else {
        Job::new_repeated_async(Duration::from_secs(slice_seconds), tick)
    };
    job.context("the schedule of the flush")
}
