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
//! Events in ([`Machine::go`], [`Machine::work`]), the time when it is done out;
//! [`Machine::advance`] lets time pass.

mod model;
#[cfg(test)]
mod tests;

use crate::ledger::{Ledger, Use};
use crate::profile::StateId;
use crate::service::Job;
pub use model::{Missing, PowerModel, Route};
use teal_types::{Span, Time};

/// What a device is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Resting in a state since that time.
    Resting {
        /// The state.
        state: StateId,
        /// Since when.
        since: Time,
    },
    /// On the way to a state.
    Moving {
        /// Where it began.
        from: StateId,
        /// Where it ends.
        to: StateId,
        /// When it is there.
        until: Time,
    },
    /// Serving from a state, to which it returns.
    Working {
        /// The state.
        state: StateId,
        /// When it is done.
        until: Time,
    },
}

/// Why a device does not do what it was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is busy; ask again then.
    #[error("the device is busy until {0}")]
    Busy(Time),
    /// There is no direct transition.
    #[error("there is no transition to that state")]
    NoWay,
    /// It does not serve in its state.
    #[error("the device does not serve in this state")]
    Asleep,
}

/// A device's power state as it changes.
#[derive(Debug, Clone)]
pub struct Machine<'a> {
    model: &'a PowerModel,
    place: Place,
    now: Time,
    ledger: Ledger,
    cycles: u64,
}

impl<'a> Machine<'a> {
    /// A device that rests in `state` from `now` on.
    pub fn new(model: &'a PowerModel, state: StateId, now: Time) -> Self {
        let mut ledger = Ledger::default();
        ledger.draw(Use::Rest(state), model.power(state), Span::ZERO);
        Self {
            model,
            place: Place::Resting { state, since: now },
            now,
            ledger,
            cycles: 0,
        }
    }

    /// Returns what it is doing, as of the last event.
    pub fn place(&self) -> Place {
        self.place
    }

    /// The state it rests in or will rest in next.
    pub fn state(&self) -> StateId {
        match self.place {
            Place::Resting { state, .. }
            | Place::Working { state, .. }
            | Place::Moving { to: state, .. } => state,
        }
    }

    /// When it will rest again; `None` if it does.
    pub fn settles(&self) -> Option<Time> {
        match self.place {
            Place::Resting { .. } => None,
            Place::Moving { until, .. } | Place::Working { until, .. } => Some(until),
        }
    }

    /// The account, up to the last event.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Rated cycles used up so far.
    pub fn cycles(&self) -> u64 {
        self.cycles
    }

    /// Lets time pass. What has begun is finished on the way.
    pub fn advance(&mut self, now: Time) {
        debug_assert!(now >= self.now, "time goes back from {} to {now}", self.now);
        if let Place::Moving {
            to: state, until, ..
        }
        | Place::Working { state, until } = self.place
            && until <= now
        {
            self.now = until;
            self.place = Place::Resting {
                state,
                since: until,
            };
            self.ledger
                .draw(Use::Rest(state), self.model.power(state), Span::ZERO);
        }
        if let Place::Resting { state, .. } = self.place {
            self.ledger.draw_on(
                Use::Rest(state),
                self.model.power(state),
                now.since(self.now),
            );
            self.now = self.now.max(now);
        }
    }

    /// Begins the transition to `to`; says when it is there.
    ///
    /// # Errors
    /// [`Refusal::Busy`], or [`Refusal::NoWay`] where there is no direct transition.
    pub fn go(&mut self, now: Time, to: StateId) -> Result<Time, Refusal> {
        let from = self.resting(now)?;
        if from == to {
            return Ok(now);
        }
        let way = self.model.way(from, to).ok_or(Refusal::NoWay)?;
        let until = now + way.time;
        // Booked whole at the start: what has begun is finished.
        self.ledger.book(
            Use::Move(from, to),
            1,
            way.time,
            crate::ledger::of_energy(way.energy),
        );
        self.cycles += u64::from(way.cycles);
        self.place = Place::Moving { from, to, until };
        self.advance(now);
        Ok(until)
    }

    /// Begins a piece of work; says when it is done.
    ///
    /// # Errors
    /// [`Refusal::Busy`], or [`Refusal::Asleep`] where the state does not serve.
    pub fn work(&mut self, now: Time, job: &Job) -> Result<Time, Refusal> {
        let state = self.resting(now)?;
        if !self.model.serves(state) {
            return Err(Refusal::Asleep);
        }
        for part in job.parts() {
            self.ledger
                .book(Use::Work(part.phase), 1, part.time, part.femtojoules());
        }
        let until = now + job.time();
        self.place = Place::Working { state, until };
        self.advance(now);
        Ok(until)
    }

    fn resting(&mut self, now: Time) -> Result<StateId, Refusal> {
        self.advance(now);
        match self.place {
            Place::Resting { state, .. } => Ok(state),
            Place::Moving { until, .. } | Place::Working { until, .. } => Err(Refusal::Busy(until)),
        }
    }
}
