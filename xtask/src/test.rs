//! `cargo xtask test`: the one command that runs every test, here and in CI.
//!
//! # Guarantees
//! 1. The last line of its output is `N passed, N failed, N skipped`, over all test binaries and the examples in the docs.
//! 2. It fails if any test failed, if a test binary died without saying, or if no test ran.
//! 3. What it installs it names first; what it cannot install it names too, and goes on: the tests that need it fail.
//!
//! Tests find the outside suites in `$TEAL_TOOLS/bin`. A test that cannot run here appends one line with the reason to the file
//! `$TEAL_SKIPS` and returns; it is counted as skipped, not as passed. With `--long` (`$TEAL_LONG` is set), tests that have a long form
//! run it: hours instead of minutes.

mod needs;
mod summary;

use anyhow::{Context as _, Result};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use summary::Summary;

/// What is run, and how.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan<'a> {
    /// Only tests with this in their names.
    filter: Option<&'a str>,
    /// Tests that have a long form run it, in release builds and one after the other.
    is_long: bool,
}

impl<'a> Plan<'a> {
    fn profile(&self) -> Option<&'static str> {
        self.is_long.then_some("--release")
    }

    /// What the arguments of the command ask for; `None` when they make no sense.
    pub(crate) fn of(args: &[&'a str]) -> Option<Self> {
        let (is_long, rest) = match args {
            ["--long", rest @ ..] => (true, rest),
            rest => (false, rest),
        };
        match rest {
            [] => Some(Self { filter: None, is_long }),
            [filter] if !filter.starts_with('-') => Some(Self { filter: Some(filter), is_long }),
            _ => None,
        }
    }
}

pub(crate) fn run(plan: &Plan<'_>) -> Result<bool> {
    let target = target_directory()?;
    let tools = target.join("tools");
    let skips = target.join("skipped-tests");
    needs::install_packages()?;
    needs::install_tools(&tools)?;
    if skips.exists() {
        std::fs::remove_file(&skips).context("forget the skips of the last run")?;
    }
    let mut build = crate::cargo();
    build.current_dir(crate::root()).args(["build", "--workspace", "--all-targets"]).args(plan.profile());
    anyhow::ensure!(build.status().context("cargo build")?.success(), "the workspace does not build");

    let mut summary = Summary::default();
    let mut is_good = stream(&["--workspace", "--no-fail-fast"], plan, &tools, &skips, &mut summary)?;
    // The tests themselves are tested with bugs that only this feature compiles in.
    for package in ["teal-log", "teal-chunk"] {
        let seeded = ["-p", package, "--features", "seeded-bugs", "--test", "seeded"];
        is_good &= stream(&seeded, plan, &tools, &skips, &mut summary)?;
    }
    summary.skip(std::fs::read_to_string(&skips).unwrap_or_default().lines());
    summary.settle(is_good);
    println!("\n{}", summary.report());
    std::io::stdout().flush()?;
    Ok(summary.is_good())
}

fn stream(what: &[&str], plan: &Plan<'_>, tools: &Path, skips: &Path, summary: &mut Summary) -> Result<bool> {
    let mut command = crate::cargo();
    command.current_dir(crate::root()).arg("test").args(what).args(plan.profile()).args(plan.filter);
    if plan.is_long {
        command.env("TEAL_LONG", "1").args(["--", "--test-threads=1"]);
    }
    let mut child = command
        .env("TEAL_TOOLS", tools)
        .env("TEAL_SKIPS", skips)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cargo test")?;
    let mut lines = BufReader::new(child.stdout.take().context("cargo test without output")?);
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line)? > 0 {
        std::io::stdout().write_all(&line)?;
        summary.see(&String::from_utf8_lossy(&line));
        line.clear();
    }
    Ok(child.wait()?.success())
}

pub(crate) fn target_directory() -> Result<PathBuf> {
    let out = crate::cargo()
        .current_dir(crate::root())
        .args(["metadata", "--format-version", "1", "--no-deps"])
        .stderr(Stdio::inherit())
        .output()
        .context("cargo metadata")?;
    let metadata: serde_json::Value = serde_json::from_slice(&out.stdout).context("cargo metadata")?;
    Ok(metadata["target_directory"].as_str().context("metadata without target_directory")?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_say_what_runs() {
        assert_eq!(Plan::of(&[]), Some(Plan::default()));
        assert_eq!(Plan::of(&["fsx"]), Some(Plan { filter: Some("fsx"), is_long: false }));
        assert_eq!(Plan::of(&["--long", "fsx"]), Some(Plan { filter: Some("fsx"), is_long: true }));
        assert_eq!(Plan::of(&["--short"]), None);
        assert_eq!(Plan::of(&["fsx", "--long"]), None);
    }
}
