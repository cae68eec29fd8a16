//! Keeps the scripts of a directory of results, so that they can be had again, and compares them
//! with those that a run would take now.
//!
//! # Form
//! `scripts.json` in the directory of results has, by the name of a workload, its script and all
//! that this loads ([`ScriptSources`]), as text. A matrix that lies beside such a file takes its
//! scripts from there: `teal lab matrix matrix.toml` in a directory of results needs nothing else.

use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::path::Path;
use teal_rig::sources::{ScriptSources, no_such_workload};
use teal_study::matrix::{Matrix, MatrixWorkload};

const FILE: &str = "scripts.json";

/// Scripts by the names of their workloads.
pub(crate) type Scripts = BTreeMap<String, ScriptSources>;

/// Reads the scripts of a directory, if it keeps any.
pub(crate) fn read_scripts(dir: &Path) -> Result<Option<Scripts>> {
    let path = dir.join(FILE);
    match std::fs::read_to_string(&path) {
        Ok(text) => serde_json::from_str(&text)
            .map(Some)
            .with_context(|| path.display().to_string()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e).with_context(|| path.display().to_string()),
    }
}

/// Returns the scripts of a matrix that lies in a directory: those that the directory keeps, or
/// those that the matrix names.
pub(super) fn scripts_of(matrix: &Matrix, beside: &Path) -> Result<Vec<ScriptSources>> {
    let kept = read_scripts(beside)?.unwrap_or_default();
    // A kept script is the one that the results were made with.
    let one = |workload: &MatrixWorkload| match kept.get(&workload.name) {
        Some(kept) => Ok(kept.clone()),
        None => find_sources(&workload.script, beside),
    };
    matrix.workloads.iter().map(one).collect()
}

/// Finds a script by name, or by its path from a directory.
pub(super) fn find_sources(name: &str, beside: &Path) -> Result<ScriptSources> {
    if name.is_empty() {
        bail!(no_such_workload(name));
    }
    let path = beside.join(name);
    // Only what looks like a path is one; other names are shipped workloads.
    match path
        .to_str()
        .filter(|_| name.contains('/') || name.ends_with(".wml") || name.ends_with(".f"))
    {
        Some(path) => ScriptSources::by_name(path),
        None => ScriptSources::by_name(name),
    }
}

/// Keeps the scripts before the first run, and refuses other ones afterwards. Results that never
/// kept scripts stay without them.
pub(super) fn keep_scripts(
    dir: &Path,
    matrix: &Matrix,
    sources: &[ScriptSources],
    has_runs: bool,
) -> Result<()> {
    let kept = read_scripts(dir)?.filter(|_| has_runs);
    // Runs of two scripts under one name could not be told apart.
    for (workload, now) in matrix.workloads.iter().zip(sources) {
        if kept
            .as_ref()
            .and_then(|kept| kept.get(&workload.name))
            .is_some_and(|then| !then.is_same(now))
        {
            bail!(
                "workload {}: its script {} is not the one that {} has runs of; say another \
                 --results",
                workload.name,
                workload.script,
                dir.display()
            );
        }
    }
    // The scripts of existing runs have just been compared, and stay.
    if has_runs {
        return Ok(());
    }
    let path = dir.join(FILE);
    let all: Scripts = matrix
        .workloads
        .iter()
        .map(|of| of.name.clone())
        .zip(sources.iter().cloned())
        .collect();
    std::fs::write(&path, serde_json::to_string_pretty(&all)? + "\n")
        .with_context(|| path.display().to_string())
}
