//! Measures how much load one server bears: `clients --program TEAL --dir DIR [--clients N]
//! [--volumes N] [--seconds N] [--commits] [--in-root] [--everything]`.
//!
//! A real `teal` serves over TLS on this machine; every client has a connection and a certificate
//! of its own and speaks the protocol. With `--commits` a few of them commit as fast as they are
//! answered; without it all of them ask as GreenFS's clients do (`load`), and wait for news. Prints
//! one line of JSON. Server and clients share this machine's processors: the server's own time is
//! shown.

mod commits;
mod crowd;
mod load;
mod machine;
mod town;

use anyhow::{Context as _, Result, bail, ensure};
use crowd::{Crowd, News};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use teal_env::{Clock as _, SystemClock};
use town::Town;

/// The parameters of a measurement.
struct Plan {
    program: PathBuf,
    dir: PathBuf,
    clients: usize,
    volumes: usize,
    seconds: u64,
    commits: bool,
    /// All files of a volume are in one directory; otherwise each client has a directory of its
    /// own.
    in_root: bool,
    /// No machine says what it keeps, so all are told everything.
    everything: bool,
}

fn plan() -> Result<Plan> {
    let (program, dir) = (PathBuf::new(), PathBuf::new());
    let (commits, in_root, everything) = (false, false, false);
    let mut plan = Plan {
        program,
        dir,
        clients: 1000,
        volumes: 1,
        seconds: 120,
        commits,
        in_root,
        everything,
    };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().with_context(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--program" => plan.program = value()?.into(),
            "--dir" => plan.dir = value()?.into(),
            "--clients" => plan.clients = value()?.parse().context("--clients")?,
            "--volumes" => plan.volumes = value()?.parse().context("--volumes")?,
            "--seconds" => plan.seconds = value()?.parse().context("--seconds")?,
            "--commits" => plan.commits = true,
            "--in-root" => plan.in_root = true,
            "--everything" => plan.everything = true,
            _ => bail!("unknown argument {arg}"),
        }
    }
    ensure!(
        plan.program.exists() && !plan.dir.as_os_str().is_empty(),
        "--program and --dir are needed"
    );
    ensure!(
        plan.volumes > 0 && plan.clients >= plan.volumes,
        "every volume needs a client"
    );
    Ok(plan)
}

/// Processor seconds and resident bytes of a process, and its threads.
#[derive(Debug, Clone, Copy, Default)]
struct Usage {
    at: f64,
    processor: f64,
    resident: u64,
    threads: u64,
}

fn usage(pid: u32) -> Result<Usage> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let number = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
            .context("/proc/PID/status")
    };
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    // utime and stime, in ticks of 10 ms.
    let ticks: f64 = fields
        .get(11..13)
        .into_iter()
        .flatten()
        .filter_map(|field| field.parse::<f64>().ok())
        .sum();
    Ok(Usage {
        at: SystemClock.monotonic_time().as_secs_f64(),
        processor: ticks / 100.0,
        resident: number("VmRSS:")? << 10,
        threads: number("Threads:")?,
    })
}

fn crowd(plan: &Plan, runtime: &tokio::runtime::Runtime) -> Result<Value> {
    let each = plan.clients / plan.volumes;
    let (town, identities) = Town::found(
        &plan.program,
        &plan.dir,
        runtime.handle(),
        plan.volumes,
        each,
    )?;
    let pid = town.pid()?;
    let before = usage(pid)?;
    let crowd = Crowd::gather(plan, &town, runtime.handle(), &identities)?;
    let (connecting, news) = (crowd.connecting.as_secs_f64(), News::default());
    let mut marks = Vec::new();
    let mut met = crowd.live(plan.seconds, &news, || {
        let told = [&news.pulls, &news.states, &news.refused].map(|count| count.load(Relaxed));
        marks.push((usage(pid), told));
    })?;
    let [
        (from, [pulls_before, states_before, waits_before]),
        (to, [pulls, states, waits]),
    ] = <[_; 2]>::try_from(marks).map_err(|_| anyhow::anyhow!("two marks"))?;
    let (from, to) = (from?, to?);
    let seconds = to.at - from.at;
    let answered = met.times.len();
    let ms =
        |times: &mut Vec<_>, thousandths| load::percentile(times, thousandths).as_secs_f64() * 1e3;
    let load = std::fs::read_to_string("/proc/loadavg")?;
    Ok(json!({
        "kind": "clients", "clients": identities.len(), "volumes": plan.volumes, "seconds": seconds, "connecting_seconds": connecting,
        "requests": answered, "requests_per_second": answered as f64 / seconds, "updates": met.updates,
        "p50_ms": ms(&mut met.times, 500), "p99_ms": ms(&mut met.times, 990), "p999_ms": ms(&mut met.times, 999),
        "flushes": met.flushes.len(), "flush_p50_ms": ms(&mut met.flushes, 500), "flush_p99_ms": ms(&mut met.flushes, 990),
        "late": met.late, "refused": met.refused, "words": met.words,
        "in_root": plan.in_root, "everything": plan.everything,
        "states_per_second": (states - states_before) as f64 / seconds,
        "pulls_per_second": (pulls - pulls_before) as f64 / seconds, "pulls_refused": waits - waits_before,
        "server_processors": (to.processor - from.processor) / seconds, "server_resident": to.resident,
        "server_resident_before": before.resident, "server_threads": to.threads, "load": load.trim(),
    }))
}

fn main() -> Result<()> {
    let plan = plan()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(2048)
        .enable_all()
        .build()?;
    let rows = if plan.commits {
        commits::measure(&plan, &runtime)?
    } else {
        vec![crowd(&plan, &runtime)?]
    };
    for row in rows {
        println!("{row}");
    }
    Ok(())
}
