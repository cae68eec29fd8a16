//! What an operation of the workload engine costs: an empty flowop, and 4 KiB reads on a tmpfs
//! beside a bare loop and beside fio's, one thread each.
//!
//! `cargo run --release -p teal-study --example engine_cost [DIR [SECONDS]]`; DIR should be a tmpfs
//! [default: /dev/shm].

#![allow(
    clippy::unwrap_used,
    reason = "an example whose ground gives way stops"
)]

use std::path::Path;
use std::process::Command;
use teal_env::{Clock as _, SystemClock};
use teal_study::wml::parse_script;
use teal_study::workload::{RunListener, RunOutcome, WorkloadOptions, execute_plan, plan_script};

/// The file that is read.
const SIZE: u64 = 1 << 20;
const BLOCK: usize = 4096;

struct Silent;

impl RunListener for Silent {
    fn print_line(&self, _: &str) {}
    fn report_progress(&self, _: &RunOutcome) {}
    fn is_interrupted(&self) -> bool {
        false
    }
}

/// Operations per second of one flowop, run by so many threads.
fn engine(dir: &Path, flowop: &str, threads: u64, seconds: u64) -> f64 {
    let text = format!(
        "define fileset name=cost,path=$dir,entries=1,size={SIZE},dirwidth=20,dirgamma=0,prealloc\n\
         define process name=pp {{ thread name=tt,memsize=64k,instances={threads} {{ flowop {flowop} }} }}\nrun {seconds}"
    );
    let script = parse_script("cost.wml", &text, &mut |_| Err("nothing is loaded".into())).unwrap();
    let plan = plan_script(&script, WorkloadOptions::new(dir)).unwrap();
    let outcome = execute_plan(&plan, &SystemClock, &Silent).unwrap().unwrap();
    outcome.lines[0].figures.count as f64 * 1e9 / outcome.nanos as f64
}

/// The same reads by a loop that does nothing else.
fn bare(dir: &Path, seconds: u64) -> f64 {
    let file = std::fs::OpenOptions::new()
        .read(true)
        .open(dir.join("cost/00000001/00000001"))
        .unwrap();
    let (began, mut buffer, mut count) = (SystemClock.monotonic_time(), [0; BLOCK], 0_u64);
    loop {
        for _ in 0..1000 {
            // A walk that looks random costs nothing to speak of.
            let block = count.wrapping_mul(0x9e37_79b9) % (SIZE / BLOCK as u64);
            rustix::io::pread(&file, &mut buffer, block * BLOCK as u64).unwrap();
            count += 1;
        }
        let took = SystemClock.monotonic_time() - began;
        if took.as_secs() >= seconds {
            return count as f64 / took.as_secs_f64();
        }
    }
}

/// fio's figure for the same mix, if it is installed.
fn fio(dir: &Path, seconds: u64) -> Option<f64> {
    let file = dir.join("cost/00000001/00000001");
    let (file, time, size) = (
        format!("--filename={}", file.display()),
        format!("--runtime={seconds}"),
        format!("--size={SIZE}"),
    );
    let job = [
        "--name=cost",
        "--rw=randread",
        "--bs=4k",
        "--ioengine=psync",
        "--time_based",
        "--thread",
        "--minimal",
        "--terse-version=3",
    ];
    let out = Command::new("fio")
        .args(job)
        .args([file, time, size])
        .output()
        .ok()?;
    // The eighth field of the terse form is reads per second.
    String::from_utf8_lossy(&out.stdout)
        .lines()
        .last()?
        .split(';')
        .nth(7)?
        .parse()
        .ok()
}

fn main() {
    let mut args = std::env::args().skip(1);
    let dir = args.next().unwrap_or_else(|| "/dev/shm".into());
    let seconds = args.next().and_then(|text| text.parse().ok()).unwrap_or(3);
    let own = Path::new(&dir).join(format!("engine-cost-{}", std::process::id()));
    std::fs::create_dir(&own).unwrap();
    let row =
        |what: &str, rate: f64| println!("{what:<44} {rate:>12.0} ops/s {:>8.1} ns/op", 1e9 / rate);
    row(
        "empty flowop (hog value=0), 1 thread",
        engine(&own, "hog name=empty", 1, seconds),
    );
    row(
        "empty flowop, 2 threads together",
        engine(&own, "hog name=empty", 2, seconds),
    );
    let read = "read name=rr,filename=cost,fd=1,iosize=4k,random";
    row(
        "4 KiB random reads, 1 thread",
        engine(&own, read, 1, seconds),
    );
    row("the same by a bare loop", bare(&own, seconds));
    if let Some(rate) = fio(&own, seconds) {
        row("the same by fio (psync)", rate);
    }
    row(
        "4 KiB random reads, 2 threads together",
        engine(&own, read, 2, seconds),
    );
    row(
        "statfile, 1 thread",
        engine(&own, "statfile name=st,filename=cost", 1, seconds),
    );
    std::fs::remove_dir_all(&own).unwrap();
}
