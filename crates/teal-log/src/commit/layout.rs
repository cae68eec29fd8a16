//! Lays a batch out on the disk: payload and deltas in, finished records out. No I/O.
//!
//! # How
//! 1. A record is open: payload grows behind its header, the body grows apart.
//! 2. What does not fit any more closes the record (payload, then body, sealed by checksums) and
//!    opens the next where the head points.
//! 3. Payload has its address at once; inode records get theirs when their record closes, because
//!    the body follows the payload.

mod block_run;
mod open_record;

pub(crate) use self::block_run::BlockRun;

use self::open_record::OpenRecord;
use crate::commit::second_copies::SecondCopies;
use crate::format::checksum::crc;
use crate::format::delta::{self, Delta};
use crate::format::extent::{BLOCK_SECTORS, EXTENT_BLOCKS, Extent};
use crate::format::imap::RecordHome;
use crate::format::owner::StoreOwner;
use crate::format::page::PagePtr;
use crate::format::record::{self, BatchSums, HEADER, RecordHeader};
use crate::iovec::ScatteredBytes;
use crate::object::state::{DirtyBlock, ObjectRef};
use crate::space::segments::SegmentTable;
use crate::tree::PageMeta;
use crate::tree::reader::RecordInFlight;
use std::sync::Arc;
use teal_types::{Lsn, ObjectNo, SECTOR, Sector, Timestamp, UpdateId};

/// The chain a batch continues.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChainPosition {
    pub(crate) uuid: [u8; 16],
    pub(crate) epoch: u64,
    /// Sequence number of the next record.
    pub(crate) seq: u64,
    /// Number of the next batch.
    pub(crate) batch: u64,
    /// Digest of the last record.
    pub(crate) digest: u64,
    /// Highest sequence number known durable.
    pub(crate) watermark: u64,
    /// The sums of the last batch.
    pub(crate) sums: BatchSums,
    /// The machine that writes.
    pub(crate) owner: StoreOwner,
}

/// The space for a batch ran out although it had been promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoRoom;

/// A finished batch.
pub(crate) struct LaidOutBatch {
    pub(crate) records: Vec<RecordInFlight>,
    /// Second copies of the pages among them.
    pub(crate) copies: SecondCopies,
    /// The chain behind the batch.
    pub(crate) chain: ChainPosition,
    /// The homes of its inode records.
    pub(crate) homes: Vec<(ObjectRef, RecordHome)>,
}

pub(crate) struct BatchLayout<'a> {
    pub(crate) segments: &'a mut SegmentTable,
    pub(crate) chain: ChainPosition,
    lsn: Lsn,
    /// Before the next operation: the age of pages.
    now: Lsn,
    stamp: UpdateId,
    time: Timestamp,
    open: Option<OpenRecord>,
    done: Vec<RecordInFlight>,
    pub(crate) copies: SecondCopies,
    /// Inode records that have found their home.
    pub(crate) homes: Vec<(ObjectRef, RecordHome)>,
    pub(crate) data_bytes: u64,
    pub(crate) page_bytes: u64,
    pub(crate) inode_bytes: u64,
}

impl<'a> BatchLayout<'a> {
    pub(crate) fn new(
        segments: &'a mut SegmentTable,
        chain: ChainPosition,
        lsn: Lsn,
        now: Lsn,
        time: Timestamp,
    ) -> Self {
        let stamp = UpdateId {
            counter: lsn.get(),
            // The stamp of a batch is the number of its first operation.
            ..UpdateId::default()
        };
        Self {
            segments,
            chain,
            lsn,
            now,
            stamp,
            time,
            open: None,
            done: Vec::new(),
            copies: SecondCopies::default(),
            homes: Vec::new(),
            data_bytes: 0,
            page_bytes: 0,
            inode_bytes: 0,
        }
    }

    /// Returns the open record if `payload` sectors and `body` bytes still fit it, else a new one.
    fn record_with_room(&mut self, payload: u64, body: usize) -> Result<&mut OpenRecord, NoRoom> {
        // Each turn closes a record, skips a run or opens a record; more turns would not help.
        for _ in 0..5 {
            let fits = self
                .open
                .as_ref()
                .is_some_and(|o| o.has_room(payload, body));
            if fits {
                break;
            }
            self.end_record()?;
            self.begin_record()?;
        }
        self.open
            // A run that is too short for this piece is no room, even when it is empty.
            .as_mut()
            .filter(|o| o.has_room(payload, body))
            .ok_or(NoRoom)
    }

