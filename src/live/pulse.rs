//! What the instances say of each other, once a second through Redis, and the last minutes of it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::{Watched, locked};
use crate::flush::Landing;
use crate::hot::Heard;
use crate::limits::{
    HEARTBEAT_PAUSE, LANDINGS_TOLD, LIVE_POINTS_MAX, RISING_WINDOW, SILENT_AFTER, SILENT_KEPT,
};

/// What an instance says of itself. Other versions may say more or less.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Says {
    /// Host and port, to tell instances apart.
    pub(super) name: String,
    pub(super) version: String,
    pub(super) started_at: Option<DateTime<Utc>>,
    /// Operations a second that changed something.
    pub(super) per_second: f64,
    /// What it flushed lately, newest first.
    pub(super) landings: Vec<Landing>,
}

/// An instance that was heard.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Instance {
    pub(super) id: String,
    pub(super) silent_ms: u64,
    pub(super) says: Says,
}

/// A point of the charts.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Point {
    /// Unix ms, by this machine's clock.
    at_ms: i64,
    /// Operations a second that changed something, of all instances.
    per_second: f64,
    lag_ms: u64,
}

pub(super) struct Pulse {
    name: String,
    points: Mutex<VecDeque<Point>>,
    heard: Mutex<Arc<[Instance]>>,
    stopped: AtomicBool,
}

impl Pulse {
    pub(super) fn new(address: &str) -> Self {
        // What the kernel calls the machine; elsewhere than on Linux the port must do.
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let port = address.rsplit_once(':').map_or(address, |(_, port)| port);
        Self {
            name: format!("{}:{port}", host.trim()),
            points: Mutex::default(),
            heard: Mutex::new(Arc::from([])),
            stopped: AtomicBool::new(false),
        }
    }

    /// From now on nothing is said.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// All instances that were heard lately, by name.
    pub(super) fn heard(&self) -> Arc<[Instance]> {
        Arc::clone(&locked(&self.heard))
    }

    /// The last minutes, as JSON.
    pub(super) fn history(&self) -> String {
        #[derive(Serialize)]
        struct History {
            points: Vec<Point>,
        }
        let points = locked(&self.points).iter().copied().collect();
        serde_json::to_string(&History { points }).unwrap_or_default()
    }

    pub(super) fn last(&self) -> Option<Point> {
        locked(&self.points).back().copied()
    }

    fn note(&self, heard: Vec<Heard>, lag_ms: u64) {
        let mut instances: Vec<Instance> = heard.into_iter().map(read).collect();
        instances.sort_by(|a, b| (&a.says.name, &a.id).cmp(&(&b.says.name, &b.id)));
        self.show(instances.into(), lag_ms);
    }

    fn show(&self, instances: Arc<[Instance]>, lag_ms: u64) {
        let mut points = locked(&self.points);
        if points.len() >= LIVE_POINTS_MAX {
            points.pop_front();
        }
        points.push_back(Point {
            at_ms: Utc::now().timestamp_millis(),
            per_second: per_second(&instances),
            lag_ms,
        });
        drop(points);
        *locked(&self.heard) = instances;
    }
}

impl Instance {
    pub(super) fn is_silent(&self) -> bool {
        u128::from(self.silent_ms) > SILENT_AFTER.as_millis()
    }
}

/// Of those who still speak: what was said long ago is over.
fn per_second(instances: &[Instance]) -> f64 {
    let speaking = instances.iter().filter(|one| !one.is_silent());
    speaking.map(|one| one.says.per_second).sum()
}

/// An instance that says what cannot be read is there all the same.
fn read(heard: Heard) -> Instance {
    Instance {
        says: serde_json::from_str(&heard.says).unwrap_or_default(),
        id: heard.id,
        silent_ms: heard.silent_ms,
    }
}

