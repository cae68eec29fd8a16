//! The power-state machine of a device: what it may do next, and what it has cost.
//!
//! # Guarantees
//! 1. *Accounted*: at any time the ledger's time is the time that has passed, and its energy the
//!    power of every state, the energy of every transition and the energy of all work since the
//!    start.
//! 2. *One thing at a time*: a device rests, goes from one state to another, or works; what has
//!    begun is finished.
//! 3. *Forward*: time never goes back.
//!
//! [`PowerStateMachine::begin_transition`] and [`PowerStateMachine::begin_work`] take an event in
//! and return the time at which it is done; [`PowerStateMachine::advance`] lets time pass.

mod model;
#[cfg(test)]
mod tests;

use crate::ledger::{EnergyLedger, EnergyUse};
use crate::profile::StateId;
use crate::service::Job;
pub use model::{MissingFigure, PowerModel, StateRoute};
use teal_types::{Time, TimeSpan};

/// The activity of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceActivity {
    /// Resting in a state since that time.
    Resting {
        /// The state.
        state: StateId,
        /// The time since which it rests.
        since: Time,
    },
    /// On the way to a state.
    Moving {
        /// The state it left.
        from: StateId,
        /// The state it goes to.
        to: StateId,
        /// The time at which it arrives.
        until: Time,
    },
    /// Serving from a state, to which it returns.
    Working {
        /// The state.
        state: StateId,
        /// The time at which it is done.
        until: Time,
    },
}

/// The reason why a device does not do what it was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PowerRefusal {
    /// The device is busy; ask again at that time.
    #[error("the device is busy until {0}")]
    Busy(Time),
    /// There is no direct transition.
    #[error("there is no transition to that state")]
    NoTransition,
    /// The device does not serve in its state.
    #[error("the device does not serve in this state")]
    Asleep,
}

/// A device's power state as it changes.
#[derive(Debug, Clone)]
pub struct PowerStateMachine<'a> {
    model: &'a PowerModel,
    activity: DeviceActivity,
    now: Time,
    ledger: EnergyLedger,
    cycles: u64,
}

impl<'a> PowerStateMachine<'a> {
    /// Makes a device that rests in `state` from `now` on.
    pub fn new(model: &'a PowerModel, state: StateId, now: Time) -> Self {
        let mut ledger = EnergyLedger::default();
        ledger.book_power(
            EnergyUse::Rest(state),
            model.state_power(state),
            TimeSpan::ZERO,
        );
        Self {
            model,
            activity: DeviceActivity::Resting { state, since: now },
            now,
            ledger,
            cycles: 0,
        }
    }

    /// Returns the activity of the device as of the last event.
    pub fn current_activity(&self) -> DeviceActivity {
        self.activity
    }

    /// Returns the state it rests in or will rest in next.
    pub fn resting_state(&self) -> StateId {
        match self.activity {
            DeviceActivity::Resting { state, .. }
            | DeviceActivity::Working { state, .. }
            | DeviceActivity::Moving { to: state, .. } => state,
        }
    }

    /// Returns the time at which it will rest again; `None` if it rests.
    pub fn rests_at(&self) -> Option<Time> {
        match self.activity {
            DeviceActivity::Resting { .. } => None,
            DeviceActivity::Moving { until, .. } | DeviceActivity::Working { until, .. } => {
                Some(until)
            }
        }
    }

    /// Returns the account up to the last event.
    pub fn ledger(&self) -> &EnergyLedger {
        &self.ledger
    }

    /// Returns the number of rated cycles used up so far.
    pub fn cycles(&self) -> u64 {
        self.cycles
    }

    /// Lets time pass. What has begun is finished on the way.
    pub fn advance(&mut self, now: Time) {
        debug_assert!(now >= self.now, "time goes back from {} to {now}", self.now);
        // A transition or a piece of work that is over ends at its own time, not at `now`.
        if let DeviceActivity::Moving {
            to: state, until, ..
        }
        | DeviceActivity::Working { state, until } = self.activity
            && until <= now
        {
            self.now = until;
            self.activity = DeviceActivity::Resting {
                state,
                since: until,
            };
            self.ledger.book_power(
                EnergyUse::Rest(state),
                self.model.state_power(state),
                TimeSpan::ZERO,
            );
        }
        // Rest is booked up to `now`. Work and transitions were booked whole when they began.
        if let DeviceActivity::Resting { state, .. } = self.activity {
            self.ledger.extend_power(
                EnergyUse::Rest(state),
                self.model.state_power(state),
                now.since(self.now),
            );
            self.now = self.now.max(now);
        }
    }

    /// Begins the transition to `to`, and returns the time at which the device is there.
    ///
    /// # Errors
    /// [`PowerRefusal::Busy`], or [`PowerRefusal::NoWay`] where there is no direct transition.
    pub fn begin_transition(&mut self, now: Time, to: StateId) -> Result<Time, PowerRefusal> {
        let from = self.require_rest(now)?;
        if from == to {
            return Ok(now);
        }
        let way = self
            .model
            .direct_transition(from, to)
            .ok_or(PowerRefusal::NoTransition)?;
        let until = now + way.time;
        // Booked whole at the start: what has begun is finished.
        self.ledger.book(
            EnergyUse::Move(from, to),
            1,
            way.time,
            crate::ledger::exact_energy(way.energy),
        );
        // Cycles count when a transition begins: a disk that starts cannot be stopped halfway.
        self.cycles += u64::from(way.cycles);
        self.activity = DeviceActivity::Moving { from, to, until };
        self.advance(now);
        Ok(until)
    }

    /// Begins a piece of work, and returns the time at which it is done.
    ///
    /// # Errors
    /// [`PowerRefusal::Busy`], or [`PowerRefusal::Asleep`] where the state does not serve.
    pub fn begin_work(&mut self, now: Time, job: &Job) -> Result<Time, PowerRefusal> {
        let state = self.require_rest(now)?;
        // Work in a state that does not serve would cost nothing real; the caller has to wake the
        // device first.
        if !self.model.serves(state) {
            return Err(PowerRefusal::Asleep);
        }
        for part in job.parts() {
            self.ledger.book(
                EnergyUse::Work(part.phase),
                1,
                part.time,
                part.exact_energy(),
            );
        }
        // The device is busy for the time of all parts together.
        let until = now + job.total_time();
        self.activity = DeviceActivity::Working { state, until };
        self.advance(now);
        Ok(until)
    }

    fn require_rest(&mut self, now: Time) -> Result<StateId, PowerRefusal> {
        self.advance(now);
        match self.activity {
            DeviceActivity::Resting { state, .. } => Ok(state),
            DeviceActivity::Moving { until, .. } | DeviceActivity::Working { until, .. } => {
                Err(PowerRefusal::Busy(until))
            }
        }
    }
}
