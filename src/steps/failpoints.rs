//! The variable `FAILPOINTS`: what happens at named points, for a whole process. Only in debug builds.

use std::io::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::POINTS;

const VARIABLE: &str = "FAILPOINTS";
/// Exit code for a wrong text, that of a wrong command line.
const USAGE: i32 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    /// Never goes on.
    Hold,
    Panic,
    Delay(Duration),
}

#[derive(Debug)]
struct Failpoint {
    name: String,
    /// The only passing at which it acts; otherwise at each.
    passing: Option<u32>,
    action: Action,
    passed: AtomicU32,
}

/// Does what the variable says of a point.
pub(super) async fn pass(name: &str) {
    static FAILPOINTS: OnceLock<Vec<Failpoint>> = OnceLock::new();
    let failpoints = FAILPOINTS.get_or_init(|| {
        let text = std::env::var(VARIABLE).unwrap_or_default();
        parse(&text).unwrap_or_else(|problem| {
            eprintln!("thumbd: {VARIABLE}: {problem}");
            std::process::exit(USAGE);
        })
    });
    for failpoint in failpoints.iter().filter(|one| one.name == name) {
        let passed = failpoint.passed.fetch_add(1, Ordering::Relaxed) + 1;
        if failpoint.passing.is_some_and(|only| only != passed) {
            continue;
        }
        // Whoever listens may have gone.
        let _ = writeln!(std::io::stderr(), "failpoint {name}");
        match failpoint.action {
            Action::Hold => std::future::pending().await,
            Action::Panic => panic!("failpoint {name}"),
            Action::Delay(length) => tokio::time::sleep(length).await,
        }
    }
}

fn parse(text: &str) -> Result<Vec<Failpoint>, String> {
    text.split(';')
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .map(|part| {
            let wrong = || format!("'{part}' is not point=hold, =panic or =delay(ms), with n* before it for the n-th passing only");
            let (name, what) = part.split_once('=').ok_or_else(wrong)?;
            if !POINTS.contains(&name) {
                return Err(format!("no point is called '{name}'"));
            }
            let (passing, action) = match what.split_once('*') {
                Some((number, action)) => {
                    let number = number.parse().ok().filter(|number| *number > 0);
                    (Some(number.ok_or_else(wrong)?), action)
                }
                None => (None, what),
            };
            let action = match action {
                "hold" => Action::Hold,
                "panic" => Action::Panic,
                other => {
                    let length = other.strip_prefix("delay(").and_then(|rest| rest.strip_suffix(')'));
                    let length = length.and_then(|length| length.parse().ok());
                    Action::Delay(Duration::from_millis(length.ok_or_else(wrong)?))
                }
            };
            Ok(Failpoint {
                name: name.to_owned(),
                passing,
                action,
                passed: AtomicU32::new(0),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_says_what_happens_where_and_at_which_passing() {
        let text = " flush.applied=hold; cold.fill=delay(500);flush.marked=3*panic;";
        let parsed: Vec<_> = parse(text)
            .unwrap()
            .into_iter()
            .map(|one| (one.name, one.passing, one.action))
            .collect();
        let delay = Action::Delay(Duration::from_millis(500));
        assert_eq!(
            parsed,
            [
                ("flush.applied".to_owned(), None, Action::Hold),
                ("cold.fill".to_owned(), None, delay),
                ("flush.marked".to_owned(), Some(3), Action::Panic),
            ]
        );
        assert!(parse("").unwrap().is_empty());
    }

    #[test]
    fn wrong_texts_are_named() {
        for (text, problem) in [
            ("flush.aplied=hold", "no point is called 'flush.aplied'"),
            ("flush.applied", "'flush.applied' is not"),
            ("flush.applied=kill", "'flush.applied=kill' is not"),
            ("flush.applied=0*hold", "'flush.applied=0*hold' is not"),
            ("flush.applied=delay(x)", "'flush.applied=delay(x)' is not"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(problem), "{error}");
        }
    }
}
