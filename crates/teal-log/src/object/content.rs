//! The content of a file: reading, writing, cutting, punching.
//!
//! # Invariants
//! 1. Bytes behind the end of a file are zero wherever they are kept, so that growing a file shows
//!    zeros.
//! 2. The newest word on a block is the dirty map, else the extents, else it is a hole.
//! 3. A block that is dirty has no room set aside any more: the open batch counts it
//!    ([`preallocation`](crate::object::preallocation)).

use crate::error::StoreError;
use crate::format::extent::{BLOCK_SECTORS, MappedExtent};
use crate::iovec::SharedBytes;
use crate::object::extents::FileExtents;
use crate::object::gather::{ReadPiece, ReadStretch, SPAN_MAX};
use crate::object::state::{BlockContent, DirtyBlock, INLINE_DATA, ObjectContent, ObjectState};
use crate::seeded::{Bug, bug};
use crate::tree::freed::FreedSpace;
use crate::tree::reader::CachedReader;
use teal_types::{BLOCK, ObjectNo, SECTOR};

/// From this many bytes on, the blocks of a write share memory.
const TOGETHER: usize = 64 << 10;
/// Copies whole blocks: many into one piece of memory from which the disk takes them, few each into
/// its own.
fn dirty_blocks(src: &CachedReader, data: &[u8]) -> Vec<DirtyBlock> {
    // Small writes: each block by itself, so that one dirty block does not hold the memory of many.
    if data.len() < TOGETHER {
        return data
            .chunks_exact(BLOCK as usize)
            .map(|block| DirtyBlock::new(block.into()))
            .collect();
    }
    // Large ones: one buffer for all blocks.
    let mut memory = src.buffers.lend(data.len());
    memory.copy_from_slice(data);
    SharedBytes::split_into(memory, BLOCK as usize)
        .map(DirtyBlock::new)
        .collect()
}

impl ObjectState {
    /// Finds out where the bytes of a range lie. The range must lie inside the file.
    pub(crate) fn plan_read(
        &self,
        src: &CachedReader,
        no: ObjectNo,
        offset: u64,
        len: usize,
    ) -> Result<Vec<ReadStretch>, StoreError> {
        match &self.content {
            ObjectContent::Inline(data) => {
                let bytes = SharedBytes::from(&data[offset as usize..offset as usize + len]);
                Ok(vec![ReadStretch {
                    len,
                    piece: ReadPiece::Memory { bytes, from: 0 },
                }])
            }
            ObjectContent::Blocks(blocks) => blocks.plan_read(src, no, offset, len),
            ObjectContent::None | ObjectContent::Dir(_) => Ok(Vec::new()),
        }
    }

    /// Writes `data` at `offset` and grows the file if needed.
    pub(crate) fn write(
        &mut self,
        src: &CachedReader,
        no: ObjectNo,
        offset: u64,
        data: &[u8],
    ) -> Result<(), StoreError> {
        let end = offset + data.len() as u64;
        // Small files stay within their inode record.
        if let ObjectContent::Inline(bytes) = &mut self.content
            && end <= INLINE_DATA
        {
            if bytes.len() < end as usize {
                bytes.resize(end as usize, 0);
            }
            bytes[offset as usize..end as usize].copy_from_slice(data);
            self.core.size = bytes.len() as u64;
            return Ok(());
        }
        let blocks = self.blocks_mut();
        let first = offset / BLOCK;
        let last = end.div_ceil(BLOCK);
        // All pages that sealing will change are in memory now: sealing does no I/O.
        blocks.extents.warm(src, first, last - first)?;
        let mut fresh = Vec::with_capacity((last - first) as usize);
        let mut block = first;
        while block < last {
            let start = block * BLOCK;
            let from = offset.max(start);
            // Full blocks need no old content.
            let whole = if from == start {
                (end - start) / BLOCK
            } else {
                0
            };
            if whole > 0 {
                let new = &data[(from - offset) as usize..][..(whole * BLOCK) as usize];
                fresh.extend((block..).zip(dirty_blocks(src, new)));
                block += whole;
                continue;
            }
            let to = end.min(start + BLOCK);
            // A part of a block: the rest comes from the disk.
            let mut bytes = blocks.load_block(src, no, block)?;
            bytes[(from - start) as usize..(to - start) as usize]
                .copy_from_slice(&data[(from - offset) as usize..(to - offset) as usize]);
            fresh.push((block, bytes.into()));
            block += 1;
        }
        // Nothing has changed until everything that can fail has not.
        blocks.dirty.extend(fresh);
        self.core.size = self.core.size.max(end);
        Ok(())
    }

