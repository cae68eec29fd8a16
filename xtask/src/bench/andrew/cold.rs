//! Machines that join when the tree is there, and have nothing of it.

use super::super::meter::now;
use super::build::{self, Phase, Read};
use super::pair::{Counts, Pair};
use anyhow::{Result, ensure};
use std::path::Path;

/// What a cold machine builds: the tree is unpacked there already.
const PHASES: [Phase; 3] = [Phase::Configure, Phase::Make, Phase::Clean];

/// Everything is read once.
#[derive(Debug)]
pub(super) struct Look {
    /// Until the volume was mounted.
    pub(super) joined: f64,
    pub(super) read: Read,
    pub(super) seconds: f64,
    pub(super) counts: Counts,
}

/// Everything is built.
#[derive(Debug)]
pub(super) struct Build {
    pub(super) seconds: f64,
    pub(super) counts: Counts,
}

/// One machine that reads all of it, one that builds it.
#[derive(Debug)]
pub(super) struct Cold {
    /// A round trip, in milliseconds.
    pub(super) delay: u64,
    pub(super) look: Look,
    pub(super) build: Build,
}

/// The tree is unpacked on the serving machine.
pub(super) fn measure(
    pair: &Pair,
    delay: u64,
    archive: &Path,
    said: &Path,
    jobs: usize,
) -> Result<Cold> {
    let run = |phase: Phase, dir: &Path| -> Result<()> {
        ensure!(
            phase.run(archive, dir, said, jobs, build::UNLIMITED)?,
            "{} took a day",
            phase.name()
        );
        Ok(())
    };
    let tree = pair.nas.point().join("work");
    std::fs::create_dir(&tree)?;
    run(Phase::Untar, &tree)?;
    pair.nas.flush()?;

    let begun = now();
    let reader = pair.another("reader")?;
    let joined = now() - begun;
    // Counted from the making of this daemon on: all it has ever asked for the names is in it.
    let begun = now();
    let read = build::read_all(reader.point(), f64::INFINITY)?;
    let look = Look {
        joined,
        read,
        seconds: now() - begun,
        counts: reader.counts()?,
    };
    reader.down()?;
    eprintln!("  reading    {:7.1} s", look.seconds);

    let builder = pair.another("builder")?;
    let begun = now();
    for phase in PHASES {
        run(phase, &builder.point().join("work"))?;
    }
    let build = Build {
        seconds: now() - begun,
        counts: builder.counts()?,
    };
    builder.down()?;
    eprintln!("  building   {:7.1} s", build.seconds);
    Ok(Cold { delay, look, build })
}
