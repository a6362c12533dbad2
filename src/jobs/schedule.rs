//! The schedules. They only leave word at the desk: runs of the scheduler may overlap, and missed ones are not made up.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use chrono::{SubsecRound as _, Utc};
use tokio_cron_scheduler::{Job, JobScheduler};

use super::desk::Desk;
use crate::config::Settings;

/// How long after the end of a window it is flushed: Redis's clock may be a little behind this machine's.
const AFTER_WINDOW: Duration = Duration::from_millis(250);

/// Starts the schedules of the flush and of the compensator.
pub(super) async fn start(settings: &Settings, desk: &Arc<Desk>) -> anyhow::Result<JobScheduler> {
    let scheduler = JobScheduler::new().await.context("the scheduler")?;
    scheduler
        .add(flush_job(settings.slice_seconds, Arc::clone(desk))?)
        .await
        .context("the schedule of the flush")?;
    let nightly = Arc::clone(desk);
    let compensation = Job::new_async_tz(
        settings.compensate_cron.as_str(),
        settings.time_zone,
        move |_, _| {
            // All instances call this run by the same second, so that it happens once.
            nightly.compensation_due(Utc::now().trunc_subsecs(0));
            Box::pin(async {})
        },
    )
    .context("compensate_cron")?;
    scheduler
        .add(compensation)
        .await
        .context("the schedule of the compensator")?;
    scheduler.start().await.context("the scheduler")?;
    Ok(scheduler)
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
