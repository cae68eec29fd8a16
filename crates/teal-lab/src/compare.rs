//! Implements `teal lab compare`: says what has changed between two results, and whether that is
//! more than noise.
//!
//! All differences of the two are named. Results of other work (script, scale, variables,
//! operations) are refused.
//!
//! Within one result its parts are compared in the same way: every file system by one, or every
//! scheduler by one.
//!
//! The status is 0 if nothing is worse, 3 if a workload is worse with 95 %, and 1 if the results
//! could not be compared.

use crate::cli::CompareArgs;
use crate::matrix::{scripts, versions};
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;
use teal_command::say::say;
use teal_rig::path_context::PathContext as _;
use teal_study::matrix::{
    CellRun, Matrix, MatrixChanges, MatrixDifferences, MeasuredChange, compare_results,
    find_differences,
};
use teal_study::statistics::PairedComparison;

/// Status when something is worse.
const WORSE: u8 = 3;

/// Runs the command.
pub(crate) fn run_compare(args: &CompareArgs) -> Result<ExitCode> {
    let Some(other) = &args.after else {
        return compare_within(args);
    };
    // Two files are single runs, without blocks.
    if args.before.is_file() && other.is_file() {
        return compare_outputs(args, other);
    }
    let differ = allowed_differences(args, differences_between(&args.before, other)?)?;
    let changes = compare_results(&read_runs_of(&args.before)?, &read_runs_of(other)?);
    if changes.cells.is_empty() {
        bail!(
            "{} and {} have no cell in common",
            args.before.display(),
            other.display()
        );
    }
    if !changes.workloads.iter().any(is_known) {
        bail!(
            "{} and {} share fewer than two blocks: nothing can be told",
            args.before.display(),
            other.display()
        );
    }
    // Only workloads decide on the status: of many cells some are worse by chance.
    let is_worse = changes.workloads.iter().any(MeasuredChange::is_worse);
    if args.json {
        let list = |of: &[MeasuredChange]| of.iter().map(change_json).collect::<Vec<_>>();
        let all = json!({
            "version": 1,
            "workloads": list(&changes.workloads),
            "cells": list(&changes.cells),
            "alone": changes.alone,
            "worse": is_worse,
            "differ": differ,
        });
        say!("{}", serde_json::to_string_pretty(&all)?);
    } else {
        if !differ.is_empty() {
            say!("they differ in: {}", differ.join(", "));
        }
        print_changes(&changes);
    }
    Ok(if is_worse {
        ExitCode::from(WORSE)
    } else {
        ExitCode::SUCCESS
    })
}

/// Prints the changes of the workloads, of the cells that differ, and the cells of one result only.
fn print_changes(changes: &MatrixChanges) {
    changes
        .workloads
        .iter()
        .for_each(|change| say!("{}", change_line(change)));
    // Differences within noise would hide those that are told.
    let told: Vec<&MeasuredChange> = changes
        .cells
        .iter()
        .filter(|change| change.is_worse() || change.is_better())
        .collect();
    // With intervals of 95 %, one cell in twenty differs by chance.
    let all = changes.cells.len();
    say!(
        "{} of {all} cells differ; of {all} that are alike {:.1} would look so by chance",
        told.len(),
        all as f64 * 0.05
    );
    told.into_iter()
        .for_each(|change| say!("  {}", change_line(change)));
    for [workload, system, scheduler] in &changes.alone {
        say!("only in one of them: {workload}, {system}, {scheduler}");
    }
}

/// Reads the matrix of a directory of results, if it is there.
fn read_matrix(dir: &Path) -> Result<Option<Matrix>> {
    let path = dir.join("matrix.toml");
    match std::fs::read_to_string(&path) {
        Ok(text) => Matrix::parse(&text).map(Some).at_path(&path),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e).at_path(&path),
    }
}

