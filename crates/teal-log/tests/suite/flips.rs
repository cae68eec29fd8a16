//! One bit of every structure flips at rest: each kind is noticed where it is read, and by `check`.

use crate::new_objects::new_file;
use crate::stores::{new_disk, open, try_open, write};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use teal_env::{Disk, MemDisk};
use teal_log::{CheckOptions, Cost, DiskPlace, Severity, Store, StoreError, StoreOpenError};
use teal_testkit::Rng;
use teal_types::{Name, ObjectNo, SECTOR, Sector};

const FILES: usize = 800;
/// Flips for each kind of structure: all of its instances, or so many of them.
const FLIPS: usize = 16;

fn content(no: ObjectNo, len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| (i as u64 * 29 + no.get() * 13 + i as u64 / 509) as u8 | 1)
        .collect()
}

/// A store with many instances of every structure, and how long each of its files is.
fn filled() -> (Arc<MemDisk>, BTreeMap<ObjectNo, usize>) {
    let disk = new_disk(64);
    let store = open(&disk);
    let mut files = BTreeMap::new();
    let new = new_file();
    for i in 0..FILES {
        let op = store.begin(Cost::names(2)).unwrap();
        let mut locked = op.lock(&[ObjectNo::ROOT]).unwrap();
        let no = locked.create(new);
        if i % 10 == 0 {
            locked.set_orphan(no, true).unwrap();
        } else {
            let name = Name::new(format!("a file with the number {i}").as_bytes()).unwrap();
            locked.insert_entry(ObjectNo::ROOT, &name, no).unwrap();
        }
        drop(locked);
        drop(op);
        let len = if i % 3 == 0 { 9000 } else { 200 };
        files.insert(no, len);
        write(&store, no, 0, &content(no, len));
    }
    // Every other block, so that the extents need pages.
    let large = *files.keys().find(|no| no.get() % 3 == 1).unwrap();
    for block in 3..600 {
        write(&store, large, block * 8192, &content(large, 4096));
    }
    // What the last checkpoint itself holds is read at every opening, which then refuses: let that
    // be little.
    store.commit().unwrap();
    store.close().unwrap();
    (disk, files)
}

fn flip(disk: &MemDisk, bit: u64) {
    let at = Sector::new(bit / 8 / SECTOR);
    let mut sector = [0; SECTOR as usize];
    disk.read_at(at, &mut sector).unwrap();
    sector[(bit / 8 % SECTOR) as usize] ^= 1 << (bit % 8);
    disk.write_at(at, &[std::io::IoSlice::new(&sector)])
        .unwrap();
}

/// Returns whether reading all of an object meets an error. Panics on wrong data.
fn is_unreadable(store: &Store, no: ObjectNo, len: usize, name: &str) -> bool {
    match store.read(no, 0, len) {
        Ok(bytes) => assert!(
            bytes[..] == content(no, len)[..],
            "{name}: wrong data in {no}"
        ),
        Err(StoreError::Corrupt { .. }) => return true,
        Err(e) => panic!("{name}: {e}"),
    }
    let attr = store.attr(no).unwrap();
    (len as u64..attr.size)
        .step_by(4096)
        .map(|at| at / 4096 * 4096)
        .skip(1)
        .any(|at| match store.read(no, at, 4096) {
            Ok(bytes) => {
                let zero = bytes.iter().all(|b| *b == 0);
                assert!(
                    zero || bytes[..] == content(no, 4096)[..],
                    "{name}: wrong data in {no} at {at}"
                );
                false
            }
            Err(_) => true,
        })
}

/// Everything a user could read, compared; the objects that could not be read.
fn unreadable(store: &Store, files: &BTreeMap<ObjectNo, usize>, name: &str) -> Vec<ObjectNo> {
    let mut out: Vec<_> = files
        .iter()
        .filter(|(no, len)| is_unreadable(store, **no, **len, name))
        .map(|f| *f.0)
        .collect();
    let mut entries = 0;
    let listed = store.each_entry(ObjectNo::ROOT, 0, &mut |_, child, _, _| {
        assert!(files.contains_key(&child), "{name}: an entry for nothing");
        entries += 1;
        ControlFlow::Continue(())
    });
    match listed {
        Ok(()) => assert_eq!(entries, FILES - FILES / 10, "{name}: entries are missing"),
        Err(_) => out.push(ObjectNo::ROOT),
    }
    out
}

