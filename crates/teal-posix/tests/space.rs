//! A store at its limits: filled and emptied, overwritten for long, near full all its life. Figures
//! at full size: `cargo xtask bench space`.

#![allow(clippy::unwrap_used, reason = "tests panic where they fail")]

#[path = "space/emptied.rs"]
mod emptied;
#[path = "space/ends.rs"]
mod ends;
#[path = "space/load.rs"]
mod load;
#[path = "space/near_full.rs"]
mod near_full;

use emptied::{Crowd, Order};
use load::{Load, Pattern, Run};
use near_full::Plan;
use teal_posix::WriteFlags;
use teal_testkit::Rng;

const OVERWRITE: Load = Load {
    mib: 64,
    percent: 0,
    pattern: Pattern::Uniform,
    io: 4096,
    file: 1 << 20,
    background: true,
    sync: 0,
    seed: 1,
};

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| {
        text.parse().unwrap_or_else(|_| panic!("{name}={text}"))
    })
}

/// `TEAL_FULL_SEEDS` lives of each kind (1 by default), from seed `TEAL_FULL_SEED` on.
#[test]
fn a_life_near_full_never_wedges() {
    let (first, count) = (number("TEAL_FULL_SEED", 1), number("TEAL_FULL_SEEDS", 1));
    for seed in first..first + count {
        let plan = Plan {
            mib: 16,
            seed,
            ops: 1500,
            background: seed % 2 == 0,
            largest: 1 << 20,
            small: false,
        };
        for plan in [
            plan,
            Plan {
                small: true,
                ops: 4000,
                ..plan
            },
            Plan {
                background: !plan.background,
                mib: 24,
                largest: 3 << 20,
                ..plan
            },
            Plan {
                mib: 64,
                largest: 8 << 20,
                ..plan
            },
        ] {
            let seen = near_full::live(plan);
            println!("{plan:?}: {seen:?}");
            assert!(
                seen.refused > 0 && seen.removed > 0 && seen.reopened > 2 && seen.cleaned > 0,
                "{plan:?}: {seen:?}"
            );
        }
    }
}

fn is_emptied(mib: u64, plans: &[(Crowd, Order, u64, bool)]) {
    let (first, count) = (number("TEAL_FULL_SEED", 1), number("TEAL_FULL_SEEDS", 1));
    for seed in first..first + count {
        for (crowd, order, cycles, background) in plans.iter().copied() {
            let rarely = if background { 1000 } else { 100 };
            let plan = emptied::Plan {
                mib,
                crowd,
                order,
                background,
                rarely,
                cycles,
                seed,
            };
            println!("{plan:?}: {}", emptied::filled_and_emptied(plan));
        }
    }
}

#[test]
fn the_smallest_store_can_be_emptied_whatever_fills_it() {
    let crowds = [Crowd::Tiny, Crowd::Dirs, Crowd::Large, Crowd::Mixed];
    let all = crowds.iter().flat_map(|crowd| {
        [
            (*crowd, Order::AsMade, 0, true),
            (*crowd, Order::Random, 1, false),
            (*crowd, Order::Random, 3, true),
        ]
    });
    is_emptied(16, &all.collect::<Vec<_>>());
}

#[test]
fn a_store_of_32_mib_can_be_emptied_whatever_fills_it() {
    let crowds = [Crowd::Tiny, Crowd::Dirs, Crowd::Large, Crowd::Mixed];
    let all = crowds.iter().flat_map(|crowd| {
        [
            (*crowd, Order::AsMade, 0, true),
            (*crowd, Order::Random, 1, false),
        ]
    });
    is_emptied(32, &all.collect::<Vec<_>>());
}

#[test]
fn a_store_of_64_mib_can_be_emptied_whatever_fills_it() {
    let mut all = vec![
        (Crowd::Tiny, Order::AsMade, 1, true),
        (Crowd::Large, Order::Random, 0, false),
    ];
    if number("TEAL_FULL_SEEDS", 0) > 0 {
        let crowds = [Crowd::Tiny, Crowd::Dirs, Crowd::Large, Crowd::Mixed];
        all = crowds
            .map(|crowd| {
                [
                    (crowd, Order::Random, 0, false),
                    (crowd, Order::AsMade, 1, true),
                ]
            })
            .concat();
    }
    is_emptied(64, &all);
}

