//! Sharing: lets blocks of one file hold what blocks of another, or of the same one, hold. No
//! content is read or written.
//!
//! # Guarantees
//! 1. *Equal*: afterwards the range reads as the other one did, holes included, and from then on
//!    each changes by itself.
//! 2. *Atomic*: a step is one operation; how far it came is its answer.
//! 3. *Bounded*: a step looks at no more than [`PIECES_MAX`] extents of either file, so it holds no
//!    lock for long.
//!
//! # How
//! 1. An extent that only the source refers to moves to the table of shared extents, in pieces of
//!    at most 256 KiB; then both refer to parts of it. Its bytes stay where they are.
//! 2. Blocks not committed yet are in memory anyway: both files get them as changed blocks, and
//!    each will write its own.

use crate::counters::add_to_counter;
use crate::error::StoreError;
use crate::format::extent::{Extent, MappedExtent, SHARED_BLOCKS, SharedSlice};
use crate::object::state::{BlockContent, DirtyBlock, ObjectContent, ObjectState};
use crate::space::cost::Cost;
use crate::store::handle::Store;
use crate::store::locked::LockedObjects;
use crate::tree::freed::FreedSpace;
use crate::tree::reader::CachedReader;
use teal_types::limits::FILE_MAX;
use teal_types::{BLOCK, ObjectNo, SECTOR};

/// Most extents of either file that one step looks at: 128 MiB of the source where it lies in one
/// piece.
pub(crate) const PIECES_MAX: usize = 512;

/// What a step takes in any case: records and paths of three trees.
const STEP_BYTES: u64 = 64 << 10;
/// What one more shared extent takes: logged, in two files' maps and in the table, pages half full.
const NEW_BYTES: u64 = 1280;
/// What one more reference takes, or one less: its count logged and its page written again.
const REFERENCE_BYTES: u64 = 768;
/// What a block takes beyond itself.
const BLOCK_MARGIN: u64 = 256;

/// A step of sharing, looked at beforehand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharePlan {
    /// Bytes the step would cover; 0 when there is nothing to share.
    pub bytes: u64,
    /// Bytes of them that are not committed yet, and would be written twice.
    pub uncommitted: u64,
    /// What to begin the operation with.
    pub cost: Cost,
}

/// What a run of blocks of the source is.
#[derive(Debug)]
enum SharePart {
    Dirty(DirtyBlock),
    Own(Extent),
    Shared(SharedSlice),
}

/// The parts of a stretch of blocks, each with its first block; holes are left out.
#[derive(Debug, Default)]
struct ShareableParts {
    parts: Vec<(u64, SharePart)>,
    /// The first block that was not looked at.
    end: u64,
}

impl SharePart {
    fn share_cost(&self) -> u64 {
        match self {
            Self::Dirty(_) => BLOCK + BLOCK_MARGIN,
            Self::Own(_) => NEW_BYTES,
            Self::Shared(_) => REFERENCE_BYTES,
        }
    }
}

impl ShareableParts {
    /// Gives up what comes from block `end` on.
    fn cut_at(&mut self, end: u64) {
        self.end = self.end.min(end);
        self.parts.retain(|(block, _)| *block < end);
    }

    /// Gives up what costs more than this together.
    fn cut_to_cost(&mut self, most: u64) {
        let mut sum = 0;
        let over = self.parts.iter().find(|(_, part)| {
            sum += part.share_cost();
            sum > most
        });
        if let Some(block) = over.map(|(block, _)| *block) {
            self.cut_at(block);
        }
    }
}

