//! The store through its public face: what is committed is found again.

use std::sync::Arc;
use teal_env::{Clock, Disk, MemDisk, SystemClock, SystemEntropy};
use teal_log::{Cost, MkfsOptions, NewObject, OpenOptions, Store, StoreError};
use teal_types::{FileType, Name, ObjectNo};

fn made(mib: u64) -> Arc<MemDisk> {
    let disk = Arc::new(MemDisk::new(mib << 11));
    let options = MkfsOptions { label: "test".into(), owner: (0, 0) };
    Store::mkfs(disk.clone(), Arc::new(SystemClock), &SystemEntropy, &options).unwrap();
    disk
}

fn open(disk: &Arc<MemDisk>) -> Arc<Store> {
    let disk: Arc<dyn Disk> = disk.clone();
    Store::open(disk, Arc::new(SystemClock), OpenOptions::default()).unwrap().0
}

fn name(i: usize) -> Name {
    Name::new(format!("file-{i}").as_bytes()).unwrap()
}

fn create(store: &Store, dir: ObjectNo, name: &Name, kind: FileType) -> ObjectNo {
    let op = store.begin(Cost::names(2)).unwrap();
    let mut locked = op.lock(&[dir]).unwrap();
    let new = NewObject { kind, perm: 0o644, uid: 1, gid: 2, rdev: 0, now: SystemClock.civil() };
    let no = locked.create(new);
    locked.insert_entry(dir, name, no).unwrap();
    no
}

fn write(store: &Store, no: ObjectNo, at: u64, data: &[u8]) {
    let op = store.begin(Cost::data(data.len() as u64)).unwrap();
    op.lock(&[no]).unwrap().write(no, at, data).unwrap();
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + seed * 7 + i / 256) as u8).collect()
}

#[test]
fn what_is_committed_is_found_again_with_and_without_a_clean_end() {
    for clean in [true, false] {
        for checkpoint in [true, false] {
            let disk = made(64);
            let store = open(&disk);
            let sizes = [0, 1, 100, 2048, 2049, 4096, 5000, 70_000, 700_000, 3_000_000];
            let files: Vec<_> =
                (0..sizes.len()).map(|i| create(&store, ObjectNo::ROOT, &name(i), FileType::File)).collect();
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
            drop(store);
            let store = open(&disk);
            for (i, no) in files.iter().enumerate() {
                let mut want = pattern(sizes[i], i);
                want.resize(want.len().max(7000), 0);
                want[1000..7000].copy_from_slice(&pattern(6000, i + 50));
                assert_eq!(store.lookup(ObjectNo::ROOT, &name(i)).unwrap(), Some((*no, FileType::File)));
                let got = store.read(*no, 0, 8_000_000).unwrap();
                assert_eq!(got.len(), want.len(), "file {i}, clean {clean}, checkpoint {checkpoint}");
                assert!(got == want, "file {i}, clean {clean}, checkpoint {checkpoint}");
            }
        }
    }
}

#[test]
fn a_directory_of_thousands_survives_checkpoints_and_roll_forward() {
    let disk = made(64);
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
    drop(store);
    let store = open(&disk);
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
    let disk = made(32);
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
            let op = match store.begin(Cost::data(data.len() as u64)) {
                Ok(op) => op,
                Err(e) => break e,
            };
            op.lock(&[no]).unwrap().write(no, 0, &data).unwrap();
        };
        assert!(matches!(full, StoreError::NoSpace), "round {round}: {full}");
        assert!(made.len() > 150, "round {round}: only {} files of 100 kB fit into 32 MiB", made.len());
        for (i, no) in made.iter().enumerate() {
            let op = store.begin(Cost::names(2).freeing()).unwrap();
            let mut locked = op.lock(&[ObjectNo::ROOT, *no]).unwrap();
            locked.remove_entry(ObjectNo::ROOT, &name(i)).unwrap();
            locked.free(*no).unwrap();
        }
        store.commit().unwrap();
        let now = store.space().free;
        assert!(now + (1 << 20) > free, "round {round}: {now} of {free} bytes came back");
    }
}
