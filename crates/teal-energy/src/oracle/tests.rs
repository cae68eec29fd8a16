//! The bound against exhaustive search, against every policy, and against its own relaxation.

use super::joint::optimum_cost;
use super::problem::PointKind;
use super::subproblem::{CandidateStep, Cost, DeviceState, DeviceSubproblem, StopLimit};
use super::*;
use crate::device::{BudgetLimits, DeviceId, DeviceSet, QueueLimits};
use crate::policy::timeout::FixedTimeout;
use crate::policy::{FlushTrigger, MachineSignal, MachineView, Policy, PolicyAction, ReadRequest};
use crate::profile::StateId;
use crate::sim::tests::{device, policies, traces};
use crate::sim::{
    EventAction, MachineEvent, MachineTrace, ReplayPace, SimulatedMachine, SimulationReport, run,
};
use proptest::prelude::*;
use teal_types::{Energy, Power, Time, TimeSpan};

fn world(base: Power, age: TimeSpan, disks: usize) -> SimulatedMachine {
    let limits = QueueLimits {
        age,
        bytes: 1 << 30,
    };
    let names = [
        "ibm-microdrive-1gb",
        "bluefs-802.11b",
        "hitachi-travelstar-5k320",
    ];
    let devices = names
        .iter()
        .take(disks)
        .map(|name| device(name).with_queue(limits))
        .collect();
    SimulatedMachine::new(devices, base, ReplayPace::Open)
}

fn at(millis: u64) -> Time {
    Time::after_start(TimeSpan::from_millis(millis))
}

fn one() -> DeviceSet {
    DeviceId::new(0).into_iter().collect()
}

fn read(millis: u64, object: u64) -> MachineEvent {
    MachineEvent {
        at: at(millis),
        action: EventAction::Read {
            object,
            offset: 0,
            bytes: 4096,
            copies: one(),
        },
    }
}

/// The cheapest way of one device that serves exactly these reads: every way, one after the other.
fn search(
    side: &DeviceSubproblem<'_>,
    own: usize,
    spot: DeviceState,
    serves: &[usize],
) -> Option<Cost> {
    let Some(point) = side.points.get(own).map(|own| own.point) else {
        return Some(side.closing_cost(own - 1, spot));
    };
    let tokens = StopLimit::Counted;
    let mut best: Option<Cost> = None;
    let comes = side.advance_to(own, spot);
    let reads: Vec<_> = match serves.contains(&point) {
        true => side.read_steps(own, comes.state, tokens).collect(),
        false => vec![CandidateStep::no_action(comes.state)],
    };
    for read in reads {
        for write in side
            .write_steps(own, read.state, tokens)
            .chain([CandidateStep::no_action(read.state)])
        {
            for stop in side
                .stop_steps(own, write.state, tokens)
                .chain([CandidateStep::no_action(write.state)])
            {
                let is_late = side.is_late(own, stop.state, false);
                let later = (!is_late)
                    .then(|| search(side, own + 1, stop.state, serves))
                    .flatten();
                let Some(later) = later else { continue };
                let all = comes.cost + read.cost + write.cost + stop.cost + later;
                best = Some(best.map_or(all, |best| best.min(all)));
            }
        }
    }
    best
}

/// The least over all ways to share the reads among the devices.
fn exhaustive(problem: &SchedulingProblem<'_>) -> Option<Cost> {
    let reads: Vec<usize> = (0..problem.points.len())
        .filter(|p| problem.points[*p].kind == PointKind::Read)
        .collect();
    let count = problem.subproblems.len();
    let mut best: Option<Cost> = None;
    for mut code in 0..count.pow(u32::try_from(reads.len()).unwrap()) {
        let mut share = vec![Vec::new(); count];
        for point in &reads {
            share[code % count].push(*point);
            code /= count;
        }
        if share.iter().zip(&problem.subproblems).any(|(mine, side)| {
            mine.iter()
                .any(|point| side.least_read_cost(*point).is_none())
        }) {
            continue;
        }
        let sides = problem.subproblems.iter().zip(&share);
        let total: Option<Cost> = sides
            .map(|(side, mine)| search(side, 0, side.start_state(), mine))
            .sum();
        best = best.into_iter().chain(total).min();
    }
    best
}

