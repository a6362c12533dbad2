//! What the documents say is so: tests that they name are there, metrics that alerts and dashboard ask for are documented, each alert
//! has its section in the runbook, commands and links exist.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Names of the functions below a line `#[test]` or `#[tokio::test…]`.
fn tests_in(directory: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            tests_in(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            let text = read(&path);
            let mut attribute = false;
            for line in text.lines().map(str::trim) {
                if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
                    attribute = true;
                } else if attribute && let Some((_, rest)) = line.split_once("fn ") {
                    found.insert(rest.split('(').next().unwrap().to_owned());
                    attribute = false;
                }
            }
        }
    }
}

#[test]
fn guarantees_and_security_name_tests_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut tests = BTreeSet::new();
    tests_in(&root.join("tests/it"), &mut tests);
    tests_in(&root.join("src"), &mut tests);
    let documents = ["docs/guarantees.md", "docs/security.md"];
    let text = documents.map(|name| read(&root.join(name))).join("\n");
    let rows = text
        .lines()
        .filter(|line| line.starts_with("| ") && !line.contains(" tests |"));
    let mut count = 0;
    for row in rows {
        let last = row.trim_end_matches('|').rsplit('|').next().unwrap();
        assert!(last.contains('`'), "a row without a test: {row}");
        for name in last.split('`').skip(1).step_by(2) {
            let make = name.starts_with("make ");
            assert!(make || tests.contains(name), "{name} is no test");
            count += 1;
        }
    }
    assert!(count > 50, "only {count} names were found");
}

/// A file of this repository.
fn file(name: &str) -> String {
    read(&Path::new(env!("CARGO_MANIFEST_DIR")).join(name))
}

/// The documents, by their name.
fn documents() -> BTreeMap<String, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let docs = std::fs::read_dir(root.join("docs")).unwrap();
    docs.map(|entry| format!("docs/{}", entry.unwrap().file_name().display()))
        .chain(["README.md", "ARCHITECTURE.md", "CHANGELOG.md"].map(str::to_owned))
        .filter(|name| name.ends_with(".md"))
        .map(|name| (name.clone(), file(&name)))
        .collect()
}

/// The rest of each line that begins so.
fn behind<'a>(text: &'a str, begin: &'a str) -> impl Iterator<Item = &'a str> {
    text.lines()
        .filter_map(move |line| line.trim_start().strip_prefix(begin))
}

/// Names of metrics in expressions.
fn metrics_in(text: &str) -> BTreeSet<&str> {
    let names = text.split(|sign: char| !(sign.is_ascii_alphanumeric() || sign == '_'));
    names
        .filter(|name| name.starts_with("thumbd_") || name.starts_with("process_"))
        .collect()
}

#[test]
fn alerts_and_dashboard_ask_for_metrics_that_are_documented() {
    let documentation = file("docs/metrics.md");
    let documented = |name: &str| documentation.contains(&format!("\n| `{name}` |"));
    for (name, least) in [("ops/alerts.yml", 9), ("ops/grafana/thumbd.json", 30)] {
        let text = file(name);
        let asked = metrics_in(&text);
        assert!(asked.len() >= least, "{name}: {asked:?}");
        for metric in asked {
            let of_histogram = ["_bucket", "_count", "_sum"]
                .iter()
                .filter_map(|end| metric.strip_suffix(end))
                .any(documented);
            assert!(documented(metric) || of_histogram, "{name}: {metric}");
        }
    }
}

