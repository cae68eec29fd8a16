//! The charges for resting: in states that serve, no more than the amount at which waiting in a
//! slower one pays.
//!
//! # Guarantees
//! 1. A state is charged no more than it draws.
//! 2. A schedule in which more than one read is still to be served in a slow state when a read
//!    comes that waits for a faster one is no cheaper, so charged, than one that goes up at once
//!    and serves them all there. Each of them takes less time there, in which a program waits, and
//!    the rest power of the faster state is charged at most the amount that this saves. So the
//!    bound need not look at queues in slow states.

use super::{Cost, cost_of};
use crate::device::{DeviceId, DeviceModel};
use crate::profile::StateId;
use crate::service::Job;
use crate::sim::{EventAction, MachineTrace};
use std::collections::BTreeSet;
use teal_types::{Power, TimeSpan};

/// The charge for resting by state, and the time for which a state may keep a faster one waiting.
pub(super) struct RestCharges {
    pub(super) powers: Vec<Power>,
    /// By state: the time of the longest work there and of the longest way there; without end if
    /// the state does not serve, or no other is faster.
    pub(super) longest: Vec<TimeSpan>,
}

/// Returns the charges on a trace.
pub(super) fn rest_charges(
    device: &DeviceModel,
    id: DeviceId,
    base: Power,
    trace: &MachineTrace,
) -> RestCharges {
    let power = &device.power;
    let mut serving: Vec<StateId> = power
        .state_ids()
        .filter(|state| power.serves(*state))
        .collect();
    // States are compared from the slowest to the fastest.
    serving.sort_by_key(|state| power.state_power(*state));
    let sizes = match serving.len() {
        // With one serving state there is nothing to compare.
        0 | 1 => BTreeSet::new(),
        _ => read_sizes(trace, id),
    };
    let powers = limit_charges(device, base, &serving, &sizes);
    let longest = longest_waits(device, &serving, &sizes, &powers);
    RestCharges { powers, longest }
}

/// Returns the sizes of all reads that the device may serve.
fn read_sizes(trace: &MachineTrace, id: DeviceId) -> BTreeSet<u64> {
    let mut sizes = BTreeSet::new();
    for event in trace.events() {
        match event.action {
            EventAction::Read { bytes, copies, .. } if copies.contains(id) => {
                sizes.insert(bytes);
            }
            _ => {}
        }
    }
    sizes
}

/// Returns the charge of each state: for a serving one no more than the amount at which any work is
/// no dearer there than in each slower one.
fn limit_charges(
    device: &DeviceModel,
    base: Power,
    serving: &[StateId],
    sizes: &BTreeSet<u64>,
) -> Vec<Power> {
    let power = &device.power;
    let mut powers: Vec<Power> = power
        .state_ids()
        .map(|state| power.state_power(state))
        .collect();
    for (at, faster) in serving.iter().enumerate() {
        for slower in &serving[..at] {
            let mut limit: Option<Power> = None;
            for (slow, fast) in comparable_jobs(device, *slower, *faster, sizes) {
                let allowed = charge_limit(&slow, &fast, base);
                limit = Some(limit.map_or(allowed, |limit| limit.min(allowed)));
            }
            // The charge lies between that of the slower state and the real power.
            let least = powers[slower.index()];
            let most = limit.unwrap_or(Power::ZERO).min(least + base);
            powers[faster.index()] = powers[faster.index()].min(most).max(least);
            debug_assert!(
                powers[faster.index()] >= powers[slower.index()],
                "a faster state is charged no less"
            );
        }
    }
    powers
}

/// Returns the jobs of a trace in two states: each read size, continued and not, and a burst.
fn comparable_jobs(
    device: &DeviceModel,
    slower: StateId,
    faster: StateId,
    sizes: &BTreeSet<u64>,
) -> Vec<(Job, Job)> {
    let mut jobs = Vec::new();
    for bytes in sizes {
        for is_continued in [true, false] {
            let slow = device.read_job(slower, *bytes, is_continued);
            let fast = device.read_job(faster, *bytes, is_continued);
            jobs.extend(slow.zip(fast));
        }
    }
    // A burst of one byte stands for all: larger ones differ by their rate, as reads do.
    let slow = device.flush_job(slower, 1, 1);
    jobs.extend(slow.zip(device.flush_job(faster, 1, 1)));
    jobs
}

/// Returns for each state the longest time that a read waits there for a faster one.
fn longest_waits(
    device: &DeviceModel,
    serving: &[StateId],
    sizes: &BTreeSet<u64>,
    powers: &[Power],
) -> Vec<TimeSpan> {
    let power = &device.power;
    let mut longest = vec![TimeSpan::MAX; powers.len()];
    for pair in serving.windows(2) {
        let (state, faster) = (pair[0], pair[1]);
        // States with the same charge do not keep each other waiting.
        if powers[faster.index()] == powers[state.index()] {
            continue;
        }
        let works = sizes
            .iter()
            .filter_map(|bytes| Some(device.read_job(state, *bytes, false)?.total_time()));
        let ways = power
            .state_ids()
            .filter_map(|from| Some(power.route(from, state)?.time));
        longest[state.index()] = works.max().unwrap_or_default() + ways.max().unwrap_or_default();
    }
    longest
}

/// Returns the charge for resting in the faster state at which work is no dearer there.
fn charge_limit(slow: &Job, fast: &Job, base: Power) -> Power {
    let saved = Cost::from(slow.total_time().saturating_sub(fast.total_time()).get());
    if saved == 0 {
        return Power::ZERO;
    }
    let worth = Cost::from(base.get()) + (cost_of(slow) - cost_of(fast)).div_euclid(saved);
    Power::from_microwatts(u64::try_from(worth.max(0)).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::MachineEvent;
    use crate::sim::tests::device;
    use teal_types::Time;

    #[test]
    fn a_radio_that_listens_is_charged_what_its_sleep_costs_those_who_wait() {
        let id = DeviceId::new(0).unwrap();
        let copies = [id].into_iter().collect();
        let event = MachineEvent {
            at: Time::ZERO,
            action: EventAction::Read {
                object: 1,
                offset: 0,
                bytes: 4096,
                copies,
            },
        };
        let trace = MachineTrace::new(vec![event], Time::ZERO);
        let powers = |base| {
            rest_charges(
                &device("bluefs-802.11b"),
                id,
                Power::from_milliwatts(base),
                &trace,
            )
            .powers
        };
        // 100 ms of somebody's wait less 10 ms of listening to an answer.
        assert_eq!(powers(1190), [Power::from_milliwatts(1050), Power::ZERO]);
        assert_eq!(
            powers(13_400),
            [Power::from_milliwatts(1400), Power::ZERO],
            "and no more than it draws"
        );
        assert_eq!(powers(0), [Power::ZERO; 2]);
        let disk = rest_charges(&device("ibm-microdrive-1gb"), id, Power::ZERO, &trace);
        assert_eq!(
            disk.powers[0],
            Power::from_milliwatts(222),
            "who does not serve is not waited for"
        );
    }
}
