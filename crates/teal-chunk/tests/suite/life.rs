//! Lives of stores under failures and crashes: what was promised is kept, and dead space comes
//! back.

use crate::random_life::fault::FaultShelf;
use crate::random_life::{GRACE, Life, content, domain, open};
use std::sync::Arc;
use teal_chunk::{ChunkError, ChunkStore, ChunkStoreOptions};
use teal_testkit::{SeededEntropy, SimClock};
use teal_types::ChunkId;

#[test]
fn promises_are_kept_through_failures_crashes_and_collections() {
    for seed in 0..150 {
        let mut life = Life::new(seed);
        if let Err(broken) = life.run(80) {
            panic!("seed {seed}: {broken}");
        }
        let checked = life.store.check(|_, _| {}).unwrap();
        assert_eq!(
            (checked.problem_count, checked.packs),
            (0, life.store.usage().packs),
            "seed {seed}"
        );
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
fn filled(shelf: &FaultShelf, clock: &SimClock) -> (teal_chunk::ChunkStore, Vec<ChunkId>) {
    let (store, _) = open(Arc::new(shelf.clone()), clock, 1).unwrap();
    let contents: Vec<Vec<u8>> = (0..80).map(content).collect();
    let (ids, _) = store.put(contents.iter().map(Vec::as_slice)).unwrap();
    (store, ids)
}

fn live_at_every_crash(live: &dyn Fn(usize) -> bool) {
    for seed in 0..40 {
        let shelf = FaultShelf::new(teal_chunk::MemoryShelf::new(), seed);
        let clock = SimClock::default();
        let (store, ids) = filled(&shelf, &clock);
        clock.advance(GRACE);
        let live: Vec<ChunkId> = ids
            .iter()
            .enumerate()
            .filter(|(at, _)| live(*at))
            .map(|(_, id)| *id)
            .collect();
        shelf.crash_soon();
        let mut marking = store.begin_collection(GRACE).unwrap();
        marking.mark_live(live.iter().copied());
        let outcome = marking.begin_sweep().run();
        assert!(outcome.is_err() == shelf.is_dead());
        // The second life finds everything that lives, and finishes what the first began.
        let after = FaultShelf::new(shelf.after_crash(), seed);
        let (store, _) = open(Arc::new(after.clone()), &clock, seed).unwrap();
        assert!(
            store.find_present(&live).iter().all(|had| *had),
            "seed {seed}"
        );
        clock.advance(GRACE);
        let mut marking = store.begin_collection(GRACE).unwrap();
        marking.mark_live(live.iter().copied());
        let collected = marking.begin_sweep().run().unwrap();
        assert!(collected.damaged.is_empty() && collected.missing_count == 0);
        live.iter().for_each(|id| drop(store.get(id).unwrap()));
        let bytes: u64 = live
            .iter()
            .map(|id| store.get(id).unwrap().len() as u64 + 104)
            .sum();
        assert!(
            store.usage().bytes <= 2 * bytes + 6 * 1024,
            "seed {seed}: {:?} for {bytes}",
            store.usage()
        );
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
    let shelf = FaultShelf::new(teal_chunk::MemoryShelf::new(), 1);
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
            let mut marking = store.begin_collection(std::time::Duration::ZERO).unwrap();
            marking.mark_live(live.iter().copied());
            marking.begin_sweep().run().unwrap();
            store.put(contents.iter().map(Vec::as_slice)).unwrap();
        }
    });
}

#[test]
fn one_collection_at_a_time() {
    let shelf = FaultShelf::new(teal_chunk::MemoryShelf::new(), 1);
    let (store, _) = filled(&shelf, &SimClock::default());
    let marking = store.begin_collection(GRACE).unwrap();
    assert!(matches!(
        store.begin_collection(GRACE),
        Err(ChunkError::Collecting)
    ));
    drop(marking);
    assert!(store.begin_collection(GRACE).is_ok());
}

#[test]
fn live_chunks_that_are_not_here_are_reported() {
    let shelf = FaultShelf::new(teal_chunk::MemoryShelf::new(), 1);
    let (store, _) = filled(&shelf, &SimClock::default());
    let stray = domain().name_content(b"never stored");
    let mut marking = store.begin_collection(GRACE).unwrap();
    marking.mark_live([stray]);
    let collected = marking.begin_sweep().run().unwrap();
    assert_eq!(
        (
            collected.missing,
            collected.missing_count,
            collected.dead_packs
        ),
        (vec![stray], 1, 0)
    );
}