impl BlockContent {
    fn shareable_parts(
        &self,
        src: &CachedReader,
        no: ObjectNo,
        first: u64,
        end: u64,
    ) -> Result<ShareableParts, StoreError> {
        let mut found = ShareableParts {
            parts: Vec::new(),
            end: first,
        };
        while found.end < end && found.parts.len() < PIECES_MAX {
            let at = found.end;
            let dirty = self.dirty.range(at..end).next();
            if let Some((_, bytes)) = dirty.filter(|(block, _)| **block == at) {
                found
                    .parts
                    .push((at, SharePart::Dirty(DirtyBlock::clone(bytes))));
                found.end = at + 1;
                continue;
            }
            let stop = dirty.map_or(end, |(block, _)| *block);
            found.end = match self
                .extents
                .at_or_after(src, no, at)?
                .filter(|(start, _)| *start < stop)
            {
                Some((start, extent)) if start <= at => {
                    let count = (start + extent.blocks()).min(stop) - at;
                    let count = count.min(SHARED_BLOCKS);
                    let part = match extent.slice(at - start, count) {
                        MappedExtent::Own(extent) => SharePart::Own(extent),
                        MappedExtent::Shared(slice) => SharePart::Shared(slice),
                    };
                    found.parts.push((at, part));
                    at + count
                }
                Some((start, _)) => start,
                None => stop,
            };
        }
        Ok(found)
    }
}

/// The whole blocks of a range that can be shared: first block of each file, count. The end of a
/// file counts as the end of a block when the copy ends there too.
fn whole_blocks(
    (from, source): (u64, &ObjectState),
    (to, target): (u64, &ObjectState),
    len: u64,
) -> Option<(u64, u64, u64)> {
    let len = len.min(source.core.size.saturating_sub(from));
    let is_end = from + len == source.core.size && to + len >= target.core.size;
    let count = if is_end {
        len.div_ceil(BLOCK)
    } else {
        len / BLOCK
    };
    let aligned = from.is_multiple_of(BLOCK) && to.is_multiple_of(BLOCK);
    (aligned && count > 0).then_some((from / BLOCK, to / BLOCK, count))
}

impl ObjectState {
    /// Returns what one step can do; `None` when nothing can be shared.
    fn look_ahead(
        &self,
        src: &CachedReader,
        (from_no, from): (ObjectNo, u64),
        (to_no, to, target): (ObjectNo, u64, &Self),
        len: u64,
    ) -> Result<Option<ShareLook>, StoreError> {
        let Some((first, to_first, count)) = whole_blocks((from, self), (to, target), len) else {
            return Ok(None);
        };
        let ObjectContent::Blocks(source) = &self.content else {
            return Ok(None);
        };
        let mut found = source.shareable_parts(src, from_no, first, first + count)?;
        let mut replaced = 0;
        if let ObjectContent::Blocks(blocks) = &target.content {
            let over =
                blocks.shareable_parts(src, to_no, to_first, to_first + (found.end - first))?;
            found.cut_at(first + (over.end - to_first));
            replaced = over
                .parts
                .iter()
                .filter(|(_, part)| matches!(part, SharePart::Shared(_)))
                .count() as u64;
        }
        Ok(Some(ShareLook {
            first,
            to_first,
            found,
            replaced,
        }))
    }
}

struct ShareLook {
    first: u64,
    to_first: u64,
    found: ShareableParts,
    /// References to shared extents that the range now has.
    replaced: u64,
}

impl ShareLook {
    fn block_count(&self) -> u64 {
        self.found.end - self.first
    }
}

impl Store {
    /// Looks what one step of sharing a range with another file would do. Only whole blocks at
    /// offsets that are multiples of [`BLOCK`] can be shared, and the end of a file where the copy
    /// ends too.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], or what reading the maps met.
    pub fn plan_share(
        &self,
        from: (ObjectNo, u64),
        to: (ObjectNo, u64),
        len: u64,
    ) -> Result<SharePlan, StoreError> {
        let target = self.objects().load_object(to.0)?;
        let look = self.objects().with_state(from.0, |source| {
            if from.0 == to.0 {
                return source.look_ahead(&self.objects().reader, from, (to.0, to.1, source), len);
            }
            // No reader waits for two objects: an operation that holds the other one may want this
            // one.
            match target.state.try_read() {
                Some(target) => {
                    source.look_ahead(&self.objects().reader, from, (to.0, to.1, &target), len)
                }
                None => Ok(None),
            }
        })?;
        let none = SharePlan {
            bytes: 0,
            uncommitted: 0,
            cost: Cost::share(STEP_BYTES),
        };
        let Some(look) = look else { return Ok(none) };
        let parts = || look.found.parts.iter().map(|(_, part)| part);
        let bytes = STEP_BYTES
            + look.replaced * REFERENCE_BYTES
            + parts().map(SharePart::share_cost).sum::<u64>();
        Ok(SharePlan {
            bytes: (look.block_count() * BLOCK).min(len),
            uncommitted: parts()
                .filter(|part| matches!(part, SharePart::Dirty(_)))
                .count() as u64
                * BLOCK,
            cost: Cost::share(bytes),
        })
    }

