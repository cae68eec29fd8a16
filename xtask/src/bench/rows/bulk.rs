//! Much at once: a source tree unpacked, a large file written and read.

use super::random_bytes::random_bytes;
use crate::bench::programs::run_program;
use crate::bench::stage::{RowStage, RowWork};
use anyhow::{Result, ensure};
use rustix::fs::{Mode, OFlags};
use std::process::Command;

pub(super) const TAR: &str = "untar .tar + sync";
pub(super) const XZ: &str = "untar .tar.xz + sync";
pub(super) const WRITE: &str = "sequential write + fsync, 256 MiB";
pub(super) const READ_COLD: &str = "sequential read, cold, 256 MiB";

const LARGE: usize = 256 << 20;
const PIECE: usize = 1 << 20;

pub(super) fn unpack_tar(stage: &mut RowStage<'_>) -> Result<()> {
    time_unpacking(stage, TAR, "tar")
}

pub(super) fn unpack_xz(stage: &mut RowStage<'_>) -> Result<()> {
    time_unpacking(stage, XZ, "tar.xz")
}

fn time_unpacking(stage: &mut RowStage<'_>, row: &'static str, extension: &str) -> Result<()> {
    let (archive, path) = (stage.archive_path(extension), stage.new_dir("unpacked")?);
    let user_bytes = std::fs::metadata(stage.archive_path("tar"))?.len();
    // The archive comes from memory in every round.
    std::io::copy(
        &mut std::fs::OpenOptions::new().read(true).open(&archive)?,
        &mut std::io::sink(),
    )?;
    stage.time_durable(row, RowWork { ops: 1, user_bytes }, || {
        run_program(
            Command::new("tar")
                .arg("-xf")
                .arg(&archive)
                .arg("-C")
                .arg(&path),
        )
        .map(drop)
    })?;
    stage.remove_dir(&path)
}

pub(super) fn stream_file(stage: &mut RowStage<'_>) -> Result<()> {
    let path = stage.new_dir("stream")?;
    let file = path.join("file");
    let data = random_bytes(PIECE, 6);
    let pieces = LARGE / PIECE;
    let work = RowWork {
        ops: pieces as u64,
        user_bytes: LARGE as u64,
    };
    stage.time_work(WRITE, work, || {
        let how = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let open = rustix::fs::open(&file, how, Mode::from_raw_mode(0o644))?;
        for _ in 0..pieces {
            ensure!(rustix::io::write(&open, &data)? == PIECE, "a short write");
        }
        Ok(rustix::fs::fsync(&open)?)
    })?;
    // The read must come from the disk.
    stage.make_cold()?;
    let mut buffer = vec![0; PIECE];
    stage.time_work(
        READ_COLD,
        RowWork {
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
    stage.remove_dir(&path)
}
