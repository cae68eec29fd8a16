//! Disks that fail and decay: no panic, no wrong data, no promise that does not hold.

use crate::explore::{Allowed, Effort, Explorer, assert_checked, begun, made, shape};
use crate::life::{Life, Plan, fresh, open};
use crate::oracle::{Content, Model};
use std::io::ErrorKind;
use std::sync::Arc;
use teal_env::Disk;
use teal_log::{CheckOptions, Store, StoreError, StoreOpenError};
use teal_testkit::{DiskCall, FaultDisk, FaultDuration, Rng};
use teal_types::Sector;

const CALM: Plan = Plan {
    heavy: 0.05,
    spare: 1 << 20,
    batch: 5,
};

fn on_faults(
    seed: u64,
    physical: u32,
    sparse: bool,
) -> (FaultDisk<teal_testkit::RecordingDisk>, Life) {
    let (note, clock) = made(shape(16, physical, false, sparse), seed);
    let faults = FaultDisk::new(note.clone());
    let recorder = note.clone();
    faults.on_failed_sync(move || recorder.sync_failed());
    let disk: Arc<dyn Disk> = Arc::new(faults.clone());
    let store = open(&disk, &clock).unwrap();
    let model = fresh(&store);
    (
        faults,
        Life::new(note, disk, store, clock, Rng::new(seed), model, CALM),
    )
}

/// What a store that met a fault must still do: say so, refuse writing, go on reading.
fn assert_poisoned(life: &mut Life, name: &str) {
    let before = life.store.counter_values().writes;
    assert!(
        matches!(life.store.commit(), Err(StoreError::Poisoned)),
        "{name}: a commit after the failure promises something"
    );
    assert!(
        matches!(life.store.checkpoint(), Err(StoreError::Poisoned)),
        "{name}"
    );
    assert_eq!(
        life.store.counter_values().writes,
        before,
        "{name}: it goes on writing"
    );
}

#[test]
fn every_call_may_fail_once_and_nothing_promised_is_lost() {
    let (mut failed, mut poisoned) = (0, 0);
    for seed in 0..3 {
        let calls = {
            let (faults, mut life) = on_faults(seed, 512, false);
            life.run(150).unwrap();
            life.reopen(true).unwrap();
            faults.all_calls()
        };
        for nth in 0..calls {
            let name = format!("seed {seed}, call {nth}");
            let (faults, mut life) = on_faults(seed, 512, false);
            faults.tear_writes();
            faults.fail_any(nth, FaultDuration::Once, ErrorKind::Other);
            let done = life.run(150);
            faults.clear_faults();
            failed += u64::from(done.is_err());
            if life.store.is_poisoned() {
                poisoned += 1;
                assert_poisoned(&mut life, &name);
            }
            // The process ends, the machine goes on: reads see all that was written.
            let trace = life.note.trace();
            let allowed = Allowed::at(&trace, trace.events().len(), &life.batches, 0);
            let store = open(&life.disk, &life.clock).unwrap_or_else(|e| panic!("{name}: {e}"));
            allowed
                .shown(&store)
                .unwrap_or_else(|what| panic!("{name}: {what}"));
            assert_checked(&store, true).unwrap_or_else(|what| panic!("{name}: {what}"));
        }
    }
    assert!(
        failed > 100 && poisoned > 80,
        "{failed} failed, {poisoned} poisoned"
    );
}

#[test]
fn a_failed_sync_is_never_repaired_by_the_next_one() {
    for seed in 10..14 {
        let syncs = {
            let (faults, mut life) = on_faults(seed, 512, false);
            life.run(30).unwrap();
            faults.call_count(DiskCall::Sync)
        };
        for nth in 1..syncs {
            let (faults, mut life) = on_faults(seed, 512, false);
            faults.fail_nth(DiskCall::Sync, nth, FaultDuration::Once, ErrorKind::Other);
            if life.run(30).is_ok() {
                continue;
            }
            assert_poisoned(&mut life, "a failed sync");
            let mut explorer = Explorer::new(
                Effort {
                    policy: teal_testkit::CrashPolicy {
                        exhaustive: 3,
                        random: 6,
                        unreadable: false,
                    },
                    second_life: 1000,
                    second_crash: 1000,
                    verify: 50,
                },
                seed,
            );
            explorer.explore(&life, &format!("seed {seed}, sync {nth}"));
            assert!(explorer.failures.is_empty(), "{:#?}", explorer.failures);
        }
    }
}

