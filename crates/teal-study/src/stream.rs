//! Makes up traces with the totals that papers published of theirs.
//!
//! # Guarantees
//! 1. *Exact*: operations, length, changes and the bytes of all files together are those of the
//!    paper, each to the last one; so are requests to the server in windows of thirty seconds where
//!    the paper has them.
//! 2. *Repeatable*: the same name, model of gaps and seed give the same trace, byte for byte.
//!
//! # Assumptions
//! Totals fix neither pauses nor sizes nor the order of repeated reads. Pauses come from three
//! [models](GapModel). The rest is fixed here, the same for all: sizes spread over two to the
//! eighth around their mean; half of the operations that are no change and no first read ask for
//! attributes; the other half reads a file again, rather one of the last than an old one.

mod gaps;
mod kinds;
mod published;
#[cfg(test)]
mod tests;

use crate::numbers::SeededNumbers;
pub use gaps::GapModel;
use kinds::StreamOperation;
pub use published::{PUBLISHED, PublishedTotals, RequestSpikes};
use std::io::Write;
use std::time::Duration;
use teal_trace::{
    Action, EventOutcome, Level, Text, TraceEvent, TraceHeader, TraceItem, TraceWriter, WriteError,
};
use teal_types::Timestamp;

/// Number of the first file; 1 is the root.
const FIRST: u64 = 2;

impl PublishedTotals {
    /// Returns the events of a stream, in order.
    pub fn generate_events(
        &'static self,
        gaps: GapModel,
        seed: u64,
    ) -> impl Iterator<Item = TraceEvent> {
        let mut numbers = SeededNumbers::new(seed);
        let sizes = self.draw_sizes(&mut numbers);
        let slots = self.draw_slots(gaps, &mut numbers);
        let mut met = 0;
        slots.into_iter().map(move |(at, kind)| {
            if kind == StreamOperation::First {
                // First reads take the files in their order.
                met += 1;
                return read_event(at, met - 1, sizes[met as usize - 1]);
            }
            // The square of an even number prefers the files that were met last.
            let draw = u128::from(numbers.next_below(met));
            let back = u64::try_from(draw * draw / u128::from(met.max(1))).unwrap_or(0);
            let file = met.saturating_sub(1 + back);
            let size = sizes[file as usize];
            match kind {
                StreamOperation::Change => {
                    let length = self.change.map_or(size, |most| size.min(most));
                    new_event(at, file, Action::Write { offset: 0, length }, length)
                }
                StreamOperation::Attributes => new_event(at, file, Action::Stat {}, 0),
                StreamOperation::First | StreamOperation::Again => read_event(at, file, size),
            }
        })
    }

    /// Writes a stream as a trace.
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn write_trace<W: Write>(
        &'static self,
        gaps: GapModel,
        seed: u64,
        out: W,
    ) -> Result<W, WriteError> {
        // The header says that the trace is made up, and from which totals.
        let source = format!(
            "made up: {} gaps, seed {seed}, totals of {}, {}",
            gaps.word(),
            self.name,
            self.source
        );
        let header = TraceHeader {
            level: Level::File,
            anonymous: false,
            start: Timestamp::new(0, 0),
            machine: Text::default(),
            source: Text::truncated(source.as_bytes()),
        };
        let mut writer = TraceWriter::new(out, &header)?;
        for event in self.generate_events(gaps, seed) {
            writer.write_item(&TraceItem::Event(event))?;
        }
        writer.finish()
    }

    /// Draws the sizes of all files; their sum is the working set.
    fn draw_sizes(&self, numbers: &mut SeededNumbers) -> Vec<u64> {
        // The sum of two even numbers makes a triangular distribution of logarithms.
        let weights: Vec<u64> = (0..self.files)
            .map(|_| {
                let log = numbers.next_below(4096) + numbers.next_below(4096);
                (1024 + log % 1024) << (log / 1024)
            })
            .collect();
        gaps::split_in_proportion(&weights, self.bytes)
    }
}

fn read_event(at: u64, file: u64, size: u64) -> TraceEvent {
    new_event(
        at,
        file,
        Action::Read {
            offset: 0,
            length: size,
        },
        size,
    )
}

fn new_event(at: u64, file: u64, action: Action, bytes: u64) -> TraceEvent {
    let at = Duration::from_nanos(at);
    TraceEvent {
        at,
        process: 0,
        object: FIRST + file,
        action,
        outcome: EventOutcome::Done(bytes),
        latency: None,
    }
}
