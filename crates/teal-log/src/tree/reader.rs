//! Reads from the disk, with what is not on it yet and what was read lately in front.
//!
//! # Invariants
//! 1. Nothing read is handed out before its checksum matched; a mismatch is read once more past the
//!    caches, then reported.
//! 2. A record between sealing and its durability is read from memory; so is a page of the batch
//!    that is being sealed, from the moment on at which its tree points to it.
//! 3. Small records stay in the cache as they are written: the end of a file that grows by less
//!    than a page is read again by the kernel, and costs no device read. A chunk that began so has
//!    zeros where nothing was written; by (1) they are never taken for content, and a read that
//!    meets them drops the chunk.

use crate::counters::{StoreCounters, add_to_counter};
use crate::error::{DiskRequest, StoreError};
use crate::format::checksum::crc_matches;
use crate::format::page::{ExpectedPage, Node, PagePtr, STORE_WIDE};
use crate::iovec::ScatteredBytes;
use crate::tree::PageSource;
use crate::tree::copies::{PageToRenew, PagesToRenew};
use crate::tree::shared_extents::SharedTable;
use parking_lot::RwLock;
use quick_cache::sync::Cache;
use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use teal_env::{BufferPool, Disk};
use teal_types::{ObjectNo, SECTOR, Sector};

/// Sectors fetched together for metadata: whole neighbourhoods of packed inodes.
const CHUNK_SECTORS: u64 = 64;
const CHUNKS: usize = 256;
/// Records up to so many sectors stay in the cache: those of programs that wait for each of their
/// writes.
const KEPT_SECTORS: u64 = 512;
/// File content in pieces of at most so many sectors is fetched with its neighbourhood, when the
/// last piece was not farther away than a directory of small files is long. What was written
/// together is often read together.
const SMALL_SECTORS: u64 = 16;
const NEARBY_SECTORS: u64 = 2048;
const PAGES: usize = 2048;
/// Bytes of memory for content that are kept while they are not in use.
const BUFFERS_MAX: usize = 32 << 20;
/// From this many bytes on, something is read by itself unless what was read before lies beside it.
const WORTH_ITSELF: usize = 1536;

/// A sealed record on its way to the disk.
#[derive(Debug, Clone)]
pub(crate) struct RecordInFlight {
    pub(crate) start: Sector,
    pub(crate) parts: Arc<ScatteredBytes>,
}

impl RecordInFlight {
    /// Returns where it ends.
    pub(crate) fn end(&self) -> Sector {
        self.start.plus(self.parts.len() as u64 / SECTOR)
    }
}

pub(crate) struct CachedReader {
    disk: Arc<dyn Disk>,
    chunks: Cache<u64, Arc<Vec<u8>>>,
    pages: Cache<PagePtr, Arc<Node>>,
    /// Memory for content on its way to or from the disk.
    pub(crate) buffers: Arc<BufferPool>,
    in_flight: RwLock<Vec<RecordInFlight>>,
    /// Pages of the batch that is being sealed. Trees point to them before their records are in
    /// flight.
    laid_out: RwLock<HashMap<PagePtr, Vec<u8>>>,
    pub(crate) counters: StoreCounters,
    /// Pages that the next checkpoint writes again.
    pub(crate) to_renew: PagesToRenew,
    /// Without it no file that shares content can be read.
    pub(crate) shared: SharedTable,
    last_end: std::sync::atomic::AtomicU64,
    /// The place at which file content was last read in a small piece.
    last_small: std::sync::atomic::AtomicU64,
    last_read: std::sync::atomic::AtomicU64,
    sweeping: AtomicBool,
    limit: u64,
}

fn io_error(doing: DiskRequest, at: Sector, source: io::Error) -> StoreError {
    StoreError::Io {
        doing,
        at: at.get(),
        source: Arc::new(source),
    }
}

impl CachedReader {
    pub(crate) fn new(disk: Arc<dyn Disk>) -> Self {
        let limit = disk.shape().sectors;
        Self {
            disk,
            chunks: Cache::new(CHUNKS),
            pages: Cache::new(PAGES),
            buffers: BufferPool::new(BUFFERS_MAX),
            in_flight: RwLock::new(Vec::new()),
            laid_out: RwLock::default(),
            counters: StoreCounters::default(),
            to_renew: PagesToRenew::default(),
            shared: SharedTable::new(None),
            last_end: std::sync::atomic::AtomicU64::new(0),
            last_small: std::sync::atomic::AtomicU64::new(u64::MAX),
            last_read: std::sync::atomic::AtomicU64::new(0),
            sweeping: AtomicBool::new(false),
            limit,
        }
    }

