//! Writes a trace as a stream, with one block in memory.

use super::event::{Level, TraceHeader, TraceItem};
use super::format::{BLOCK_MAX, BlockHead, PreviousEvent, block_sum, to_nanos};
use std::io::{self, Write};
use std::time::Duration;

/// Bytes of items at which a block is written; the largest item fits behind.
const BLOCK_FULL: usize = 64 << 10;

/// Says why an item is not in the trace.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The trace cannot be written, and takes no more items. Everything up to its last whole block
    /// can be read.
    #[error("the trace cannot be written")]
    Io(#[from] io::Error),
    /// An earlier write failed.
    #[error("the trace could not be written earlier and takes no more")]
    Failed,
    /// The event is earlier than the one before it. Nothing changed.
    #[error("an event at {at:?} comes after one at {last:?}")]
    Backwards {
        /// Time of the event.
        at: Duration,
        /// Time of the event before.
        last: Duration,
    },
    /// The action does not belong to this level. Nothing changed.
    #[error("'{word}' does not belong into a trace of this level")]
    Level {
        /// Word of the action.
        word: &'static str,
    },
}

/// Writes a trace.
#[derive(Debug)]
pub struct TraceWriter<W> {
    out: W,
    level: Level,
    items: Vec<u8>,
    count: u32,
    base: u64,
    before: PreviousEvent,
    number: u32,
    written: u64,
    failed: bool,
}

impl<W: Write> TraceWriter<W> {
    /// Begins a trace with its header.
    ///
    /// # Errors
    /// Returns [`WriteError::Io`].
    pub fn new(mut out: W, header: &TraceHeader) -> Result<Self, WriteError> {
        let bytes = header.encode();
        out.write_all(&bytes)?;
        Ok(Self {
            out,
            level: header.level,
            items: Vec::with_capacity(BLOCK_FULL),
            count: 0,
            base: 0,
            before: PreviousEvent::default(),
            number: 0,
            written: bytes.len() as u64,
            failed: false,
        })
    }

    /// Appends an item; writes the block when it is full.
    ///
    /// # Errors
    /// Returns a [`WriteError`].
    pub fn write_item(&mut self, item: &TraceItem) -> Result<(), WriteError> {
        if self.failed {
            return Err(WriteError::Failed);
        }
        // Checked before anything is encoded, so that a refused item changes nothing.
        if let TraceItem::Event(event) = item {
            if to_nanos(event.at) < self.before.at {
                return Err(WriteError::Backwards {
                    at: event.at,
                    last: Duration::from_nanos(self.before.at),
                });
            }
            if event
                .action
                .level()
                .is_some_and(|level| level != self.level)
            {
                return Err(WriteError::Level {
                    word: event.action.word(),
                });
            }
        }
        item.encode(&mut self.items, &mut self.before);
        self.count += 1;
        assert!(
            self.items.len() <= BLOCK_MAX,
            "the largest item fits behind a block that is not full"
        );
        if self.items.len() >= BLOCK_FULL {
            self.flush()
        } else {
            Ok(())
        }
    }

    /// Writes the items so far as a block of its own.
    ///
    /// # Errors
    /// Returns [`WriteError::Io`] or [`WriteError::Failed`].
    pub fn flush(&mut self) -> Result<(), WriteError> {
        if self.count == 0 {
            Ok(())
        } else {
            self.write_block(false)
        }
    }

    /// Ends the trace; returns the output.
    ///
    /// # Errors
    /// Returns [`WriteError::Io`] or [`WriteError::Failed`].
    pub fn finish(mut self) -> Result<W, WriteError> {
        self.write_last_block()?;
        Ok(self.out)
    }

    /// Writes the last block.
    pub(super) fn write_last_block(&mut self) -> Result<(), WriteError> {
        self.write_block(true)?;
        Ok(self.out.flush()?)
    }

    /// Returns the output, whatever has been written.
    pub(super) fn into_out(self) -> W {
        self.out
    }

    /// Returns the number of bytes written so far.
    pub fn bytes_written(&self) -> u64 {
        self.written
    }

    /// Returns the number of items that are not in a written block yet.
    pub fn unwritten_items(&self) -> u32 {
        self.count
    }

    fn write_block(&mut self, is_last: bool) -> Result<(), WriteError> {
        if self.failed {
            return Err(WriteError::Failed);
        }
        debug_assert!(
            self.items.len() <= BLOCK_MAX,
            "a block is too large for its readers"
        );
        let head = BlockHead {
            number: self.number,
            bytes: self.items.len() as u32,
            items: self.count,
            base: self.base,
            is_last,
        };
        let head = head.encode();
        let sum = block_sum(&head, &self.items).to_le_bytes();
        // One write, so that a process that is killed leaves whole blocks.
        let whole = [&head[..], &self.items, &sum].concat();
        if let Err(error) = self.out.write_all(&whole) {
            // A partial block may be on the disk now, so nothing can follow it.
            self.failed = true;
            return Err(error.into());
        }
        self.written += whole.len() as u64;
        self.number = self.number.wrapping_add(1);
        self.items.clear();
        self.count = 0;
        // The next block starts its own deltas from this time.
        self.base = self.before.at;
        self.before = PreviousEvent {
            at: self.base,
            process: 0,
            object: 0,
        };
        Ok(())
    }
}
