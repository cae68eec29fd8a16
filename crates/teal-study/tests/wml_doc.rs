//! The table of rules in `docs/wml.md` names tests that exist.

#![allow(clippy::unwrap_used, reason = "a test whose ground gives way fails")]

use std::collections::BTreeMap;
use std::path::Path;

/// Where the tests of each name in the table are.
const PLACES: &[(&str, &str)] = &[
    ("wml", "src/wml/tests.rs"),
    ("plan", "src/workload/plan/tests.rs"),
    ("random", "src/workload/random/tests.rs"),
    ("layout", "src/workload/layout/tests.rs"),
    ("fileset", "src/workload/fileset/tests.rs"),
    ("populate", "src/workload/populate/tests.rs"),
    ("stats", "src/workload/stats/tests.rs"),
    ("waiting", "src/workload/waiting.rs"),
    ("content", "src/workload/content.rs"),
    ("data", "tests/workload/data.rs"),
    ("names", "tests/workload/names.rs"),
    ("meeting", "tests/workload/meeting.rs"),
    ("ending", "tests/workload/ending.rs"),
    ("descriptors", "src/workload/descriptors/tests.rs"),
    ("e2e", "../teal-lab/tests/traces/workload.rs"),
    ("shapes", "../teal-lab/tests/traces/personalities.rs"),
];

#[test]
fn every_rule_of_the_language_has_a_test_that_exists() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| std::fs::read_to_string(here.join(path)).unwrap();
    let sources: BTreeMap<&str, String> = PLACES
        .iter()
        .map(|(name, path)| (*name, read(path)))
        .collect();
    let doc = read("../../docs/wml.md");
    let mut rules = 0;
    for line in doc
        .lines()
        .filter(|line| line.starts_with("| ") && line.contains("::"))
    {
        rules += 1;
        for (module, test) in line.split('`').filter_map(|word| word.split_once("::")) {
            let source = sources
                .get(module)
                .unwrap_or_else(|| panic!("no place of {module}::{test}"));
            assert!(
                source.contains(&format!("fn {test}(")),
                "{module}::{test} is in the table and nowhere else"
            );
        }
    }
    assert!(rules > 60, "the table has {rules} rules");
}
