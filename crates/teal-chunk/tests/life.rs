//! Lives of stores under failures and crashes: what was promised is kept, and dead space comes back.
#![allow(clippy::unwrap_used, reason = "tests panic where they fail")]

#[path = "life/life.rs"]
mod life;

use life::{GRACE, Life, content, open};
use std::sync::Arc;
use teal_chunk::ChunkError;
use teal_testkit::SimClock;
use teal_types::ChunkId;

#[test]
fn promises_are_kept_through_failures_crashes_and_collections() {
    for seed in 0..150 {
        let mut life = Life::new(seed);
        if let Err(broken) = life.run(80) {
            panic!("seed {seed}: {broken}");
        }
        let checked = life.store.check(|_, _| {}).unwrap();
        assert_eq!((checked.problem_count, checked.packs), (0, life.store.holding().packs), "seed {seed}");
    }
}

#[test]
fn the_same_seed_gives_the_same_life() {
    let packs = |seed| {
        let mut life = Life::new(seed);
        life.run(60).unwrap();
        life.shelf.objects().snapshot()
    };
    assert!(packs(7) == packs(7) && packs(7) != packs(8));
}

/// A store with every content, in packs of a few, and the names of them.
fn filled(shelf: &life::fault::FaultShelf, clock: &SimClock) -> (teal_chunk::ChunkStore, Vec<ChunkId>) {
    let (store, _) = open(Arc::new(shelf.clone()), clock, 1).unwrap();
    let contents: Vec<Vec<u8>> = (0..80).map(content).collect();
    let (ids, _) = store.put(contents.iter().map(Vec::as_slice)).unwrap();
    (store, ids)
}

fn live_at_every_crash(live: &dyn Fn(usize) -> bool) {
    for seed in 0..40 {
        let shelf = life::fault::FaultShelf::new(teal_chunk::MemoryShelf::new(), seed);
        let clock = SimClock::default();
        let (store, ids) = filled(&shelf, &clock);
        clock.advance(GRACE);
        let live: Vec<ChunkId> = ids.iter().enumerate().filter(|(at, _)| live(*at)).map(|(_, id)| *id).collect();
        shelf.crash_soon();
        let mut marking = store.collect(GRACE).unwrap();
        marking.mark(live.iter().copied());
        let outcome = marking.sweep().run();
        assert!(outcome.is_err() == shelf.is_dead());
        // The second life finds everything that lives, and finishes what the first began.
        let after = life::fault::FaultShelf::new(shelf.after_crash(), seed);
        let (store, _) = open(Arc::new(after.clone()), &clock, seed).unwrap();
        assert!(store.have(&live).iter().all(|had| *had), "seed {seed}");
        clock.advance(GRACE);
        let mut marking = store.collect(GRACE).unwrap();
        marking.mark(live.iter().copied());
        let collected = marking.sweep().run().unwrap();
        assert!(collected.damaged.is_empty() && collected.missing_count == 0);
        live.iter().for_each(|id| drop(store.get(id).unwrap()));
        let bytes: u64 = live.iter().map(|id| store.get(id).unwrap().len() as u64 + 104).sum();
        assert!(store.holding().bytes <= 2 * bytes + 6 * 1024, "seed {seed}: {:?} for {bytes}", store.holding());
    }
}

#[test]
fn a_collection_that_crashes_anywhere_loses_nothing_and_is_finished_later() {
    live_at_every_crash(&|at| at.is_multiple_of(5));
    live_at_every_crash(&|at| at < 20);
    live_at_every_crash(&|_| false);
}

#[test]
fn a_chunk_moved_while_it_is_read_is_found_again() {
    let shelf = life::fault::FaultShelf::new(teal_chunk::MemoryShelf::new(), 1);
    let clock = SimClock::default();
    let (store, ids) = filled(&shelf, &clock);
    clock.advance(GRACE);
    let live: Vec<ChunkId> = ids.iter().copied().step_by(6).collect();
    let contents: Vec<Vec<u8>> = (0..80).map(content).collect();
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..100 {
                        for id in &live {
                            store.get(id).unwrap();
                        }
                    }
                })
            })
            .collect();
        while readers.iter().any(|reader| !reader.is_finished()) {
            let mut marking = store.collect(std::time::Duration::ZERO).unwrap();
            marking.mark(live.iter().copied());
            marking.sweep().run().unwrap();
            store.put(contents.iter().map(Vec::as_slice)).unwrap();
        }
    });
}

#[test]
fn one_collection_at_a_time() {
    let shelf = life::fault::FaultShelf::new(teal_chunk::MemoryShelf::new(), 1);
    let (store, _) = filled(&shelf, &SimClock::default());
    let marking = store.collect(GRACE).unwrap();
    assert!(matches!(store.collect(GRACE), Err(ChunkError::Collecting)));
    drop(marking);
    assert!(store.collect(GRACE).is_ok());
}

#[test]
fn live_chunks_that_are_not_here_are_reported() {
    let shelf = life::fault::FaultShelf::new(teal_chunk::MemoryShelf::new(), 1);
    let (store, _) = filled(&shelf, &SimClock::default());
    let stray = life::domain().name(b"never stored");
    let mut marking = store.collect(GRACE).unwrap();
    marking.mark([stray]);
    let collected = marking.sweep().run().unwrap();
    assert_eq!((collected.missing, collected.missing_count, collected.dead_packs), (vec![stray], 1, 0));
}

#[test]
fn many_small_packs_become_few() {
    let shelf = life::fault::FaultShelf::new(teal_chunk::MemoryShelf::new(), 1);
    let clock = SimClock::default();
    let (store, _) = open(Arc::new(shelf.clone()), &clock, 1).unwrap();
    let ids: Vec<ChunkId> = (0..40_u32).map(|n| store.put([&n.to_le_bytes()[..]]).unwrap().0[0]).collect();
    assert_eq!(store.holding().packs, 40);
    clock.advance(GRACE);
    let collect = || {
        let mut marking = store.collect(GRACE).unwrap();
        marking.mark(ids.iter().copied());
        marking.sweep().run().unwrap()
    };
    let collected = collect();
    assert_eq!((collected.rewritten_packs, collected.moved), (40, 40));
    assert!(store.holding().packs <= 2, "{:?}", store.holding());
    assert_eq!(collect().new_packs, 0, "what has been merged is not merged again");
    for (n, id) in (0..40_u32).zip(&ids) {
        assert_eq!(store.get(id).unwrap(), n.to_le_bytes());
    }
}
