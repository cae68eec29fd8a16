//! `fallocate`: room, holes and zeros on a mount are those of the file system below.

use crate::support::{Mounted, digest, seeded};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use teal_testkit::Rng;

const ROUNDS: u64 = 12;
const OPS: usize = 60;
const LONGEST: u64 = 300_000;

/// One step of a file's life; most are at odd places.
#[derive(Debug, Clone, Copy)]
enum Step {
    Write(u64),
    Allocate(FallocateFlags),
    Truncate,
}

fn step(rng: &mut Rng) -> (Step, u64, u64) {
    let mut place = |limit: u64| {
        let at = rng.below(limit);
        if rng.chance(0.33) {
            at / 4096 * 4096
        } else {
            at
        }
    };
    let (at, len) = (place(LONGEST), place(LONGEST / 3) + 1);
    let keep = FallocateFlags::KEEP_SIZE;
    let step = match rng.below(9) {
        0..3 => Step::Write(rng.next_u64()),
        3 => Step::Allocate(FallocateFlags::empty()),
        4 => Step::Allocate(keep),
        5 => Step::Allocate(FallocateFlags::PUNCH_HOLE | keep),
        6 => Step::Allocate(FallocateFlags::ZERO_RANGE),
        7 => Step::Allocate(FallocateFlags::ZERO_RANGE | keep),
        _ => Step::Truncate,
    };
    (step, at, len)
}

fn take(file: &File, (step, at, len): (Step, u64, u64)) -> Result<(u64, u64), Errno> {
    match step {
        Step::Write(seed) => file.write_all_at(&seeded(seed, len as usize), at).unwrap(),
        Step::Allocate(mode) => fallocate(file, mode, at, len)?,
        Step::Truncate => file.set_len(at).unwrap(),
    }
    Ok((file.metadata().unwrap().len(), len))
}

#[test]
fn holes_and_zeros_are_those_of_the_file_system_below() {
    let test = "holes_and_zeros_are_those_of_the_file_system_below";
    let Some(mut m) = Mounted::new(test, "128M") else {
        return;
    };
    let places = |m: &Mounted, n: u64| [m.world().path(format!("f{n}")), m.path(format!("f{n}"))];
    for n in 0..ROUNDS {
        let mut rng = Rng::new(n);
        let paths = places(&m, n);
        let files = paths.each_ref().map(|p| {
            OpenOptions::new()
                .read(true)
                .write(true)
                .create_new(true)
                .open(p)
                .unwrap()
        });
        if fallocate(&files[0], FallocateFlags::ZERO_RANGE, 0, 1).is_err() {
            return teal_testkit::skip_test(
                test,
                "the file system below makes no zeros to compare with",
            );
        }
        files[0].set_len(0).unwrap();
        for k in 0..OPS {
            let step = step(&mut rng);
            let [theirs, ours] = files.each_ref().map(|file| take(file, step));
            assert_eq!(theirs, ours, "round {n}, {k}: {step:?}");
            if k % 10 == 9 {
                assert_eq!(
                    digest(&paths[0]),
                    digest(&paths[1]),
                    "round {n}, up to {k}: {step:?}"
                );
            }
        }
    }
    m.remount();
    for n in 0..ROUNDS {
        let [theirs, ours] = places(&m, n);
        assert_eq!(digest(&theirs), digest(&ours), "f{n}, mounted again");
    }
    m.down();
    m.check();
}

#[test]
fn a_hole_gives_its_space_back_and_room_is_asked_for_only() {
    let Some(m) = Mounted::new(
        "a_hole_gives_its_space_back_and_room_is_asked_for_only",
        "64M",
    ) else {
        return;
    };
    std::fs::write(m.path("f"), seeded(1, 8 << 20)).unwrap();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(m.path("f"))
        .unwrap();
    assert!(file.metadata().unwrap().blocks() >= 16384);
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, punch, 4096, (8 << 20) - 8192).unwrap();
    let meta = file.metadata().unwrap();
    assert_eq!(meta.len(), 8 << 20);
    assert!(meta.blocks() <= 32, "{} sectors", meta.blocks());
    assert_eq!(
        rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(0)),
        Ok(4096)
    );
    assert_eq!(
        rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(4096)),
        Ok((8 << 20) - 4096)
    );
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
