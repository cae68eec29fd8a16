//! One device in a simulation: its power state, its queue, and the work that waits for it.
//!
//! # Guarantees
//! 1. Work is done in the order in which it came.
//! 2. A stop that uses up a rated cycle takes a token first; without one the device stays awake.
//! 3. Memory for the queue is one entry per object: later changes of an object take the place of
//!    earlier ones.

use super::report::DeviceReport;
use crate::device::Device;
use crate::policy::budget::Budget;
use crate::policy::{DeviceView, Trigger};
use crate::power::{Machine, Place};
use crate::profile::StateId;
use std::collections::{BTreeMap, VecDeque};
use teal_types::{Span, Time};

/// How a read counts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wait {
    /// Only one device holds it.
    pub(super) is_sole: bool,
    /// And that one did not serve when it was asked.
    pub(super) is_cold: bool,
    /// How long it takes where it is quickest, awake and free.
    pub(super) least: Span,
}

/// Something that has to be done.
#[derive(Debug, Clone, Copy)]
pub(super) enum Work {
    Read {
        object: u64,
        offset: u64,
        bytes: u64,
        asked: Time,
        wait: Wait,
    },
    /// All that is queued when it begins.
    Flush,
}

/// What was finished.
#[derive(Debug, Default)]
pub(super) struct Done {
    /// A read: from asking to answer, and how that counts.
    pub(super) delay: Option<(Span, Wait)>,
    /// The state it was served from, bytes, whether it was continued, and the time of the work.
    pub(super) served: Option<(StateId, u64, bool, Span)>,
}

#[derive(Debug)]
pub(super) struct Unit<'a> {
    device: &'a Device,
    pub(super) machine: Machine<'a>,
    /// Time in which somebody waited for this device.
    pub(super) waiting: Span,
    queue: BTreeMap<u64, u64>,
    queued: u64,
    oldest: Option<Time>,
    /// A burst is ordered and has not begun: it takes what comes until then.
    is_ordered: bool,
    /// The longest by which a burst began after its age.
    late: Span,
    works: VecDeque<Work>,
    current: Option<(Work, Time, bool)>,
    target: Option<StateId>,
    last_used: Time,
    /// Object and end of the last access.
    last: Option<(u64, u64)>,
    answered: Time,
    budget: Option<Budget>,
    flushes: BTreeMap<Trigger, u64>,
    reads: u64,
    started: Vec<Time>,
    refused: u64,
}

impl<'a> Unit<'a> {
    pub(super) fn new(device: &'a Device, state: StateId) -> Self {
        Self {
            device,
            machine: Machine::new(&device.power, state, Time::ZERO),
            waiting: Span::ZERO,
            queue: BTreeMap::new(),
            queued: 0,
            oldest: None,
            is_ordered: false,
            late: Span::ZERO,
            works: VecDeque::new(),
            current: None,
            target: None,
            last_used: Time::ZERO,
            last: None,
            answered: Time::ZERO,
            budget: device.budget.map(|limits| Budget::new(limits, Time::ZERO)),
            flushes: BTreeMap::new(),
            reads: 0,
            started: Vec::new(),
            refused: 0,
        }
    }