#[test]
fn one_read_at_night_is_worth_one_start() {
    // An hour, one read in the middle: down at once, up just in time, down at once.
    let world = SimulatedMachine {
        devices: vec![device("ibm-microdrive-1gb")],
        ..world(Power::from_milliwatts(1190), TimeSpan::ZERO, 1)
    };
    let trace = MachineTrace::new(vec![read(1_800_000, 1)], at(3_600_000));
    let least = exact_optimum(&SchedulingProblem::new(&world, &trace, &[])).unwrap();
    let served = world.devices[0]
        .read_job(world.start_states[0], 4096, false)
        .unwrap();
    let asleep =
        TimeSpan::from_secs(3600).saturating_sub(TimeSpan::from_millis(800) + served.total_time());
    let expected = Power::from_milliwatts(61) * asleep
        + Energy::from_millijoules(605)
        + served.total_energy()
        + world.base * served.total_time();
    assert!(
        least.get().abs_diff(expected.get()) <= 3,
        "{least} {expected}"
    );
}

/// Does what it is told: at these times, these actions.
struct Script(Vec<(Time, PolicyAction)>);

impl Policy for Script {
    fn name(&self) -> &'static str {
        "script"
    }
    fn choose_device(&mut self, _: &MachineView<'_>, ask: &ReadRequest) -> DeviceId {
        let turn = ask.object as usize + ask.bytes as usize;
        ask.copies
            .iter()
            .nth(turn % ask.copies.iter().count())
            .unwrap()
    }
    fn decide_actions(
        &mut self,
        view: &MachineView<'_>,
        _: Option<MachineSignal>,
        actions: &mut Vec<PolicyAction>,
    ) -> Option<Time> {
        let due = self.0.iter().filter(|(at, _)| *at <= view.now).count();
        actions.extend(self.0.drain(..due).map(|(_, action)| action));
        self.0.first().map(|(at, _)| *at)
    }
}

#[test]
fn a_schedule_that_knows_the_future_reaches_the_bound() {
    let world = SimulatedMachine {
        devices: vec![device("ibm-microdrive-1gb")],
        ..world(Power::from_milliwatts(1190), TimeSpan::ZERO, 1)
    };
    // A short pause, in which sleeping does not pay, and long ones.
    let trace = MachineTrace::new(
        vec![read(60_000, 1), read(61_000, 2), read(300_000, 3)],
        at(600_000),
    );
    let id = DeviceId::new(0).unwrap();
    let power = &world.devices[0].power;
    let (idle, standby) = (world.start_states[0], power.lowest_state());
    let go = |millis, state| (at(millis), PolicyAction::Enter(id, state));
    let script = vec![
        go(0, standby),
        go(59_200, idle),
        go(61_001, standby),
        go(299_200, idle),
        go(300_001, standby),
    ];
    let done = run(&world, &trace, &mut Script(script)).total_energy();
    let least = exact_optimum(&SchedulingProblem::new(&world, &trace, &[])).unwrap();
    assert!(
        done >= least && done.get() - least.get() <= 10,
        "{done} with foresight, {least} at least"
    );
    let blind = run(
        &world,
        &trace,
        &mut FixedTimeout::new(vec![Some(TimeSpan::from_secs(3))]),
    )
    .total_energy();
    assert!(blind > least + Energy::from_millijoules(500), "{blind}");
}

#[test]
fn too_much_is_refused() {
    let many = SimulatedMachine::new(
        vec![device("ibm-microdrive-1gb"); 4],
        Power::ZERO,
        ReplayPace::Open,
    );
    let trace = MachineTrace::new(vec![read(1, 1)], at(2));
    assert_eq!(
        exact_optimum(&SchedulingProblem::new(&many, &trace, &[])),
        Err(Unsolvable::Devices(4))
    );
    let mut broke = world(Power::ZERO, TimeSpan::from_secs(1), 1);
    broke.start_states = vec![broke.devices[0].power.lowest_state()];
    assert!(exact_optimum(&SchedulingProblem::new(&broke, &trace, &[])).is_ok());
    assert!(Unsolvable::Large(7).to_string().contains('7'));
}