    /// Returns the disk, for a component that asks its host for room.
    pub(crate) fn shared_disk(&self) -> Arc<dyn Disk> {
        Arc::clone(&self.disk)
    }

    pub(crate) fn disk(&self) -> &dyn Disk {
        &*self.disk
    }

    /// Sets the records that are sealed and not durable yet; their pages are read from there.
    pub(crate) fn set_in_flight(&self, records: Vec<RecordInFlight>) {
        // In this order: a page is always in one of the two, or on the disk.
        *self.in_flight.write() = records;
        *self.laid_out.write() = HashMap::new();
    }

    /// Keeps a page that has its place in the batch that is being sealed, until the records of the
    /// batch are in flight.
    pub(crate) fn keep_laid_out(&self, ptr: PagePtr, bytes: Vec<u8>) {
        self.laid_out.write().insert(ptr, bytes);
    }

    /// Writes bytes, and brings the cached copy of their place up to date.
    pub(crate) fn write(&self, start: Sector, bytes: ScatteredBytes) -> Result<(), StoreError> {
        self.write_adjoining(&[RecordInFlight {
            start,
            parts: Arc::new(bytes),
        }])
    }

    /// Writes records, each of which begins where the one before ends, at once.
    pub(crate) fn write_adjoining(&self, records: &[RecordInFlight]) -> Result<(), StoreError> {
        let (Some(first), Some(last)) = (records.first(), records.last()) else {
            return Ok(());
        };
        let slices: Vec<IoSlice<'_>> = records.iter().flat_map(|r| r.parts.io_slices()).collect();
        // A write that begins where the last one ended needs no movement of the disk head.
        let before = self
            .last_end
            .swap(last.end().get(), std::sync::atomic::Ordering::Relaxed);
        add_to_counter(&self.counters.writes, 1);
        add_to_counter(
            &self.counters.bytes_written,
            slices.iter().map(|slice| slice.len() as u64).sum(),
        );
        add_to_counter(
            &self.counters.repositionings,
            u64::from(before != first.start.get()),
        );
        let done = self.disk.write_at(first.start, &slices);
        // Cached chunks must not show old content, whether or not the write succeeded.
        for r in records.iter() {
            self.update_chunks(r.start, &r.parts, done.is_ok());
        }
        done.map_err(|source| io_error(DiskRequest::Write, first.start, source))
    }

    fn update_chunks(&self, at: Sector, bytes: &ScatteredBytes, is_written: bool) {
        let sectors = bytes.len() as u64 / SECTOR;
        // Large writes would push everything else out of the cache.
        let is_kept = is_written && sectors <= KEPT_SECTORS;
        for chunk in chunks_of(at.byte_offset(), bytes.len()) {
            if !is_kept {
                self.chunks.remove(&chunk);
                continue;
            }
            let old = self.chunks.get(&chunk);
            let old = old.unwrap_or_else(|| Arc::new(vec![0; self.chunk_len(chunk)]));
            self.chunks.insert(
                chunk,
                Arc::new(patched_chunk(&old, chunk * CHUNK_SECTORS, at, bytes)),
            );
        }
    }

    /// Returns the bytes of a chunk: the last one of the disk may be short.
    fn chunk_len(&self, chunk: u64) -> usize {
        (CHUNK_SECTORS.min(self.limit.saturating_sub(chunk * CHUNK_SECTORS)) * SECTOR) as usize
    }