    /// Sets the length.
    pub(crate) fn set_size(
        &mut self,
        src: &CachedReader,
        no: ObjectNo,
        size: u64,
        freed: &mut Vec<FreedSpace>,
    ) -> Result<(), StoreError> {
        if let ObjectContent::Inline(bytes) = &mut self.content
            && size <= INLINE_DATA
        {
            bytes.resize(size as usize, 0);
            self.core.size = size;
            return Ok(());
        }
        // Everything goes: the file begins anew as a small one.
        if size == 0 {
            self.warm_shared(src)?;
            self.free_content(src, no, freed)?;
            self.content = ObjectContent::Inline(Vec::new());
            self.cut = true;
            self.core.sectors = 0;
        } else if size <= self.core.size {
            // The rest of the last block is zeroed, so that it cannot show when the file grows
            // again.
            if size < self.core.size {
                self.zero_within(src, no, size, size.next_multiple_of(BLOCK))?;
            }
            // Room that was set aside behind the end goes, too.
            let end = self.end_block(src, no)?;
            let first = size.div_ceil(BLOCK);
            self.free_blocks(src, no, first, end.saturating_sub(first), freed)?;
        // Growing makes a hole at the end.
        } else {
            self.blocks_mut();
        }
        self.core.size = size;
        Ok(())
    }

    /// Makes a range read as zeros and gives its whole blocks back; the length stays.
    pub(crate) fn punch_hole(
        &mut self,
        src: &CachedReader,
        no: ObjectNo,
        offset: u64,
        end: u64,
        freed: &mut Vec<FreedSpace>,
    ) -> Result<(), StoreError> {
        let size = self.core.size;
        if let ObjectContent::Inline(bytes) = &mut self.content {
            let end = end.min(size) as usize;
            if let Some(hole) = bytes.get_mut(offset as usize..end) {
                hole.fill(0);
            }
            return Ok(());
        }
        // Behind the end of the file there may be room that is set aside.
        let end = end.min((self.end_block(src, no)? * BLOCK).max(size));
        if offset >= end {
            return Ok(());
        }
        let first = offset.div_ceil(BLOCK);
        // Up to the end of the file, the last block goes as a whole.
        let last = if end >= size {
            size.div_ceil(BLOCK).max(end / BLOCK)
        } else {
            end / BLOCK
        };
        let end = end.min(size).max(offset);
        // The parts of blocks at both ends are zeroed.
        self.zero_within(src, no, offset, end.min(first * BLOCK))?;
        if last >= first {
            self.zero_within(src, no, (last * BLOCK).max(offset), end)?;
            self.free_blocks(src, no, first, last - first, freed)?;
        }
        Ok(())
    }

    /// Zeroes a range inside one block, unless the block is a hole.
    fn zero_within(
        &mut self,
        src: &CachedReader,
        no: ObjectNo,
        from: u64,
        to: u64,
    ) -> Result<(), StoreError> {
        let block = from / BLOCK;
        let blocks = self.blocks_mut();
        // A hole is zero already.
        if bug(Bug::TailNotZeroed) || from >= to || blocks.is_hole(src, no, block)? {
            return Ok(());
        }
        blocks.extents.warm(src, block, 1)?;
        let mut bytes = blocks.load_block(src, no, block)?;
        let start = block * BLOCK;
        bytes[(from - start) as usize..(to - start) as usize].fill(0);
        blocks.dirty.insert(block, bytes.into());
        Ok(())
    }

