//! Every source rule, broken once.

use super::*;

fn rules(path: &str, text: &str) -> Vec<&'static str> {
    check_file(path, text).into_iter().map(|f| f.rule).collect()
}

const GOOD: &str = "crates/teal-log/src/segment.rs";

#[test]
fn a_good_file_passes() {
    assert_eq!(
        rules(
            GOOD,
            "//! Segments.\n\n/// Not unsafe at all.\npub fn f() {}\n"
        ),
        [""; 0]
    );
}

#[test]
fn a_file_begins_with_what_it_is() {
    assert_eq!(rules(GOOD, "use std::io;\n"), ["first-line"]);
    assert_eq!(
        rules("crates/teal-log/tests/crash.rs", "use std::io;\n"),
        ["first-line"]
    );
}

#[test]
fn a_file_has_at_most_500_lines_tests_apart() {
    let long = format!("//! Long.\n{}", "// x\n".repeat(500));
    assert_eq!(rules(GOOD, &long), ["size"]);
    assert_eq!(
        rules(GOOD, long.trim_end().rsplit_once('\n').unwrap().0),
        [""; 0]
    );
    assert_eq!(
        rules("crates/teal-log/src/segment/tests.rs", &long),
        [""; 0]
    );
    assert_eq!(rules("crates/teal-log/tests/crash.rs", &long), [""; 0]);
}

#[test]
fn names_say_something() {
    assert_eq!(
        rules("crates/teal-log/src/segment/mod.rs", "//! X.\n"),
        ["mod-rs"]
    );
    for name in [
        "utils",
        "common",
        "helpers",
        "misc",
        "manager",
        "handler",
        "segment_manager",
    ] {
        assert_eq!(
            rules(&format!("crates/teal-log/src/{name}.rs"), "//! X.\n"),
            ["name"]
        );
        assert_eq!(
            rules(
                &format!("crates/teal-log/tests/{name}/crash.rs"),
                "//! X.\n"
            ),
            ["name"]
        );
    }
}

#[test]
fn nothing_is_left_unfinished() {
    for mark in UNFINISHED {
        assert_eq!(
            rules(GOOD, &format!("//! X.\n\n    {mark}\n")),
            ["unfinished"]
        );
        assert_eq!(
            rules(
                "xtask/src/tidy/sources.rs",
                &format!("//! X.\n\n    {mark}\n")
            ),
            [""; 0]
        );
    }
}

#[test]
fn blanks_are_spaces_inside_lines() {
    assert_eq!(rules(GOOD, "//! X.\n\tfn\n"), ["tab"]);
    assert_eq!(rules(GOOD, "//! X. \n"), ["trailing-space"]);
    assert_eq!(rules("Cargo.toml", "[package] \n"), ["trailing-space"]);
    assert_eq!(
        rules(GOOD, "//! X.\r\n"),
        [""; 0],
        "lines() takes CRLF; rustfmt refuses it"
    );
}

#[test]
fn unsafe_lives_in_two_modules() {
    for code in [
        "let x = unsafe { f() };",
        "unsafe fn f() {}",
        "unsafe impl Send for X {}",
        "unsafe",
    ] {
        let text = format!("//! X.\n{code}\n");
        assert_eq!(rules(GOOD, &text), ["unsafe"], "{code}");
        for module in UNSAFE_MODULES {
            assert_eq!(rules(module, &text), [""; 0]);
        }
    }
    assert_eq!(
        rules(GOOD, "//! X.\n#![deny(unsafe_code)] // unsafe {\n"),
        [""; 0]
    );
}

#[test]
fn a_tree_is_walked_without_target_and_hidden_directories() {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in [
        ("a/b.rs", "//! B.\n"),
        ("target/c.rs", ""),
        (".git/d.rs", ""),
        ("a/utils.rs", ""),
    ] {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let found: Vec<String> = check_tree(root.path())
        .unwrap()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        found,
        [
            "a/utils.rs:1: name: `utils` says nothing; name the file after its concept",
            "a/utils.rs:1: first-line: begin with `//!` and one sentence: what is this file?"
        ]
    );
}
