//! Records the makers of results: kernels, this program, and the programs that make file systems.
//!
//! # Form
//! `versions.json` in the directory of results is a list of [`ToolVersions`]. An entry is added
//! whenever runs begin with other versions than the last, so that results which were continued
//! elsewhere say so.

use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use teal_rig::command::{find_program, program_output};
use teal_rig::path_context::PathContext as _;
use teal_study::matrix::{FileSystemKind, Matrix};

const FILE: &str = "versions.json";

/// Names the kernels and programs that made runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ToolVersions {
    /// Kernel and processors of this machine, and version of this program.
    machine: String,
    /// Kernel of guests, if there were any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    guest: Option<String>,
    /// Version of each kind's mkfs, in its own words.
    mkfs: BTreeMap<String, String>,
}

impl ToolVersions {
    /// Describes this machine and its programs.
    fn of_this_machine(matrix: &Matrix, guest: Option<String>) -> Self {
        // Teal has no mkfs of its own name; its version is that of this program.
        let kinds = matrix
            .systems
            .iter()
            .map(|system| system.kind)
            .filter(|kind| !kind.is_ours());
        let mkfs = kinds
            .filter_map(|kind| Some((kind.name().to_owned(), mkfs_version(kind)?)))
            .collect();
        Self {
            machine: machine_line(),
            guest,
            mkfs,
        }
    }

    /// Returns lines for people.
    fn to_lines(&self) -> Vec<String> {
        let guest = self.guest.iter().map(|kernel| format!("guests: {kernel}"));
        let mkfs = self
            .mkfs
            .iter()
            .map(|(kind, said)| format!("{kind} made by {said}"));
        [self.machine.clone()]
            .into_iter()
            .chain(guest)
            .chain(mkfs)
            .collect()
    }
}

/// Returns a line on this machine.
fn machine_line() -> String {
    let uname = rustix::system::uname();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    format!(
        "{} {}, {processors} processors, TealFS {}",
        uname.sysname().to_string_lossy(),
        uname.release().to_string_lossy(),
        env!("CARGO_PKG_VERSION")
    )
}

/// Returns the first line of a program's version. Some programs print it on standard error, and one
/// has no such option and prints it first of all.
fn mkfs_version(kind: FileSystemKind) -> Option<String> {
    debug_assert!(!kind.is_ours(), "teal has the version of this program");
    let program = find_program(&format!("mkfs.{}", kind.name()))?;
    let said = program_output(program, &["-V"]).ok()?;
    let lines = [said.stdout, said.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    let line = lines
        .iter()
        .flat_map(|text| text.lines())
        .find(|line| !line.trim().is_empty())?;
    Some(line.trim().to_owned())
}

fn read_versions(results: &Path) -> Result<Vec<ToolVersions>> {
    let path = results.join(FILE);
    match std::fs::read_to_string(&path) {
        Ok(text) => serde_json::from_str(&text).at_path(&path),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(e).at_path(&path),
    }
}

/// Keeps the versions of the programs that runs are made with from now on.
pub(super) fn keep_versions(results: &Path, matrix: &Matrix, guest: Option<String>) -> Result<()> {
    let mut all = read_versions(results)?;
    let here = ToolVersions::of_this_machine(matrix, guest);
    // Only a change is worth an entry.
    if all.last() != Some(&here) {
        all.push(here);
        let path = results.join(FILE);
        std::fs::write(&path, serde_json::to_string_pretty(&all)? + "\n").at_path(&path)?;
    }
    Ok(())
}

/// Returns the versions that made the runs there; of results that do not say it, those of this
/// machine.
pub(crate) fn version_lines(results: &Path) -> Result<Vec<String>> {
    let all = read_versions(results)?;
    Ok(if all.is_empty() {
        vec![machine_line()]
    } else {
        all.iter().flat_map(ToolVersions::to_lines).collect()
    })
}
