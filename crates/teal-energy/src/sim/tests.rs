//! Invariants of simulations, under all policies and traces of all kinds.

use super::*;
use crate::device::{BudgetLimits, QueueLimits};
use crate::policy::always_on::AlwaysOn;
use crate::policy::bluefs::BlueFs;
use crate::policy::choice::CostWeights;
use crate::policy::coda::Coda;
use crate::policy::greenfs::GreenFs;
use crate::policy::teal::Teal;
use crate::policy::timeout::FixedTimeout;
use crate::profile::Profile;
use proptest::prelude::*;
use teal_types::Energy;

pub(crate) fn device(name: &str) -> DeviceModel {
    DeviceModel::new(&Profile::find_shipped(name).unwrap()).unwrap()
}

fn id(index: usize) -> DeviceId {
    DeviceId::new(index).unwrap()
}

fn set(devices: &[usize]) -> DeviceSet {
    devices.iter().map(|at| id(*at)).collect()
}

/// BlueFS's handheld: a Microdrive and a server over 802.11b.
fn handheld(pace: ReplayPace) -> SimulatedMachine {
    let disk = device("ibm-microdrive-1gb").with_queue(QueueLimits::BLUEFS);
    let link = device("bluefs-802.11b").with_queue(QueueLimits::BLUEFS);
    SimulatedMachine::new(
        vec![disk, link],
        Profile::find_shipped("ipaq-3870").unwrap().base.unwrap(),
        pace,
    )
}

/// A laptop: flash, a disk that may wait a day, the server.
fn laptop(pace: ReplayPace) -> SimulatedMachine {
    let flash = device("samsung-970-evo-plus-500gb").with_queue(QueueLimits {
        age: TimeSpan::from_secs(5),
        bytes: 64 << 20,
    });
    let disk = device("hitachi-travelstar-5k320").with_queue(QueueLimits {
        age: TimeSpan::from_hours(1),
        bytes: 1 << 30,
    });
    let link = device("bluefs-802.11b").with_queue(QueueLimits::BLUEFS);
    SimulatedMachine::new(
        vec![flash, disk, link],
        Profile::find_shipped("thinkpad-t42").unwrap().base.unwrap(),
        pace,
    )
}

pub(crate) fn policies(devices: usize) -> Vec<Box<dyn Policy>> {
    let fixed = |millis| FixedTimeout::new(vec![Some(TimeSpan::from_millis(millis)); devices]);
    vec![
        Box::new(AlwaysOn::default()),
        Box::new(fixed(0)),
        Box::new(fixed(2_000)),
        Box::new(fixed(30_000)),
        Box::new(Coda::new(vec![Some(TimeSpan::from_secs(2)); devices])),
        Box::new(BlueFs::new(CostWeights::EQUAL)),
        Box::new(GreenFs::default()),
        Box::new(Teal::default()),
    ]
}

fn at(millis: u64) -> Time {
    Time::after_start(TimeSpan::from_millis(millis))
}

fn read(millis: u64, object: u64, bytes: u64, copies: DeviceSet) -> MachineEvent {
    MachineEvent {
        at: at(millis),
        action: EventAction::Read {
            object,
            offset: 0,
            bytes,
            copies,
        },
    }
}

fn write(millis: u64, object: u64, bytes: u64, sinks: DeviceSet) -> MachineEvent {
    MachineEvent {
        at: at(millis),
        action: EventAction::Write {
            object,
            bytes,
            sinks,
        },
    }
}

