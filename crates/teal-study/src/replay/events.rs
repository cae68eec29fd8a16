//! Turns a trace into the events of a simulation: reads with the devices that hold the data,
//! changes with the devices that want them.
//!
//! # Guarantees
//! 1. Only the trace, the machine and the assumptions matter: every policy is given the same
//!    events.
//! 2. Operations that failed in the trace move nothing here.
//! 3. Changes of a file that is removed before they must be anywhere cost no device more than the
//!    removal.
//! 4. A mark behind the last event is the end of the trace.

use super::contents::{ATTRIBUTES, BLOCK, DeviceContents, ReadSource};
use super::machine::ModelledMachine;
use super::{ReplayAssumptions, ReplayError, TraceTotals};
use crate::numbers::mix_bits;
use std::collections::{BTreeMap, HashSet};
use teal_energy::device::DeviceSet;
use teal_energy::policy::MachineSignal;
use teal_energy::sim::{self, EventAction, MachineTrace};
use teal_trace::{Action, EventOutcome, PathTracker, TraceEvent, TraceItem};
use teal_types::{Time, TimeSpan};

/// Limits the length of a request: longer ones are in no real trace.
pub const REQUEST_MAX: u64 = 4 << 30;
/// Offset of reads of attributes, so that they never continue a read of data.
const ATTRIBUTES_AT: u64 = 1 << 62;
/// Blocks of a piece; later changes of a piece replace earlier ones.
const PIECE: u64 = 16;

/// Holds the written part of a piece: its first and last block, and the time of the last write.
#[derive(Debug, Clone, Copy)]
struct WrittenPiece {
    first: u64,
    last: u64,
    at: Time,
}

#[derive(Debug)]
pub(super) struct EventConverter<'a> {
    assumptions: &'a ReplayAssumptions,
    machine: &'a ModelledMachine,
    contents: DeviceContents<'a>,
    paths: PathTracker,
    /// Objects with their attributes in memory.
    known: HashSet<u64>,
    /// Objects with more than one name.
    linked: HashSet<u64>,
    pieces: BTreeMap<(u64, u64), WrittenPiece>,
    events: Vec<sim::MachineEvent>,
    taken: TraceTotals,
    last: Option<Time>,
    /// Time of the last mark.
    marked: Time,
}

fn event_time(event: &TraceEvent) -> Time {
    Time::after_start(TimeSpan::from_nanos(
        u64::try_from(event.at.as_nanos()).unwrap_or(u64::MAX),
    ))
}

impl<'a> EventConverter<'a> {
    pub(super) fn new(machine: &'a ModelledMachine, assumptions: &'a ReplayAssumptions) -> Self {
        Self {
            assumptions,
            machine,
            contents: DeviceContents::new(machine, assumptions.memory, &assumptions.outages),
            paths: PathTracker::default(),
            known: HashSet::new(),
            linked: HashSet::new(),
            pieces: BTreeMap::new(),
            events: Vec::new(),
            taken: TraceTotals::default(),
            last: None,
            marked: Time::default(),
        }
    }

    /// Takes the next item in.
    pub(super) fn convert_item(&mut self, item: &TraceItem) -> Result<(), ReplayError> {
        match item {
            TraceItem::Event(event) if matches!(event.action, Action::Mark { .. }) => {
                self.marked = event_time(event);
            }
            TraceItem::Event(event) => self.convert_event(event)?,
            TraceItem::Dropped(count) => {
                self.taken.dropped = self.taken.dropped.saturating_add(*count)
            }
            _ => {}
        }
        debug_assert!(
            self.taken.failed <= self.taken.events,
            "more events failed than there were"
        );
        self.paths.follow_item(item);
        Ok(())
    }

    /// Returns the simulation's trace, which ends with the last event, or with a mark behind it:
    /// the machine was on until then.
    pub(super) fn finish(mut self) -> (MachineTrace, TraceTotals) {
        let last = self.last.unwrap_or_default();
        // A mark before the last event ends nothing.
        let end = last.max(self.marked);
        // The user has left if nothing came for long enough before the end.
        if let Some(away) = self.assumptions.away
            && end.since(last) > away
        {
            self.push_presence(last + away, false);
        }
        (MachineTrace::new(self.events, end), self.taken)
    }

    fn convert_event(&mut self, event: &TraceEvent) -> Result<(), ReplayError> {
        // Presence is judged by all events, failed ones too.
        let at = event_time(event);
        self.taken.events += 1;
        self.note_presence(at);
        if matches!(event.outcome, EventOutcome::Failed(_)) {
            self.taken.failed += 1;
            // A failed lookup reads the directory all the same.
            if matches!(event.action, Action::Lookup { .. }) {
                self.read_attributes(at, event.object);
            }
            return Ok(());
        }
        let object = event.object;
        // The outcome tells the bytes that were moved, if it is known.
        let moved = |length: u64| match event.outcome {
            EventOutcome::Done(bytes) => bytes,
            _ => length,
        };
        // A single request of gigabytes is a damaged trace.
        let checked = |bytes: u64| match bytes {
            0..=REQUEST_MAX => Ok(bytes),
            _ => Err(ReplayError::Long {
                event: self.taken.events,
                at,
                bytes,
            }),
        };
        match &event.action {
            Action::Read { offset, length } => {
                let bytes = checked(moved(*length))?;
                self.read_data(at, object, *offset, bytes);
            }
            Action::Write { offset, length } => {
                let bytes = checked(moved(*length))?;
                self.write_data(at, object, *offset, bytes);
            }
            Action::Copy {
                offset,
                target,
                to,
                length,
            } => {
                let bytes = checked(moved(*length))?;
                self.copy_data(at, (object, *offset), (*target, *to), bytes);
            }
            action => self.convert_metadata(at, event, action),
        }
        Ok(())
    }

