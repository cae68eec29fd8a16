//! What happens to a machine: reads with the devices that hold the data, writes with the devices
//! that want it, signals.
//!
//! # Guarantees
//! 1. Events are in the order of their times; the trace ends no earlier than its last event.
//! 2. Who holds what does not depend on the policy: [`Contents`] works it out beforehand, by the
//!    longest that a change may wait. So every policy, and the bound, is given the same reads.

use crate::device::{DeviceId, DeviceModel, DeviceSet};
use crate::policy::MachineSignal;
use std::collections::BTreeMap;
use teal_types::Time;

/// One thing that happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventAction {
    /// Somebody reads and waits.
    Read {
        /// The object.
        object: u64,
        /// Where in it.
        offset: u64,
        /// How much.
        bytes: u64,
        /// Devices that hold it; none: it is in memory.
        copies: DeviceSet,
    },
    /// Somebody writes, and does not wait: the change goes to the queues of these devices.
    Write {
        /// The object.
        object: u64,
        /// How much has to be written of it.
        bytes: u64,
        /// Where it has to go.
        sinks: DeviceSet,
    },
    /// Anything else.
    Signal(MachineSignal),
}

/// When what happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MachineEvent {
    /// When.
    pub at: Time,
    /// What.
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

    /// The events, in order.
    pub fn events(&self) -> &[MachineEvent] {
        &self.events
    }

    /// When it ends.
    pub fn end(&self) -> Time {
        self.end
    }
}

/// Works out who holds what while a trace is made.
#[derive(Debug, Clone)]
pub struct CopyTracker {
    sinks: Vec<(DeviceId, Option<crate::device::QueueLimits>)>,
    initial: DeviceSet,
    keepers: DeviceSet,
    /// By object: each device from when on.
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

    /// Returns what a read of an object becomes: the read, and copies to the keepers that lack it.
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
        let lacking = self
            .keepers
            .iter()
            .filter(|id| !known.iter().any(|(has, _)| has == id));
        let lacking: DeviceSet = lacking.collect();
        if !lacking.is_empty() && !copies.is_empty() {
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

    /// Returns what a write of an object becomes. Until a device must have it, it is read
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
