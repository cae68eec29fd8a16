//! Whatever a trace holds can be replayed: refused with a word, or accounted to the microjoule, the
//! same every time.
#![allow(clippy::unwrap_used, reason = "tests panic where they fail")]

#[allow(dead_code, reason = "each test binary uses its own part")]
#[path = "../../teal-trace/tests/trace/any.rs"]
mod any;

use any::items;
use proptest::prelude::*;
use teal_energy::sim::ReplayPace;
use teal_study::replay::{
    ModelledMachine, NAMED_MACHINES, NamedPolicy, PreparedReplay, ReplayAssumptions, ReplayError,
};
use teal_trace::{Action, EventOutcome, Level, TraceItem};
use teal_types::{Energy, TimeSpan};

fn scene(
    items: &[TraceItem],
    machine: &str,
    pace: ReplayPace,
    memory: u64,
) -> Result<PreparedReplay, ReplayError> {
    let machine = ModelledMachine::by_name(machine).unwrap();
    let assumptions = ReplayAssumptions {
        memory,
        pace,
        ..ReplayAssumptions::default()
    };
    PreparedReplay::from_items(items.iter().cloned().map(Ok), machine, &assumptions)
}

/// Items as `any` makes them, but mostly with requests of a size that somebody could have made.
fn plausible() -> impl Strategy<Value = Vec<TraceItem>> {
    (items(Level::File), 0..8_u8).prop_map(|(mut items, wild)| {
        for item in &mut items {
            let TraceItem::Event(event) = item else {
                continue;
            };
            let moves = matches!(
                event.action,
                Action::Read { .. } | Action::Write { .. } | Action::Copy { .. }
            );
            if moves && wild > 0 {
                event.outcome = EventOutcome::Done(event.object % 3_000_000);
            }
            event.object %= 5;
        }
        items
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_trace_is_refused_or_accounted(
        items in plausible(), at in 0..NAMED_MACHINES.len(), closed in any::<bool>(), memory in 0_u64..1 << 20,
    ) {
        let pace = if closed { ReplayPace::Closed } else { ReplayPace::Open };
        let Ok(scene) = scene(&items, NAMED_MACHINES[at].0, pace, memory) else { return Ok(()) };
        for named in &NamedPolicy::ALL {
            let run = scene.run(named);
            let report = &run.report;
            let mut sum = report.waited;
            for (part, device) in scene.machine.parts.iter().zip(&report.devices) {
                let uses: Energy = device.named_uses().map(|(_, entry)| entry.energy()).sum();
                prop_assert_eq!(uses, device.ledger.total_energy());
                prop_assert!(device.ledger.total_time() >= report.elapsed, "every moment is accounted");
                prop_assert_eq!(device.starts, device.started.len() as u64);
                if let Some(budget) = part.device.budget {
                    let allowed = u64::from(budget.burst) + report.elapsed.get() / budget.each.get();
                    prop_assert!(device.cycles <= allowed, "the budget is kept");
                }
                sum += uses;
            }
            prop_assert_eq!(sum, report.total_energy());
            prop_assert!(report.added + report.cold.iter().copied().sum::<TimeSpan>() <= report.total_delay());
            prop_assert_eq!(&scene.run(named).report, report, "the same input, the same output");
        }
    }

    #[test]
    fn no_policy_spends_less_than_the_bound(items in plausible(), asleep in any::<bool>()) {
        let assumptions = ReplayAssumptions { starts_asleep: asleep, ..ReplayAssumptions::default() };
        let Ok(scene) = PreparedReplay::from_items(items.into_iter().map(Ok), ModelledMachine::by_name("handheld").unwrap(), &assumptions) else {
            return Ok(());
        };
        let runs: Vec<_> = NamedPolicy::ALL.iter().map(|named| scene.run(named)).collect();
        let late = teal_energy::oracle::longest_lateness(runs.iter().map(|run| &run.report));
        let bound = scene.energy_bound(&late, 40, 20);
        let Some(bound) = bound.least() else { return Ok(()) };
        for run in runs {
            // Half a microjoule for each line of an account.
            prop_assert!(bound <= run.report.total_energy() + Energy::from_microjoules(10), "{}: {} below {bound}", run.policy, run.report.total_energy());
        }
    }

    #[test]
    fn a_longer_time_out_never_wakes_more_often(items in plausible(), times in prop::collection::vec(0_u64..2_000, 2..6)) {
        // One disk alone: of several devices, what a time-out leaves awake is read instead of
        // another.
        let profiles = ["ibm-microdrive-1gb"].map(|name| teal_energy::Profile::find_shipped(name).unwrap());
        let machine = ModelledMachine::from_profiles("disk", &profiles).unwrap();
        let Ok(scene) = PreparedReplay::from_items(items.into_iter().map(Ok), machine, &ReplayAssumptions::default()) else { return Ok(()) };
        let mut times = times;
        times.sort_unstable();
        let starts = times.iter().map(|seconds| scene.run(&NamedPolicy::TimeOut(TimeSpan::from_secs(*seconds))).report.total_starts());
        let starts: Vec<_> = starts.collect();
        prop_assert!(starts.windows(2).all(|pair| pair[0] >= pair[1]), "{times:?}: {starts:?}");
    }
}

#[test]
fn a_trace_of_devices_is_told_apart() {
    let trace = b"teal-trace 1 block\n1 0 0 bflush\n";
    let reader = teal_trace::TextReader::new(&trace[..]).unwrap();
    let mut writer = teal_trace::TraceWriter::new(Vec::new(), reader.header()).unwrap();
    reader.for_each(|item| writer.write_item(&item.unwrap()).unwrap());
    let bytes = writer.finish().unwrap();
    let mut reader = teal_trace::TraceReader::new(&bytes[..]).unwrap();
    let read = PreparedReplay::read(
        &mut reader,
        ModelledMachine::by_name("laptop").unwrap(),
        &ReplayAssumptions::default(),
    );
    assert!(matches!(read, Err(ReplayError::BlockLevel)));
}