/// Events with gaps from milliseconds to hours, over three devices.
pub(crate) fn traces(devices: usize, most: usize) -> impl Strategy<Value = MachineTrace> {
    let all = (1_u16 << devices) - 1;
    let gap = prop_oneof![0_u64..50, 0_u64..5_000, 0_u64..60_000, 0_u64..7_200_000];
    let kind = prop_oneof![6 => Just(0_u8), 3 => Just(1), 1 => Just(2)];
    prop::collection::vec(
        (gap, kind, 0_u64..12, 1_u64..3_000_000, 1_u16..=all),
        0..most,
    )
    .prop_map(move |steps| {
        let mut now = 0;
        let event = |(gap, kind, object, bytes, mask): (u64, u8, u64, u64, u16)| {
            now += gap;
            let some = (0..devices)
                .filter(|device| mask & 1 << device != 0)
                .map(id)
                .collect();
            let signals = [
                MachineSignal::Presence(false),
                MachineSignal::Presence(true),
                MachineSignal::Sync,
                MachineSignal::MemoryPressure,
                MachineSignal::Supply(PowerSupply::Powered),
                MachineSignal::Supply(PowerSupply::Battery),
            ];
            match kind {
                0 => read(now, object, bytes, some),
                1 => write(now, object, bytes, some),
                _ => MachineEvent {
                    at: at(now),
                    action: EventAction::Signal(signals[object as usize % signals.len()]),
                },
            }
        };
        let events: Vec<_> = steps.into_iter().map(event).collect();
        MachineTrace::new(events, at(now + 1000))
    })
}

#[test]
fn a_small_day_costs_what_arithmetic_says() {
    let mut world = handheld(ReplayPace::Open);
    world.devices.truncate(1);
    let trace = MachineTrace::new(vec![read(10_000, 1, 1024, set(&[0]))], at(20_000));
    let report = run(
        &world,
        &trace,
        &mut FixedTimeout::new(vec![Some(TimeSpan::from_secs(2))]),
    );
    // Idle 2 s, asleep 8 s, up 0.8 s, 12 ms + 8.333 ms + 0.303 ms, idle 2 s, asleep the rest.
    let (up, served) = (800_000_000, 12_000_000 + 8_333_333 + 303_031_u64);
    let asleep = 8_000_000_000 + 20_000_000_000 - 10_000_000_000 - up - served - 2_000_000_000;
    let femtojoules = 4_000_000_000_u128 * 222_000
        + u128::from(asleep) * 61_000
        + 605_000_000_000_000
        + 12_000_000 * 637_000
        + 8_333_333 * 594_000
        + 303_031 * 627_000;
    let disk = report.devices[0].ledger.total_energy();
    assert!(
        disk.get().abs_diff((femtojoules / 1_000_000_000) as u64) <= 3,
        "{disk}"
    );
    assert_eq!(report.delays, [TimeSpan::from_nanos(up + served)]);
    assert_eq!(report.waited, world.base * report.delays[0]);
    assert_eq!((report.devices[0].starts, report.devices[0].cycles), (1, 2));
    // A cold read of a sole copy is apart from what the policy adds elsewhere.
    assert_eq!(
        (&report.cold, report.added),
        (&report.delays, TimeSpan::ZERO)
    );
    assert_eq!(report.devices[0].started, [at(10_000)]);
    assert_eq!(
        report.floor,
        teal_types::Power::from_milliwatts(61) * TimeSpan::from_secs(20)
    );
}

#[test]
fn a_closed_pace_keeps_the_pauses() {
    let mut world = handheld(ReplayPace::Closed);
    world.devices.truncate(1);
    world.start_states = vec![StateId(1)];
    let both = MachineTrace::new(
        vec![
            read(1000, 1, 1024, set(&[0])),
            read(2000, 2, 1024, set(&[0])),
        ],
        at(3000),
    );
    let report = run(&world, &both, &mut FixedTimeout::new(vec![None]));
    assert_eq!(report.delays.len(), 2);
    assert_eq!(
        report.elapsed,
        TimeSpan::from_millis(3000) + report.total_delay(),
        "both waits move the end"
    );
    assert!(
        report.delays[0] > TimeSpan::from_millis(800)
            && report.delays[1] < TimeSpan::from_millis(30)
    );
}

