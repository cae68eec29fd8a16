//! Rows that the kernel can answer from its caches, without any request.

use super::random_bytes::random_bytes;
use crate::bench::stage::{RowStage, RowWork, ops_only};
use anyhow::{Result, ensure};
use rustix::fs::{AtFlags, Mode, OFlags};
use std::ffi::CString;
use std::path::Path;

pub(super) const STAT: &str = "stat, warm";
pub(super) const NEGATIVE: &str = "negative lookup, warm";
pub(super) const OPEN: &str = "open + read 4 KiB + close, cached";
pub(super) const READ: &str = "read 4 KiB of an open file, cached";
pub(super) const SEQUENTIAL: &str = "sequential read, cached";

const FILES: usize = 1000;
const PASSES: usize = 100;
const LARGE: usize = 64 << 20;
const PIECE: usize = 128 << 10;

fn name_list(prefix: &str) -> Result<Vec<CString>> {
    (0..FILES)
        .map(|i| Ok(CString::new(format!("{prefix}{i:04}"))?))
        .collect()
}

pub(super) fn small_files(stage: &mut RowStage<'_>) -> Result<()> {
    let path = stage.kept_dir("small", |path| {
        let data = random_bytes(4096, 1);
        (0..FILES).try_for_each(|i| Ok(std::fs::write(path.join(format!("f{i:04}")), &data)?))
    })?;
    let dir = rustix::fs::open(
        &path,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let (present, absent) = (name_list("f")?, name_list("absent")?);
    let stat = || {
        present
            .iter()
            .try_for_each(|name| rustix::fs::statat(&dir, name, AtFlags::empty()).map(drop))
    };
    // The first pass fills the kernel's caches.
    stat()?;
    let all = (FILES * PASSES) as u64;
    stage.time_work(STAT, ops_only(all), || {
        Ok((0..PASSES).try_for_each(|_| stat())?)
    })?;

    let miss = || {
        absent
            .iter()
            .all(|name| rustix::fs::statat(&dir, name, AtFlags::empty()).is_err())
    };
    // Negative entries are cached by the first pass.
    miss();
    stage.time_work(NEGATIVE, ops_only(all), || {
        ensure!((0..PASSES).all(|_| miss()), "an absent name is there");
        Ok(())
    })?;

    let mut buffer = vec![0; 4096];
    let mut read = || {
        present.iter().try_for_each(|name| {
            let file =
                rustix::fs::openat(&dir, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
            rustix::io::read(&file, &mut buffer[..]).map(drop)
        })
    };
    read()?;
    stage.time_work(OPEN, ops_only(all / 2), || {
        Ok((0..PASSES / 2).try_for_each(|_| read())?)
    })
}

fn make_large(path: &Path) -> Result<()> {
    Ok(std::fs::write(path.join("file"), random_bytes(LARGE, 2))?)
}

pub(super) fn one_file(stage: &mut RowStage<'_>) -> Result<()> {
    let path = stage.kept_dir("large", make_large)?.join("file");
    let file = rustix::fs::open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut buffer = vec![0; PIECE];
    let mut pass = |size: usize, step: u64| {
        (0..(LARGE / size) as u64).try_for_each(|i| {
            let at = i * step % (LARGE / size) as u64 * size as u64;
            rustix::io::pread(&file, &mut buffer[..size], at).map(drop)
        })
    };
    pass(PIECE, 1)?;
    let pages = (LARGE / 4096) as u64;
    // 7919 is prime to the number of pages: every page once, in a scattered order.
    stage.time_work(READ, ops_only(pages * 8), || {
        Ok((0..8).try_for_each(|_| pass(4096, 7919))?)
    })?;
    let work = RowWork {
        ops: (LARGE / PIECE * 16) as u64,
        user_bytes: 0,
    };
    stage.time_work(SEQUENTIAL, work, || {
        Ok((0..16).try_for_each(|_| pass(PIECE, 1))?)
    })
}