#[test]
fn many_small_packs_become_few() {
    let shelf = FaultShelf::new(teal_chunk::MemoryShelf::new(), 1);
    let clock = SimClock::default();
    let (store, _) = open(Arc::new(shelf.clone()), &clock, 1).unwrap();
    let ids: Vec<ChunkId> = (0..40_u32)
        .map(|n| store.put([&n.to_le_bytes()[..]]).unwrap().0[0])
        .collect();
    assert_eq!(store.usage().packs, 40);
    clock.advance(GRACE);
    let collect = || {
        let mut marking = store.begin_collection(GRACE).unwrap();
        marking.mark_live(ids.iter().copied());
        marking.begin_sweep().run().unwrap()
    };
    let collected = collect();
    assert_eq!((collected.rewritten_packs, collected.moved), (40, 40));
    assert!(store.usage().packs <= 2, "{:?}", store.usage());
    assert_eq!(
        collect().new_packs,
        0,
        "what has been merged is not merged again"
    );
    for (n, id) in (0..40_u32).zip(&ids) {
        assert_eq!(store.get(id).unwrap(), n.to_le_bytes());
    }
}

/// Puts each content by itself, as one commit after the other does.
fn scattered(shelf: &FaultShelf, clock: &SimClock) -> (teal_chunk::ChunkStore, Vec<ChunkId>) {
    let options = ChunkStoreOptions {
        pack_target: 64 << 10,
        ..ChunkStoreOptions::default()
    };
    let entropy = Arc::new(SeededEntropy::new(1));
    let (store, _) = ChunkStore::open(
        Arc::new(shelf.clone()),
        domain(),
        options,
        Arc::new(clock.clone()),
        entropy,
    )
    .unwrap();
    let put = |n| store.put([content(n).as_slice()]).map(|(ids, _)| ids[0]);
    let ids = (0..200).map_while(|n| put(n).ok()).collect();
    (store, ids)
}

#[test]
fn small_packs_are_put_together_with_everything_in_them_and_grow_no_younger() {
    let shelf = FaultShelf::new(teal_chunk::MemoryShelf::new(), 1);
    let clock = SimClock::default();
    let (store, ids) = scattered(&shelf, &clock);
    assert_eq!((ids.len(), store.usage().packs), (200, 200));
    let mut merges = 0;
    while store.is_scattered() {
        store.begin_merge().unwrap().run().unwrap();
        merges += 1;
    }
    let holding = store.usage();
    assert!(
        merges < 10 && holding.packs < 48 && holding.chunks == 200,
        "{merges} merges left {holding:?}"
    );
    for (n, id) in (0..).zip(&ids) {
        assert_eq!(store.get(id).unwrap(), content(n));
    }
    // What nobody names goes when its own time has come, not later.
    clock.advance(GRACE);
    let mut marking = store.begin_collection(GRACE).unwrap();
    marking.mark_live(ids[..20].iter().copied());
    marking.begin_sweep().run().unwrap();
    assert_eq!(store.usage().chunks, 20);
}

#[test]
fn a_crash_at_any_point_of_a_merge_loses_nothing() {
    for seed in 0..60 {
        let shelf = FaultShelf::new(teal_chunk::MemoryShelf::new(), seed);
        let clock = SimClock::default();
        let (store, ids) = scattered(&shelf, &clock);
        shelf.crash_soon();
        let outcome = store.begin_merge().unwrap().run();
        assert_eq!(outcome.is_err(), shelf.is_dead(), "seed {seed}");
        let after = FaultShelf::new(shelf.after_crash(), seed);
        let (store, _) = open(Arc::new(after), &clock, seed).unwrap();
        for (n, id) in (0..).zip(&ids) {
            assert_eq!(store.get(id).unwrap(), content(n), "seed {seed}");
        }
    }
}

#[test]
fn what_a_client_was_told_to_be_here_stays_for_the_grace() {
    let (shelf, clock) = (teal_chunk::MemoryShelf::new(), SimClock::default());
    let (store, _) = open(Arc::new(shelf), &clock, 1).unwrap();
    let (ids, _) = store
        .put([content(1).as_slice(), content(3).as_slice()])
        .unwrap();
    clock.advance(GRACE * 2);
    // It asks while a collection is on its way, when the packs to remove are chosen already.
    let sweep = store.begin_collection(GRACE).unwrap().begin_sweep();
    assert_eq!(store.find_present(&ids), [true, true]);
    sweep.run().unwrap();
    clock.advance(GRACE / 2);
    store
        .begin_collection(GRACE)
        .unwrap()
        .begin_sweep()
        .run()
        .unwrap();
    drop(store.pin(&ids).unwrap());
    clock.advance(GRACE * 2);
    store
        .begin_collection(GRACE)
        .unwrap()
        .begin_sweep()
        .run()
        .unwrap();
    assert_eq!(store.usage().chunks, 0, "it was never named");
}
