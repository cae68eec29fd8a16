//! The two programs `teal` and `teal-lab`: the search for the other one, and the check that they
//! belong together.
//!
//! # Guarantees
//! 1. *Beside comes first*: a program is looked for in the directory of the one that asks, then in
//!    `PATH`.
//! 2. *One version*: [`teal_program`] returns a program of the version of this one, or an error
//!    with the version and the place that were found.

use crate::path_context::PathContext as _;
use anyhow::{Context as _, Result, anyhow, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// The version of both programs.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Returns the path of the running program.
///
/// # Errors
/// The kernel does not tell.
pub fn current_program() -> Result<PathBuf> {
    std::env::current_exe().context("where is this program?")
}

/// Returns the program of that name beside this one, or else the first in `PATH`.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let beside = current_program()
        .ok()
        .and_then(|this| Some(this.parent()?.to_owned()));
    let path = std::env::var_os("PATH").unwrap_or_default();
    first_of(beside.into_iter().chain(std::env::split_paths(&path)), name)
}

fn first_of(dirs: impl Iterator<Item = PathBuf>, name: &str) -> Option<PathBuf> {
    dirs.map(|dir| dir.join(name)).find(|path| path.is_file())
}

/// Returns the program `teal` that has the version of this one.
///
/// # Errors
/// There is none, or it has another version.
pub fn teal_program() -> Result<PathBuf> {
    // The search starts a program: it is made once.
    static FOUND: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let found = FOUND.get_or_init(|| find_teal().map_err(|error| format!("{error:#}")));
    found.clone().map_err(|why| anyhow!(why))
}

fn find_teal() -> Result<PathBuf> {
    let path = find_program("teal").context(
        "this needs the program teal, which is neither beside teal-lab nor in PATH: cargo install \
            --path crates/teal",
    )?;
    check_version(&path)?;
    Ok(path)
}

/// Refuses a program `teal` of another version.
fn check_version(path: &Path) -> Result<()> {
    let asked = Command::new(path)
        .arg("--version")
        .stdin(Stdio::null())
        .output();
    let asked = asked.with_path(path)?;
    let answer = String::from_utf8_lossy(&asked.stdout);
    // Any other answer comes from an unrelated program of that name.
    match answer.trim().strip_prefix("teal ") {
        Some(VERSION) => Ok(()),
        Some(other) => bail!(
            "{} is of version {other}, and teal-lab is of version {VERSION}: install both from \
                one source",
            path.display()
        ),
        None => bail!(
            "{} is no program teal: asked for its version, it says '{}'",
            path.display(),
            answer.trim()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    /// Makes a program that prints a line, whatever it is asked.
    fn program_that_says(dir: &Path, line: &str) -> PathBuf {
        let path = dir.join("teal");
        // A file that this process has open for writing cannot be run by another thread's child.
        let script = format!("#!/bin/sh\necho '{line}'\n");
        std::fs::write(dir.join("script"), script).unwrap();
        let copied = Command::new("cp")
            .arg(dir.join("script"))
            .arg(&path)
            .status();
        assert!(copied.unwrap().success());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn a_program_of_another_version_is_refused_by_its_version() {
        let dir = tempfile::tempdir().unwrap();
        let of = |line: &str| check_version(&program_that_says(dir.path(), line));
        of(&format!("teal {VERSION}")).unwrap();
        let other = of("teal 99.0.1").unwrap_err().to_string();
        assert!(
            other.contains("99.0.1") && other.contains(VERSION),
            "{other}"
        );
        let foreign = of("Tealeaf 3").unwrap_err().to_string();
        assert!(foreign.contains("'Tealeaf 3'"), "{foreign}");
    }

    #[test]
    fn a_program_beside_comes_before_one_in_path() {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let paths = || dirs.iter().map(|dir| dir.path().to_owned());
        assert_eq!(first_of(paths(), "teal"), None);
        let second = program_that_says(dirs[1].path(), "");
        assert_eq!(first_of(paths(), "teal"), Some(second));
        let first = program_that_says(dirs[0].path(), "");
        assert_eq!(first_of(paths(), "teal"), Some(first));
    }
}
