//! Setting room aside for blocks of a file before they are written.
//!
//! # Guarantees
//! 1. *Room*: a first write to a block for which room is set aside finds room, whatever else fills
//!    the store, also after it was opened again.
//! 2. *Honest*: the room is there once a step is done: free segments hold it, allocated by the
//!    host of a sparse store, beside what is set aside for the cleaner.
//! 3. *Given back* by a hole, a shorter file, or the end of the object.
//!
//! # How
//! 1. A caller [plans](Store::plan_preallocation) a step, begins an operation with its cost, and
//!    lets the [step](LockedObjects::preallocate) fill the holes that are there then.
//! 2. A write asks for [the room of its range](Store::room_at), begins with a cost that this room
//!    [covers](crate::Cost::covered_by_room), and looks again under the lock: the room may have
//!    gone to another writer.

use crate::error::StoreError;
use crate::object::preallocation::{StepBounds, block_range};
use crate::space::cost::Cost;
use crate::store::handle::Store;
use crate::store::locked::LockedObjects;
use teal_types::limits::FILE_MAX;
use teal_types::{BLOCK, ObjectNo};

/// A step of setting room aside, looked at beforehand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PreallocationPlan {
    /// The offset up to which all is there when the step is done.
    pub end: u64,
    /// The bytes for which it sets room aside; 0: nothing is to be done.
    pub bytes: u64,
    /// The cost with which to begin the operation.
    pub cost: Cost,
    bounds: StepBounds,
}

/// What a step of setting room aside has done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preallocated {
    /// The offset up to which all is there.
    pub end: u64,
    /// The ranges for which room was set aside, in bytes: from, to.
    pub ranges: Vec<(u64, u64)>,
}

impl Store {
    /// Allows files of this store to have unwritten extents: programs that do not know them do not
    /// open it from then on. Writes to the disk where that was not so before.
    ///
    /// # Errors
    /// As [`Store::commit`].
    pub fn permit_preallocation(&self) -> Result<(), StoreError> {
        self.log.permit_unwritten()
    }

    /// Looks what one step of setting room aside for a range of a file would do.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], or errors of reading the map.
    pub fn plan_preallocation(
        &self,
        no: ObjectNo,
        offset: u64,
        end: u64,
    ) -> Result<PreallocationPlan, StoreError> {
        let objects = self.objects();
        let blocks = block_range(offset, end.saturating_sub(offset));
        let found = objects.with_state(no, |state| {
            state.holes_in(&objects.reader, no, blocks, StepBounds::LARGEST)
        })?;
        let bounds = StepBounds {
            blocks: found.blocks,
            parts: found.holes.len(),
        };
        Ok(PreallocationPlan {
            end: (found.end * BLOCK).clamp(offset, end),
            bytes: found.blocks * BLOCK,
            cost: Cost::preallocate(bounds.blocks, bounds.parts as u64),
            bounds,
        })
    }

    /// Returns the number of blocks of a range of a file for which room is set aside; `None` if
    /// there is none for them nor for the blocks beside them. See
    /// [`Cost::covered_by_room`](crate::Cost::covered_by_room).
    ///
    /// # Errors
    /// [`StoreError::NotFound`], or errors of reading the map.
    pub fn room_at(&self, no: ObjectNo, offset: u64, len: u64) -> Result<Option<u64>, StoreError> {
        let objects = self.objects();
        // The common case: nothing is set aside in the whole store.
        if objects.ledger.unwritten_blocks() == 0 {
            return Ok(None);
        }
        objects.with_state(no, |state| state.room_at(&objects.reader, no, offset, len))
    }
}

impl LockedObjects<'_> {
    /// Does a step of setting room aside for a range of a locked file; its length stays. The
    /// operation began with what [`Store::plan_preallocation`] said of the same range.
    ///
    /// # Errors
    /// [`StoreError::TooBig`] beyond [`FILE_MAX`], or errors of reading the map.
    pub fn preallocate(
        &mut self,
        no: ObjectNo,
        offset: u64,
        end: u64,
        step: &PreallocationPlan,
    ) -> Result<Preallocated, StoreError> {
        if end > FILE_MAX {
            return Err(StoreError::TooBig("a file"));
        }
        let objects = self.objects();
        let born = self.lsn();
        let blocks = block_range(offset, end.saturating_sub(offset));
        // Looked at again under the lock: the file may have changed.
        let found =
            self.state_mut(no)
                .preallocate(&objects.reader, no, blocks, step.bounds, born)?;
        if found.blocks > 0 {
            let stamp = self.stamp();
            self.mark_changed(no).core.data_stamp = stamp;
            objects.ledger.set_blocks_aside(found.blocks);
            self.account_freed_pages(no);
        }
        let in_bytes = |(first, count): &(u64, u64)| (first * BLOCK, (first + count) * BLOCK);
        Ok(Preallocated {
            end: (found.end * BLOCK).clamp(offset, end),
            ranges: found.holes.iter().map(in_bytes).collect(),
        })
    }

    /// Gives up the room that is set aside for some ranges, as [`preallocate`](Self::preallocate)
    /// returned them. What has been written there stays.
    ///
    /// # Errors
    /// Errors of reading the map.
    pub fn release_room(&mut self, no: ObjectNo, ranges: &[(u64, u64)]) -> Result<(), StoreError> {
        let objects = self.objects();
        self.change_content(no, |state, freed| {
            for (from, to) in ranges {
                let mut released = Vec::new();
                let blocks = (from / BLOCK, (to - from) / BLOCK);
                let done = state.release_room(&objects.reader, no, blocks, &mut released);
                freed.append(&mut released);
                done?;
            }
            Ok(())
        })
    }

    /// Returns what [`Store::room_at`] does, of a locked file.
    ///
    /// # Errors
    /// Errors of reading the map.
    pub fn room_at(&self, no: ObjectNo, offset: u64, len: u64) -> Result<Option<u64>, StoreError> {
        let objects = self.objects();
        if objects.ledger.unwritten_blocks() == 0 {
            return Ok(None);
        }
        self.state_of(no).room_at(&objects.reader, no, offset, len)
    }
}
