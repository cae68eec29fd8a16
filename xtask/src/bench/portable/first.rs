//! The time to the first byte of small files that are on a drive and not here, beside a block of
//! the drive itself.
//!
//! # How
//! 1. The files lie so far apart on the drive that no read-ahead covers two of them, and are read
//!    in an order that jumps: each costs the drive a read of its own.
//! 2. In turns a block of the drive is read past the page cache, the first byte of a file through
//!    the mount, and that of the file before again, which the kernel has been made to forget: it
//!    comes from the home log, and shows the cost of asking a mount at all.
//! 3. Drives: a file of this machine's disk, and modelled ones in real time.

use super::super::andrew::pair::{BenchReplica, ServedLine};
use super::super::emulator::ModelledDisk;
use super::super::meter::monotonic_seconds;
use super::super::statistics::median_spread;
use super::environment::{PortableBench, path_text};
use super::session;
use anyhow::{Context as _, Result, ensure};
use rustix::fs::{Advice, OFlags, fadvise};
use serde_json::Value;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

/// The number of small files with a timed first byte, ...
const FILES: usize = 200;
/// ... the step between two that are read one after the other, ...
const STEP: usize = 37;
/// ... and the bytes that lie between two of them.
const BETWEEN: usize = 64 << 10;
const BLOCK: usize = 4096;
/// The number of large files with a timed first byte.
const LARGE: usize = 8;
const LARGE_BYTES: usize = 2 << 20;
/// The round trip to the server, in milliseconds: so long that the drive is preferred, even if it
/// begins slowly.
const FAR: u64 = 400;
const WIDE: f64 = 11.0;

/// A kind of drive: a file of this machine's disk, or a modelled disk of a shipped profile.
pub(super) struct DriveKind {
    pub(super) name: &'static str,
    short: &'static str,
    profile: Option<&'static str>,
}

pub(super) const KINDS: [DriveKind; 3] = [
    DriveKind {
        name: "a file of this machine's disk",
        short: "file",
        profile: None,
    },
    DriveKind {
        name: "a 1 GB Microdrive (BlueFS's)",
        short: "microdrive",
        profile: Some("ibm-microdrive-1gb"),
    },
    DriveKind {
        name: "a 2.5 inch disk of 5400 rpm",
        short: "travelstar",
        profile: Some("hitachi-travelstar-5k320"),
    },
];

/// Milliseconds until the first byte, medians.
#[derive(Debug)]
pub(super) struct FirstByte {
    pub(super) drive: &'static str,
    /// The time of a block of the drive itself.
    pub(super) own: f64,
    /// The time through the mount.
    pub(super) mount: f64,
    /// The time through the mount, from the home log.
    pub(super) here: f64,
    /// The time through the mount, for a large file.
    pub(super) large: f64,
    /// The reads of the drive for a small file, where they can be counted.
    pub(super) reads: Option<f64>,
}

pub(super) fn measure_first(
    work: &PortableBench,
    line: &ServedLine,
    kind: &DriveKind,
) -> Result<FirstByte> {
    let start = |profile| {
        ModelledDisk::start(
            work.program.clone(),
            profile,
            &format!("bench-{}", kind.short),
            true,
        )
    };
    let modelled = kind.profile.map(start).transpose()?;
    line.set_line(FAR, WIDE)?;
    let made = work.dir.join(format!("{}.drive", kind.short));
    let nas = &line.nas;
    let place = if let Some(modelled) = &modelled {
        nas.teal_device(&[
            "add",
            path_text(&modelled.device)?,
            "--name",
            kind.short,
            "--portable",
        ])?;
        modelled.device.clone()
    } else {
        nas.teal_device(&[
            "add",
            path_text(&made)?,
            "--name",
            kind.short,
            "--size",
            "256M",
            "--portable",
        ])?;
        work.dir.join(format!("{}.moved", kind.short))
    };
    let dir = format!("first-{}", kind.short);
    lay_out(&nas.mount_point().join(&dir))?;
    nas.flush()?;
    nas.teal_device(&["detach", kind.short])?;
    if modelled.is_none() {
        // The drive is moved, since it would be attached again where it was made.
        std::fs::rename(&made, &place)?;
        OpenOptions::new().write(true).open(&place)?.sync_all()?;
    }
    // The machine joins after the drive is filled, and so has none of its content.
    let home = line.join_machine(kind.short)?;
    session::count_tree(&home.mount_point().join(&dir))?;
    home.teal_device(&["attach", path_text(&place)?])?;
    let first = sample_drive(kind, &home, &home.mount_point().join(&dir), &place);
    // The drive is detached even after an error: a modelled disk can be stopped only when it is not
    // in use.
    home.teal_device(&["detach", kind.short, "--fast"])?;
    home.unmount()?;
    first
}

fn lay_out(dir: &Path) -> Result<()> {
    std::fs::create_dir(dir)?;
    for n in 0..FILES {
        std::fs::write(dir.join(n.to_string()), vec![n as u8 + 1; BLOCK])?;
        std::fs::write(dir.join(format!("{n}-between")), vec![n as u8; BETWEEN])?;
    }
    for n in 0..LARGE {
        std::fs::write(
            dir.join(format!("{n}-large")),
            vec![n as u8 + 1; LARGE_BYTES],
        )?;
    }
    Ok(())
}

