//! The mark of the machine that has a store open.

use crate::new_objects::new_file;
use std::sync::Arc;
use teal_env::{DiskShape, SystemEntropy};
use teal_log::{
    CheckOptions, Cost, MkfsOptions, OpenOptions, OwnedElsewhere, Store, StoreError,
    StoreOpenError, StoreOwner,
};
use teal_testkit::{CrashPolicy, CrashWalk, RecordingDisk, Rng, SimClock};
use teal_types::{Name, ObjectNo, Timestamp};

const SHAPE: DiskShape = DiskShape {
    sectors: 16 << 11,
    logical: 512,
    physical: 512,
    rotational: false,
    sparse: false,
};

fn machine(number: u8, boot: u8) -> StoreOwner {
    StoreOwner::new([number; 16], [boot; 16], &format!("machine {number}"))
}

fn made() -> RecordingDisk {
    let disk = RecordingDisk::new(SHAPE);
    let clock = Arc::new(SimClock::new(Timestamp::new(1_700_000_000, 0)));
    Store::mkfs(
        Arc::new(disk.clone()),
        clock,
        &SystemEntropy,
        &MkfsOptions::default(),
    )
    .unwrap();
    disk.restart_trace();
    disk
}

fn open_as(disk: &RecordingDisk, options: OpenOptions) -> Result<Arc<Store>, StoreOpenError> {
    let clock = Arc::new(SimClock::new(Timestamp::new(1_700_000_000, 0)));
    Ok(Store::open(Arc::new(disk.clone()), clock, options)?.0)
}

fn open(disk: &RecordingDisk, owner: StoreOwner) -> Result<Arc<Store>, StoreOpenError> {
    open_as(
        disk,
        OpenOptions {
            owner,
            ..OpenOptions::default()
        },
    )
}

fn add(store: &Store, name: &str) {
    let op = store.begin(Cost::write(8192)).unwrap();
    let mut locked = op.lock(&[ObjectNo::ROOT]).unwrap();
    let file = locked.create(new_file());
    locked
        .insert_entry(ObjectNo::ROOT, &Name::new(name.as_bytes()).unwrap(), file)
        .unwrap();
    locked.write(file, 0, name.as_bytes()).unwrap();
}

fn has(store: &Store, name: &str) -> bool {
    store
        .lookup(ObjectNo::ROOT, &Name::new(name.as_bytes()).unwrap())
        .unwrap()
        .is_some()
}

