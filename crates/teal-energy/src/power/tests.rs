//! Energy accounted equals an independent sum over the time line.

use super::*;
use crate::profile::Profile;
use crate::service::{ServiceModel, TransferDirection};
use proptest::prelude::*;
use teal_types::{Energy, Power};

fn microdrive() -> (Profile, PowerModel, ServiceModel) {
    let profile = Profile::find_shipped("ibm-microdrive-1gb").unwrap();
    let power = PowerModel::new(&profile).unwrap();
    let service = ServiceModel::new(&profile, &power).unwrap();
    (profile, power, service)
}

fn at(millis: u64) -> Time {
    Time::after_start(TimeSpan::from_millis(millis))
}

#[test]
fn a_night_in_standby_costs_what_it_should() {
    let (profile, model, service) = microdrive();
    let (idle, standby) = (
        profile.state_named("idle").unwrap(),
        profile.state_named("standby").unwrap(),
    );
    let mut machine = PowerStateMachine::new(&model, idle, Time::ZERO);
    assert_eq!(machine.begin_transition(at(1000), standby), Ok(at(1000)));
    assert_eq!(
        machine.begin_work(at(2000), &Job::default()),
        Err(PowerRefusal::Asleep)
    );
    assert_eq!(machine.begin_transition(at(11_000), idle), Ok(at(11_800)));
    assert_eq!(
        machine.begin_transition(at(11_500), standby),
        Err(PowerRefusal::Busy(at(11_800)))
    );
    let job = service
        .job_for(idle, TransferDirection::Read, 1024, false)
        .unwrap();
    let done = machine.begin_work(at(11_800), &job).unwrap();
    machine.advance(done);
    let energy = |used| machine.ledger().entry(used).energy();
    assert_eq!(energy(EnergyUse::Rest(idle)), Energy::from_millijoules(222));
    assert_eq!(
        energy(EnergyUse::Rest(standby)),
        Energy::from_millijoules(610)
    );
    assert_eq!(
        energy(EnergyUse::Move(standby, idle)),
        Energy::from_millijoules(605)
    );
    assert_eq!(machine.cycles(), 1);
    assert_eq!(machine.ledger().total_time(), done.since(Time::ZERO));
}

#[test]
fn a_profile_without_its_figures_cannot_be_simulated() {
    let missing = |name: &str| {
        let profile = Profile::find_shipped(name).unwrap();
        PowerModel::new(&profile)
            .and_then(|power| ServiceModel::new(&profile, &power))
            .unwrap_err()
            .figure
    };
    assert_eq!(missing("greenfs-desktop-hdd"), "power states");
    assert_eq!(
        missing("seagate-barracuda-es"),
        "transition into or out of `standby`"
    );
    assert_eq!(missing("wd-re-4tb"), "seek times");
    assert_eq!(missing("ipaq-3870"), "power states");
}

#[test]
fn routes_lead_through_states_between() {
    let text = include_str!("../../profiles/samsung-970-evo-plus-500gb.toml")
        .replace("to = \"ps4\"", "to = \"ps4\"")
        + "[[state]]\nname = \"off\"\npower = \"0 W\"\nsource = \"a test\"\n[[transition]]\nfrom = \"ps4\"\nto = \"off\"\ntime = \"1 s\"\nenergy = \"1 J\"\ncycles = 1\nsource = \"a test\"\n[[transition]]\nfrom = \"off\"\nto = \"ps4\"\ntime = \"2 s\"\nenergy = \"2 J\"\nsource = \"a test\"\n";
    let profile = Profile::parse(&text).unwrap();
    let model = PowerModel::new(&profile).unwrap();
    let (ps3, ps4, off) = (
        profile.state_named("ps3").unwrap(),
        profile.state_named("ps4").unwrap(),
        profile.state_named("off").unwrap(),
    );
    assert_eq!(model.first_step(ps3, off), Some(ps4));
    let route = model.route(off, ps3).unwrap();
    assert_eq!(
        (route.time, route.energy),
        (
            TimeSpan::from_millis(2008),
            Energy::from_microjoules(2_000_560)
        )
    );
    assert_eq!(
        (model.nearest_serving(off), model.lowest_state()),
        (ps3, off)
    );
    assert_eq!(
        model.round_trip(ps3, off).unwrap().awake,
        Power::from_milliwatts(70)
    );
}

#[derive(Debug, Clone, Copy)]
enum Act {
    Wait(u32),
    Go(bool),
    Work(u32, bool, bool),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        (0_u32..3_000_000).prop_map(Act::Wait),
        any::<bool>().prop_map(Act::Go),
        (0_u32..1_000_000, any::<bool>(), any::<bool>())
            .prop_map(|(bytes, read, on)| Act::Work(bytes, read, on)),
    ];
    prop::collection::vec(act, 0..60)
}

proptest! {
    #[test]
    fn energy_accounted_is_the_sum_over_states_transitions_and_work(acts in acts()) {
        let (profile, model, service) = microdrive();
        let (idle, standby) = (profile.state_named("idle").unwrap(), profile.state_named("standby").unwrap());
        let mut machine = PowerStateMachine::new(&model, idle, Time::ZERO);
        // The second account: microwatts times nanoseconds along the time line, kept apart from the
        // first.
        let (mut now, mut exact, mut parts) = (Time::ZERO, 0_u128, 0_u64);
        for act in acts {
            let state = machine.resting_state();
            match act {
                Act::Wait(micros) => {
                    let span = TimeSpan::from_micros(micros.into());
                    exact += u128::from(profile.states[state.index()].power.get()) * u128::from(span.get());
                    now = now + span;
                    machine.advance(now);
                }
                Act::Go(up) => {
                    let to = if up { idle } else { standby };
                    let done = machine.begin_transition(now, to).unwrap();
                    if to != state {
                        exact += if up { 605_000 * 1_000_000_000 } else { 0 };
                        parts += 1;
                    }
                    now = done;
                    machine.advance(now);
                }
                Act::Work(bytes, is_read, is_continued) => {
                    let direction = if is_read { TransferDirection::Read } else { TransferDirection::Write };
                    let Some(job) = service.job_for(state, direction, bytes.into(), is_continued) else {
                        prop_assert_eq!(machine.begin_work(now, &Job::default()), Err(PowerRefusal::Asleep));
                        continue;
                    };
                    exact += job.parts().iter().map(|p| u128::from(p.power.get()) * u128::from(p.time.get())).sum::<u128>();
                    now = machine.begin_work(now, &job).unwrap();
                    machine.advance(now);
                }
            }
        }
        prop_assert_eq!(machine.ledger().total_time(), now.since(Time::ZERO));
        let sum: Energy = machine.ledger().entries().map(|(_, entry)| entry.energy()).sum();
        prop_assert_eq!(sum, machine.ledger().total_energy());
        // Each of the entries is rounded once, by half a microjoule at most.
        let entries = machine.ledger().entries().count() as u64;
        let expected = u64::try_from(exact / 1_000_000_000).unwrap();
        prop_assert!(sum.get().abs_diff(expected) <= entries, "{sum:?} {expected} {parts}");
    }
}