    /// Handles everything that moves no data.
    fn convert_metadata(&mut self, at: Time, event: &TraceEvent, action: &Action) {
        let object = event.object;
        // These read the attributes of one object.
        match action {
            Action::Open {}
            | Action::Stat {}
            | Action::Getxattr {}
            | Action::Listxattr {}
            | Action::Readlink {}
            | Action::Readdir { .. } => self.read_attributes(at, object),
            Action::Lookup { .. } => {
                self.read_attributes(at, object);
                event
                    .named_object()
                    .into_iter()
                    .for_each(|found| self.read_attributes(at, found));
            }
            // These change the directory and make an object.
            Action::Create { .. }
            | Action::Mkdir { .. }
            | Action::Mknod { .. }
            | Action::Symlink { .. } => {
                self.change_attributes(at, object);
                event
                    .named_object()
                    .into_iter()
                    .for_each(|made| self.change_attributes(at, made));
            }
            Action::Link { target, .. } => {
                self.linked.insert(*target);
                self.change_attributes(at, object);
                self.change_attributes(at, *target);
            }
            // These take a name from an object.
            Action::Unlink { name } | Action::Rmdir { name } => {
                // The removed object is looked up before the path tracker forgets its name.
                self.remove_object(at, self.paths.object_named(object, name));
                self.change_attributes(at, object);
            }
            Action::Rename {
                to, new, exchange, ..
            } => {
                if !exchange {
                    self.remove_object(at, self.paths.object_named(*to, new));
                }
                self.change_attributes(at, object);
                self.change_attributes(at, *to);
            }
            // These change the attributes of one object.
            Action::Truncate { .. }
            | Action::Allocate { .. }
            | Action::Setattr { .. }
            | Action::Tmpfile {}
            | Action::Setxattr { .. }
            | Action::Removexattr {} => self.change_attributes(at, object),
            _ => {}
        }
    }

    /// Notes presence: a user is there as long as events come often enough.
    fn note_presence(&mut self, at: Time) {
        let before = self.last.replace(at).unwrap_or_default();
        // A short pause is no absence.
        if let Some(away) = self.assumptions.away
            && at.since(before) > away
        {
            // The user left after the last event, and comes back with this one.
            self.push_presence(before + away, false);
            self.push_presence(at, true);
        }
    }

    fn push_presence(&mut self, at: Time, is_there: bool) {
        self.push_event(at, EventAction::Signal(MachineSignal::Presence(is_there)));
    }

    fn push_event(&mut self, at: Time, what: EventAction) {
        self.events.push(sim::MachineEvent { at, action: what });
    }

    fn read_attributes(&mut self, at: Time, object: u64) {
        // Attributes are read once: afterwards they are in memory.
        if self.known.insert(object) {
            self.read_blocks(at, object, ATTRIBUTES, ATTRIBUTES, (ATTRIBUTES_AT, BLOCK));
        }
    }

    fn read_data(&mut self, at: Time, file: u64, offset: u64, bytes: u64) {
        if bytes == 0 {
            return;
        }
        // Whole blocks are read, as the page cache does.
        let (first, last) = (offset / BLOCK, offset.saturating_add(bytes - 1) / BLOCK);
        self.read_blocks(at, file, first, last, (offset, bytes));
    }

    /// Reads blocks: makes one read for each run of them that lies in the same places. `asked` is
    /// the beginning and the length of the request.
    fn read_blocks(&mut self, at: Time, file: u64, first: u64, last: u64, asked: (u64, u64)) {
        self.taken.reads += 1;
        let mut runs: Vec<(DeviceSet, u64)> = Vec::new();
        let mut copied: BTreeMap<DeviceSet, u64> = BTreeMap::new();
        debug_assert!(first <= last, "a read has one block at least");
        let mut previous = ReadSource::Memory;
        // Runs grow while the holders of consecutive blocks are the same.
        for block in first..=last {
            let (place, keepers) = self.contents.read(at, (file, block));
            match place {
                ReadSource::Memory => {}
                ReadSource::Nowhere => self.taken.unreachable += 1,
                ReadSource::Devices(copies) => {
                    match runs.last_mut().filter(|_| previous == place) {
                        Some((_, blocks)) => *blocks += 1,
                        None => runs.push((copies, 1)),
                    }
                }
            }
            previous = place;
            if !keepers.is_empty() {
                *copied.entry(keepers).or_default() += 1;
            }
        }
        // No device had to move.
        if runs.is_empty() {
            self.taken.from_memory += 1;
        }
        // A request within one block, or all of it in one place, is read as it was asked.
        let is_whole = matches!(runs[..], [(_, blocks)] if blocks == last - first + 1);
        // The offset of each run follows the one before.
        let mut from = asked.0;
        for (copies, blocks) in runs {
            let bytes = if is_whole { asked.1 } else { blocks * BLOCK };
            self.taken.read_bytes += bytes;
            self.push_event(
                at,
                EventAction::Read {
                    object: file,
                    offset: from,
                    bytes,
                    copies,
                },
            );
            from = from.saturating_add(bytes);
        }
        // Copies are writes of their own, one for each set of devices that keep them.
        for (sinks, blocks) in copied {
            let object = mix_bits(file ^ mix_bits(first));
            self.taken.copied_bytes += blocks * BLOCK;
            self.push_event(
                at,
                EventAction::Write {
                    object,
                    bytes: blocks * BLOCK,
                    sinks,
                },
            );
        }
    }

