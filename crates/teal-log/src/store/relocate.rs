//! Cleaning one segment: all content that lives in it is entered into the open batch, so that the
//! next commits write it elsewhere.
//!
//! # How
//! 1. Its records name all content it held and the objects that content belonged to; the newest
//!    maps tell which of it still lives.
//! 2. Blocks are remembered beside the file's new ones, with the place they came from: sealed last,
//!    and only if the file still leads there. So cold data fills segments of its own, and keeps its
//!    age.
//! 3. Relocation is an operation like any other: no state but the batch, so a crash in the middle
//!    costs nothing.
//! 4. Content that cannot be read any more is not moved: the segment is set aside, the file is
//!    named in the log, and nothing is lost that was not lost before.

mod pages;
mod segment_move;

use self::segment_move::SegmentMove;
use crate::counters::add_to_counter;
use crate::error::StoreError;
use crate::format::checksum::{crc, crc_matches};
use crate::format::delta::{Delta, decode_body};
use crate::format::extent::{Extent, MappedExtent};
use crate::format::geometry::Segment;
use crate::format::segment_walk;
use crate::object::state::{
    BlockContent, CachedObject, ObjectContent, ObjectState, RecordChange, RelocatedBlock,
};
use crate::store::cleaner::CleaningReserve;
use crate::store::handle::Store;
use crate::store::locked::LockedObjects;
use crate::store::op::StoreOperation;
use crate::tree::freed::FreedSpace;
use crate::tree::page_bounds::{LeafSpread, PAGE};
use teal_types::{BLOCK, ObjectNo, SECTOR, Sector};

/// A segment as it was read.
pub(crate) struct SegmentImage {
    segment: Segment,
    from: Sector,
    bytes: Vec<u8>,
}

impl SegmentImage {
    /// Returns the stored sectors of one block of an extent that lies in the segment.
    fn stored_block(&self, extent: &Extent, at: u64) -> Option<&[u8]> {
        // A block that is not in the image, or not what the map says, is read from the disk.
        let one = extent.slice(at, 1);
        let from = usize::try_from(one.addr.get().checked_sub(self.from.get())? * SECTOR).ok()?;
        let bytes = self.bytes.get(from..from + one.bytes() as usize)?;
        let sum = *one.crcs.first()?;
        crc_matches(bytes, sum).then_some(bytes)
    }
}

impl Store {
    /// Reads the whole content of a segment. Sets a segment aside that cannot be read.
    pub(crate) fn read_victim(&self, victim: Segment) -> Option<SegmentImage> {
        let whole = self.objects().geometry.whole_run(victim);
        let mut held = SegmentImage {
            segment: victim,
            from: whole.addr,
            bytes: vec![0; (u64::from(whole.sectors) * SECTOR) as usize],
        };
        // The whole segment in one request: faster than its live parts by themselves.
        if let Err(e) = self.objects().reader.read_raw(whole.addr, &mut held.bytes) {
            self.set_aside(victim, &e);
            return None;
        }
        Some(held)
    }

    /// Leaves a segment alone from now on.
    pub(crate) fn set_aside(&self, victim: Segment, why: &StoreError) {
        log::error!("segment {} cannot be cleaned: {why}", victim.0);
        self.objects().segments.lock().set_unreadable(victim);
    }

    /// Adds the objects with records that live in a segment.
    ///
    /// # Errors
    /// Errors of reading the inode map.
    pub(crate) fn leaves_of(
        &self,
        held: &SegmentImage,
        places: &mut LeafSpread,
    ) -> Result<(), StoreError> {
        let usage = *self.objects().segments.lock().get(held.segment);
        // The records tell which objects may have lived here.
        for found in segment_walk::walk_records(
            &self.objects().geometry,
            &self.objects().sb.uuid,
            held.segment,
            &usage,
            &held.bytes,
        ) {
            for placed in decode_body(found.body, found.header.deltas) {
                let Ok(placed) = placed else { break };
                if let Delta::Inode(_) = placed.delta
                    && let Some(home) = self
                        .objects()
                        .inode_map
                        .read()
                        .get(&self.objects().reader, placed.object)?
                    // Only records that are still the home of their object.
                    && home.byte == found.body_byte + placed.at as u64
                {
                    places.add(placed.object);
                }
            }
        }
        Ok(())
    }

    /// Moves what lives in a segment into the open batch; a damaged one is set aside.
    pub(crate) fn clean_segment(
        &self,
        held: &SegmentImage,
        left: CleaningReserve,
    ) -> Result<(), StoreError> {
        let live = u64::from(self.objects().segments.lock().get(held.segment).live);
        // A failure of one segment must not stop the cleaner.
        match SegmentMove::new(self, held, left).run() {
            Ok(()) => {
                add_to_counter(&self.objects().reader.counters.segments_cleaned, 1);
                add_to_counter(&self.objects().reader.counters.bytes_cleaned, live);
                Ok(())
            }
            Err(e @ (StoreError::Corrupt { .. } | StoreError::Io { .. })) => {
                self.set_aside(held.segment, &e);
                Ok(())
            }
            Err(e) => Err(e),
        }
    }

