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

mod plan;

pub use self::plan::SharePlan;

use self::plan::{REFERENCE_BYTES, STEP_BYTES, ShareLook, SharePart};
use crate::counters::add_to_counter;
use crate::error::StoreError;
use crate::format::extent::{Extent, MappedExtent, SharedSlice};
use crate::object::state::DirtyBlock;
use crate::store::locked::LockedObjects;
use crate::tree::freed::FreedSpace;
use crate::tree::reader::CachedReader;
use teal_types::limits::FILE_MAX;
use teal_types::{BLOCK, ObjectNo, SECTOR};

/// Most extents of either file that one step looks at: 128 MiB of the source where it lies in one
/// piece.
pub(crate) const PIECES_MAX: usize = 512;

/// The extents that the target gets, by block of the source.
#[derive(Default)]
struct SharedBlocks {
    dirty: Vec<(u64, DirtyBlock)>,
    slices: Vec<(u64, SharedSlice)>,
}

impl LockedObjects<'_> {
    /// Does a step of sharing: both files are locked, and the operation began with what
    /// [`Store::plan_share`](crate::store::handle::Store::plan_share) said. The ranges must not
    /// overlap. Returns how many bytes it covered: 0 if nothing is left that can be shared. The
    /// file grows if needed.
    ///
    /// # Errors
    /// [`StoreError::TooBig`] beyond [`FILE_MAX`], or errors of reading the maps; nothing has
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
        let Some(mut look) = self.look_again(from, to, len, sharing)? else {
            return Ok(0);
        };
        // Nothing has changed until everything that can fail has not.
        if !self.warm_sharing(from.0, to.0, &mut look)? {
            return Ok(0);
        }
        debug_assert!(look.block_count() > 0, "an empty step does not end");
        let first = look.first;
        let to_first = look.to_first;
        let count = look.block_count();
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

    /// Looks at a step again under the locks, as both files may have changed, and cuts it to what
    /// was promised.
    fn look_again(
        &self,
        from: (ObjectNo, u64),
        to: (ObjectNo, u64),
        len: u64,
        sharing: &SharePlan,
    ) -> Result<Option<ShareLook>, StoreError> {
        let src = &self.objects().reader;
        let target = (to.0, to.1, self.state_of(to.0));
        let source = self.state_of(from.0);
        let Some(mut look) = source.look_ahead(src, from, target, len.min(sharing.bytes))? else {
            return Ok(None);
        };
        let fixed = STEP_BYTES + look.replaced * REFERENCE_BYTES;
        let most = sharing.cost.bytes().saturating_sub(fixed);
        look.found.cut_to_cost(most);
        Ok(Some(look))
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
        if let Some(block) = first_full(src, &look.found.parts)? {
            look.found.cut_at(block);
        }
        let mut addrs = Vec::new();
        for (_, part) in &look.found.parts {
            if let SharePart::Own(extent) = part {
                addrs.push(extent.addr);
            }
        }
        // Extents that become shared get an entry each.
        if !src.shared.warm_new(src, &addrs)? {
            return Ok(false);
        }
        let first = look.first;
        let to_first = look.to_first;
        let count = look.block_count();
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
            // Both maps change without I/O from here on.
            .warm(src, to_first, count)?;
        Ok(true)
    }

    /// Moves the source's own extents to the table, and counts one more reference to each.
    fn give_extents(
        &mut self,
        from: ObjectNo,
        look: ShareLook,
    ) -> Result<SharedBlocks, StoreError> {
        let objects = self.objects();
        let lsn = self.lsn();
        let src = &objects.reader;
        let mut shared = SharedBlocks::default();
        let mut freed = Vec::new();
        // The blocks of the source whose map changes, and the number of parts there.
        let mut remapped: Option<(u64, u64)> = None;
        let mut parts = 0;
        for (block, part) in look.found.parts {
            let slice = match part {
                SharePart::Dirty(bytes) => {
                    shared.dirty.push((block, bytes));
                    continue;
                }
                SharePart::Shared(slice) => {
                    // One more reference to what is shared already.
                    src.shared.change_count(src, slice.id, 1, &mut freed)?;
                    slice
                }
                SharePart::Own(extent) => {
                    let slice = self.share_own(from, block, extent, &mut freed)?;
                    let first = remapped.map_or(block, |(first, _)| first);
                    remapped = Some((first, block + u64::from(slice.blocks)));
                    parts += 1;
                    slice
                }
            };
            let given = SharedSlice { born: lsn, ..slice };
            shared.slices.push((block, given));
        }
        objects.account_freed(&freed);
        if let Some((first, end)) = remapped {
            self.note_remapped(from, (first, end - first), parts);
        }
        Ok(shared)
    }

    /// Notes that so many parts of a file's map changed in a range of blocks, though not its
    /// content.
    fn note_remapped(&mut self, no: ObjectNo, (first, count): (u64, u64), parts: usize) {
        let old = self.state_of(no).core.lsn;
        let state = self.mark_changed(no);
        // No reader can see a change of the object.
        state.core.lsn = old;
        state.blocks_mut().remapped.add(first, count, parts);
        self.account_freed_pages(no);
    }

    /// Moves one of a file's own extents to the table, where its content lives from now on, with
    /// one reference from each of both files. Returns the file's part of it.
    fn share_own(
        &mut self,
        from: ObjectNo,
        block: u64,
        extent: Extent,
        freed: &mut Vec<FreedSpace>,
    ) -> Result<SharedSlice, StoreError> {
        let objects = self.objects();
        let src = &objects.reader;
        let byte = extent.addr.byte_offset();
        let bytes = extent.bytes();
        objects.segments.lock().add_live(byte, bytes, extent.born);
        let blocks = extent.blocks() as u16;
        let stored = extent.stored;
        let born = extent.born;
        let id = src.shared.add_extent(src, extent, 2)?;
        let slice = SharedSlice {
            id,
            first: 0,
            blocks,
            stored,
            born,
        };
        let extents = &mut self.state_mut(from).blocks_mut().extents;
        extents.replace_range(src, from, block, MappedExtent::Shared(slice), freed)?;
        Ok(slice)
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
        // The target's old content goes first.
        blocks
            .extents
            .remove_range(&objects.reader, to, first, count, &mut freed)?;
        // Dirty blocks in the range were never written.
        let mut behind = blocks.dirty.split_off(&first);
        blocks.dirty.append(&mut behind.split_off(&(first + count)));
        // The log must know of the hole, even where nothing was stored.
        blocks.holes.push((first, count));
        blocks.remapped.add(first, count, shared.slices.len());
        for (block, bytes) in shared.dirty {
            blocks.dirty.insert(block - source + first, bytes);
        }
        // Sectors are counted as files show them (`st_blocks`).
        let mut stored = 0;
        for (block, slice) in shared.slices {
            stored += u64::from(slice.stored);
            let at = block - source + first;
            blocks.extents.replace_range(
                &objects.reader,
                to,
                at,
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

/// Returns the block of the first part whose counter is full: it cannot take another reference.
fn first_full(src: &CachedReader, parts: &[(u64, SharePart)]) -> Result<Option<u64>, StoreError> {
    for (block, part) in parts {
        if let SharePart::Shared(slice) = part
            && !src.shared.takes_more(src, slice.id)?
        {
            return Ok(Some(*block));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests;
