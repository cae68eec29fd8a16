//! Deferred changes: opening reads changes of objects in the log, and makes them only when the
//! objects are needed.
//!
//! # Deferred, and at once
//! 1. Everything an object's own record holds or leads to waits: attributes, names, extents,
//!    entries, pages, its place in the inode map, and the space that its old state gives back. The
//!    facts of the log itself are known at once: its end, the numbers given so far, the segments it
//!    entered, the bytes that live in it. So are the small trees that are there for all objects:
//!    the orphan set, the notes and the table of shared extents.
//! 2. Sums that only the old states would tell are in the header of the last record: the number of
//!    objects, the live bytes, and the size of a checkpoint of all that is newer than its record.
//!
//! # Invariants
//! 1. *Whole*: no caller sees an object before all changes that wait for it were made. An object
//!    with deferred changes is in no other table: not among the objects in memory, nor the changes
//!    of the inode map, nor what a checkpoint is to fold.
//! 2. *Once*: changes are made in memory, and counted only when the last of them succeeded; then
//!    they wait no more. A change that fails has no effect, and the next caller meets it again.
//! 3. *Safe*: until then, space that they give back counts as live in its segment, which is
//!    therefore not reused. Space is answered for by the sums of 1.2, and everything is brought up
//!    to date before an operation is refused for want of it.
//! 4. *Bounded*: they are the bodies of the log behind the checkpoint, and the next checkpoint
//!    starts by making them all. Nothing else does: a store that is not used reads nothing.
//! 5. *Kept*: a change that cannot be made because the old state cannot be read is repeated in
//!    every checkpoint, word for word, until it can. So one bad sector prevents nothing but the use
//!    of that object; `check` names it, and no data is lost but the disk's own loss.
//! 6. *Repeatable*: nothing on the disk tells whether they were made. A crash meanwhile leaves the
//!    same checkpoint and a longer log.
//! 7. *Either in the checkpoint or kept by it*: a change that waits when a checkpoint begins waits
//!    until it has ended ([`RedoPause`]), even if the disk has become readable meanwhile. Half of
//!    the structures it changes may be folded already.
//!
//! # When objects are brought up to date
//! - One object: when it is looked up
//!   ([`ObjectStore::object`](crate::object::objects::ObjectStore::object)), or another is made
//!   with its number.
//! - All, in the order in which they lie: checkpoints, rounds of cleaning, `check`, `dump`, and
//!   operations that find no room.
//!
//! The lock of the list is taken under the locks of objects and held while an object is read; under
//! it no other object is locked. The segment table is locked under it, but during a [`RedoPause`]:
//! then a checkpoint may lock the list under the segment table.

use crate::error::StoreError;
use crate::format::delta::{KEPT, PREFIX};
use crate::tree::page_bounds::{LeafSpread, PAGE};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use teal_types::{Lsn, ObjectNo};

/// One change of an object, in the body of its record.
#[derive(Debug, Clone)]
pub(crate) struct DeferredDelta {
    pub(crate) body: Arc<[u8]>,
    /// Byte address of the value of the delta on the device, in the record that said it first.
    pub(crate) byte: u64,
    /// The offset in the body at which that value begins.
    pub(crate) at: u32,
    pub(crate) lsn: Lsn,
    /// How often records are missing between the checkpoint and this change; only where a store is
    /// salvaged.
    pub(crate) losses: u32,
}

impl DeferredDelta {
    /// Returns the delta, its prefix included.
    pub(crate) fn delta_bytes(&self) -> Option<&[u8]> {
        let from = (self.at as usize).checked_sub(PREFIX)?;
        let len = u32::from_le_bytes(self.body.get(from + 4..from + 8)?.try_into().ok()?);
        self.body.get(from..self.at as usize + len as usize)
    }

    /// Returns what a checkpoint that keeps it and the work that is left take, at most.
    fn kept_bytes(&self) -> u64 {
        self.delta_bytes()
            .map_or(0, |delta| (PREFIX + KEPT + delta.len()) as u64)
            + 2 * PAGE
    }
}

/// Changes by object, each list in the order of the log.
pub(crate) type DeferredDeltas = BTreeMap<ObjectNo, Vec<DeferredDelta>>;

/// The changes that wait; see the module.
#[derive(Debug, Default)]
pub(crate) struct DeferredRedo {
    list: Mutex<DeferredDeltas>,
    left: AtomicUsize,
    /// The number of objects that could not be brought up to date when that was tried for all.
    stuck: AtomicUsize,
    /// Bytes counted as live that the changes will give back.
    surplus: AtomicI64,
    /// The most bytes that a checkpoint takes for these objects. They are set aside for all of them
    /// until the last one is up to date.
    reserve: AtomicU64,
    /// Leaves of the inode map in which they are, at most.
    leaves: AtomicU64,
    /// A checkpoint is being made. It changes with the list locked.
    is_paused: AtomicBool,
}

/// While it lives, what waits is not brought up to date.
#[derive(Debug)]
pub(crate) struct RedoPause<'d>(&'d DeferredRedo);

