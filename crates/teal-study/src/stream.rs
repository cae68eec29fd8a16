//! Made-up traces with the totals that papers published of theirs.
//!
//! # Guarantees
//! 1. *Exact*: operations, length, changes and the bytes of all files together are those of the
//!    paper, each to the last one; so are requests to the server in windows of thirty seconds where
//!    the paper has them.
//! 2. *Repeatable*: the same name, model of gaps and seed give the same trace, byte for byte.
//!
//! # What the papers do not say
//! Totals fix neither pauses nor sizes nor which file is read again. Pauses come from three
//! [models](Gaps); the rest is fixed here, the same for all: sizes spread over two to the eighth
//! around their mean, half of what is no change and no first read asks for attributes, the other
//! half reads a file again, rather one that was met lately than an old one.

mod gaps;
mod kinds;
mod published;
#[cfg(test)]
mod tests;

use crate::numbers::Numbers;
pub use gaps::Gaps;
use kinds::Kind;
pub use published::{PUBLISHED, Published, Spikes};
use std::io::Write;
use std::time::Duration;
use teal_trace::{Action, Event, Header, Item, Level, Outcome, Text, WriteError, Writer};
use teal_types::Timestamp;

/// Number of the first file; 1 is the root.
const FIRST: u64 = 2;

impl Published {
    /// The events of a stream, in order.
    pub fn events(&'static self, gaps: Gaps, seed: u64) -> impl Iterator<Item = Event> {
        let mut numbers = Numbers::new(seed);
        let sizes = self.sizes(&mut numbers);
        let slots = self.slots(gaps, &mut numbers);
        let mut met = 0;
        slots.into_iter().map(move |(at, kind)| {
            if kind == Kind::First {
                met += 1;
                return read(at, met - 1, sizes[met as usize - 1]);
            }
            // Rather one of the last than of the first: the square of an even number.
            let draw = u128::from(numbers.below(met));
            let back = u64::try_from(draw * draw / u128::from(met.max(1))).unwrap_or(0);
            let file = met.saturating_sub(1 + back);
            let size = sizes[file as usize];
            match kind {
                Kind::Change => {
                    let length = self.change.map_or(size, |most| size.min(most));
                    event(at, file, Action::Write { offset: 0, length }, length)
                }
                Kind::Attributes => event(at, file, Action::Stat {}, 0),
                Kind::First | Kind::Again => read(at, file, size),
            }
        })
    }

    /// Writes a stream as a trace.
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn write<W: Write>(&'static self, gaps: Gaps, seed: u64, out: W) -> Result<W, WriteError> {
        let source = format!(
            "made up: {} gaps, seed {seed}, totals of {}, {}",
            gaps.word(),
            self.name,
            self.source
        );
        let header = Header {
            level: Level::File,
            anonymous: false,
            start: Timestamp::new(0, 0),
            machine: Text::default(),
            source: Text::cut(source.as_bytes()),
        };
        let mut writer = Writer::new(out, &header)?;
        for event in self.events(gaps, seed) {
            writer.put(&Item::Event(event))?;
        }
        writer.finish()
    }

    /// Sizes of all files; their sum is the working set.
    fn sizes(&self, numbers: &mut Numbers) -> Vec<u64> {
        let weights: Vec<u64> = (0..self.files)
            .map(|_| {
                let log = numbers.below(4096) + numbers.below(4096);
                (1024 + log % 1024) << (log / 1024)
            })
            .collect();
        gaps::shares(&weights, self.bytes)
    }
}

fn read(at: u64, file: u64, size: u64) -> Event {
    event(
        at,
        file,
        Action::Read {
            offset: 0,
            length: size,
        },
        size,
    )
}

fn event(at: u64, file: u64, action: Action, bytes: u64) -> Event {
    let at = Duration::from_nanos(at);
    Event {
        at,
        process: 0,
        object: FIRST + file,
        action,
        outcome: Outcome::Done(bytes),
        latency: None,
    }
}