    /// Returns the block behind the last one that is stored, changed or set aside, or that lies in
    /// the file.
    fn end_block(&self, src: &CachedReader, no: ObjectNo) -> Result<u64, StoreError> {
        let in_file = self.core.size.div_ceil(BLOCK);
        match &self.content {
            ObjectContent::Blocks(blocks) => Ok(in_file.max(blocks.extents.end_block(src, no)?)),
            _ => Ok(in_file),
        }
    }

    fn free_blocks(
        &mut self,
        src: &CachedReader,
        no: ObjectNo,
        first: u64,
        count: u64,
        freed: &mut Vec<FreedSpace>,
    ) -> Result<(), StoreError> {
        if count == 0 {
            return Ok(());
        }
        let from = freed.len();
        let blocks = self.blocks_mut();
        blocks.extents.warm_shared(src, first, count)?;
        let done = blocks.extents.remove_range(src, no, first, count, freed);
        // Dirty blocks in the range were never written.
        let mut tail = blocks.dirty.split_off(&first);
        blocks.dirty.append(&mut tail.split_off(&(first + count)));
        // The log must know of the hole, even where nothing was stored.
        blocks.holes.push((first, count));
        let sectors: u64 = freed[from..].iter().map(|f| f.bytes() / SECTOR).sum();
        self.core.sectors = self.core.sectors.saturating_sub(sectors);
        self.take_freed_pages(freed);
        // The extents before an error are gone, and counted.
        done
    }

    /// Makes sure that giving back all content cannot fail for the counts of shared extents.
    pub(crate) fn warm_shared(&self, src: &CachedReader) -> Result<(), StoreError> {
        match &self.content {
            ObjectContent::Blocks(blocks) => blocks.extents.warm_shared(src, 0, u64::MAX),
            _ => Ok(()),
        }
    }

    /// Gives back all content, pages included; what remains is not to be used.
    pub(crate) fn free_content(
        &mut self,
        src: &CachedReader,
        no: ObjectNo,
        freed: &mut Vec<FreedSpace>,
    ) -> Result<(), StoreError> {
        match &mut self.content {
            ObjectContent::Blocks(BlockContent {
                extents: FileExtents::Tree(tree),
                ..
            }) => {
                // Damaged items are left: the error names the object.
                let mut bad = false;
                tree.destroy(src, &mut |_, value| match MappedExtent::decode(value) {
                    Some(e) => freed.push(FreedSpace::of_extent(&e)),
                    None => bad = true,
                })?;
                if bad {
                    return Err(StoreError::Corrupt {
                        what: "an extent",
                        at: 0,
                        object: Some(no),
                    });
                }
            }
            ObjectContent::Blocks(BlockContent {
                extents: FileExtents::Few(map),
                ..
            }) => {
                freed.extend(map.values().map(FreedSpace::of_extent));
            }
            ObjectContent::Dir(crate::object::directory::DirectoryContent {
                entries: crate::object::directory::DirectoryEntries::Tree(tree),
                ..
            }) => {
                tree.destroy(src, &mut |_, _| {})?;
            }
            ObjectContent::Dir(_) | ObjectContent::Inline(_) | ObjectContent::None => {}
        }
        self.take_freed_pages(freed);
        Ok(())
    }

    /// Returns the first byte at or after `offset` that is (or is not) part of a hole; the end of
    /// the file counts as a hole.
    pub(crate) fn seek(
        &self,
        src: &CachedReader,
        no: ObjectNo,
        offset: u64,
        hole: bool,
    ) -> Result<Option<u64>, StoreError> {
        let size = self.core.size;
        if offset >= size {
            return Ok(None);
        }
        // Inline content has no holes.
        let ObjectContent::Blocks(blocks) = &self.content else {
            return Ok(Some(if hole { size } else { offset }));
        };
        let mut block = offset / BLOCK;
        while block * BLOCK < size {
            let extent = blocks.extents.content_at_or_after(src, no, block)?;
            // Dirty blocks count as data, wherever they lie.
            let dirty = blocks.dirty.range(block..).next().map(|(b, _)| *b);
            let in_extent = extent
                .as_ref()
                .filter(|(start, _)| *start <= block)
                .map(|(start, e)| start + e.blocks());
            // The end of the stretch of data at this block, if it is data.
            let data_until = if dirty == Some(block) {
                Some(in_extent.unwrap_or(0).max(block + 1))
            } else {
                in_extent
            };
            match (data_until, hole) {
                // Over data when a hole is wanted, and over holes otherwise.
                (Some(until), true) => block = until,
                (None, true) | (Some(_), false) => return Ok(Some((block * BLOCK).max(offset))),
                (None, false) => match extent
                    .map(|(start, _)| start)
                    .into_iter()
                    .chain(dirty)
                    .min()
                {
                    Some(next) => block = next,
                    None => return Ok(None),
                },
            }
        }
        Ok(hole.then_some(size))
    }
}

