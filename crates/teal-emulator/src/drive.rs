//! The modelled drive: mechanics and power states together, requests in, times and joules out. It
//! has no I/O and no clock.
//!
//! # Guarantees
//! 1. *Accounted*: the ledger's time is [`ModelledDrive::accounted_until`], to the nanosecond,
//!    after every event.
//! 2. *One at a time*: a request begins when the one before it is done, background work that has
//!    begun is finished, and the drive has come up.
//! 3. *Over time*: the series holds the same joules as the ledger since
//!    [`ModelledDrive::begin_series`], by when they were spent.
//! 4. *Nothing is lost by sleeping*: before it goes down, what is in the cache is on the surface.

#[cfg(test)]
mod tests;

use crate::series::EnergySeries;
use crate::setup::EmulationSetup;
use teal_energy::ledger::{EnergyLedger, EnergyUse};
use teal_energy::mechanics::{Mechanics, SectorRequest};
use teal_energy::power::{MissingFigure, PowerModel};
use teal_energy::profile::StateId;
use teal_energy::service::Job;
use teal_types::{Energy, Time, TimeSpan};

/// The state in which a drive rests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestState {
    /// Ready to serve.
    Ready,
    /// In its lowest power state; the next request wakes it.
    Asleep,
}

/// A change of the power state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PowerEvent {
    /// When it began.
    pub at: Time,
    /// When the drive was there.
    pub done: Time,
    /// The state it went to.
    pub to: RestState,
    /// The energy of the transition.
    pub energy: Energy,
    /// All energy since the start, when it was there.
    pub total: Energy,
}

/// A request that was served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompletedRequest {
    /// When it began.
    pub start: Time,
    /// When it was done.
    pub done: Time,
    /// The energy that the drive spent on it, from start to done.
    pub energy: Energy,
    /// All energy since the start, when it was done.
    pub total: Energy,
}

/// The state of a modelled drive.
#[derive(Debug, Clone)]
pub struct ModelledDrive {
    model: PowerModel,
    mechanics: Mechanics,
    ready: StateId,
    lowest: StateId,
    spin_down: Option<TimeSpan>,
    power: RestState,
    accounted: Time,
    /// The time when it last had something to do.
    last_busy: Time,
    ledger: EnergyLedger,
    series: EnergySeries,
    cycles: u64,
    events: Vec<PowerEvent>,
}

impl ModelledDrive {
    /// Makes a drive that is ready at time zero.
    ///
    /// # Errors
    /// Names the first figure that the profile lacks.
    pub fn new(setup: &EmulationSetup) -> Result<Self, MissingFigure> {
        let model = PowerModel::new(setup.profile())?;
        // The drive begins in the state from which serving is nearest.
        let lowest = model.lowest_state();
        let ready = model.nearest_serving(lowest);
        let mut ledger = EnergyLedger::default();
        ledger.book_power(
            EnergyUse::Rest(ready),
            model.state_power(ready),
            TimeSpan::ZERO,
        );
        Ok(Self {
            mechanics: Mechanics::new(setup.profile())?,
            model,
            ready,
            lowest,
            spin_down: setup.spin_down(),
            power: RestState::Ready,
            accounted: Time::ZERO,
            last_busy: Time::ZERO,
            ledger,
            series: EnergySeries::default(),
            cycles: 0,
            events: Vec::new(),
        })
    }

    /// Returns the model with names and powers of its states.
    pub fn model(&self) -> &PowerModel {
        &self.model
    }

    /// Returns the state in which it rests, or will rest.
    pub fn power(&self) -> RestState {
        self.power
    }

    /// Returns the time up to which everything is in the ledger.
    pub fn accounted_until(&self) -> Time {
        self.accounted
    }

    /// Returns the account since time zero.
    pub fn ledger(&self) -> &EnergyLedger {
        &self.ledger
    }

    /// Returns the joules since the series began, by when they were spent.
    pub fn series(&self) -> &EnergySeries {
        &self.series
    }

    /// Begins the series anew with what is not in the ledger yet.
    pub fn begin_series(&mut self) {
        self.series = EnergySeries::default();
    }

    /// Returns the rated cycles used up.
    pub fn used_cycles(&self) -> u64 {
        self.cycles
    }

    /// Returns the bytes in the cache that are not on the surface.
    pub fn unwritten_bytes(&self) -> u64 {
        self.mechanics.unwritten_bytes()
    }

    /// Takes the changes of the power state since the last time.
    pub fn take_events(&mut self) -> Vec<PowerEvent> {
        std::mem::take(&mut self.events)
    }

