//! Re-enacts GreenFS, tables 3, 4 and 5, and the day of section 4.3.

use super::PaperTable;
use super::bluefs::SEED;
use crate::replay::{ModelledMachine, NamedPolicy, PolicyRun, PreparedReplay, ReplayAssumptions};
use crate::stream::{GapModel, PublishedTotals};
use std::collections::HashMap;
use teal_energy::Profile;
use teal_energy::profile::DeviceKind;
use teal_energy::sim::{self, MachineEvent, MachineTrace};
use teal_trace::{Action, TraceItem};
use teal_types::{Energy, Power, Time, TimeSpan};

/// Bytes of the desktop's page cache: half of its 512 MB.
const MEMORY: u64 = 256 << 20;

fn jeff_published() -> &'static PublishedTotals {
    PublishedTotals::by_name("jeff").expect("it is published")
}

/// Holds the counts of a stream.
#[derive(Debug, Default)]
struct StreamCounts {
    operations: u64,
    changes: u64,
    bytes: u64,
    hours: f64,
    /// Changes and first reads in each window of thirty seconds.
    requests: Vec<u64>,
}

fn count_stream(published: &'static PublishedTotals, gaps: GapModel) -> StreamCounts {
    let mut counted = StreamCounts::default();
    let mut met = HashMap::new();
    for event in published.generate_events(gaps, SEED) {
        counted.operations += 1;
        counted.hours = event.at.as_secs_f64() / 3600.0;
        let is_change = matches!(event.action, Action::Write { .. });
        counted.changes += u64::from(is_change);
        // Each change reaches the server, and so does the first read of a file; other reads hit the
        // cache.
        let is_first = match event.action {
            Action::Read { length, .. } => met.insert(event.object, length).is_none(),
            _ => false,
        };
        let window = (event.at.as_secs() / 30) as usize;
        counted.requests.resize(window + 1, 0);
        counted.requests[window] += u64::from(is_change || is_first);
    }
    counted.bytes = met.values().sum();
    counted
}

pub(super) fn table_3() -> PaperTable {
    let mut table = PaperTable::new(
        "GreenFS (2008) table 3 and section 4.2: the traces, and what the server of JEFF saw",
        &[],
        &[
            "the traces are lost; streams are made to have these totals, so that all but the \
             pauses must agree",
            "a request to the server is a change or the first read of a file; what is smaller \
             than a window is not told by the paper",
        ],
    );
    // The table's rows, under each model of pauses.
    for gaps in GapModel::ALL {
        for (name, operations, hours, percent, megabytes) in [
            ("jeff", "1,987,982", "26.48", "5.6 %", "649"),
            ("purcell", "87,739", "27.66", "6 %", "252"),
        ] {
            let seen = count_stream(
                PublishedTotals::by_name(name).expect("it is published"),
                gaps,
            );
            let what = |what: &str| format!("{name}, {} gaps: {what}", gaps.word());
            table.add_figure(what("operations"), operations, seen.operations.to_string());
            table.add_figure(what("hours"), hours, format!("{:.2}", seen.hours));
            let changes = seen.changes as f64 * 100.0 / seen.operations as f64;
            table.add_figure(what("changes"), percent, format!("{changes:.2} %"));
            table.add_figure(what("MB"), megabytes, format!("{}", seen.bytes / 1_000_000));
            // Only JEFF's server load is published.
            if name == "jeff" {
                let all: u64 = seen.requests.iter().sum();
                table.add_figure(
                    what("requests a second"),
                    "1.3",
                    format!("{:.2}", all as f64 / seen.hours / 3600.0),
                );
                let within = |least, below| {
                    seen.requests
                        .iter()
                        .filter(|n| (least..below).contains(*n))
                        .count()
                };
                for (least, below, paper) in [
                    (10_000, 15_001, "3"),
                    (1_000, 10_000, "17"),
                    (100, 1_000, "505"),
                ] {
                    let what = what(&format!(
                        "30 s with {least} to {} requests",
                        below / 1000 * 1000
                    ));
                    table.add_figure(what, paper, within(least, below).to_string());
                }
            }
        }
    }
    table
}

fn state_power(profile: &str, state: &str) -> Power {
    let profile = Profile::find_shipped(profile).expect("it is shipped");
    let id = profile.state_named(state).expect("it has such a state");
    profile.states[id.index()].power
}

