//! A cell in a guest: what goes in, what is done there, what comes out.

use super::super::guest::{self, Job, Line};
use super::super::matrix::ground::Ground;
use super::stage::{Count, Machine, Stage};
use super::tally::measured;
use super::{Bench, group};
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use teal_study::matrix::Kind;
use teal_study::phases::{Measured, Mode, Phase};

/// A group of phases on a file system.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::lab) struct Task {
    pub(in crate::lab) kind: Kind,
    pub(super) group: String,
    pub(super) mode: Mode,
    pub(super) scale: f64,
}

/// Tells the host, and keeps how many operations each phase that counts had.
struct Told<'a> {
    line: &'a mut Line,
    operations: Vec<u64>,
}

impl Count for Told<'_> {
    fn begin(&mut self, _: &Ground, _: &Phase) -> Result<()> {
        self.line.begin()
    }
    fn ran(&mut self, _: &Ground, _: &Phase) -> Result<()> {
        self.line.ran()
    }
    fn drained(&mut self, _: &Ground, _: &Phase, operations: u64) -> Result<()> {
        self.operations.push(operations);
        self.line.drained()
    }
}

/// In the guest: carries the phases out, and gives the operations of each.
pub(in crate::lab) fn inside(of: &Task, ground: Ground, line: &mut Line) -> Result<Vec<u64>> {
    let over = AtomicBool::new(false);
    let count = Told {
        line,
        operations: Vec::new(),
    };
    let mut stage = Stage::new(
        of,
        ground,
        Path::new(guest::DIR),
        Machine::Own,
        count,
        &over,
    )?;
    stage.perform(of)?;
    Ok(std::mem::take(&mut stage.count.operations))
}

/// Measures a cell; gives the guest's kernel, and what came of the phases.
pub(super) fn run(bench: &Bench, of: &Task) -> Result<(String, Vec<Measured>)> {
    let task = guest::Task::Phases(of.clone());
    let job = Job {
        profile: bench.profile.clone(),
        size: bench.size,
        memory: 0,
        busy: 0,
        task,
    };
    let Some(outcome) = guest::run(&job, &bench.ended)? else {
        bail!("interrupted")
    };
    let operations: Vec<u64> =
        serde_json::from_value(outcome.answer).context("the guest's answer")?;
    let phases = group(&of.group)?.phases(of.scale);
    let phases: Vec<&Phase> = phases.iter().filter(|phase| phase.counts).collect();
    if phases.len() != operations.len() || phases.len() != outcome.counted.len() {
        bail!(
            "the guest carried out {} phases of {}",
            outcome.counted.len(),
            phases.len()
        );
    }
    let parts = phases.into_iter().zip(operations).zip(outcome.counted);
    Ok((
        outcome.kernel,
        parts
            .map(|((phase, many), of)| measured(phase, many, &of.ran, of.all))
            .collect(),
    ))
}