/// Returns the differences of two results, as far as both have kept their matrix and scripts.
fn differences_between(before: &Path, after: &Path) -> Result<MatrixDifferences> {
    let (Some(a), Some(b)) = (read_matrix(before)?, read_matrix(after)?) else {
        return Ok(MatrixDifferences::default());
    };
    let mut all = find_differences(&a, &b);
    let (one, other) = (
        scripts::read_scripts(before)?,
        scripts::read_scripts(after)?,
    );
    for workload in &a.workloads {
        // Only workloads of both results are compared.
        let Some(same) = b.workloads.iter().find(|of| of.name == workload.name) else {
            continue;
        };
        // Results of a time when scripts were not kept have only their names.
        let texts = one
            .as_ref()
            .zip(other.as_ref())
            .and_then(|(a, b)| a.get(&workload.name).zip(b.get(&workload.name)));
        let is_same = texts.map_or(workload.script == same.script, |(a, b)| a.is_same(b));
        if !is_same {
            all.reasons.push(format!("the script of {}", workload.name));
        }
    }
    let [one, other] = [before, after].map(versions::version_lines);
    let (one, other) = (one?.join("; "), other?.join("; "));
    if one != other {
        all.remarks
            .push(format!("what made them ({one}) and ({other})"));
    }
    Ok(all)
}

/// Returns all differences, if they are allowed.
fn allowed_differences(args: &CompareArgs, of: MatrixDifferences) -> Result<Vec<String>> {
    let MatrixDifferences {
        mut remarks,
        reasons,
    } = of;
    if !reasons.is_empty() && !args.anyway {
        bail!(
            "they did other work, and differ in: {}; say --anyway to compare them all the same",
            reasons.join(", ")
        );
    }
    // The grave differences come first.
    remarks.splice(0..0, reasons);
    Ok(remarks)
}

fn is_known(of: &MeasuredChange) -> bool {
    of.rate.is_some() || of.per_joule.is_some()
}

fn read_runs_of(dir: &Path) -> Result<Vec<CellRun>> {
    let runs = crate::matrix::read_runs(&dir.join("runs.jsonl"))?;
    if runs.is_empty() {
        bail!("{} has no runs of a matrix", dir.display())
    } else {
        Ok(runs)
    }
}

/// Gives the field of a run that names its part: its file system or its scheduler.
type PartName = fn(&mut CellRun) -> &mut String;

/// Returns the runs of a part. The name of the part is cleared in them, so that the same cells of
/// two parts meet.
fn runs_of_part(runs: &[CellRun], axis: PartName, name: &str) -> Vec<CellRun> {
    let mut found = Vec::new();
    for run in runs {
        let mut run = run.clone();
        let part = axis(&mut run);
        if part == name {
            part.clear();
            found.push(run);
        }
    }
    found
}

