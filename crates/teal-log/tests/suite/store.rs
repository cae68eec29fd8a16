//! The store through its public face: what is committed is found again.

use crate::new_objects::new_file;
use crate::stores::{self, new_disk, open, write};
use std::sync::Arc;
use teal_env::{Clock, Disk, MemDisk, SystemClock};
use teal_log::{Cost, DumpWhat, NewObject, OpenOptions, RawWhat, Store, StoreError, dump_raw};
use teal_types::{FileType, Name, ObjectNo};

fn assert_clean(store: &Store) {
    let report = stores::assert_clean(store);
    assert_eq!(report.objects, store.space().objects);
}

fn name(i: usize) -> Name {
    Name::new(format!("file-{i}").as_bytes()).unwrap()
}

fn create(store: &Store, dir: ObjectNo, name: &Name, kind: FileType) -> ObjectNo {
    let op = store.begin(Cost::names(2)).unwrap();
    let mut locked = op.lock(&[dir]).unwrap();
    let new = NewObject {
        kind,
        perm: 0o644,
        uid: 1,
        gid: 2,
        rdev: 0,
        now: SystemClock.civil_time(),
    };
    let no = locked.create(new);
    locked.insert_entry(dir, name, no).unwrap();
    no
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len)
        .map(|i| (i * 31 + seed * 7 + i / 256) as u8)
        .collect()
}

#[test]
fn what_is_committed_is_found_again_with_and_without_a_clean_end() {
    for clean in [true, false] {
        for checkpoint in [true, false] {
            let disk = new_disk(64);
            let store = open(&disk);
            let sizes = [
                0, 1, 100, 2048, 2049, 4096, 5000, 70_000, 700_000, 3_000_000,
            ];
            let files: Vec<_> = (0..sizes.len())
                .map(|i| create(&store, ObjectNo::ROOT, &name(i), FileType::File))
                .collect();
            for (i, no) in files.iter().enumerate() {
                write(&store, *no, 0, &pattern(sizes[i], i));
                if i % 3 == 0 {
                    store.commit().unwrap();
                }
            }
            if checkpoint {
                store.checkpoint().unwrap();
            }
            // Second round on top: overwrite in the middle, grow.
            for (i, no) in files.iter().enumerate() {
                write(&store, *no, 1000, &pattern(6000, i + 50));
            }
            store.commit().unwrap();
            if clean {
                store.close().unwrap();
            }
            assert_clean(&store);
            drop(store);
            let store = open(&disk);
            assert_clean(&store);
            for (i, no) in files.iter().enumerate() {
                let mut want = pattern(sizes[i], i);
                want.resize(want.len().max(7000), 0);
                want[1000..7000].copy_from_slice(&pattern(6000, i + 50));
                assert_eq!(
                    store.lookup(ObjectNo::ROOT, &name(i)).unwrap(),
                    Some((*no, FileType::File))
                );
                let got = store.read(*no, 0, 8_000_000).unwrap();
                assert_eq!(
                    got.len(),
                    want.len(),
                    "file {i}, clean {clean}, checkpoint {checkpoint}"
                );
                assert!(
                    got == want,
                    "file {i}, clean {clean}, checkpoint {checkpoint}"
                );
            }
        }
    }
}