impl Watched {
    /// Speaks and listens for ever. While Redis is away, what was heard last is shown growing old.
    pub(super) async fn beat(self: Arc<Self>) {
        let mut last = (Instant::now(), self.service.changes());
        while !self.pulse.stopped.load(Ordering::Relaxed) {
            let now = (Instant::now(), self.service.changes());
            let seconds = (now.0 - last.0).as_secs_f64();
            let says = Says {
                name: self.pulse.name.clone(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                started_at: Some(self.started_at),
                per_second: if seconds > 0.0 {
                    (now.1 - last.1) as f64 / seconds
                } else {
                    0.0
                },
                landings: news(self.jobs.landings(LANDINGS_TOLD), Utc::now()),
            };
            last = now;
            let text = serde_json::to_string(&says).unwrap_or_default();
            let hot = self.service.hot();
            let (lag_ms, _) = self.jobs.flush_health();
            match hot.heartbeat(self.jobs.owner(), &text, SILENT_KEPT).await {
                Ok(heard) => self.pulse.note(heard, lag_ms),
                Err(error) => {
                    tracing::debug!(%error, "the other instances were not heard");
                    let by = last.0.elapsed() + HEARTBEAT_PAUSE;
                    self.pulse.show(age(&self.pulse.heard(), by), lag_ms);
                }
            }
            tokio::time::sleep(HEARTBEAT_PAUSE).await;
        }
    }
}

/// What rose is told while it counts: all instances read all of this each second.
fn news(mut landings: Vec<Landing>, now: DateTime<Utc>) -> Vec<Landing> {
    let since = (now - RISING_WINDOW).timestamp_millis();
    for landing in &mut landings {
        if i64::try_from(landing.finished_at_ms).is_ok_and(|at| at < since) {
            landing.rises = Vec::new();
        }
    }
    landings
}

fn age(instances: &[Instance], by: std::time::Duration) -> Arc<[Instance]> {
    let by = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
    let older = instances.iter().cloned().map(|one| Instance {
        silent_ms: one.silent_ms.saturating_add(by),
        ..one
    });
    older.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flush::Rise;

    fn heard(id: &str, silent_ms: u64, says: &str) -> Heard {
        Heard {
            id: id.into(),
            silent_ms,
            says: says.into(),
        }
    }

    #[test]
    fn what_another_version_says_is_read_as_far_as_it_goes() {
        let pulse = Pulse::new("127.0.0.1:7468");
        pulse.note(
            vec![
                heard("b", 0, "no JSON"),
                heard("a", 0, r#"{"name":"n:1","per_second":2.5,"new":[1]}"#),
                heard("c", 60_000, r#"{"name":"o:1","per_second":9.0}"#),
            ],
            7,
        );
        let all = pulse.heard();
        let names: Vec<_> = all
            .iter()
            .map(|one| (one.id.as_str(), one.says.name.as_str(), one.is_silent()))
            .collect();
        let want = [("b", "", false), ("a", "n:1", false), ("c", "o:1", true)];
        assert_eq!(names, want);
        // One that is silent likes nothing any more.
        let last = pulse.last().unwrap();
        assert_eq!((last.per_second, last.lag_ms), (2.5, 7));
        assert!(pulse.name.ends_with(":7468"), "{}", pulse.name);
    }

    #[test]
    fn what_rose_is_told_for_as_long_as_it_counts() {
        let now = Utc::now();
        let landed = |seconds_ago: i64| Landing {
            finished_at_ms: (now.timestamp_millis() - 1000 * seconds_ago) as u64,
            rises: vec![Rise::default()],
            ..Landing::default()
        };
        let told = news(vec![landed(1), landed(59), landed(61)], now);
        let rises: Vec<_> = told.iter().map(|one| one.rises.len()).collect();
        assert_eq!(rises, [1, 1, 0]);
    }

    #[test]
    fn while_nobody_is_heard_all_grow_old_and_the_charts_go_on() {
        let pulse = Pulse::new("x:1");
        pulse.note(vec![heard("a", 0, r#"{"per_second":2.0}"#)], 0);
        pulse.show(age(&pulse.heard(), 2 * SILENT_AFTER), 9);
        assert!(pulse.heard()[0].is_silent());
        let last = pulse.last().unwrap();
        assert_eq!((last.per_second, last.lag_ms), (0.0, 9));
    }

    #[test]
    fn the_past_is_bounded() {
        let pulse = Pulse::new("x:1");
        for lag_ms in 0..LIVE_POINTS_MAX as u64 + 5 {
            pulse.note(Vec::new(), lag_ms);
        }
        let history: serde_json::Value = serde_json::from_str(&pulse.history()).unwrap();
        let points = history["points"].as_array().unwrap();
        assert_eq!(points.len(), LIVE_POINTS_MAX);
        assert_eq!(points[0]["lag_ms"], 5);
    }
}
