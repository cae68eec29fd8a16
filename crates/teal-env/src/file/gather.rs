//! Gathers the parts of a write into few requests that a device takes directly.
//!
//! # How
//! Parts that are large and aligned are passed on as they are. The others are copied into an
//! aligned buffer, one behind the other. A request is sent when the buffer is full, when it has
//! many pieces, and in the end.

use crate::buffer::AlignedBuffer;
use std::fs::File;
use std::io::{self, IoSlice};

/// The bytes that one buffer takes of copied parts: few enough that a copy is still in the
/// processor's cache when it goes out.
pub(super) const COPY_BUFFER_BYTES: usize = 1 << 20;
/// The pieces of one write from which on it is sent; the kernel takes 1024.
const PIECES_MAX: usize = 512;

/// A part of a request: memory that the device is pointed to, or so many bytes of the copies.
enum WritePiece<'a> {
    Direct(&'a [u8]),
    Copied(usize),
}

/// A write that is being gathered.
pub(super) struct GatheredWrite<'a> {
    /// Where the request begins on the disk, in bytes.
    at: u64,
    len: usize,
    pieces: Vec<WritePiece<'a>>,
    /// The copies, of which `filled` bytes are in use.
    copies: AlignedBuffer,
    filled: usize,
}

impl<'a> GatheredWrite<'a> {
    /// Begins a write at `at` that copies into `copies`, a buffer of [`COPY_BUFFER_BYTES`].
    pub(super) fn new(at: u64, copies: AlignedBuffer) -> Self {
        debug_assert_eq!(copies.len(), COPY_BUFFER_BYTES);
        Self {
            at,
            len: 0,
            pieces: Vec::new(),
            copies,
            filled: 0,
        }
    }

    /// Returns the bytes gathered since the last request was sent.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns whether it has so many pieces that it should be sent.
    pub(super) fn is_full(&self) -> bool {
        self.pieces.len() >= PIECES_MAX
    }

    /// Appends a part that the device is pointed to.
    pub(super) fn append_direct(&mut self, part: &'a [u8]) {
        self.len += part.len();
        self.pieces.push(WritePiece::Direct(part));
    }

    /// Appends a copy of a part; whenever the buffer is full, the request is sent.
    pub(super) fn append_copy(&mut self, part: &[u8], to: &File) -> io::Result<()> {
        let mut rest = part;
        while !rest.is_empty() {
            let room = COPY_BUFFER_BYTES - self.filled;
            let (now, later) = rest.split_at(rest.len().min(room));
            self.copies[self.filled..self.filled + now.len()].copy_from_slice(now);
            // Copies that follow one another are one piece.
            match self.pieces.last_mut() {
                Some(WritePiece::Copied(len)) => *len += now.len(),
                _ => self.pieces.push(WritePiece::Copied(now.len())),
            }
            self.filled += now.len();
            self.len += now.len();
            rest = later;
            if self.filled == COPY_BUFFER_BYTES {
                self.write_out(to)?;
            }
        }
        Ok(())
    }

    /// Sends the request, and begins the next one behind it.
    pub(super) fn write_out(&mut self, to: &File) -> io::Result<()> {
        let mut copies = &self.copies[..self.filled];
        let mut slices = Vec::with_capacity(self.pieces.len());
        for piece in self.pieces.drain(..) {
            match piece {
                WritePiece::Direct(part) => slices.push(IoSlice::new(part)),
                WritePiece::Copied(len) => {
                    let (part, rest) = copies.split_at(len);
                    copies = rest;
                    slices.push(IoSlice::new(part));
                }
            }
        }
        debug_assert!(copies.is_empty(), "each copied byte is in one piece");
        let mut rest = &mut slices[..];
        while !rest.is_empty() {
            match rustix::io::retry_on_intr(|| rustix::io::pwritev(to, rest, self.at))? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                // A device may take a part only: the rest follows.
                written => {
                    self.at += written as u64;
                    IoSlice::advance_slices(&mut rest, written);
                }
            }
        }
        self.len = 0;
        self.filled = 0;
        Ok(())
    }
}
