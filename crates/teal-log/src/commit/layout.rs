//! Lays a batch out on the disk: payload and deltas in, finished records out. No I/O.
//!
//! # How
//! 1. A record is open: payload grows behind its header, the body grows apart.
//! 2. What does not fit any more closes the record (payload, then body, sealed by checksums) and
//!    opens the next where the head points.
//! 3. Payload has its address at once; inode records get theirs when their record closes, because
//!    the body follows the payload.

use crate::commit::second_copies::SecondCopies;
use crate::format::checksum::{crc, crc_joined};
use crate::format::delta::{self, Delta};
use crate::format::extent::{BLOCK_SECTORS, EXTENT_BLOCKS, Extent};
use crate::format::imap::RecordHome;
use crate::format::owner::StoreOwner;
use crate::format::page::PagePtr;
use crate::format::record::{self, BatchSums, HEADER, RecordHeader};
use crate::iovec::{ScatteredBytes, SharedBytes};
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

struct OpenRecord {
    start: Sector,
    /// Is true if this is the first record of its segment.
    is_first: bool,
    /// Sectors this record may take.
    room: u64,
    payload: ScatteredBytes,
    payload_crc: u32,
    body: Vec<u8>,
    deltas: u32,
    inodes: Vec<(ObjectRef, usize, RecordHome)>,
}

impl OpenRecord {
    /// Adds whole sectors with a known checksum to the payload.
    fn push(&mut self, bytes: SharedBytes, sum: u32) {
        // The checksum of the payload is joined from those of its parts, so no byte is read twice.
        self.payload_crc = crc_joined(self.payload_crc, sum, bytes.len() as u64 / SECTOR);
        self.payload.push(bytes);
    }
}

/// The space for a batch ran out although it had been promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoRoom;