pub(super) fn table_4() -> PaperTable {
    let mut table = PaperTable::new(
        "GreenFS (2008) table 4: power of idle machines, the disk turning and not",
        &[
            "greenfs-server",
            "greenfs-desktop",
            "thinkpad-t42",
            "seagate-savvio-10k6-300gb",
            "desktop-7200rpm-composed",
            "fujitsu-mhu2100at",
        ],
        &[
            "with GreenFS (disk off) is the base power of our profiles, an input; with a turning \
             disk is that and the disk's idle power",
            "no figures of their very disks were found: a newer 2.5-inch server disk stands for a \
             3.5-inch one, and draws half",
            "of the server the scan says 113, 101 and 12, which do not fit each other: its \
             decimals are lost",
        ],
    );
    let watts = |power: Power| format!("{:.1} W", power.get() as f64 / 1e6);
    let base = |name: &str| {
        Profile::find_shipped(name)
            .and_then(|machine| machine.base)
            .expect("it is a machine")
    };
    // Each machine with and without its disk, beside the paper's figures.
    let rows = [
        (
            "server",
            base("greenfs-server"),
            state_power("seagate-savvio-10k6-300gb", "ready"),
            "113, 101 W: 12",
        ),
        (
            "desktop",
            base("greenfs-desktop"),
            state_power("desktop-7200rpm-composed", "idle"),
            "54.1, 46.8 W: 14 %",
        ),
        (
            "notebook",
            Power::from_milliwatts(19_600),
            state_power("fujitsu-mhu2100at", "idle"),
            "20.1, 19.6 W: 2.5 %",
        ),
        (
            "notebook, saving power",
            base("thinkpad-t42"),
            state_power("fujitsu-mhu2100at", "idle"),
            "13.9, 13.4 W: 3.6 %",
        ),
    ];
    for (name, off, disk, paper) in rows {
        let on = off + disk;
        // The part of the disk in the power of the whole machine.
        let percent = disk.get() as f64 * 100.0 / on.get() as f64;
        table.add_figure(
            name,
            paper,
            format!("{}, {}: {percent:.1} %", watts(on), watts(off)),
        );
    }
    table
}

/// Prepares JEFF on a machine with its disk asleep at the beginning.
fn jeff_day(
    machine: ModelledMachine,
    gaps: GapModel,
    memory: u64,
    outages: Vec<(Time, Time)>,
) -> PreparedReplay {
    let items = jeff_published()
        .generate_events(gaps, SEED)
        .map(|event| Ok(TraceItem::Event(event)));
    let assumptions = ReplayAssumptions {
        // The day begins with the night's state of the disk.
        memory,
        outages,
        starts_asleep: true,
        ..ReplayAssumptions::default()
    };
    PreparedReplay::from_items(items, machine, &assumptions).expect("a stream can be replayed")
}

fn device_energy(run: &PolicyRun) -> Energy {
    run.report
        .devices
        .iter()
        .map(|device| device.ledger.total_energy())
        .sum()
}

pub(super) fn jeff_table() -> PaperTable {
    let desktop = || ModelledMachine::by_name("desktop").expect("it has a name");
    let mut table = PaperTable::for_machine(
        "GreenFS (2008) section 4.3: a day of JEFF on the desktop",
        &desktop(),
        &[
            "the trace is lost: a stream with its totals and spikes; it begins at nine with the \
             disk asleep, 256 MB of page cache",
            "compared with the disk alone, always turning; the server's share is the paper's 2.6 \
             W for each of 50 clients",
            "the paper's disk went back to sleep after the night's writing; how long it lingers \
             is not said: ten minutes are taken here",
            "the flash is a modern NVMe drive that draws 70 mW awake, the latency of the network \
             is assumed: see the profiles",
        ],
    );
    let server = Power::from_milliwatts(2_600);
    for gaps in GapModel::ALL {
        // The baseline is the disk alone, always turning.
        let before = jeff_day(disk_alone(), gaps, MEMORY, Vec::new()).run(&NamedPolicy::AlwaysOn);
        let alone = device_energy(&before);
        let scene = jeff_day(desktop(), gaps, MEMORY, Vec::new());
        // Figures of the paper stand beside GreenFS only.
        for (named, is_theirs) in [(NamedPolicy::GreenFs, true), (NamedPolicy::Teal, false)] {
            let after = scene.run(&named);
            let what = |what: &str| format!("{named}, {} gaps: {what}", gaps.word());
            let paper = |words: &'static str| if is_theirs { words } else { "-" };
            let disk = scene
                .machine
                .iter_devices()
                .find(|(_, part)| part.device.kind == DeviceKind::Disk)
                .map_or(0, |(id, _)| id.index());
            let starts = hours_of_starts(&after.report.devices[disk].started);
            table.add_figure(what("starts of the disk"), paper("1, at night"), starts);
            let elapsed = after.report.elapsed;
            // The server's share of each client is added, as in the paper.
            let devices = device_energy(&after);
            let spent = devices + server * elapsed;
            table.add_figure(
                what("saved of storage"),
                paper("60 %"),
                saved_percent(alone, spent, alone),
            );
            // The paper gives savings of the storage alone, and of the whole machine.
            let whole = alone + scene.world.base * elapsed;
            table.add_figure(
                what("saved of all"),
                paper("7 %"),
                saved_percent(alone, spent, whole),
            );
            table.add_figure(
                what("saved of storage, without the server's share"),
                "-",
                saved_percent(alone, devices, alone),
            );
        }
    }
    table
}

