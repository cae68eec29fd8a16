//! Readers beside a checkpoint: what the trees point to can be read while the batch is sealed.

use crate::new_objects::new_file;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use teal_env::{Disk, MemDisk, SystemClock, SystemEntropy};
use teal_log::{Cost, MkfsOptions, OpenOptions, Store, StoreError};
use teal_types::ObjectNo;

/// Objects with a note and an entry in the set of orphans: several pages of each tree.
const OBJECTS: u64 = 600;

fn made() -> Arc<Store> {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new(64 << 11));
    let options = MkfsOptions {
        label: "sealing".into(),
        owner: (0, 0),
        ..MkfsOptions::default()
    };
    let clock = Arc::new(SystemClock);
    Store::mkfs(Arc::clone(&disk), clock.clone(), &SystemEntropy, &options).unwrap();
    let (store, _) = Store::open(disk, clock, OpenOptions::default()).unwrap();
    for _ in 0..OBJECTS {
        let cost = Cost::names(1).with_note(200);
        let op = store.begin(cost).unwrap();
        let mut locked = op.lock(&[]).unwrap();
        let no = locked.create(new_file());
        locked.set_orphan(no, true).unwrap();
        locked.set_note(no, Some(&[1; 150])).unwrap();
    }
    store.checkpoint().unwrap();
    store
}

/// Reads all trees of the store again and again, with nothing cached, until `ends`.
fn read_all(store: &Store, ends: &AtomicBool) -> Result<(), StoreError> {
    while !ends.load(Ordering::Relaxed) {
        store.drop_caches();
        let mut notes = 0;
        store.each_note(ObjectNo::ROOT, &mut |_, _| {
            notes += 1;
            ControlFlow::Continue(())
        })?;
        assert_eq!(notes, OBJECTS, "each note once");
        assert_eq!(store.orphans()?.len() as u64, OBJECTS);
        store.objects_from(ObjectNo::ROOT, OBJECTS as usize)?;
    }
    Ok(())
}

/// Changes all notes and makes a checkpoint, so many times, while others read. `Err` is what a
/// reader met.
pub(crate) fn readers_beside_checkpoints(rounds: u8) -> Result<(), String> {
    let store = made();
    let objects = store.orphans().unwrap();
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers = [(); 2].map(|()| scope.spawn(|| read_all(&store, &ends)));
        for round in 0..rounds {
            for &no in &objects {
                let op = store.begin(Cost::note().with_note(200)).unwrap();
                op.set_note(no, Some(&[round; 150])).unwrap();
            }
            store.checkpoint().unwrap();
        }
        ends.store(true, Ordering::Relaxed);
        readers.into_iter().try_for_each(|reader| {
            let read = reader.join().expect("a reader panicked");
            read.map_err(|e| format!("beside a checkpoint: {e}"))
        })
    })
}

#[test]
fn trees_are_readable_while_a_batch_is_sealed() {
    assert_eq!(readers_beside_checkpoints(60), Ok(()));
}
