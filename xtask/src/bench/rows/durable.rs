//! Small changes that must last: each waits for the disk.

use super::noise;
use crate::bench::stage::{Stage, Work};
use anyhow::{Result, anyhow};
use rustix::fs::{Mode, OFlags};
use std::path::Path;

pub(super) const THREADS: &str = "create + fsync, 16 threads";
pub(super) const OVERWRITE: &str = "random 4 KiB overwrite + fdatasync";
pub(super) const APPEND: &str = "append 200 bytes + fsync";

const WRITERS: u64 = 16;
const EACH: u64 = 50;
const LARGE: usize = 64 << 20;
const WRITES: u64 = 300;

pub(super) fn threads(stage: &mut Stage<'_>) -> Result<()> {
    let path = stage.fresh("mail")?;
    let work = Work {
        ops: WRITERS * EACH,
        user_bytes: WRITERS * EACH * 4096,
    };
    stage.time(THREADS, work, || {
        std::thread::scope(|scope| {
            let path = &path;
            let started = (0..WRITERS).map(|writer| {
                let named = std::thread::Builder::new().name(format!("writer-{writer}"));
                named.spawn_scoped(scope, move || deliver(path, writer))
            });
            let started = started.collect::<Result<Vec<_>, _>>()?;
            started
                .into_iter()
                .try_for_each(|one| one.join().map_err(|_| anyhow!("a writer panicked"))?)
        })
    })?;
    stage.discard(&path)
}

fn deliver(path: &Path, writer: u64) -> Result<()> {
    let data = noise(4096, writer);
    for message in 0..EACH {
        let how = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let name = path.join(format!("{writer}-{message}"));
        let file = rustix::fs::open(name, how, Mode::from_raw_mode(0o644))?;
        rustix::io::write(&file, &data)?;
        rustix::fs::fsync(&file)?;
    }
    Ok(())
}

pub(super) fn small_writes(stage: &mut Stage<'_>) -> Result<()> {
    let path = stage
        .fixture("database", |path| {
            Ok(std::fs::write(path.join("file"), noise(LARGE, 7))?)
        })?
        .join("file");
    let data = noise(4096, 8);
    let file = rustix::fs::open(&path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    stage.time(
        OVERWRITE,
        Work {
            ops: WRITES,
            user_bytes: WRITES * 4096,
        },
        || {
            for i in 0..WRITES {
                let page = i * 7919 % (LARGE / 4096) as u64;
                rustix::io::pwrite(&file, &data, page * 4096)?;
                rustix::fs::fdatasync(&file)?;
            }
            Ok(())
        },
    )?;
    let dir = stage.fresh("journal")?;
    let how = OFlags::CREATE | OFlags::WRONLY | OFlags::APPEND | OFlags::CLOEXEC;
    let log = rustix::fs::open(dir.join("log"), how, Mode::from_raw_mode(0o644))?;
    stage.time(
        APPEND,
        Work {
            ops: WRITES,
            user_bytes: WRITES * 200,
        },
        || {
            for _ in 0..WRITES {
                rustix::io::write(&log, &data[..200])?;
                rustix::fs::fsync(&log)?;
            }
            Ok(())
        },
    )?;
    drop((file, log));
    stage.discard(&dir)
}
