//! Small changes that must last: each waits for the disk.

use super::random_bytes::random_bytes;
use crate::bench::stage::{RowStage, RowWork};
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

pub(super) fn create_in_threads(stage: &mut RowStage<'_>) -> Result<()> {
    let path = stage.new_dir("mail")?;
    let work = RowWork {
        ops: WRITERS * EACH,
        user_bytes: WRITERS * EACH * 4096,
    };
    stage.time_work(THREADS, work, || {
        std::thread::scope(|scope| {
            let path = &path;
            let started = (0..WRITERS).map(|writer| {
                let named = std::thread::Builder::new().name(format!("writer-{writer}"));
                named.spawn_scoped(scope, move || write_messages(path, writer))
            });
            let started = started.collect::<Result<Vec<_>, _>>()?;
            started
                .into_iter()
                .try_for_each(|one| one.join().map_err(|_| anyhow!("a writer panicked"))?)
        })
    })?;
    stage.remove_dir(&path)
}

fn write_messages(path: &Path, writer: u64) -> Result<()> {
    let data = random_bytes(4096, writer);
    for message in 0..EACH {
        let how = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let name = path.join(format!("{writer}-{message}"));
        let file = rustix::fs::open(name, how, Mode::from_raw_mode(0o644))?;
        rustix::io::write(&file, &data)?;
        rustix::fs::fsync(&file)?;
    }
    Ok(())
}

pub(super) fn small_writes(stage: &mut RowStage<'_>) -> Result<()> {
    let path = stage
        .kept_dir("database", |path| {
            Ok(std::fs::write(path.join("file"), random_bytes(LARGE, 7))?)
        })?
        .join("file");
    let data = random_bytes(4096, 8);
    let file = rustix::fs::open(&path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    stage.time_work(
        OVERWRITE,
        RowWork {
            ops: WRITES,
            user_bytes: WRITES * 4096,
        },
        || {
            for i in 0..WRITES {
                // 7919 is prime to the number of pages: the writes are scattered, and alike in
                // every run.
                let page = i * 7919 % (LARGE / 4096) as u64;
                rustix::io::pwrite(&file, &data, page * 4096)?;
                rustix::fs::fdatasync(&file)?;
            }
            Ok(())
        },
    )?;
    let dir = stage.new_dir("journal")?;
    let how = OFlags::CREATE | OFlags::WRONLY | OFlags::APPEND | OFlags::CLOEXEC;
    let log = rustix::fs::open(dir.join("log"), how, Mode::from_raw_mode(0o644))?;
    stage.time_work(
        APPEND,
        RowWork {
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
    stage.remove_dir(&dir)
}
