//! A drive on a disk in memory: exact versions, prefixes after power cuts, damage, room.
#![allow(clippy::unwrap_used, reason = "tests panic where they fail")]

use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use teal_device::{Drive, DriveError, DriveLabel};
use teal_env::{Disk, DiskShape, MemDisk};
use teal_log::{MkfsOptions, Store};
use teal_testkit::{RecordingDisk, Rng, SeededEntropy, SimClock};
use teal_types::{BLOCK, ByteRanges, CommitSeq, DriveNo, ObjectNo, Sector, VolumeId};

const A: ObjectNo = ObjectNo::new(1 << 31);
const SIZE: u64 = 20_000;

fn seq(raw: u64) -> CommitSeq {
    CommitSeq::new(raw)
}

fn bytes(seed: u64, len: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    (0..len).map(|_| rng.below(256) as u8).collect()
}

fn make(disk: Arc<dyn Disk>) -> Drive {
    let label = DriveLabel {
        volume: VolumeId::new(7),
        device: DriveNo::new(1),
        position: seq(100),
        ..DriveLabel::default()
    };
    Drive::create(
        disk,
        Arc::new(SimClock::default()),
        &SeededEntropy::new(1),
        "usb",
        label,
    )
    .unwrap()
}

fn fresh(mib: u64) -> Drive {
    make(Arc::new(MemDisk::new((mib << 20) / 512)))
}

fn whole(drive: &Drive, no: ObjectNo, at: u64, content: &[u8]) {
    let size = content.len() as u64;
    assert!(
        drive
            .install(no, (seq(at), size), (0, size), &[(0, content.to_vec())])
            .unwrap()
    );
}

/// Returns what is found of the first `SIZE` bytes, and whether it is as in `content`.
fn found(drive: &Drive, at: u64, content: &[u8]) -> Vec<(u64, u64)> {
    let found = drive.read(A, seq(at), 0, SIZE).unwrap();
    assert!(found.damaged.is_empty());
    let mut read = vec![0; content.len()];
    for (at, piece) in found.pieces {
        read[at as usize..at as usize + piece.len()].copy_from_slice(&piece);
    }
    for (from, to) in found.present.iter() {
        assert_eq!(
            read[from as usize..to as usize],
            content[from as usize..to as usize],
            "{from} to {to}"
        );
    }
    found.present.iter().collect()
}

#[test]
fn content_is_read_at_its_version_and_at_no_other() {
    let drive = fresh(32);
    let (old, new) = (bytes(1, SIZE), bytes(2, SIZE));
    whole(&drive, A, 5, &old);
    assert_eq!(found(&drive, 5, &old), [(0, SIZE)]);
    assert_eq!(found(&drive, 4, &old), []);
    assert_eq!(found(&drive, 6, &old), []);
    // A part of a newer version: nothing of the old one is left.
    assert!(
        drive
            .install(
                A,
                (seq(6), SIZE),
                (4096, 8192),
                &[(4096, new[4096..8192].to_vec())]
            )
            .unwrap()
    );
    assert_eq!(found(&drive, 6, &new), [(4096, 8192)]);
    assert_eq!(found(&drive, 5, &old), []);
    assert!(
        !drive
            .install(A, (seq(5), SIZE), (0, SIZE), &[(0, old)])
            .unwrap(),
        "an older one comes too late"
    );
    assert!(
        !drive
            .install(A, (seq(101), SIZE), (0, SIZE), &[(0, new)])
            .unwrap(),
        "the drive has not come so far"
    );
}

#[test]
fn parts_that_meet_in_a_block_leave_each_other_alone() {
    let drive = fresh(32);
    let content = bytes(1, SIZE);
    for (from, to) in [
        (1000, 9000),
        (0, 1000),
        (9001, SIZE),
        (9000, 9001),
        (500, 600),
    ] {
        let piece = (from, content[from as usize..to as usize].to_vec());
        assert!(
            drive
                .install(A, (seq(5), SIZE), (from, to), &[piece])
                .unwrap()
        );
    }
    assert_eq!(found(&drive, 5, &content), [(0, SIZE)]);
}