impl Drop for RedoPause<'_> {
    fn drop(&mut self) {
        // The checkpoint has ended: changes may be made again.
        self.0.set_paused(false);
    }
}

/// Returns how many leaves of the inode map these objects may change: an object may have a new
/// place, and need another.
fn changed_leaves(list: &DeferredDeltas) -> u64 {
    let mut spread = LeafSpread::default();
    for no in list.keys() {
        spread.add(*no);
    }
    // Each leaf may split.
    2 * spread.leaves()
}

impl DeferredRedo {
    /// Returns whether nothing waits: no object needs a look at the list.
    pub(crate) fn is_empty(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0
    }

    /// Returns whether something waits that was not tried in vain already.
    pub(crate) fn has_untried(&self) -> bool {
        self.left.load(Ordering::Acquire) > self.stuck.load(Ordering::Acquire)
    }

    /// Returns the bytes counted as live that the changes will give back.
    pub(crate) fn surplus(&self) -> u64 {
        // Redoing in another order may count below zero for a moment.
        self.surplus.load(Ordering::Relaxed).max(0) as u64
    }

    /// Returns what a checkpoint takes for the objects that wait, at most.
    pub(crate) fn reserve(&self) -> u64 {
        self.reserve.load(Ordering::Relaxed)
    }

    /// Returns how many leaves of the inode map a checkpoint changes for them, at most.
    pub(crate) fn leaves(&self) -> u64 {
        self.leaves.load(Ordering::Relaxed)
    }

    /// Locks the list, to bring one of its objects up to date under the lock.
    pub(crate) fn lock(&self) -> MutexGuard<'_, DeferredDeltas> {
        self.list.lock()
    }

    /// Returns the objects that are not up to date, from a number on.
    pub(crate) fn numbers(&self, from: ObjectNo) -> Vec<ObjectNo> {
        if self.is_empty() {
            Vec::new()
        } else {
            self.list.lock().range(from..).map(|(no, _)| *no).collect()
        }
    }

    /// Returns at most so many of the objects that are not up to date, from a number on.
    pub(crate) fn next_numbers(&self, from: ObjectNo, most: usize) -> BTreeSet<ObjectNo> {
        let list = self.list.lock();
        list.range(from..).map(|(no, _)| *no).take(most).collect()
    }

    /// Takes in all changes that wait, with what they will give back and what a checkpoint takes
    /// for them.
    pub(crate) fn start_waiting(&self, deltas: DeferredDeltas, surplus: u64, reserve: u64) {
        self.surplus.store(surplus as i64, Ordering::Relaxed);
        self.reserve.store(reserve, Ordering::Relaxed);
        self.leaves
            .store(changed_leaves(&deltas), Ordering::Relaxed);
        let mut list = self.list.lock();
        *list = deltas;
        self.publish_totals(&list);
    }

    /// Keeps the objects that cannot be brought up to date now. From here on, their share of a
    /// checkpoint is counted.
    pub(crate) fn keep_failed(&self, failed: &[(ObjectNo, StoreError)]) {
        let list = self.list.lock();
        // Each is repeated by every checkpoint, with a page of room.
        let kept = list.values().flatten().map(DeferredDelta::kept_bytes).sum();
        self.reserve.store(kept, Ordering::Relaxed);
        self.leaves.store(changed_leaves(&list), Ordering::Relaxed);
        self.stuck.store(failed.len(), Ordering::Release);
    }

    /// Forgets all changes: for a seeded bug only.
    pub(crate) fn forget_all(&self) {
        let mut list = self.list.lock();
        list.clear();
        self.publish_totals(&list);
    }

    /// Notes that changes that waited have given so many bytes back, or have come to take some.
    pub(crate) fn gave_back(&self, bytes: i64) {
        self.surplus.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Brings what is known without the lock up to date, after a change of the list.
    pub(crate) fn publish_totals(&self, list: &DeferredDeltas) {
        // Nothing is left: the sums are exact from here on.
        if list.is_empty() {
            self.surplus.store(0, Ordering::Relaxed);
            self.reserve.store(0, Ordering::Relaxed);
            self.leaves.store(0, Ordering::Relaxed);
        }
        debug_assert!(list.is_empty() || list.values().all(|deltas| !deltas.is_empty()));
        self.left.store(list.len(), Ordering::Release);
    }

    /// Lets nothing be brought up to date until the end of what is returned.
    pub(crate) fn pause_redo(&self) -> RedoPause<'_> {
        self.set_paused(true);
        RedoPause(self)
    }

    fn set_paused(&self, is_paused: bool) {
        // Under the lock: no change is half made when the pause begins.
        let list = self.list.lock();
        self.is_paused.store(is_paused, Ordering::Release);
        drop(list);
    }

    /// Returns whether a checkpoint is being made. Exact while the list is locked.
    pub(crate) fn is_paused(&self) -> bool {
        self.is_paused.load(Ordering::Acquire)
    }
}
