//! An object whose old state cannot be read after a crash: what the log says of it waits for as
//! long as that lasts, and stops nothing else.

use crate::new_objects::new_file;
use crate::stores;
use std::io::IoSlice;
use std::sync::Arc;
use teal_env::{Disk, DiskShape, SystemClock, SystemEntropy};
use teal_log::{
    AttributeChanges, CheckOptions, CheckProblem, Cost, MkfsOptions, Severity, Store, StoreError,
};
use teal_testkit::RecordingDisk;
use teal_types::{Name, ObjectNo, SECTOR, Sector};

const SHAPE: DiskShape = DiskShape {
    sectors: 16 << 11,
    logical: 512,
    physical: 512,
    rotational: false,
    sparse: false,
};
const PLAIN: AttributeChanges = AttributeChanges {
    perm: None,
    uid: None,
    gid: None,
    atime: None,
    mtime: None,
    ctime: None,
};

fn open(disk: &RecordingDisk) -> Arc<Store> {
    stores::open(&Arc::new(disk.clone()))
}

/// A file whose record holds a kilobyte of `tag`.
fn file(store: &Store, name: &str, tag: u8, content: &[u8]) -> ObjectNo {
    let op = store
        .begin(Cost::write(content.len() as u64 + 8192))
        .unwrap();
    let mut locked = op.lock(&[ObjectNo::ROOT]).unwrap();
    let file = locked.create(new_file());
    locked
        .insert_entry(ObjectNo::ROOT, &Name::new(name.as_bytes()).unwrap(), file)
        .unwrap();
    locked
        .set_xattr(file, b"user.tag", Some(&[tag; 1024]))
        .unwrap();
    locked.write(file, 0, content).unwrap();
    file
}

fn write(store: &Store, no: ObjectNo, at: u64, byte: u8) {
    let op = store.begin(Cost::write(4096)).unwrap();
    op.lock(&[no])
        .unwrap()
        .write(no, at, &[byte; 4096])
        .unwrap();
}

fn change(store: &Store, no: ObjectNo) {
    let op = store.begin(Cost::write(0)).unwrap();
    op.lock(&[no]).unwrap().set_attr(
        no,
        AttributeChanges {
            perm: Some(0o600),
            ..PLAIN
        },
    );
}

/// The sectors that hold nothing but `tag`.
fn sectors_of(disk: &RecordingDisk, tag: u8) -> Vec<Sector> {
    let is_tagged = |(_, bytes): &(usize, &[u8])| bytes.iter().all(|b| *b == tag);
    disk.snapshot()
        .chunks(SECTOR as usize)
        .enumerate()
        .filter(is_tagged)
        .map(|(n, _)| Sector::new(n as u64))
        .collect()
}

fn problems(store: &Store) -> Vec<CheckProblem> {
    store
        .check(CheckOptions { verify_data: true }, &mut |_| {})
        .problems
}

/// As much is written as the disk holds twice: whatever can be reused is.
fn turn_over(store: &Store, no: ObjectNo) {
    for n in 0..2048 * 4 {
        write(store, no, n % 64 * 4096, n as u8);
        if n % 128 == 0 {
            store.commit().unwrap();
        }
    }
    store.checkpoint().unwrap();
}

#[test]
fn what_cannot_be_brought_up_to_date_waits_through_checkpoints_and_stops_nothing() {
    let disk = RecordingDisk::new(SHAPE);
    Store::mkfs(
        Arc::new(disk.clone()),
        Arc::new(SystemClock),
        &SystemEntropy,
        &MkfsOptions::default(),
    )
    .unwrap();
    let store = open(&disk);
    let small = file(&store, "small", 0xa1, b"small");
    let large = file(&store, "large", 0xa2, &[1; 8 << 10]);
    // A map that does not fit its record.
    (0..300).for_each(|n| write(&store, large, n * 8192, n as u8));
    let other = file(&store, "other", 0xa3, &[2; 100]);
    store.checkpoint().unwrap();
    // The log that is read at opening begins behind their records.
    write(&store, other, 0, 3);
    store.close().unwrap();
    let bad: Vec<_> = [0xa1, 0xa2].map(|tag| sectors_of(&disk, tag)).concat();
    let whole = disk.snapshot();
    let store = open(&disk);
    change(&store, small);
    change(&store, large);
    write(&store, large, 40 << 20, 77);
    change(&store, other);
    store.commit().unwrap();
    drop(store);
    let (objects, live) = {
        let space = open(&disk).space();
        (space.objects, space.live)
    };
    bad.iter().for_each(|at| disk.make_unreadable(*at));

    let mut store = open(&disk);
    for life in 0..3 {
        assert_eq!(store.attr(other).unwrap().perm, 0o600);
        turn_over(&store, other);
        for no in [small, large] {
            assert!(
                matches!(store.attr(no), Err(StoreError::Io { .. })),
                "life {life}: {no}"
            );
            let of = |p: &CheckProblem| p.object == Some(no) && p.severity == Severity::Damage;
            assert!(
                problems(&store).iter().any(of),
                "life {life}: check names {no}"
            );
        }
        assert_eq!(store.space().objects, objects, "life {life}");
        if life == 1 {
            store.close().unwrap();
        } else {
            store.commit().unwrap();
        }
        drop(store);
        store = open(&disk);
    }
    drop(store);

    heal(&disk, &bad, &whole);
    let store = open(&disk);
    for no in [small, large, other] {
        assert_eq!(store.attr(no).unwrap().perm, 0o600, "{no}");
    }
    assert_eq!(store.read(large, 40 << 20, 4096).unwrap(), [77; 4096]);
    assert_eq!(store.read(large, 8192 * 299, 1).unwrap(), [43]);
    assert_eq!(store.read(small, 0, 9).unwrap(), b"small");
    assert_eq!(problems(&store), [], "nothing is counted twice");
    store.checkpoint().unwrap();
    assert!(
        store.space().live.abs_diff(live) < 1 << 20,
        "{} and {live} before",
        store.space().live
    );
}