#[test]
fn a_change_elsewhere_leaves_what_it_did_not_touch() {
    let drive = fresh(32);
    let mut content = bytes(1, SIZE);
    whole(&drive, A, 5, &content);
    drive
        .apply_change(A, (seq(7), SIZE), Some(&[(5000, 10)]))
        .unwrap();
    content[5000..5010].fill(0);
    assert_eq!(found(&drive, 7, &content), [(0, 4096), (8192, SIZE)]);
    // It grows, and is cut.
    drive
        .apply_change(A, (seq(8), 2 * SIZE), Some(&[]))
        .unwrap();
    content.resize(2 * SIZE as usize, 0);
    assert_eq!(found(&drive, 8, &content), [(0, 4096), (8192, 16_384)]);
    drive.apply_change(A, (seq(9), 9000), Some(&[])).unwrap();
    assert_eq!(found(&drive, 9, &content), [(0, 4096)]);
    drive.apply_change(A, (seq(10), 9000), None).unwrap();
    assert!(drive.held_object(A).unwrap().is_empty());
    whole(&drive, A, 11, &content[..9000]);
    drive.remove_object(A).unwrap();
    assert!(drive.held_object(A).unwrap().is_empty());
    assert_eq!(drive.capacity().objects, 0);
    // The same number again, before anything was durable.
    whole(&drive, A, 12, &content[..9000]);
    assert_eq!(found(&drive, 12, &content[..9000]), [(0, 9000)]);
}

#[test]
fn holes_stay_holes() {
    let drive = fresh(32);
    let size = 1 << 40;
    let tail = bytes(3, 4096);
    assert!(
        drive
            .install(A, (seq(5), size), (0, size), &[(1 << 30, tail.clone())])
            .unwrap()
    );
    let found = drive
        .read(A, seq(5), (1 << 30) - 8192, (1 << 30) + 8192)
        .unwrap();
    assert_eq!(found.pieces, [(1 << 30, tail)]);
    assert_eq!(
        found.present.iter().collect::<Vec<_>>(),
        [((1 << 30) - 8192, (1 << 30) + 8192)]
    );
    assert!(drive.capacity().total - drive.capacity().free < 1 << 20);
}

#[test]
fn what_was_not_used_makes_way_and_what_has_affinity_does_not() {
    let drive = fresh(20);
    let content = bytes(1, 256 << 10);
    let no = |n: u64| ObjectNo::new(A.get() + n);
    whole(&drive, no(0), 5, &content);
    drive.set_affinity(no(0), true, false).unwrap();
    for n in 1..200 {
        whole(&drive, no(n), 5, &content);
        assert!(
            drive.capacity().free * 20 > drive.capacity().total,
            "{:?}",
            drive.capacity()
        );
    }
    let is_there = |n| drive.held_object(no(n)).unwrap().content.is_some();
    assert!(is_there(0) && is_there(199) && !is_there(1));
    assert_eq!(
        drive
            .read(no(0), seq(5), 0, 256 << 10)
            .unwrap()
            .present
            .iter()
            .collect::<Vec<_>>(),
        [(0, 256 << 10)]
    );
}

