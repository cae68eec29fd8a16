//! Whatever a trace holds can be replayed: refused with a word, or accounted to the microjoule, the
//! same every time.
#![allow(clippy::unwrap_used, reason = "tests panic where they fail")]

#[allow(dead_code, reason = "each test binary uses its own part")]
#[path = "../../teal-trace/tests/trace/any.rs"]
mod any;

use any::items;
use proptest::prelude::*;
use teal_energy::sim::Pace;
use teal_study::replay::{Assumptions, Bound, Machine, NAMED, Named, ReplayError, Scene};
use teal_trace::{Action, Item, Level, Outcome};
use teal_types::{Energy, Span};

fn scene(items: &[Item], machine: &str, pace: Pace, memory: u64) -> Result<Scene, ReplayError> {
    let machine = Machine::named(machine).unwrap();
    let assumptions = Assumptions {
        memory,
        pace,
        ..Assumptions::default()
    };
    Scene::of(items.iter().cloned().map(Ok), machine, &assumptions)
}

/// Items as `any` makes them, but mostly with requests of a size that somebody could have made.
fn plausible() -> impl Strategy<Value = Vec<Item>> {
    (items(Level::File), 0..8_u8).prop_map(|(mut items, wild)| {
        for item in &mut items {
            let Item::Event(event) = item else { continue };
            let moves = matches!(
                event.action,
                Action::Read { .. } | Action::Write { .. } | Action::Copy { .. }
            );
            if moves && wild > 0 {
                event.outcome = Outcome::Done(event.object % 3_000_000);
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
        items in plausible(), at in 0..NAMED.len(), closed in any::<bool>(), memory in 0_u64..1 << 20,
    ) {
        let pace = if closed { Pace::Closed } else { Pace::Open };
        let Ok(scene) = scene(&items, NAMED[at].0, pace, memory) else { return Ok(()) };
        for named in &Named::ALL {
            let run = scene.run(named);
            let report = &run.report;
            let mut sum = report.waited;
            for (part, device) in scene.machine.parts.iter().zip(&report.devices) {
                let uses: Energy = device.uses().map(|(_, entry)| entry.energy()).sum();
                prop_assert_eq!(uses, device.ledger.total());
                prop_assert!(device.ledger.time() >= report.elapsed, "every moment is accounted");
                prop_assert_eq!(device.starts, device.started.len() as u64);
                if let Some(budget) = part.device.budget {
                    let allowed = u64::from(budget.burst) + report.elapsed.get() / budget.each.get();
                    prop_assert!(device.cycles <= allowed, "the budget is kept");
                }
                sum += uses;
            }
            prop_assert_eq!(sum, report.total());
            prop_assert!(report.added + report.cold.iter().copied().sum::<Span>() <= report.delay());
            prop_assert_eq!(&scene.run(named).report, report, "the same input, the same output");
        }
    }

    #[test]
    fn no_policy_spends_less_than_the_bound(items in plausible(), asleep in any::<bool>()) {
        let assumptions = Assumptions { starts_asleep: asleep, ..Assumptions::default() };
        let Ok(scene) = Scene::of(items.into_iter().map(Ok), Machine::named("handheld").unwrap(), &assumptions) else {
            return Ok(());
        };
        let runs: Vec<_> = Named::ALL.iter().map(|named| scene.run(named)).collect();
        let late = teal_energy::oracle::lateness(runs.iter().map(|run| &run.report));
        let bound = scene.bound(&late, 40, 20);
        let (Bound::Exact(bound) | Bound::Proven { least: bound, .. }) = bound else { return Ok(()) };
        for run in runs {
            // Half a microjoule for each line of an account.
            prop_assert!(bound <= run.report.total() + Energy::microjoules(10), "{}: {} below {bound}", run.policy, run.report.total());
        }
    }

    #[test]
    fn a_longer_time_out_never_wakes_more_often(items in plausible(), times in prop::collection::vec(0_u64..2_000, 2..6)) {
        // One disk alone: of several devices, what a time-out leaves awake is read instead of
        // another.
        let profiles = ["ibm-microdrive-1gb"].map(|name| teal_energy::Profile::shipped(name).unwrap());
        let machine = Machine::of("disk", &profiles).unwrap();
        let Ok(scene) = Scene::of(items.into_iter().map(Ok), machine, &Assumptions::default()) else { return Ok(()) };
        let mut times = times;
        times.sort_unstable();
        let starts = times.iter().map(|seconds| scene.run(&Named::TimeOut(Span::secs(*seconds))).report.starts());
        let starts: Vec<_> = starts.collect();
        prop_assert!(starts.windows(2).all(|pair| pair[0] >= pair[1]), "{times:?}: {starts:?}");
    }
}

#[test]
fn a_trace_of_devices_is_told_apart() {
    let trace = b"teal-trace 1 block\n1 0 0 bflush\n";
    let reader = teal_trace::TextReader::new(&trace[..]).unwrap();
    let mut writer = teal_trace::Writer::new(Vec::new(), reader.header()).unwrap();
    reader.for_each(|item| writer.put(&item.unwrap()).unwrap());
    let bytes = writer.finish().unwrap();
    let mut reader = teal_trace::Reader::new(&bytes[..]).unwrap();
    let read = Scene::read(
        &mut reader,
        Machine::named("laptop").unwrap(),
        &Assumptions::default(),
    );
    assert!(matches!(read, Err(ReplayError::BlockLevel)));
}
