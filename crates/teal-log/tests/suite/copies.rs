//! Second copies of the pages of the inode map: no single damage to a page loses a file.

use crate::stores::{
    assert_clean, check, create, disk_bytes, new_disk, open, put_bytes, try_create, try_open,
};
use std::io::{ErrorKind, IoSlice};
use std::sync::Arc;
use teal_env::{Disk, MemDisk};
use teal_log::{Cost, DiskPlace, Severity, Store, StoreError};
use teal_testkit::{DiskCall, FaultDisk, FaultDuration, Rng};
use teal_types::{Name, ObjectNo, SECTOR, Sector};

const MIB: u64 = 1 << 20;
const MAP_PAGE: &str = "a page of the inode map";
const COPIED: [&str; 3] = [
    MAP_PAGE,
    "a page of the orphan set",
    "a page of the usage table",
];
const COPY: &str = "the second copy of a page";
/// A store of 16 MiB with the files `f0` to `f299`, made before pages had second copies: each
/// sector that is not zero, behind its number.
const OLDER: &[u8] = include_bytes!("../images/without-second-copies.sectors");
/// Where the incompatible feature bits are in the superblock.
const FEATURES_AT: usize = 48;

fn touch(store: &Store, no: ObjectNo, content: &[u8]) -> Result<(), StoreError> {
    let op = store.begin(Cost::write(content.len() as u64).replacing())?;
    op.lock(&[no])?.write(no, 0, content)
}

/// Inverts every byte of a place.
fn invert(disk: &MemDisk, place: &DiskPlace) {
    let mut bytes = vec![0; place.bytes as usize];
    let at = Sector::new(place.byte / SECTOR);
    disk.read_at(at, &mut bytes).unwrap();
    bytes.iter_mut().for_each(|byte| *byte = !*byte);
    disk.write_at(at, &[IoSlice::new(&bytes)]).unwrap();
}

fn places(store: &Store, what: &[&str]) -> Vec<DiskPlace> {
    let mut found = store.places();
    found.retain(|place| what.contains(&place.what));
    found
}

fn filled(bytes: u64, files: u64) -> (Arc<MemDisk>, Vec<ObjectNo>) {
    let disk = new_disk(bytes / MIB);
    let store = open(&disk);
    let made = (0..files).map(|i| create(&store, &format!("file {i}"), &i.to_le_bytes()));
    let made = made.collect();
    store.close().unwrap();
    (disk, made)
}

fn assert_all_there(store: &Store, files: &[ObjectNo]) {
    for (i, no) in (0_u64..).zip(files) {
        assert_eq!(store.read(*no, 0, 8).unwrap(), i.to_le_bytes(), "file {i}");
    }
}

#[test]
fn a_damaged_page_of_the_map_loses_no_file_and_the_next_checkpoint_renews_it() {
    let (disk, files) = filled(64 * MIB, 1100);
    let pages = places(&open(&disk), &COPIED);
    assert!(pages.len() > 9, "{} pages", pages.len());
    for place in &pages {
        let whole = disk_bytes(&disk);
        invert(&disk, place);
        let store = open(&disk);
        assert_all_there(&store, &files);
        assert!(store.counter_values().second_copies_read > 0);
        let written = store.counter_values().writes;
        assert_eq!(written, 0, "a read writes nothing");
        let report = check(&store);
        let damage: Vec<_> = report
            .problems
            .iter()
            .filter(|problem| problem.severity == Severity::Damage)
            .map(|problem| problem.sector)
            .collect();
        assert_eq!(
            damage,
            [Some(place.byte / SECTOR)],
            "{:#?}",
            report.problems
        );
        touch(&store, files[0], &0_u64.to_le_bytes()).unwrap();
        store.checkpoint().unwrap();
        assert_clean(&store);
        drop(store);
        let store = open(&disk);
        assert_all_there(&store, &files);
        assert_eq!(store.counter_values().second_copies_read, 0);
        drop(store);
        put_bytes(&disk, &whole, 0..whole.len());
    }
}