#[test]
fn a_full_host_refuses_operations_and_poisons_nothing() {
    for seed in 20..24 {
        let (faults, mut life) = on_faults(seed, 4096, true);
        life.plan = Plan {
            heavy: 0.5,
            spare: 0,
            batch: 6,
        };
        faults.limit_allocation(4 * 2048);
        for _ in 0..6 {
            match life.run(40) {
                Ok(()) => {}
                Err(e) => panic!("seed {seed}: {e}"),
            }
        }
        assert!(
            life.seen.refused > 0,
            "seed {seed}: the host was never full"
        );
        assert!(!life.store.is_poisoned(), "seed {seed}");
        life.reopen(false)
            .unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        assert_checked(&life.store, true).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        // With room again it goes on.
        faults.limit_allocation(32 << 11);
        life.run(20).unwrap();
        life.reopen(true).unwrap();
    }
}

/// Reads everything; says whether something could not be read. Panics when what is read is wrong.
fn read_all(store: &Store, model: &Model, name: &str) -> bool {
    let mut has_failed = false;
    let mut note = |e: StoreError| match e {
        StoreError::Corrupt { .. } | StoreError::Io { .. } => has_failed = true,
        e => panic!("{name}: {e}"),
    };
    for (no, object) in &model.objects {
        match store.attr(*no) {
            Ok(attr) => assert!(
                (attr.kind, attr.perm, attr.rdev) == (object.kind, object.perm, object.rdev),
                "{name}: wrong attributes of {no}"
            ),
            Err(e) => note(e),
        }
        if let Content::Dir(map) = &object.content {
            let mut visit = |_, child, _, entry: &teal_types::Name| {
                assert_eq!(map.get(entry), Some(&child), "{name}: a wrong entry");
                std::ops::ControlFlow::Continue(())
            };
            store
                .each_entry(*no, 0, &mut visit)
                .unwrap_or_else(&mut note);
        }
        for (key, value) in &object.xattrs {
            match store.xattr(*no, key) {
                Ok(got) => assert_eq!(
                    got.as_ref(),
                    Some(&**value),
                    "{name}: a wrong xattr of {no}"
                ),
                Err(e) => note(e),
            }
        }
        if let Content::File(bytes) = &object.content {
            let blocks: Vec<u64> = bytes
                .blocks
                .keys()
                .copied()
                .filter(|b| b * 4096 < bytes.size)
                .collect();
            for block in blocks {
                match store.read(*no, block * 4096, 4096) {
                    Ok(got) => assert!(
                        got == bytes.blocks[&block][..got.len()],
                        "{name}: wrong data in {no}"
                    ),
                    Err(e) => note(e),
                }
            }
        }
    }
    store.orphans().map(drop).unwrap_or_else(&mut note);
    has_failed
}

