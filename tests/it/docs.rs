//! What the documents say about the tests: each test that `guarantees.md` and `security.md` name is there, and each row names one.

use std::collections::BTreeSet;
use std::path::Path;

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