#[test]
fn two_hundred_events_on_three_devices() {
    let mut world = world(Power::from_milliwatts(1190), TimeSpan::from_secs(30), 3);
    // Counting stops that nobody would forbid multiplies the ways.
    world
        .devices
        .iter_mut()
        .for_each(|device| device.budget = None);
    let all: DeviceSet = (0..3).filter_map(DeviceId::new).collect();
    let event = |n: u64| {
        let mixed = n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
        let now = at(n * 4_000 + mixed % 3_500);
        let (object, bytes) = (mixed % 40, 4096 + mixed % 300_000);
        let what = if mixed.is_multiple_of(5) {
            EventAction::Write {
                object,
                bytes,
                sinks: all,
            }
        } else {
            EventAction::Read {
                object,
                offset: 0,
                bytes,
                copies: all,
            }
        };
        MachineEvent {
            at: now,
            action: what,
        }
    };
    let trace = MachineTrace::new((0..200).map(event).collect(), at(900_000));
    let runs: Vec<_> = policies(3)
        .iter_mut()
        .map(|policy| run(&world, &trace, policy.as_mut()))
        .collect();
    let problem = SchedulingProblem::new(&world, &trace, &longest_lateness(&runs));
    let exact = exact_optimum(&problem).unwrap();
    let least_spent = runs
        .iter()
        .map(SimulationReport::total_energy)
        .min()
        .unwrap();
    assert!(least_spent + ROUNDING >= exact);
    let priced = lagrangian_bound(&problem, 80).unwrap();
    assert!(priced.energy <= exact, "{} {exact}", priced.energy);
    // The optimum lies between the bound and what the plan costs when it is run.
    let done = run(&world, &trace, &mut priced.plan.clone().into_policy()).total_energy();
    let told = format!(
        "{exact} exactly, from {}, {done} when run, {least_spent} spent",
        priced.energy
    );
    assert!(
        done + ROUNDING >= exact
            && done.get() * 1000 <= priced.energy.get() * 1028
            && done.get() * 1000 <= exact.get() * 1028,
        "{told}"
    );
}

/// Half a microjoule for each line of each account.
const ROUNDING: Energy = Energy::from_microjoules(40);

fn small(devices: usize, most: usize) -> impl Strategy<Value = (SimulatedMachine, MachineTrace)> {
    let base = prop_oneof![Just(0_u64), Just(100), Just(1190), Just(13_400)];
    let age = prop_oneof![Just(0_u64), 1_u64..60, 60_u64..10_000];
    let budget = prop_oneof![Just(None), (0_u32..3).prop_map(Some)];
    (base, age, budget, any::<bool>(), traces(devices, most)).prop_map(
        move |(base, age, budget, asleep, trace)| {
            let mut world = world(
                Power::from_milliwatts(base),
                TimeSpan::from_secs(age),
                devices,
            );
            world
                .devices
                .iter_mut()
                .for_each(|device| device.budget = None);
            world.devices[0].budget = budget.map(|burst| BudgetLimits {
                burst,
                each: TimeSpan::from_hours(1),
            });
            if asleep {
                world.start_states = world
                    .devices
                    .iter()
                    .map(|device| device.power.lowest_state())
                    .collect();
            }
            (world, trace)
        },
    )
}

/// Checks the bound by prices against the exact optimum: where times are cut to nanoseconds the one
/// may lose what the other does not.
fn is_bound(problem: &SchedulingProblem<'_>, exact: Energy, rounds: usize) -> Result<(), String> {
    let priced = lagrangian_bound(problem, rounds).unwrap();
    let is_one = priced.energy <= exact + Energy::from_microjoules(10);
    is_one
        .then_some(())
        .ok_or_else(|| format!("{} by prices, {} exact", priced.energy.get(), exact.get()))
}

