//! The explorer and `check` are tested themselves: each bug of [`teal_log::seeded`], switched on,
//! is caught.

#![allow(clippy::unwrap_used, reason = "all of it is test code")]

#[path = "suite/deleted.rs"]
mod deleted;
#[path = "suite/explore.rs"]
mod explore;
#[path = "suite/life.rs"]
mod life;
#[path = "suite/new_objects.rs"]
mod new_objects;
#[path = "suite/oracle.rs"]
mod oracle;
#[path = "suite/sealing.rs"]
mod sealing;
#[path = "suite/unfinished.rs"]
mod unfinished;

use explore::{Effort, Explorer, assert_checked, begun, made, shape};
use life::{Life, Plan, fresh, open, options};
use new_objects::new_file;
use std::io::ErrorKind;
use std::sync::Arc;
use teal_env::Disk;
use teal_log::seeded::{Bug, seed};
use teal_log::{Cost, Store, StoreOpenError};
use teal_testkit::{CrashPolicy, CrashWalk, DiskCall, FaultDisk, FaultDuration, Rng};
use teal_types::Sector;

/// Lives looked at before a bug counts as missed.
const LIVES: u64 = 24;

/// One life under the bug, by the same means as the tests of the sound store. `Err` says what was
/// noticed.
fn life(turn: u64) -> Result<(), String> {
    let physical = if turn.is_multiple_of(2) { 512 } else { 4096 };
    let plan = Plan {
        heavy: if turn.is_multiple_of(3) { 0.5 } else { 0.05 },
        spare: 1 << 20,
        batch: 5,
    };
    let mut life = begun(shape(16, physical, false, false), turn, plan);
    for _ in 0..3 {
        life.run(40).map_err(|e| e.to_string())?;
        life.reopen(true)?;
        let (_, recovery) = Store::open(
            Arc::clone(&life.disk),
            Arc::new(life.clock.clone()),
            options(),
        )
        .map_err(|e| e.to_string())?;
        if !recovery.clean {
            return Err("a clean end does not look like one".into());
        }
        assert_checked(&life.store, true)?;
    }
    let policy = CrashPolicy {
        exhaustive: 5,
        random: 24,
        unreadable: true,
    };
    let mut explorer = Explorer::new(
        Effort {
            policy,
            second_life: 3,
            second_crash: 50,
            verify: 8,
        },
        turn,
    );
    explorer.explore(&life, &format!("life {turn}"));
    explorer.kill_and_cut(&life, &format!("life {turn}"));
    explorer.failures.pop().map_or(Ok(()), Err)?;
    decay(&mut life, turn)?;
    failed_sync(turn)?;
    sealing::readers_beside_checkpoints(10)?;
    unfinished::cut_checkpoints(physical, turn)?;
    deleted::repair_after_deletions(turn)?;
    churn(turn)
}

/// A flipped bit in the header of a record that a later one calls durable must not cut off what is
/// behind it. (What came after the last barrier but one of a store that was not closed looks like a
/// torn tail.)
fn decay(life: &mut Life, turn: u64) -> Result<(), String> {
    life.plan.batch = 3;
    life.run(8).map_err(|e| e.to_string())?;
    life.note.restart_trace();
    let (trace, bytes) = (life.note.trace(), life.note.snapshot());
    let none = CrashPolicy {
        exhaustive: 0,
        random: 0,
        unreadable: false,
    };
    let number = |sector: usize, at: usize| {
        u64::from_le_bytes(bytes[sector * 512 + at..][..8].try_into().unwrap())
    };
    let (seq, watermark) = (|sector| number(sector, 32), |sector| number(sector, 48));
    let mut records: Vec<usize> = (0..bytes.len() / 512)
        .filter(|s| bytes[s * 512..].starts_with(b"TREC"))
        .collect();
    records.sort_unstable_by_key(|sector| seq(*sector));
    let durable = records
        .iter()
        .map(|sector| watermark(*sector))
        .max()
        .ok_or("no records")?;
    records.retain(|sector| seq(*sector) <= durable);
    if records.len() < 3 {
        return Err("hardly a record is called durable".into());
    }
    for sector in records.into_iter().rev().take(40) {
        let image = CrashWalk::new(&trace)
            .crash_images(&mut Rng::new(turn), &none)
            .next()
            .ok_or("no image")?;
        image.disk.flip_bit(Sector::new(sector as u64), 4000);
        let disk: Arc<dyn Disk> = Arc::new(image.disk.clone());
        match open(&disk, &life.clock) {
            Ok(store) => life
                .model
                .differs(&store, false)
                .map_err(|what| format!("record at {sector} decayed: {what}"))?,
            Err(StoreOpenError::Lost { .. } | StoreOpenError::Anchors) => {}
            Err(e) => return Err(e.to_string()),
        }
    }
    Ok(())
}

