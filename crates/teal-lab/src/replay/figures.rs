//! Formats the figures of a replay, for people and for programs.

use serde_json::{Value, json};
use teal_energy::device::DeviceModel;
use teal_energy::sim::{DeviceReport, SimulationReport};
use teal_study::replay::{EnergyBound, PolicyRun, PreparedReplay};
use teal_types::{Energy, TimeSpan};

/// Returns the stops that the budget allowed in a time.
fn allowed_stops(device: &DeviceModel, elapsed: TimeSpan) -> Option<u64> {
    let limits = device.budget?;
    Some(u64::from(limits.burst) + elapsed.get() / limits.each.get().max(1))
}

fn format_percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        "-".into()
    } else {
        format!("{:.1} %", part as f64 * 100.0 / whole as f64)
    }
}

/// Returns the energy above the floor, to be compared with that of the bound.
fn energy_above(energy: Energy, floor: Energy) -> u64 {
    energy.get().saturating_sub(floor.get())
}

/// Returns the lines for people.
pub(super) fn replay_lines(
    scene: &PreparedReplay,
    runs: &[PolicyRun],
    bound: &EnergyBound,
) -> Vec<String> {
    let taken = &scene.totals;
    let mut out = vec![
        format!(
            "machine    {}, modelled by {}",
            scene.machine.name,
            scene.machine.profile_names().join(", ")
        ),
        format!(
            "trace      {} events, {} failed; {} reads, {} of them from memory; {} changes; {}",
            taken.events,
            taken.failed,
            taken.reads,
            taken.from_memory,
            taken.changes,
            TimeSpan::from_nanos(scene.trace.end().get())
        ),
    ];
    // The reader must know which parts of the machine cost nothing here.
    if scene.machine.base.is_none() {
        out.push(
            "base       no machine is among the profiles: waiting costs nothing but the \
                  devices' own"
                .into(),
        );
    }
    for part in &scene.machine.parts {
        out.extend(
            part.assumed
                .iter()
                .map(|what| format!("assumed    {}: {what}", part.label)),
        );
    }
    // Events that the trace lacks are missing in all figures.
    if taken.dropped > 0 {
        out.push(format!(
            "missing    {} events came too fast to be recorded",
            taken.dropped
        ));
    }
    if taken.unreachable > 0 {
        out.push(format!(
            "lost       {} blocks could not be read, as no link worked",
            taken.unreachable
        ));
    }
    out.push(String::new());
    out.extend(policy_table(runs, bound));
    out.push(String::new());
    // The bound comes behind the table, because its ratios refer to it.
    out.push(describe_bound(bound));
    for run in runs {
        out.push(String::new());
        out.extend(device_lines(scene, run));
    }
    out
}

fn describe_bound(bound: &EnergyBound) -> String {
    match bound {
        EnergyBound::Proven { least, .. } if bound.is_exact() => format!(
            "bound      {least}: the least that any policy could have spent, exactly: a schedule \
             with foresight spends no more"
        ),
        EnergyBound::Proven {
            least,
            feasible: Some(feasible),
        } => format!(
            "bound      {least}: no policy spends less; a schedule with foresight spends \
             {feasible}, {} more",
            format_percent(feasible.get().saturating_sub(least.get()), least.get())
        ),
        EnergyBound::Proven { least, .. } => format!(
            "bound      {least}: no policy spends less; no schedule with foresight was found"
        ),
        EnergyBound::No(why) => format!("bound      none: {why}"),
    }
}

fn bound_json(bound: &EnergyBound) -> Value {
    match bound {
        EnergyBound::Proven { least, feasible } => json!({
            "least_uj": least.get(),
            "exact": bound.is_exact(),
            "feasible_uj": feasible.map(Energy::get),
        }),
        EnergyBound::No(why) => json!({ "none": why }),
    }
}

fn policy_table(runs: &[PolicyRun], bound: &EnergyBound) -> Vec<String> {
    let mut out = vec![format!(
        "{:<18} {:>10} {:>11} {:>12} {:>9} {:>9} {:>9} {:>9} {:>16} {:>17} {:>7} {:>7}",
        "policy",
        "energy",
        "above floor",
        "/ bound",
        "p50",
        "p90",
        "p99",
        "max",
        "added delay",
        "cold sole reads",
        "starts",
        "refused"
    )];
    for run in runs {
        out.push(policy_row(run, bound));
    }
    if let Some(report) = runs.first().map(|run| &run.report) {
        out.push(format!("{:<18} {:>10}", "floor", report.floor.to_string()));
    }
    out
}

fn policy_row(PolicyRun { policy, report }: &PolicyRun, bound: &EnergyBound) -> String {
    let energy = report.total_energy();
    let above_floor = Energy::from_microjoules(energy_above(energy, report.floor));
    // Parts are in thousandths.
    let [p50, p90, p99, max] = [500, 900, 990, 1000].map(|part| report.delay_at(part).to_string());
    let added = format!(
        "{} {}",
        report.added,
        format_percent(report.added.get(), report.elapsed.get())
    );
    let cold: TimeSpan = report.cold.iter().copied().sum();
    let cold = format!("{} in {cold}", report.cold.len());
    // Stops beyond the budget are refused, and the device stays on.
    let refused: u64 = report.devices.iter().map(|device| device.refused).sum();
    format!(
        "{policy:<18} {:>10} {:>11} {:>12} {p50:>9} {p90:>9} {p99:>9} {max:>9} {added:>16} \
         {cold:>17} {:>7} {refused:>7}",
        energy.to_string(),
        above_floor.to_string(),
        ratio_to_bound(report, bound),
        report.total_starts()
    )
}

