//! The modelled drive: mechanics and power states together, requests in, times and joules out. No
//! I/O, no clock.
//!
//! # Guarantees
//! 1. *Accounted*: the ledger's time is [`Drive::accounted`], to the nanosecond, after every event.
//! 2. *One at a time*: a request begins when the one before it is done, background work that has
//!    begun is finished, and the drive has come up.
//! 3. *Over time*: the series holds the same joules as the ledger since [`Drive::begin_series`], by
//!    when they were spent.
//! 4. *Nothing is lost by sleeping*: before it goes down, what is in the cache is on the surface.

#[cfg(test)]
mod tests;

use crate::series::Series;
use crate::setup::Setup;
use teal_energy::ledger::{Ledger, Use};
use teal_energy::mechanics::{Mechanics, Request};
use teal_energy::power::{Missing, PowerModel};
use teal_energy::profile::StateId;
use teal_energy::service::Job;
use teal_types::{Energy, Span, Time};

/// Where a drive rests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Power {
    /// It serves.
    Ready,
    /// In its lowest state; the next request wakes it.
    Asleep,
}

/// A change of the power state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PowerEvent {
    /// When it began.
    pub at: Time,
    /// When the drive was there.
    pub done: Time,
    /// What it went to.
    pub to: Power,
    /// What the way cost.
    pub energy: Energy,
    /// All energy since the start, when it was there.
    pub total: Energy,
}

/// A request that was served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    /// When it began.
    pub start: Time,
    /// When it was done.
    pub done: Time,
    /// What the drive spent on it, from start to done.
    pub energy: Energy,
    /// All energy since the start, when it was done.
    pub total: Energy,
}

/// The state of a modelled drive.
#[derive(Debug, Clone)]
pub struct Drive {
    model: PowerModel,
    mechanics: Mechanics,
    ready: StateId,
    lowest: StateId,
    spin_down: Option<Span>,
    power: Power,
    accounted: Time,
    /// When it last had something to do.
    busy: Time,
    ledger: Ledger,
    series: Series,
    cycles: u64,
    events: Vec<PowerEvent>,
}

impl Drive {
    /// A drive that is ready at time zero.
    ///
    /// # Errors
    /// [`Missing`] figures.
    pub fn new(setup: &Setup) -> Result<Self, Missing> {
        let model = PowerModel::new(setup.profile())?;
        let lowest = model.lowest();
        let ready = model.nearest_serving(lowest);
        let mut ledger = Ledger::default();
        ledger.draw(Use::Rest(ready), model.power(ready), Span::ZERO);
        Ok(Self {
            mechanics: Mechanics::new(setup.profile())?,
            model,
            ready,
            lowest,
            spin_down: setup.spin_down(),
            power: Power::Ready,
            accounted: Time::ZERO,
            busy: Time::ZERO,
            ledger,
            series: Series::default(),
            cycles: 0,
            events: Vec::new(),
        })
    }

    /// Names and powers of its states.
    pub fn model(&self) -> &PowerModel {
        &self.model
    }

    /// Returns where it rests, or will.
    pub fn power(&self) -> Power {
        self.power
    }

    /// Until when everything is in the ledger.
    pub fn accounted(&self) -> Time {
        self.accounted
    }

    /// The account since time zero.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The joules since the series began, by when they were spent.
    pub fn series(&self) -> &Series {
        &self.series
    }

    /// Begins the series anew with what is not in the ledger yet.
    pub fn begin_series(&mut self) {
        self.series = Series::default();
    }

    /// Rated cycles used up.
    pub fn cycles(&self) -> u64 {
        self.cycles
    }

    /// Bytes in the cache that are not on the surface.
    pub fn unwritten(&self) -> u64 {
        self.mechanics.unwritten()
    }

    /// Takes the changes of the power state since the last time.
    pub fn take_events(&mut self) -> Vec<PowerEvent> {
        std::mem::take(&mut self.events)
    }

    /// Lets time pass: the drive works on its own, rests, and spins down when that is due.
    pub fn advance(&mut self, now: Time) {
        if self.power == Power::Ready {
            let background = self.mechanics.run(now);
            self.did(&background);
            let due = self.spin_down.map(|after| self.busy + after);
            if let Some(due) = due.filter(|due| *due <= now) {
                self.go_down(due);
            }
        }
        self.rest(now);
    }

    /// Serves a request that is asked at `now`, after all that were asked before.
    pub fn serve(&mut self, now: Time, request: Request) -> Work {
        self.advance(now);
        self.go_up(now);
        let served = self.mechanics.serve(now.max(self.accounted), request);
        self.did(&served.background);
        self.rest(served.start);
        self.did(&served.job);
        self.busy = served.done;
        Work {
            start: served.start,
            done: served.done,
            energy: served.job.energy(),
            total: self.ledger.total(),
        }
    }

    /// Goes to its lowest state now, or as soon as what it has begun and taken in is on the
    /// surface. Says when it is there.
    pub fn sleep(&mut self, now: Time) -> Time {
        self.advance(now);
        if self.power == Power::Ready {
            let rest = self.mechanics.run(Time::MAX);
            self.did(&rest);
            self.go_down(now.max(self.accounted));
        }
        self.accounted
    }

    /// Gets ready to serve. Says when it is.
    pub fn wake(&mut self, now: Time) -> Time {
        self.advance(now);
        self.go_up(now);
        self.accounted.max(now)
    }

    /// Books work that began when the last was done.
    fn did(&mut self, job: &Job) {
        for part in job.parts() {
            self.ledger
                .draw(Use::Work(part.phase), part.power, part.time);
            self.series.draw(part.power, part.time);
        }
        self.accounted = self.accounted + job.time();
        if job.time() > Span::ZERO {
            self.busy = self.accounted;
        }
    }

    /// Books rest until `until`, if it has not begun something already that lasts longer.
    fn rest(&mut self, until: Time) {
        let state = if self.power == Power::Ready {
            self.ready
        } else {
            self.lowest
        };
        let (power, time) = (self.model.power(state), until.since(self.accounted));
        self.ledger.draw_on(Use::Rest(state), power, time);
        self.series.draw(power, time);
        self.accounted = self.accounted.max(until);
    }

    fn go_down(&mut self, at: Time) {
        if self.ready != self.lowest {
            self.rest(at);
            self.travel(self.ready, self.lowest, Power::Asleep);
        }
    }

    fn go_up(&mut self, now: Time) {
        if self.power == Power::Asleep {
            self.rest(now);
            self.travel(self.lowest, self.ready, Power::Ready);
            self.busy = self.accounted;
        }
    }

    fn travel(&mut self, from: StateId, to: StateId, power: Power) {
        let (at, mut here, mut energy) = (self.accounted, from, Energy::ZERO);
        while here != to
            && let Some(next) = self.model.step(here, to)
            && let Some(way) = self.model.way(here, next)
        {
            self.ledger.pay(Use::Move(here, next), way.time, way.energy);
            self.series.pay(way.time, way.energy);
            self.accounted = self.accounted + way.time;
            self.cycles += u64::from(way.cycles);
            energy += way.energy;
            here = next;
        }
        self.power = power;
        self.ledger
            .draw(Use::Rest(to), self.model.power(to), Span::ZERO);
        self.events.push(PowerEvent {
            at,
            done: self.accounted,
            to: power,
            energy,
            total: self.ledger.total(),
        });
    }
}
