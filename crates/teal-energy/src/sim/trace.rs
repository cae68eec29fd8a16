//! The events of a machine: reads with the devices that hold the data, writes with the devices that
//! want it, signals.
//!
//! # Guarantees
//! 1. Events are in the order of their times; the trace ends no earlier than its last event.
//! 2. The devices that hold an object do not depend on the policy: [`CopyTracker`] works them out
//!    beforehand, by the longest that a change may wait. So every policy, and the bound, is given
//!    the same reads.

use crate::device::{DeviceId, DeviceModel, DeviceSet};
use crate::policy::MachineSignal;
use std::collections::BTreeMap;
use teal_types::Time;

/// One action of the outside world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventAction {
    /// A program reads and waits.
    Read {
        /// The object.
        object: u64,
        /// The offset in it.
        offset: u64,
        /// The number of bytes.
        bytes: u64,
        /// The devices that hold it; none if it is in memory.
        copies: DeviceSet,
    },
    /// A program writes, and does not wait: the change goes to the queues of these devices.
    Write {
        /// The object.
        object: u64,
        /// The number of bytes of it that have to be written.
        bytes: u64,
        /// The devices it has to go to.
        sinks: DeviceSet,
    },
    /// Anything else.
    Signal(MachineSignal),
}

/// An action and its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MachineEvent {
    /// The time.
    pub at: Time,
    /// The action.
    pub action: EventAction,
}

/// A trace.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MachineTrace {
    pub(super) events: Vec<MachineEvent>,
    pub(super) end: Time,
}

impl MachineTrace {
    /// Puts events in order. The trace ends at `end`, or with its last event.
    pub fn new(mut events: Vec<MachineEvent>, end: Time) -> Self {
        events.sort_by_key(|event| event.at);
        let end = events.last().map_or(end, |last| last.at.max(end));
        Self { events, end }
    }

    /// Returns the events in the order of their times.
    pub fn events(&self) -> &[MachineEvent] {
        &self.events
    }

    /// Returns the time at which it ends.
    pub fn end(&self) -> Time {
        self.end
    }
}

/// Works out which devices hold which objects while a trace is made.
#[derive(Debug, Clone)]
pub struct CopyTracker {
    sinks: Vec<(DeviceId, Option<crate::device::QueueLimits>)>,
    initial: DeviceSet,
    keepers: DeviceSet,
    /// By object: the devices that hold it, each with the time from which on it does.
    copies: BTreeMap<u64, Vec<(DeviceId, Time)>>,
}

impl CopyTracker {
    /// At first every object is on the devices of `initial`; what is read elsewhere is copied to
    /// those of `keepers`.
    pub fn new(devices: &[DeviceModel], initial: DeviceSet, keepers: DeviceSet) -> Self {
        let sinks = devices
            .iter()
            .enumerate()
            .filter_map(|(at, device)| Some((DeviceId::new(at)?, device.queue)));
        Self {
            sinks: sinks.collect(),
            initial,
            keepers,
            copies: BTreeMap::new(),
        }
    }

    /// Puts an object on these devices, and no others, from the beginning.
    pub fn place_copies(&mut self, object: u64, devices: DeviceSet) {
        self.copies
            .insert(object, devices.iter().map(|id| (id, Time::ZERO)).collect());
    }

    fn copies_at(&self, at: Time, object: u64) -> DeviceSet {
        match self.copies.get(&object) {
            None => self.initial,
            Some(held) => held
                .iter()
                .filter(|(_, from)| *from <= at)
                .map(|(id, _)| *id)
                .collect(),
        }
    }

    /// Returns the events of a read of an object: the read, and copies to the keepers that lack it.
    pub fn read_events(
        &mut self,
        at: Time,
        object: u64,
        offset: u64,
        bytes: u64,
    ) -> Vec<MachineEvent> {
        let copies = self.copies_at(at, object);
        let mut events = vec![MachineEvent {
            at,
            action: EventAction::Read {
                object,
                offset,
                bytes,
                copies,
            },
        }];
        let known = self
            .copies
            .entry(object)
            .or_insert_with(|| self.initial.iter().map(|id| (id, Time::ZERO)).collect());
        // Content that is read elsewhere is copied to the keepers that lack it.
        let lacking = self
            .keepers
            .iter()
            .filter(|id| !known.iter().any(|(has, _)| has == id));
        let lacking: DeviceSet = lacking.collect();
        if !lacking.is_empty() && !copies.is_empty() {
            // A keeper can serve the object when its burst must have been written at the latest.
            let ages = self.sinks.iter().filter(|(id, _)| lacking.contains(*id));
            known.extend(ages.filter_map(|(id, queue)| Some((*id, at + (*queue)?.age))));
            events.push(MachineEvent {
                at,
                action: EventAction::Write {
                    object,
                    bytes,
                    sinks: lacking,
                },
            });
        }
        events
    }

    /// Returns the event of a write of an object. Until a device must have it, it is read
    /// elsewhere, at first from memory.
    pub fn write_event(&mut self, at: Time, object: u64, bytes: u64) -> MachineEvent {
        let queues = self
            .sinks
            .iter()
            .filter_map(|(id, queue)| Some((*id, at + (*queue)?.age)));
        let held: Vec<_> = queues.collect();
        let sinks = held.iter().map(|(id, _)| *id).collect();
        self.copies.insert(object, held);
        MachineEvent {
            at,
            action: EventAction::Write {
                object,
                bytes,
                sinks,
            },
        }
    }
}
