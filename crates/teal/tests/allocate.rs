//! `fallocate`: room, holes and zeros on a mount are those of the file system below.

#![allow(clippy::unwrap_used, reason = "a test whose ground gives way fails")]

#[path = "support/support.rs"]
mod support;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;
use support::{Mounted, digest, program, run};
use teal_testkit::Rng;

const ROUNDS: u64 = 12;
const OPS: usize = 60;
const LONGEST: u64 = 300_000;

/// A command of xfs_io, most of them at odd places.
fn command(rng: &mut Rng) -> String {
    let mut place = |limit: u64| {
        let at = rng.below(limit);
        if rng.chance(0.33) { at / 4096 * 4096 } else { at }
    };
    let (at, len) = (place(LONGEST), place(LONGEST / 3) + 1);
    match rng.below(9) {
        0..3 => format!("pwrite -q -S {} {at} {len}", 1 + rng.below(255)),
        3 => format!("falloc {at} {len}"),
        4 => format!("falloc -k {at} {len}"),
        5 => format!("fpunch {at} {len}"),
        6 => format!("fzero {at} {len}"),
        7 => format!("fzero -k {at} {len}"),
        _ => format!("truncate {at}"),
    }
}

#[test]
fn holes_and_zeros_are_those_of_the_file_system_below() {
    let test = "holes_and_zeros_are_those_of_the_file_system_below";
    if program("xfs_io", &[]).is_none() {
        return teal_testkit::skip(test, "needs the Debian package xfsprogs");
    }
    let Some(mut m) = Mounted::new(test, "128M") else { return };
    let places = |n: u64| [m.world().path(format!("f{n}")), m.path(format!("f{n}"))];
    for n in 0..ROUNDS {
        let mut rng = Rng::new(n);
        let commands: Vec<String> = (0..OPS).map(|_| command(&mut rng)).collect();
        let outcome = |file: &Path| {
            let mut xfs_io = Command::new("xfs_io");
            xfs_io.arg("-f");
            commands.iter().for_each(|c| drop(xfs_io.args(["-c", c])));
            let said = run(xfs_io.arg(file));
            (said.code, said.stdout, said.stderr, digest(file))
        };
        let [theirs, ours] = places(n);
        let (theirs, ours) = (outcome(&theirs), outcome(&ours));
        assert_eq!(theirs, ours, "{commands:#?}");
        assert_eq!(theirs.0, 0, "{theirs:?}");
    }
    let before: Vec<_> = (0..ROUNDS).map(|n| digest(&places(n)[0])).collect();
    m.remount();
    for n in 0..ROUNDS {
        assert_eq!(digest(&m.path(format!("f{n}"))), before[n as usize], "f{n}, mounted again");
    }
    m.down();
    m.check();
}

#[test]
fn a_hole_gives_its_space_back_and_room_is_asked_for_only() {
    let Some(m) = Mounted::new("a_hole_gives_its_space_back_and_room_is_asked_for_only", "64M") else { return };
    std::fs::write(m.path("f"), support::seeded(1, 8 << 20)).unwrap();
    let file = std::fs::OpenOptions::new().read(true).write(true).open(m.path("f")).unwrap();
    assert!(file.metadata().unwrap().blocks() >= 16384);
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, punch, 4096, (8 << 20) - 8192).unwrap();
    let meta = file.metadata().unwrap();
    assert_eq!(meta.len(), 8 << 20);
    assert!(meta.blocks() <= 32, "{} sectors", meta.blocks());
    assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(0)), Ok(4096));
    assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(4096)), Ok((8 << 20) - 4096));
    let room = fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 1 << 30);
    assert_eq!(room, Err(Errno::NOSPC), "more than the store holds");
    fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 16 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 8 << 20);
    fallocate(&file, FallocateFlags::empty(), 0, 16 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 16 << 20);
    // The kernel passes no other modes on to FUSE.
    for mode in [FallocateFlags::COLLAPSE_RANGE, FallocateFlags::INSERT_RANGE] {
        assert_eq!(fallocate(&file, mode, 0, 4096), Err(Errno::OPNOTSUPP));
    }
}
