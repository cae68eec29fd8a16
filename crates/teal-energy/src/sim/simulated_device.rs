//! One device in a simulation: its power state, its queue, and the work that waits for it.
//!
//! # Guarantees
//! 1. Work is done in the order in which it came.
//! 2. A stop that uses up a rated cycle takes a token first; without one the device stays awake.
//! 3. Memory for the queue is one entry per object: later changes of an object take the place of
//!    earlier ones.

use super::report::DeviceReport;
use crate::device::DeviceModel;
use crate::policy::budget::Budget;
use crate::policy::{DeviceView, FlushTrigger};
use crate::power::{DeviceActivity, PowerStateMachine};
use crate::profile::StateId;
use std::collections::{BTreeMap, VecDeque};
use teal_types::{Time, TimeSpan};

/// The account of a read's wait.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadWait {
    /// Is true if only one device holds it.
    pub(super) is_sole: bool,
    /// Is true if only one device holds it, and it did not serve when it was asked.
    pub(super) is_cold: bool,
    /// The time it takes on the quickest device, were that awake and free.
    pub(super) least: TimeSpan,
}

/// A piece of work that has to be done.
#[derive(Debug, Clone, Copy)]
pub(super) enum QueuedWork {
    Read {
        object: u64,
        offset: u64,
        bytes: u64,
        asked: Time,
        wait: ReadWait,
    },
    /// Writes all changes that are queued when it begins.
    Flush,
}

/// A piece of work that was finished.
#[derive(Debug, Default)]
pub(super) struct FinishedWork {
    /// The time of a read from request to answer, and the account of its wait.
    pub(super) delay: Option<(TimeSpan, ReadWait)>,
    /// The state it was served from, bytes, whether it was continued, and the time of the work.
    pub(super) served: Option<(StateId, u64, bool, TimeSpan)>,
}

#[derive(Debug)]
pub(super) struct SimulatedDevice<'a> {
    device: &'a DeviceModel,
    pub(super) machine: PowerStateMachine<'a>,
    /// The time in which a program waited for this device.
    pub(super) waiting: TimeSpan,
    queue: BTreeMap<u64, u64>,
    queued: u64,
    oldest: Option<Time>,
    /// A burst is ordered and has not begun: it takes what comes until then.
    is_flush_ordered: bool,
    /// The longest by which a burst began after its age.
    longest_lateness: TimeSpan,
    queued_work: VecDeque<QueuedWork>,
    current: Option<(QueuedWork, Time, bool)>,
    target_state: Option<StateId>,
    last_used: Time,
    /// Object and end of the last access.
    last_access: Option<(u64, u64)>,
    last_answer: Time,
    budget: Option<Budget>,
    flushes: BTreeMap<FlushTrigger, u64>,
    reads: u64,
    start_times: Vec<Time>,
    refused_stops: u64,
}

impl<'a> SimulatedDevice<'a> {
    pub(super) fn new(device: &'a DeviceModel, state: StateId) -> Self {
        Self {
            device,
            machine: PowerStateMachine::new(&device.power, state, Time::ZERO),
            waiting: TimeSpan::ZERO,
            queue: BTreeMap::new(),
            queued: 0,
            oldest: None,
            is_flush_ordered: false,
            longest_lateness: TimeSpan::ZERO,
            queued_work: VecDeque::new(),
            current: None,
            target_state: None,
            last_used: Time::ZERO,
            last_access: None,
            last_answer: Time::ZERO,
            budget: device.budget.map(|limits| Budget::new(limits, Time::ZERO)),
            flushes: BTreeMap::new(),
            reads: 0,
            start_times: Vec::new(),
            refused_stops: 0,
        }
    }

