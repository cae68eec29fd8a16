//! Rows that the kernel can answer from its caches, without any request.

use super::random_bytes::random_bytes;
use crate::bench::stage::{RowStage, RowWork, ops_only};
use anyhow::{Result, ensure};
use rustix::fs::{AtFlags, Mode, OFlags};
use std::ffi::CString;
use std::os::fd::OwnedFd;
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
        for i in 0..FILES {
            std::fs::write(path.join(format!("f{i:04}")), &data)?;
        }
        Ok(())
    })?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::open(&path, flags, Mode::empty())?;
    let (present, absent) = (name_list("f")?, name_list("absent")?);
    let all = (FILES * PASSES) as u64;

    // The first pass of each row fills the kernel's caches.
    stat_all(&dir, &present)?;
    stage.time_work(STAT, ops_only(all), || {
        for _ in 0..PASSES {
            stat_all(&dir, &present)?;
        }
        Ok(())
    })?;

    let is_absent = |name: &CString| rustix::fs::statat(&dir, name, AtFlags::empty()).is_err();
    ensure!(absent.iter().all(is_absent), "an absent name is there");
    stage.time_work(NEGATIVE, ops_only(all), || {
        for _ in 0..PASSES {
            ensure!(absent.iter().all(is_absent), "an absent name is there");
        }
        Ok(())
    })?;

    read_all(&dir, &present)?;
    stage.time_work(OPEN, ops_only(all / 2), || {
        for _ in 0..PASSES / 2 {
            read_all(&dir, &present)?;
        }
        Ok(())
    })
}

fn stat_all(dir: &OwnedFd, names: &[CString]) -> Result<()> {
    for name in names {
        rustix::fs::statat(dir, name, AtFlags::empty())?;
    }
    Ok(())
}

/// Opens, reads and closes each file.
fn read_all(dir: &OwnedFd, names: &[CString]) -> Result<()> {
    let mut buffer = [0; 4096];
    for name in names {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(dir, name, flags, Mode::empty())?;
        rustix::io::read(&file, &mut buffer[..])?;
    }
    Ok(())
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