impl BlockContent {
    fn is_hole(&self, src: &CachedReader, no: ObjectNo, block: u64) -> Result<bool, StoreError> {
        if self.dirty.contains_key(&block) {
            return Ok(false);
        }
        Ok(self
            .extents
            .content_at_or_after(src, no, block)?
            .is_none_or(|(start, _)| start > block))
    }

    fn plan_read(
        &self,
        src: &CachedReader,
        no: ObjectNo,
        offset: u64,
        len: usize,
    ) -> Result<Vec<ReadStretch>, StoreError> {
        let mut out = Vec::new();
        let end = offset + len as u64;
        let mut at = offset;
        while at < end {
            let block = at / BLOCK;
            let from = (at % BLOCK) as usize;
            // Dirty blocks are newer than anything on the disk.
            let next_dirty = self.dirty.range(block..).next();
            if let Some((b, block_bytes)) = next_dirty
                && *b == block
            {
                let len = ((end - at) as usize).min(BLOCK as usize - from);
                out.push(ReadStretch {
                    len,
                    piece: ReadPiece::Memory {
                        bytes: block_bytes.bytes().clone(),
                        from,
                    },
                });
                at += len as u64;
                continue;
            }
            // A stretch on the disk ends before the next dirty block.
            let stop = end.min(next_dirty.map_or(u64::MAX, |(b, _)| b * BLOCK));
            match self.extents.content_at_or_after(src, no, block)? {
                Some((start, extent)) if start <= block => {
                    let stop = stop.min((start + extent.blocks()) * BLOCK);
                    let len = (stop - at) as usize;
                    let part = src.shared.extent_of(
                        src,
                        no,
                        extent.slice(block - start, stop.div_ceil(BLOCK) - block),
                    )?;
                    at = stop;
                    // Extents end after half a mebibyte at most; neighbours on the disk are read
                    // together.
                    if let Some(ReadStretch {
                        len: before,
                        piece:
                            ReadPiece::Disk {
                                addr, stored, crcs, ..
                            },
                    }) = out.last_mut()
                        && addr.plus(*stored) == part.addr
                        && *stored == crcs.len() as u64 * BLOCK_SECTORS
                        && (*stored + u64::from(part.stored)) * SECTOR <= SPAN_MAX
                    {
                        *before += len;
                        *stored += u64::from(part.stored);
                        crcs.extend_from_slice(&part.crcs);
                        continue;
                    }
                    let piece = ReadPiece::Disk {
                        addr: part.addr,
                        stored: u64::from(part.stored),
                        crcs: part.crcs.into_vec(),
                        from,
                    };
                    out.push(ReadStretch { len, piece });
                }
                next => {
                    // A hole reaches to the next extent or dirty block.
                    let stop = stop.min(next.map_or(u64::MAX, |(start, _)| start * BLOCK));
                    out.push(ReadStretch {
                        len: (stop - at) as usize,
                        piece: ReadPiece::Zero,
                    });
                    debug_assert!(stop > at, "a hole of no bytes does not end");
                    at = stop;
                }
            }
        }
        Ok(out)
    }

    /// Returns a copy of a block's newest content.
    pub(crate) fn load_block(
        &self,
        src: &CachedReader,
        no: ObjectNo,
        block: u64,
    ) -> Result<Vec<u8>, StoreError> {
        // Dirty or not, through the same plan as a read.
        let plan = self.plan_read(src, no, block * BLOCK, BLOCK as usize)?;
        Ok(src.gather_stretches(no, &plan)?.to_vec())
    }
}