fn set(mask: u16) -> DeviceSet {
    (0..3)
        .filter(|device| mask & 1 << device != 0)
        .filter_map(DeviceId::new)
        .collect()
}

fn write(millis: u64, object: u64, bytes: u64, mask: u16) -> MachineEvent {
    MachineEvent {
        at: at(millis),
        action: EventAction::Write {
            object,
            bytes,
            sinks: set(mask),
        },
    }
}

fn read_of(millis: u64, object: u64, bytes: u64, mask: u16) -> MachineEvent {
    MachineEvent {
        at: at(millis),
        action: EventAction::Read {
            object,
            offset: 0,
            bytes,
            copies: set(mask),
        },
    }
}

#[test]
fn who_waits_behind_a_burst_is_not_counted_twice() {
    let world = world(Power::from_milliwatts(1190), TimeSpan::ZERO, 3);
    let reads =
        [(68, 1), (102, 2), (102, 1), (102, 1)].map(|(millis, mask)| read_of(millis, 0, 1, mask));
    let trace = MachineTrace::new(
        [write(51, 0, 259_875, 6)]
            .into_iter()
            .chain(reads)
            .collect(),
        at(1_102),
    );
    for late in [0, 51, 200, 2_500] {
        let problem = SchedulingProblem::new(&world, &trace, &[TimeSpan::from_millis(late); 3]);
        let Ok(exact) = exact_optimum(&problem) else {
            continue;
        };
        assert_eq!(is_bound(&problem, exact, 8), Ok(()), "{late} ms late");
    }
}

#[test]
fn a_large_read_that_all_hold_soon_after_two_changes_is_not_priced_too_high() {
    let ages = [0, 1, 3, 30].map(TimeSpan::from_secs);
    for (base, age, mask) in [0, 100, 1190]
        .into_iter()
        .flat_map(|base| ages.map(|age| (base, age)))
        .flat_map(|(base, age)| (0..8).map(move |mask| (base, age, mask)))
    {
        let mut world = world(Power::from_milliwatts(base), age, 3);
        world
            .devices
            .iter_mut()
            .for_each(|device| device.budget = None);
        let changes = [write(14, 1, 60_000, mask), write(51, 2, 60_000, mask)];
        let trace = MachineTrace::new(
            changes
                .into_iter()
                .chain([read_of(3_796, 9, 1_200_000, 7)])
                .collect(),
            at(4_796),
        );
        let problem = SchedulingProblem::new(&world, &trace, &[TimeSpan::from_millis(500); 3]);
        let exact = exact_optimum(&problem).unwrap();
        assert_eq!(
            is_bound(&problem, exact, 8),
            Ok(()),
            "base {base} mW, age {age}, changes for {mask:b}"
        );
    }
}

#[test]
fn devices_with_points_of_their_own_do_not_hide_each_others_ways() {
    // One has rested since the beginning, the other is woken late since the machine draws nothing.
    let mut world = world(Power::ZERO, TimeSpan::ZERO, 3);
    world
        .devices
        .iter_mut()
        .for_each(|device| device.budget = None);
    let events = vec![
        read_of(0, 0, 4097, 1),
        read_of(13_899, 0, 1, 4),
        read_of(15_158, 0, 1_630_208, 4),
    ];
    let trace = MachineTrace::new(events, at(16_158));
    let problem = SchedulingProblem::new(&world, &trace, &[]);
    assert_eq!(optimum_cost(&problem).ok(), exhaustive(&problem));
}

#[test]
fn what_is_still_to_be_written_is_no_way_to_make_a_pause_cheaper() {
    // A pause that is just worth sleeping, with a change that can be written before it or in the
    // next one.
    let mut world = world(Power::from_milliwatts(1190), TimeSpan::from_secs(16), 2);
    world
        .devices
        .iter_mut()
        .for_each(|device| device.budget = None);
    let events = vec![
        write(0, 0, 368_059, 1),
        read_of(3_456, 0, 1, 1),
        read_of(6_301, 0, 1, 1),
    ];
    let trace = MachineTrace::new(events, at(7_301));
    let problem = SchedulingProblem::new(&world, &trace, &[]);
    assert_eq!(
        is_bound(&problem, exact_optimum(&problem).unwrap(), 8),
        Ok(())
    );
}

