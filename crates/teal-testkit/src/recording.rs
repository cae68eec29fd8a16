//! A disk in memory that records what is done to it, so that it can be crashed afterwards at any
//! point.
//!
//! # Guarantees
//! 1. The [`DiskTrace`] holds every write, sync, allocation and discard in the order in which they
//!    returned.
//! 2. Breaking the contract is a panic: a write to a sparse disk's sectors that were not allocated;
//!    or an error where a real device gives one: a write that is no whole number of logical
//!    sectors, an access beyond the end.
//! 3. Discarded sectors read as junk.

use crate::content::{LayeredContent, Unit};
use crate::trace::{DiskEvent, DiskTrace};
use parking_lot::Mutex;
use std::io::{self, IoSlice};
use std::sync::Arc;
use teal_env::{Disk, DiskShape};
use teal_types::{SECTOR, Sector};

/// The byte that discarded sectors hold.
pub(crate) const JUNK: u8 = 0xd1;

/// The numbers of calls to a disk, failures included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DiskCounters {
    /// Read requests.
    pub reads: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Write requests.
    pub writes: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Syncs: the barriers.
    pub syncs: u64,
    /// Allocations.
    pub allocates: u64,
    /// Discards.
    pub discards: u64,
}

#[derive(Debug)]
struct RecordingState {
    content: LayeredContent,
    start: LayeredContent,
    events: Vec<DiskEvent>,
    counters: DiskCounters,
}

/// A recording [`Disk`] in memory. Clones are handles of the same disk.
#[derive(Debug, Clone)]
pub struct RecordingDisk {
    shape: DiskShape,
    state: Arc<Mutex<RecordingState>>,
}

impl RecordingDisk {
    /// Makes a disk of zeros.
    ///
    /// # Panics
    /// If the physical sector is no power of two, or smaller than the logical one.
    pub fn new(shape: DiskShape) -> Self {
        Self::from_bytes(
            shape,
            vec![0; usize::try_from(shape.sectors * SECTOR).expect("fits the address space")],
        )
    }

    /// Makes a disk that holds `bytes`, durably.
    ///
    /// # Panics
    /// If the length is not that of `shape`.
    pub fn from_bytes(shape: DiskShape, bytes: Vec<u8>) -> Self {
        Self::from_content(shape, LayeredContent::new(&shape, bytes))
    }

    pub(crate) fn from_content(shape: DiskShape, content: LayeredContent) -> Self {
        // A clone shares the layers: it costs next to nothing.
        let start = content.clone();
        let state = RecordingState {
            content,
            start,
            events: Vec::new(),
            counters: DiskCounters::default(),
        };
        Self {
            shape,
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Lets writes to sectors that were not allocated pass, on crash images of this disk too.
    #[must_use]
    pub fn allow_unallocated(self) -> Self {
        {
            let mut state = self.state.lock();
            state.content.stop_tracking_allocation();
            state.start.stop_tracking_allocation();
        }
        self
    }

    /// Adds a mark to the trace: a note of the test on what it has submitted or was promised.
    pub fn add_mark(&self, note: u64) {
        self.state.lock().events.push(DiskEvent::Mark(note));
    }

    /// Records that a sync failed on its way here: sectors that are pending now may be lost for
    /// ever, whatever later syncs return.
    pub fn sync_failed(&self) {
        self.state.lock().events.push(DiskEvent::SyncFailed);
    }

    /// Returns the trace of everything that happened so far.
    pub fn trace(&self) -> DiskTrace {
        let state = self.state.lock();
        DiskTrace {
            shape: self.shape,
            start: state.start.clone(),
            events: state.events.clone(),
        }
    }

    /// Begins a new trace: the present content is durable, and earlier events are forgotten.
    pub fn restart_trace(&self) {
        let mut state = self.state.lock();
        state.content.share_all();
        state.start = state.content.clone();
        state.events.clear();
        state.counters = DiskCounters::default();
    }

    /// Returns the numbers of calls so far.
    pub fn counters(&self) -> DiskCounters {
        self.state.lock().counters
    }

    /// Returns the whole content as reads see it, unreadable sectors with the bytes they had.
    pub fn snapshot(&self) -> Vec<u8> {
        let mut bytes = self.state.lock().content.to_bytes();
        bytes.truncate((self.shape.sectors * SECTOR) as usize);
        bytes
    }

    /// Flips a bit at rest, as decay does: not a write, not in the trace; later images of this
    /// trace do not have it.
    ///
    /// # Panics
    /// If `bit` is not inside the sector.
    pub fn flip_bit(&self, at: Sector, bit: u32) {
        assert!(u64::from(bit) < SECTOR * 8, "a sector has 4096 bits");
        let content = &mut self.state.lock().content;
        let mut sector = [0; SECTOR as usize];
        content
            .read(at.byte_offset(), &mut sector)
            .expect("an unreadable sector has no bits");
        sector[bit as usize / 8] ^= 1 << (bit % 8);
        content.write(at.byte_offset(), &sector).expect("readable");
    }

    /// Makes the physical sector that holds `at` unreadable until it is written as a whole.
    pub fn make_unreadable(&self, at: Sector) {
        self.state
            .lock()
            .content
            .unreadable
            .insert(at.byte_offset() / u64::from(self.shape.physical));
    }

    fn check_range(&self, at: Sector, bytes: u64, multiple: u64) -> io::Result<()> {
        if !bytes.is_multiple_of(multiple) || !at.byte_offset().is_multiple_of(multiple) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "not whole sectors",
            ));
        }
        let end = self.shape.sectors * SECTOR;
        if at
            .byte_offset()
            .checked_add(bytes)
            .is_none_or(|to| to > end)
        {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "beyond the end of the disk",
            ));
        }
        Ok(())
    }
}

