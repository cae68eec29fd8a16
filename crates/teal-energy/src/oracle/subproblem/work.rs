//! The steps in which a device works: it serves reads, writes bursts, and stops afterwards.

use super::{CandidateStep, DeviceState, DeviceSubproblem, ServingChoice, StopLimit, WriteLoad};
use crate::oracle::device_search::ScheduledAction;
use teal_types::{Power, Span};

impl DeviceSubproblem<'_> {
    /// The way to do such work at a point for somebody who waits.
    pub(in crate::oracle) fn serve_read(
        &self,
        own: usize,
        (state, cost, time): ServingChoice,
        spot: DeviceState,
        tokens: StopLimit<'_>,
    ) -> Option<CandidateStep> {
        let way = self.wake_for_read(own, spot, state, tokens)?;
        let free = way.state.free_at.max(self.points[own].at) + time;
        Some(CandidateStep {
            state: DeviceState {
                free_at: free,
                ..way.state
            },
            cost: way.cost + cost,
            ..way
        })
    }

    /// The ways to serve what is read at a point.
    pub(in crate::oracle) fn read_steps(
        &self,
        own: usize,
        spot: DeviceState,
        tokens: StopLimit<'_>,
    ) -> impl Iterator<Item = CandidateStep> {
        self.points[own]
            .reads
            .iter()
            .filter_map(move |serving| self.serve_read(own, *serving, spot, tokens))
    }

    /// The ways to write everything that has come, from a point on.
    pub(in crate::oracle) fn write_steps(
        &self,
        own: usize,
        spot: DeviceState,
        tokens: StopLimit<'_>,
    ) -> impl Iterator<Item = CandidateStep> {
        let here = &self.points[own];
        let bursts = self
            .bursts
            .iter()
            .filter(move |_| spot.written < here.arrived);
        bursts.flat_map(move |(state, time, first)| {
            let needed = self.needed_load(own, spot.written);
            let first = if self.device.is_scattered && needed.objects > 0 {
                0
            } else {
                *first
            };
            // Elsewhere it may begin when nobody waits.
            let is_top = self.power_rise(*state) == Power::ZERO;
            let time = if is_top {
                time.time_of(needed.bytes, needed.objects)
            } else {
                Span::ZERO
            };
            // If it has to be woken it is there before the next point, or the burst is that one's.
            let is_there = move |way: &CandidateStep| {
                spot.power_state == *state || here.is_end || way.state.free_at <= here.next
            };
            self.wake_for_burst(own, spot, *state, tokens)
                .filter(is_there)
                .map(move |way| {
                    let free = way.state.free_at.max(here.at) + time;
                    let spot = DeviceState {
                        written: here.arrived,
                        free_at: free,
                        ..way.state
                    };
                    CandidateStep {
                        state: spot,
                        cost: way.cost + first,
                        ..way
                    }
                })
        })
    }

    /// Returns what a burst of all changes from one on must hold.
    pub(super) fn needed_load(&self, own: usize, first: u32) -> WriteLoad {
        let of = |at: u32| {
            self.changes
                .get(at as usize)
                .map_or(self.total_load, |change| change.needed)
        };
        let (end, begin) = (of(self.points[own].arrived), of(first));
        WriteLoad {
            bytes: end.bytes - begin.bytes,
            objects: end.objects - begin.objects,
        }
    }

    /// The ways to go down after a point, before the next one.
    pub(in crate::oracle) fn stop_steps(
        &self,
        own: usize,
        spot: DeviceState,
        tokens: StopLimit<'_>,
    ) -> impl Iterator<Item = CandidateStep> {
        let power = self.rest_power(spot.power_state);
        let lower = (0_u8..)
            .zip(&self.rest_powers)
            .filter(move |(_, lower)| **lower < power);
        let here = &self.points[own];
        let begin = spot.free_at.max(here.at);
        lower
            .filter(move |_| begin <= here.next)
            .filter_map(move |(to, _)| {
                let way = self.begin_transition(own, spot, to, begin, tokens)?;
                Some(CandidateStep {
                    transition: Some((begin, ScheduledAction::Rest(to))),
                    ..way
                })
            })
    }
}