    /// Ends the open record, if any, so that the next one can begin.
    fn end_record(&mut self) -> Result<(), NoRoom> {
        let Some(open) = &self.open else {
            return Ok(());
        };
        // An empty record in a run too short. Recovery finds the next run only if a header names
        // it: an empty record does.
        if open.is_empty() && self.segments.skip_run() {
            self.drop_open();
            return Ok(());
        }
        self.close_record(0)
    }

    /// Begins a record where the head points.
    fn begin_record(&mut self) -> Result<(), NoRoom> {
        let run = self.segments.log_head().a;
        if run.sectors == 0 {
            return Err(NoRoom);
        }
        // Entering a segment marks it as written, and starts its chain of records.
        let align = self.segments.align();
        let is_first = self.segments.enter_segment(run.addr, self.chain.seq);
        let room = u64::from(run.sectors).min(record::SECTORS_MAX) / align * align;
        self.open = Some(OpenRecord::new(run.addr, is_first, room));
        Ok(())
    }

    fn drop_open(&mut self) {
        // A segment that was entered for this record only is as good as new.
        if let Some(open) = self.open.take().filter(|open| open.is_first) {
            self.segments.start_anew(open.start);
        }
    }

    /// Returns the distance of an operation from the batch's first one, which fits 32 bits: deltas
    /// hold it.
    fn lsn_offset(&self, lsn: Lsn) -> u32 {
        lsn.get().saturating_sub(self.lsn.get()) as u32
    }

    /// Makes sure that a delta of this size will go into the open record.
    pub(crate) fn reserve_delta(&mut self, size: usize) -> Result<(), NoRoom> {
        self.record_with_room(0, delta::PREFIX + size).map(|_| ())
    }

    /// Adds one delta.
    pub(crate) fn add_delta(
        &mut self,
        object: ObjectNo,
        lsn: Lsn,
        delta: &Delta<'_>,
        size: usize,
    ) -> Result<(), NoRoom> {
        let offset = self.lsn_offset(lsn);
        let open = self.record_with_room(0, delta::PREFIX + size)?;
        open.push_delta(object, offset, delta);
        if let Delta::Head(bytes) | Delta::Attributes(bytes) = delta {
            self.inode_bytes += bytes.len() as u64;
        }
        Ok(())
    }

    /// Adds a whole inode record, which makes it the object's home.
    pub(crate) fn add_inode(
        &mut self,
        object: &ObjectRef,
        lsn: Lsn,
        bytes: &[u8],
    ) -> Result<(), NoRoom> {
        let offset = self.lsn_offset(lsn);
        let open = self.record_with_room(0, delta::PREFIX + bytes.len())?;
        let at = open.push_delta(object.no, offset, &Delta::Inode(bytes));
        let home = RecordHome {
            // The place is known when the record closes.
            byte: 0,
            len: bytes.len() as u32,
            crc: crc(bytes),
            lsn,
        };
        open.inodes.push((Arc::clone(object), at, home));
        self.inode_bytes += bytes.len() as u64;
        Ok(())
    }

    /// Stores a run of blocks, changed now by `lsn`; of the last one `tail_sectors` are stored.
    /// Returns the extents made of them, each with its first block.
    pub(crate) fn add_blocks(
        &mut self,
        object: ObjectNo,
        lsn: Lsn,
        run: &BlockRun,
        tail_sectors: u64,
    ) -> Result<Vec<(u64, Extent)>, NoRoom> {
        let mut extents = Vec::new();
        let mut block = run.first;
        let mut rest = &run.blocks[..];
        // As many blocks as fit the record at a time; the extent is split there.
        while !rest.is_empty() {
            let count = self.blocks_that_fit(rest.len())?;
            let (now, later) = rest.split_at(count);
            // Only the last extent may end in the middle of a block.
            let is_last = later.is_empty();
            let tail = if is_last { tail_sectors } else { BLOCK_SECTORS };
            let extent = self.store_extent(now, tail, run.born)?;
            self.log_extent(object, lsn, block, &extent)?;
            extents.push((block, extent));
            block += count as u64;
            rest = later;
        }
        Ok(extents)
    }