#[test]
fn the_dashboard_says_of_each_panel_what_it_shows_and_in_which_unit() {
    let dashboard: Value = serde_json::from_str(&file("ops/grafana/thumbd.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut ids = BTreeSet::new();
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
        if panel["type"] == "row" {
            continue;
        }
        let text = |at: &str| {
            panel
                .pointer(at)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        assert!(text("/description").len() > 20, "{panel}");
        assert!(!text("/fieldConfig/defaults/unit").is_empty(), "{panel}");
        assert_eq!(text("/datasource/uid"), "${datasource}", "{panel}");
        for target in panel["targets"].as_array().unwrap() {
            assert_eq!(target["datasource"]["uid"], "${datasource}", "{panel}");
            assert!(target["expr"].as_str().is_some_and(|expr| !expr.is_empty()));
        }
    }
    assert!(ids.len() > 20);
}

#[test]
fn each_alert_is_tried_and_has_its_section_in_the_runbook() {
    let (alerts, tried) = (file("ops/alerts.yml"), file("ops/alerts_test.yml"));
    let runbook = file("docs/runbook.md");
    let names: Vec<&str> = behind(&alerts, "- alert: ").collect();
    let links: Vec<&str> = behind(&alerts, "runbook_url: ").collect();
    let wanted = names.iter().map(|name| name.to_lowercase());
    let wanted: Vec<String> = wanted
        .map(|name| format!("docs/runbook.md#{name}"))
        .collect();
    assert_eq!(links, wanted);
    let sections: Vec<&str> = behind(&runbook, "### ")
        .filter(|title| title.starts_with("Thumbd"))
        .collect();
    assert_eq!(sections, names);
    for name in names {
        assert!(tried.contains(name), "{name} is not tried");
    }
}

#[test]
fn each_part_of_the_guarantees_has_its_part_in_the_runbook() {
    let (guarantees, runbook) = (file("docs/guarantees.md"), file("docs/runbook.md"));
    let (_, faults) = runbook.split_once("\n## Faults\n").unwrap();
    let faults = faults.split("\n## ").next().unwrap();
    let parts: Vec<&str> = behind(&guarantees, "## ").collect();
    assert_eq!(behind(faults, "### ").collect::<Vec<_>>(), parts);
}

/// What stands in a document as code: blocks line by line, and spans.
fn code(text: &str) -> Vec<String> {
    let (mut found, mut block, mut prose) = (Vec::new(), false, String::new());
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            block = !block;
        } else if block {
            found.push(line.to_owned());
        } else {
            prose.push_str(line);
            prose.push(if line.is_empty() { '\u{0}' } else { ' ' });
        }
    }
    // A span does not go beyond its paragraph.
    for paragraph in prose.split('\u{0}') {
        found.extend(paragraph.split('`').skip(1).step_by(2).map(str::to_owned));
    }
    found
}

#[test]
fn commands_in_documents_exist() {
    let mut count = 0;
    for (name, text) in documents() {
        for line in code(&text) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let is_thumbd = |word: &&str| *word == "thumbd" || word.ends_with("/thumbd");
            let places = words.iter().enumerate().filter(|(_, word)| is_thumbd(word));
            for (at, _) in places {
                let mut command = &thumbd::cli::command();
                let root = command.clone();
                let rest = words[at + 1..].iter();
                let rest = rest.take_while(|word| !["#", "|", ">", "&&"].contains(word));
                let is_name = |word: &str| word.bytes().all(|byte| byte.is_ascii_lowercase());
                for word in rest {
                    let word = word.trim_end_matches([',', ';', '.', ')']);
                    if let Some(flag) = word.strip_prefix("--") {
                        let flag = flag.split('=').next().unwrap();
                        let known = |of: &clap::Command| {
                            of.get_arguments().any(|arg| arg.get_long() == Some(flag))
                        };
                        let known = known(command) || known(&root) || flag == "help";
                        assert!(known, "{name}: no --{flag} in {line}");
                    } else if command.has_subcommands() && is_name(word) {
                        let found = command.find_subcommand(word);
                        command = found.unwrap_or_else(|| panic!("{name}: {line}"));
                        count += 1;
                    } else if command.has_subcommands() {
                        // A name of something else.
                        break;
                    }
                }
            }
        }
    }
    assert!(count > 60, "only {count} were found");
}

/// The anchor of a heading.
fn anchor(title: &str) -> String {
    let kept = |sign: &char| sign.is_alphanumeric() || [' ', '-', '_'].contains(sign);
    let title: String = title.trim().to_lowercase().chars().filter(kept).collect();
    title.replace(' ', "-")
}

#[test]
fn links_between_documents_lead_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (name, text) in documents() {
        for link in text.split("](").skip(1) {
            let link = link.split(')').next().unwrap();
            if link.contains("://") {
                continue;
            }
            let (path, section) = link.split_once('#').unwrap_or((link, ""));
            let here = root.join(&name);
            let there = match path {
                "" => here,
                path => here.parent().unwrap().join(path),
            };
            assert!(there.exists(), "{name}: {link}");
            if !section.is_empty() {
                let text = read(&there);
                let titles = text.lines().filter(|line| line.starts_with('#'));
                let mut anchors = titles.map(|line| anchor(line.trim_start_matches('#')));
                assert!(anchors.any(|one| one == section), "{name}: {link}");
            }
        }
    }
}
