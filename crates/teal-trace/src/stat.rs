//! Sums a trace up in figures, in one pass and bounded memory.

use super::event::{Action, EventOutcome, TraceEvent, TraceItem};
use super::field::Text;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// Upper bounds of the classes of idle gaps; the last class has none.
pub const GAP_LIMITS: [Duration; 8] = [
    Duration::from_millis(1),
    Duration::from_millis(10),
    Duration::from_millis(100),
    Duration::from_secs(1),
    Duration::from_secs(10),
    Duration::from_secs(60),
    Duration::from_secs(600),
    Duration::from_secs(3600),
];
/// Limits the objects with a remembered last access; beyond, all are forgotten at once.
const OBJECTS_MAX: usize = 1 << 20;
/// Limits the marks that are listed.
const MARKS_MAX: usize = 1000;

/// Counts events of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ActionTally {
    /// Number that succeeded.
    pub done: u64,
    /// Number that failed.
    pub failed: u64,
    /// Number with an unknown outcome.
    pub unknown: u64,
    /// Bytes of those that did not fail: transferred where that is known, else asked for.
    pub bytes: u64,
    /// Number of events with a known latency.
    pub timed: u64,
    /// Sum of the known latencies.
    pub latency: Duration,
}

impl ActionTally {
    /// Returns the number of all events.
    pub fn event_count(&self) -> u64 {
        self.done + self.failed + self.unknown
    }
}

/// Counts the order of reads, or of writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AccessPattern {
    /// Number of all requests.
    pub requests: u64,
    /// Number of those that are the first of their object.
    pub first: u64,
    /// Number of those that begin where the last one of the same object ended.
    pub sequential: u64,
}

/// Counts idle gaps of one class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IdleGaps {
    /// Number of gaps.
    pub count: u64,
    /// Sum of their lengths.
    pub total: Duration,
}

/// Holds the ends of the last read and the last write of an object.
#[derive(Debug, Clone, Copy, Default)]
struct LastAccess {
    read: Option<u64>,
    write: Option<u64>,
}

/// Holds the figures of a trace.
#[derive(Debug, Default)]
pub struct TraceStatistics {
    /// Counts of each action, by its word.
    pub actions: BTreeMap<&'static str, ActionTally>,
    /// Time of the first event.
    pub first: Option<Duration>,
    /// Time at which the last event was answered, or asked where that is not known.
    pub end: Duration,
    /// Times in which nothing was in flight, by the classes of [`GAP_LIMITS`].
    pub gaps: [IdleGaps; GAP_LIMITS.len() + 1],
    /// Order of reads.
    pub reads: AccessPattern,
    /// Order of writes.
    pub writes: AccessPattern,
    /// Number of missing events.
    pub dropped: u64,
    /// Marks, at most a thousand.
    pub marks: Vec<(Duration, Text)>,
    /// Is true when there were more objects than are remembered: then
    /// [`TraceStatistics::object_count`] counts those since.
    pub forgot: bool,
    objects: HashMap<u64, LastAccess>,
    processes: HashMap<u32, u64>,
}

impl TraceStatistics {
    /// Takes an item in.
    pub fn add_item(&mut self, item: &TraceItem) {
        match item {
            TraceItem::Event(event) => self.add_event(event),
            TraceItem::Dropped(count) => self.dropped = self.dropped.saturating_add(*count),
            TraceItem::Called(_) | TraceItem::Process(_) => {}
        }
    }

    fn add_event(&mut self, event: &TraceEvent) {
        if let Action::Mark { text } = &event.action {
            if self.marks.len() < MARKS_MAX {
                self.marks.push((event.at, text.clone()));
            }
            return;
        }
        self.add_gap(event.at);
        // Answers overlap, so the latest one counts.
        let answered = event.at.saturating_add(event.latency.unwrap_or_default());
        self.end = self.end.max(answered);
        let moved = transfer_of(event);
        self.count_action(event, moved.map_or(0, |(_, _, bytes)| bytes));
        if self.processes.len() < OBJECTS_MAX || self.processes.contains_key(&event.process) {
            *self.processes.entry(event.process).or_default() += 1;
        }
        self.count_access(event.object, moved);
    }

    /// Counts the gap before an event: it lies between the last answer and the next question.
    fn add_gap(&mut self, at: Duration) {
        if self.first.is_none() {
            self.first = Some(at);
            return;
        }
        if let Some(gap) = at.checked_sub(self.end).filter(|gap| !gap.is_zero()) {
            let class = GAP_LIMITS.iter().take_while(|limit| gap >= **limit).count();
            self.gaps[class].count += 1;
            self.gaps[class].total = self.gaps[class].total.saturating_add(gap);
        }
    }

    /// Counts an event by its action.
    fn count_action(&mut self, event: &TraceEvent, bytes: u64) {
        let tally = self.actions.entry(event.action.word()).or_default();
        match event.outcome {
            EventOutcome::Done(_) => tally.done += 1,
            EventOutcome::Failed(_) => tally.failed += 1,
            EventOutcome::Unknown => tally.unknown += 1,
        }
        tally.bytes = tally.bytes.saturating_add(bytes);
        // The mean latency is over the events that have one.
        if let Some(latency) = event.latency {
            tally.timed += 1;
            tally.latency = tally.latency.saturating_add(latency);
        }
    }