/// Returns the ratios to the bound: of all energy, and of that above the floor.
fn ratio_to_bound(report: &SimulationReport, bound: &EnergyBound) -> String {
    let Some(least) = bound.least() else {
        return "-".into();
    };
    let over = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
    let energy = report.total_energy();
    format!(
        "{:.2}, {:.2}",
        over(energy.get(), least.get()),
        over(
            energy_above(energy, report.floor),
            energy_above(least, report.floor)
        )
    )
}

fn device_lines(scene: &PreparedReplay, run: &PolicyRun) -> Vec<String> {
    let report = &run.report;
    let mut out = vec![format!(
        "{}: {} in {}",
        run.policy,
        report.total_energy(),
        report.elapsed
    )];
    debug_assert_eq!(
        scene.machine.parts.len(),
        report.devices.len(),
        "each device has its report"
    );
    for (part, device) in scene.machine.parts.iter().zip(&report.devices) {
        // A device with a budget may stop only so often in its life.
        let budget = match allowed_stops(&part.device, report.elapsed) {
            Some(allowed) => format!(
                "{} of {allowed} stops used, {} refused",
                device.cycles, device.refused
            ),
            None => "no budget of starts".into(),
        };
        out.push(format!(
            "  {}: {}; {} reads, {} starts, {budget}{}",
            part.label,
            device.ledger.total_energy(),
            device.reads,
            device.starts,
            describe_bursts(device)
        ));
        // States without time are left out.
        for (name, entry) in device
            .named_uses()
            .filter(|(_, entry)| entry.time > TimeSpan::ZERO)
        {
            let (time, energy) = (entry.time.to_string(), entry.energy().to_string());
            out.push(format!(
                "    {name:<20} {:>9} x {time:>11} {energy:>12}",
                entry.count
            ));
        }
    }
    let (waiting, waited) = (report.waiting.to_string(), report.waited.to_string());
    out.push(format!(
        "  the machine, while somebody waits {waiting:>11} {waited:>12}"
    ));
    out
}

fn describe_bursts(device: &DeviceReport) -> String {
    if device.flushes.is_empty() {
        return String::new();
    }
    let each: Vec<_> = device
        .flushes
        .iter()
        .map(|(why, count)| format!("{count} {why:?}"))
        .collect();
    format!("; bursts: {}", each.join(", "))
}

/// Returns the figures for programs; units are microjoules and nanoseconds.
pub(super) fn replay_json(
    scene: &PreparedReplay,
    runs: &[PolicyRun],
    bound: &EnergyBound,
    is_complete: bool,
) -> Value {
    let taken = &scene.totals;
    let parts = scene.machine.parts.iter();
    let assumed: Vec<_> = parts.flat_map(|part| part.assumed.clone()).collect();
    json!({
        "machine": scene.machine.name,
        "modelled_by": scene.machine.profile_names(),
        "assumed": assumed,
        "trace": {
            "complete": is_complete,
            "events": taken.events,
            "failed": taken.failed,
            "dropped": taken.dropped,
            "reads": taken.reads,
            "from_memory": taken.from_memory,
            "read_bytes": taken.read_bytes,
            "copied_bytes": taken.copied_bytes,
            "changes": taken.changes,
            "written_bytes": taken.written_bytes,
            "cancelled": taken.cancelled,
            "unreachable": taken.unreachable,
            "ns": scene.trace.end().get(),
        },
        "bound": bound_json(bound),
        "runs": runs.iter().map(|run| run_json(scene, run)).collect::<Vec<_>>(),
    })
}

fn run_json(scene: &PreparedReplay, PolicyRun { policy, report }: &PolicyRun) -> Value {
    let devices: Vec<_> = scene
        .machine
        .parts
        .iter()
        .zip(&report.devices)
        .map(|(part, device)| {
            // Programs get all states, and people those with time.
            let uses = device.named_uses().map(|(name, entry)| {
                json!({
                    "name": name,
                    "count": entry.count,
                    "ns": entry.time.get(),
                    "uj": entry.energy().get(),
                })
            });
            let uses: Vec<_> = uses.collect();
            let flushes = device.flushes.iter().map(|(trigger, count)| {
                let name = format!("{trigger:?}").to_lowercase();
                (name, json!(count))
            });
            let flushes: serde_json::Map<_, _> = flushes.collect();
            json!({
                "name": part.label,
                "modelled_by": part.device.name,
                "uj": device.ledger.total_energy().get(),
                "uses": uses,
                "reads": device.reads,
                "starts": device.starts,
                "started_ns": device.started.iter().map(|at| at.get()).collect::<Vec<_>>(),
                "stops": device.cycles,
                "stops_allowed": allowed_stops(&part.device, report.elapsed),
                "stops_refused": device.refused,
                "bursts": flushes,
            })
        })
        .collect();
    let cold_time = report.cold.iter().copied().sum::<TimeSpan>();
    json!({
        "policy": policy,
        "uj": report.total_energy().get(),
        "floor_uj": report.floor.get(),
        "waited_uj": report.waited.get(),
        "elapsed_ns": report.elapsed.get(),
        "delay": delay_json(report),
        "added_ns": report.added.get(),
        "cold_sole": { "reads": report.cold.len(), "ns": cold_time.get() },
        "starts": report.total_starts(),
        "devices": devices,
    })
}

fn delay_json(report: &SimulationReport) -> Value {
    let at = |part| report.delay_at(part).get();
    json!({
        "reads": report.delays.len(),
        "sum_ns": report.total_delay().get(),
        "p50_ns": at(500),
        "p90_ns": at(900),
        "p99_ns": at(990),
        "max_ns": at(1000),
    })
}