/// Makes `sectors` readable again.
fn heal(disk: &RecordingDisk, sectors: &[Sector], whole: &[u8]) {
    for at in sectors {
        disk.write_at(
            *at,
            &[IoSlice::new(
                &whole[at.byte_offset() as usize..][..SECTOR as usize],
            )],
        )
        .unwrap();
    }
}

#[test]
fn what_becomes_readable_while_a_checkpoint_is_made_is_neither_lost_nor_made_twice() {
    for life in 0..40 {
        let disk = RecordingDisk::new(SHAPE);
        Store::mkfs(
            Arc::new(disk.clone()),
            Arc::new(SystemClock),
            &SystemEntropy,
            &MkfsOptions::default(),
        )
        .unwrap();
        let store = open(&disk);
        let small = file(&store, "small", 0xa1, b"small");
        let other = file(&store, "other", 0xa3, &[2; 100]);
        store.checkpoint().unwrap();
        // The log that is read at opening begins behind their records.
        write(&store, other, 0, 3);
        store.close().unwrap();
        drop(store);
        let bad = sectors_of(&disk, 0xa1);
        let whole = disk.snapshot();
        let store = open(&disk);
        change(&store, small);
        change(&store, other);
        store.commit().unwrap();
        drop(store);
        bad.iter().for_each(|at| disk.make_unreadable(*at));

        let store = open(&disk);
        std::thread::scope(|scope| {
            // Asked for all the time, so that it is found readable in the middle of whatever the
            // checkpoints do.
            let asking = scope.spawn(|| while store.attr(small).is_err() {});
            for n in 0..10 + life % 5 {
                write(&store, other, n * 4096, n as u8);
                store.checkpoint().unwrap();
                if n == 5 {
                    scope.spawn(|| heal(&disk, &bad, &whole));
                }
            }
            asking.join().unwrap();
        });
        // The power goes: nothing that was brought up to date since is on the disk.
        drop(store);
        let store = open(&disk);
        assert_eq!(store.attr(small).unwrap().perm, 0o600, "life {life}");
        assert_eq!(problems(&store), [], "life {life}");
    }
}

/// Lets `to` hold what `from` holds, without a copy.
fn share(store: &Store, from: ObjectNo, to: ObjectNo, len: u64) {
    let mut done = 0;
    while done < len {
        let (source, target) = ((from, done), (to, done));
        let sharing = store.plan_share(source, target, len - done).unwrap();
        let cost = sharing.cost.and_also(Cost::write(0).with_head(4096));
        let op = store.begin(cost).unwrap();
        let mut locked = op.lock(&[from, to]).unwrap();
        let step = locked.share(source, target, len - done, &sharing);
        done += step.unwrap();
    }
}

/// Content that became shared counts twice in its segment until the file that had it is brought up
/// to date: a segment full of it then counts more than it is long. If that file waits through a
/// checkpoint, the usage table on the disk says so, and the store must open all the same.
#[test]
fn a_segment_full_of_shared_content_that_waits_is_no_damage() {
    let disk = RecordingDisk::new(SHAPE);
    Store::mkfs(
        Arc::new(disk.clone()),
        Arc::new(SystemClock),
        &SystemEntropy,
        &MkfsOptions::default(),
    )
    .unwrap();
    let store = open(&disk);
    let content: Vec<u8> = (0..2 << 20).map(|i| (i / 4096 + i % 251) as u8).collect();
    let source = file(&store, "source", 0xa1, &content);
    let target = file(&store, "target", 0xa2, b"");
    store.checkpoint().unwrap();
    // The log that is read at opening begins behind their records.
    let other = file(&store, "other", 0xa3, &[2; 100]);
    store.close().unwrap();
    drop(store);
    let bad = sectors_of(&disk, 0xa1);
    let whole = disk.snapshot();
    let store = open(&disk);
    share(&store, source, target, content.len() as u64);
    store.commit().unwrap();
    drop(store);
    bad.iter().for_each(|at| disk.make_unreadable(*at));

    for life in 0..3 {
        let store = open(&disk);
        assert!(
            matches!(store.attr(source), Err(StoreError::Io { .. })),
            "life {life}: the file that had the content waits"
        );
        assert_eq!(
            store.read(target, 0, content.len()).unwrap(),
            content,
            "life {life}"
        );
        change(&store, other);
        store.checkpoint().unwrap();
    }
    heal(&disk, &bad, &whole);
    let store = open(&disk);
    assert_eq!(store.read(source, 0, content.len()).unwrap(), content);
    assert_eq!(problems(&store), [], "nothing is counted twice");
}
