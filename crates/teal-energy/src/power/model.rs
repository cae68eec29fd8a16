//! The states of a device and the ways between them, complete: nothing that a simulation needs is
//! missing.
//!
//! # Guarantees
//! 1. Some state serves, and from every state a serving one can be reached, and the other way round
//!    where there is a way down.
//! 2. Routes are the fastest, then the cheapest; ties go to the state that comes first in the
//!    profile.

use crate::breakeven::RoundTrip;
use crate::profile::{PowerState, Profile, StateId, Transition};
use teal_types::{Energy, Power, TimeSpan};

/// A figure that a profile lacks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the profile {profile} has no {figure}; it cannot be simulated")]
pub struct MissingFigure {
    /// The profile's name.
    pub profile: String,
    /// The figure that is missing.
    pub figure: String,
}

impl MissingFigure {
    pub(crate) fn new(profile: &Profile, figure: impl Into<String>) -> Self {
        Self {
            profile: profile.name.clone(),
            figure: figure.into(),
        }
    }
}

/// The whole way from one state to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StateRoute {
    /// Time of all transitions.
    pub time: TimeSpan,
    /// Energy of all transitions.
    pub energy: Energy,
    /// Rated cycles it uses up.
    pub cycles: u32,
}

/// The states of a device and the ways between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PowerModel {
    states: Vec<PowerState>,
    transitions: Vec<Transition>,
    /// First step and whole way, by from and to.
    routes: Vec<Vec<Option<(StateId, StateRoute)>>>,
}

impl PowerModel {
    /// The power states of a profile.
    ///
    /// # Errors
    /// [`MissingFigure`] if there is no state, or one that no transition leads out of.
    pub fn new(profile: &Profile) -> Result<Self, MissingFigure> {
        if profile.states.is_empty() {
            return Err(MissingFigure::new(profile, "power states"));
        }
        let routes = fastest_routes(profile.states.len(), &profile.transitions);
        let model = Self {
            states: profile.states.clone(),
            transitions: profile.transitions.clone(),
            routes,
        };
        for state in model.state_ids() {
            let serving = || model.state_ids().filter(|other| model.serves(*other));
            // A state that cannot be entered or left would strand a device.
            let is_reached = serving().any(|other| model.route(other, state).is_some());
            if !is_reached || !serving().any(|other| model.route(state, other).is_some()) {
                let name = &model.states[state.index()].name;
                return Err(MissingFigure::new(
                    profile,
                    format!("transition into or out of `{name}`"),
                ));
            }
        }
        Ok(model)
    }

    /// Returns all states.
    pub fn state_ids(&self) -> impl Iterator<Item = StateId> + use<> {
        (0..u8::try_from(self.states.len()).unwrap_or(u8::MAX)).map(StateId)
    }

    /// Returns a state's name.
    pub fn state_name(&self, state: StateId) -> &str {
        &self.states[state.index()].name
    }

    /// Returns the power that a state draws.
    pub fn state_power(&self, state: StateId) -> Power {
        self.states[state.index()].power
    }

    /// Returns whether requests are served from a state.
    pub fn serves(&self, state: StateId) -> bool {
        self.states[state.index()].serves
    }

    /// Returns the direct transition.
    pub fn direct_transition(&self, from: StateId, to: StateId) -> Option<&Transition> {
        self.transitions
            .iter()
            .find(|way| (way.from, way.to) == (from, to))
    }

    /// Returns the whole way; it costs nothing from a state to itself.
    pub fn route(&self, from: StateId, to: StateId) -> Option<StateRoute> {
        self.routes[from.index()][to.index()].map(|(_, route)| route)
    }

    /// Returns the first step of that way.
    pub fn first_step(&self, from: StateId, to: StateId) -> Option<StateId> {
        self.routes[from.index()][to.index()].map(|(step, _)| step)
    }

    /// Returns the time from the beginning of that way to its first step that uses up rated cycles;
    /// `None` if no step does.
    pub fn time_to_cycle(&self, from: StateId, to: StateId) -> Option<TimeSpan> {
        let (mut at, mut time) = (from, TimeSpan::ZERO);
        loop {
            let way = self
                .direct_transition(at, self.first_step(at, to)?)
                .filter(|_| at != to)?;
            if way.cycles > 0 {
                return Some(time);
            }
            (at, time) = (way.to, time + way.time);
        }
    }

    /// Returns the serving state that is reached first, then cheapest.
    pub fn nearest_serving(&self, from: StateId) -> StateId {
        let serving = self.state_ids().filter(|to| self.serves(*to));
        serving
            .min_by_key(|to| {
                self.route(from, *to)
                    .map_or((TimeSpan::MAX, Energy::ZERO), |r| (r.time, r.energy))
            })
            .unwrap_or(from)
    }

    /// Returns the state that draws least.
    pub fn lowest_state(&self) -> StateId {
        self.state_ids()
            .min_by_key(|state| self.state_power(*state))
            .unwrap_or(StateId(0))
    }

    /// Returns the way from a state into another and back.
    pub fn round_trip(&self, from: StateId, to: StateId) -> Option<RoundTrip> {
        let (down, up) = (self.route(from, to)?, self.route(to, from)?);
        Some(RoundTrip {
            awake: self.state_power(from),
            asleep: self.state_power(to),
            time: down.time + up.time,
            energy: down.energy + up.energy,
        })
    }
}

/// Fastest routes by Floyd and Warshall; at most sixteen states.
fn fastest_routes(
    count: usize,
    transitions: &[Transition],
) -> Vec<Vec<Option<(StateId, StateRoute)>>> {
    let mut best = vec![vec![None; count]; count];
    for (at, row) in best.iter_mut().enumerate() {
        // Staying costs nothing.
        row[at] = Some((
            StateId(u8::try_from(at).unwrap_or(u8::MAX)),
            StateRoute::default(),
        ));
    }
    for way in transitions {
        let route = StateRoute {
            time: way.time,
            energy: way.energy,
            cycles: way.cycles,
        };
        best[way.from.index()][way.to.index()] = Some((way.to, route));
    }
    // After this step every route that passes only through states up to `over` is the best one.
    for over in 0..count {
        for from in 0..count {
            for to in 0..count {
                let (Some((step, first)), Some((_, rest))) = (best[from][over], best[over][to])
                else {
                    continue;
                };
                let route = StateRoute {
                    time: first.time + rest.time,
                    energy: first.energy + rest.energy,
                    cycles: first.cycles + rest.cycles,
                };
                // Ties keep the route that was found first, so that the result does not depend on
                // chance.
                let is_better = best[from][to].is_none_or(|(_, known): (StateId, StateRoute)| {
                    (route.time, route.energy) < (known.time, known.energy)
                });
                if is_better {
                    best[from][to] = Some((step, route));
                }
            }
        }
    }
    best
}
