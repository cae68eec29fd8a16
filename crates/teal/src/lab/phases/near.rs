//! A cell on this machine's kernel.

use super::super::disk::report::Sums;
use super::super::matrix::ground::Ground;
use super::Bench;
use super::far::Task;
use super::stage::{Count, Machine, Stage};
use super::tally::measured;
use anyhow::{Context, Result};
use teal_study::phases::{Measured, Phase};

/// Asks the modelled disk's process.
#[derive(Default)]
struct Asked {
    ran: Sums,
    done: Vec<Measured>,
}

fn sums(ground: &Ground) -> Result<Sums> {
    serde_json::from_value(ground.since_mark()?).context("the disk's answer cannot be understood")
}

impl Count for Asked {
    fn begin(&mut self, ground: &Ground, _: &Phase) -> Result<()> {
        ground.mark().map(drop)
    }
    fn ran(&mut self, ground: &Ground, _: &Phase) -> Result<()> {
        self.ran = sums(ground)?;
        Ok(())
    }
    fn drained(&mut self, ground: &Ground, phase: &Phase, operations: u64) -> Result<()> {
        self.done
            .push(measured(phase, operations, &self.ran, sums(ground)?));
        Ok(())
    }
}

/// Measures a cell.
pub(super) fn run(bench: &Bench, of: &Task) -> Result<Vec<Measured>> {
    let ground = Ground::modelled(&bench.profile, bench.size)?;
    let dir = bench.results.join("mount");
    let mut stage = Stage::new(
        of,
        ground,
        &dir,
        Machine::Shared,
        Asked::default(),
        &bench.ended,
    )?;
    stage.perform(of)?;
    let _ = std::fs::remove_dir(dir);
    Ok(std::mem::take(&mut stage.count.done))
}