/// Returns a medium error (`EIO`).
pub(crate) fn medium_error(_: Unit) -> io::Error {
    io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error())
}

impl Disk for RecordingDisk {
    fn shape(&self) -> DiskShape {
        self.shape
    }

    fn read_at(&self, at: Sector, buf: &mut [u8]) -> io::Result<()> {
        let mut state = self.state.lock();
        state.counters.reads += 1;
        state.counters.bytes_read += buf.len() as u64;
        self.check_range(at, buf.len() as u64, SECTOR)?;
        // The call is counted even if it fails.
        state
            .content
            .read(at.byte_offset(), buf)
            .map_err(medium_error)
    }

    fn write_at(&self, at: Sector, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let data: Arc<[u8]> = parts
            .iter()
            .flat_map(|part| part.iter().copied())
            .collect::<Vec<u8>>()
            .into();
        let mut state = self.state.lock();
        state.counters.writes += 1;
        state.counters.bytes_written += data.len() as u64;
        self.check_range(at, data.len() as u64, u64::from(self.shape.logical))?;
        // A write to space that was not allocated breaks the contract of sparse disks: it may fail
        // for want of space.
        let sectors = data.len() as u64 / SECTOR;
        assert!(
            state.content.is_allocated(at.get(), sectors),
            "write of {sectors} sectors at {} that were not allocated",
            at.get()
        );
        state
            .content
            .write(at.byte_offset(), &data)
            .map_err(medium_error)?;
        // Only a write that succeeded is in the trace.
        state.events.push(DiskEvent::Write { at, data });
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        state.counters.syncs += 1;
        state.events.push(DiskEvent::Sync);
        Ok(())
    }

    fn allocate(&self, at: Sector, sectors: u64) -> io::Result<()> {
        self.check_range(at, sectors * SECTOR, SECTOR)?;
        let mut state = self.state.lock();
        state.counters.allocates += 1;
        state.content.set_allocated(at.get(), sectors, true);
        state.events.push(DiskEvent::Allocate { at, sectors });
        Ok(())
    }

    fn discard(&self, at: Sector, sectors: u64) -> io::Result<()> {
        self.check_range(at, sectors * SECTOR, SECTOR)?;
        let mut state = self.state.lock();
        state.counters.discards += 1;
        // An unreadable neighbour in the same unit keeps its junk: harmless, discards are hints.
        let _ = state
            .content
            .write(at.byte_offset(), &vec![JUNK; (sectors * SECTOR) as usize]);
        state.content.set_allocated(at.get(), sectors, false);
        state.events.push(DiskEvent::Discard { at, sectors });
        Ok(())
    }
}

#[cfg(test)]
mod tests;