#[test]
fn a_directory_of_thousands_survives_checkpoints_and_roll_forward() {
    let disk = new_disk(64);
    let store = open(&disk);
    for i in 0..3000 {
        create(&store, ObjectNo::ROOT, &name(i), FileType::File);
        if i % 500 == 499 {
            store.commit().unwrap();
        }
        if i == 1700 {
            store.checkpoint().unwrap();
        }
    }
    store.commit().unwrap();
    assert_clean(&store);
    drop(store);
    let store = open(&disk);
    assert_clean(&store);
    let mut seen = 0;
    store
        .each_entry(ObjectNo::ROOT, 0, &mut |_, _, _, _| {
            seen += 1;
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(seen, 3000);
    assert!((0..3000).all(|i| store.lookup(ObjectNo::ROOT, &name(i)).unwrap().is_some()));
}

#[test]
fn filling_and_emptying_leaves_the_space_it_found() {
    let disk = new_disk(32);
    let store = open(&disk);
    let free = store.space().free;
    for round in 0..6 {
        let mut made = Vec::new();
        let full = loop {
            let i = made.len();
            let op = match store.begin(Cost::names(2)) {
                Ok(op) => op,
                Err(e) => break e,
            };
            drop(op);
            let no = create(&store, ObjectNo::ROOT, &name(i), FileType::File);
            made.push(no);
            let data = pattern(100_000, i);
            let op = match store.begin(Cost::write(data.len() as u64)) {
                Ok(op) => op,
                Err(e) => break e,
            };
            op.lock(&[no]).unwrap().write(no, 0, &data).unwrap();
        };
        assert!(matches!(full, StoreError::NoSpace), "round {round}: {full}");
        assert!(
            made.len() > 150,
            "round {round}: only {} files of 100 kB fit into 32 MiB",
            made.len()
        );
        for (i, no) in made.iter().enumerate() {
            let op = store.begin(Cost::names(2).freeing()).unwrap();
            let mut locked = op.lock(&[ObjectNo::ROOT, *no]).unwrap();
            locked.remove_entry(ObjectNo::ROOT, &name(i)).unwrap();
            locked.free_object(*no).unwrap();
        }
        store.commit().unwrap();
        assert_clean(&store);
        let now = store.space().free;
        assert!(
            now + (1 << 20) > free,
            "round {round}: {now} of {free} bytes came back"
        );
    }
}

#[test]
fn a_dump_shows_every_structure_of_a_store_open_or_not() {
    let disk = new_disk(64);
    let store = open(&disk);
    let file = create(&store, ObjectNo::ROOT, &name(1), FileType::File);
    write(&store, file, 0, &pattern(3_000_000, 1));
    store.checkpoint().unwrap();
    for i in 2..40 {
        create(&store, ObjectNo::ROOT, &name(i), FileType::File);
    }
    let op = store.begin(Cost::names(1)).unwrap();
    let mut locked = op.lock(&[]).unwrap();
    let new = new_file();
    let orphan = locked.create(new);
    locked.set_orphan(orphan, true).unwrap();
    drop(locked);
    drop(op);
    store.commit().unwrap();
    let text = |what| {
        let mut out = Vec::new();
        store.dump(what, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    assert_eq!(text(DumpWhat::Orphans), format!("{orphan}\n"));
    assert_eq!(
        text(DumpWhat::Directory(ObjectNo::ROOT)).lines().count(),
        39
    );
    assert!(text(DumpWhat::InodeMap).lines().count() >= 40);
    assert!(text(DumpWhat::Usage).contains("the log goes on here"));
    let inode = text(DumpWhat::Inode(file));
    assert!(
        inode.contains("size 3000000")
            && inode.contains("name \"file-1\" in #1")
            && inode.contains("blocks 0-")
    );
    let raw = |what| {
        let mut out = Vec::new();
        dump_raw(&*disk, what, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    assert_eq!(
        raw(RawWhat::Superblock).matches("label \"test\"").count(),
        2
    );
    assert!(raw(RawWhat::Anchors).contains("checkpoint 2 at"));
    let chain = raw(RawWhat::Chain);
    assert!(
        chain.contains("checkpoint 2: ")
            && chain.contains("becomes an orphan")
            && !chain.contains("damaged")
    );
    assert!(raw(RawWhat::Segment(0)).contains("fresh-epoch"));
    let missing = dump_raw(&*disk, RawWhat::Segment(9999), &mut Vec::new()).unwrap_err();
    assert!(missing.to_string().contains("no segment 9999"), "{missing}");
}

#[test]
fn the_end_after_a_crash_writes_once_and_the_end_after_an_end_nothing() {
    let disk = new_disk(32);
    let store = open(&disk);
    create(&store, ObjectNo::ROOT, &name(1), FileType::File);
    store.commit().unwrap();
    // Left without a word: the next life, which changes nothing, redoes this and leaves a
    // checkpoint behind.
    drop(store);
    let reopened = |disk: &Arc<MemDisk>| {
        let disk: Arc<dyn Disk> = disk.clone();
        Store::open(disk, Arc::new(SystemClock), OpenOptions::default()).unwrap()
    };
    let (store, recovery) = reopened(&disk);
    assert_eq!(
        (
            recovery.clean,
            recovery.batches,
            store.counter_values().writes
        ),
        (false, 1, 0)
    );
    store.close().unwrap();
    assert_eq!(store.counter_values().checkpoints, 1);
    for _ in 0..2 {
        let (store, recovery) = reopened(&disk);
        assert_eq!((recovery.clean, recovery.batches), (true, 0));
        store.close().unwrap();
        assert_eq!(
            (
                store.counter_values().writes,
                store.counter_values().checkpoints
            ),
            (0, 0),
            "nothing has changed"
        );
    }
}
