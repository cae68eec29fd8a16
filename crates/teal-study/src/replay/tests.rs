//! Replays of traces: what goes in comes out once, and adds up.

use super::*;
use teal_energy::device::DeviceId;
use teal_energy::sim::EventAction;
use teal_trace::{TextReader, TraceWriter};

/// The bytes of a trace given as text.
pub(crate) fn bytes(text: &str) -> Vec<u8> {
    let reader = TextReader::new(text.as_bytes()).unwrap();
    let mut writer = TraceWriter::new(Vec::new(), reader.header()).unwrap();
    reader.for_each(|item| writer.write_item(&item.unwrap()).unwrap());
    writer.finish().unwrap()
}

fn scene(text: &str, machine: &str, assumptions: &ReplayAssumptions) -> PreparedReplay {
    let bytes = bytes(text);
    let mut reader = TraceReader::new(&bytes[..]).unwrap();
    let (scene, ending) = PreparedReplay::read(
        &mut reader,
        ModelledMachine::by_name(machine).unwrap(),
        assumptions,
    )
    .unwrap();
    assert_eq!(ending, TraceEnding::Complete);
    scene
}

/// Reads and changes of a scene: time in seconds, what, bytes, devices.
fn events(scene: &PreparedReplay) -> Vec<(u64, char, u64, Vec<usize>)> {
    let of = |event: &sim::MachineEvent| {
        let (what, bytes, devices) = match event.action {
            EventAction::Read { bytes, copies, .. } => ('r', bytes, copies),
            EventAction::Write { bytes, sinks, .. } => ('w', bytes, sinks),
            EventAction::Signal(_) => return None,
        };
        Some((
            event.at.get() / 1_000_000_000,
            what,
            bytes,
            devices.iter().map(DeviceId::index).collect(),
        ))
    };
    scene.trace.events().iter().filter_map(of).collect()
}

const HEAD: &str = "teal-trace 1 file\nstart 1763769600.000000000\ncalled 1 0 \"\"\n";

#[test]
fn what_is_read_elsewhere_is_read_once_and_copied_to_flash() {
    let text = format!(
        "{HEAD}10 7 20 read offset=0 length=8192 = 8192\n11 7 20 read offset=8192 length=4096 = \
         1000\n\
         20 7 20 read offset=0 length=131072 = 9192\n21 7 21 read offset=0 length=10 ! 5\n22 7 21 \
         stat = 0\n23 7 21 stat = 0\n24 7 1 lookup name=\"x\" ! 2\n"
    );
    let scene = scene(&text, "laptop", &ReplayAssumptions::default());
    let others = || vec![1, 2];
    let want = [
        (10, 'r', 8192, others()),
        (10, 'w', 8192, vec![0]),
        (11, 'r', 1000, others()),
        (11, 'w', 4096, vec![0]),
        (20, 'r', 9192, vec![0, 1, 2]),
        (22, 'r', 4096, others()),
        (22, 'w', 4096, vec![0]),
        (24, 'r', 4096, others()),
        (24, 'w', 4096, vec![0]),
    ];
    assert_eq!(events(&scene), want);
    let TraceTotals {
        events,
        failed,
        reads,
        from_memory,
        read_bytes,
        changes,
        ..
    } = scene.totals;
    assert_eq!(
        (events, failed, reads, from_memory, changes),
        (7, 2, 5, 0, 0)
    );
    assert_eq!(read_bytes, 8192 + 1000 + 9192 + 2 * 4096);
    assert_eq!(
        scene.world.time_of_day,
        TimeSpan::ZERO,
        "the time of day is the trace's: midnight"
    );
}

#[test]
fn changes_go_everywhere_and_what_is_removed_in_time_costs_nothing() {
    let text = format!(
        "{HEAD}1 7 1 create name=\"a\" = 30\n2 7 30 write offset=0 length=5000 = 5000\n3 7 30 \
         write offset=4096 length=100 = 100\n\
         4 7 30 read offset=0 length=5000 = 5000\n50 7 1 unlink name=\"a\" = 0\n"
    );
    let scene = scene(&text, "laptop", &ReplayAssumptions::default());
    let all = || vec![0, 1, 2];
    let want = [
        (1, 'w', 4096, all()),
        (1, 'w', 4096, all()),
        (2, 'w', 8192, all()),
        (3, 'w', 8192, all()),
        // Gone from the queue of the disk; flash and server have it since long.
        (50, 'w', 0, vec![1]),
        (50, 'w', 0, vec![1]),
        (50, 'w', 4096, all()),
    ];
    assert_eq!(events(&scene), want);
    assert_eq!(
        (
            scene.totals.cancelled,
            scene.totals.from_memory,
            scene.totals.reads
        ),
        (2, 1, 1)
    );
    let report = scene.run(&NamedPolicy::AlwaysOn).report;
    let written = report.devices[1]
        .named_uses()
        .find(|(name, _)| name == "write")
        .unwrap()
        .1;
    // The directory; the file is gone before it had to be written. 44 MB/s.
    assert_eq!(
        written.time,
        TimeSpan::from_nanos((4096_u64 * 1000).div_ceil(44)),
        "{written:?}"
    );
}

