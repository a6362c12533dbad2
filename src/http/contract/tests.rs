//! The document against its copy, the codes and itself.

use std::collections::BTreeSet;

use axum::http::Method;
use serde_json::Value;

use super::super::parameters;
use super::super::problem::CODES;
use super::*;

fn parsed() -> Value {
    serde_json::from_str(document()).unwrap()
}

/// Run with `UPDATE_OPENAPI=1` to write the file anew.
#[test]
fn the_copy_of_the_document_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/openapi.json");
    if std::env::var_os("UPDATE_OPENAPI").is_some() {
        std::fs::write(path, document()).unwrap();
    }
    let copy = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        copy == document(),
        "docs/openapi.json is old: run this test with UPDATE_OPENAPI=1"
    );
}

/// All references of a value.
fn references<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                match field {
                    Value::String(target) if name == "$ref" => {
                        found.insert(target);
                    }
                    _ => references(field, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

#[test]
fn references_lead_somewhere() {
    let document = parsed();
    assert_eq!(document["openapi"], "3.1.0");
    let mut found = BTreeSet::new();
    references(&document, &mut found);
    assert!(found.len() > 10, "{found:?}");
    for reference in found {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
}

#[test]
fn every_code_is_documented_with_its_status() {
    let document = parsed();
    let mut found = BTreeSet::new();
    for item in document["paths"].as_object().unwrap().values() {
        for call in item.as_object().unwrap().values() {
            for (status, response) in call["responses"].as_object().unwrap() {
                let schema = &response["content"]["application/problem+json"]["schema"];
                let codes = &schema["allOf"][1]["properties"]["code"]["enum"];
                for code in codes.as_array().into_iter().flatten() {
                    found.insert((code.as_str().unwrap(), status.parse::<u16>().unwrap()));
                }
            }
        }
    }
    // A method that an address does not have is no operation of the document.
    let all = CODES
        .into_iter()
        .filter(|(code, _)| *code != "method_not_allowed");
    assert_eq!(found, all.collect());
}

#[test]
fn operations_have_names_of_their_own() {
    let document = parsed();
    let mut names = BTreeSet::new();
    for item in document["paths"].as_object().unwrap().values() {
        for call in item.as_object().unwrap().values() {
            let name = call["operationId"].as_str().unwrap().to_owned();
            assert!(names.insert(name), "{}", call["operationId"]);
        }
    }
    assert!(names.len() > 10);
}

#[test]
fn the_parameters_of_a_query_are_those_that_are_taken() {
    let document = parsed();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, call) in item.as_object().unwrap() {
            let parameters = call["parameters"].as_array().into_iter().flatten();
            let named: BTreeSet<&str> = parameters
                .filter(|parameter| parameter["in"] == "query")
                .map(|parameter| parameter["name"].as_str().unwrap())
                .collect();
            let method: Method = method.to_uppercase().parse().unwrap();
            let known = parameters::known(&method, path).unwrap_or_default();
            let known = known.iter().copied().collect();
            assert_eq!(named, known, "{method} {path}");
        }
    }
}
