//! The tests are tested: each bug of [`teal_chunk::seeded`], switched on, is caught by the means of
//! the other tests.
#![allow(clippy::unwrap_used, reason = "tests panic where they fail")]

#[path = "suite/place.rs"]
mod place;
#[path = "suite/random_life.rs"]
mod random_life;

use place::{Ext4, open_store, runtime};
use random_life::{Life, open};
use std::sync::Arc;
use teal_chunk::seeded::{ChunkBug, seed};
use teal_chunk::{AccessMode, DirectoryShelf, MemoryShelf};
use teal_testkit::SimClock;
use tokio::runtime::Runtime;

/// Lives looked at before a bug counts as missed.
const LIVES: u64 = 150;

/// Decay: a damaged chunk is not returned, not said to be here, and repaired by sending it again.
fn decay() -> Result<(), String> {
    for (at, with_checksums) in [(80 + 56, true), (80 + 56, false), (80 + 8, false)] {
        let shelf = MemoryShelf::new();
        let (store, _) =
            open(Arc::new(shelf.clone()), &SimClock::default(), 1).map_err(|e| e.to_string())?;
        let (ids, _) = store.put([&b"7"[..]]).map_err(|e| e.to_string())?;
        let name = shelf.snapshot().into_keys().next().unwrap();
        shelf.damage_object(&name, |pack| {
            pack[at] ^= 1;
            if with_checksums {
                let crc = crc32c::crc32c(&pack[136..137]);
                pack[128..132].copy_from_slice(&crc.to_le_bytes());
                let crc = crc32c::crc32c(&pack[80..132]);
                pack[132..136].copy_from_slice(&crc.to_le_bytes());
            }
        });
        if store.get(&ids[0]).is_ok() {
            return Err("damaged content is returned".into());
        }
        store.put([&b"7"[..]]).map_err(|e| e.to_string())?;
        store
            .get(&ids[0])
            .map_err(|e| format!("not repaired: {e}"))?;
    }
    Ok(())
}

/// Power cuts looked at before a missing sync counts as missed. One may miss it: a `sync(2)` by any other
/// program of the machine makes durable what the bug leaves in memory.
const CUTS: usize = 60;

/// What was put is there after a power cut right behind it.
fn power_cuts(cuts: usize, runtime: &Runtime, ext4: &Ext4) -> Result<(), String> {
    let (store, _) =
        open_store(&ext4.store(), AccessMode::Write, runtime).map_err(|e| e.to_string())?;
    for cut in 0..cuts {
        let content = cut.to_le_bytes();
        let (ids, _) = store.put([&content[..]]).map_err(|e| e.to_string())?;
        let after = ext4.power_cut();
        let (after_cut, _) =
            open_store(&after.store(), AccessMode::Write, runtime).map_err(|e| e.to_string())?;
        after_cut
            .get(&ids[0])
            .map_err(|e| format!("after power cut {cut}: {e}"))?;
    }
    Ok(())
}

/// A power cut takes what was not synced; an interrupted put leaves a file that the next opening
/// removes.
fn directories(cuts: usize) -> Result<(), String> {
    let runtime = runtime();
    let Some(ext4) = Ext4::new("seeded: directories") else {
        return Err("nothing can be mounted here".into());
    };
    power_cuts(cuts, &runtime, &ext4)?;
    let pack = place::files(&ext4.store().join("packs")).pop().unwrap();
    let leftover = format!("{}#1", pack.display());
    std::fs::write(&leftover, "half").unwrap();
    drop(
        DirectoryShelf::open(&ext4.store(), AccessMode::Write, runtime.handle().clone())
            .map_err(|e| e.to_string())?,
    );
    if std::path::Path::new(&leftover).exists() {
        Err("a leftover stays".into())
    } else {
        Ok(())
    }
}

fn noticed(lives: u64, cuts: usize) -> Option<String> {
    let directories = directories(cuts).and_then(|()| decay()).err();
    directories.or_else(|| {
        (0..lives).find_map(|turn| {
            Life::new(turn)
                .run(80)
                .err()
                .map(|e| format!("life {turn}: {e}"))
        })
    })
}

/// One test, since a bug is switched on for the whole process.
#[test]
fn each_bug_is_caught_and_the_sound_store_is_not_blamed() {
    assert_eq!(noticed(20, 5), None);
    for bug in ChunkBug::ALL {
        seed(Some(bug));
        let cuts = if bug == ChunkBug::NotSynced { CUTS } else { 1 };
        let caught = noticed(LIVES, cuts);
        seed(None);
        println!("{bug:?}: {caught:?}");
        assert!(caught.is_some(), "{bug:?} is not caught");
    }
}
