//! Much at once: a source tree unpacked, a large file written and read.

use super::noise;
use crate::bench::lab::run;
use crate::bench::stage::{Stage, Work};
use anyhow::{Result, ensure};
use rustix::fs::{Mode, OFlags};
use std::process::Command;

pub(super) const TAR: &str = "untar .tar + sync";
pub(super) const XZ: &str = "untar .tar.xz + sync";
pub(super) const WRITE: &str = "sequential write + fsync, 256 MiB";
pub(super) const READ_COLD: &str = "sequential read, cold, 256 MiB";

const LARGE: usize = 256 << 20;
const PIECE: usize = 1 << 20;

pub(super) fn tar(stage: &mut Stage<'_>) -> Result<()> {
    unpack(stage, TAR, "tar")
}

pub(super) fn xz(stage: &mut Stage<'_>) -> Result<()> {
    unpack(stage, XZ, "tar.xz")
}

fn unpack(stage: &mut Stage<'_>, row: &'static str, extension: &str) -> Result<()> {
    let (archive, path) = (stage.archive(extension), stage.fresh("unpacked")?);
    let user_bytes = std::fs::metadata(stage.archive("tar"))?.len();
    // The archive comes from memory in every round.
    std::io::copy(
        &mut std::fs::OpenOptions::new().read(true).open(&archive)?,
        &mut std::io::sink(),
    )?;
    stage.time_durable(row, Work { ops: 1, user_bytes }, || {
        run(Command::new("tar")
            .arg("-xf")
            .arg(&archive)
            .arg("-C")
            .arg(&path))
        .map(drop)
    })?;
    stage.discard(&path)
}

pub(super) fn stream(stage: &mut Stage<'_>) -> Result<()> {
    let path = stage.fresh("stream")?;
    let file = path.join("file");
    let data = noise(PIECE, 6);
    let pieces = LARGE / PIECE;
    let work = Work {
        ops: pieces as u64,
        user_bytes: LARGE as u64,
    };
    stage.time(WRITE, work, || {
        let how = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let open = rustix::fs::open(&file, how, Mode::from_raw_mode(0o644))?;
        for _ in 0..pieces {
            ensure!(rustix::io::write(&open, &data)? == PIECE, "a short write");
        }
        Ok(rustix::fs::fsync(&open)?)
    })?;
    stage.chill()?;
    let mut buffer = vec![0; PIECE];
    stage.time(
        READ_COLD,
        Work {
            user_bytes: 0,
            ..work
        },
        || {
            let open = rustix::fs::open(&file, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
            for _ in 0..pieces {
                ensure!(
                    rustix::io::read(&open, &mut buffer[..])? == PIECE,
                    "a short read"
                );
            }
            Ok(())
        },
    )?;
    stage.discard(&path)
}
