//! Large directories: what names made one after the other cost, and stores that place names as they
//! were placed before.

use crate::new_objects::new_file;
use crate::stores::{assert_clean, open};
use std::ops::ControlFlow;
use std::sync::Arc;
use teal_env::{MemDisk, SystemClock, SystemEntropy};
use teal_log::{Cost, MkfsOptions, Store};
use teal_types::{Name, ObjectNo};

const NAMES: usize = 30_000;
/// Names between two checkpoints.
const STEP: usize = 1000;
const DIR: ObjectNo = ObjectNo::ROOT;

fn name(n: usize) -> Name {
    Name::new(format!("IMG_{n:07}.jpg").as_bytes()).unwrap()
}

/// Runs `step` for every name, with a checkpoint after each [`STEP`] of them; bytes of pages
/// written for each name.
fn pages(store: &Store, mut step: impl FnMut(&Store, usize)) -> u64 {
    let before = store.counter_values().bytes_pages;
    for n in 0..NAMES {
        step(store, n);
        if n % STEP == STEP - 1 {
            store.checkpoint().unwrap();
        }
    }
    (store.counter_values().bytes_pages - before) / NAMES as u64
}

fn make(store: &Store, n: usize) {
    let op = store.begin(Cost::create()).unwrap();
    let mut locked = op.lock(&[DIR]).unwrap();
    let no = locked.create(new_file());
    locked.insert_entry(DIR, &name(n), no).unwrap();
}

fn remove(store: &Store, n: usize) {
    let (no, _) = store.lookup(DIR, &name(n)).unwrap().unwrap();
    let op = store.begin(Cost::unlink()).unwrap();
    let mut locked = op.lock(&[DIR, no]).unwrap();
    locked.remove_entry(DIR, &name(n)).unwrap();
    locked.free_object(no).unwrap();
}

fn listed(store: &Store) -> usize {
    let mut count = 0;
    store
        .each_entry(DIR, 0, &mut |_, _, _, _| {
            count += 1;
            ControlFlow::Continue(())
        })
        .unwrap();
    count
}

/// A life of a directory; bytes of pages for each name when it is made and when it is removed.
fn life(options: &MkfsOptions) -> [u64; 2] {
    let disk = Arc::new(MemDisk::new((512 << 20) / 512));
    Store::mkfs(disk.clone(), Arc::new(SystemClock), &SystemEntropy, options).unwrap();
    let store = open(&disk);
    let made = pages(&store, make);
    drop(store);
    let store = open(&disk);
    assert!((0..NAMES).all(|n| store.lookup(DIR, &name(n)).unwrap().is_some()));
    assert_eq!(
        (listed(&store), store.lookup(DIR, &name(NAMES)).unwrap()),
        (NAMES, None)
    );
    assert_clean(&store);
    let removed = pages(&store, remove);
    assert_eq!(listed(&store), 0);
    assert_clean(&store);
    [made, removed]
}

#[test]
fn names_made_or_removed_one_after_the_other_change_few_pages_however_many_there_are() {
    let [made, removed] = life(&MkfsOptions::default());
    assert!(
        made < 200 && removed < 200,
        "{made} bytes of pages for each name made, {removed} removed"
    );
}

#[test]
fn a_store_that_scatters_names_works_as_before() {
    let [made, _] = life(&MkfsOptions {
        scattered_names: true,
        ..MkfsOptions::default()
    });
    assert!(
        made > 500,
        "{made} bytes of pages for each name: this store does not scatter them"
    );
}