/// Says whether the store refused to open.
fn assert_noticed(
    disk: &Arc<MemDisk>,
    files: &BTreeMap<ObjectNo, usize>,
    place: &DiskPlace,
    bit: u64,
) -> bool {
    let name = format!("{} at byte {}, bit {bit}", place.what, place.byte);
    let store = match try_open(disk) {
        Ok(store) => store,
        Err(StoreOpenError::Lost { .. }) => {
            // The record of the last checkpoint, which every opening reads whole.
            assert_eq!(place.what, "an inode record", "{name}: it does not open");
            return true;
        }
        Err(e) => {
            let store_wide = [
                "a page of the inode map",
                "a page of the orphan set",
                "a page of the usage table",
            ];
            assert!(
                store_wide.contains(&place.what),
                "{name}: it does not open: {e}"
            );
            return true;
        }
    };
    let lost = unreadable(&store, files, &name);
    let report = store.check(CheckOptions { verify_data: true }, &mut |_| {});
    let sector = bit / 8 / SECTOR;
    let damage = report
        .problems
        .iter()
        .find(|p| p.severity == Severity::Damage);
    match place.what {
        "an anchor" => {
            assert!(
                lost.is_empty() && report.is_clean(),
                "{name}: {:?}",
                report.problems
            );
            assert!(
                report.problems.iter().any(|p| p.sector == Some(sector)),
                "{name}: no note of it"
            );
            return false;
        }
        "a superblock" => assert!(lost.is_empty(), "{name}: {lost:?}"),
        "a page of the usage table"
        | "a page of the orphan set"
        | "a page of the inode map"
        | "the second copy of a page" => assert!(lost.is_empty(), "{name}: {lost:?}"),
        _ => assert_eq!(
            lost,
            Vec::from_iter(place.owner),
            "{name}: another object is lost"
        ),
    }
    let damage =
        damage.unwrap_or_else(|| panic!("{name}: check does not see it: {:?}", report.problems));
    assert!(damage.sector.is_some(), "{name}: {damage}");
    if lost.len() == 1 {
        assert_eq!(damage.object, Some(lost[0]), "{name}: {damage}");
    }
    false
}

#[test]
fn a_flipped_bit_in_every_kind_of_structure_is_noticed() {
    let (disk, files) = filled();
    let mut kinds: BTreeMap<&str, Vec<DiskPlace>> = BTreeMap::new();
    for place in open(&disk).places() {
        kinds.entry(place.what).or_default().push(place);
    }
    let expected = [
        "a directory page",
        "a page of the inode map",
        "a page of the orphan set",
        "a page of the usage table",
        "a superblock",
        "an anchor",
        "an extent page",
        "an inode record",
        "content",
        "the second copy of a page",
    ];
    assert_eq!(kinds.keys().copied().collect::<Vec<_>>(), expected);
    let mut rng = Rng::new(7);
    for (what, places) in kinds {
        let step = places.len().div_ceil(FLIPS);
        let mut refused = 0;
        for place in places.iter().step_by(step) {
            let bit = place.byte * 8 + rng.below(place.bytes * 8);
            flip(&disk, bit);
            refused += usize::from(assert_noticed(&disk, &files, place, bit));
            flip(&disk, bit);
        }
        println!(
            "{what}: {} instances, every {step}. flipped, {refused} not opened",
            places.len()
        );
        assert!(
            what != "an inode record" || refused * 4 < FLIPS,
            "{refused} of {FLIPS} objects keep the store from opening"
        );
    }
    assert!(unreadable(&open(&disk), &files, "all flipped back").is_empty());
}