    fn write_data(&mut self, at: Time, file: u64, offset: u64, bytes: u64) {
        // A writer knows the attributes of its file.
        self.known.insert(file);
        if bytes == 0 {
            return;
        }
        self.taken.changes += 1;
        self.taken.written_bytes += bytes;
        // Contents change at once, devices get the change at its age.
        let (first, last) = (offset / BLOCK, offset.saturating_add(bytes - 1) / BLOCK);
        for block in first..=last {
            self.contents.write(at, (file, block));
        }
        // On a disk where every file has its own place, a file is one piece.
        let is_scattered = self
            .machine
            .parts
            .iter()
            .any(|part| part.device.is_scattered);
        // Pieces that were written before are replaced in the queues.
        let size = if is_scattered { u64::MAX } else { PIECE };
        for piece in first / size..=last / size {
            let begin = piece.saturating_mul(size);
            self.write_piece(
                at,
                (file, piece),
                first.max(begin),
                last.min(begin.saturating_add(size - 1)),
            );
        }
    }

    fn write_piece(&mut self, at: Time, key: (u64, u64), first: u64, last: u64) {
        // A further change of the piece widens it and makes it young again.
        let piece = self
            .pieces
            .entry(key)
            .or_insert(WrittenPiece { first, last, at });
        *piece = WrittenPiece {
            first: piece.first.min(first),
            last: piece.last.max(last),
            at,
        };
        let bytes = (piece.last - piece.first + 1).saturating_mul(BLOCK);
        let sinks = self.contents.sinks_of(key.0);
        self.push_event(
            at,
            EventAction::Write {
                object: mix_bits(key.0 ^ mix_bits(key.1)),
                bytes,
                sinks,
            },
        );
    }

    /// Changes a file's attributes or a directory's entries.
    fn change_attributes(&mut self, at: Time, object: u64) {
        self.known.insert(object);
        self.taken.changes += 1;
        self.contents.write(at, (object, ATTRIBUTES));
        self.write_piece(at, (object, ATTRIBUTES), 0, 0);
    }

    fn copy_data(&mut self, at: Time, from: (u64, u64), to: (u64, u64), bytes: u64) {
        for block in 0..bytes.div_ceil(BLOCK) {
            let block = |(file, offset): (u64, u64)| (file, (offset / BLOCK).saturating_add(block));
            self.contents.copy_block(at, block(from), block(to));
        }
        self.change_attributes(at, to.0);
    }

    /// Removes a name. If it was the only one, changes that are not written everywhere are
    /// cancelled.
    fn remove_object(&mut self, at: Time, object: Option<u64>) {
        let Some(object) = object.filter(|object| !self.linked.contains(object)) else {
            // All pieces of the object are dropped with it, its attributes too.
            return;
        };
        let keys: Vec<_> = self
            .pieces
            .range((object, 0)..=(object, u64::MAX))
            .map(|(key, _)| *key)
            .collect();
        // Only devices within their age limit are still waiting for the change.
        for key in keys {
            let Some(piece) = self.pieces.remove(&key) else {
                continue;
            };
            let waits = |id| {
                let queue = self.machine.parts[teal_energy::device::DeviceId::index(id)]
                    .device
                    .queue;
                queue.is_some_and(|queue| piece.at + queue.age > at)
            };
            // Devices that have written the change already get no cancellation.
            let sinks: DeviceSet = self
                .contents
                .sinks_of(object)
                .iter()
                .filter(|id| waits(*id))
                .collect();
            if !sinks.is_empty() {
                // A change of no bytes replaces the one in the queue.
                self.taken.cancelled += 1;
                self.push_event(
                    at,
                    EventAction::Write {
                        object: mix_bits(key.0 ^ mix_bits(key.1)),
                        bytes: 0,
                        sinks,
                    },
                );
            }
            let blocks = if key.1 == ATTRIBUTES {
                ATTRIBUTES..=ATTRIBUTES
            } else {
                piece.first..=piece.last
            };
            blocks.for_each(|block| self.contents.forget_block((object, block)));
        }
    }
}