/// Actions at any times, whether they make sense or not.
fn scripts(devices: u8) -> impl Strategy<Value = Vec<(u64, Option<u8>, u8)>> {
    prop::collection::vec(
        (0_u64..1_000_000, prop::option::of(0_u8..3), 0..devices),
        0..24,
    )
}

/// Does the same as actions of a world, at parts of a trace's time or just behind its events.
fn script(
    world: &SimulatedMachine,
    trace: &MachineTrace,
    steps: &[(u64, Option<u8>, u8)],
) -> Script {
    let events = trace.events();
    let when = |part: u64| match events.get(part as usize / 7 % events.len().max(1)) {
        Some(event) if part.is_multiple_of(2) => {
            event.at + TimeSpan::from_nanos(part * 1000 % 3_000_000_000)
        }
        _ => Time::after_start(TimeSpan::from_nanos(
            trace.end().since(Time::ZERO).get() / 1_000_000 * part,
        )),
    };
    let action = |(part, state, device): &(u64, Option<u8>, u8)| {
        let id = DeviceId::new(usize::from(*device))?;
        let states = world.devices[id.index()].power.state_ids().count() as u8;
        let action = match state {
            Some(state) => PolicyAction::Enter(id, StateId(state % states)),
            None => PolicyAction::Flush(id, FlushTrigger::Awake),
        };
        Some((when(*part), action))
    };
    let mut actions: Vec<_> = steps.iter().filter_map(action).collect();
    actions.sort_by_key(|(at, _)| *at);
    Script(actions)
}

/// With `PROPTEST_CASES` so many cases.
fn cases() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|cases| cases.parse().ok());
    ProptestConfig::with_cases(cases.unwrap_or(64))
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn dynamic_programming_finds_what_exhaustive_search_finds((world, trace) in small(2, 4)) {
        let problem = SchedulingProblem::new(&world, &trace, &[]);
        prop_assert_eq!(optimum_cost(&problem).ok(), exhaustive(&problem));
    }

    #[test]
    fn no_policy_beats_the_oracle((world, trace) in small(3, 16), steps in prop::collection::vec(scripts(3), 4)) {
        let mut all = policies(3);
        all.extend(steps.iter().map(|steps| Box::new(script(&world, &trace, steps)) as Box<dyn Policy>));
        let runs: Vec<_> = all.iter_mut().map(|policy| run(&world, &trace, policy.as_mut())).collect();
        let problem = SchedulingProblem::new(&world, &trace, &longest_lateness(&runs));
        let exact = exact_optimum(&problem).unwrap();
        for report in runs {
            let total = report.total_energy();
            prop_assert!(total + ROUNDING >= exact, "{} spends {}, the bound is {}", report.policy, total, exact);
        }
        prop_assert_eq!(is_bound(&problem, exact, 8), Ok(()));
    }

    #[test]
    fn no_schedule_with_foresight_beats_the_oracle((world, trace) in small(3, 12)) {
        let first = run(&world, &trace, &mut FixedTimeout::new(vec![None; 3]));
        let problem = SchedulingProblem::new(&world, &trace, &longest_lateness([&first]));
        let plan = lagrangian_bound(&problem, 12).unwrap().plan;
        let planned = run(&world, &trace, &mut plan.into_policy());
        let problem = SchedulingProblem::new(&world, &trace, &longest_lateness([&first, &planned]));
        let exact = exact_optimum(&problem).unwrap();
        prop_assert!(planned.total_energy() + ROUNDING >= exact, "{} planned, the bound is {}", planned.total_energy(), exact);
        prop_assert_eq!(is_bound(&problem, exact, 12), Ok(()));
    }
}