#[test]
fn a_damaged_second_copy_is_reported_by_its_place_and_costs_nothing() {
    let (disk, files) = filled(64 * MIB, 300);
    let copies = places(&open(&disk), &[COPY]);
    assert_eq!(copies.len(), places(&open(&disk), &COPIED).len());
    for place in &copies {
        invert(&disk, place);
        let store = open(&disk);
        assert_all_there(&store, &files);
        assert_eq!(store.counter_values().second_copies_read, 0);
        let report = check(&store);
        assert_eq!(report.total, 1, "{:#?}", report.problems);
        assert_eq!(report.problems[0].sector, Some(place.byte / SECTOR));
        assert!(report.problems[0].what.contains("second copy"));
        drop(store);
        invert(&disk, place);
    }
}

#[test]
fn when_both_copies_are_damaged_the_read_fails() {
    let (disk, files) = filled(16 * MIB, 3);
    let store = open(&disk);
    let pages = places(&store, &[MAP_PAGE, COPY]);
    assert_eq!(
        pages.len(),
        3,
        "the map has one page, the usage table another"
    );
    drop(store);
    pages.iter().for_each(|place| invert(&disk, place));
    let store = open(&disk);
    assert!(matches!(
        store.read(files[0], 0, 8),
        Err(StoreError::Corrupt { .. })
    ));
    assert_eq!(store.counter_values().second_copies_read, 0);
}

/// Fills a store, and overwrites and removes at random with checkpoints in between. At each of them
/// all copies are there, far from their pages, and few segments are taken by them.
fn churned(bytes: u64, seed: u64) {
    let disk = new_disk(bytes / MIB);
    let store = open(&disk);
    let mut rng = Rng::new(seed);
    let mut files = Vec::new();
    // Small files and large ones, until the store is full.
    loop {
        let len = if rng.below(8) == 0 { 60_000 } else { 300 };
        match try_create(&store, &format!("file {}", files.len()), &vec![7; len]) {
            Ok(no) => files.push(no),
            Err(StoreError::NoSpace) => break,
            Err(e) => panic!("{e}"),
        }
    }
    store.checkpoint().unwrap();
    for round in 0..60 {
        for _ in 0..20 {
            let no = files[rng.below(files.len() as u64) as usize];
            match touch(&store, no, &[round; 300]) {
                Ok(()) | Err(StoreError::NoSpace) => {}
                Err(e) => panic!("{e}"),
            }
        }
        store.checkpoint().unwrap();
        if round % 10 == 9 {
            let report = assert_clean(&store);
            let pages = places(&store, &COPIED).len() as u64;
            assert_eq!(report.copies, pages, "round {round}: copies are missing");
        }
    }
    assert_eq!(store.counter_values().second_copies_missing, 0);
    store.close().unwrap();
    drop(store);
    assert_clean(&open(&disk));
}

#[test]
fn a_full_store_has_all_second_copies_and_stays_clean() {
    churned(16 * MIB, 1);
    churned(64 * MIB, 2);
}

/// Puts the older store at the start of a disk with so many bytes.
pub(crate) fn older_on(bytes: u64) -> Arc<MemDisk> {
    let disk = Arc::new(MemDisk::new(bytes / SECTOR));
    for sector in OLDER.chunks(4 + SECTOR as usize) {
        let (number, bytes) = sector.split_at(4);
        let at = Sector::new(u32::from_le_bytes(number.try_into().unwrap()).into());
        disk.write_at(at, &[IoSlice::new(bytes)]).unwrap();
    }
    disk
}

/// Returns the feature bits in both superblocks of a store of 16 MiB.
fn features(disk: &MemDisk) -> [u8; 2] {
    let bytes = disk_bytes(disk);
    let second = (16 * MIB) as usize - 4096;
    [FEATURES_AT, second + FEATURES_AT].map(|at| bytes[at])
}

