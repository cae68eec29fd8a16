//! Rules on source files: size, names, first line, unfinished work, blanks, `unsafe`.

use super::finding::Finding;
use anyhow::{Context as _, Result};
use std::path::Path;

/// The most lines of a source file; files of tests are not counted.
const LINES_MAX: usize = 500;
/// Words that no file name may contain: they say nothing about the content.
const EMPTY_WORDS: &[&str] = &[
    "util", "utils", "common", "helper", "helpers", "misc", "manager", "managers", "handler",
    "handlers",
];
/// Marks of unfinished work.
const UNFINISHED: &[&str] = &["todo!(", "unimplemented!(", "FIXME", "XXX", "#[ignore"];
/// The only modules with `unsafe`. Each of their blocks says why it is sound.
const UNSAFE_MODULES: &[&str] = &["crates/teal-fuse/src/ioctl.rs"];
/// These files quote what they forbid.
const QUOTING: &str = "xtask/src/tidy/sources";

/// Checks every `.rs` and `.toml` file under `root`, whatever git thinks of it.
pub(super) fn check_tree(root: &Path) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let mut dirs = vec![root.to_owned()];
    while let Some(dir) = dirs.pop() {
        let mut entries: Vec<_> = std::fs::read_dir(&dir)?.collect::<Result<_, _>>()?;
        entries.sort_by_key(std::fs::DirEntry::path);
        for entry in entries {
            let (path, name) = (entry.path(), entry.file_name());
            if entry.file_type()?.is_dir() {
                // Build output and hidden directories are no sources.
                if name != "target" && !name.as_encoded_bytes().starts_with(b".") {
                    dirs.push(path);
                }
            } else if path
                .extension()
                .is_some_and(|ext| ext == "rs" || ext == "toml")
            {
                let text =
                    std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
                findings.extend(check_file(
                    &path.strip_prefix(root)?.display().to_string(),
                    &text,
                ));
            }
        }
    }
    // Findings in the order of the tree, so that runs can be compared.
    findings.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    Ok(findings)
}

fn check_file(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = check_blanks(path, text);
    if !path.ends_with(".rs") {
        return findings;
    }
    findings.extend(check_name(path));
    // Files of tests may be longer: they are read one test at a time.
    let is_test = path.ends_with("/tests.rs") || path.split('/').any(|part| part == "tests");
    if !is_test && text.lines().count() > LINES_MAX {
        let advice = format!("over {LINES_MAX} lines: split it by concept, tests to tests.rs");
        findings.push(Finding::new(path, LINES_MAX + 1, "size", advice));
    }
    if !text.starts_with("//!") {
        findings.push(Finding::new(
            path,
            1,
            "first-line",
            "begin with `//!` and one sentence: what is this file?",
        ));
    }
    if !path.starts_with(QUOTING) {
        findings.extend(check_unfinished(path, text));
        if !UNSAFE_MODULES.contains(&path) {
            findings.extend(unsafe_code(path, text));
        }
    }
    findings
}

fn check_blanks(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if line.contains('\t') {
            findings.push(Finding::new(
                path,
                at + 1,
                "tab",
                "use spaces; in a string, write \\t",
            ));
        }
        if line.ends_with([' ', '\t', '\r']) {
            findings.push(Finding::new(
                path,
                at + 1,
                "trailing-space",
                "remove the blanks at the end of the line",
            ));
        }
    }
    findings
}

fn check_name(path: &str) -> Option<Finding> {
    if path.ends_with("/mod.rs") {
        return Some(Finding::new(
            path,
            1,
            "mod-rs",
            "name it after its directory, beside it: foo.rs and foo/",
        ));
    }
    let mut parts = path
        .trim_end_matches(".rs")
        .split('/')
        .flat_map(|part| part.split(['_', '-']));
    let empty = parts.rfind(|part| EMPTY_WORDS.contains(part))?;
    Some(Finding::new(
        path,
        1,
        "name",
        format!("`{empty}` says nothing; name the file after its concept"),
    ))
}

fn check_unfinished<'a>(path: &'a str, text: &'a str) -> impl Iterator<Item = Finding> + 'a {
    text.lines().enumerate().filter_map(move |(at, line)| {
        let mark = UNFINISHED.iter().find(|mark| line.contains(**mark))?;
        Some(Finding::new(
            path,
            at + 1,
            "unfinished",
            format!("`{mark}`: finish it or take it out"),
        ))
    })
}

fn unsafe_code<'a>(path: &'a str, text: &'a str) -> impl Iterator<Item = Finding> + 'a {
    text.lines().enumerate().filter_map(move |(at, line)| {
        // The word in a comment is allowed.
        let code = line.split("//").next().unwrap_or_default();
        let mut after = code.split("unsafe").skip(1).map(str::trim_start);
        let starts = |rest: &str| {
            rest.is_empty()
                || ["{", "fn ", "impl", "extern", "trait"]
                    .iter()
                    .any(|t| rest.starts_with(t))
        };
        let advice = || format!("unsafe code lives in {} only", UNSAFE_MODULES.join(" and "));
        after
            .any(starts)
            .then(|| Finding::new(path, at + 1, "unsafe", advice()))
    })
}

#[cfg(test)]
mod tests;
