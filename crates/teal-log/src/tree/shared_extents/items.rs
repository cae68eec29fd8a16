//! The items of the table: its tree, and what the open batch and the cleaner have done with them.

use crate::error::StoreError;
use crate::format::codec::FieldWriter;
use crate::format::extent::{Extent, SharedSlice};
use crate::format::shared::{SharedExtent, place_key, place_of};
use crate::tree::freed::FreedSpace;
use crate::tree::{PageSource, Tree};
use std::collections::{BTreeMap, BTreeSet};
use teal_types::{Lsn, ObjectNo, Sector};

/// The change of a shared extent by the open batch.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ItemChange {
    /// The log does not know of it yet.
    pub(super) is_new: bool,
    pub(super) is_gone: bool,
}

/// The ids that records behind lost ones speak of; for salvage only.
///
/// A lost record may have ended the sharing of an extent, and given its id to another. A reference
/// to that id from before the loss must not show the other content, nor one from behind it the old.
#[derive(Debug, Default)]
pub(super) struct IdsBehindLoss {
    /// No operation in front of the last loss has this number or a higher one.
    pub(super) begin: Option<Lsn>,
    /// The ids that were set behind a loss.
    pub(super) set: BTreeSet<u64>,
    /// The ids that had other content before a loss.
    pub(super) reused: BTreeMap<u64, ReusedId>,
}

/// An id that was given to other content.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReusedId {
    /// References that are older are to the earlier content, but for those of the file from which
    /// the later content was shared, which are as old as that.
    pub(super) begin: Lsn,
    /// Both contents are equally old: references to them cannot be told apart.
    pub(super) is_ambiguous: bool,
}

impl IdsBehindLoss {
    /// Notes that an id is set to an extent, in place of the one it had.
    pub(super) fn note_set(&mut self, id: u64, old: Option<&Extent>, new: &Extent) {
        let Some(begin) = self.begin else { return };
        self.set.insert(id);
        // The cleaner moves an extent as it is.
        if let Some(old) = old.filter(|old| old.crcs != new.crcs) {
            let is_ambiguous = old.born == new.born;
            self.reused.insert(
                id,
                ReusedId {
                    begin,
                    is_ambiguous,
                },
            );
        }
    }

    /// Returns whether a reference is to what the id stands for now.
    pub(super) fn is_current(&self, slice: &SharedSlice, extent: &Extent) -> bool {
        self.reused.get(&slice.id).is_none_or(|reused| {
            !reused.is_ambiguous && (slice.born == extent.born || slice.born >= reused.begin)
        })
    }
}

#[derive(Debug)]
pub(crate) struct SharedExtentItems {
    pub(crate) tree: Tree,
    /// The next id, once that is known.
    pub(super) next: Option<u64>,
    pub(super) changed: BTreeMap<u64, ItemChange>,
    /// Content on its way to another place, by id.
    pub(super) moving: BTreeMap<u64, Vec<u8>>,
    /// Keys of places that the tree does not have yet, with their ids.
    pub(super) moved: BTreeMap<u64, u64>,
    pub(super) behind_loss: IdsBehindLoss,
}

pub(super) fn table_damaged(object: Option<ObjectNo>) -> StoreError {
    StoreError::Corrupt {
        what: "the shared-extent table",
        at: 0,
        object,
    }
}

pub(super) fn id_value(id: u64) -> Vec<u8> {
    let mut value = Vec::with_capacity(8);
    value.put_u64(id);
    value
}

impl SharedExtentItems {
    pub(super) fn get(
        &self,
        src: &dyn PageSource,
        id: u64,
    ) -> Result<Option<SharedExtent>, StoreError> {
        let Some(value) = self.tree.get(src, id)? else {
            return Ok(None);
        };
        SharedExtent::decode(&value)
            .map(Some)
            .ok_or_else(|| table_damaged(None))
    }

    pub(super) fn get_known(
        &self,
        src: &dyn PageSource,
        id: u64,
    ) -> Result<SharedExtent, StoreError> {
        self.get(src, id)?.ok_or_else(|| table_damaged(None))
    }

    pub(super) fn next_id(&mut self, src: &dyn PageSource) -> Result<u64, StoreError> {
        if let Some(next) = self.next {
            return Ok(next);
        }
        // The highest identifier in the tree, looked up once.
        let next = self
            .tree
            .at_or_before(src, (1 << 63) - 1)?
            .map_or(0, |(id, _)| id + 1);
        self.next = Some(next);
        Ok(next)
    }

    /// Sets an item and its place; returns the extent that was there.
    pub(super) fn set_item(
        &mut self,
        src: &dyn PageSource,
        id: u64,
        shared: &SharedExtent,
    ) -> Result<Option<Extent>, StoreError> {
        let old = self.get(src, id)?.map(|old| old.extent);
        self.tree.insert(src, id, &shared.encode())?;
        // The extent moved: its place moves as well.
        if old.as_ref().map(|old| old.addr) != Some(shared.extent.addr) {
            if let Some(old) = &old {
                self.forget_place(src, old.addr)?;
            }
            self.tree
                .insert(src, place_key(shared.extent.addr), &id_value(id))?;
        }
        Ok(old)
    }

    pub(super) fn remove_item(
        &mut self,
        src: &dyn PageSource,
        id: u64,
        extent: &Extent,
    ) -> Result<(), StoreError> {
        self.tree.remove(src, id)?;
        self.forget_place(src, extent.addr)
    }

    pub(super) fn forget_place(
        &mut self,
        src: &dyn PageSource,
        addr: Sector,
    ) -> Result<(), StoreError> {
        let key = place_key(addr);
        // A place that is not in the tree yet is only forgotten.
        if self.moved.remove(&key).is_none() {
            self.tree.remove(src, key)?;
        }
        Ok(())
    }

    /// Returns the places that the tree does not have yet, with their ids.
    pub(crate) fn moved_places(&self) -> impl Iterator<Item = (Sector, u64)> + '_ {
        self.moved.iter().map(|(key, id)| (place_of(*key), *id))
    }

    pub(super) fn pages_freed(&mut self, freed: &mut Vec<FreedSpace>) {
        freed.extend(self.tree.take_freed_space());
    }
}
