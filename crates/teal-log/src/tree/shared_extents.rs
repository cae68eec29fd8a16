//! The table of shared extents: where each lies, how many extents of files refer to it, and which
//! of them lie in a stretch of the disk.
//!
//! # Invariants
//! 1. The count of a shared extent is the number of extents of files that refer to a part of it: an
//!    operation that maps, splits or unmaps such a part changes the count too, so both are in one
//!    batch.
//! 2. A shared extent without references is gone, and its bytes are dead. Until then all of it
//!    lives.
//! 3. Each shared extent has its place in the table, and each place its shared extent.
//! 4. Once [`warm`](SharedTable::warm)ed, a count changes without I/O and without failing.
//!
//! # How
//! 1. The newest word is the tree in memory; what the open batch changed of it is logged as states
//!    when the batch is sealed.
//! 2. The cleaner reads a shared extent into `moving`; sealing writes it at the head, in one run.
//!    Nothing of the files that refer to it changes. Its new place cannot be known, and so not be
//!    warmed, beforehand: it waits in `moved` for the next checkpoint, before which a batch of its
//!    own takes what is still moving.

mod items;

use self::items::{IdsBehindLoss, ItemChange, SharedExtentItems, id_value, table_damaged};
use crate::error::StoreError;
use crate::format::extent::{Extent, MappedExtent, SHARED_IDS, SharedSlice};
use crate::format::page::{PagePtr, STORE_WIDE, TreeKind};
use crate::format::shared::{LAST_ID, SharedExtent, place_key};
use crate::seeded::{Bug, bug};
use crate::tree::freed::FreedSpace;
use crate::tree::page_bounds::PAGE;
use crate::tree::{PageSource, Tree};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed};
use teal_types::{Lsn, ObjectNo, Sector};

/// A shared extent with this count takes no more references. Every reference may still fall into 32
/// pieces, so that a count always fits its four bytes.
pub(crate) const SHARES_MAX: u32 = 1 << 26;

/// The bytes that an item takes in a batch: its delta, with as many checksums as it has.
const ITEM_TAKES: u64 = 384;
/// A shared extent is moved in one piece, and the end of a run in which it does not fit is left
/// empty: at worst half of each segment.
const MOVE_FACTOR: u64 = 2;

/// The entry of a batch about a shared extent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SharedChange {
    Set(SharedExtent),
    Count(u32),
    Gone,
}

/// The lock guards the table; reads of its pages are done under it.
#[derive(Debug)]
pub(crate) struct SharedTable {
    table: RwLock<SharedExtentItems>,
    is_used: AtomicBool,
    mem_pages: AtomicUsize,
    /// The most bytes that the open batch writes of the table, and of moving extents; pages not
    /// counted.
    takes: AtomicU64,
    /// The second of them.
    moving_takes: AtomicU64,
    /// Bytes these and the pages have come to take since the budget last counted them.
    growth: AtomicI64,
}