    /// Counts whether a transfer goes on where the last one of its object ended.
    fn count_access(&mut self, object: u64, moved: Option<(TransferKind, u64, u64)>) {
        // Clearing at the limit keeps memory bounded; `forgot` tells the reader.
        if self.objects.len() >= OBJECTS_MAX && !self.objects.contains_key(&object) {
            self.objects.clear();
            self.forgot = true;
        }
        let ends = self.objects.entry(object).or_default();
        if let Some((kind, offset, bytes)) = moved {
            let (run, end) = match kind {
                TransferKind::Read => (&mut self.reads, &mut ends.read),
                TransferKind::Write => (&mut self.writes, &mut ends.write),
                TransferKind::Other => return,
            };
            debug_assert!(
                run.first + run.sequential <= run.requests,
                "a request is first or sequential, not both"
            );
            run.requests += 1;
            match *end {
                None => run.first += 1,
                Some(end) if end == offset => run.sequential += 1,
                Some(_) => {}
            }
            *end = Some(offset.saturating_add(bytes));
        }
    }

    /// Returns the bytes read and the bytes written.
    pub fn bytes_moved(&self) -> (u64, u64) {
        let of = |words: [&str; 2]| {
            words
                .iter()
                .filter_map(|w| self.actions.get(w))
                .fold(0_u64, |sum, tally| sum.saturating_add(tally.bytes))
        };
        (of(["read", "bread"]), of(["write", "bwrite"]))
    }

    /// Returns the number of objects that events are about.
    pub fn object_count(&self) -> usize {
        self.objects.len()
    }

    /// Returns the number of processes and threads that asked.
    pub fn process_count(&self) -> usize {
        self.processes.len()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TransferKind {
    Read,
    Write,
    Other,
}

/// Returns kind, byte offset and bytes of an event that did not fail.
fn transfer_of(event: &TraceEvent) -> Option<(TransferKind, u64, u64)> {
    let done = match event.outcome {
        EventOutcome::Done(bytes) => Some(bytes),
        EventOutcome::Failed(_) => return None,
        EventOutcome::Unknown => None,
    };
    let byte = |sector: u64| sector.saturating_mul(teal_types::SECTOR);
    Some(match event.action {
        Action::Read { offset, length } => (TransferKind::Read, offset, done.unwrap_or(length)),
        Action::Write { offset, length } => (TransferKind::Write, offset, done.unwrap_or(length)),
        Action::ReadSectors { sector, bytes } => (TransferKind::Read, byte(sector), bytes),
        Action::WriteSectors { sector, bytes, .. } => (TransferKind::Write, byte(sector), bytes),
        Action::Discard { sector, bytes } => (TransferKind::Other, byte(sector), bytes),
        Action::Copy { offset, length, .. } => {
            (TransferKind::Other, offset, done.unwrap_or(length))
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(
        at: u64,
        latency: u64,
        object: u64,
        action: Action,
        outcome: EventOutcome,
    ) -> TraceItem {
        let [at, latency] = [at, latency].map(Duration::from_millis);
        TraceItem::Event(TraceEvent {
            at,
            process: 7,
            object,
            action,
            outcome,
            latency: Some(latency),
        })
    }

    #[test]
    fn a_trace_is_summed_up() {
        let mut stat = TraceStatistics::default();
        let read = |offset, length| Action::Read { offset, length };
        let write = |offset, length| Action::Write { offset, length };
        for item in [
            event(100, 10, 1, read(0, 4096), EventOutcome::Done(4096)),
            // Overlaps: no gap.
            event(105, 1, 2, read(0, 4096), EventOutcome::Done(100)),
            event(110, 0, 1, read(4096, 4096), EventOutcome::Done(4096)),
            // A gap of 4.89 s. Somewhere else in the file.
            event(5000, 0, 1, read(0, 10), EventOutcome::Unknown),
            event(5000, 0, 1, write(10, 20), EventOutcome::Done(20)),
            event(5000, 0, 1, write(0, 20), EventOutcome::Failed(28)),
            event(
                5000,
                0,
                1,
                Action::Mark {
                    text: Text::truncated(b"phase 2"),
                },
                EventOutcome::Unknown,
            ),
            TraceItem::Dropped(3),
        ] {
            stat.add_item(&item);
        }
        assert_eq!(
            stat.reads,
            AccessPattern {
                requests: 4,
                first: 2,
                sequential: 1
            }
        );
        assert_eq!(
            stat.writes,
            AccessPattern {
                requests: 1,
                first: 1,
                sequential: 0
            }
        );
        assert_eq!(stat.bytes_moved(), (4096 + 100 + 4096 + 10, 20));
        assert_eq!(
            (
                stat.object_count(),
                stat.process_count(),
                stat.dropped,
                stat.marks.len()
            ),
            (2, 1, 3, 1)
        );
        let tally = stat.actions["write"];
        assert_eq!((tally.done, tally.failed, tally.event_count()), (1, 1, 2));
        assert_eq!(
            (stat.first, stat.end),
            (Some(Duration::from_millis(100)), Duration::from_secs(5))
        );
        let gaps: Vec<_> = stat.gaps.iter().map(|gap| gap.count).collect();
        assert_eq!(
            gaps,
            [0, 0, 0, 0, 1, 0, 0, 0, 0],
            "4.89 s is between one and ten seconds"
        );
        assert_eq!(stat.gaps[4].total, Duration::from_millis(4890));
    }

    #[test]
    fn more_objects_than_are_remembered_are_said() {
        let mut stat = TraceStatistics::default();
        for object in 0..=OBJECTS_MAX as u64 {
            stat.add_item(&event(0, 0, object, Action::Stat {}, EventOutcome::Unknown));
        }
        assert_eq!((stat.forgot, stat.object_count()), (true, 1));
    }
}
