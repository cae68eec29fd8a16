//! Reading ahead while a store is opened: a disk with a head must not move it for every record and
//! every object.
//!
//! # How
//! 1. The chain is read through a window that moves forward: headers and bodies of small records
//!    lie beside each other.
//! 2. The objects that the records change are read later, in the order in which they lie, many with
//!    one read where they lie close together. What cannot be read so is left to later reads.

use crate::error::StoreError;
use crate::tree::reader::CachedReader;
use teal_types::{SECTOR, Sector};

/// Bytes of the chain read at once.
const WINDOW: u64 = 128 << 10;
/// What a head passes over in less time than it takes to move.
const WORTH_PASSING: u64 = 64 << 10;
/// A part of the disk, as it was read last.
///
/// Invariant: whole sectors.
#[derive(Debug, Default)]
pub(crate) struct ReadAheadWindow {
    start: u64,
    bytes: Vec<u8>,
}

impl ReadAheadWindow {
    /// Reads whole sectors, unchecked.
    pub(crate) fn read(
        &mut self,
        reader: &CachedReader,
        at: Sector,
        buf: &mut [u8],
    ) -> Result<(), StoreError> {
        let len = buf.len() as u64;
        if len > WINDOW {
            // What is here of it and the rest behind it; the window goes on where it ends.
            self.read_on(reader, at, buf)?;
            *self = Self {
                start: at.byte_offset() + len,
                bytes: Vec::new(),
            };
            return Ok(());
        }
        if !self.holds_range(at.byte_offset(), len)
            && self.move_to(reader, at.byte_offset()).is_err()
        {
            // A bad sector somewhere in it hides only itself.
            *self = Self::default();
        }
        if !self.holds_range(at.byte_offset(), len) {
            return reader.read_raw(at, buf);
        }
        let from = (at.byte_offset() - self.start) as usize;
        buf.copy_from_slice(&self.bytes[from..from + buf.len()]);
        Ok(())
    }

    /// Reads whole sectors, unchecked, however many: what the window has and the rest behind it.
    pub(crate) fn read_on(
        &self,
        reader: &CachedReader,
        at: Sector,
        buf: &mut [u8],
    ) -> Result<(), StoreError> {
        let known = if self.holds_range(at.byte_offset(), 0) {
            (self.end() - at.byte_offset()).min(buf.len() as u64)
        } else {
            0
        };
        let from = (at.byte_offset().saturating_sub(self.start)) as usize;
        let (first, rest) = buf.split_at_mut(known as usize);
        if known > 0 {
            first.copy_from_slice(&self.bytes[from..from + known as usize]);
        }
        if rest.is_empty() {
            Ok(())
        } else {
            reader.read_raw(at.plus(known / SECTOR), rest)
        }
    }

    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    fn holds_range(&self, byte: u64, len: u64) -> bool {
        byte >= self.start && byte + len <= self.end()
    }

    /// Moves so that it begins at `byte`; goes on where it ended if that is no further back than a
    /// head passes over.
    fn move_to(&mut self, reader: &CachedReader, byte: u64) -> Result<(), StoreError> {
        let to = byte
            .saturating_add(WINDOW)
            .min(reader.disk().shape().sectors * SECTOR);
        if to <= byte {
            return Err(StoreError::Corrupt {
                what: "an address",
                at: byte / SECTOR,
                object: None,
            });
        }
        let is_ahead = byte >= self.start && byte <= self.end() + WORTH_PASSING;
        let from = if is_ahead { self.end() } else { byte };
        let mut more = vec![0; to.saturating_sub(from) as usize];
        reader.read_raw(Sector::new(from / SECTOR), &mut more)?;
        if is_ahead {
            self.bytes.append(&mut more);
            self.bytes.drain(..(byte - self.start) as usize);
        } else {
            self.bytes = more;
        }
        self.start = byte;
        Ok(())
    }
}
