//! The crash explorer: after a crash at any point the store is exactly the state after some batch,
//! none promised is missing, and it lives on.
//!
//! `TEAL_CRASH_IMAGES` (images to look at, at least; default 50,000) and `TEAL_CRASH_SEED`
//! (default 1) choose how much and which; the same seed explores the same images. A failure names
//! seed, episode, point and image.

use crate::explore::{Effort, Explorer, assert_checked, begun, shape};
use crate::life::{Life, Plan};
use std::collections::BTreeMap;
use std::time::Duration;
use teal_testkit::CrashPolicy;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| {
        text.parse().unwrap_or_else(|_| panic!("{name}={text}"))
    })
}

/// Fills a store until this many bytes are free, in files that a later life can delete.
fn filled(life: &mut Life, free: u64) {
    life.plan.heavy = 0.6;
    for _ in 0..4000 {
        if life.store.space().free < free {
            break;
        }
        life.step().unwrap();
        life.clock.advance(Duration::from_millis(700));
        life.ending(|store| store.tick().map(drop)).unwrap();
    }
    life.commit().unwrap();
    life.note.restart_trace();
    life.batches = BTreeMap::from([(0, life.model.clone())]);
    life.ops = 0;
}

/// The kinds of disks and lives, by turns.
fn episode(seed: u64, turn: u64) -> Life {
    let physical = if turn % 3 == 2 { 4096 } else { 512 };
    let shape = shape(16, physical, turn % 4 == 1, turn % 2 == 1);
    match turn % 10 {
        // Nearly full: the cleaner works.
        3 => {
            let mut life = begun(
                shape,
                seed,
                Plan {
                    heavy: 0.5,
                    spare: 0,
                    batch: 9,
                },
            );
            filled(&mut life, 600_000);
            life.plan = Plan {
                heavy: 0.1,
                spare: 0,
                batch: 4,
            };
            life
        }
        // Batches over several segments.
        4 | 9 => begun(
            shape,
            seed,
            Plan {
                heavy: 0.5,
                spare: 1 << 20,
                batch: 12,
            },
        ),
        _ => begun(
            shape,
            seed,
            Plan {
                heavy: 0.03,
                spare: 1 << 20,
                batch: 5,
            },
        ),
    }
}

#[test]
fn after_a_crash_at_any_point_the_store_is_what_some_batch_left() {
    let images = number("TEAL_CRASH_IMAGES", 50_000);
    let seed = number("TEAL_CRASH_SEED", 1);
    let only = std::env::var("TEAL_CRASH_EPISODE")
        .ok()
        .map(|text| text.parse::<u64>().unwrap());
    let policy = CrashPolicy {
        exhaustive: 5,
        random: 24,
        unreadable: true,
    };
    let mut explorer = Explorer::new(
        Effort {
            policy,
            second_life: 24,
            second_crash: 16,
            verify: 16,
        },
        seed,
    );
    let mut turn = only.unwrap_or(0);
    while explorer.tally.images < images && !explorer.is_done() {
        let name = format!("TEAL_CRASH_SEED={seed} TEAL_CRASH_EPISODE={turn}");
        explorer.rng = teal_testkit::Rng::new(seed.wrapping_mul(1_000_003).wrapping_add(turn));
        let mut life = episode(seed.wrapping_mul(7919).wrapping_add(turn), turn);
        for part in 0..3 {
            life.run(40).unwrap_or_else(|e| panic!("{name}: {e}"));
            let clean = part == 0 && turn.is_multiple_of(2);
            life.reopen(clean)
                .unwrap_or_else(|what| panic!("{name}: reopened: {what}"));
            assert_checked(&life.store, true).unwrap_or_else(|what| panic!("{name}: {what}"));
            life.open_anew()
                .unwrap_or_else(|what| panic!("{name}: opened anew: {what}"));
        }
        explorer.explore(&life, &name);
        if turn.is_multiple_of(4) {
            explorer.kill_and_cut(&life, &name);
        }
        turn += 1;
        if only.is_some() {
            break;
        }
    }
    assert!(explorer.failures.is_empty(), "{:#?}", explorer.failures);
    let tally = explorer.tally;
    println!(
        "{} images of {turn} lives, seed {seed}: {tally:#?}",
        tally.images
    );
    if only.is_none() {
        let (seen, per) = (tally.seen, tally.images / 1000);
        assert!(tally.recoveries == tally.images || tally.kills > 0);
        assert!(
            tally.rolled_forward > tally.images / 4
                && tally.second_lives > per * 20
                && tally.anchors_lost > per * 20
        );
        assert!(
            seen.commits > per
                && seen.written > per / 20
                && seen.checkpoints > per / 2
                && seen.large_batches > per / 50,
            "{seen:?}"
        );
        assert!(
            seen.cleaned > 0
                && seen.closed > 0
                && seen.reopened > 1
                && seen.shared > 0
                && seen.preallocated > 0,
            "{seen:?}"
        );
        assert!(
            seen.reused > 0 && tally.settled_at_once > per * 50,
            "{tally:?}"
        );
    }
}