    pub(super) fn view(&self, now: Time) -> DeviceView<'_> {
        DeviceView {
            device: self.device,
            place: self.machine.place(),
            queued: if self.is_ordered { 0 } else { self.queued },
            oldest: self.oldest.filter(|_| !self.is_ordered),
            is_wanted: !self.works.is_empty(),
            last_used: self.last_used,
            may_stop: self.budget.as_ref().is_none_or(|budget| budget.has(now)),
            tokens: self
                .budget
                .as_ref()
                .map_or(u64::MAX, |budget| budget.tokens(now)),
        }
    }

    pub(super) fn continues(&self, object: u64, offset: u64) -> bool {
        self.last == Some((object, offset))
    }

    /// How long a read takes where the device serves best, if nothing else is to be done.
    pub(super) fn quickest(&self, object: u64, offset: u64, bytes: u64) -> Option<Span> {
        let is_continued = self.continues(object, offset);
        let of = |state| Some(self.device.read(state, bytes, is_continued)?.time());
        self.device.power.ids().filter_map(of).min()
    }

    /// Returns whether it would serve without a transition, now or after what it does.
    pub(super) fn is_awake(&self) -> bool {
        match self.machine.place() {
            Place::Resting { state, .. } | Place::Working { state, .. } => {
                self.device.power.serves(state)
            }
            Place::Moving { from, to, .. } => {
                self.device.power.serves(from) && self.device.power.serves(to)
            }
        }
    }

    pub(super) fn want(&mut self, work: Work) {
        self.works.push_back(work);
    }

    /// Queues a change.
    pub(super) fn put(&mut self, now: Time, object: u64, bytes: u64) {
        if self.device.queue.is_none() {
            return;
        }
        let before = self.queue.insert(object, bytes).unwrap_or(0);
        self.queued = self.queued - before + bytes;
        self.oldest = self.oldest.or(Some(now));
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        Some(self.oldest.filter(|_| !self.is_ordered)? + self.device.queue?.age)
    }

    pub(super) fn is_over(&self) -> bool {
        !self.is_ordered
            && self
                .device
                .queue
                .is_some_and(|limits| self.queued >= limits.bytes.max(1))
    }

    /// Orders the whole queue to be written.
    pub(super) fn flush(&mut self, trigger: Trigger) {
        if self.queue.is_empty() || self.is_ordered {
            return;
        }
        self.works.push_back(Work::Flush);
        self.is_ordered = true;
        *self.flushes.entry(trigger).or_default() += 1;
    }

    /// Takes the queue for a burst that begins: its bytes and objects.
    fn empty(&mut self, now: Time) -> (u64, u64) {
        let age = self.device.queue.map_or(Span::MAX, |limits| limits.age);
        let waited = self
            .oldest
            .take()
            .map_or(Span::ZERO, |oldest| now.since(oldest));
        self.late = self.late.max(waited.less(age));
        let objects = std::mem::take(&mut self.queue).len() as u64;
        self.is_ordered = false;
        (std::mem::take(&mut self.queued), objects)
    }

    /// Where to go as soon as nothing waits.
    pub(super) fn head_for(&mut self, state: StateId) {
        self.target = Some(state);
    }

    /// Finishes what is done at `now`.
    pub(super) fn settle(&mut self, now: Time) -> Option<Done> {
        self.machine.advance(now);
        if self.machine.settles().is_some() {
            return None;
        }
        let (work, began, is_continued) = self.current.take()?;
        self.last_used = now;
        let Work::Read {
            object,
            offset,
            bytes,
            asked,
            wait,
        } = work
        else {
            self.last = None;
            return Some(Done::default());
        };
        self.last = Some((object, offset.saturating_add(bytes)));
        self.reads += 1;
        self.waiting += now.since(asked.max(self.answered));
        self.answered = now;
        let served = Some((self.machine.state(), bytes, is_continued, now.since(began)));
        Some(Done {
            delay: Some((now.since(asked), wait)),
            served,
        })
    }

    /// Begins what is next, if the device rests. Says whether that was done at once, so that more
    /// can begin.
    pub(super) fn begin(&mut self, now: Time) -> bool {
        let Place::Resting { state, .. } = self.machine.place() else {
            return false;
        };
        if self.current.is_some() {
            return false;
        }
        let serves = |state| self.device.power.serves(state);
        if !self.works.is_empty() && !self.target.is_some_and(serves) {
            self.target = (!serves(state)).then(|| self.device.power.nearest_serving(state));
        }
        let has_begun = match self.target {
            Some(target) if target != state => self.step(now, state, target),
            _ => {
                self.target = None;
                self.work(now, state)
            }
        };
        has_begun && self.machine.settles().is_none()
    }

    fn step(&mut self, now: Time, state: StateId, target: StateId) -> bool {
        let Some(next) = self.device.power.step(state, target) else {
            self.target = None;
            return false;
        };
        let uses_cycle = self
            .device
            .power
            .way(state, next)
            .is_some_and(|way| way.cycles > 0);
        if uses_cycle && !self.budget.as_mut().is_none_or(|budget| budget.take(now)) {
            self.refused += 1;
            self.target = None;
            return false;
        }
        if !self.device.power.serves(state) && self.device.power.serves(next) {
            self.started.push(now);
        }
        self.machine
            .go(now, next)
            .expect("the device rests, and the step is a direct one");
        true
    }

    fn work(&mut self, now: Time, state: StateId) -> bool {
        let Some(work) = self.works.pop_front() else {
            return false;
        };
        let (job, is_continued) = match work {
            Work::Read {
                object,
                offset,
                bytes,
                ..
            } => {
                let is_continued = self.continues(object, offset);
                (self.device.read(state, bytes, is_continued), is_continued)
            }
            Work::Flush => {
                let (bytes, objects) = self.empty(now);
                (self.device.flush(state, bytes, objects), false)
            }
        };
        let job = job.expect("a device serves in its serving states");
        self.current = Some((work, now, is_continued));
        self.machine
            .work(now, &job)
            .expect("the device rests in a serving state");
        true
    }

    pub(super) fn report(self) -> DeviceReport {
        DeviceReport {
            name: self.device.name.clone(),
            ledger: self.machine.ledger().clone(),
            states: self
                .device
                .power
                .ids()
                .map(|state| self.device.power.name(state).to_owned())
                .collect(),
            reads: self.reads,
            starts: self.started.len() as u64,
            started: self.started,
            cycles: self.machine.cycles(),
            refused: self.refused,
            flushes: self.flushes,
            late: self.late,
        }
    }
}