/// Returns the desktop's disk alone, without flash or a server.
fn disk_alone() -> ModelledMachine {
    let profiles = [
        Profile::find_shipped("desktop-7200rpm-composed"),
        Profile::find_shipped("greenfs-desktop"),
    ];
    let profiles: Vec<_> = profiles.into_iter().flatten().collect();
    ModelledMachine::from_profiles("disk alone", &profiles).expect("they are complete")
}

/// Returns the number of starts and their hours of the day: they show whether it was night.
fn hours_of_starts(starts: &[Time]) -> String {
    let hours: Vec<_> = starts
        .iter()
        .map(|at| format!("{:.0}", 9.0 + at.get() as f64 / 3.6e12))
        .collect();
    if hours.is_empty() {
        "0".to_owned()
    } else {
        format!("{}, at hour {}", hours.len(), hours.join(" "))
    }
}

/// Returns which part of `whole` is saved by spending `after` and not `before`.
fn saved_percent(before: Energy, after: Energy, whole: Energy) -> String {
    let saved = i128::from(before.get()) - i128::from(after.get());
    format!("{:.0} %", saved as f64 * 100.0 / whole.get() as f64)
}

/// Number of trips of a trial.
const TRIPS: u64 = 300;

pub(super) fn table_5() -> PaperTable {
    let laptop = || ModelledMachine::by_name("laptop").expect("it has a name");
    let mut table = PaperTable::for_machine(
        "GreenFS (2008) table 5: shocks on the way between two floors, GreenFS's policy",
        &laptop(),
        &[
            "the paper walked once; here it is 300 times at even distances over a JEFF stream, \
             the disk asleep when a trip begins, flash as the day so far has left it",
            "no acceleration is modelled: the active protection's figures (29 and 63 % protected, \
             4 and 6 stops) are the paper's alone",
            "the disk must start when the network is out of reach and flash lacks what is read \
             (2.4.2): the paper met no such read on its one trip",
        ],
    );
    for (name, seconds, outage) in [("elevator", 85, 5_100), ("stairs", 58, 0)] {
        for gaps in GapModel::ALL {
            let apart = jeff_published().length.get() / TRIPS;
            let begin = |n: u64| Time::after_start(TimeSpan::from_nanos(n * apart));
            // The network is out of reach from the middle of the trip on, in the elevator.
            let half = TimeSpan::from_millis(seconds * 500);
            let outages = (0..TRIPS).map(|n| {
                (
                    begin(n) + half,
                    begin(n) + half + TimeSpan::from_millis(outage),
                )
            });
            let scene = jeff_day(laptop(), gaps, MEMORY, outages.collect());
            // Each trip is simulated on its own: the disk sleeps when it begins.
            let (mut starts, mut calm, mut asleep, mut all) = (0, 0, 0, 0);
            for n in 0..TRIPS {
                let trip = cut_trip(&scene, begin(n), TimeSpan::from_secs(seconds));
                let mut policy = teal_energy::policy::greenfs::GreenFs::default();
                let report = sim::run(&scene.world, &trip, &mut policy);
                let disk = &report.devices[1];
                starts += disk.starts;
                calm += u64::from(disk.starts == 0);
                // Standby is the state in which the heads are parked.
                let rest = disk
                    .named_uses()
                    .find(|(name, _)| name == "standby")
                    .map_or(TimeSpan::ZERO, |(_, entry)| entry.time);
                asleep += rest.get();
                all += report.elapsed.get();
            }
            let what = |what: &str| format!("{name}, {} gaps: {what}", gaps.word());
            table.add_figure(
                what("protected"),
                "100 %",
                format!("{:.1} % of the time", asleep as f64 * 100.0 / all as f64),
            );
            table.add_figure(
                what("trips without a start"),
                "1 of 1",
                format!("{calm} of {TRIPS}"),
            );
            table.add_figure(
                what("stops a trip"),
                "0",
                format!("{:.2}", starts as f64 / TRIPS as f64),
            );
        }
    }
    table
}

/// Returns the events of a part of a day, as a trace of its own. Changes wait for the disk beyond
/// its end.
fn cut_trip(scene: &PreparedReplay, begin: Time, long: TimeSpan) -> MachineTrace {
    // Only events within the trip are kept, with their times moved to its beginning.
    let within = |event: &&MachineEvent| event.at >= begin && event.at < begin + long;
    let shifted = |event: &MachineEvent| MachineEvent {
        at: Time::after_start(event.at.since(begin)),
        ..*event
    };
    let events = scene.trace.events();
    let first = events.partition_point(|event| event.at < begin);
    let mut events: Vec<MachineEvent> = events[first..]
        .iter()
        .take_while(|event| within(event))
        .map(shifted)
        .collect();
    // The simulator writes everything at its end, but here the disk sleeps on: it gets no changes.
    for event in &mut events {
        if let sim::EventAction::Write { sinks, .. } = &mut event.action {
            *sinks = scene
                .machine
                .iter_devices()
                .filter(|(id, part)| sinks.contains(*id) && part.device.kind != DeviceKind::Disk)
                .map(|(id, _)| id)
                .collect();
        }
    }
    MachineTrace::new(events, Time::after_start(long))
}
