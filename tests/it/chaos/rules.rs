//! Rules: what a client must send, and what then happens to it or to its answer.

use std::sync::Arc;

use tokio::sync::{Notify, watch};

use super::PATIENCE;

/// What becomes of the connection when its reply has been swallowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// It is cut.
    Cut,
    /// It stays open and silent.
    Hold,
}

/// What a rule does, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    /// The request arrives, its answer does not.
    SwallowReply(Then),
    /// The request does not arrive, and the connection is cut.
    CutBefore,
    /// The request waits until [`Matched::release`].
    HoldRequest,
}

pub(super) struct Rule {
    pattern: Vec<u8>,
    /// `None` only counts.
    act: Option<Act>,
    count: watch::Sender<u64>,
    release: Arc<Notify>,
}

/// Tells whether a rule's bytes were sent.
pub(crate) struct Matched {
    count: watch::Receiver<u64>,
    release: Arc<Notify>,
}

pub(super) fn rule(pattern: &[u8], act: Option<Act>) -> (Rule, Matched) {
    assert!(!pattern.is_empty());
    let (sender, count) = watch::channel(0);
    let release = Arc::new(Notify::new());
    let rule = Rule {
        pattern: pattern.to_vec(),
        act,
        count: sender,
        release: Arc::clone(&release),
    };
    (rule, Matched { count, release })
}

impl Matched {
    /// How often the bytes were sent so far.
    pub(crate) fn times(&self) -> u64 {
        *self.count.borrow()
    }

    /// Waits until they were sent, so often in all.
    pub(crate) async fn wait(&mut self, times: u64) {
        let enough = self.count.wait_for(|count| *count >= times);
        let wait = tokio::time::timeout(PATIENCE, enough).await;
        wait.expect("the bytes are sent").unwrap();
    }

    /// Lets a held request go on.
    pub(crate) fn release(&self) {
        self.release.notify_one();
    }
}

/// Holds a new chunk, behind the end of those before it, against all rules. The first that acts is used up.
pub(super) fn act(rules: &mut [Rule], before: &[u8], chunk: &[u8]) -> Option<(Act, Arc<Notify>)> {
    let mut acts = None;
    for rule in rules {
        // A match that ended in the chunk before was counted then.
        let keep = before.len().min(rule.pattern.len() - 1);
        let bytes = [&before[before.len() - keep..], chunk].concat();
        let times = bytes
            .windows(rule.pattern.len())
            .filter(|window| *window == rule.pattern)
            .count() as u64;
        if times == 0 {
            continue;
        }
        rule.count.send_modify(|count| *count += times);
        if acts.is_none() {
            let act = rule.act.take();
            acts = act.map(|act| (act, Arc::clone(&rule.release)));
        }
    }
    acts
}

/// The hash by which Redis calls a script of `lua/`, without `.lua`.
pub(crate) fn script(name: &str) -> String {
    let read = |name: &str| {
        let path = format!("{}/lua/{name}.lua", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(path).unwrap()
    };
    let body = match name {
        "thumb" | "unthumb" => read("limit") + &read("change"),
        _ => String::new(),
    };
    let text = read(name) + &body;
    redis::Script::new(&text).get_hash().to_owned()
}
