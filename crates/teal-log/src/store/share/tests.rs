//! The limits of sharing, which no short test reaches from outside.

use super::*;
use crate::recovery::open::OpenOptions;
use crate::space::cost::Cost;
use crate::store::handle::Store;
use crate::store::locked::NewObject;
use crate::store::mkfs::MkfsOptions;
use crate::tree::shared_extents::SHARES_MAX;
use std::sync::Arc;
use teal_env::{Disk, MemDisk, SystemClock, SystemEntropy};
use teal_types::{FileType, Timestamp};

fn store() -> Arc<Store> {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new(32 << 11));
    Store::mkfs(
        Arc::clone(&disk),
        Arc::new(SystemClock),
        &SystemEntropy,
        &MkfsOptions::default(),
    )
    .unwrap();
    Store::open(disk, Arc::new(SystemClock), OpenOptions::default())
        .unwrap()
        .0
}

fn file(store: &Store) -> ObjectNo {
    let op = store.begin(Cost::names(1)).unwrap();
    let now = Timestamp::default();
    let mut locked = op.lock(&[]).unwrap();
    let no = locked.create(NewObject {
        kind: FileType::File,
        perm: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        now,
    });
    locked.set_orphan(no, true).unwrap();
    no
}

fn write(store: &Store, no: ObjectNo, at: u64, len: usize) {
    let op = store.begin(Cost::write(len as u64)).unwrap();
    op.lock(&[no])
        .unwrap()
        .write(no, at, &vec![at as u8 | 1; len])
        .unwrap();
}

fn share(store: &Store, from: ObjectNo, to: ObjectNo, len: u64) -> u64 {
    let sharing = store.plan_share((from, 0), (to, 0), len).unwrap();
    let op = store.begin(sharing.cost).unwrap();
    op.lock(&[from, to])
        .unwrap()
        .share((from, 0), (to, 0), len, &sharing)
        .unwrap()
}

#[test]
fn a_count_ends_at_its_limit_and_sharing_stops_before_it() {
    let store = store();
    let (a, b, c) = (file(&store), file(&store), file(&store));
    write(&store, a, 0, 600_000);
    store.commit().unwrap();
    assert_eq!(share(&store, a, b, 600_000), 600_000);
    let shared = &store.objects().reader.shared;
    let mut freed = Vec::new();
    // The second of three extents is as popular as can be.
    shared
        .change_count(
            &store.objects().reader,
            1,
            SHARES_MAX as i32 - 3,
            &mut freed,
        )
        .unwrap();
    let d = file(&store);
    assert_eq!(share(&store, a, d, 600_000), 600_000, "one more may");
    assert_eq!(
        share(&store, a, c, 600_000),
        262_144,
        "up to the extent that takes no more"
    );
    shared
        .change_count(
            &store.objects().reader,
            1,
            3 - SHARES_MAX as i32,
            &mut freed,
        )
        .unwrap();
    assert_eq!(share(&store, a, c, 600_000), 600_000);
    store.objects().account_freed(&freed);
}

#[test]
fn a_step_looks_at_a_bounded_number_of_extents() {
    let store = store();
    let (a, b) = (file(&store), file(&store));
    for n in 0..PIECES_MAX as u64 + 100 {
        write(&store, a, n * 8192, 4096);
    }
    store.commit().unwrap();
    let len = store.attr(a).unwrap().size;
    assert_eq!(
        store.plan_share((a, 0), (b, 0), len).unwrap().bytes,
        PIECES_MAX as u64 * 8192 - 4096
    );
    // The target's extents count, too.
    let whole = file(&store);
    write(&store, whole, 0, 1 << 20);
    write(&store, whole, len, 1);
    store.commit().unwrap();
    assert!(store.plan_share((whole, 0), (a, 0), len).unwrap().bytes <= PIECES_MAX as u64 * 8192);
}

#[test]
fn what_cannot_be_shared_is_left_to_be_copied() {
    let store = store();
    let (a, b, small) = (file(&store), file(&store), file(&store));
    write(&store, a, 0, 50_000);
    write(&store, b, 0, 90_000);
    write(&store, small, 0, 100);
    store.commit().unwrap();
    let bytes = |from, to, len| store.plan_share(from, to, len).unwrap().bytes;
    assert_eq!(
        bytes((small, 0), (a, 0), 100),
        0,
        "it lies in its inode record"
    );
    assert_eq!(
        bytes((a, 0), (small, 0), 50_000),
        50_000,
        "the end of both files"
    );
    assert_eq!(
        bytes((a, 0), (b, 0), 50_000),
        49_152,
        "not the end of the target"
    );
    assert_eq!(
        bytes((a, 0), (small, 0), 49_999),
        49_152,
        "not the end of the source"
    );
    assert_eq!(bytes((a, 1), (small, 1), 50_000), 0, "no whole blocks");
    assert_eq!(bytes((a, 0), (b, 100), 50_000), 0);
    assert_eq!(bytes((a, 90_112), (b, 0), 50_000), 0, "behind the end");
}
