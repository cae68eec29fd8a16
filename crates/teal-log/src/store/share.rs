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
use crate::format::extent::{MappedExtent, SharedSlice};
use crate::object::state::DirtyBlock;
use crate::store::locked::LockedObjects;
use crate::tree::freed::FreedSpace;
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
        let src = &self.objects().reader;
        // Looked at again under the locks: both files may have changed.
        let look = self.state_of(from.0).look_ahead(
            src,
            from,
            (to.0, to.1, self.state_of(to.0)),
            len.min(sharing.bytes),
        )?;
        let Some(mut look) = look else { return Ok(0) };
        // Never more than was promised.
        let most = sharing
            .cost
            .bytes()
            .saturating_sub(STEP_BYTES + look.replaced * REFERENCE_BYTES);
        look.found.cut_to_cost(most);
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
            // A counter that is full cannot take another reference.
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
        // Extents that become shared get an entry each.
        let addrs: Vec<_> = look.found.parts.iter().filter_map(own).collect();
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
        let (mut shared, mut freed, mut range, mut parts) =
            (SharedBlocks::default(), Vec::new(), None, 0);
        for (block, part) in look.found.parts {
            match part {
                SharePart::Dirty(bytes) => shared.dirty.push((block, bytes)),
                SharePart::Shared(slice) => {
                    // One more reference to what is shared already.
                    src.shared.change_count(src, slice.id, 1, &mut freed)?;
                    shared
                        .slices
                        .push((block, SharedSlice { born: lsn, ..slice }));
                }
                SharePart::Own(extent) => {
                    // The content lives in the table from now on, and no longer in the file's map.
                    objects.segments.lock().add_live(
                        extent.addr.byte_offset(),
                        extent.bytes(),
                        extent.born,
                    );
                    let (blocks, stored, born) =
                        (extent.blocks() as u16, extent.stored, extent.born);
                    // One reference from each file.
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
        // The source's map changed, though not its content.
        if let Some((first, end)) = range {
            let old = self.state_of(from).core.lsn;
            let state = self.mark_changed(from);
            // No reader can see a change of the object.
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
        let place = |block: u64| block - source + first;
        blocks.dirty.extend(
            shared
                .dirty
                .into_iter()
                .map(|(block, bytes)| (place(block), bytes)),
        );
        // Sectors are counted as files show them (`st_blocks`).
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
