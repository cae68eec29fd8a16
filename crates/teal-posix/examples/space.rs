//! What the device writes for what the user writes, at several fills and loads: `cargo xtask bench
//! space`.
//!
//! # How
//! Each row is a store in memory of its own, filled, overwritten by as much as the store holds, and
//! then measured while it is overwritten as often as `--turns` says.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a program for people"
)]

#[path = "../tests/space/load.rs"]
mod load;

use load::{Load, Pattern, Run};
use teal_env::{Clock as _, SystemClock};

const HELP: &str = "\
cargo xtask bench space [--mib N] [--turns N] [--rows PATTERN] [--seed N]
  --mib N         size of the stores (1024)
  --turns N       how often the whole store is overwritten while it is measured (3)
  --rows PATTERN  only rows whose name contains PATTERN
  --seed N        seed of the loads (1)";

struct Plan {
    mib: u64,
    turns: u64,
    pattern: String,
    seed: u64,
}

fn plan() -> Plan {
    let mut plan = Plan {
        mib: 1024,
        turns: 3,
        pattern: String::new(),
        seed: 1,
    };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let Some(value) = args.next() else { stop() };
        let number = || value.parse().unwrap_or_else(|_| stop());
        match arg.as_str() {
            "--mib" => plan.mib = number(),
            "--turns" => plan.turns = number(),
            "--seed" => plan.seed = number(),
            "--rows" => plan.pattern.clone_from(&value),
            _ => stop(),
        }
    }
    plan
}

fn stop() -> ! {
    println!("{HELP}");
    std::process::exit(2)
}

fn rows(plan: &Plan) -> Vec<(String, Load)> {
    let load = Load {
        mib: plan.mib,
        percent: 0,
        pattern: Pattern::Uniform,
        io: 4096,
        file: (plan.mib << 20) / 64,
        background: true,
        sync: 0,
        seed: plan.seed,
    };
    let mut rows = Vec::new();
    for (pattern, name) in [
        (Pattern::HotCold, "hot/cold"),
        (Pattern::Uniform, "uniform"),
    ] {
        for (io, size) in [(4096, "4 KiB"), (65536, "64 KiB")] {
            for percent in [50, 70, 75, 80] {
                rows.push((
                    format!("{name} {size} at {percent} %"),
                    Load {
                        percent,
                        pattern,
                        io,
                        ..load
                    },
                ));
            }
        }
    }
    let hot = Load {
        percent: 75,
        pattern: Pattern::HotCold,
        ..load
    };
    rows.push((
        "hot/cold 4 KiB at 75 %, fsync each 16".into(),
        Load { sync: 16, ..hot },
    ));
    rows.push((
        "hot/cold 4 KiB at 75 %, no background".into(),
        Load {
            background: false,
            ..hot
        },
    ));
    for (io, size) in [(4096, "4 KiB"), (65536, "64 KiB")] {
        let small_files = Load {
            io,
            file: 1 << 20,
            ..load
        };
        rows.push((format!("uniform {size} at 90 % of df"), small_files));
        rows.push((
            format!("hot/cold {size} at 90 % of df"),
            Load {
                pattern: Pattern::HotCold,
                ..small_files
            },
        ));
    }
    for percent in [50, 75] {
        rows.push((
            format!("small files at {percent} %"),
            Load {
                percent,
                pattern: Pattern::Files,
                ..load
            },
        ));
    }
    rows.retain(|(name, _)| name.contains(&plan.pattern));
    rows
}

fn row(name: &str, plan: &Plan, load: Load) {
    let clock = SystemClock;
    let mut run = Run::new(load);
    if load.percent == 0 {
        run.fill_files(90);
    }
    let capacity = plan.mib << 20;
    run.spend(capacity);
    let start = clock.monotonic_time();
    let spent = run.spend(capacity * plan.turns);
    let took = clock.monotonic_time() - start;
    let (c, space) = (&spent.counts, run.space());
    let segment = (plan.mib << 20) as f64 / space.segments as f64;
    let mean = c.bytes_cleaned as f64 / (c.segments_cleaned.max(1) as f64 * segment);
    let moved = c.bytes_moved;
    let of = |bytes| spent.per_user(bytes);
    let rest = c.bytes_inodes + c.bytes_records;
    let read = of(c.segments_cleaned * segment as u64);
    println!(
        "| {name} | {:.1} | {:.1} | **{:.2}** | {:.2} | {:.2} | {:.3} | {:.2} | {:.2} | {} | {} | {:.2} | {} | {:.1} |",
        space.live as f64 * 100.0 / capacity as f64,
        (space.total - space.free) as f64 * 100.0 / space.total as f64,
        of(c.bytes_written),
        of(moved),
        of(c.bytes_pages),
        of(rest),
        of(c.bytes_written + c.bytes_read),
        read,
        c.checkpoints,
        c.segments_cleaned,
        mean,
        c.waits,
        took.as_secs_f64(),
    );
    run.is_whole_after_reopening();
}

fn main() {
    let plan = plan();
    println!(
        "| load, {} MiB, {} turns | live % | df % | written | moved | pages | inodes, records | written + read | read by cleaner | \
         checkpoints | cleaned | mean live | waits | s |",
        plan.mib, plan.turns
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    for (name, load) in rows(&plan) {
        row(&name, &plan, load);
    }
}
