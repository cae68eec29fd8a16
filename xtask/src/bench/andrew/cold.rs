//! Machines that join when the tree is there, and have nothing of it.

use super::super::meter::monotonic_seconds;
use super::build::{self, BuildPhase, TreeRead};
use super::pair::{ServedPair, UpstreamCounts};
use anyhow::{Result, ensure};
use std::path::Path;

/// The phases on a cold machine: the tree is unpacked already.
const PHASES: [BuildPhase; 3] = [BuildPhase::Configure, BuildPhase::Make, BuildPhase::Clean];

/// The measurements of a machine that reads everything once.
#[derive(Debug)]
pub(super) struct ColdRead {
    /// The seconds until the volume was mounted.
    pub(super) joined: f64,
    pub(super) read: TreeRead,
    pub(super) seconds: f64,
    pub(super) counts: UpstreamCounts,
}

/// The measurements of a machine that builds everything.
#[derive(Debug)]
pub(super) struct ColdBuild {
    pub(super) seconds: f64,
    pub(super) counts: UpstreamCounts,
}

/// One machine that reads all of it, one that builds it.
#[derive(Debug)]
pub(super) struct ColdMachines {
    /// A round trip, in milliseconds.
    pub(super) delay: u64,
    pub(super) look: ColdRead,
    pub(super) build: ColdBuild,
}

/// Unpacks the tree on the serving machine, and measures two machines that join afterwards.
pub(super) fn measure_cold(
    pair: &ServedPair,
    delay: u64,
    archive: &Path,
    said: &Path,
    jobs: usize,
) -> Result<ColdMachines> {
    let run = |phase: BuildPhase, dir: &Path| -> Result<()> {
        ensure!(
            phase.run_phase(archive, dir, said, jobs, build::UNLIMITED)?,
            "{} took a day",
            phase.label()
        );
        Ok(())
    };
    let tree = pair.nas.mount_point().join("work");
    std::fs::create_dir(&tree)?;
    run(BuildPhase::Untar, &tree)?;
    pair.nas.flush()?;

    let begun = monotonic_seconds();
    let reader = pair.join_another("reader")?;
    let joined = monotonic_seconds() - begun;
    // The counters begin with this daemon, so that they include all requests for the names.
    let begun = monotonic_seconds();
    let read = build::read_all(reader.mount_point(), f64::INFINITY)?;
    let look = ColdRead {
        joined,
        read,
        seconds: monotonic_seconds() - begun,
        counts: reader.read_counts()?,
    };
    reader.unmount()?;
    eprintln!("  reading    {:7.1} s", look.seconds);

    let builder = pair.join_another("builder")?;
    let begun = monotonic_seconds();
    for phase in PHASES {
        run(phase, &builder.mount_point().join("work"))?;
    }
    let build = ColdBuild {
        seconds: monotonic_seconds() - begun,
        counts: builder.read_counts()?,
    };
    builder.unmount()?;
    eprintln!("  building   {:7.1} s", build.seconds);
    Ok(ColdMachines { delay, look, build })
}
