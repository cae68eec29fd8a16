//! Batches redone after a crash.

use crate::new_objects::new_file;
use crate::stores::{create, format, open, try_open};
use std::io::IoSlice;
use std::sync::Arc;
use teal_env::{Disk, FileDisk, MemDisk, OpenMode};
use teal_log::{AttributeChanges, CheckOptions, Cost, StoreOpenError};
use teal_types::{Name, ObjectNo, Sector};

#[test]
fn a_new_file_with_a_hole_is_found_again() {
    let disk = Arc::new(MemDisk::new((16 << 20) / 512));
    format(&disk);
    let store = open(&disk);
    let op = store.begin(Cost::write(40_960)).unwrap();
    let mut locked = op.lock(&[ObjectNo::ROOT]).unwrap();
    let file = locked.create(new_file());
    locked
        .insert_entry(ObjectNo::ROOT, &Name::new(b"f").unwrap(), file)
        .unwrap();
    locked.write(file, 0, &[1; 16_384]).unwrap();
    locked.punch(file, 4096, 8192).unwrap();
    drop(locked);
    drop(op);
    store.commit().unwrap();
    drop(store);
    let bytes = open(&disk).read(file, 0, 20_000).unwrap();
    assert_eq!(bytes.len(), 16_384);
    assert!(
        bytes
            .iter()
            .enumerate()
            .all(|(at, &b)| (b == 0) == (4096..8192).contains(&at))
    );
}

#[test]
fn opening_reads_no_object_and_then_nothing_until_somebody_asks() {
    let disk = Arc::new(MemDisk::new((64 << 20) / 512));
    format(&disk);
    let store = open(&disk);
    let files: Vec<_> = (0..3000)
        .map(|n| create(&store, &format!("{n}"), &[1; 100]))
        .collect();
    store.close().unwrap();
    let store = open(&disk);
    for no in files.iter().step_by(3) {
        let op = store.begin(Cost::write(0)).unwrap();
        op.lock(&[*no]).unwrap().set_attr(
            *no,
            AttributeChanges {
                perm: Some(0o600),
                ..AttributeChanges::default()
            },
        );
    }
    store.commit().unwrap();
    drop(store);
    let store = open(&disk);
    let reads = || store.counter_values().reads;
    let opened = reads();
    assert_eq!(store.tick().unwrap(), None);
    assert_eq!(store.space().objects, 3001);
    assert_eq!(reads(), opened, "nobody has asked for anything");
    let asked: Vec<u64> = [0, 0, 1500, 1500]
        .map(|at| {
            assert_eq!(store.attr(files[at]).unwrap().perm, 0o600);
            reads() - opened
        })
        .into();
    assert!(
        0 < asked[0] && asked[0] == asked[1] && asked[1] < asked[2] && asked[2] == asked[3],
        "{asked:?}"
    );
    store.checkpoint().unwrap();
    let settled = reads();
    files
        .iter()
        .step_by(3)
        .for_each(|no| assert_eq!(store.attr(*no).unwrap().perm, 0o600));
    assert_eq!(reads(), settled, "a checkpoint brings all up to date");
    let report = store.check(CheckOptions { verify_data: true }, &mut |_| {});
    assert!(report.is_clean(), "{report:?}");
}

/// A directory with room for large sparse files, which goes with the run of the program.
fn place() -> tempfile::TempDir {
    let room = std::env::var_os("CARGO_TARGET_TMPDIR")
        .unwrap_or_else(|| env!("CARGO_TARGET_TMPDIR").into());
    tempfile::tempdir_in(room).unwrap()
}

#[test]
fn the_first_operation_on_a_large_sparse_store_waits_for_the_host_and_cleans_nothing() {
    let dir = place();
    let disk =
        Arc::new(FileDisk::open(&dir.path().join("store"), OpenMode::Create(1 << 40)).unwrap());
    format(&disk);
    let store = open(&disk);
    let first = create(&store, "first", &[1; 100]);
    store.commit().unwrap();
    drop(store);
    let store = open(&disk);
    let before = store.counter_values();
    let second = create(&store, "second", &[2; 100]);
    let spent = store.counter_values().since(&before);
    assert_eq!(
        (
            spent.waits,
            spent.batches,
            spent.checkpoints,
            spent.segments_cleaned
        ),
        (1, 0, 0, 0),
        "{spent:?}"
    );
    store.commit().unwrap();
    assert_eq!(
        (
            store.read(first, 0, 1).unwrap(),
            store.read(second, 0, 1).unwrap()
        ),
        (vec![1], vec![2])
    );
}

#[test]
fn a_lost_record_is_noticed_without_reading_large_segments_to_their_ends() {
    let dir = place();
    let path = dir.path().join("store");
    let disk = Arc::new(FileDisk::open(&path, OpenMode::Create(1 << 40)).unwrap());
    format(&disk);
    let store = open(&disk);
    let segment = store.superblock().segment_sectors;
    assert!(
        segment >= 16 << 11,
        "a store of this size has large segments"
    );
    // Each in a record of its own, and the second longer than a record may be.
    let content = |n: usize| vec![n as u8 + 1; if n == 1 { 3 << 20 } else { 5000 }];
    let mut ends = Vec::new();
    for n in 0..6 {
        create(&store, &format!("{n}"), &content(n));
        store.commit().unwrap();
        ends.push(store.counter_values().bytes_written);
    }
    drop(store);
    let reopened = open(&disk);
    assert!(
        reopened.counter_values().bytes_read < 8 << 20,
        "{:?}",
        reopened.counter_values()
    );
    drop(reopened);
    let mut bytes = vec![0; 8 << 20];
    disk.read_at(Sector::new(0), &mut bytes).unwrap();
    let records: Vec<usize> = (0..bytes.len() / 512)
        .filter(|at| bytes[at * 512..].starts_with(b"TREC"))
        .collect();
    assert!(
        records.len() > 9 && records.windows(2).all(|pair| pair[1] - pair[0] <= 2048),
        "{records:?}"
    );
    // All but the last batch, which a torn tail may be, are known to be durable by what follows.
    for at in &records[2..records.len() - 2] {
        let sector = &bytes[at * 512..][..512];
        disk.write_at(Sector::new(*at as u64), &[IoSlice::new(&[0; 512])])
            .unwrap();
        let opened = try_open(&disk).map(drop);
        assert!(
            matches!(opened, Err(StoreOpenError::Lost { .. })),
            "without the record at {at}: {opened:?}"
        );
        disk.write_at(Sector::new(*at as u64), &[IoSlice::new(sector)])
            .unwrap();
    }
    try_open(&disk).map(drop).unwrap();
}