    /// Returns whether some content of a file is shared: giving much of that back takes room and
    /// time.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], or what reading the map met.
    pub fn has_shared(&self, no: ObjectNo) -> Result<bool, StoreError> {
        if self.objects().reader.shared.is_empty() {
            return Ok(false);
        }
        self.objects().with_state(no, |state| {
            let ObjectContent::Blocks(blocks) = &state.content else {
                return Ok(false);
            };
            let mut at = 0;
            while let Some((start, extent)) =
                blocks.extents.at_or_after(&self.objects().reader, no, at)?
            {
                if extent.as_own().is_none() {
                    return Ok(true);
                }
                at = start + extent.blocks();
            }
            Ok(false)
        })
    }
}

/// What the target gets, by block of the source.
#[derive(Default)]
struct SharedBlocks {
    dirty: Vec<(u64, DirtyBlock)>,
    slices: Vec<(u64, SharedSlice)>,
}

impl LockedObjects<'_> {
    /// Does a step of sharing: both files are locked, and the operation began with what
    /// [`Store::sharing`] said. The ranges must not overlap. Says how many bytes it covered, 0 when
    /// there is nothing (any more) that can be shared; the file grows if needed.
    ///
    /// # Errors
    /// [`StoreError::TooBig`] beyond [`FILE_MAX`], or what reading the maps met; nothing has
    /// changed then.
    pub fn share(
        &mut self,
        from: (ObjectNo, u64),
        to: (ObjectNo, u64),
        len: u64,
        sharing: &SharePlan,
    ) -> Result<u64, StoreError> {
        if to.1.checked_add(len).is_none_or(|end| end > FILE_MAX) {
            return Err(StoreError::TooBig("a file"));
        }
        let src = &self.objects().reader;
        let look = self.state_of(from.0).look_ahead(
            src,
            from,
            (to.0, to.1, self.state_of(to.0)),
            len.min(sharing.bytes),
        )?;
        let Some(mut look) = look else { return Ok(0) };
        let most = sharing
            .cost
            .bytes()
            .saturating_sub(STEP_BYTES + look.replaced * REFERENCE_BYTES);
        look.found.cut_to_cost(most);
        // Nothing has changed until everything that can fail has not.
        if !self.warm_sharing(from.0, to.0, &mut look)? {
            return Ok(0);
        }
        let (first, to_first, count) = (look.first, look.to_first, look.block_count());
        let done = (count * BLOCK)
            .min(self.state_of(from.0).core.size - from.1)
            .min(len);
        let shared = self.give_extents(from.0, look)?;
        self.take_extents(to.0, (to_first, count), first, shared)?;
        let stamp = self.stamp();
        let core = &mut self.mark_changed(to.0).core;
        core.data_stamp = stamp;
        core.size = core.size.max(to.1 + done);
        self.account_freed_pages(to.0);
        add_to_counter(&self.objects().reader.counters.bytes_shared, done);
        Ok(done)
    }

    /// Loads every page that a step changes; cuts the step where a shared extent takes no more
    /// references. `false` when nothing is left of it, or there are no ids.
    fn warm_sharing(
        &mut self,
        from: ObjectNo,
        to: ObjectNo,
        look: &mut ShareLook,
    ) -> Result<bool, StoreError> {
        let src = &self.objects().reader;
        let mut full = None;
        for (block, part) in &look.found.parts {
            if let SharePart::Shared(slice) = part
                && !src.shared.takes_more(src, slice.id)?
            {
                full = Some(*block);
                break;
            }
        }
        if let Some(block) = full {
            look.found.cut_at(block);
        }
        let own = |(_, part): &(u64, SharePart)| {
            if let SharePart::Own(extent) = part {
                Some(extent.addr)
            } else {
                None
            }
        };
        let addrs: Vec<_> = look.found.parts.iter().filter_map(own).collect();
        if !src.shared.warm_new(src, &addrs)? {
            return Ok(false);
        }
        let (first, to_first, count) = (look.first, look.to_first, look.block_count());
        if count == 0 {
            return Ok(false);
        }
        if !addrs.is_empty() {
            self.state_mut(from)
                .blocks_mut()
                .extents
                .warm(src, first, count)?;
        }
        self.state_mut(to)
            .blocks_mut()
            .extents
            .warm(src, to_first, count)?;
        Ok(true)
    }

    /// Moves the source's own extents to the table, and counts one more reference to each.
    fn give_extents(
        &mut self,
        from: ObjectNo,
        look: ShareLook,
    ) -> Result<SharedBlocks, StoreError> {
        let (objects, lsn) = (self.objects(), self.lsn());
        let src = &objects.reader;
        let (mut shared, mut freed, mut range, mut parts) =
            (SharedBlocks::default(), Vec::new(), None, 0);
        for (block, part) in look.found.parts {
            match part {
                SharePart::Dirty(bytes) => shared.dirty.push((block, bytes)),
                SharePart::Shared(slice) => {
                    src.shared.change_count(src, slice.id, 1, &mut freed)?;
                    shared
                        .slices
                        .push((block, SharedSlice { born: lsn, ..slice }));
                }
                SharePart::Own(extent) => {
                    objects.segments.lock().add_live(
                        extent.addr.byte_offset(),
                        extent.bytes(),
                        extent.born,
                    );
                    let (blocks, stored, born) =
                        (extent.blocks() as u16, extent.stored, extent.born);
                    let id = src.shared.add_extent(src, extent, 2)?;
                    let slice = SharedSlice {
                        id,
                        first: 0,
                        blocks,
                        stored,
                        born,
                    };
                    let extents = &mut self.state_mut(from).blocks_mut().extents;
                    extents.replace_range(
                        src,
                        from,
                        block,
                        MappedExtent::Shared(slice),
                        &mut freed,
                    )?;
                    shared
                        .slices
                        .push((block, SharedSlice { born: lsn, ..slice }));
                    parts += 1;
                    range = Some((
                        range.map_or(block, |(first, _)| first),
                        block + u64::from(blocks),
                    ));
                }
            }
        }
        objects.account_freed(&freed);
        if let Some((first, end)) = range {
            let old = self.state_of(from).core.lsn;
            let state = self.mark_changed(from);
            // Nothing that anybody sees of it has changed.
            state.core.lsn = old;
            state.blocks_mut().remapped.add(first, end - first, parts);
            self.account_freed_pages(from);
        }
        Ok(shared)
    }

    /// Lets the target's blocks be what the source gave.
    fn take_extents(
        &mut self,
        to: ObjectNo,
        (first, count): (u64, u64),
        source: u64,
        shared: SharedBlocks,
    ) -> Result<(), StoreError> {
        let objects = self.objects();
        let mut freed: Vec<FreedSpace> = Vec::new();
        let blocks = self.state_mut(to).blocks_mut();
        blocks
            .extents
            .remove_range(&objects.reader, to, first, count, &mut freed)?;
        let mut behind = blocks.dirty.split_off(&first);
        blocks.dirty.append(&mut behind.split_off(&(first + count)));
        blocks.holes.push((first, count));
        blocks.remapped.add(first, count, shared.slices.len());
        let place = |block: u64| block - source + first;
        blocks.dirty.extend(
            shared
                .dirty
                .into_iter()
                .map(|(block, bytes)| (place(block), bytes)),
        );
        let mut stored = 0;
        for (block, slice) in shared.slices {
            stored += u64::from(slice.stored);
            blocks.extents.replace_range(
                &objects.reader,
                to,
                place(block),
                MappedExtent::Shared(slice),
                &mut freed,
            )?;
        }
        let gone: u64 = freed.iter().map(|f| f.bytes() / SECTOR).sum();
        let core = &mut self.state_mut(to).core;
        core.sectors = (core.sectors + stored).saturating_sub(gone);
        objects.account_freed(&freed);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