    /// Returns how many of so many blocks fit the open record as one extent: at least one does.
    fn blocks_that_fit(&mut self, wanted: usize) -> Result<usize, NoRoom> {
        let open = self.record_with_room(BLOCK_SECTORS, delta::PREFIX + 64)?;
        // The delta of the extent takes a sector more at most, and the rest of another one.
        let taken = open.sectors_with(2, 0);
        debug_assert!(open.room >= taken, "a block and its delta have room");
        let fitting = ((open.room - taken) / BLOCK_SECTORS).max(1);
        Ok((wanted as u64).min(EXTENT_BLOCKS).min(fitting) as usize)
    }

    /// Stores blocks as one extent, of the last one only `tail_sectors`.
    fn store_extent(
        &mut self,
        blocks: &[DirtyBlock],
        tail_sectors: u64,
        born: Lsn,
    ) -> Result<Extent, NoRoom> {
        let stored = (blocks.len() as u64 - 1) * BLOCK_SECTORS + tail_sectors;
        let open = self.record_with_room(stored, delta::PREFIX + 28 + 4 * blocks.len())?;
        let addr = open.payload_end();
        let mut crcs = Vec::with_capacity(blocks.len());
        // Each block has its own checksum, so that a read of one block can be checked.
        for (i, block) in blocks.iter().enumerate() {
            let is_last = i + 1 == blocks.len();
            let sectors = if is_last { tail_sectors } else { BLOCK_SECTORS };
            let (bytes, sum) = block.stored_bytes((sectors * SECTOR) as usize);
            crcs.push(sum);
            open.push(bytes, sum);
        }
        Ok(Extent {
            addr,
            stored: stored as u16,
            born,
            crcs: crcs.into(),
        })
    }

    /// Adds the delta of an extent to the record that holds its content.
    fn log_extent(
        &mut self,
        object: ObjectNo,
        lsn: Lsn,
        block: u64,
        extent: &Extent,
    ) -> Result<(), NoRoom> {
        let offset = self.lsn_offset(lsn);
        let open = self.open.as_mut().ok_or(NoRoom)?;
        let delta = Delta::Extent {
            block,
            extent: extent.clone().into(),
        };
        open.push_delta(object, offset, &delta);
        // The content counts as live at once: the record's place is certain by now.
        self.segments
            .add_live(extent.addr.byte_offset(), extent.bytes(), extent.born);
        self.data_bytes += extent.bytes();
        Ok(())
    }

    /// Stores whole sectors that must stay together, so that a delta of `size` bytes about them
    /// fits the same record.
    pub(crate) fn add_run(
        &mut self,
        bytes: &[u8],
        born: Lsn,
        size: usize,
    ) -> Result<Sector, NoRoom> {
        // Moved content keeps its checksums and its age.
        let open = self.record_with_room(bytes.len() as u64 / SECTOR, delta::PREFIX + size)?;
        let addr = open.payload_end();
        open.push(bytes.into(), crc(bytes));
        self.segments
            .add_live(addr.byte_offset(), bytes.len() as u64, born);
        self.data_bytes += bytes.len() as u64;
        Ok(addr)
    }

    /// Stores a page of a tree.
    pub(crate) fn add_page(&mut self, meta: PageMeta, bytes: &[u8]) -> Result<PagePtr, NoRoom> {
        // The pointer holds the place and the checksum, so that the page proves itself.
        let open = self.record_with_room(bytes.len() as u64 / SECTOR, delta::PREFIX + 22)?;
        let mut ptr = PagePtr::seal(open.payload_end(), bytes);
        open.push(bytes.into(), ptr.crc());
        let page = Delta::Page {
            kind: meta.kind,
            level: meta.level,
            first_key: meta.first_key,
            ptr,
        };
        open.push_delta(meta.owner, 0, &page);
        self.segments
            .add_live(ptr.addr().byte_offset(), ptr.sectors() * SECTOR, self.now);
        self.page_bytes += bytes.len() as u64;
        if meta.kind.has_second_copies() {
            ptr = self.copies.add(self.segments, (ptr, meta), bytes, self.now);
        }
        Ok(ptr)
    }

