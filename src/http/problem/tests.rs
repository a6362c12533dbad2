//! What callers see of errors.

use super::*;

fn text(problem: Problem) -> String {
    serde_json::to_string_pretty(&problem.body(Some("id-1"))).unwrap()
}

#[test]
fn errors_of_the_service_become_503_with_their_code() {
    let retry_after = Duration::from_millis(1200);
    for error in [
        ServiceError::Busy { retry_after },
        ServiceError::Recovering { retry_after },
        ServiceError::OutcomeUnknown { retry_after },
        ServiceError::RedisUnavailable { retry_after },
        ServiceError::DatabaseUnavailable { retry_after },
        ServiceError::RedisFull { retry_after },
    ] {
        let code = error.code();
        let problem = Problem::from(error);
        assert_eq!(problem.status(), StatusCode::SERVICE_UNAVAILABLE);
        let mut response = Response::new(Body::empty());
        problem.write(&mut response, &HeaderValue::from_static("id-1"));
        assert_eq!(response.headers()["retry-after"], "2", "{code}");
        assert_eq!(
            response.headers()["content-type"],
            "application/problem+json"
        );
        insta::assert_snapshot!(code, text(problem));
    }
}

#[test]
fn a_limit_is_429_and_names_its_policy() {
    let rate = crate::config::OperationRate {
        per_minute: 60,
        burst: 30,
    };
    let cooldown = crate::config::ToggleCooldown {
        first_ms: 500,
        max_ms: 60_000,
    };
    let told = [
        (Limit::Operations(rate), 1, "\"operations\";q=30;w=30", "1"),
        (
            Limit::Operations(rate),
            1001,
            "\"operations\";q=30;w=30",
            "2",
        ),
        (
            Limit::Toggles(cooldown),
            60_000,
            "\"toggles\";q=1;w=60",
            "60",
        ),
    ];
    for (limit, wait, policy, after) in told {
        let retry_after = Duration::from_millis(wait);
        let problem = Problem::from(ServiceError::RateLimited { limit, retry_after });
        assert_eq!(problem.status(), StatusCode::TOO_MANY_REQUESTS);
        let mut response = Response::new(Body::empty());
        problem.write(&mut response, &HeaderValue::from_static("id-1"));
        let name = policy.split(';').next().unwrap();
        assert_eq!(response.headers()["retry-after"], after);
        assert_eq!(response.headers()["ratelimit-policy"], policy);
        let left = format!("{name};r=0;t={after}");
        assert_eq!(response.headers()["ratelimit"], left);
        let name = name.trim_matches('"');
        insta::assert_snapshot!(format!("limited_{name}_{after}"), text(problem));
    }
}

#[test]
fn internal_texts_are_not_shown() {
    let problem = Problem::from(ServiceError::Internal("password hunter2".to_owned()));
    assert_eq!(problem.status(), StatusCode::INTERNAL_SERVER_ERROR);
    let text = text(problem);
    assert!(!text.contains("hunter2"));
    insta::assert_snapshot!(text);
}

#[test]
fn a_wrong_id_names_field_and_limit() {
    let error = crate::domain::UserId::parse("").unwrap_err();
    insta::assert_snapshot!(text(Problem::from(error).at("operations[3].user")));
}

#[test]
fn a_wrong_key_is_401_and_says_how_to_give_one() {
    let mut response = Response::new(Body::empty());
    Problem::unauthorized("the service key").write(&mut response, &HeaderValue::from_static("a"));
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(response.headers()["www-authenticate"], "Bearer");
}

#[test]
fn an_id_of_a_hostile_caller_stays_within_its_string() {
    let problem = Problem::kind_unknown("a\"b\n");
    let body: serde_json::Value = serde_json::from_str(&text(problem)).unwrap();
    assert_eq!(body["field"], "kind");
}

#[test]
fn the_document_lists_just_these_codes() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/errors.md");
    let text = std::fs::read_to_string(path).unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
    let listed: Vec<(&str, u16)> = rows
        .map(|row| {
            let mut cells = row.split('|');
            let code = cells.next().unwrap().trim().trim_matches('`');
            (code, cells.next().unwrap().trim().parse().unwrap())
        })
        .collect();
    assert_eq!(listed, CODES);
}
