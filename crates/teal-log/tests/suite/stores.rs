//! Stores on disks in memory, and their files.

use crate::new_objects::new_file;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;
use teal_env::{Disk, MemDisk, SystemClock, SystemEntropy};
use teal_log::{
    CheckOptions, CheckReport, Cost, MkfsOptions, OpenOptions, Store, StoreError, StoreOpenError,
};
use teal_types::{Name, ObjectNo, SECTOR, Sector};

/// Makes an empty store on a disk.
pub(crate) fn format(disk: &Arc<impl Disk + 'static>) {
    let options = MkfsOptions {
        label: "test".into(),
        ..MkfsOptions::default()
    };
    Store::mkfs(
        disk.clone(),
        Arc::new(SystemClock),
        &SystemEntropy,
        &options,
    )
    .unwrap();
}

/// Opens a store for writing.
pub(crate) fn try_open(disk: &Arc<impl Disk + 'static>) -> Result<Arc<Store>, StoreOpenError> {
    open_as(disk, OpenOptions::default())
}

pub(crate) fn open_as(
    disk: &Arc<impl Disk + 'static>,
    options: OpenOptions,
) -> Result<Arc<Store>, StoreOpenError> {
    let (store, _) = Store::open(disk.clone(), Arc::new(SystemClock), options)?;
    Ok(store)
}

/// Opens a sound store for writing.
pub(crate) fn open(disk: &Arc<impl Disk + 'static>) -> Arc<Store> {
    try_open(disk).unwrap()
}

/// Makes an empty store of so many mebibytes.
pub(crate) fn new_disk(mib: u64) -> Arc<MemDisk> {
    let disk = Arc::new(MemDisk::new(mib << 11));
    format(&disk);
    disk
}

/// Makes an empty store of so many mebibytes, and opens it.
pub(crate) fn new_store(mib: u64) -> Arc<Store> {
    open(&new_disk(mib))
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

/// Makes a file in the root.
pub(crate) fn try_create(
    store: &Store,
    file: &str,
    content: &[u8],
) -> Result<ObjectNo, StoreError> {
    let op = store.begin(Cost::create().with_piece(content.len() as u64))?;
    let mut locked = op.lock(&[ObjectNo::ROOT])?;
    let no = locked.create(new_file());
    locked.insert_entry(ObjectNo::ROOT, &name(file), no)?;
    locked.write(no, 0, content)?;
    Ok(no)
}

/// Makes a file in the root of a store that has room.
pub(crate) fn create(store: &Store, file: &str, content: &[u8]) -> ObjectNo {
    try_create(store, file, content).unwrap()
}

pub(crate) fn write(store: &Store, no: ObjectNo, at: u64, data: &[u8]) {
    let op = store.begin(Cost::write(data.len() as u64)).unwrap();
    op.lock(&[no]).unwrap().write(no, at, data).unwrap();
}

/// Checks a store, its content too.
pub(crate) fn check(store: &Store) -> CheckReport {
    store.check(CheckOptions { verify_data: true }, &mut |_| {})
}

#[track_caller]
pub(crate) fn assert_clean(store: &Store) -> CheckReport {
    let report = check(store);
    assert!(report.is_clean(), "{:#?}", report.problems);
    report
}

pub(crate) fn disk_bytes(disk: &MemDisk) -> Vec<u8> {
    let mut bytes = vec![0; (disk.shape().sectors * SECTOR) as usize];
    disk.read_at(Sector::new(0), &mut bytes).unwrap();
    bytes
}

/// Puts the bytes of an image in this range onto the disk.
pub(crate) fn put_bytes(disk: &MemDisk, image: &[u8], range: Range<usize>) {
    let at = Sector::new(range.start as u64 / SECTOR);
    disk.write_at(at, &[IoSlice::new(&image[range])]).unwrap();
}