/// A finished batch: its records, second copies of pages, the chain behind it, the homes of its
/// inode records.
pub(crate) type LaidOutBatch = (
    Vec<RecordInFlight>,
    SecondCopies,
    ChainPosition,
    Vec<(ObjectRef, RecordHome)>,
);

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
            let fits = self.open.as_ref().is_some_and(|o| {
                let sectors = (o.payload.len() as u64 / SECTOR)
                    + (o.body.len() + body) as u64 / SECTOR
                    // The header, and the rest of the body's last sector.
                    + 2
                    + payload;
                sectors <= o.room
            });
            if fits {
                break;
            }
            if self
                .open
                .as_ref()
                .is_some_and(|o| o.deltas == 0 && o.payload.is_empty())
            {
                // An empty record in a run too short. Recovery finds the next run only if a header
                // names it: an empty record does.
                if self.segments.skip_run() {
                    self.drop_open();
                } else {
                    self.close_record(0)?;
                }
            } else if self.open.is_some() {
                self.close_record(0)?;
            }
            let run = self.segments.log_head().a;
            if run.sectors == 0 {
                return Err(NoRoom);
            }
            // Entering a segment marks it as written, and starts its chain of records.
            let align = self.segments.align();
            let is_first = self.segments.enter_segment(run.addr, self.chain.seq);
            self.open = Some(OpenRecord {
                start: run.addr,
                is_first,
                room: u64::from(run.sectors).min(record::SECTORS_MAX) / align * align,
                payload: ScatteredBytes::default(),
                payload_crc: 0,
                body: Vec::new(),
                deltas: 0,
                inodes: Vec::new(),
            });
        }
        self.open
            // A run that is too short for this piece is no room, even when it is empty.
            .as_mut()
            .filter(|o| {
                o.payload.len() as u64 / SECTOR
                    + (o.body.len() + body) as u64 / SECTOR
                    + 2
                    + payload
                    <= o.room
            })
            .ok_or(NoRoom)
    }

    fn drop_open(&mut self) {
        // A segment that was entered for this record only is as good as new.
        if let Some(open) = self.open.take().filter(|open| open.is_first) {
            self.segments.start_anew(open.start);
        }
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
        // Deltas hold the distance from the record's first operation, which fits 32 bits.
        let offset = (lsn.get().saturating_sub(self.lsn.get())) as u32;
        let open = self.record_with_room(0, delta::PREFIX + size)?;
        delta.encode(object, offset, &mut open.body);
        open.deltas += 1;
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
        let offset = (lsn.get().saturating_sub(self.lsn.get())) as u32;
        let open = self.record_with_room(0, delta::PREFIX + bytes.len())?;
        let at = Delta::Inode(bytes).encode(object.no, offset, &mut open.body);
        open.deltas += 1;
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

    /// Stores a run of blocks, changed now by `lsn` and written first by `born`; calls `install`
    /// with each extent made of them.
    pub(crate) fn add_blocks(
        &mut self,
        object: ObjectNo,
        (lsn, born): (Lsn, Lsn),
        first: u64,
        blocks: &[DirtyBlock],
        tail_sectors: u64,
        install: &mut dyn FnMut(u64, Extent),
    ) -> Result<(), NoRoom> {
        let mut from = 0;
        // As many blocks as fit the record at a time; the extent is split there.
        while from < blocks.len() {
            let left = (blocks.len() - from) as u64;
            let room = {
                let open = self.record_with_room(BLOCK_SECTORS, delta::PREFIX + 64)?;
                debug_assert!(
                    open.room
                        >= 4 + open.payload.len() as u64 / SECTOR + open.body.len() as u64 / SECTOR
                );
                open.room - 4 - open.payload.len() as u64 / SECTOR - open.body.len() as u64 / SECTOR
            };
            let count = left.min(EXTENT_BLOCKS).min((room / BLOCK_SECTORS).max(1));
            // Only the last extent may end in the middle of a block.
            let last = count == left;
            let stored =
                (count - 1) * BLOCK_SECTORS + if last { tail_sectors } else { BLOCK_SECTORS };
            let open = self.record_with_room(stored, delta::PREFIX + 28 + 4 * count as usize)?;
            let addr = open.start.plus(1 + open.payload.len() as u64 / SECTOR);
            let mut crcs = Vec::with_capacity(count as usize);
            // Each block has its own checksum, so that a read of one block can be checked.
            for (i, block) in blocks[from..from + count as usize].iter().enumerate() {
                let short = last && i as u64 + 1 == count;
                let sectors = if short { tail_sectors } else { BLOCK_SECTORS };
                let (bytes, sum) = block.stored_bytes((sectors * SECTOR) as usize);
                crcs.push(sum);
                open.push(bytes, sum);
            }
            let extent = Extent {
                addr,
                stored: stored as u16,
                born,
                crcs: crcs.into(),
            };
            // The file's map changes at once; the record's place is certain by now.
            let block = first + from as u64;
            let offset = (lsn.get().saturating_sub(self.lsn.get())) as u32;
            let open = self.open.as_mut().ok_or(NoRoom)?;
            Delta::Extent {
                block,
                extent: extent.clone().into(),
            }
            .encode(object, offset, &mut open.body);
            open.deltas += 1;
            self.segments
                .add_live(extent.addr.byte_offset(), extent.bytes(), born);
            self.data_bytes += extent.bytes();
            install(block, extent);
            from += count as usize;
        }
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
        let addr = open.start.plus(1 + open.payload.len() as u64 / SECTOR);
        open.push(bytes.into(), crc(bytes));
        self.segments
            .add_live(addr.byte_offset(), bytes.len() as u64, born);
        self.data_bytes += bytes.len() as u64;
        Ok(addr)
    }

    /// Stores a page of a tree.
    pub(crate) fn add_page(&mut self, meta: PageMeta, bytes: &[u8]) -> Result<PagePtr, NoRoom> {
        let offset = 0;
        // The pointer holds the place and the checksum, so that the page proves itself.
        let open = self.record_with_room(bytes.len() as u64 / SECTOR, delta::PREFIX + 22)?;
        let mut ptr = PagePtr::seal(
            open.start.plus(1 + open.payload.len() as u64 / SECTOR),
            bytes,
        );
        open.push(bytes.into(), ptr.crc());
        let page = Delta::Page {
            kind: meta.kind,
            level: meta.level,
            first_key: meta.first_key,
            ptr,
        };
        page.encode(meta.owner, offset, &mut open.body);
        open.deltas += 1;
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
        let body_len = open.body.len() as u32;
        let mut header = RecordHeader {
            flags,
            epoch: self.chain.epoch,
            seq: self.chain.seq,
            batch: self.chain.batch,
            watermark: self.chain.watermark,
            previous: self.chain.digest,
            payload: (open.payload.len() as u64 / SECTOR) as u32,
            body: body_len,
            deltas: open.deltas,
            lsn: self.lsn,
            stamp: self.stamp,
            time: self.time,
            payload_crc: open.payload_crc,
            body_crc: crc(&open.body),
            sums: self.chain.sums,
            owner: self.chain.owner,
            ..RecordHeader::default()
        };
        // The head moves behind the record, and the header names the next run and its successor.
        let end = open.start.plus(header.sectors());
        let head = self.segments.advance_head(end);
        header.next_a = head.a;
        header.next_b = head.b;
        let head = header.encode(&self.chain.uuid);
        debug_assert_eq!(head.len(), HEADER, "the payload follows the header");
        // The next record repeats this digest, which chains the records.
        self.chain.digest = record::header_digest(&head, &self.chain.uuid);
        self.chain.seq += 1;
        let mut parts = ScatteredBytes::from(head);
        parts.append(open.payload);
        let body_at = open.start.byte_offset() + parts.len() as u64;
        let mut body = open.body;
        // Padded to the alignment, so that no later write touches these sectors.
        let whole =
            (parts.len() + body.len()).next_multiple_of((self.segments.align() * SECTOR) as usize);
        body.resize(whole - parts.len(), 0);
        parts.push(body.into());
        // Now the places of the inode records are known.
        for (object, at, mut home) in open.inodes {
            home.byte = body_at + at as u64;
            self.segments
                .add_live(home.byte, u64::from(home.len), home.lsn);
            self.homes.push((object, home));
        }
        self.done.push(RecordInFlight {
            start: open.start,
            parts: Arc::new(parts),
        });
        Ok(())
    }

    /// Returns the bytes that the segment table will count as live when the last record is closed
    /// and the objects have their new homes.
    fn live_after(&self) -> u64 {
        let open = self
            .open
            .iter()
            .flat_map(|open| open.inodes.iter().map(|(object, _, home)| (object, home)));
        // New records will be live, and those they replace will be dead.
        let comes: u64 = open.clone().map(|(_, home)| u64::from(home.len)).sum();
        let homed = self
            .homes
            .iter()
            .map(|(object, _)| object)
            .chain(open.map(|(object, _)| object));
        let goes: u64 = homed
            .filter_map(|object| object.state.read().home)
            .map(|old| u64::from(old.len))
            .sum();
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
        Ok((self.done, self.copies, self.chain, self.homes))
    }
}