#[test]
fn damage_is_told_from_what_is_whole_and_can_be_repaired() {
    let disk = Arc::new(MemDisk::new((32 << 20) / 512));
    let drive = make(Arc::clone(&disk) as _);
    let content = bytes(1, 1 << 20);
    whole(&drive, A, 5, &content);
    drive.sync().unwrap();
    drive.close().unwrap();
    drop(drive);
    let sectors = disk.shape().sectors;
    let mut image = vec![0; (sectors * 512) as usize];
    disk.read_at(teal_types::Sector::new(0), &mut image)
        .unwrap();
    let at = image
        .windows(32)
        .position(|bytes| bytes == &content[600_000..600_032])
        .unwrap() as u64
        / 512;
    let mut sector = image[(at * 512) as usize..][..512].to_vec();
    sector[100] ^= 1;
    disk.write_at(
        teal_types::Sector::new(at),
        &[std::io::IoSlice::new(&sector)],
    )
    .unwrap();
    let drive = Drive::open(disk, Arc::new(SimClock::default())).unwrap();
    let found = drive.read(A, seq(5), 0, 1 << 20).unwrap();
    let (from, to) = found.damaged.iter().next().unwrap();
    assert!(
        from <= 600_000 && to > 600_000 && to - from <= 128 << 10,
        "{from} to {to}"
    );
    let mut all = ByteRanges::default();
    all.add(0, 1 << 20);
    assert_eq!(found.present, all.difference(&found.damaged));
    // Whoever reads a part of the block meets it as well, and none of that block is given to others
    // then.
    let part = drive.read(A, seq(5), 600_000, 600_010).unwrap().damaged;
    assert_eq!(part.iter().collect::<Vec<_>>(), [(600_000, 600_010)]);
    drive.drop_damaged(A, seq(5), &part).unwrap();
    let block = (600_000 / 4096 * 4096, 600_000 / 4096 * 4096 + 4096);
    let left = drive.held_object(A).unwrap().content.unwrap().present;
    assert_eq!(all.difference(&left).iter().collect::<Vec<_>>(), [block]);
    let piece = (600_000, content[600_000..600_010].to_vec());
    assert!(
        drive
            .install(A, (seq(5), 1 << 20), (600_000, 600_010), &[piece])
            .unwrap()
    );
    for (from, to) in drive
        .read(A, seq(5), 0, 1 << 20)
        .unwrap()
        .present
        .clipped_to(block.0, block.1)
        .iter()
    {
        assert_eq!(
            (from, to),
            (600_000, 600_010),
            "nothing else of it is known"
        );
    }
    drive.drop_damaged(A, seq(5), &found.damaged).unwrap();
    assert!(
        drive
            .read(A, seq(5), 0, 1 << 20)
            .unwrap()
            .damaged
            .is_empty()
    );
    let piece = (from, content[from as usize..to as usize].to_vec());
    assert!(
        drive
            .install(A, (seq(5), 1 << 20), (from, to), &[piece])
            .unwrap()
    );
    assert_eq!(drive.read(A, seq(5), 0, 1 << 20).unwrap().present, all);
}

#[test]
fn after_a_power_cut_a_drive_is_as_after_some_of_its_changes() {
    let shape = DiskShape {
        sectors: (20 << 20) / 512,
        logical: 512,
        physical: 4096,
        rotational: false,
        sparse: false,
    };
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let disk = RecordingDisk::new(shape);
        let drive = make(Arc::new(disk.clone()));
        let steps = 2 + rng.below(12);
        let mut durable = 0;
        // At each step every object changes; then the position moves; then some of the new content
        // comes.
        for n in 1..=steps {
            let (at, all) = (
                100 + 10 * n,
                (0..4).map(|object| ObjectNo::new(A.get() + object)),
            );
            all.clone()
                .for_each(|no| drive.apply_change(no, (seq(at), SIZE), None).unwrap());
            drive
                .update_label(|label| label.position = seq(at))
                .unwrap();
            for no in all {
                if rng.chance(0.7) {
                    whole(&drive, no, at, &bytes(at, SIZE));
                }
            }
            if rng.chance(0.5) {
                drive.sync().unwrap();
                durable = n;
            }
        }
        let image = disk.trace().crash_at_end(&mut rng, true).disk;
        let drive = Drive::open(Arc::new(image), Arc::new(SimClock::default())).unwrap();
        let seen = drive.label().position.get();
        assert!(seen >= 100 + 10 * durable, "seed {seed}: {seen}");
        for object in 0..4 {
            let no = ObjectNo::new(A.get() + object);
            if let Some(content) = drive.held_object(no).unwrap().content {
                let at = content.data_seq.get();
                assert_eq!(
                    at, seen,
                    "seed {seed}: what is there is the newest as of the position"
                );
                let found = drive.read(no, content.data_seq, 0, SIZE).unwrap();
                let read: Vec<u8> = found
                    .pieces
                    .into_iter()
                    .flat_map(|(_, bytes)| bytes)
                    .collect();
                assert!(read.is_empty() || read == bytes(at, SIZE), "seed {seed}");
            }
        }
    }
}

