//! Measures how many operations a server commits: batches over TLS, each durable before its client
//! makes the next.

use crate::machine::{Machine, channel};
use crate::town::Town;
use crate::{Plan, usage};
use anyhow::{Result, bail};
use serde_json::{Value, json};
use std::time::Duration;
use teal_env::{Clock as _, SystemClock};
use teal_proto::ServerReply;
use teal_testkit::Rng;

/// A way to commit: clients, files of a batch, whether they have content.
const WAYS: [(usize, usize, bool); 5] = [
    (1, 100, false),
    (8, 100, false),
    (1, 100, true),
    (1, 1, false),
    (8, 1, false),
];

/// Commits until `until`; operations and batches.
fn commit(
    machine: &mut Machine,
    rng: &mut Rng,
    files: usize,
    with_content: bool,
    until: Duration,
) -> Result<(u64, u64)> {
    let (mut ops, mut batches) = (0, 0);
    while SystemClock.monotonic_time() < until {
        for request in machine.flush(rng, files, with_content)?.0 {
            if let ServerReply::Refused(refused) = machine.ask(&request)? {
                bail!(refused);
            }
        }
        batches += 1;
        ops += files as u64 * if with_content { 3 } else { 2 };
    }
    Ok((ops, batches))
}

pub(crate) fn measure(plan: &Plan, runtime: &tokio::runtime::Runtime) -> Result<Vec<Value>> {
    let most = WAYS.iter().map(|way| way.0).max().unwrap_or(1);
    let (town, identities) = Town::found(&plan.program, &plan.dir, runtime.handle(), 1, most)?;
    let pid = town.pid()?;
    let mut machines = Vec::new();
    for (n, identity) in identities.iter().enumerate() {
        let name = format!("machine-{n}");
        machines.push((
            Machine::begin(channel(runtime.handle(), &town.address, identity), &name)?,
            Rng::new(n as u64),
        ));
    }
    let mut rows = Vec::new();
    for (clients, files, with_content) in WAYS {
        let before = usage(pid)?;
        let until = SystemClock.monotonic_time() + Duration::from_secs(plan.seconds);
        let done = std::thread::scope(|scope| {
            let at_work = machines.iter_mut().take(clients).map(|(machine, rng)| {
                std::thread::Builder::new().spawn_scoped(scope, move || {
                    commit(machine, rng, files, with_content, until)
                })
            });
            let at_work = at_work.collect::<Result<Vec<_>, _>>()?;
            let done = at_work.into_iter().map(|one| {
                one.join()
                    .map_err(|_| anyhow::anyhow!("a client broke down"))?
            });
            done.collect::<Result<Vec<_>>>()
        })?;
        let after = usage(pid)?;
        let seconds = after.at - before.at;
        let (ops, batches) = done
            .iter()
            .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        rows.push(json!({
            "kind": "commits", "clients": clients, "files": files, "with_content": with_content, "seconds": seconds,
            "ops_per_second": ops as f64 / seconds, "batches_per_second": batches as f64 / seconds,
            "server_processors": (after.processor - before.processor) / seconds,
            "load": std::fs::read_to_string("/proc/loadavg")?.trim(),
        }));
    }
    Ok(rows)
}