#[test]
fn bursts_hold_what_was_queued_and_later_changes_replace_earlier_ones() {
    let world = handheld(ReplayPace::Open);
    let sink = set(&[0]);
    let trace = MachineTrace::new(
        vec![
            write(0, 1, 100_000, sink),
            write(10_000, 1, 50_000, sink),
            write(20_000, 2, 7, sink),
            write(40_000, 2, 9, sink),
        ],
        at(100_000),
    );
    let report = run(
        &world,
        &trace,
        &mut FixedTimeout::new(vec![Some(TimeSpan::from_secs(2)); 2]),
    );
    let disk = &report.devices[0];
    // The first at 30 s with objects 1 and 2, the second at 70 s.
    assert_eq!(
        disk.flushes.clone().into_iter().collect::<Vec<_>>(),
        [(FlushTrigger::Age, 2)]
    );
    let written = disk
        .ledger
        .entry(crate::ledger::EnergyUse::Work(
            crate::ledger::WorkPhase::Write,
        ))
        .time;
    let exact = |bytes| {
        crate::quantity::Rate::per_second(3_379_200)
            .unwrap()
            .transfer_time(bytes)
    };
    assert_eq!(written, exact(50_007) + exact(9));
}

/// Reads one file block by block, the disk asleep and the network awake, as in figure 4 of BlueFS.
fn one_file(kilobytes: u64, policy: &mut dyn Policy) -> SimulationReport {
    let mut world = handheld(ReplayPace::Closed);
    world.start_states = vec![StateId(1), StateId(0)];
    let block = |n: u64| {
        let what = EventAction::Read {
            object: 1,
            offset: n * 4096,
            bytes: 4096,
            copies: set(&[0, 1]),
        };
        MachineEvent {
            at: Time::ZERO,
            action: what,
        }
    };
    run(
        &world,
        &MachineTrace::new((0..kilobytes / 4).map(block).collect(), Time::ZERO),
        policy,
    )
}

#[test]
fn bluefs_figure_4() {
    let both = |kilobytes| {
        let masked = one_file(kilobytes, &mut BlueFs::new(CostWeights::EQUAL));
        let plain = one_file(kilobytes, &mut Coda::new(vec![None, None]));
        [masked, plain].map(|report| report.total_delay().get() / 1_000_000)
    };
    // "BlueFS reads a 4 KB file in 13 ms, whereas ext2 requires over 800 ms."
    let [masked, plain] = both(4);
    assert!(
        masked == 12 && (800..850).contains(&plain),
        "{masked} {plain}"
    );
    // "The break-even file size is 256 KB."
    let even = (1..=128)
        .map(|n| n * 4)
        .find(|kilobytes| both(*kilobytes)[0] > both(*kilobytes)[1]);
    assert_eq!(even, Some(280));
}

#[test]
fn ghost_hints_hide_the_start_of_a_disk() {
    let masked = one_file(1024, &mut BlueFs::new(CostWeights::EQUAL));
    let plain = one_file(1024, &mut Coda::new(vec![None, None]));
    assert!(
        plain.delays[0] > TimeSpan::from_millis(800),
        "{}",
        plain.delays[0]
    );
    assert!(
        masked
            .delays
            .iter()
            .all(|delay| *delay < TimeSpan::from_millis(50)),
        "{}",
        masked.delay_at(1000)
    );
    assert_eq!(masked.devices[0].starts, 1, "and the disk serves the rest");
    let [disk, link] = [masked.devices[0].reads, masked.devices[1].reads];
    assert!(disk > 100 && link > 20, "{disk} {link}");
}