    /// Lets time pass: the drive works on its own, rests, and spins down when that is due.
    pub fn advance(&mut self, now: Time) {
        if self.power == RestState::Ready {
            let background = self.mechanics.run_background(now);
            self.book_work(&background);
            // The time without work counts from the end of the background work.
            let due = self.spin_down.map(|after| self.last_busy + after);
            if let Some(due) = due.filter(|due| *due <= now) {
                self.go_down(due);
            }
        }
        self.book_rest(now);
    }

    /// Serves a request that is asked at `now`, after all that were asked before.
    pub fn serve_request(&mut self, now: Time, request: SectorRequest) -> CompletedRequest {
        self.advance(now);
        self.go_up(now);
        let served = self
            .mechanics
            .serve_request(now.max(self.accounted), request);
        // In the order of time: background work, rest, and the request itself.
        self.book_work(&served.background);
        self.book_rest(served.start);
        self.book_work(&served.job);
        self.last_busy = served.done;
        CompletedRequest {
            start: served.start,
            done: served.done,
            energy: served.job.total_energy(),
            total: self.ledger.total_energy(),
        }
    }

    /// Goes to its lowest state now, or as soon as all begun and cached writes are on the surface.
    /// Returns the time when it is there.
    pub fn go_to_sleep(&mut self, now: Time) -> Time {
        self.advance(now);
        if self.power == RestState::Ready {
            // All that is in the cache is written first, however long that takes.
            let rest = self.mechanics.run_background(Time::MAX);
            self.book_work(&rest);
            self.go_down(now.max(self.accounted));
        }
        self.accounted
    }

    /// Gets ready to serve. Returns the time when it is.
    pub fn wake_up(&mut self, now: Time) -> Time {
        self.advance(now);
        self.go_up(now);
        self.accounted.max(now)
    }

    /// Books work that began when the last was done, phase by phase.
    fn book_work(&mut self, job: &Job) {
        for part in job.parts() {
            self.ledger
                .book_power(EnergyUse::Work(part.phase), part.power, part.time);
            self.series.add_power(part.power, part.time);
        }
        self.accounted = self.accounted + job.total_time();
        // A job without time, such as an empty flush, does not put off the spin-down.
        if job.total_time() > TimeSpan::ZERO {
            self.last_busy = self.accounted;
        }
        self.check_accounted();
    }

    /// Checks guarantee 1.
    fn check_accounted(&self) {
        debug_assert_eq!(
            self.ledger.total_time().get(),
            self.accounted.get(),
            "the ledger has the time of the drive"
        );
    }

    /// Books rest until `until`, unless it has begun something already that lasts longer.
    fn book_rest(&mut self, until: Time) {
        let state = if self.power == RestState::Ready {
            self.ready
        } else {
            self.lowest
        };
        let (power, time) = (self.model.state_power(state), until.since(self.accounted));
        self.ledger
            .extend_power(EnergyUse::Rest(state), power, time);
        self.series.add_power(power, time);
        // Work that has begun may last beyond `until`: then there is no rest.
        self.accounted = self.accounted.max(until);
        self.check_accounted();
    }

    /// Rests until `at`, and goes to the lowest state; a drive with one state stays.
    fn go_down(&mut self, at: Time) {
        if self.ready != self.lowest {
            self.book_rest(at);
            self.change_state(self.ready, self.lowest, RestState::Asleep);
        }
    }

    /// Wakes the drive, if it is asleep.
    fn go_up(&mut self, now: Time) {
        if self.power == RestState::Asleep {
            self.book_rest(now);
            self.change_state(self.lowest, self.ready, RestState::Ready);
            self.last_busy = self.accounted;
        }
    }

    /// Moves through the states between `from` and `to`, and books each transition.
    fn change_state(&mut self, from: StateId, to: StateId, power: RestState) {
        let at = self.accounted;
        let (mut here, mut energy) = (from, Energy::ZERO);
        // A profile may have no direct transition: the way is the one of least time.
        while here != to
            && let Some(next) = self.model.first_step(here, to)
            && let Some(transition) = self.model.direct_transition(here, next)
        {
            let (time, cost) = (transition.time, transition.energy);
            self.ledger
                .book_energy(EnergyUse::Move(here, next), time, cost);
            self.series.add_energy(time, cost);
            self.accounted = self.accounted + time;
            self.cycles += u64::from(transition.cycles);
            energy += cost;
            here = next;
        }
        debug_assert!(here == to, "each state can be reached");
        self.power = power;
        // Notes the state in the ledger, so that the rest to come extends it.
        self.ledger.book_power(
            EnergyUse::Rest(to),
            self.model.state_power(to),
            TimeSpan::ZERO,
        );
        self.check_accounted();
        self.events.push(PowerEvent {
            at,
            done: self.accounted,
            to: power,
            energy,
            total: self.ledger.total_energy(),
        });
    }
}