#[test]
fn nobody_is_there_after_a_while_without_events() {
    let text = format!("{HEAD}1 7 1 stat = 0\n5000 7 1 stat = 0\n");
    let with = |away| {
        let assumptions = ReplayAssumptions {
            away,
            ..ReplayAssumptions::default()
        };
        let scene = scene(&text, "laptop", &assumptions);
        let signals = scene
            .trace
            .events()
            .iter()
            .filter(|event| matches!(event.action, EventAction::Signal(_)));
        signals
            .map(|event| event.at.get() / 1_000_000_000)
            .collect::<Vec<_>>()
    };
    assert_eq!(with(Some(TimeSpan::from_secs(600))), [601, 5000]);
    assert!(with(None).is_empty());
}

#[test]
fn what_cannot_be_replayed_is_refused() {
    let said = |text: &str| {
        let bytes = bytes(text);
        let machine = ModelledMachine::by_name("laptop").unwrap();
        PreparedReplay::read(
            &mut TraceReader::new(&bytes[..]).unwrap(),
            machine,
            &ReplayAssumptions::default(),
        )
        .unwrap_err()
        .to_string()
    };
    assert!(said("teal-trace 1 block\n1 0 0 bflush\n").contains("only traces of files"));
    assert!(said("teal-trace 1 file\n").contains("no event"));
    let long = said(
        "teal-trace 1 file\n1 0 1 read offset=0 length=1\n2 0 3 write offset=0 \
         length=99999999999\n",
    );
    assert!(
        long.contains("event 2 at 0:00:02.000 moves 99999999999"),
        "{long}"
    );
    // The end of what numbers can say.
    let edge = "teal-trace 1 file\n1 0 1 read offset=18446744073709551615 length=4096\n\
                18446744073 0 1 write offset=18446744073709551615 length=4294967296\n";
    let edge = bytes(edge);
    let read = PreparedReplay::read(
        &mut TraceReader::new(&edge[..]).unwrap(),
        ModelledMachine::by_name("laptop").unwrap(),
        &ReplayAssumptions::default(),
    );
    assert!(read.is_ok(), "{read:?}");
}

#[test]
fn a_decision_is_explained_and_watching_changes_nothing() {
    let text = format!(
        "{HEAD}10 7 20 read offset=0 length=4096 = 4096\n400 7 21 read offset=0 length=4096 = \
         4096\n"
    );
    let scene = scene(&text, "handheld", &ReplayAssumptions::default());
    for named in NamedPolicy::ALL {
        let which = explain::DecisionSelector::At(Time::after_start(TimeSpan::from_secs(400)));
        let (watched, found) = scene.explain_decision(&named, which);
        let alone = scene.run(&named);
        assert_eq!(
            (&watched.report, &watched.policy),
            (&alone.report, &alone.policy),
            "watching changes nothing"
        );
        let found = found.expect("a read is a decision");
        assert_eq!(found.at, Time::after_start(TimeSpan::from_secs(400)));
        assert!(found.lines[0].contains("object 21"), "{found:?}");
        assert!(
            found.lines.iter().any(|line| line.starts_with("chosen: ")),
            "{found:?}"
        );
        let (_, again) =
            scene.explain_decision(&named, explain::DecisionSelector::Number(found.number));
        assert_eq!(again, Some(found));
        assert_eq!(
            scene
                .explain_decision(&named, explain::DecisionSelector::Number(1 << 40))
                .1,
            None
        );
    }
    let (_, slept) = scene.explain_decision(
        &NamedPolicy::TimeOut(TimeSpan::from_secs(2)),
        explain::DecisionSelector::Number(1),
    );
    assert!(
        slept
            .unwrap()
            .lines
            .iter()
            .any(|line| line.contains("goes to standby, which pays from 3.45 s on"))
    );
}

#[test]
fn the_bound_is_below_every_policy_and_exact_only_if_a_schedule_reaches_it() {
    let text: String = (1..40)
        .map(|n| {
            format!(
                "{} 7 {} read offset=0 length=4096 = 4096\n",
                n * n,
                n % 7 + 20
            )
        })
        .collect();
    let scene = scene(
        &format!("{HEAD}{text}"),
        "handheld",
        &ReplayAssumptions::default(),
    );
    let runs: Vec<_> = NamedPolicy::ALL
        .iter()
        .map(|named| scene.run(named).report)
        .collect();
    let late = teal_energy::oracle::longest_lateness(&runs);
    let spent: Vec<_> = runs
        .iter()
        .map(teal_energy::sim::SimulationReport::total_energy)
        .collect();
    let least = *spent.iter().min().unwrap();
    let bound = scene.energy_bound(&late, 200, 10);
    let EnergyBound::Proven {
        least: proven,
        feasible: Some(feasible),
    } = bound
    else {
        panic!("two devices, {:?}", scene.trace.events().len())
    };
    assert!(
        proven <= least && proven.get() * 2 > least.get(),
        "{proven} {spent:?}"
    );
    assert!(proven <= feasible, "{proven} {feasible}");
    let exact = |feasible| {
        let least = Energy::from_microjoules(1_000_000);
        EnergyBound::Proven { least, feasible }.is_exact()
    };
    assert!(exact(Some(Energy::from_microjoules(1_001_000))));
    assert!(!exact(Some(Energy::from_microjoules(1_001_001))));
    assert!(!exact(None), "nothing is known to reach it");
    assert!(matches!(
        scene.energy_bound(&late, 10, 10),
        EnergyBound::No(_)
    ));
    let svg = plot::render_svg(
        "a <day>",
        &scene.machine,
        &[scene.run(&NamedPolicy::Teal)],
        &bound,
    );
    assert!(
        svg.contains("a &lt;day&gt; on handheld") && svg.contains("modelled by ibm-microdrive-1gb"),
        "{svg}"
    );
}