    /// Drops cached chunks that are not what the disk holds there.
    pub(crate) fn drop_chunks(&self, byte: u64, len: usize) {
        for chunk in chunks_of(byte, len) {
            drop(self.chunks.remove(&chunk));
        }
    }

    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        add_to_counter(&self.counters.barriers, 1);
        self.disk
            .sync()
            .map_err(|source| io_error(DiskRequest::Sync, Sector::new(0), source))
    }

    fn copy_in_flight(&self, byte: u64, buf: &mut [u8]) -> bool {
        // A record on its way is read from memory: the disk may not have it yet.
        for record in self.in_flight.read().iter() {
            let start = record.start.byte_offset();
            // Only if all of the bytes are in one record.
            if byte >= start && byte + buf.len() as u64 <= start + record.parts.len() as u64 {
                let from = (byte - start) as usize;
                record.parts.copy_to(from..from + buf.len(), buf);
                return true;
            }
        }
        false
    }

    /// Reads whole sectors, unchecked.
    pub(crate) fn read_raw(&self, at: Sector, buf: &mut [u8]) -> Result<(), StoreError> {
        if self.copy_in_flight(at.byte_offset(), buf) {
            return Ok(());
        }
        // A damaged address must not reach the disk.
        if at.get() + buf.len() as u64 / SECTOR > self.limit {
            return Err(StoreError::Corrupt {
                what: "an address",
                at: at.get(),
                object: None,
            });
        }
        add_to_counter(&self.counters.reads, 1);
        add_to_counter(&self.counters.bytes_read, buf.len() as u64);
        self.disk
            .read_at(at, buf)
            .map_err(|source| io_error(DiskRequest::Read, at, source))
    }

    fn read_chunk(&self, chunk: u64) -> Result<Arc<Vec<u8>>, StoreError> {
        if let Some(bytes) = self.chunks.get(&chunk) {
            return Ok(bytes);
        }
        // The last chunk of the disk may be short.
        let mut bytes = vec![0; self.chunk_len(chunk)];
        self.read_raw(Sector::new(chunk * CHUNK_SECTORS), &mut bytes)?;
        let bytes = Arc::new(bytes);
        self.chunks.insert(chunk, Arc::clone(&bytes));
        Ok(bytes)
    }

    fn read_through_chunks(&self, byte: u64, len: usize) -> Result<Vec<u8>, StoreError> {
        let unit = CHUNK_SECTORS * SECTOR;
        let mut out = Vec::with_capacity(len);
        let end = byte + len as u64;
        let mut at = byte;
        while at < end {
            let chunk = self.read_chunk(at / unit)?;
            let from = (at % unit) as usize;
            let to = chunk.len().min(from + (end - at) as usize);
            // Beyond the end of the disk.
            if from >= to {
                return Err(StoreError::Corrupt {
                    what: "an address",
                    at: at / SECTOR,
                    object: None,
                });
            }
            out.extend_from_slice(&chunk[from..to]);
            at += (to - from) as u64;
        }
        Ok(out)
    }

    /// Reads a small piece, unchecked, if it is cached; or with its neighbourhood, if there are
    /// signs that more of it will be wanted. What comes may be older than what is in flight.
    pub(crate) fn read_nearby(&self, at: Sector, buf: &mut [u8]) -> bool {
        // Large reads go to the disk directly.
        if buf.len() as u64 > SMALL_SECTORS * SECTOR || at.get() >= self.limit {
            return false;
        }
        let last = self
            .last_small
            .swap(at.get(), std::sync::atomic::Ordering::Relaxed);
        // Cached already: no request is needed at all.
        let is_cached = || {
            chunks_of(at.byte_offset(), buf.len()).all(|chunk| self.chunks.get(&chunk).is_some())
        };
        // A read far from the last one is no reason to read its neighbourhood.
        if at.get().abs_diff(last) > NEARBY_SECTORS && !is_cached() {
            return false;
        }
        match self.read_through_chunks(at.byte_offset(), buf.len()) {
            Ok(bytes) => {
                buf.copy_from_slice(&bytes);
                true
            }
            // A bad sector next door: the read is made by itself.
            Err(_) => false,
        }
    }

    /// Reads `len` bytes from a byte address and checks their checksum.
    pub(crate) fn read_checked(
        &self,
        byte: u64,
        len: usize,
        sum: u32,
        what: &'static str,
        object: Option<ObjectNo>,
    ) -> Result<Vec<u8>, StoreError> {
        // A damaged address must not overflow.
        if byte
            .checked_add(len as u64)
            .is_none_or(|end| end > self.limit * SECTOR)
        {
            return Err(StoreError::Corrupt {
                what,
                at: byte / SECTOR,
                object,
            });
        }
        let mut flight = vec![0; len];
        // The record may have been replaced: the checksum decides.
        if self.copy_in_flight(byte, &mut flight) && crc_matches(&flight, sum) {
            return Ok(flight);
        }
        // A page on its own is not worth its neighbourhood, one behind another is: they were
        // written in order.
        let last = self
            .last_read
            .swap(byte / SECTOR, std::sync::atomic::Ordering::Relaxed);
        let near = self.sweeping.load(Ordering::Relaxed)
            || (byte / SECTOR).abs_diff(last) <= CHUNK_SECTORS;
        if (near || len < WORTH_ITSELF)
            && let Ok(bytes) = self.read_through_chunks(byte, len)
        {
            if crc_matches(&bytes, sum) {
                return Ok(bytes);
            }
            // The cached chunk is out of date.
            self.drop_chunks(byte, len);
        }
        // The chunk may have been read while its sectors were rewritten, or reach into a bad sector
        // next door.
        let exact = self.read_exactly(byte, len)?;
        // Read exactly, and still wrong: damage.
        if !crc_matches(&exact, sum) {
            return Err(StoreError::Corrupt {
                what,
                at: byte / SECTOR,
                object,
            });
        }
        Ok(exact)
    }

    /// Reads `len` bytes from a byte address, and no sector besides theirs.
    fn read_exactly(&self, byte: u64, len: usize) -> Result<Vec<u8>, StoreError> {
        debug_assert!(len > 0, "nothing to check");
        let first = byte / SECTOR;
        let sectors = (byte + len as u64).div_ceil(SECTOR) - first;
        let mut bytes = vec![0; (sectors * SECTOR) as usize];
        self.read_raw(Sector::new(first), &mut bytes)?;
        let from = (byte - first * SECTOR) as usize;
        Ok(bytes[from..from + len].to_vec())
    }

    /// Reads the copy of a page that lies at `at`.
    pub(crate) fn read_page(
        &self,
        ptr: PagePtr,
        at: Sector,
        want: ExpectedPage,
    ) -> Result<Node, StoreError> {
        let object = (want.owner != STORE_WIDE).then_some(want.owner);
        let bytes = self.read_checked(
            at.byte_offset(),
            ptr.stored_bytes(),
            ptr.crc(),
            want.kind.page_name(),
            object,
        )?;
        let node = Node::decode(&bytes, at, want)?;
        if node.is_empty() {
            return Err(want.damaged_at(at));
        }
        Ok(node)
    }

    /// Sets whether every read fetches its neighbourhood: for a caller that is going to read most
    /// of it.
    pub(crate) fn set_sweeping(&self, sweeping: bool) {
        self.sweeping.store(sweeping, Ordering::Relaxed);
    }

    pub(crate) fn forget_caches(&self) {
        self.chunks.clear();
        self.pages.clear();
    }
}

