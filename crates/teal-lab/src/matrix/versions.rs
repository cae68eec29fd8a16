//! What made the results: kernels, this program, and the programs that make file systems.
//!
//! # Form
//! `versions.json` in the directory of results: a list of [`Versions`]. One is added whenever runs
//! begin and it is another one than the last, so that results which were gone on with elsewhere say
//! so.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use teal_rig::command::find_program;
use teal_study::matrix::{FileSystemKind, Matrix};

const FILE: &str = "versions.json";

/// On what runs were made, and with what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ToolVersions {
    /// Kernel and processors of this machine, and this program.
    machine: String,
    /// The kernel of guests, if there were any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    guest: Option<String>,
    /// By kind, what its mkfs says of itself.
    mkfs: BTreeMap<String, String>,
}

impl ToolVersions {
    /// Of here and now.
    fn of_this_machine(matrix: &Matrix, guest: Option<String>) -> Self {
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

    /// For people.
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

/// Returns what it was run on.
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

/// The first line that a program says of its version: some say it on standard error, and one has no
/// such option and says it first of all.
fn mkfs_version(kind: FileSystemKind) -> Option<String> {
    let program = find_program(&format!("mkfs.{}", kind.name()))?;
    let said = Command::new(program)
        .arg("-V")
        .stdin(Stdio::null())
        .output()
        .ok()?;
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
        Ok(text) => serde_json::from_str(&text).with_context(|| path.display().to_string()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(e).with_context(|| path.display().to_string()),
    }
}

/// Keeps what runs are made with from now on.
pub(super) fn keep_versions(results: &Path, matrix: &Matrix, guest: Option<String>) -> Result<()> {
    let mut all = read_versions(results)?;
    let here = ToolVersions::of_this_machine(matrix, guest);
    if all.last() != Some(&here) {
        all.push(here);
        let path = results.join(FILE);
        std::fs::write(&path, serde_json::to_string_pretty(&all)? + "\n")
            .with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// Returns what the runs there were made with; of results that do not say it, what is here.
pub(crate) fn version_lines(results: &Path) -> Result<Vec<String>> {
    let all = read_versions(results)?;
    Ok(if all.is_empty() {
        vec![machine_line()]
    } else {
        all.iter().flat_map(ToolVersions::to_lines).collect()
    })
}
