//! Changes the number of partitions, the length of slices or the key prefix: drains the old layout, ends it, and begins the new one.
//!
//! In this order, so that nothing can be stranded whenever it dies: flush; retire every old partition, which refuses whoever was
//! started with the old settings; store the new layout, with new parts of counts; the partitions of the new layout are then reset
//! by `Service::build`. Until the layout is stored a start with the old settings takes the old partitions into use again.

use anyhow::Context as _;

use crate::config::Settings;
use crate::flush::{Flusher, Upto};
use crate::hot::Hot;
use crate::ledger::{Layout, Ledger};
use crate::limits::RETIRE_TRIES_MAX;
use crate::service::{connect_hot, connect_ledger, distrust, layout, mirrors};
use crate::steps;

/// Seconds for which kept slices of a retired layout stay in Redis.
const KEPT_SECONDS: u64 = 86_400;

/// Makes the stored layout the one of the settings.
pub async fn ensure(settings: &Settings) -> anyhow::Result<()> {
    let ledger = connect_ledger(settings)?;
    let result = if differs(&ledger, settings).await?.is_some() {
        let lock = ledger.layout_lock().await?;
        let result = change(&ledger, settings).await;
        lock.release().await;
        result
    } else {
        Ok(())
    };
    ledger.close().await;
    result
}

/// The stored layout, if it is another one.
async fn differs(ledger: &Ledger, settings: &Settings) -> anyhow::Result<Option<Layout>> {
    let stored = ledger.flush_state().await.context("database")?.layout;
    Ok(stored.filter(|stored| *stored != layout(settings)))
}

async fn change(ledger: &Ledger, settings: &Settings) -> anyhow::Result<()> {
    // Somebody who held the lock may have done it.
    let Some(stored) = differs(ledger, settings).await? else {
        return Ok(());
    };
    let wanted = layout(settings);
    tracing::warn!(from = %stored, to = %wanted, "the layout changes");
    let old = Settings {
        partitions: stored.partitions,
        slice_seconds: stored.slice_ms / 1000,
        key_prefix: stored.key_prefix.clone(),
        ..settings.clone()
    };
    // What is drained now sets them too.
    ledger.mirrors_adopt(mirrors(settings)).await?;
    let hot = connect_hot(&old).await?;
    let flusher = Flusher::new(hot.clone(), ledger.clone(), &old);
    for _ in 0..RETIRE_TRIES_MAX {
        // With what is left over, which a flush alone would not find.
        let drained = flusher.compensate(|| Upto::Now).await;
        let drained =
            drained.with_context(|| format!("what was written with {stored} cannot be flushed"))?;
        anyhow::ensure!(
            drained.flush.partitions_skipped == 0,
            "not all partitions of {stored} can be reached"
        );
        steps::point("relayout.drained").await;
        if retire(&hot, ledger).await? {
            ledger.layout_change(&stored, &wanted).await?;
            steps::point("relayout.stored").await;
            tracing::warn!(layout = %wanted, "the layout has changed");
            return Ok(());
        }
    }
    anyhow::bail!(
        "another thumbd still writes with {stored}, the settings say {wanted}: stop it, or start with its settings"
    )
}

/// Ends all partitions; false, and none is ended, if one of them has live slices again.
async fn retire(hot: &Hot, ledger: &Ledger) -> anyhow::Result<bool> {
    for partition in 0..hot.partitions() {
        if !hot.retire(partition, KEPT_SECONDS).await? {
            for retired in 0..partition {
                distrust(hot, ledger, retired).await?;
            }
            return Ok(false);
        }
        steps::point("relayout.retired").await;
    }
    Ok(true)
}