/// A bit of any sector ever written flips at rest. What a store after a clean end cannot notice:
/// decay of what nobody refers to any more. What it cannot notice without a clean end: decay of the
/// very last record, which looks like a torn tail.
#[test]
fn a_flipped_bit_is_an_error_or_harmless_but_never_data() {
    let (mut flips, mut refused, mut unread, mut cut) = (0, 0, 0, 0);
    for seed in 30..48 {
        let physical = if seed % 2 == 0 { 512 } else { 4096 };
        let mut life = begun(
            shape(16, physical, false, false),
            seed,
            Plan {
                heavy: 0.1,
                spare: 1 << 20,
                batch: 6,
            },
        );
        life.run(120).unwrap();
        life.ending(Store::checkpoint).unwrap();
        life.run(20).unwrap();
        let is_clean = seed % 3 != 0;
        if is_clean {
            life.reopen(true).unwrap();
        }
        let bytes = life.note.snapshot();
        let written: Vec<u64> = (0..bytes.len() as u64 / 512)
            .filter(|s| bytes[*s as usize * 512..][..512].iter().any(|b| *b != 0))
            .collect();
        life.note.restart_trace();
        let trace = life.note.trace();
        let mut rng = Rng::new(seed);
        let none = teal_testkit::CrashPolicy {
            exhaustive: 0,
            random: 0,
            unreadable: false,
        };
        for sector in written {
            if rng.below(6) != 0 && sector > 64 {
                continue;
            }
            flips += 1;
            let image = teal_testkit::CrashWalk::new(&trace)
                .crash_images(&mut rng.fork(), &none)
                .next()
                .unwrap();
            let bit = rng.below(4096) as u32;
            image.disk.flip_bit(Sector::new(sector), bit);
            let name = format!("seed {seed}, sector {sector}, bit {bit}");
            let disk: Arc<dyn Disk> = Arc::new(image.disk.clone());
            let store = match open(&disk, &life.clock) {
                Ok(store) => store,
                Err(
                    e @ (StoreOpenError::Lost { .. }
                    | StoreOpenError::Store(StoreError::Corrupt { .. })),
                ) => {
                    refused += 1;
                    assert!(!e.to_string().is_empty());
                    continue;
                }
                Err(e) => panic!("{name}: {e}"),
            };
            if store.space().objects != life.model.objects.len() as u64
                || life.model.differs(&store, false).is_err()
            {
                let is_unreadable = read_all_or_older(&store, &life);
                assert!(
                    is_unreadable || !is_clean,
                    "{name}: the end was cut off silently"
                );
                cut += 1;
                if !is_unreadable {
                    continue;
                }
            }
            if read_all(&store, &life.model, &name) {
                unread += 1;
                let report = store.check(CheckOptions { verify_data: true }, &mut |_| {});
                assert!(
                    !report.is_clean(),
                    "{name}: check does not see what reading meets"
                );
            }
        }
    }
    println!(
        "{flips} flips: {refused} refused at opening, {unread} seen when reading, {cut} cut or unreadable"
    );
    assert!(
        flips > 2000 && refused > 10 && unread > 500,
        "{flips} {refused} {unread}"
    );
}

/// Returns whether reading meets an error, as opposed to an older state.
fn read_all_or_older(store: &Store, life: &Life) -> bool {
    let fails = |no: &teal_types::ObjectNo| {
        matches!(store.attr(*no), Err(StoreError::Corrupt { .. }))
            || matches!(
                store.each_entry(
                    *no,
                    0,
                    &mut |_, _, _, _| std::ops::ControlFlow::Continue(())
                ),
                Err(StoreError::Corrupt { .. })
            )
    };
    let notes = store.each_note(teal_types::ObjectNo::new(0), &mut |_, _| {
        std::ops::ControlFlow::Continue(())
    });
    life.model.objects.keys().any(fails) || store.orphans().is_err() || notes.is_err()
}

/// Leaves a store behind with a log that changes much, and opens it: all of it waits.
fn crashed(seed: u64) -> (FaultDisk<teal_testkit::RecordingDisk>, Life) {
    let (faults, mut life) = on_faults(seed, 512, false);
    life.plan.batch = 1000;
    life.run(150).unwrap();
    life.store.checkpoint().unwrap();
    life.run(60).unwrap();
    life.open_anew().unwrap();
    (faults, life)
}

#[test]
fn an_object_that_cannot_be_brought_up_to_date_is_refused_until_it_can() {
    let (mut refused, mut kept) = (0, 0);
    for seed in 20..32 {
        let (mut faults, mut life) = crashed(seed);
        let opened = faults.call_count(DiskCall::Read);
        life.model.differs(&life.store, true).unwrap();
        let reads = faults.call_count(DiskCall::Read) - opened;
        for nth in 0..reads {
            let name = format!("seed {seed}, read {nth}");
            life.open_anew().unwrap();
            faults.fail_nth(
                DiskCall::Read,
                faults.call_count(DiskCall::Read) + nth,
                FaultDuration::Forever,
                ErrorKind::Other,
            );
            // One by one, or all at once.
            let looked = if nth % 2 == 0 {
                life.model.differs(&life.store, true)
            } else {
                life.store.checkpoint().map_err(|e| e.to_string())
            };
            faults.clear_faults();
            refused += u64::from(looked.is_err());
            life.model
                .differs(&life.store, true)
                .unwrap_or_else(|what| panic!("{name}: {what}"));
            assert_checked(&life.store, true).unwrap_or_else(|what| panic!("{name}: {what}"));
            // What was not brought up to date is in no checkpoint.
            if nth % 2 == 1 && !life.store.is_poisoned() {
                kept += 1;
                life.store.close().unwrap_or_else(|e| panic!("{name}: {e}"));
                (faults, life) = crashed(seed);
            }
        }
    }
    println!("{refused} refused, {kept} kept");
    assert!(refused > 20 && kept > 10, "{refused} refused, {kept} kept");
}