    pub(super) fn device_view(&self, now: Time) -> DeviceView<'_> {
        DeviceView {
            device: self.device,
            activity: self.machine.current_activity(),
            queued: if self.is_flush_ordered {
                0
            } else {
                self.queued
            },
            oldest: self.oldest.filter(|_| !self.is_flush_ordered),
            is_wanted: !self.queued_work.is_empty(),
            last_used: self.last_used,
            may_stop: self
                .budget
                .as_ref()
                .is_none_or(|budget| budget.has_token(now)),
            tokens: self
                .budget
                .as_ref()
                .map_or(u64::MAX, |budget| budget.token_count(now)),
        }
    }

    pub(super) fn continues_last(&self, object: u64, offset: u64) -> bool {
        self.last_access == Some((object, offset))
    }

    /// Returns the time that a read takes in the device's best state, if nothing else is to be
    /// done.
    pub(super) fn quickest_read(&self, object: u64, offset: u64, bytes: u64) -> Option<TimeSpan> {
        let is_continued = self.continues_last(object, offset);
        let of = |state| {
            Some(
                self.device
                    .read_job(state, bytes, is_continued)?
                    .total_time(),
            )
        };
        self.device.power.state_ids().filter_map(of).min()
    }

    /// Returns whether it would serve without a transition, now or after its present work.
    pub(super) fn is_awake(&self) -> bool {
        match self.machine.current_activity() {
            DeviceActivity::Resting { state, .. } | DeviceActivity::Working { state, .. } => {
                self.device.power.serves(state)
            }
            DeviceActivity::Moving { from, to, .. } => {
                self.device.power.serves(from) && self.device.power.serves(to)
            }
        }
    }

    pub(super) fn enqueue_work(&mut self, work: QueuedWork) {
        self.queued_work.push_back(work);
    }

    /// Queues a change.
    pub(super) fn queue_change(&mut self, now: Time, object: u64, bytes: u64) {
        if self.device.queue.is_none() {
            return;
        }
        // A later change of an object takes the place of the earlier one.
        let before = self.queue.insert(object, bytes).unwrap_or(0);
        debug_assert!(self.queued >= before, "the sum covers every entry");
        self.queued = self.queued - before + bytes;
        self.oldest = self.oldest.or(Some(now));
    }

    pub(super) fn flush_deadline(&self) -> Option<Time> {
        Some(self.oldest.filter(|_| !self.is_flush_ordered)? + self.device.queue?.age)
    }

    pub(super) fn is_queue_full(&self) -> bool {
        !self.is_flush_ordered
            && self
                .device
                .queue
                .is_some_and(|limits| self.queued >= limits.bytes.max(1))
    }

    /// Orders the whole queue to be written.
    pub(super) fn order_flush(&mut self, trigger: FlushTrigger) {
        // One order is enough: the burst takes everything that comes until it begins.
        if self.queue.is_empty() || self.is_flush_ordered {
            return;
        }
        self.queued_work.push_back(QueuedWork::Flush);
        self.is_flush_ordered = true;
        *self.flushes.entry(trigger).or_default() += 1;
    }

    /// Takes the queue for a burst that begins, and returns its bytes and objects.
    fn take_queue(&mut self, now: Time) -> (u64, u64) {
        let age = self.device.queue.map_or(TimeSpan::MAX, |limits| limits.age);
        let waited = self
            .oldest
            .take()
            .map_or(TimeSpan::ZERO, |oldest| now.since(oldest));
        self.longest_lateness = self.longest_lateness.max(waited.saturating_sub(age));
        let objects = std::mem::take(&mut self.queue).len() as u64;
        self.is_flush_ordered = false;
        (std::mem::take(&mut self.queued), objects)
    }

    /// Sets the state to go to as soon as nothing waits.
    pub(super) fn head_for(&mut self, state: StateId) {
        self.target_state = Some(state);
    }

    /// Finishes the work that is done at `now`.
    pub(super) fn finish_work(&mut self, now: Time) -> Option<FinishedWork> {
        self.machine.advance(now);
        if self.machine.rests_at().is_some() {
            return None;
        }
        let (work, began, is_continued) = self.current.take()?;
        self.last_used = now;
        let QueuedWork::Read {
            object,
            offset,
            bytes,
            asked,
            wait,
        } = work
        else {
            self.last_access = None;
            return Some(FinishedWork::default());
        };
        self.last_access = Some((object, offset.saturating_add(bytes)));
        self.reads += 1;
        // Waits that overlap count once: a read waits from its request or from the last answer,
        // whichever is later.
        self.waiting += now.since(asked.max(self.last_answer));
        self.last_answer = now;
        let served = Some((
            self.machine.resting_state(),
            bytes,
            is_continued,
            now.since(began),
        ));
        Some(FinishedWork {
            delay: Some((now.since(asked), wait)),
            served,
        })
    }

    /// Begins the next piece of work, if the device rests. Returns whether it was done at once, so
    /// that more can begin.
    pub(super) fn begin_next(&mut self, now: Time) -> bool {
        let DeviceActivity::Resting { state, .. } = self.machine.current_activity() else {
            return false;
        };
        // One thing at a time.
        if self.current.is_some() {
            return false;
        }
        let serves = |state| self.device.power.serves(state);
        // A wanted device is woken, whatever the policy had planned for it.
        if !self.queued_work.is_empty() && !self.target_state.is_some_and(serves) {
            self.target_state = (!serves(state)).then(|| self.device.power.nearest_serving(state));
        }
        let has_begun = match self.target_state {
            Some(target) if target != state => self.begin_step(now, state, target),
            _ => {
                self.target_state = None;
                self.serve_next(now, state)
            }
        };
        has_begun && self.machine.rests_at().is_none()
    }

    fn begin_step(&mut self, now: Time, state: StateId, target: StateId) -> bool {
        // There is no way to the target: it is given up.
        let Some(next) = self.device.power.first_step(state, target) else {
            self.target_state = None;
            return false;
        };
        let uses_cycle = self
            .device
            .power
            .direct_transition(state, next)
            .is_some_and(|way| way.cycles > 0);
        if uses_cycle
            && !self
                .budget
                .as_mut()
                .is_none_or(|budget| budget.take_token(now))
        {
            // The token is taken at the stop, so that the start that follows is never refused.
            self.refused_stops += 1;
            self.target_state = None;
            return false;
        }
        // This is a start: the user waits for it and may hear it.
        if !self.device.power.serves(state) && self.device.power.serves(next) {
            self.start_times.push(now);
        }
        self.machine
            .begin_transition(now, next)
            .expect("the device rests, and the step is a direct one");
        true
    }

    fn serve_next(&mut self, now: Time, state: StateId) -> bool {
        let Some(work) = self.queued_work.pop_front() else {
            return false;
        };
        let (job, is_continued) = match work {
            QueuedWork::Read {
                object,
                offset,
                bytes,
                ..
            } => {
                let is_continued = self.continues_last(object, offset);
                (
                    self.device.read_job(state, bytes, is_continued),
                    is_continued,
                )
            }
            QueuedWork::Flush => {
                let (bytes, objects) = self.take_queue(now);
                (self.device.flush_job(state, bytes, objects), false)
            }
        };
        let job = job.expect("a device serves in its serving states");
        self.current = Some((work, now, is_continued));
        self.machine
            .begin_work(now, &job)
            .expect("the device rests in a serving state");
        true
    }

    pub(super) fn into_report(self) -> DeviceReport {
        DeviceReport {
            name: self.device.name.clone(),
            ledger: self.machine.ledger().clone(),
            states: self
                .device
                .power
                .state_ids()
                .map(|state| self.device.power.state_name(state).to_owned())
                .collect(),
            reads: self.reads,
            starts: self.start_times.len() as u64,
            started: self.start_times,
            cycles: self.machine.cycles(),
            refused: self.refused_stops,
            flushes: self.flushes,
            late: self.longest_lateness,
        }
    }
}
