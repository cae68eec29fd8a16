//! The explorer yields what the fault model allows, all of it, and nothing else.

use super::*;
use std::collections::BTreeSet;
use std::io::IoSlice;
use teal_env::{Disk, DiskShape};
use teal_types::Sector;

fn disk(physical: u32) -> RecordingDisk {
    RecordingDisk::new(DiskShape {
        sectors: 4096,
        logical: 512,
        physical,
        rotational: false,
        sparse: false,
    })
}

fn write(disk: &RecordingDisk, at: u64, byte: u8) {
    disk.write_at(Sector::new(at), &[IoSlice::new(&[byte; 512])])
        .unwrap();
}

/// The first bytes of the first `N` sectors of every image at the end of the trace.
fn outcomes<const N: usize>(disk: &RecordingDisk, policy: &CrashPolicy) -> BTreeSet<[u8; N]> {
    let trace = disk.trace();
    let mut walk = CrashWalk::new(&trace);
    while walk.apply_next().is_some() {}
    let mut rng = Rng::new(1);
    walk.crash_images(&mut rng, policy)
        .map(|image| {
            std::array::from_fn(|at| {
                let mut sector = [0; 512];
                let read = image.disk.read_at(Sector::new(at as u64), &mut sector);
                read.map_or(0xee, |()| sector[0])
            })
        })
        .collect()
}

const READABLE: CrashPolicy = CrashPolicy {
    exhaustive: 10,
    random: 256,
    unreadable: false,
};

#[test]
fn durable_is_what_was_synced() {
    let disk = disk(512);
    write(&disk, 0, 1);
    write(&disk, 1, 2);
    disk.sync().unwrap();
    assert_eq!(
        outcomes(&disk, &CrashPolicy::default()),
        BTreeSet::from([[1, 2]])
    );
}

#[test]
fn any_subset_of_any_versions_of_pending_sectors_is_seen() {
    let disk = disk(512);
    write(&disk, 0, 1);
    disk.sync().unwrap();
    write(&disk, 0, 2);
    write(&disk, 1, 3);
    write(&disk, 0, 4);
    let expected = [[1, 0], [2, 0], [4, 0], [1, 3], [2, 3], [4, 3]];
    assert_eq!(outcomes(&disk, &READABLE), BTreeSet::from(expected));
}

#[test]
fn whole_physical_sectors_are_kept_or_lost_with_their_neighbours() {
    let disk = disk(4096);
    write(&disk, 0, 1);
    disk.sync().unwrap();
    write(&disk, 1, 2);
    assert_eq!(outcomes(&disk, &READABLE), BTreeSet::from([[1, 0], [1, 2]]));
    assert_eq!(
        outcomes(&disk, &CrashPolicy::default()),
        BTreeSet::from([[1, 0], [1, 2], [0xee, 0xee]])
    );
}

#[test]
fn unreadable_is_one_pending_sector() {
    let disk = disk(512);
    write(&disk, 0, 1);
    disk.sync().unwrap();
    write(&disk, 1, 2);
    assert_eq!(
        outcomes(&disk, &CrashPolicy::default()),
        BTreeSet::from([[1, 0], [1, 2], [1, 0xee]])
    );
}

#[test]
fn no_second_chance_after_a_failed_sync() {
    let disk = disk(512);
    write(&disk, 0, 1);
    write(&disk, 1, 1);
    disk.sync_failed();
    write(&disk, 1, 2);
    disk.sync().unwrap();
    assert_eq!(outcomes(&disk, &READABLE), BTreeSet::from([[0, 2], [1, 2]]));
    write(&disk, 0, 3);
    disk.sync().unwrap();
    assert_eq!(outcomes(&disk, &READABLE), BTreeSet::from([[3, 2]]));
}

#[test]
fn of_a_large_set_both_extremes_prefixes_and_random_subsets_are_taken() {
    let disk = disk(512);
    (0..64).for_each(|at| write(&disk, at, 1));
    let seen: BTreeSet<[u8; 64]> = outcomes(&disk, &READABLE);
    assert!(seen.contains(&[0; 64]) && seen.contains(&[1; 64]));
    let sums = |s: &[u8; 64]| s.iter().map(|&b| usize::from(b)).sum::<usize>();
    let is_prefix = |s: &[u8; 64]| s.iter().take(sums(s)).all(|&b| b == 1);
    assert!(seen.iter().filter(|s| is_prefix(s)).count() > 30);
    assert!(
        seen.iter().any(|s| sums(s) < 4 && !is_prefix(s))
            && seen.iter().any(|s| sums(s) > 60 && !is_prefix(s))
    );
    assert!(seen.len() > 200, "{}", seen.len());
    let seen: BTreeSet<[u8; 64]> = outcomes(&disk, &CrashPolicy::default());
    assert!(seen.iter().any(|s| s.contains(&0xee)));
}

#[test]
fn allocations_since_the_last_sync_are_lost() {
    let shape = DiskShape {
        sectors: 64,
        logical: 512,
        physical: 512,
        rotational: false,
        sparse: true,
    };
    let disk = RecordingDisk::new(shape);
    disk.allocate(Sector::new(0), 2).unwrap();
    disk.sync().unwrap();
    disk.allocate(Sector::new(2), 2).unwrap();
    write(&disk, 2, 1);
    let trace = disk.trace();
    let mut walk = CrashWalk::new(&trace);
    while walk.apply_next().is_some() {}
    for image in walk.crash_images(&mut Rng::new(0), &READABLE) {
        let content = image.disk.trace().start;
        assert!(
            content.is_allocated(0, 2) && !content.is_allocated(3, 1),
            "{image}"
        );
        assert_eq!(
            content.is_allocated(2, 1),
            !image.kept.is_empty(),
            "{image}"
        );
    }
}

#[test]
fn a_second_life_is_crashed_too() {
    let disk = disk(512);
    write(&disk, 0, 1);
    let mut seen = BTreeSet::new();
    disk.trace().explore(&mut Rng::new(1), &READABLE, |image| {
        write(&image.disk, 1, 2);
        image
            .disk
            .trace()
            .explore(&mut Rng::new(2), &READABLE, |second| {
                let bytes = second.disk.snapshot();
                seen.insert((bytes[0], bytes[512]));
            });
    });
    assert_eq!(seen, BTreeSet::from([(0, 0), (0, 2), (1, 0), (1, 2)]));
}

#[test]
fn an_image_says_what_it_is() {
    let disk = disk(512);
    write(&disk, 7, 1);
    write(&disk, 9, 1);
    let mut said = Vec::new();
    disk.trace()
        .explore(&mut Rng::new(1), &CrashPolicy::default(), |image| {
            said.push(image.to_string())
        });
    assert!(
        said.contains(&"point 2, 1 of 2 pending sectors kept: 9v1".to_owned()),
        "{said:#?}"
    );
    assert!(
        said.iter().any(|s| s.ends_with(", 7 unreadable")),
        "{said:#?}"
    );
}

#[test]
fn an_image_by_chance_is_one_of_those_and_each_of_them_comes() {
    let disk = disk(512);
    write(&disk, 0, 1);
    disk.sync().unwrap();
    write(&disk, 0, 2);
    write(&disk, 1, 3);
    let mut rng = Rng::new(1);
    let seen: BTreeSet<[u8; 2]> = (0..100)
        .map(|_| {
            let (image, mut sectors) = (disk.trace().crash_at_end(&mut rng, false), [0; 1024]);
            image.disk.read_at(Sector::new(0), &mut sectors).unwrap();
            [sectors[0], sectors[512]]
        })
        .collect();
    assert_eq!(seen, outcomes(&disk, &READABLE));
}