#[test]
fn a_store_of_256_mib_can_be_emptied_whatever_fills_it() {
    let mut crowds = vec![Crowd::Large, Crowd::Mixed];
    if number("TEAL_FULL_SEEDS", 0) > 0 {
        // Half a million objects take minutes.
        crowds.extend([Crowd::Tiny, Crowd::Dirs]);
    }
    is_emptied(
        256,
        &crowds
            .iter()
            .map(|crowd| (*crowd, Order::AsMade, 0, true))
            .collect::<Vec<_>>(),
    );
}

#[test]
fn filled_and_emptied_fifty_times() {
    for io in [2000, 300_000] {
        let mut run = Run::new(Load {
            mib: 16,
            io,
            ..OVERWRITE
        });
        let free = run.space().free;
        for round in 0..50 {
            let written = run.fill_to_the_end();
            assert!(
                written * 10 > free * if io > 4096 { 9 } else { 6 },
                "round {round}: {written} of {free} bytes"
            );
            run.empty();
            let back = run.space().free;
            assert!(
                back + (1 << 20) > free,
                "round {round}: {back} of {free} bytes came back"
            );
        }
        run.is_whole_after_reopening();
    }
}

#[test]
fn overwriting_a_store_at_ninety_percent_ten_times_over_goes_on() {
    for (mib, background) in [(64, true), (16, false)] {
        let mut run = Run::new(Load {
            mib,
            background,
            ..OVERWRITE
        });
        run.fill_files(90);
        let spent = run.spend(10 * (mib << 20));
        let written = spent.per_user(spent.counts.bytes_written);
        println!(
            "written {written:.2}, background {background}: {:?}",
            spent.counts
        );
        // A log this full, overwritten everywhere alike, has to move a lot; but there is an end.
        assert!(written < 8.0, "{written:.2} bytes written for one");
        run.is_whole_after_reopening();
    }
}

/// The bound of the full size, counted on a smaller store: 3 bytes written for one at 80 %, hot and
/// cold.
#[test]
fn hot_and_cold_data_at_eighty_percent_cost_less_than_three_writes_for_one() {
    let mut run = Run::new(Load {
        mib: 128,
        percent: 80,
        pattern: Pattern::HotCold,
        ..OVERWRITE
    });
    run.spend(128 << 20);
    let spent = run.spend(128 << 20);
    let written = spent.per_user(spent.counts.bytes_written);
    println!(
        "written {written:.2}, moved {:.2}",
        spent.per_user(spent.counts.bytes_moved)
    );
    assert!(
        spent.counts.segments_cleaned > 0 && written < 3.0,
        "{written:.2} bytes written for one"
    );
    run.is_whole_after_reopening();
}

#[test]
fn an_idle_store_is_cleaned_ahead_and_then_silent() {
    let mut run = Run::new(Load {
        mib: 64,
        percent: 72,
        ..OVERWRITE
    });
    run.spend(32 << 20);
    let before = run.space().free_segments;
    let counts = run.rest();
    let after = run.space();
    assert!(
        after.free_segments >= before && after.free_segments * 100 >= after.segments * 10,
        "{before}: {after:?}"
    );
    assert_eq!(run.rest(), counts, "an idle store does nothing");
}

#[test]
fn several_write_beside_the_background_and_nobody_is_refused() {
    let mut run = Run::new(Load {
        mib: 64,
        ..OVERWRITE
    });
    run.fill_files(85);
    run.client.start().unwrap();
    let (client, files) = (&run.client, &run.files);
    std::thread::scope(|scope| {
        for thread in 0..4_usize {
            let mine: Vec<_> = files.iter().skip(thread).step_by(4).copied().collect();
            scope.spawn(move || {
                let mut rng = Rng::new(thread as u64);
                for turn in 0..8000_u64 {
                    let data = [thread as u8 ^ turn as u8; 4096];
                    let (no, at) = (*rng.pick(&mine), rng.below(256) * 4096);
                    client.write(no, at, &data, WriteFlags::default()).unwrap();
                    if turn.is_multiple_of(500) {
                        client.sync().unwrap();
                    }
                }
            });
        }
    });
    assert!(run.client.store().counter_values().segments_cleaned > 0);
    run.is_whole_after_reopening();
}
