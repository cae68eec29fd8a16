//! `cargo xtask tidy --figures`: measures how readable each crate's words are, and refuses what
//! gets worse.
//!
//! # Guarantees
//! 1. Tests are left out of every figure: files of tests, and what follows a file's first
//!    `#[cfg(test)]` module.
//! 2. A figure that is worse than `xtask/words.toml` says, by more than its tolerance, is a
//!    finding.
//! 3. `--write` only ever improves what the file says, so that the tolerance can't be used up
//!    twice.
//! 4. A crate the file doesn't name yet is held to the worst crate it does name: splitting and
//!    renaming a crate needs no ceremony.

mod circles;
mod code_mask;
mod measure;
mod pattern;
mod ratchet;
mod rules;
mod sources;
mod vocabulary;

use super::finding::Finding;
use anyhow::Result;
use measure::CrateFigures;
use ratchet::Ratchet;
use rules::RULES;
use sources::CrateSources;
use std::collections::BTreeMap;
use std::path::Path;
use vocabulary::Vocabulary;

/// The name of the row that sums up all crates.
const WORKSPACE: &str = "workspace";

/// Says whether `--figures` prints the table, and whether `--write` records what has become better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FiguresMode {
    /// Only compares with what is recorded.
    Check,
    Print,
    PrintAndWrite,
}

/// Measures every crate below `root`, and returns a finding for each figure that has become worse.
pub(super) fn check_tree(root: &Path, mode: FiguresMode) -> Result<Vec<Finding>> {
    let crates = sources::read_crates(root)?;
    let rows = rows_of(&crates);
    let mut ratchet = Ratchet::read(root)?;
    let mut vocabulary = Vocabulary::read(root)?;
    if mode != FiguresMode::Check {
        print!("{}", format_figures(&rows));
    }
    // Recording comes before checking, so that improved figures pass at once.
    if mode == FiguresMode::PrintAndWrite {
        ratchet.record_better(&rows);
        ratchet.write(root)?;
        vocabulary.record_fewer(&crates);
        vocabulary.write(root)?;
    }
    let mut findings = ratchet.check_figures(&rows);
    findings.extend(vocabulary.check_words(&crates));
    Ok(findings)
}

/// Returns the figures of each crate by its name, and those of all crates together under
/// [`WORKSPACE`].
fn rows_of(crates: &[CrateSources]) -> BTreeMap<String, CrateFigures> {
    let mut rows: BTreeMap<_, _> = crates
        .iter()
        .map(|sources| (sources.name.clone(), sources.measure_figures()))
        .collect();
    rows.insert(WORKSPACE.to_owned(), measure::figures_of_all(crates));
    rows
}

/// Returns the table that `--figures` prints: a line for each crate, then the workspace, then the
/// aims.
fn format_figures(rows: &BTreeMap<String, CrateFigures>) -> String {
    let mut text = format!("{:<15}", "crate");
    for rule in RULES {
        text += &format!(" {:>9}", rule.heading);
    }
    text.push('\n');
    let crates = rows.iter().filter(|(name, _)| *name != WORKSPACE);
    let sum = rows.get_key_value(WORKSPACE);
    for (name, figures) in crates.chain(sum) {
        text += &format!("{name:<15}");
        for rule in RULES {
            text += &format!(" {:>9.1}", figures[&rule.figure]);
        }
        text.push('\n');
    }
    text += &format!("{:<15}", "aim");
    for rule in RULES {
        text += &format!(" {:>9.1}", rule.aim);
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests;