    /// Lets the next batch write elsewhere what is shared in a segment.
    pub(crate) fn move_shared(&self, victim: Segment) -> Result<(), StoreError> {
        // The common case: nothing is shared.
        if self.objects().reader.shared.is_empty() {
            return Ok(());
        }
        let objects = self.objects();
        let reader = &objects.reader;
        let whole = objects.geometry.whole_run(victim);
        let end = whole.addr.plus(u64::from(whole.sectors));
        let mut unreadable = None;
        for (id, extent) in reader.shared.extents_within(reader, whole.addr, end)? {
            match objects.content_of(&extent) {
                Ok(content) => {
                    let bytes = content.len() as u64;
                    // Not if the extent was moved or freed meanwhile.
                    if reader.shared.set_moving(reader, id, extent.addr, content)? {
                        add_to_counter(&reader.counters.bytes_moved, bytes);
                        // The batch has begun, although no object is in it.
                        objects.open.begin_batch(&*objects.clock);
                    }
                }
                Err(e) => {
                    log::error!("cleaning shared extent {id}: {e}");
                    unreadable = Some(e);
                }
            }
        }
        unreadable.map_or(Ok(()), Err)
    }

    /// Returns the bytes that the open batch and pages take, but for the store's own trees.
    fn batch_growth(&self) -> i64 {
        (self.objects().ledger.batch_bytes() + self.objects().ledger.memory_pages() * PAGE) as i64
    }

    fn move_inode(&self, no: ObjectNo, byte: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let op: StoreOperation<'_> = self.begin_cleaning();
        let objects = self.objects();
        let mapped = objects.inode_map.read().get(&objects.reader, no)?;
        // The record is still the object's home.
        let Some(home) = mapped.filter(|home| home.byte == byte) else {
            return Ok(());
        };
        // No batch is sealed while the operation runs: an object that has changed since is in the
        // cache.
        if objects.cache.get(no).is_none()
            && crc(bytes) == home.crc
            && let Some(state) = ObjectState::decode(no, Some(home), bytes)
        {
            let cached = CachedObject::new(no, state, bytes.len());
            objects.cache.add_or_get(cached);
        }
        let mut locked = op.lock(&[no])?;
        // Looked at again under the lock.
        let home = locked.state_mut(no).home;
        if home.is_some_and(|home| home.byte == byte) {
            let state = mark_unchanged(&mut locked, no);
            // Written as a whole, so that nothing of the old record is needed.
            state.record_change = RecordChange::Whole;
        }
        Ok(())
    }

    fn move_extent(
        &self,
        no: ObjectNo,
        block: u64,
        old: &Extent,
        held: &SegmentImage,
    ) -> Result<(), StoreError> {
        let objects = self.objects();
        let op: StoreOperation<'_> = self.begin_cleaning();
        // An object that is gone has no content to move.
        if objects.cache.get(no).is_none()
            && objects.inode_map.read().get(&objects.reader, no)?.is_none()
        {
            return Ok(());
        }
        let mut locked = op.lock(&[no])?;
        let ObjectContent::Blocks(blocks) = &mut locked.state_mut(no).content else {
            return Ok(());
        };
        let mut moved = 0;
        let mut result = Ok(());
        for (start, extent) in self.parts_still_mapped(blocks, no, block, old)? {
            match self.read_to_move(blocks, no, start, &extent, held) {
                Ok(bytes) => moved += bytes,
                Err(e) => result = Err(e),
            }
        }
        if moved > 0 {
            let mut freed: Vec<FreedSpace> = Vec::new();
            // Moved blocks keep the age of their content.
            mark_unchanged(&mut locked, no).take_freed_pages(&mut freed);
            locked.count_moved(moved);
            objects.account_freed(&freed);
        }
        result
    }

    /// Returns the parts of an extent that a file still refers to, each with its first block.
    fn parts_still_mapped(
        &self,
        blocks: &BlockContent,
        no: ObjectNo,
        block: u64,
        old: &Extent,
    ) -> Result<Vec<(u64, Extent)>, StoreError> {
        let reader = &self.objects().reader;
        let range = old.addr.get()..old.addr.get() + u64::from(old.stored);
        let mut parts = Vec::new();
        let mut at = block;
        while let Some((start, extent)) = blocks.extents.at_or_after(reader, no, at)? {
            if start >= block + old.blocks() {
                break;
            }
            at = start + extent.blocks();
            if let MappedExtent::Own(extent) = extent
                && range.contains(&extent.addr.get())
            {
                parts.push((start, extent));
            }
        }
        Ok(parts)
    }

    fn read_to_move(
        &self,
        blocks: &mut BlockContent,
        no: ObjectNo,
        start: u64,
        extent: &Extent,
        held: &SegmentImage,
    ) -> Result<u64, StoreError> {
        let to_move: Vec<u64> = (start..start + extent.blocks())
            // A dirty block will be written elsewhere in any case.
            .filter(|b| !blocks.dirty.contains_key(b))
            .collect();
        if to_move.is_empty() {
            return Ok(0);
        }
        // Sealing puts the moved blocks without I/O.
        blocks
            .extents
            .warm(&self.objects().reader, start, extent.blocks())?;
        let mut moved = 0;
        for block in to_move {
            let bytes = match held.stored_block(extent, block - start) {
                Some(stored) => {
                    let mut bytes = stored.to_vec();
                    bytes.resize(BLOCK as usize, 0);
                    bytes
                }
                // Rewritten while the segment was read, or damaged: the reader knows.
                None => blocks.load_block(&self.objects().reader, no, block)?,
            };
            let from = extent.slice(block - start, 1).addr;
            moved += bytes.len() as u64;
            blocks.moving.insert(
                block,
                RelocatedBlock {
                    bytes: bytes.into(),
                    from,
                    born: extent.born,
                },
            );
        }
        Ok(moved)
    }
}

/// Enters an object into the open batch that is written again, but not changed.
fn mark_unchanged<'l>(locked: &'l mut LockedObjects<'_>, no: ObjectNo) -> &'l mut ObjectState {
    // The operation number stays: moving is no visible change.
    let lsn = locked.state_mut(no).core.lsn;
    let state = locked.mark_changed(no);
    state.core.lsn = lsn;
    state
}