#[test]
fn the_budget_holds_whatever_is_asked() {
    let mut world = handheld(ReplayPace::Open);
    world.devices.truncate(1);
    world.devices[0].budget = Some(BudgetLimits {
        burst: 3,
        each: TimeSpan::from_hours(1),
    });
    let trace = MachineTrace::new(
        (0..100)
            .map(|n| read(n * 60_000, n, 4096, set(&[0])))
            .collect(),
        at(6_000_000),
    );
    for mut policy in policies(1) {
        let report = run(&world, &trace, policy.as_mut());
        let most = 3 + report.elapsed.get() / TimeSpan::from_hours(1).get();
        assert!(
            report.devices[0].cycles <= most,
            "{}: {} stops",
            report.policy,
            report.devices[0].cycles
        );
        assert_eq!(
            report.delays.len(),
            100,
            "{}: everything was served",
            report.policy
        );
    }
}

#[test]
fn a_sleeping_disk_is_written_when_it_wakes_and_at_night() {
    let mut world = laptop(ReplayPace::Open);
    world.devices[1].queue = Some(QueueLimits::SLEEPING_DISK);
    let (flash, disk) = (set(&[0]), set(&[1]));
    let mut events: Vec<_> = (0..200)
        .map(|n| write(n * 60_000, n, 10_000, set(&[0, 1])))
        .collect();
    events.push(read(6_000_000, 1, 4096, flash));
    events.push(read(9_000_000, 999, 4096, disk));
    events.push(MachineEvent {
        at: at(12_000_000),
        action: EventAction::Signal(MachineSignal::Presence(false)),
    });
    // From nine in the morning to nine the next.
    let trace = MachineTrace::new(events, at(24 * 3_600_000));
    let report = run(&world, &trace, &mut Teal::default());
    let flushes: Vec<_> = report.devices[1].flushes.clone().into_iter().collect();
    assert_eq!(
        flushes,
        [(FlushTrigger::Awake, 2), (FlushTrigger::Quiet, 1)],
        "before each sleep, and at three o'clock"
    );
    assert_eq!(report.devices[1].starts, 2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_policy_is_accounted_repeatable_and_within_limits(trace in traces(3, 60), open in any::<bool>()) {
        let mut world = laptop(if open { ReplayPace::Open } else { ReplayPace::Closed });
        world.devices[1].budget = Some(BudgetLimits { burst: 2, each: TimeSpan::from_hours(2) });
        let reads = trace.events().iter().filter(|event| matches!(event.action, EventAction::Read { .. })).count();
        for (mut one, mut two) in policies(3).into_iter().zip(policies(3)) {
            let report = run(&world, &trace, one.as_mut());
            prop_assert_eq!(&report, &run(&world, &trace, two.as_mut()), "same input, same decisions");
            prop_assert_eq!(report.delays.len(), reads);
            prop_assert!(report.added + report.cold.iter().copied().sum() <= report.total_delay());
            let mut sum = report.waited;
            for device in &report.devices {
                sum += device.ledger.entries().map(|(_, entry)| entry.energy()).sum::<Energy>();
                // What has begun at the end is booked whole.
                prop_assert!(device.ledger.total_time() >= report.elapsed, "{} {}", device.name, report.policy);
            }
            prop_assert_eq!(sum, report.total_energy());
            prop_assert!(report.floor <= report.total_energy() + Energy::from_microjoules(3));
            let budget = 2 + report.elapsed.get() / TimeSpan::from_hours(2).get();
            prop_assert!(report.devices[1].cycles <= budget);
        }
    }

    #[test]
    fn a_longer_time_out_never_wakes_more_often(trace in traces(1, 80), times in prop::collection::vec(0_u64..100_000, 2..6)) {
        let mut world = handheld(ReplayPace::Open);
        world.devices.truncate(1);
        let mut times = times;
        times.sort_unstable();
        let starts = |millis: &u64| run(&world, &trace, &mut FixedTimeout::new(vec![Some(TimeSpan::from_millis(*millis))])).total_starts();
        let starts: Vec<_> = times.iter().map(starts).collect();
        prop_assert!(starts.windows(2).all(|pair| pair[0] >= pair[1]), "{times:?}: {starts:?}");
    }
}
