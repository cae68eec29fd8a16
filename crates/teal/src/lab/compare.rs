//! `teal lab compare`: what has changed between two results, and whether that is more than noise.
//!
//! Status: 0, nothing is worse; 3, a workload is worse, with 95 %; 1, it could not be compared.

use crate::cli::lab::Compare as Args;
use crate::say::say;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::path::Path;
use std::process::ExitCode;
use teal_lab::matrix::{Change, changes};
use teal_lab::statistics::Comparison;

/// The status when something is worse.
const WORSE: u8 = 3;

/// Runs the command.
pub(crate) fn compare(args: &Args) -> Result<ExitCode> {
    if args.before.is_file() && args.after.is_file() {
        return outputs(args);
    }
    let [before, after] = [&args.before, &args.after].map(|dir| {
        let runs = super::matrix::read_runs(&dir.join("runs.jsonl"))?;
        if runs.is_empty() { bail!("{} has no runs of a matrix", dir.display()) } else { Ok(runs) }
    });
    let changes = changes(&before?, &after?);
    if changes.cells.is_empty() {
        bail!("{} and {} have no cell in common", args.before.display(), args.after.display());
    }
    let is_worse = changes.workloads.iter().any(Change::is_worse);
    if args.json {
        let list = |of: &[Change]| of.iter().map(object).collect::<Vec<_>>();
        let all = json!({ "version": 1, "workloads": list(&changes.workloads), "cells": list(&changes.cells), "alone": changes.alone, "worse": is_worse });
        say!("{}", serde_json::to_string_pretty(&all)?);
    } else {
        changes.workloads.iter().for_each(|change| say!("{}", line(change)));
        let told: Vec<&Change> =
            changes.cells.iter().filter(|change| change.is_worse() || change.is_better()).collect();
        let all = changes.cells.len();
        say!(
            "{} of {all} cells differ; of {all} that are alike, some {:.0} would look so",
            told.len(),
            all as f64 * 0.05
        );
        told.into_iter().for_each(|change| say!("  {}", line(change)));
        for [workload, system, scheduler] in &changes.alone {
            say!("only in one of them: {workload}, {system}, {scheduler}");
        }
    }
    Ok(if is_worse { ExitCode::from(WORSE) } else { ExitCode::SUCCESS })
}

fn word(of: &Change) -> &'static str {
    match (of.is_worse(), of.is_better()) {
        (true, true) => "better and worse",
        (true, false) => "worse",
        (false, true) => "better",
        (false, false) => "no difference that can be told",
    }
}

fn line(of: &Change) -> String {
    let goal = |of: Option<Comparison>| {
        of.map_or("not known".to_owned(), |of| {
            let p = of.p.map_or(String::new(), |p| format!(", p = {p:.3}"));
            format!("{:.3} ({:.3} to {:.3}, {} blocks{p})", of.middle, of.low, of.high, of.n)
        })
    };
    format!("{}: {}; ops/s {}, ops/J {}", of.names.join(", "), word(of), goal(of.rate), goal(of.per_joule))
}

fn object(of: &Change) -> Value {
    let goal = |of: Option<Comparison>| {
        of.map(|of| json!({ "ratio": of.ratio, "low": of.low, "high": of.high, "hodges_lehmann": of.middle, "wilcoxon_p": of.p, "blocks": of.n }))
    };
    json!({ "names": of.names, "verdict": word(of), "ops_per_second": goal(of.rate), "ops_per_joule": goal(of.per_joule) })
}

/// Two files of `teal lab run --json`: a run each, so there is a ratio and nothing that could be said of noise.
fn outputs(args: &Args) -> Result<ExitCode> {
    let [before, after] = [&args.before, &args.after].map(|file| read(file));
    let ((name, before), (other, after)) = (before?, after?);
    if name != other {
        bail!("{} is of workload {name}, {} of {other}", args.before.display(), args.after.display());
    }
    let ratio = after / before;
    if args.json {
        let all = json!({ "version": 1, "workload": name, "ratio": ratio, "worse": Value::Null });
        say!("{}", serde_json::to_string_pretty(&all)?);
    } else {
        say!(
            "{name}: {before:.1} and {after:.1} operations a second, {ratio:.3} times as many; one run each: whether that is noise cannot be told"
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn read(file: &Path) -> Result<(String, f64)> {
    let name = file.display();
    let text = std::fs::read_to_string(file).with_context(|| name.to_string())?;
    let value: Value = serde_json::from_str(&text).with_context(|| name.to_string())?;
    let figures = value["workload"].as_str().zip(value["summary"]["per_second"].as_f64());
    let (workload, rate) = figures.with_context(|| format!("{name} is not what `teal lab run --json` writes"))?;
    Ok((workload.to_owned(), rate))
}
