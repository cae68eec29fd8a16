//! Computes the cost of ageing, and checks that workloads fit beside the files that ageing leaves.

use super::bench::MatrixBench;
use anyhow::{Context, Result, bail};
use std::path::Path;
use teal_command::size::human_size;
use teal_rig::testbed::device_size;
use teal_study::workload::{plan_script, preview_filesets};

/// Bytes a second at which the slowest of ext4, xfs and teal was filled and thinned on a modelled
/// disk of 1 GiB (two processors, shared). The figure is for a forecast only.
const RATE: f64 = 60.0 * (1 << 20) as f64;

/// Returns the bytes of the device that a matrix runs on.
pub(super) fn device_bytes(bench: &MatrixBench) -> Result<u64> {
    let device = &bench.matrix.device;
    match (&device.path, device.size) {
        (Some(path), _) => device_size(Path::new(path)),
        (None, size) => size.context("checked when the matrix was read"),
    }
}

/// Describes the cost of ageing for a range of runs.
pub(super) fn describe_ageing(bench: &MatrixBench, runs: [u64; 2]) -> Result<Option<String>> {
    let Some(percent) = bench.matrix.runs.aged else {
        return Ok(None);
    };
    // Ageing writes the whole device once before each run.
    let all = device_bytes(bench)?;
    let [least, most] = runs.map(|runs| (runs * all) as f64 / RATE / 3600.0);
    debug_assert!(least <= most, "the range of runs is in order");
    Ok(Some(format!(
        "aged to {percent} %: each of {} to {} runs first writes {} in files of 4 to 60 KiB and \
         removes {} % of them; {least:.1} to {most:.1} hours on top at {:.0} MiB/s",
        runs[0],
        runs[1],
        human_size(all),
        100 - percent,
        RATE / f64::from(1 << 20)
    )))
}

/// Checks that every workload's files fit beside the files that ageing leaves; a tenth of the
/// device belongs to the file system.
pub(super) fn check_room(bench: &MatrixBench) -> Result<()> {
    debug_assert!(
        bench.matrix.runs.aged.unwrap_or(0) <= 100,
        "the matrix was checked when it was read"
    );
    let (all, aged) = (device_bytes(bench)?, bench.matrix.runs.aged);
    // A tenth is the file system's own; of the rest, ageing leaves its percentage full.
    let room = all / 1000 * 9 * (100 - aged.unwrap_or(0));
    for (at, workload) in bench.matrix.workloads.iter().enumerate() {
        let sets = preview_filesets(&plan_script(
            &bench.scripts[at],
            bench.run_options(at, 0, Path::new("/"))?,
        )?);
        // All files may exist at the same time.
        let need: u64 = sets.iter().map(|set| set.bytes).sum();
        if need <= room {
            continue;
        }
        let (need, all) = (human_size(need), human_size(all));
        // The message names the settings that would help.
        match aged {
            Some(aged) => bail!(
                "workload {}: {need} of files do not fit on {all} aged to {aged} %: say a smaller \
                 runs.aged or runs.scale, or a larger device",
                workload.name
            ),
            None => bail!(
                "workload {} does not fit: {need} of files on {all}; say a smaller runs.scale, or \
                 a larger device.size",
                workload.name
            ),
        }
    }
    Ok(())
}
