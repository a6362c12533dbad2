//! Redis by itself: whether it can be reached, and can be trusted with likes that MySQL does not have yet.

use super::{Beat, Notes};
use crate::config::Settings;
use crate::hot::{Hot, Inspected};
use crate::limits::{DOCTOR_MEMORY_PERCENT_MAX, DOCTOR_PING_SLOW};
use crate::service::connect_hot;

/// What helps where thumbd was not let in or not heard.
const REACH: &str = "look at THUMBD_REDIS_URL (user, password, host, port), at whether Redis runs, and at what is between";

/// A connection, and by how much the server's clock is ahead.
pub(super) async fn check(notes: &mut Notes, settings: &Settings) -> Option<(Hot, i64)> {
    let hot = match connect_hot(settings).await {
        Ok(hot) => hot,
        Err(error) => {
            notes.failed("reach", error, REACH);
            notes.skip("rest", "all else of Redis");
            return None;
        }
    };
    let found = match hot.inspect().await {
        Ok(found) => found,
        Err(error) => {
            notes.failed("reach", error, REACH);
            notes.skip("rest", "all else of Redis");
            return None;
        }
    };
    for found in &found {
        notes.about(&found.server.name);
        notes.ok("reach", format!("{} answers", found.program));
        server(notes, found);
        memory(notes, found);
        persistence(notes, found);
        replication(notes, found);
    }
    notes.about("");
    rights(notes, &hot, &found).await;
    match Beat::take(async || hot.time_us().await).await {
        Ok(beat) => {
            beat.note(notes, DOCTOR_PING_SLOW);
            Some((hot, beat.ahead_us))
        }
        Err(error) => {
            notes.failed("latency", error, REACH);
            None
        }
    }
}

/// What a start refuses.
fn server(notes: &mut Notes, found: &Inspected) {
    let server = &found.server;
    if let Some(problem) = server.mode_problem() {
        notes.fail("mode", problem, "change THUMBD_REDIS_URL");
    }
    match server.version_problem() {
        Some(problem) => notes.fail("version", problem, "install Redis 7.0 or newer, or Valkey"),
        None => notes.ok("version", found.program.clone()),
    }
    match server.role_problem() {
        Some(problem) => notes.fail(
            "role",
            problem,
            format!(
                "name the master in THUMBD_REDIS_URL, or make this server one: {} REPLICAOF NO ONE",
                found.redis_cli
            ),
        ),
        None => notes.ok("role", "a master"),
    }
    match server.eviction_problem() {
        Some(problem) => notes.fail(
            "eviction",
            problem,
            set(found, "maxmemory-policy", "noeviction"),
        ),
        None => notes.ok(
            "eviction",
            format!("maxmemory-policy is {}", server.eviction_policy),
        ),
    }
}

fn memory(notes: &mut Notes, found: &Inspected) {
    let (used, max) = found.memory;
    let megabytes = |bytes: u64| format!("{:.1} MB", bytes as f64 / 1e6);
    if max == 0 {
        notes.ok(
            "memory",
            format!("{} used, maxmemory is not set", megabytes(used)),
        );
        return;
    }
    let percent = used.saturating_mul(100) / max;
    let text = format!(
        "{} used of {} ({percent} %)",
        megabytes(used),
        megabytes(max)
    );
    // With another policy a full memory is normal: what is clean goes.
    if found.server.eviction_policy != "noeviction" || percent < DOCTOR_MEMORY_PERCENT_MAX {
        notes.ok("memory", text);
        return;
    }
    let fix = format!(
        "{}, or a shorter THUMBD_RESIDENT_TTL_SECONDS, or maxmemory-policy volatile-lru",
        set(found, "maxmemory", &(max.saturating_mul(2)).to_string())
    );
    if percent >= 100 {
        notes.fail("memory", format!("{text}: likes are refused"), fix);
    } else {
        notes.warn("memory", text, fix);
    }
}

/// What is left of accepted likes when Redis is started again.
fn persistence(notes: &mut Notes, found: &Inspected) {
    if !found.disk_ok {
        notes.fail(
            "persistence",
            "the last write to disk failed, so writes may be refused",
            format!(
                "look into Redis's log and at its disk: {} INFO persistence",
                found.redis_cli
            ),
        );
        return;
    }
    let fsync = found.config.as_ref().map(|config| &*config.append_fsync);
    let append_only = set(found, "appendonly", "yes");
    match (found.append_only, fsync, &found.config) {
        (true, Some("no"), _) => notes.warn(
            "persistence",
            "an append-only file, of which the machine's crash may take half a minute (appendfsync no)",
            set(found, "appendfsync", "everysec"),
        ),
        (true, Some(fsync), _) => notes.ok(
            "persistence",
            format!("an append-only file, appendfsync {fsync}"),
        ),
        (true, None, _) => notes.ok(
            "persistence",
            "an append-only file; how often it is on disk this user may not ask (CONFIG GET)",
        ),
        (false, _, Some(config)) if config.save.is_empty() => notes.fail(
            "persistence",
            "neither an append-only file nor snapshots: a restart of Redis loses every like that MySQL does not have",
            append_only,
        ),
        (false, _, _) => notes.warn(
            "persistence",
            "no append-only file: a restart of Redis loses the likes since its last snapshot that MySQL does not have",
            append_only,
        ),
    }
}

fn replication(notes: &mut Notes, found: &Inspected) {
    let least = found
        .config
        .as_ref()
        .map_or(0, |config| config.replicas_min);
    let text = format!(
        "{} replicas connected, min-replicas-to-write {least}",
        found.replicas
    );
    if found.replicas < least {
        notes.fail(
            "replication",
            format!("{text}: likes are refused"),
            format!(
                "connect replicas, or {}",
                set(found, "min-replicas-to-write", &found.replicas.to_string())
            ),
        );
    } else {
        notes.ok("replication", text);
    }
}

/// Whether scripts run, and may do what they do.
async fn rights(notes: &mut Notes, hot: &Hot, found: &[Inspected]) {
    let grant = |commands: &str| {
        let each = if found.len() > 1 {
            ", on every server"
        } else {
            ""
        };
        format!(
            "as an administrator{each}: ACL SETUSER {} ~{}:* {commands}, and ACL SAVE, or CONFIG REWRITE without an aclfile",
            hot.user(),
            hot.prefix()
        )
    };
    match hot.commands_refused().await {
        Ok(refused) if refused.is_empty() => {
            notes.ok(
                "rights",
                format!("user {} may do all that is needed", hot.user()),
            );
        }
        Ok(refused) => {
            let names = refused.join(", ");
            let add: Vec<String> = refused
                .iter()
                .map(|name| format!("+{}", name.to_lowercase()))
                .collect();
            notes.fail(
                "rights",
                format!("user {} may not {names} on {}:*", hot.user(), hot.prefix()),
                grant(&add.join(" ")),
            );
        }
        Err(error) => notes.failed("rights", error, &grant("+eval +evalsha")),
    }
    match hot.peek(0).await {
        Ok(_) => notes.ok("scripts", "scripts run"),
        Err(error) => notes.failed("scripts", error, &grant("+eval +evalsha")),
    }
}

/// Sets a value now and for later starts.
fn set(found: &Inspected, name: &str, value: &str) -> String {
    let redis_cli = &found.redis_cli;
    if found.config_file {
        format!("{redis_cli} CONFIG SET {name} {value} && {redis_cli} CONFIG REWRITE")
    } else {
        format!(
            "{redis_cli} CONFIG SET {name} {value}, and --{name} {value} where it is started: it has no file of settings"
        )
    }
}