/// Returns the number of reads of content from the only drive that is attached.
pub(super) fn reads_of(home: &BenchReplica) -> Result<u64> {
    let said: Vec<Value> = serde_json::from_str(&home.teal_device(&["ls", "--json"])?)?;
    let attached = said
        .iter()
        .find(|drive| !drive["place"].is_null())
        .context("no drive is attached")?;
    let counts: Vec<(String, u64)> = serde_json::from_value(attached["counts"].clone())?;
    counts
        .into_iter()
        .find(|(name, _)| name == "reads")
        .map(|(_, count)| count)
        .context("no reads")
}

pub(super) fn open_file(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().read(true).open(path)
}

/// Returns the number of reads that a block device has had.
fn reads_at(device: &Path) -> Option<u64> {
    let name = device.file_name()?.to_str()?;
    let stat = std::fs::read_to_string(format!("/sys/class/block/{name}/stat")).ok()?;
    stat.split_whitespace().next()?.parse().ok()
}

fn sample_drive(
    kind: &DriveKind,
    home: &BenchReplica,
    there: &Path,
    place: &Path,
) -> Result<FirstByte> {
    let (before, at_device) = (reads_of(home)?, reads_at(place));
    let small = time_small_files(there, place)?;
    let from_drive = reads_of(home)? - before;
    ensure!(
        from_drive * 10 >= FILES as u64 * 9,
        "only {from_drive} of {FILES} files came from the drive"
    );
    // One read of each round was the block of the drive itself.
    let reads = at_device
        .zip(reads_at(place))
        .map(|(before, after)| (after - before) as f64 / FILES as f64 - 1.0);
    let mut large = Vec::new();
    for n in 0..LARGE {
        let path = there.join(format!("{n}-large"));
        large.push(time_first_byte(&path, n as u8 + 1)?.milliseconds);
    }
    Ok(FirstByte {
        drive: kind.name,
        own: median_time(small.own)?,
        mount: median_time(small.mount)?,
        here: median_time(small.here)?,
        large: median_time(large)?,
        reads,
    })
}

/// Times of the first bytes of small files, in milliseconds.
#[derive(Debug, Default)]
struct SmallFileTimes {
    /// The times of a block of the drive itself.
    own: Vec<f64>,
    /// The times through the mount.
    mount: Vec<f64>,
    /// The times through the mount, from the home log.
    here: Vec<f64>,
}

/// Reads the first byte of each small file, beside a block of the drive and the file before.
fn time_small_files(there: &Path, place: &Path) -> Result<SmallFileTimes> {
    let raw = OpenOptions::new()
        .read(true)
        .custom_flags(OFlags::DIRECT.bits() as i32)
        .open(place)?;
    // Reads past the page cache need an aligned buffer.
    let mut pages = vec![0_u8; 2 * BLOCK];
    let aligned = pages.as_ptr().align_offset(BLOCK);
    // Blocks are spread over the part of the drive that has the files.
    let span = FILES * (1 + BETWEEN / BLOCK);
    const { assert!(!FILES.is_multiple_of(STEP), "every file is read once") };
    let mut times = SmallFileTimes::default();
    let mut last: Option<File> = None;
    for n in (0..FILES).map(|n| n * STEP % FILES) {
        let at = (256 + n * 7919 % span) * BLOCK;
        let begun = monotonic_seconds();
        raw.read_exact_at(&mut pages[aligned..aligned + BLOCK], at as u64)?;
        times.own.push(milliseconds_since(begun));
        if let Some(file) = last {
            // The content of the file before has arrived by now.
            fadvise(&file, 0, None, Advice::DontNeed)?;
            let begun = monotonic_seconds();
            file.read_exact_at(&mut [0], 0)?;
            times.here.push(milliseconds_since(begun));
        }
        let first = time_first_byte(&there.join(n.to_string()), n as u8 + 1)?;
        times.mount.push(first.milliseconds);
        last = Some(first.file);
    }
    Ok(times)
}

/// An opened file, and the time until its first byte was there.
struct TimedFile {
    file: File,
    milliseconds: f64,
}

/// Opens a file and reads its first byte, which must be `expected`.
fn time_first_byte(path: &Path, expected: u8) -> Result<TimedFile> {
    let mut byte = [0];
    let begun = monotonic_seconds();
    let file = open_file(path)?;
    file.read_exact_at(&mut byte, 0)?;
    let milliseconds = milliseconds_since(begun);
    ensure!(byte[0] == expected, "another byte");
    Ok(TimedFile { file, milliseconds })
}

fn milliseconds_since(begun: f64) -> f64 {
    (monotonic_seconds() - begun) * 1e3
}

fn median_time(times: Vec<f64>) -> Result<f64> {
    let spread = median_spread(times).context("no times")?;
    Ok(spread.median)
}