/// On a nearly full store whole segments of log die within one interval. The newest anchor lost,
/// the one before still leads through them.
fn churn(turn: u64) -> Result<(), String> {
    let life = begun(
        shape(16, 512, false, false),
        turn,
        Plan {
            heavy: 0.5,
            spare: 0,
            batch: 9,
        },
    );
    let cost = Cost::write(700_000);
    let mut files = Vec::new();
    let new = new_file();
    let put = |store: &Store| {
        let op = store.begin(cost).ok()?;
        let mut locked = op.lock(&[]).ok()?;
        let no = locked.create(new);
        locked.set_orphan(no, true).ok()?;
        locked
            .write(no, 0, &[turn as u8 + 1; 700_000])
            .ok()
            .map(|()| no)
    };
    while life.store.space().free > 4_000_000 {
        files.push(put(&life.store).ok_or("no room")?);
        life.store.commit().map_err(|e| e.to_string())?;
    }
    let say = |e: teal_log::StoreError| e.to_string();
    let churn = || -> Result<(), String> {
        // Enough to come round to what the first half left dead, not so much that checkpoints come
        // in between.
        for _ in 0..6 + turn % 5 {
            // No room only means that the store checkpoints and cleans on its own.
            let Some(no) = put(&life.store) else { continue };
            life.store.commit().map_err(say)?;
            let op = life.store.begin(Cost::names(1).freeing()).map_err(say)?;
            op.lock(&[no])
                .and_then(|mut locked| locked.free_object(no))
                .map_err(say)?;
        }
        life.store.commit().map_err(say)
    };
    for _ in 0..8 {
        churn()?;
        life.store.checkpoint().map_err(say)?;
        churn()?;
        life.note.restart_trace();
        let trace = life.note.trace();
        let none = CrashPolicy {
            exhaustive: 0,
            random: 0,
            unreadable: false,
        };
        let image = CrashWalk::new(&trace)
            .crash_images(&mut Rng::new(turn), &none)
            .next()
            .ok_or("no image")?;
        let policy = CrashPolicy::default();
        Explorer::new(
            Effort {
                policy,
                second_life: 1,
                second_crash: 1,
                verify: 1,
            },
            turn,
        )
        .lose_newest_anchor(&image);
        let disk: Arc<dyn Disk> = Arc::new(image.disk.clone());
        let store = open(&disk, &life.clock).map_err(|e| format!("newest anchor lost: {e}"))?;
        assert_checked(&store, true)?;
        (store.orphans().map_err(say)? == files)
            .then_some(())
            .ok_or("other files than were left")?;
    }
    Ok(())
}

/// After a failed sync nothing may be promised.
fn failed_sync(turn: u64) -> Result<(), String> {
    let (note, clock) = made(shape(16, 512, false, false), turn);
    let faults = FaultDisk::new(note.clone());
    let recorder = note.clone();
    faults.on_failed_sync(move || recorder.sync_failed());
    let disk: Arc<dyn Disk> = Arc::new(faults.clone());
    let store = open(&disk, &clock).map_err(|e| e.to_string())?;
    let model = fresh(&store);
    let plan = Plan {
        heavy: 0.0,
        spare: 1 << 20,
        batch: 4,
    };
    let mut life = Life::new(note, disk, store, clock, Rng::new(turn), model, plan);
    life.run(5).map_err(|e| e.to_string())?;
    faults.fail_nth(
        DiskCall::Sync,
        faults.call_count(DiskCall::Sync),
        FaultDuration::Once,
        ErrorKind::Other,
    );
    let has_failed = life.run(10).is_err();
    let answer = life.store.commit();
    if has_failed && answer.is_ok() {
        Err("a commit after a failed sync promises".into())
    } else {
        Ok(())
    }
}

/// Returns how many lives until the bug is noticed.
fn caught(bug: Option<Bug>, lives: u64) -> Option<(u64, String)> {
    seed(bug);
    let noticed = (0..lives).find_map(|turn| {
        let lived = std::panic::catch_unwind(|| life(turn));
        let what = lived.unwrap_or_else(|panic| {
            Err(panic
                .downcast_ref::<String>()
                .cloned()
                .unwrap_or_else(|| "a panic".into()))
        });
        what.err().map(|what| (turn + 1, what))
    });
    seed(None);
    noticed
}

#[test]
fn every_seeded_bug_is_caught_and_the_sound_store_is_not() {
    let only = std::env::var("TEAL_SEEDED_BUG").ok();
    assert_eq!(caught(None, 8), None, "the sound store");
    let mut missed = Vec::new();
    for bug in Bug::ALL
        .into_iter()
        .filter(|bug| only.as_ref().is_none_or(|name| *name == format!("{bug:?}")))
    {
        match caught(Some(bug), LIVES) {
            Some((lives, what)) => println!(
                "{bug:?}: life {lives}: {}",
                what.chars().take(160).collect::<String>()
            ),
            None => missed.push(bug),
        }
    }
    assert!(missed.is_empty(), "not caught in {LIVES} lives: {missed:?}");
}
