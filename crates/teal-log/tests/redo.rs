//! Batches redone after a crash.
#![allow(clippy::unwrap_used, reason = "tests panic where they fail")]

use std::sync::Arc;
use teal_env::{MemDisk, SystemClock, SystemEntropy};
use teal_log::{Cost, MkfsOptions, NewObject, OpenOptions, Store};
use teal_types::{FileType, Name, ObjectNo, Timestamp};

#[test]
fn a_new_file_with_a_hole_is_found_again() {
    let disk = Arc::new(MemDisk::new((16 << 20) / 512));
    Store::mkfs(disk.clone(), Arc::new(SystemClock), &SystemEntropy, &MkfsOptions::default()).unwrap();
    let open = || Store::open(disk.clone(), Arc::new(SystemClock), OpenOptions::default()).unwrap().0;
    let store = open();
    let op = store.begin(Cost::data(40_960)).unwrap();
    let mut locked = op.lock(&[ObjectNo::ROOT]).unwrap();
    let now = Timestamp::default();
    let file = locked.create(NewObject { kind: FileType::File, perm: 0o644, uid: 0, gid: 0, rdev: 0, now });
    locked.insert_entry(ObjectNo::ROOT, &Name::new(b"f").unwrap(), file).unwrap();
    locked.write(file, 0, &[1; 16_384]).unwrap();
    locked.punch(file, 4096, 8192).unwrap();
    drop(locked);
    drop(op);
    store.commit().unwrap();
    drop(store);
    let bytes = open().read(file, 0, 20_000).unwrap();
    assert_eq!(bytes.len(), 16_384);
    assert!(bytes.iter().enumerate().all(|(at, &b)| (b == 0) == (4096..8192).contains(&at)));
}