#[test]
fn an_older_store_mounts_and_gains_copies_as_its_pages_are_folded() {
    let disk = older_on(16 * MIB);
    let store = open(&disk);
    let report = assert_clean(&store);
    assert_eq!((report.objects, report.copies), (301, 0));
    let names: Vec<_> = (0..300)
        .map(|i| {
            let name = Name::new(format!("f{i}").as_bytes()).unwrap();
            store.lookup(ObjectNo::ROOT, &name).unwrap().unwrap().0
        })
        .collect();
    store.close().unwrap();
    assert_eq!(features(&disk), [1, 1], "reading changes nothing");
    drop(store);

    let store = open(&disk);
    touch(&store, names[0], b"changed").unwrap();
    store.checkpoint().unwrap();
    let report = assert_clean(&store);
    // The leaf and the page above it, and the usage table.
    assert_eq!(report.copies, 3);
    assert_eq!(features(&disk), [3, 3]);
    for no in &names {
        touch(&store, *no, b"changed").unwrap();
    }
    store.close().unwrap();
    drop(store);
    let store = open(&disk);
    let report = assert_clean(&store);
    assert_eq!(report.copies, places(&store, &COPIED).len() as u64);
    for no in &names {
        assert_eq!(store.read(*no, 0, 7).unwrap(), *b"changed");
    }
}

#[test]
fn a_torn_superblock_costs_no_store_on_a_longer_disk_either() {
    for bytes in [16 * MIB, 20 * MIB] {
        let disk = older_on(bytes);
        let mut first = disk_bytes(&disk)[..SECTOR as usize].to_vec();
        // Torn while the store is marked: the bits are new, the checksum is not.
        first[FEATURES_AT] |= 2;
        disk.write_at(Sector::new(0), &[IoSlice::new(&first)])
            .unwrap();
        let store = open(&disk);
        create(&store, "more", b"content");
        store.close().unwrap();
        drop(store);
        assert_eq!(features(&disk), [3, 3]);
        assert_clean(&open(&disk));
    }
}

#[test]
fn an_older_store_takes_changes_although_a_superblock_cannot_be_written() {
    let disk = Arc::into_inner(older_on(16 * MIB)).unwrap();
    let faults = FaultDisk::new(disk);
    let reopened = || open(&Arc::new(faults.clone()));
    // The first write of an opening marks a superblock.
    faults.fail_nth(DiskCall::Write, 0, FaultDuration::Once, ErrorKind::Other);
    let store = reopened();
    create(&store, "more", b"content");
    store.close().unwrap();
    drop(store);
    assert_eq!(
        features(faults.inner()),
        [1, 1],
        "the other one is left alone"
    );
    let store = reopened();
    assert_clean(&store);
    create(&store, "again", b"content");
    store.close().unwrap();
    assert_eq!(features(faults.inner()), [3, 3]);
}

/// Returns the sectors that hold anything, every `step`th of them.
fn sectors_in_use(disk: &MemDisk, step: usize) -> Vec<u64> {
    let bytes = disk_bytes(disk);
    let in_use = |sector: &&[u8]| sector.iter().any(|byte| *byte != 0);
    let sectors = bytes.chunks(SECTOR as usize).zip(0..);
    sectors
        .filter(|(sector, _)| in_use(sector))
        .map(|(_, at)| at)
        .step_by(step)
        .collect()
}

#[test]
fn a_bad_sector_anywhere_costs_no_file_but_those_that_lie_there() {
    let (disk, files) = filled(64 * MIB, 1100);
    let store = open(&disk);
    let places = store.places();
    drop(store);
    let mut looked = 0;
    let mut damaged = 0;
    for at in sectors_in_use(&disk, 3) {
        let sector = DiskPlace {
            byte: at * SECTOR,
            bytes: SECTOR,
            what: "",
            owner: None,
        };
        let mine: Vec<_> = places
            .iter()
            .filter(|place| {
                place.byte < (at + 1) * SECTOR && place.byte + place.bytes > at * SECTOR
            })
            .filter_map(|place| place.owner)
            .collect();
        invert(&disk, &sector);
        let store = try_open(&disk).unwrap_or_else(|e| panic!("sector {at} of {mine:?}: {e}"));
        for (i, no) in (0_u64..).zip(&files) {
            match store.read(*no, 0, 8) {
                Ok(bytes) => assert_eq!(bytes, i.to_le_bytes(), "sector {at}: file {i}"),
                Err(_) => {
                    damaged += 1;
                    assert!(mine.contains(no), "sector {at}: file {no} is lost");
                }
            }
        }
        drop(store);
        invert(&disk, &sector);
        looked += 1;
    }
    println!("{looked} sectors, {damaged} files lost in all");
    assert!(looked > 100 && damaged > 50, "{looked} sectors, {damaged}");
}