/// Returns the chunks in which these bytes lie.
fn chunks_of(byte: u64, len: usize) -> std::ops::Range<u64> {
    let unit = CHUNK_SECTORS * SECTOR;
    byte / unit..byte.saturating_add(len as u64).div_ceil(unit)
}

/// Returns the chunk that begins at sector `start`, after `bytes` were written at `at`.
fn patched_chunk(chunk: &[u8], start: u64, at: Sector, bytes: &ScatteredBytes) -> Vec<u8> {
    let mut new = chunk.to_vec();
    let begin = start * SECTOR;
    let at = at.byte_offset();
    // The part of the write that lies in this chunk.
    let from = begin.max(at);
    let to = (begin + chunk.len() as u64).min(at + bytes.len() as u64);
    if from < to {
        let range = (from - at) as usize..(to - at) as usize;
        bytes.copy_to(
            range,
            &mut new[(from - begin) as usize..(to - begin) as usize],
        );
    }
    new
}

impl PageSource for CachedReader {
    fn load_page(&self, ptr: PagePtr, want: ExpectedPage) -> Result<Arc<Node>, StoreError> {
        // Decoded pages are kept by pointer, so a page that is rewritten elsewhere is another one.
        if let Some(node) = self.pages.get(&ptr)
            && want.level.is_none_or(|level| level == node.level)
        {
            return Ok(node);
        }
        if let Some(bytes) = self.laid_out.read().get(&ptr) {
            return Ok(Arc::new(Node::decode(bytes, ptr.addr(), want)?));
        }
        let first = self.read_page(ptr, ptr.addr(), want);
        let (node, is_second) = match (first, ptr.second_copy()) {
            (Err(error), Some(second)) => {
                // The error of the first copy is the one to tell of.
                let Ok(node) = self.read_page(ptr, second, want) else {
                    return Err(error);
                };
                let at = second.get();
                log::warn!("{error}; its second copy at sector {at} is read instead");
                add_to_counter(&self.counters.second_copies_read, 1);
                (node, true)
            }
            (first, _) => (first?, false),
        };
        if is_second {
            self.to_renew.add(PageToRenew {
                kind: want.kind,
                level: node.level,
                key: node.first_key(),
                at: ptr.addr(),
            });
        }
        let node = Arc::new(node);
        // Only pages that proved whole are kept.
        self.pages.insert(ptr, Arc::clone(&node));
        Ok(node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cached_chunk_takes_what_overlaps_it() {
        let chunk = vec![0; 4 * SECTOR as usize];
        let record = ScatteredBytes::from(vec![7; 2 * SECTOR as usize]);
        let sectors = |at| -> Vec<u8> {
            patched_chunk(&chunk, 10, Sector::new(at), &record)
                .chunks(SECTOR as usize)
                .map(|sector| sector[0])
                .collect()
        };
        assert_eq!(sectors(11), [0, 7, 7, 0]);
        assert_eq!(sectors(9), [7, 0, 0, 0]);
        assert_eq!(sectors(13), [0, 0, 0, 7]);
        assert_eq!(sectors(14), [0; 4]);
        assert_eq!(sectors(8), [0; 4]);
    }
}
