//! Ageing: before a run's files are made, its file system is filled and thinned out again, so that free space is in pieces.
//!
//! # Guarantees
//! 1. What is done depends on the percentage and the block's seed alone: it is the same for all cells of a block. How many files fit is the file system's own affair.
//! 2. Its files lie in a directory of their own, which no workload knows.

use super::Bench;
use super::ground::{Ground, Mounted, size_of};
use crate::status::human;
use anyhow::{Context, Result, bail};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use teal_study::matrix::{Cache, System};
use teal_study::phases::{Ground as Phases, Phase, PhaseError, ageing, carry_out};
use teal_study::workload::{plan, preview};

/// Bytes a second at which the slowest of ext4, xfs and teal was filled and thinned on a modelled disk of 1 GiB (two processors, shared). It is for a forecast only.
const RATE: f64 = 60.0 * (1 << 20) as f64;
/// Where its files lie, below the mount.
const DIR: &str = "aged";

/// A file system that is aged.
struct Ageing<'a> {
    ended: &'a AtomicBool,
    ground: &'a Ground,
    system: &'a System,
    dir: &'a Path,
    mounted: Option<Mounted>,
}

fn failed<T>(done: Result<T>) -> Result<T, PhaseError> {
    done.map_err(|e| PhaseError::Ground(format!("{e:#}")))
}

impl Phases for Ageing<'_> {
    fn mount(&mut self) -> Result<PathBuf, PhaseError> {
        self.mounted = Some(failed(self.ground.mount(
            self.system,
            self.dir,
            Cache::Cold,
        ))?);
        let dir = self.dir.join(DIR);
        failed(std::fs::create_dir_all(&dir).with_context(|| dir.display().to_string()))?;
        Ok(dir)
    }

    fn unmount(&mut self) -> Result<(), PhaseError> {
        self.mounted
            .take()
            .map_or(Ok(()), |mounted| failed(mounted.end()))
    }

    fn begin(&mut self, _: &Phase) -> Result<(), PhaseError> {
        Ok(())
    }

    fn ran(&mut self, _: &Phase) -> Result<(), PhaseError> {
        Ok(())
    }

    fn drained(&mut self, _: &Phase, _: u64) -> Result<(), PhaseError> {
        Ok(())
    }

    fn forget(&self, _: &File) -> Result<(), PhaseError> {
        Ok(())
    }

    fn next_tick(&self) {}

    fn is_over(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }
}

/// Ages a file system that has just been made to so many percent, if that is wanted; `false` if that was interrupted.
pub(super) fn age(
    percent: Option<u64>,
    seed: u64,
    ground: &Ground,
    system: &System,
    dir: &Path,
    ended: &AtomicBool,
) -> Result<bool> {
    let Some(percent) = percent else {
        return Ok(true);
    };
    let mut stage = Ageing {
        ended,
        ground,
        system,
        dir,
        mounted: None,
    };
    match carry_out(
        &ageing(percent, seed),
        teal_study::phases::Mode::C,
        &mut stage,
    ) {
        Err(PhaseError::Interrupted) => Ok(false),
        done => done.context("ageing").map(|()| true),
    }
}

/// Bytes of the device that a matrix runs on.
pub(super) fn bytes(bench: &Bench) -> Result<u64> {
    let device = &bench.matrix.device;
    match (&device.path, device.size) {
        (Some(path), _) => size_of(Path::new(path)),
        (None, size) => size.context("checked when the matrix was read"),
    }
}

/// What ageing adds to so many runs.
pub(super) fn described(bench: &Bench, runs: [u64; 2]) -> Result<Option<String>> {
    let Some(percent) = bench.matrix.runs.aged else {
        return Ok(None);
    };
    let all = bytes(bench)?;
    let [least, most] = runs.map(|runs| (runs * all) as f64 / RATE / 3600.0);
    Ok(Some(format!(
        "aged to {percent} %: each of {} to {} runs first writes {} in files of 4 to 60 KiB and removes {} % of them; {least:.1} to {most:.1} hours on top at {:.0} MiB/s",
        runs[0],
        runs[1],
        human(all),
        100 - percent,
        RATE / f64::from(1 << 20)
    )))
}

/// Whether every workload's files fit beside what ageing leaves; a tenth is the file system's own.
pub(super) fn check_room(bench: &Bench) -> Result<()> {
    let (all, aged) = (bytes(bench)?, bench.matrix.runs.aged);
    let room = all / 1000 * 9 * (100 - aged.unwrap_or(0));
    for (at, workload) in bench.matrix.workloads.iter().enumerate() {
        let sets = preview(&plan(
            &bench.scripts[at],
            bench.options(at, 0, Path::new("/"))?,
        )?);
        let need: u64 = sets.iter().map(|set| set.bytes).sum();
        if need <= room {
            continue;
        }
        let (need, all) = (human(need), human(all));
        match aged {
            Some(aged) => bail!(
                "workload {}: {need} of files do not fit on {all} aged to {aged} %: say a smaller runs.aged or runs.scale, or a larger device",
                workload.name
            ),
            None => bail!(
                "workload {} does not fit: {need} of files on {all}; say a smaller runs.scale, or a larger device.size",
                workload.name
            ),
        }
    }
    Ok(())
}
