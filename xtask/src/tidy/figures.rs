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
mod measure;
mod pattern;
mod ratchet;
mod vocabulary;

use super::Finding;
use anyhow::Result;
use measure::{CrateFigures, CrateSources};
use ratchet::Ratchet;
use std::collections::BTreeMap;
use std::path::Path;
use vocabulary::Vocabulary;

/// One column of the table in the chapter *Words* of the style guide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum WordFigure {
    OneWordTypes,
    SharedTypeNames,
    OneWordFunctions,
    TokensPerLine,
    MedianFunctionTokens,
    LongestFunctionTokens,
    ClosuresPerThousandLines,
    WideLines,
    RiddlesPerThousandWords,
    ClauseComments,
    InnerComments,
    AssertionsPerThousandLines,
    LargestCircle,
}

/// Says which direction of a [`Figure`] is the better one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BetterDirection {
    Lower,
    Higher,
}

/// What is fixed about a [`Figure`]: its names, its aim, and how much worse it may become before
/// tidy objects.
struct FigureRule {
    figure: WordFigure,
    /// The key in `xtask/words.toml`.
    key: &'static str,
    /// The heading of the column in the printed table.
    heading: &'static str,
    aim: f64,
    /// A merge of two branches may worsen a figure by this much: each branch was measured without
    /// the other's lines.
    tolerance: f64,
    better: BetterDirection,
}

const fn figure_rule(
    figure: WordFigure,
    key: &'static str,
    heading: &'static str,
    aim: f64,
    tolerance: f64,
    better: BetterDirection,
) -> FigureRule {
    FigureRule {
        figure,
        key,
        heading,
        aim,
        tolerance,
        better,
    }
}

const RULES: &[FigureRule] = &[
    figure_rule(
        WordFigure::OneWordTypes,
        "one-word-types",
        "types 1w%",
        25.0,
        3.0,
        BetterDirection::Lower,
    ),
    figure_rule(
        WordFigure::SharedTypeNames,
        "shared-type-names",
        "share%",
        5.0,
        3.0,
        BetterDirection::Lower,
    ),
    figure_rule(
        WordFigure::OneWordFunctions,
        "one-word-functions",
        "fns 1w%",
        45.0,
        2.0,
        BetterDirection::Lower,
    ),
    figure_rule(
        WordFigure::TokensPerLine,
        "tokens-per-line",
        "tok/line",
        7.5,
        0.3,
        BetterDirection::Lower,
    ),
    figure_rule(
        WordFigure::MedianFunctionTokens,
        "median-function-tokens",
        "fn med",
        60.0,
        5.0,
        BetterDirection::Lower,
    ),
    figure_rule(
        WordFigure::LongestFunctionTokens,
        "longest-function-tokens",
        "fn most",
        300.0,
        30.0,
        BetterDirection::Lower,
    ),
    figure_rule(
        WordFigure::ClosuresPerThousandLines,
        "closures-per-1000-lines",
        "closures",
        25.0,
        3.0,
        BetterDirection::Lower,
    ),
    figure_rule(
        WordFigure::WideLines,
        "lines-over-100-columns",
        "wide",
        0.0,
        5.0,
        BetterDirection::Lower,
    ),
    figure_rule(
        WordFigure::RiddlesPerThousandWords,
        "riddles-per-1000-words",
        "riddles",
        1.0,
        1.0,
        BetterDirection::Lower,
    ),
    figure_rule(
        WordFigure::ClauseComments,
        "clause-comments",
        "clause%",
        1.0,
        1.0,
        BetterDirection::Lower,
    ),
    figure_rule(
        WordFigure::InnerComments,
        "comments-inside-functions",
        "inner%",
        4.0,
        0.3,
        BetterDirection::Higher,
    ),
    figure_rule(
        WordFigure::AssertionsPerThousandLines,
        "assertions-per-1000-lines",
        "asserts",
        5.0,
        0.5,
        BetterDirection::Higher,
    ),
    figure_rule(
        WordFigure::LargestCircle,
        "largest-import-circle",
        "circle%",
        15.0,
        3.0,
        BetterDirection::Lower,
    ),
];

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
    let crates = measure::read_crates(root)?;
    let rows = rows_of(&crates);
    let mut ratchet = Ratchet::read(root)?;
    let mut vocabulary = Vocabulary::read(root)?;
    if mode != FiguresMode::Check {
        print!("{}", format_figures(&rows));
    }
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
