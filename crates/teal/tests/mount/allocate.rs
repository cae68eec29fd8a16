//! `fallocate`: room, holes and zeros on a mount are those of the file system below; room that is
//! set aside stays so on a full store.

use crate::support::{Mounted, PATIENCE, digest, seeded, wait_until};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
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
fn a_hole_gives_its_space_back_and_room_is_set_aside() {
    let Some(m) = Mounted::new("a_hole_gives_its_space_back_and_room_is_set_aside", "64M") else {
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
    assert_eq!(file.metadata().unwrap().blocks(), (16 << 20) / 512);
    // The kernel passes no other modes on to FUSE.
    for mode in [FallocateFlags::COLLAPSE_RANGE, FallocateFlags::INSERT_RANGE] {
        assert_eq!(fallocate(&file, mode, 0, 4096), Err(Errno::OPNOTSUPP));
    }
}

const MIB: u64 = 1 << 20;
const KEEP: FallocateFlags = FallocateFlags::KEEP_SIZE;

fn free(m: &Mounted) -> u64 {
    let df = rustix::fs::statvfs(m.point()).unwrap();
    df.f_bavail * df.f_frsize
}

fn made(path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    options.open(path).unwrap()
}

/// Fills the mount until files of a block are refused.
fn fill_up(m: &Mounted, name: &str) {
    for (k, len) in [4 << 20, 100_000, 4096].into_iter().enumerate() {
        let path = m.path(format!("{name}{k}"));
        // On a full store there may be no room for a name.
        let Ok(file) = File::create_new(&path) else {
            continue;
        };
        let data = seeded(k as u64, len);
        let mut at = 0;
        while file.write_all_at(&data, at).is_ok() {
            at += len as u64;
        }
        // What was written is on the disk, and takes what it really takes.
        let _ = file.sync_all();
    }
}

#[test]
fn a_full_store_takes_what_room_was_set_aside_for() {
    let test = "a_full_store_takes_what_room_was_set_aside_for";
    let Some(mut m) = Mounted::new(test, "160M") else {
        return;
    };
    let before = free(&m);
    let names = ["whole", "behind the end", "zeros", "after a kill"];
    let files = names.map(|name| made(&m.path(name)));
    let len = 16 * MIB;
    fallocate(&files[0], FallocateFlags::empty(), 0, len).unwrap();
    fallocate(&files[1], KEEP, 0, len).unwrap();
    fallocate(&files[2], FallocateFlags::ZERO_RANGE, 0, len).unwrap();
    for (file, size) in files.iter().zip([len, 0, len]) {
        let meta = file.metadata().unwrap();
        assert_eq!((meta.len(), meta.blocks()), (size, len / 512));
        file.sync_all().unwrap();
    }
    assert!(before - free(&m) >= 3 * len, "df counts it");
    // Killed after the sync, and mounted again.
    fallocate(&files[3], FallocateFlags::empty(), 0, len).unwrap();
    files[3].sync_all().unwrap();
    drop(files);
    m.kill();
    m.up();
    assert!(before - free(&m) >= 4 * len, "df still counts it");
    assert_eq!(
        std::fs::metadata(m.path("after a kill")).unwrap().blocks(),
        len / 512
    );
    // A full store may have no room for another name.
    drop(made(&m.path("other")));
    fill_up(&m, "one");
    m.remount();
    fill_up(&m, "two");
    let other = File::options().write(true).open(m.path("other")).unwrap();
    let refused = other.write_all_at(&seeded(1, 1 << 20), 0).unwrap_err();
    assert_eq!(Errno::from_io_error(&refused), Some(Errno::NOSPC));
    drop(other);
    for (k, name) in names.into_iter().enumerate() {
        let data = seeded(100 + k as u64, len as usize);
        let mut options = OpenOptions::new();
        // Room behind the end is there for what is appended.
        let file = match k {
            1 => options.append(true).open(m.path(name)).unwrap(),
            _ => options.write(true).open(m.path(name)).unwrap(),
        };
        let step = [MIB, 40_000, 12_288, 70_000][k] as usize;
        for (n, part) in data.chunks(step).enumerate() {
            let at = (n * step) as u64;
            let done = match k {
                1 => (&file).write_all(part),
                _ => file.write_all_at(part, at),
            };
            done.unwrap_or_else(|e| panic!("{name} at {at}: {e}"));
            if n % 16 == 0 {
                file.sync_data().unwrap();
            }
        }
        file.sync_all().unwrap();
    }
    m.remount();
    for (k, name) in names.into_iter().enumerate() {
        let data = seeded(100 + k as u64, len as usize);
        assert!(std::fs::read(m.path(name)).unwrap() == data, "{name}");
    }
    m.down();
    m.check();
}

#[test]
fn room_comes_back_where_it_is_given_up() {
    let Some(mut m) = Mounted::new("room_comes_back_where_it_is_given_up", "128M") else {
        return;
    };
    let start = free(&m);
    let len = 32 * MIB;
    let file = made(&m.path("f"));
    let is_back = |m: &Mounted, bytes: u64, what: &str| {
        let taken = start.saturating_sub(free(m));
        let about = bytes + bytes / 10 + 2 * MIB;
        assert!(
            (bytes..about).contains(&taken),
            "{what}: {taken} of {bytes} bytes are taken"
        );
    };
    fallocate(&file, FallocateFlags::empty(), 0, len).unwrap();
    is_back(&m, len, "set aside");
    fallocate(&file, FallocateFlags::empty(), 0, len).unwrap();
    is_back(&m, len, "set aside again");
    fallocate(&file, FallocateFlags::PUNCH_HOLE | KEEP, 8 * MIB, 8 * MIB).unwrap();
    assert_eq!(file.metadata().unwrap().blocks(), 24 * MIB / 512);
    is_back(&m, 24 * MIB, "a hole");
    file.set_len(20 * MIB).unwrap();
    is_back(&m, 12 * MIB, "cut");
    fallocate(&file, KEEP, 20 * MIB, 8 * MIB).unwrap();
    is_back(&m, 20 * MIB, "behind the end");
    file.set_len(20 * MIB).unwrap();
    is_back(&m, 12 * MIB, "the same length");
    // More than there is: nothing of it stays.
    let refused = fallocate(&file, KEEP, 64 * MIB, start - 16 * MIB);
    assert_eq!(refused, Err(Errno::NOSPC));
    is_back(&m, 12 * MIB, "refused");
    assert_eq!(file.metadata().unwrap().len(), 20 * MIB);
    drop(file);
    std::fs::remove_file(m.path("f")).unwrap();
    // When the kernel has forgotten it.
    assert!(
        wait_until(PATIENCE, || free(&m) + 2 * MIB >= start),
        "removed"
    );
    m.down();
    m.check();
}