#[track_caller]
fn is_refused(disk: &RecordingDisk, owner: StoreOwner) {
    match open(disk, owner) {
        Err(e @ StoreOpenError::OwnedElsewhere { .. }) => {
            let said = e.to_string();
            assert!(
                said.contains("machine 1") && said.contains("2023-11-14 22:13 UTC"),
                "{said}"
            );
            assert!(said.contains("--take-over"), "{said}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_store_is_marked_from_the_first_write_of_an_opening_until_its_clean_end() {
    let disk = made();
    let store = open(&disk, machine(1, 1)).unwrap();
    let before = disk.counters().writes;
    open(&disk, machine(2, 2)).unwrap().close().unwrap();
    assert_eq!(
        disk.counters().writes,
        before,
        "an opening that writes nothing leaves no mark"
    );
    add(&store, "a");
    store.commit().unwrap();
    is_refused(&disk, machine(2, 2));
    store.checkpoint().unwrap();
    is_refused(&disk, machine(2, 2));
    let read = open_as(
        &disk,
        OpenOptions {
            read_only: true,
            owner: machine(2, 2),
            ..OpenOptions::default()
        },
    )
    .unwrap();
    assert!(
        has(&read, "a")
            && read
                .check(CheckOptions { verify_data: true }, &mut |_| {})
                .is_clean()
    );
    store.close().unwrap();
    assert!(has(&open(&disk, machine(2, 2)).unwrap(), "a"));
}

#[test]
fn the_same_machine_goes_on_without_a_word_and_its_clean_end_takes_an_old_mark_away() {
    let disk = made();
    let store = open(&disk, machine(1, 1)).unwrap();
    add(&store, "a");
    store.checkpoint().unwrap();
    drop(store);
    // After a reboot; and a container, which may say another number, in the same life of the
    // machine.
    drop(open(&disk, machine(1, 9)).unwrap());
    drop(open(&disk, machine(9, 1)).unwrap());
    is_refused(&disk, machine(2, 2));
    let store = open(&disk, machine(1, 9)).unwrap();
    store.close().unwrap();
    assert!(
        has(&open(&disk, machine(2, 2)).unwrap(), "a"),
        "nothing was changed, and yet it was closed"
    );
}

#[test]
fn a_store_is_taken_over_only_by_who_says_so_and_carries_the_new_mark() {
    let disk = made();
    let first = open(&disk, machine(1, 1)).unwrap();
    add(&first, "a");
    first.commit().unwrap();
    let elsewhere = OwnedElsewhere::TakeOver;
    let options = OpenOptions {
        owner: machine(2, 2),
        elsewhere,
        ..OpenOptions::default()
    };
    let second = open_as(&disk, options).unwrap();
    add(&second, "b");
    second.commit().unwrap();
    assert!(
        matches!(open(&disk, machine(1, 1)), Err(StoreOpenError::OwnedElsewhere { owner, .. }) if owner == machine(2, 2))
    );
    second.close().unwrap();
    let store = open(&disk, machine(1, 1)).unwrap();
    assert!(has(&store, "a") && has(&store, "b"));
}

#[test]
fn of_two_machines_that_opened_an_unmarked_store_only_the_first_to_write_writes() {
    for is_closed in [false, true] {
        let disk = made();
        let (first, second) = (
            open(&disk, machine(1, 1)).unwrap(),
            open(&disk, machine(2, 2)).unwrap(),
        );
        add(&first, "a");
        add(&second, "b");
        first.commit().unwrap();
        if is_closed {
            first.close().unwrap();
        }
        let before = disk.snapshot();
        assert!(matches!(second.commit(), Err(StoreError::WrittenElsewhere)));
        assert!(second.commit().is_err(), "no later commit succeeds");
        assert!(disk.snapshot() == before, "nothing was written");
        drop((first, second));
        let store = open(&disk, machine(1, 1)).unwrap();
        assert!(has(&store, "a") && !has(&store, "b"));
    }
}

#[test]
fn the_mark_costs_no_write_and_no_barrier() {
    let counters = [StoreOwner::default(), machine(1, 1)].map(|owner| {
        let disk = made();
        let before = disk.counters();
        let store = open(&disk, owner).unwrap();
        add(&store, "a");
        store.commit().unwrap();
        add(&store, "b");
        store.commit().unwrap();
        store.close().unwrap();
        let counters = disk.counters();
        (
            counters.writes - before.writes,
            counters.syncs - before.syncs,
        )
    });
    assert_eq!(counters[0], counters[1]);
}

#[test]
fn after_a_power_cut_whatever_was_promised_is_marked_and_the_same_machine_has_it() {
    let disk = made();
    let store = open(&disk, machine(1, 1)).unwrap();
    // Notes in the trace: how many files are durable; 100 more when the end has begun.
    for (n, name) in ["a", "b", "c"].into_iter().enumerate() {
        add(&store, name);
        if n == 1 {
            store.checkpoint().unwrap()
        } else {
            store.commit().unwrap()
        }
        disk.add_mark(n as u64 + 1);
    }
    disk.add_mark(100);
    store.close().unwrap();
    let (trace, mut rng) = (disk.trace(), Rng::new(1));
    let mut walk = CrashWalk::new(&trace);
    let (mut marked, mut unmarked) = (0, 0);
    for point in trace.crash_points() {
        while walk.point() < point && walk.apply_next().is_some() {}
        let notes: Vec<u64> = trace.marks_before(point).collect();
        let promised = notes
            .iter()
            .filter(|note| **note < 100)
            .max()
            .copied()
            .unwrap_or(0);
        let is_ending = notes.contains(&100);
        for image in walk.crash_images(&mut rng, &CrashPolicy::default()) {
            let ours = open(&image.disk, machine(1, 2)).unwrap();
            for name in ["a", "b", "c"].iter().take(promised as usize) {
                assert!(has(&ours, name), "{image}: {name}");
            }
            match open(&image.disk, machine(2, 2)) {
                Err(StoreOpenError::OwnedElsewhere { .. }) => marked += 1,
                Ok(_) => {
                    assert!(
                        promised == 0 || is_ending,
                        "{image}: {promised} files, and no mark"
                    );
                    unmarked += 1;
                }
                Err(e) => panic!("{image}: {e}"),
            }
        }
    }
    assert!(
        marked > 10 && unmarked > 1,
        "{marked} images with the mark, {unmarked} without"
    );
}
