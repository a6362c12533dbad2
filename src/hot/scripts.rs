//! The scripts in `lua/`: their texts, their hashes, and the call that loads one where Redis does not have it.

use std::sync::{Arc, LazyLock};
use std::time::Instant;

use redis::{Arg, Cmd, ErrorKind, Script as RedisScript, ServerErrorKind, Value};

use super::HotError;
use super::wire::Wire;
use crate::telemetry::names;

/// A script and the hash by which Redis knows it.
pub(super) struct Script {
    /// Its file in `lua/`, without the end: a label of metrics.
    name: Arc<str>,
    text: &'static str,
    hash: String,
}

macro_rules! scripts {
    ($($name:ident = $($file:literal)+;)*) => {
        $(pub(super) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new(stringify!($name), concat!($(include_str!(concat!("../../lua/", $file))),+)));)*
        /// Name, text and number of the files in `lua/`, for tests.
        #[cfg(test)]
        pub(super) const TEXTS: &[(&str, &str)] =
            &[$((stringify!($name), concat!($(include_str!(concat!("../../lua/", $file))),+))),*];
    };
}

scripts! {
    THUMB = "thumb.lua" "limit.lua" "change.lua";
    UNTHUMB = "unthumb.lua" "limit.lua" "change.lua";
    UNTHUMB_KEPT = "unthumb_kept.lua" "limit.lua" "change.lua";
    LOOKUP = "lookup.lua";
    HELD = "held.lua";
    FILL = "fill.lua";
    RENEW = "renew.lua";
    PEEK = "peek.lua";
    SEAL = "seal.lua";
    MARK = "mark.lua";
    UNPIN = "unpin.lua";
    DROP = "drop.lua";
    RESET = "reset.lua";
    ADOPT = "adopt.lua";
    UNDO = "undo.lua";
    FORGET = "forget.lua";
    GONE = "gone.lua";
    STRIP = "strip.lua";
    RAISE = "raise.lua";
    RETIRE = "retire.lua";
    LEASE = "lease.lua";
    FEED = "feed.lua";
    RIGHTS = "rights.lua";
    FEED_TOLD = "feed_told.lua";
    HEARTBEAT = "heartbeat.lua";
}

impl Script {
    fn new(name: &str, text: &'static str) -> Self {
        Self {
            name: name.to_ascii_lowercase().into(),
            text,
            hash: RedisScript::new(text).get_hash().to_owned(),
        }
    }

    /// Begins a call with this many keys; keys and then arguments follow with `arg`.
    pub(super) fn call(&self, keys: usize) -> Cmd {
        let mut call = Cmd::with_capacity(4 + keys * 2, 256 + keys * 64);
        call.arg("EVALSHA").arg(&self.hash).arg(keys);
        call
    }

    /// Sends a call, and again with the text if Redis did not have the script: then nothing was done the first time. Loading it
    /// and calling it would be two steps, and it may be forgotten between them.
    pub(super) async fn send(&self, wire: &Wire, call: &Cmd) -> Result<Value, HotError> {
        let begun = Instant::now();
        let mut sent = wire.send(call).await;
        if let Err(error) = &sent
            && error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
        {
            sent = wire.send(&self.with_text(call)).await;
        }
        metrics::histogram!(names::SCRIPT_SECONDS, "script" => self.name()).record(begun.elapsed());
        Ok(sent?)
    }

    /// Its file in `lua/`, without the end.
    pub(super) fn name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    /// The same call by text instead of by hash; it leaves the script with Redis.
    fn with_text(&self, call: &Cmd) -> Cmd {
        let mut whole = Cmd::new();
        whole.arg("EVAL").arg(self.text);
        for arg in call.args_iter().skip(2) {
            if let Arg::Simple(bytes) = arg {
                whole.arg(bytes);
            }
        }
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_declare_flags_and_what_they_take_and_answer() {
        for (name, text) in TEXTS {
            assert!(text.starts_with("#!lua"), "{name} has no flags line");
            for part in ["-- KEYS", "-- ARGV"] {
                assert!(text.contains(part), "{name} does not say {part}");
            }
            assert!(
                text.to_lowercase().contains("-- answers") || text.contains("and answers"),
                "{name} does not say what it answers"
            );
        }
    }

    #[test]
    fn every_file_in_lua_is_a_script_or_a_part_of_three() {
        let files = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/lua")).unwrap();
        assert_eq!(files.count(), TEXTS.len() + 2);
    }
}
