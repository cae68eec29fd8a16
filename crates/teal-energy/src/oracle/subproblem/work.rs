//! The steps in which a device works: it serves reads, writes bursts, and stops afterwards.

use super::{CandidateStep, DeviceState, DeviceSubproblem, ServingChoice, StopLimit, WriteLoad};
use crate::oracle::device_search::ScheduledAction;
use teal_types::{Power, TimeSpan};

impl DeviceSubproblem<'_> {
    /// Returns the step that serves a waiting read at a point.
    pub(in crate::oracle) fn serve_read(
        &self,
        own_point: usize,
        (state, cost, time): ServingChoice,
        device_state: DeviceState,
        tokens: StopLimit<'_>,
    ) -> Option<CandidateStep> {
        let step = self.wake_for_read(own_point, device_state, state, tokens)?;
        let free = step.state.free_at.max(self.points[own_point].at) + time;
        Some(CandidateStep {
            state: DeviceState {
                free_at: free,
                ..step.state
            },
            cost: step.cost + cost,
            ..step
        })
    }

    /// Returns the steps that serve the read of a point.
    pub(in crate::oracle) fn read_steps(
        &self,
        own_point: usize,
        device_state: DeviceState,
        tokens: StopLimit<'_>,
    ) -> impl Iterator<Item = CandidateStep> {
        self.points[own_point]
            .reads
            .iter()
            .filter_map(move |serving| self.serve_read(own_point, *serving, device_state, tokens))
    }

    /// Returns the steps that write everything that has come, from a point on.
    pub(in crate::oracle) fn write_steps(
        &self,
        own_point: usize,
        device_state: DeviceState,
        tokens: StopLimit<'_>,
    ) -> impl Iterator<Item = CandidateStep> {
        let here = &self.points[own_point];
        let bursts = self
            .bursts
            .iter()
            .filter(move |_| device_state.written < here.arrived);
        bursts.flat_map(move |(state, time, first)| {
            let needed = self.needed_load(own_point, device_state.written);
            let first = if self.device.is_scattered && needed.objects > 0 {
                0
            } else {
                *first
            };
            // In other states the burst may be moved to a time at which no program waits.
            let is_top = self.power_rise(*state) == Power::ZERO;
            let time = if is_top {
                time.time_of(needed.bytes, needed.objects)
            } else {
                TimeSpan::ZERO
            };
            // If it has to be woken it is there before the next point, or the burst is that one's.
            let is_there = move |step: &CandidateStep| {
                device_state.power_state == *state || here.is_end || step.state.free_at <= here.next
            };
            self.wake_for_burst(own_point, device_state, *state, tokens)
                .filter(is_there)
                .map(move |step| {
                    let free = step.state.free_at.max(here.at) + time;
                    let device_state = DeviceState {
                        written: here.arrived,
                        free_at: free,
                        ..step.state
                    };
                    CandidateStep {
                        state: device_state,
                        cost: step.cost + first,
                        ..step
                    }
                })
        })
    }

    /// Returns the load of a burst of all changes from `first` on that must be written.
    pub(super) fn needed_load(&self, own_point: usize, first: u32) -> WriteLoad {
        let of = |at: u32| {
            self.changes
                .get(at as usize)
                .map_or(self.total_load, |change| change.needed)
        };
        let (end, begin) = (of(self.points[own_point].arrived), of(first));
        WriteLoad {
            bytes: end.bytes - begin.bytes,
            objects: end.objects - begin.objects,
        }
    }

    /// Returns the steps that go down after a point, before the next one.
    pub(in crate::oracle) fn stop_steps(
        &self,
        own_point: usize,
        device_state: DeviceState,
        tokens: StopLimit<'_>,
    ) -> impl Iterator<Item = CandidateStep> {
        let power = self.rest_power(device_state.power_state);
        let lower = (0_u8..)
            .zip(&self.rest_powers)
            .filter(move |(_, lower)| **lower < power);
        let here = &self.points[own_point];
        let begin = device_state.free_at.max(here.at);
        lower
            .filter(move |_| begin <= here.next)
            .filter_map(move |(to, _)| {
                let step = self.begin_transition(own_point, device_state, to, begin, tokens)?;
                Some(CandidateStep {
                    transition: Some((begin, ScheduledAction::Rest(to))),
                    ..step
                })
            })
    }
}
