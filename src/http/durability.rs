//! The query of a like: whether it is answered only once MySQL has it, and how long its caller waits for that.

use std::time::Duration;

use super::problem::Problem;

/// How long a caller waits who does not say so.
const WAIT_MS: u64 = 5000;

/// The longest wait: the rest of the request's time belongs to the like itself and to the answer.
pub(super) fn wait_max(request_timeout: Duration) -> Duration {
    request_timeout * 8 / 10
}

/// The wait for MySQL, if one is asked for: `durability=ledger`, and `wait_ms`. Other parameters do not come here (see `parameters`).
pub(super) fn wait(query: Option<&str>, wait_max: Duration) -> Result<Option<Duration>, Problem> {
    let (mut ledger, mut wait) = (false, None);
    for part in query.unwrap_or_default().split('&') {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        match name {
            "durability" if ledger => return Err(twice("durability")),
            "durability" if value == "ledger" => ledger = true,
            "durability" => {
                return Err(Problem::field(
                    "durability",
                    "durability must be ledger, or left out",
                ));
            }
            "wait_ms" if wait.is_some() => return Err(twice("wait_ms")),
            "wait_ms" => wait = Some(milliseconds(value, wait_max)?),
            _ => {}
        }
    }
    match wait {
        Some(_) if !ledger => Err(Problem::field(
            "wait_ms",
            "wait_ms is for durability=ledger",
        )),
        _ if !ledger => Ok(None),
        _ => Ok(Some(
            wait.unwrap_or(Duration::from_millis(WAIT_MS).min(wait_max)),
        )),
    }
}

fn milliseconds(value: &str, wait_max: Duration) -> Result<Duration, Problem> {
    let most = wait_max.as_millis() as usize;
    let number = value.parse().ok().map(Duration::from_millis);
    let wait = number.filter(|wait| !wait.is_zero() && *wait <= wait_max);
    wait.ok_or_else(|| {
        let detail = format!("wait_ms must be a number from 1 to {most}");
        Problem::field("wait_ms", detail).limited(most)
    })
}

fn twice(field: &'static str) -> Problem {
    Problem::field(field, format!("{field} is given more than once"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: Duration = Duration::from_millis(8000);

    fn asked(query: &str) -> Result<Option<u64>, String> {
        let wait = wait(Some(query), MAX).map(|wait| wait.map(|wait| wait.as_millis() as u64));
        wait.map_err(|problem| serde_json::to_string(&problem.body(None)).unwrap())
    }

    #[test]
    fn a_wait_is_asked_for_or_not() {
        assert_eq!(wait(None, MAX).unwrap(), None);
        for (query, want) in [
            ("", None),
            ("durability=ledger", Some(5000)),
            ("wait_ms=8000&durability=ledger", Some(8000)),
            ("durability=ledger&wait_ms=1", Some(1)),
        ] {
            assert_eq!(asked(query), Ok(want), "{query}");
        }
        let short = wait(Some("durability=ledger"), Duration::from_millis(80));
        assert_eq!(short.unwrap(), Some(Duration::from_millis(80)));
    }

    #[test]
    fn wrong_waits_name_field_and_limit() {
        for (query, part) in [
            ("durability=redis", "durability must be ledger"),
            ("durability", "durability must be ledger"),
            (
                "durability=ledger&durability=ledger",
                "durability is given more than once",
            ),
            ("wait_ms=5", "wait_ms is for durability=ledger"),
            ("durability=ledger&wait_ms=0", "from 1 to 8000"),
            ("durability=ledger&wait_ms=8001", "from 1 to 8000"),
            ("durability=ledger&wait_ms=-1", "from 1 to 8000"),
            ("durability=ledger&wait_ms=1s", "\"limit\":8000"),
            ("durability=ledger&wait_ms=", "\"field\":\"wait_ms\""),
            (
                "durability=ledger&wait_ms=1&wait_ms=1",
                "wait_ms is given more than once",
            ),
        ] {
            let error = asked(query).unwrap_err();
            assert!(error.contains(part), "{query}: {error}");
        }
    }
}