    /// Closes the open record, if any, so that its inode records get their homes.
    pub(crate) fn close_record(&mut self, flags: u16) -> Result<(), NoRoom> {
        // No record is open: the last one was closed already.
        let Some(open) = self.open.take() else {
            return Ok(());
        };
        let head_before = self.segments.log_head();
        assert_eq!(
            head_before.a.addr, open.start,
            "records are written at the head"
        );
        // The head moves behind the record, and the header names the next run and its successor.
        let mut header = self.header_of(&open, flags);
        let end = open.start.plus(header.sectors());
        let head = self.segments.advance_head(end);
        header.next_a = head.a;
        header.next_b = head.b;
        let mut parts = ScatteredBytes::from(self.chain_header(&header));
        parts.append(open.payload);
        let body_at = open.start.byte_offset() + parts.len() as u64;
        let mut body = open.body;
        // Padded to the alignment, so that no later write touches these sectors.
        let align = (self.segments.align() * SECTOR) as usize;
        let whole = (parts.len() + body.len()).next_multiple_of(align);
        body.resize(whole - parts.len(), 0);
        parts.push(body.into());
        self.home_inodes(open.inodes, body_at);
        self.done.push(RecordInFlight {
            start: open.start,
            parts: Arc::new(parts),
        });
        Ok(())
    }

    /// Returns the header of a record, which names no next run yet.
    fn header_of(&self, open: &OpenRecord, flags: u16) -> RecordHeader {
        RecordHeader {
            flags,
            epoch: self.chain.epoch,
            seq: self.chain.seq,
            batch: self.chain.batch,
            watermark: self.chain.watermark,
            previous: self.chain.digest,
            payload: open.payload_sectors() as u32,
            body: open.body.len() as u32,
            deltas: open.deltas,
            lsn: self.lsn,
            stamp: self.stamp,
            time: self.time,
            payload_crc: open.payload_crc,
            body_crc: crc(&open.body),
            sums: self.chain.sums,
            owner: self.chain.owner,
            ..RecordHeader::default()
        }
    }

    /// Encodes a header, and lets the chain continue behind it.
    fn chain_header(&mut self, header: &RecordHeader) -> Vec<u8> {
        let bytes = header.encode(&self.chain.uuid);
        debug_assert_eq!(bytes.len(), HEADER, "the payload follows the header");
        // The next record repeats this digest, which chains the records.
        self.chain.digest = record::header_digest(&bytes, &self.chain.uuid);
        self.chain.seq += 1;
        bytes
    }

    /// Gives inode records their homes, now that the place of the record's body is known.
    fn home_inodes(&mut self, inodes: Vec<(ObjectRef, usize, RecordHome)>, body_at: u64) {
        for (object, at, mut home) in inodes {
            home.byte = body_at + at as u64;
            self.segments
                .add_live(home.byte, u64::from(home.len), home.lsn);
            self.homes.push((object, home));
        }
    }

    /// Returns the bytes that the segment table will count as live when the last record is closed
    /// and the objects have their new homes.
    fn live_after(&self) -> u64 {
        // New records will be live, and those they replace will be dead.
        let mut comes = 0;
        let mut goes = 0;
        for (object, _) in &self.homes {
            goes += home_bytes(object);
        }
        for (object, _, home) in self.open.iter().flat_map(|open| &open.inodes) {
            comes += u64::from(home.len);
            goes += home_bytes(object);
        }
        (self.segments.live_bytes() + comes).saturating_sub(goes)
    }

    /// Closes the batch; an empty one still makes a record, and changes no sums.
    pub(crate) fn finish(
        mut self,
        flags: u16,
        sums: Option<impl FnOnce(u64) -> BatchSums>,
    ) -> Result<LaidOutBatch, NoRoom> {
        // Even an empty batch has a record, which carries the commit flag.
        self.record_with_room(0, 0)?;
        // The sums are taken as late as possible: they count this batch, too.
        self.chain.sums = sums.map_or(self.chain.sums, |sums| sums(self.live_after()));
        // The commit flag is on the last record only: without it the batch does not count.
        self.close_record(flags | record::COMMIT)?;
        self.chain.batch += 1;
        Ok(LaidOutBatch {
            records: self.done,
            copies: self.copies,
            chain: self.chain,
            homes: self.homes,
        })
    }
}

/// Returns the bytes of the record that an object has on the disk.
fn home_bytes(object: &ObjectRef) -> u64 {
    let home = object.state.read().home;
    home.map_or(0, |home| u64::from(home.len))
}