#[test]
fn what_is_no_drive_is_told_apart() {
    let clock: Arc<SimClock> = Arc::default();
    let disk = Arc::new(MemDisk::new((20 << 20) / 512));
    assert!(matches!(
        Drive::open(Arc::clone(&disk) as _, clock.clone()),
        Err(DriveError::Open(_))
    ));
    Store::mkfs(
        Arc::clone(&disk) as _,
        clock.clone(),
        &SeededEntropy::new(1),
        &MkfsOptions::default(),
    )
    .unwrap();
    assert!(matches!(
        Drive::open(disk, clock),
        Err(DriveError::NotADrive)
    ));
    assert_eq!(
        fresh(20).label(),
        DriveLabel {
            volume: VolumeId::new(7),
            device: DriveNo::new(1),
            position: seq(100),
            ..DriveLabel::default()
        }
    );
    assert_eq!(BLOCK, 4096);
}

/// A disk that looks at its drive when it is written to.
struct Watched {
    disk: MemDisk,
    drive: OnceLock<Weak<Drive>>,
    bytes: AtomicU64,
    /// Writes that the drive said nothing of.
    silent: AtomicU64,
}

impl Disk for Watched {
    fn shape(&self) -> DiskShape {
        self.disk.shape()
    }
    fn read_at(&self, at: Sector, buf: &mut [u8]) -> io::Result<()> {
        self.disk.read_at(at, buf)
    }
    fn write_at(&self, at: Sector, parts: &[IoSlice<'_>]) -> io::Result<()> {
        if let Some(drive) = self.drive.get().and_then(Weak::upgrade) {
            self.silent
                .fetch_add(u64::from(!drive.is_written()), Ordering::Relaxed);
            self.bytes.fetch_add(
                parts.iter().map(|part| part.len() as u64).sum(),
                Ordering::Relaxed,
            );
        }
        self.disk.write_at(at, parts)
    }
    fn sync(&self) -> io::Result<()> {
        self.disk.sync()
    }
    fn allocate(&self, at: Sector, sectors: u64) -> io::Result<()> {
        self.disk.allocate(at, sectors)
    }
    fn discard(&self, at: Sector, sectors: u64) -> io::Result<()> {
        self.disk.discard(at, sectors)
    }
}

#[test]
fn while_the_disk_is_written_to_the_drive_says_so_cleaning_included() {
    const MIB: u64 = 16;
    let disk = MemDisk::new((MIB << 20) / 512);
    let disk = Arc::new(Watched {
        disk,
        drive: OnceLock::new(),
        bytes: AtomicU64::new(0),
        silent: AtomicU64::new(0),
    });
    let usb = Arc::new(make(Arc::clone(&disk) as _));
    assert!(disk.drive.set(Arc::downgrade(&usb)).is_ok());
    // Many times what it has room for, in parts of what is there already: nothing of it is free
    // without cleaning.
    let (mut rng, mut asked) = (Rng::new(3), 0);
    for round in 0..3000 {
        let no = ObjectNo::new(A.get() + rng.below(40));
        let (from, len) = (rng.below(16) * 4096, 4096 * (1 + rng.below(8)));
        let piece = bytes(round, len);
        asked += len;
        assert!(
            usb.install(no, (seq(5), 1 << 20), (from, from + len), &[(from, piece)])
                .unwrap()
        );
        match rng.below(8) {
            0 => usb
                .drop_damaged(
                    no,
                    seq(5),
                    &ByteRanges::from_sorted(vec![(0, 8192)]).unwrap(),
                )
                .unwrap(),
            1 => usb.set_affinity(no, rng.chance(0.5), false).unwrap(),
            2 => usb.sync().unwrap(),
            _ => {}
        }
    }
    usb.close().unwrap();
    let written = disk.bytes.load(Ordering::Relaxed);
    assert!(
        asked > 2 * (MIB << 20) && written > asked,
        "{written} bytes for {asked}"
    );
    assert_eq!(disk.silent.load(Ordering::Relaxed), 0);
    assert!(!usb.is_written());
}