impl SharedTable {
    pub(crate) fn new(root: Option<PagePtr>) -> Self {
        Self {
            table: RwLock::new(SharedExtentItems {
                tree: Tree::with_root(TreeKind::SharedExtents, STORE_WIDE, root),
                next: None,
                changed: BTreeMap::new(),
                moving: BTreeMap::new(),
                moved: BTreeMap::new(),
                behind_loss: IdsBehindLoss::default(),
            }),
            is_used: AtomicBool::new(root.is_some()),
            mem_pages: AtomicUsize::new(0),
            takes: AtomicU64::new(0),
            moving_takes: AtomicU64::new(0),
            growth: AtomicI64::new(0),
        }
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, SharedExtentItems> {
        self.table.read()
    }

    /// Locks the table for folding.
    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, SharedExtentItems> {
        self.table.write()
    }

    /// Returns whether nothing is shared: no extent of any file needs a look at the table.
    pub(crate) fn is_empty(&self) -> bool {
        !self.is_used.load(Relaxed)
    }

    /// Returns whether the open batch has something to say of the table.
    pub(crate) fn is_changed(&self) -> bool {
        let table = self.table.read();
        !table.changed.is_empty() || !table.moving.is_empty()
    }

    pub(crate) fn is_moving(&self) -> bool {
        !self.table.read().moving.is_empty()
    }

    /// Returns about the number of pages that only memory holds, and those that places on their way
    /// into the tree will change.
    pub(crate) fn mem_pages(&self) -> usize {
        self.mem_pages.load(Relaxed)
    }

    /// Returns what the next checkpoint writes of the table, and of what is moving, at most.
    pub(crate) fn bytes_taken(&self) -> u64 {
        self.takes.load(Relaxed) + self.mem_pages() as u64 * PAGE
    }

    /// Returns what is moving takes of it.
    pub(crate) fn moving_bytes(&self) -> u64 {
        self.moving_takes.load(Relaxed)
    }

    /// Returns the growth of that sum since the last call.
    pub(crate) fn take_growth(&self) -> i64 {
        self.growth.swap(0, Relaxed)
    }

    /// Brings the sums outside of the lock up to date, after a change.
    pub(crate) fn publish_totals(&self, table: &SharedExtentItems) {
        // Places on their way into the tree change about a quarter as many pages.
        let waiting = if table.moved.is_empty() {
            0
        } else {
            table.moved.len() / 4 + 4
        };
        let before = self.bytes_taken();
        self.mem_pages
            .store(table.tree.mem_pages() + waiting, Relaxed);
        // Moved content is written, and its old place stays live until then.
        let mut moving = 0;
        for content in table.moving.values() {
            moving += MOVE_FACTOR * content.len() as u64 + ITEM_TAKES;
        }
        self.moving_takes.store(moving, Relaxed);
        self.takes
            .store(table.changed.len() as u64 * ITEM_TAKES + moving, Relaxed);
        self.growth
            .fetch_add(self.bytes_taken() as i64 - before as i64, Relaxed);
        self.is_used.store(!table.tree.is_empty(), Relaxed);
    }

    /// Returns what a part of a shared extent is on the disk.
    pub(crate) fn resolve_slice(
        &self,
        src: &dyn PageSource,
        no: ObjectNo,
        slice: &SharedSlice,
    ) -> Result<Extent, StoreError> {
        let table = self.table.read();
        let shared = table.get(src, slice.id)?;
        let current = shared.filter(|shared| table.behind_loss.is_current(slice, &shared.extent));
        drop(table);
        let Some(shared) = current else {
            return Err(table_damaged(Some(no)));
        };
        let first = u64::from(slice.first);
        let blocks = u64::from(slice.blocks);
        // A part beyond the extent is damage of the file's map.
        if first + blocks > shared.extent.blocks() {
            return Err(table_damaged(Some(no)));
        }
        let part = shared.extent.slice(first, blocks);
        // The last block is stored in part only where the extent ends.
        if part.stored == slice.stored {
            Ok(Extent {
                born: slice.born,
                ..part
            })
        } else {
            Err(table_damaged(Some(no)))
        }
    }

    /// Returns what a part of a file's map is on the disk.
    pub(crate) fn extent_of(
        &self,
        src: &dyn PageSource,
        no: ObjectNo,
        part: MappedExtent,
    ) -> Result<Extent, StoreError> {
        match part {
            MappedExtent::Own(extent) => Ok(extent),
            MappedExtent::Shared(slice) => self.resolve_slice(src, no, &slice),
            MappedExtent::Unwritten(_) => unreachable!("content is not asked for where none is"),
        }
    }

    /// Returns whether one more may refer to a shared extent; warms it.
    pub(crate) fn takes_more(&self, src: &dyn PageSource, id: u64) -> Result<bool, StoreError> {
        self.warm(src, id)?;
        Ok(self.table.read().get_known(src, id)?.count < SHARES_MAX)
    }

    /// Makes sure that changing this count, to nothing too, does no I/O.
    pub(crate) fn warm(&self, src: &dyn PageSource, id: u64) -> Result<(), StoreError> {
        let mut table = self.table.write();
        // Both indexes of the extent will change.
        let place = place_key(table.get_known(src, id)?.extent.addr);
        table.tree.warm(src, id, id)?;
        // A place that is not in the tree yet needs no page.
        if !table.moved.contains_key(&place) {
            table.tree.warm(src, place, place)?;
        }
        self.publish_totals(&table);
        Ok(())
    }

    /// Makes sure that so many extents, one of which begins at each of these addresses, can be
    /// added without I/O. `false` when there are no ids for them.
    pub(crate) fn warm_new(
        &self,
        src: &dyn PageSource,
        addrs: &[Sector],
    ) -> Result<bool, StoreError> {
        let mut table = self.table.write();
        let next = table.next_id(src)?;
        let last = next.saturating_add(addrs.len() as u64);
        // The identifiers are used up: content is copied instead.
        if last > LAST_ID {
            return Ok(false);
        }
        table.tree.warm(src, next, last)?;
        for addr in addrs {
            let key = place_key(*addr);
            table.tree.warm(src, key, key)?;
        }
        self.publish_totals(&table);
        Ok(true)
    }

    /// Takes in an extent to which this many refer. After [`warm_new`](Self::warm_new) it does no
    /// I/O. The caller counts it as live.
    pub(crate) fn add_extent(
        &self,
        src: &dyn PageSource,
        extent: Extent,
        count: u32,
    ) -> Result<u64, StoreError> {
        let mut table = self.table.write();
        let id = table.next_id(src)?;
        assert!(id < SHARED_IDS, "warm_new found ids");
        table.set_item(src, id, &SharedExtent { count, extent })?;
        table.next = Some(id + 1);
        // The batch logs the whole entry.
        table.changed.insert(
            id,
            ItemChange {
                is_new: true,
                is_gone: false,
            },
        );
        self.publish_totals(&table);
        Ok(id)
    }

    /// Changes a count; at nothing the extent is gone. After [`warm`](Self::warm) it does no I/O.
    ///
    /// # Errors
    /// Only for what was not warmed, or in a table that contradicts the files.
    pub(crate) fn change_count(
        &self,
        src: &dyn PageSource,
        id: u64,
        more: i32,
        freed: &mut Vec<FreedSpace>,
    ) -> Result<(), StoreError> {
        let mut table = self.table.write();
        let mut shared = table.get_known(src, id)?;
        // A count below zero, or too large: the file's map contradicts the table.
        let Some(count) = shared.count.checked_add_signed(more) else {
            return Err(table_damaged(None));
        };
        // References are left.
        if count > u32::from(more < 0 && bug(Bug::SharedFreedEarly)) {
            shared.count = count;
            table.tree.insert(src, id, &shared.encode())?;
            table.changed.entry(id).or_default();
        // The last reference is gone, and the content with it.
        } else {
            table.remove_item(src, id, &shared.extent)?;
            table.moving.remove(&id);
            freed.push(FreedSpace::of_extent(&shared.extent.into()));
            let change = table.changed.entry(id).or_default();
            change.is_gone = true;
            // Made and removed within the batch: the log need not know.
            if change.is_new {
                table.changed.remove(&id);
            }
        }
        table.pages_freed(freed);
        self.publish_totals(&table);
        Ok(())
    }

    /// Does what a batch said, again. Returns what lives from now on; `None` when the batch
    /// contradicts the table.
    pub(crate) fn redo_change(
        &self,
        src: &dyn PageSource,
        id: u64,
        what: &SharedChange,
        freed: &mut Vec<FreedSpace>,
    ) -> Result<Option<Option<Extent>>, StoreError> {
        let mut table = self.table.write();
        let mut lives = None;
        match what {
            SharedChange::Set(shared) => {
                // A new place replaces the old one.
                let old = table.set_item(src, id, shared)?;
                table.behind_loss.note_set(id, old.as_ref(), &shared.extent);
                freed.extend(old.map(|old| FreedSpace::of_extent(&old.into())));
                lives = Some(shared.extent.clone());
            }
            SharedChange::Count(count) => {
                // The batch contradicts the table.
                let Some(shared) = table.get(src, id)? else {
                    return Ok(None);
                };
                table.tree.insert(
                    src,
                    id,
                    &SharedExtent {
                        count: *count,
                        ..shared
                    }
                    .encode(),
                )?;
            }
            SharedChange::Gone => {
                let Some(shared) = table.get(src, id)? else {
                    return Ok(None);
                };
                table.remove_item(src, id, &shared.extent)?;
                freed.push(FreedSpace::of_extent(&shared.extent.into()));
            }
        }
        table.pages_freed(freed);
        self.publish_totals(&table);
        Ok(Some(lives))
    }

    /// Notes that records of the log are lost behind all operations in front of `begin`.
    pub(crate) fn pass_loss(&self, begin: Lsn) {
        self.table.write().behind_loss.begin = Some(begin);
    }

    /// Returns whether the id was set behind lost records.
    pub(crate) fn is_set_behind_loss(&self, id: u64) -> bool {
        self.table.read().behind_loss.set.contains(&id)
    }

    /// Returns the shared extents that lie in a stretch of the disk.
    pub(crate) fn extents_within(
        &self,
        src: &dyn PageSource,
        from: Sector,
        to: Sector,
    ) -> Result<Vec<(u64, Extent)>, StoreError> {
        let table = self.table.read();
        // Places and extents share one tree: this range has places only.
        let low = place_key(from);
        let high = place_key(to) - 1;
        // Places that are not in the tree yet.
        let mut ids: Vec<u64> = table.moved.range(low..=high).map(|(_, id)| *id).collect();
        table.tree.range(src, low, high, &mut |_, value| {
            ids.push(u64::from_le_bytes(
                value.try_into().map_err(|_| table_damaged(None))?,
            ));
            Ok(ControlFlow::Continue(()))
        })?;
        let mut extents = Vec::with_capacity(ids.len());
        for id in ids {
            extents.push((id, table.get_known(src, id)?.extent));
        }
        Ok(extents)
    }

    /// Notes that an extent is to be written elsewhere with the next batch, if it still is the one
    /// that was read.
    pub(crate) fn set_moving(
        &self,
        src: &dyn PageSource,
        id: u64,
        at: Sector,
        content: Vec<u8>,
    ) -> Result<bool, StoreError> {
        self.warm(src, id)?;
        let mut table = self.table.write();
        // The extent may have been moved or freed since it was read.
        let is_here = table
            .get(src, id)?
            .is_some_and(|shared| shared.extent.addr == at);
        let is_new = is_here && table.moving.insert(id, content).is_none();
        self.publish_totals(&table);
        Ok(is_new)
    }

    /// Returns what is to be written elsewhere, with its table items as they stand.
    pub(crate) fn take_moving(
        &self,
        src: &dyn PageSource,
    ) -> Result<Vec<(u64, SharedExtent, Vec<u8>)>, StoreError> {
        let mut table = self.table.write();
        // From here on, the batch has the new places.
        let moving = std::mem::take(&mut table.moving);
        self.publish_totals(&table);
        let mut taken = Vec::with_capacity(moving.len());
        for (id, content) in moving {
            taken.push((id, table.get_known(src, id)?, content));
        }
        Ok(taken)
    }

    /// Notes that a batch wrote an extent elsewhere, and logged so.
    pub(crate) fn set_moved(
        &self,
        src: &dyn PageSource,
        id: u64,
        shared: &SharedExtent,
        freed: &mut Vec<FreedSpace>,
    ) -> Result<(), StoreError> {
        let mut table = self.table.write();
        let old = table.get_known(src, id)?.extent;
        table.tree.insert(src, id, &shared.encode())?;
        table.forget_place(src, old.addr)?;
        // The new place goes into the tree with the next fold: sealing does no I/O.
        table.moved.insert(place_key(shared.extent.addr), id);
        // The log gets the new place with the batch, counts included.
        table.changed.remove(&id);
        freed.push(FreedSpace::of_extent(&old.into()));
        table.pages_freed(freed);
        self.publish_totals(&table);
        Ok(())
    }

    /// Returns what the open batch says of the table, by id; it is a new batch then.
    pub(crate) fn take_changed(
        &self,
        src: &dyn PageSource,
    ) -> Result<Vec<(u64, SharedChange)>, StoreError> {
        let mut table = self.table.write();
        let changed = std::mem::take(&mut table.changed);
        self.publish_totals(&table);
        let mut taken = Vec::with_capacity(changed.len());
        for (id, change) in changed {
            let what = if change.is_gone {
                // Removed entries need no content.
                SharedChange::Gone
            } else if change.is_new {
                SharedChange::Set(table.get_known(src, id)?)
            } else {
                SharedChange::Count(table.get_known(src, id)?.count)
            };
            taken.push((id, what));
        }
        Ok(taken)
    }

    /// Enters the places of what was moved into the tree.
    pub(crate) fn absorb(&self, src: &dyn PageSource) -> Result<(), StoreError> {
        let mut table = self.table.write();
        while let Some((key, id)) = table.moved.first_key_value().map(|(key, id)| (*key, *id)) {
            // Inserted first: an error leaves the place where it is known.
            table.tree.insert(src, key, &id_value(id))?;
            table.moved.remove(&key);
        }
        self.publish_totals(&table);
        Ok(())
    }
}
