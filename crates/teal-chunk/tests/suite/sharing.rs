//! Many threads on one store: commits share puts, equal content meets on its way.

use crate::random_life::{content, open};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use teal_chunk::{MemoryShelf, Shelf, ShelfError, ShelfObject};
use teal_testkit::SimClock;

/// A shelf whose puts wait at a gate.
#[derive(Clone)]
struct Gated(MemoryShelf, Arc<(Mutex<(bool, u32)>, Condvar)>);

impl Shelf for Gated {
    fn place(&self) -> String {
        "gated".into()
    }
    fn put(&self, name: &str, bytes: Vec<u8>) -> Result<(), ShelfError> {
        let mut state = self.1.0.lock();
        state.1 += 1;
        self.1.1.notify_all();
        while !state.0 {
            self.1.1.wait(&mut state);
        }
        self.0.put(name, bytes)
    }
    fn read(&self, name: &str, range: std::ops::Range<u64>) -> Result<Vec<u8>, ShelfError> {
        self.0.read(name, range)
    }
    fn list_objects(&self) -> Result<Vec<ShelfObject>, ShelfError> {
        self.0.list_objects()
    }
    fn remove(&self, name: &str) -> Result<(), ShelfError> {
        self.0.remove(name)
    }
}

#[test]
fn commits_that_wait_for_one_put_share_the_next() {
    let gate = Arc::new((Mutex::new((false, 0)), Condvar::new()));
    let shelf = Gated(MemoryShelf::new(), Arc::clone(&gate));
    let (store, _) = open(Arc::new(shelf.clone()), &SimClock::default(), 1).unwrap();
    let added = std::sync::Barrier::new(9);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| store.put([&b"first"[..]]).map(drop));
        let mut state = gate.0.lock();
        while state.1 == 0 {
            gate.1.wait(&mut state);
        }
        drop(state);
        for n in 0..8_u8 {
            let (store, added) = (&store, &added);
            scope.spawn(move || {
                let mut batch = store.begin_batch().unwrap();
                let id = batch.add(&[n]).unwrap();
                added.wait();
                batch.commit().unwrap();
                assert_eq!(store.get(&id).unwrap(), [n]);
            });
        }
        added.wait();
        let mut state = gate.0.lock();
        state.0 = true;
        gate.1.notify_all();
        drop(state);
        first.join().unwrap().unwrap();
    });
    assert_eq!(shelf.0.snapshot().len(), 2, "eight commits, one put");
}

#[test]
fn threads_store_what_overlaps_and_everything_is_there() {
    let (shelf, clock) = (MemoryShelf::new(), SimClock::default());
    let (store, _) = open(Arc::new(shelf.clone()), &clock, 1).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let store = &store;
            scope.spawn(move || {
                for round in 0..30 {
                    let numbers: Vec<u64> = (0..5)
                        .map(|n| (thread * 13 + round * 7 + n) % 100)
                        .collect();
                    let contents: Vec<Vec<u8>> = numbers.iter().map(|n| content(*n)).collect();
                    let (ids, pin) = store.put(contents.iter().map(Vec::as_slice)).unwrap();
                    let read: Vec<Vec<u8>> = ids.iter().map(|id| store.get(id).unwrap()).collect();
                    assert!(read == contents);
                    drop(pin);
                }
            });
        }
    });
    let checked = open(Arc::new(shelf), &clock, 2)
        .unwrap()
        .0
        .check(|_, _| {})
        .unwrap();
    assert_eq!(
        (checked.problem_count, checked.chunks),
        (0, store.usage().chunks),
        "no chunk is stored twice"
    );
}