/// Compares parts of one result with another part of it: cells that differ only in the name of the
/// part are the same cell.
fn compare_within(args: &CompareArgs) -> Result<ExitCode> {
    let runs = read_runs_of(&args.before)?;
    let (axis, of): (PartName, _) = match (&args.system, &args.scheduler) {
        (Some(name), _) => (|run| &mut run.system, name),
        (_, name) => (
            |run| &mut run.scheduler,
            name.as_ref().context("say --system or --scheduler")?,
        ),
    };
    let names = part_names(&runs, axis);
    if !names.contains(of) {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        bail!(
            "{} has no {of}; it has {}",
            args.before.display(),
            names.join(", ")
        );
    }
    let changes = compare_parts(&runs, axis, of, &names);
    if !changes.iter().any(is_known) {
        bail!(
            "{} has nothing that shares two blocks with {of}: nothing can be told",
            args.before.display()
        );
    }
    if args.json {
        let list: Vec<Value> = changes.iter().map(change_json).collect();
        let all = json!({ "version": 1, "by": of, "parts": list });
        say!("{}", serde_json::to_string_pretty(&all)?);
    } else {
        say!("by {of}, means over all that has both; a sample is a block");
        for change in &changes {
            say!("{}", change_line(change));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the names of all parts, sorted.
fn part_names(runs: &[CellRun], axis: PartName) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for run in runs {
        names.insert(std::mem::take(axis(&mut run.clone())));
    }
    names
}

/// Compares each other part by this one.
fn compare_parts(
    runs: &[CellRun],
    axis: PartName,
    of: &str,
    names: &BTreeSet<String>,
) -> Vec<MeasuredChange> {
    let base = runs_of_part(runs, axis, of);
    debug_assert!(!base.is_empty(), "the part is among the names");
    let mut changes = Vec::new();
    for name in names {
        if name == of {
            continue;
        }
        let other = runs_of_part(runs, axis, name);
        for mut change in compare_results(&base, &other).workloads {
            change.names.push(name.clone());
            changes.push(change);
        }
    }
    changes.sort_by(|a, b| a.names.cmp(&b.names));
    changes
}

fn verdict_word(of: &MeasuredChange) -> &'static str {
    match (of.is_worse(), of.is_better()) {
        (true, true) => "better and worse",
        (true, false) => "worse",
        (false, true) => "better",
        (false, false) if !is_known(of) => "cannot be compared, fewer than two blocks are shared",
        (false, false) => "no difference that can be told",
    }
}

fn change_line(of: &MeasuredChange) -> String {
    let goal = |of: Option<PairedComparison>| {
        of.map_or("not known".to_owned(), |of| {
            let p = of.p.map_or(String::new(), |p| format!(", p = {p:.3}"));
            format!(
                "{:.3} ({:.3} to {:.3}, {} blocks{p})",
                of.middle, of.low, of.high, of.n
            )
        })
    };
    format!(
        "{}: {}; ops/s {}, ops/J {}",
        of.names.join(", "),
        verdict_word(of),
        goal(of.rate),
        goal(of.per_joule)
    )
}

fn change_json(of: &MeasuredChange) -> Value {
    // An unknown goal is `null`.
    let goal = |of: Option<PairedComparison>| {
        of.map(|of| {
            json!({
                "ratio": of.ratio,
                "low": of.low,
                "high": of.high,
                "hodges_lehmann": of.middle,
                "wilcoxon_p": of.p,
                "blocks": of.n,
            })
        })
    };
    json!({
        "names": of.names,
        "verdict": verdict_word(of),
        "ops_per_second": goal(of.rate),
        "ops_per_joule": goal(of.per_joule),
    })
}

/// Compares two files of `teal lab run --json`. Each is a single run, so there is a ratio, and
/// noise cannot be told.
fn compare_outputs(args: &CompareArgs, other_file: &Path) -> Result<ExitCode> {
    // Each file is read completely before anything is compared.
    let [before, after] = [args.before.as_path(), other_file].map(read_output);
    let ((name, before, one), (other, after, two)) = (before?, after?);
    if name != other {
        bail!(
            "{} is of workload {name}, {} of {other}",
            args.before.display(),
            other_file.display()
        );
    }
    let differ = allowed_differences(args, output_differences(&one, &two))?;
    let ratio = after / before;
    if args.json {
        let all = json!({
            "version": 1,
            "workload": name,
            "ratio": ratio,
            "worse": Value::Null,
            "differ": differ,
        });
        say!("{}", serde_json::to_string_pretty(&all)?);
    } else {
        if !differ.is_empty() {
            say!("they differ in: {}", differ.join(", "));
        }
        say!(
            "{name}: {before:.1} and {after:.1} operations a second, {ratio:.3} times as many; \
             one run each: whether that is noise cannot be told"
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the differences of two outputs. A key that only one of them has is ignored.
fn output_differences(one: &Value, two: &Value) -> MatrixDifferences {
    let mut all = MatrixDifferences::default();
    let differ = |key: &str| !one[key].is_null() && !two[key].is_null() && one[key] != two[key];
    let both = |key: &str| format!("{key} {} and {}", one[key], two[key]);
    all.remarks
        .extend(["seed"].into_iter().filter(|key| differ(key)).map(both));
    all.reasons.extend(
        ["scale", "set", "threads", "strict_filebench"]
            .into_iter()
            .filter(|key| differ(key))
            .map(both),
    );
    if differ("filesets") {
        all.reasons.push("file sets".to_owned());
    }
    // An interrupted run did less work.
    let is_cut = |of: &Value| of["interrupted"] == true;
    match (is_cut(one), is_cut(two)) {
        (false, false) if differ("ended") => all.remarks.push(both("ended")),
        (false, false) => {}
        (true, false) => all.reasons.push("the first was interrupted".to_owned()),
        (false, true) => all.reasons.push("the second was interrupted".to_owned()),
        (true, true) => all.reasons.push("both were interrupted".to_owned()),
    }
    all
}

fn read_output(file: &Path) -> Result<(String, f64, Value)> {
    let name = file.display();
    let text = std::fs::read_to_string(file).with_context(|| name.to_string())?;
    let value: Value = serde_json::from_str(&text).with_context(|| name.to_string())?;
    let figures = value["workload"]
        .as_str()
        .zip(value["summary"]["per_second"].as_f64());
    let (workload, rate) =
        figures.with_context(|| format!("{name} is not what `teal lab run --json` writes"))?;
    let workload = workload.to_owned();
    Ok((workload, rate, value))
}
