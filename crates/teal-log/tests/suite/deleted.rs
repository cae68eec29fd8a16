//! What was deleted stays deleted when a store is repaired whose inode map is lost in part.

use crate::explore::{assert_checked, made, shape};
use crate::life::open;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use teal_env::{Disk, MemDisk};
use teal_log::{Cost, NewObject, RepairSurvey, Store, StoreError};
use teal_testkit::{Rng, SimClock};
use teal_types::{FileType, Name, ObjectNo, SECTOR, Timestamp};

/// Enough for several leaves of the inode map.
const FILES: u64 = 300;
/// The code of the inode map among the kinds of pages.
const INODE_MAP: u8 = 1;

fn name(n: u64) -> Name {
    Name::new(format!("file {n}").as_bytes()).unwrap()
}

fn create(store: &Store, n: u64) -> Result<ObjectNo, StoreError> {
    let op = store.begin(Cost::create().with_piece(100))?;
    let mut locked = op.lock(&[ObjectNo::ROOT])?;
    let no = locked.create(NewObject {
        kind: FileType::File,
        perm: 0o644,
        uid: 0,
        gid: 0,
        rdev: 0,
        now: Timestamp::default(),
    });
    locked.write(no, 0, &n.to_le_bytes())?;
    locked.insert_entry(ObjectNo::ROOT, &name(n), no)?;
    Ok(no)
}

fn remove(store: &Store, n: u64, no: ObjectNo) -> Result<(), StoreError> {
    let op = store.begin(Cost::unlink().and_also(Cost::free()))?;
    let mut locked = op.lock(&[ObjectNo::ROOT, no])?;
    locked.remove_entry(ObjectNo::ROOT, &name(n))?;
    locked.free_object(no)
}

/// Destroys every leaf of the inode map that does not have the root directory.
fn without_leaves(bytes: &mut [u8]) -> usize {
    let mut pages = 0;
    for sector in bytes.chunks_mut(SECTOR as usize) {
        let first_key = u64::from_le_bytes(sector[24..32].try_into().unwrap());
        if sector.starts_with(b"TPAG") && sector[6..8] == [INODE_MAP, 0] && first_key > 1 {
            sector.fill(0xee);
            pages += 1;
        }
    }
    pages
}

/// Repairs a store in which files were deleted. `Err`: one of them is back.
pub(crate) fn repair_after_deletions(seed: u64) -> Result<(), String> {
    let say = |e: StoreError| e.to_string();
    let (note, clock) = made(shape(16, 512, false, false), seed);
    let disk: Arc<dyn Disk> = Arc::new(note.clone());
    let store = open(&disk, &clock).map_err(|e| e.to_string())?;
    let mut files = BTreeSet::new();
    for n in 0..FILES {
        files.insert((n, create(&store, n).map_err(say)?));
    }
    store.checkpoint().map_err(say)?;
    let mut rng = Rng::new(seed);
    let gone: BTreeSet<_> = files
        .iter()
        .copied()
        .filter(|_| rng.below(3) == 0)
        .collect();
    for (n, no) in &gone {
        remove(&store, *n, *no).map_err(say)?;
    }
    store.close().map_err(say)?;
    drop(store);
    let mut bytes = note.snapshot();
    assert!(without_leaves(&mut bytes) > 2, "the map has several leaves");

    let damaged: Arc<dyn Disk> = Arc::new(MemDisk::from_bytes(bytes));
    let survey = RepairSurvey::open(damaged, Arc::new(SimClock::default()), &mut |_| {})
        .map_err(|e| e.to_string())?;
    let (new, clock) = made(shape(16, 512, false, false), seed + 1);
    let disk: Arc<dyn Disk> = Arc::new(new);
    let store = open(&disk, &clock).map_err(|e| e.to_string())?;
    survey
        .copy_to(&store, &mut |_| {})
        .map_err(|e| e.to_string())?;
    assert_checked(&store, true)?;
    let mut listed = BTreeSet::new();
    store
        .each_entry(ObjectNo::ROOT, 0, &mut |_, _, _, name| {
            listed.insert(name.clone());
            ControlFlow::Continue(())
        })
        .map_err(say)?;
    for (n, no) in &files {
        let is_gone = gone.contains(&(*n, *no));
        if is_gone && (listed.contains(&name(*n)) || store.attr(*no).is_ok()) {
            return Err(format!("file {n} was deleted and is back"));
        }
        if !is_gone && store.read(*no, 0, 8).map_err(say)? != n.to_le_bytes() {
            return Err(format!("file {n} is wrong"));
        }
    }
    Ok(())
}

#[test]
fn a_repair_brings_nothing_back_that_was_deleted() {
    for seed in 0..4 {
        repair_after_deletions(seed).unwrap();
    }
}
