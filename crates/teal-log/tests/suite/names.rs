//! What the store derives from an object's names.

use std::sync::Arc;
use teal_env::{MemDisk, SystemClock, SystemEntropy};
use teal_log::{Cost, MkfsOptions, NewObject, OpenOptions, Store};
use teal_types::{FileType, Name, ObjectNo, Timestamp};

fn store() -> Arc<Store> {
    let disk = Arc::new(MemDisk::new((16 << 20) / 512));
    Store::mkfs(
        disk.clone(),
        Arc::new(SystemClock),
        &SystemEntropy,
        &MkfsOptions::default(),
    )
    .unwrap();
    Store::open(disk, Arc::new(SystemClock), OpenOptions::default())
        .unwrap()
        .0
}

#[test]
fn a_removed_directory_has_no_links() {
    let store = store();
    let name = Name::new(b"d").unwrap();
    let op = store.begin(Cost::names(2)).unwrap();
    let mut locked = op.lock(&[ObjectNo::ROOT]).unwrap();
    let now = Timestamp::default();
    let dir = locked.create(NewObject {
        kind: FileType::Dir,
        perm: 0o755,
        uid: 0,
        gid: 0,
        rdev: 0,
        now,
    });
    locked.insert_entry(ObjectNo::ROOT, &name, dir).unwrap();
    assert_eq!(
        (locked.attr(dir).nlink, locked.attr(ObjectNo::ROOT).nlink),
        (2, 3)
    );
    locked.remove_entry(ObjectNo::ROOT, &name).unwrap();
    locked.set_orphan(dir, true).unwrap();
    assert_eq!(
        (locked.attr(dir).nlink, locked.attr(ObjectNo::ROOT).nlink),
        (0, 2)
    );
}
