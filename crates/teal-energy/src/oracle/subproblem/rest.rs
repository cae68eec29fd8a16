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
    let mut powers: Vec<_> = power
        .state_ids()
        .map(|state| power.state_power(state))
        .collect();
    let mut longest = vec![TimeSpan::MAX; powers.len()];
    let mut serving: Vec<_> = power
        .state_ids()
        .filter(|state| power.serves(*state))
        .collect();
    // States are compared from the slowest to the fastest.
    serving.sort_by_key(|state| power.state_power(*state));
    let sizes: BTreeSet<u64> = match serving.len() {
        0 | 1 => BTreeSet::new(),
        _ => trace
            .events()
            .iter()
            .filter_map(|event| read_size(&event.action, id))
            .collect(),
    };
    for (at, to) in serving.iter().enumerate() {
        for from in &serving[..at] {
            let jobs = sizes.iter().flat_map(|bytes| {
                let read = |state| {
                    Some([
                        device.read_job(state, *bytes, true)?,
                        device.read_job(state, *bytes, false)?,
                    ])
                };
                read(*from)
                    .into_iter()
                    .flatten()
                    .zip(read(*to).into_iter().flatten())
            });
            let burst = device
                .flush_job(*from, 1, 1)
                .zip(device.flush_job(*to, 1, 1));
            let worth = jobs
                .chain(burst)
                .map(|(slow, fast)| charge_limit(&slow, &fast, base))
                .min();
            // The charge lies between that of the slower state and the real power.
            let least = powers[from.index()];
            let most = worth.unwrap_or(Power::ZERO).min(least + base);
            powers[to.index()] = powers[to.index()].min(most).max(least);
        }
    }
    for (at, state) in serving
        .iter()
        .enumerate()
        .take(serving.len().saturating_sub(1))
    {
        if powers[serving[at + 1].index()] == powers[state.index()] {
            continue;
        }
        let works = sizes
            .iter()
            .filter_map(|bytes| Some(device.read_job(*state, *bytes, false)?.total_time()));
        let steps = power
            .state_ids()
            .filter_map(|from| Some(power.route(from, *state)?.time));
        longest[state.index()] = works.max().unwrap_or_default() + steps.max().unwrap_or_default();
    }
    RestCharges { powers, longest }
}

fn read_size(what: &EventAction, id: DeviceId) -> Option<u64> {
    match what {
        EventAction::Read { bytes, copies, .. } if copies.contains(id) => Some(*bytes),
        _ => None,
    }
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
