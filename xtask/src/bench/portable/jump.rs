//! The number of accesses after which another source is chosen when the way to the server becomes
//! long.
//!
//! # How
//! 1. Content is on the server and on a slow drive, a Microdrive that is modelled in real time. The
//!    server is near, and so it is asked.
//! 2. Then the line's delay jumps. Files are read one after the other, in an order that nothing
//!    comes ahead for, and the requests for content that the machine sends are counted until the
//!    drive serves.

use super::super::andrew::pair::{BenchReplica, ServedLine};
use super::super::emulator::ModelledDisk;
use super::environment::{PortableBench, path_text};
use super::first::{open_file, reads_of};
use super::session;
use anyhow::{Context as _, Result, ensure};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// Round trips before and after, in milliseconds; the line is as wide all the time, in Mbit/s.
const BEFORE: u64 = 0;
const AFTER: u64 = 60;
const WIDE: f64 = 100.0;
const FILES: usize = 160;
const STEP: usize = 37;
const BYTES: usize = 256 << 10;
/// The files that are read while the server is near; it must serve three of four in their second
/// half.
const NEAR: usize = 40;
/// The number of files in a row from the drive that show that it is chosen, and not only tried.
const ROW: usize = 4;
const NAME: &str = "slow";

/// The result of a jump of the delay.
#[derive(Debug)]
pub(super) struct DelayJump {
    pub(super) before: u64,
    pub(super) after: u64,
    /// Requests for content to the server until the drive was the one that is asked.
    pub(super) accesses: u64,
}

/// Reads the beginnings of files, one after the other.
struct FileReader<'a> {
    home: &'a BenchReplica,
    dir: &'a Path,
    next: usize,
}

/// The requests for content to the server so far, and the reads of the drive.
#[derive(Debug, Clone, Copy)]
struct SourceCounts {
    server: u64,
    drive: u64,
}

impl FileReader<'_> {
    fn request_counts(&self) -> Result<SourceCounts> {
        Ok(SourceCounts {
            server: self.home.read_counts()?.get("request_read"),
            drive: reads_of(self.home)?,
        })
    }

    /// Reads the beginning of the next file.
    fn read_next(&mut self) -> Result<()> {
        ensure!(self.next < FILES, "all files were read");
        let n = self.next * STEP % FILES;
        self.next += 1;
        let mut block = [0; 4096];
        open_file(&self.dir.join(n.to_string()))?.read_exact_at(&mut block, 0)?;
        ensure!(block == [n as u8; 4096], "another file");
        Ok(())
    }
}

pub(super) fn measure_jump(work: &PortableBench, line: &ServedLine) -> Result<DelayJump> {
    let modelled = ModelledDisk::start(
        work.program.clone(),
        "ibm-microdrive-1gb",
        "bench-jump",
        true,
    )?;
    let nas = &line.nas;
    nas.teal_device(&[
        "add",
        path_text(&modelled.device)?,
        "--name",
        NAME,
        "--portable",
    ])?;
    let dir = nas.mount_point().join("jump");
    std::fs::create_dir(&dir)?;
    for n in 0..FILES {
        std::fs::write(dir.join(n.to_string()), vec![n as u8; BYTES])?;
    }
    nas.flush()?;
    nas.teal_device(&["detach", NAME])?;
    line.set_line(BEFORE, WIDE)?;
    let home = line.join_machine("jump")?;
    let dir = home.mount_point().join("jump");
    session::count_tree(&dir)?;
    home.teal_device(&["attach", path_text(&modelled.device)?])?;
    let jump = follow_jump(
        line,
        &mut FileReader {
            home: &home,
            dir: &dir,
            next: 0,
        },
    );
    // The drive is detached even after an error: a modelled disk can be stopped only when it is not
    // in use.
    home.teal_device(&["detach", NAME, "--fast"])?;
    home.unmount()?;
    jump
}

fn follow_jump(line: &ServedLine, reader: &mut FileReader<'_>) -> Result<DelayJump> {
    let (mut last, mut from_server) = (reader.request_counts()?, 0);
    for n in 0..NEAR {
        reader.read_next()?;
        let now = reader.request_counts()?;
        from_server += usize::from(n >= NEAR / 2 && now.drive == last.drive);
        last = now;
    }
    // The drive is tried now and then.
    ensure!(
        from_server * 8 >= NEAR * 3,
        "the near server gave only {from_server} of {} files",
        NEAR / 2
    );
    line.set_line(AFTER, WIDE)?;
    let begun = last.server;
    let mut row = Vec::new();
    while row.len() < ROW {
        reader.read_next().with_context(|| {
            format!(
                "the drive was not asked after {} accesses",
                last.server - begun
            )
        })?;
        let now = reader.request_counts()?;
        // The drive served this file.
        if now.drive > last.drive {
            row.push(last.server - begun);
        } else if now.server > last.server {
            row.clear();
        }
        last = now;
    }
    Ok(DelayJump {
        before: BEFORE,
        after: AFTER,
        accesses: row[0],
    })
}
