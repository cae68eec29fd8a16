//! What the log says of objects and nobody has asked for yet: opening reads the log, not the objects it changes.
//!
//! # What waits, and what does not
//! 1. Everything an object's own record holds or leads to waits: attributes, names, extents, entries, pages, its place in the inode map, and
//!    the space that its old state gives back. What the log itself says is known at once: where it goes on, the numbers given so far, which
//!    segments it entered, what lives in it. So are the small trees that are there for all objects: the orphan set, the notes and the table
//!    of shared extents.
//! 2. What only the old states would tell in sum is in the header of the last record: how many objects there are, how many bytes live, and
//!    what a checkpoint takes for what is newer than its record.
//!
//! # Invariants
//! 1. *Whole*: nobody sees an object before all changes that wait for it were made. An object that has some is in no other table: not among
//!    the objects in memory, nor the changes of the inode map, nor what a checkpoint is to fold.
//! 2. *Once*: changes are made in memory, and counted only when the last of them succeeded; then they wait no more. What fails has changed
//!    nothing and is met again by whoever comes next.
//! 3. *Safe*: until then what they give back counts as live in its segment, so nobody reuses it. Space is answered for by the sums of 1.2,
//!    and before anybody is refused for want of it, everything is brought up to date.
//! 4. *Bounded*: they are the bodies of the log behind the checkpoint, and the next checkpoint starts by making them all. Nothing else does:
//!    a store nobody touches reads nothing.
//! 5. *Kept*: what cannot be made because the old state cannot be read is repeated in every checkpoint, word for word, until it can. So
//!    one bad sector stops neither checkpoints nor anything else but the use of that object; `check` names it, and nothing is lost that
//!    the disk has not lost.
//! 6. *Repeatable*: nothing on the disk tells whether they were made. A crash meanwhile leaves the same checkpoint and a longer log.
//! 7. *Either in the checkpoint or kept by it*: what waits when a checkpoint begins waits until it has ended ([`Standstill`]), even if the disk
//!    has become readable meanwhile: half of what it changes may be folded already.
//!
//! # Who brings objects up to date
//! - One object: whoever looks for it ([`Store::object`]) or makes another with its number.
//! - All, in the order in which they lie: checkpoints, rounds of cleaning, `check`, `dump`, and who finds no room.
//!
//! The lock of the list is taken under the locks of objects and held while an object is read; under it no other object is locked. The
//! segment table is locked under it, but while a standstill lasts: then a checkpoint may lock the list under the segment table.

use crate::commit::layout::{Layout, NoRoom};
use crate::error::StoreError;
use crate::format::delta::{Delta, KEPT, PREFIX};
use crate::format::record::Sums;
use crate::object::redo::Redone;
use crate::object::state::{Object, State};
use crate::object::sweep;
use crate::seeded::{Bug, bug};
use crate::store::Store;
use crate::tree::page_bounds::{PAGE, Places};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use teal_types::{Lsn, ObjectNo, SECTOR};

/// Objects read together before they are brought up to date.
const OBJECTS: usize = 8192;

/// One change of an object, in the body of its record.
#[derive(Debug, Clone)]
pub(crate) struct Due {
    pub(crate) body: Arc<[u8]>,
    /// Byte address of the value of the delta on the device, in the record that said it first.
    pub(crate) byte: u64,
    /// Where in the body that value begins.
    pub(crate) at: u32,
    pub(crate) lsn: Lsn,
}

impl Due {
    /// The delta, its prefix included.
    pub(crate) fn delta(&self) -> Option<&[u8]> {
        let from = (self.at as usize).checked_sub(PREFIX)?;
        let len = u32::from_le_bytes(self.body.get(from + 4..from + 8)?.try_into().ok()?);
        self.body.get(from..self.at as usize + len as usize)
    }

    /// What a checkpoint that keeps it and the work that is left take, at most.
    fn weight(&self) -> u64 {
        self.delta()
            .map_or(0, |delta| (PREFIX + KEPT + delta.len()) as u64)
            + 2 * PAGE
    }
}

/// Changes by object, each list in the order of the log.
pub(crate) type Dues = BTreeMap<ObjectNo, Vec<Due>>;

/// The changes that wait; see the module.
#[derive(Debug, Default)]
pub(crate) struct Deferred {
    list: Mutex<Dues>,
    left: AtomicUsize,
    /// How many of them could not be brought up to date when that was tried for all.
    stuck: AtomicUsize,
    /// Bytes counted as live that the changes will give back.
    surplus: AtomicI64,
    /// What a checkpoint takes for these objects, at most: until the last one is up to date it is set aside for all.
    reserve: AtomicU64,
    /// Leaves of the inode map in which they are, at most.
    leaves: AtomicU64,
    /// A checkpoint is being made. It changes with the list locked.
    stands_still: AtomicBool,
}

/// While it lives, what waits is not brought up to date.
#[derive(Debug)]
pub(crate) struct Standstill<'d>(&'d Deferred);

impl Drop for Standstill<'_> {
    fn drop(&mut self) {
        self.0.stand_still(false);
    }
}

impl Deferred {
    pub(crate) fn is_empty(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0
    }

    pub(crate) fn surplus(&self) -> i64 {
        self.surplus.load(Ordering::Relaxed)
    }

    pub(crate) fn reserve(&self) -> u64 {
        self.reserve.load(Ordering::Relaxed)
    }

    pub(crate) fn leaves(&self) -> u64 {
        self.leaves.load(Ordering::Relaxed)
    }

    /// The objects that are not up to date, from a number on.
    pub(crate) fn numbers(&self, from: ObjectNo) -> Vec<ObjectNo> {
        if self.is_empty() {
            Vec::new()
        } else {
            self.list.lock().range(from..).map(|(no, _)| *no).collect()
        }
    }

    /// What is left cannot be brought up to date now: from here on what it takes is counted.
    fn keep(&self, failed: &[(ObjectNo, StoreError)]) {
        let list = self.list.lock();
        let mut places = Places::default();
        for no in list.keys() {
            places.add(*no);
        }
        self.reserve.store(
            list.values().flatten().map(Due::weight).sum(),
            Ordering::Relaxed,
        );
        self.leaves.store(2 * places.leaves(), Ordering::Relaxed);
        self.stuck.store(failed.len(), Ordering::Release);
    }

    fn stand_still(&self, stands_still: bool) {
        let list = self.list.lock();
        self.stands_still.store(stands_still, Ordering::Release);
        drop(list);
    }

    fn done(&self, list: &Dues) {
        if list.is_empty() {
            self.surplus.store(0, Ordering::Relaxed);
            self.reserve.store(0, Ordering::Relaxed);
            self.leaves.store(0, Ordering::Relaxed);
        }
        self.left.store(list.len(), Ordering::Release);
    }
}

impl Store {
    /// What the record that is going to end a batch says in sum, when all else of it is sealed and the segment table will count so many
    /// bytes as live.
    pub(crate) fn sums(&self, live: u64) -> Sums {
        let pages = self.mem_pages.load(Ordering::Relaxed).max(0) as u64;
        Sums {
            objects: self.objects.load(Ordering::Relaxed).max(0) as u64,
            live: self.really_live(live),
            unfolded: self.unfolded.lock().bytes() + pages * PAGE + self.deferred.reserve(),
        }
    }

    /// Bytes the newest state refers to, of which the segment table counts so many.
    pub(crate) fn really_live(&self, counted: u64) -> u64 {
        counted.saturating_sub(self.deferred.surplus().max(0) as u64)
    }

    /// Leaves changes for later; the last record of the log gave these sums.
    pub(crate) fn defer(&self, dues: Dues, sums: Sums) {
        let live = self.segments.lock().live();
        let mut places = Places::default();
        for no in dues.keys() {
            places.add(*no);
        }
        let deferred = &self.deferred;
        // A damaged store may say what it likes.
        let surplus = if bug(Bug::DeferredCounted) {
            0
        } else {
            live.saturating_sub(sums.live)
        };
        deferred.surplus.store(surplus as i64, Ordering::Relaxed);
        deferred.reserve.store(
            sums.unfolded.min(self.geometry.capacity()),
            Ordering::Relaxed,
        );
        // An object may have a new place, and need another.
        deferred
            .leaves
            .store(2 * places.leaves(), Ordering::Relaxed);
        let mut list = deferred.list.lock();
        *list = dues;
        deferred.done(&list);
    }

    /// Brings one object up to date.
    ///
    /// # Errors
    /// What reading its old state met, or [`StoreError::Corrupt`] when the log contradicts that.
    pub(crate) fn settle(&self, no: ObjectNo) -> Result<(), StoreError> {
        if self.deferred.is_empty() {
            return Ok(());
        }
        self.settle_in(&mut self.deferred.list.lock(), no, None)
    }

    /// Brings all objects up to date, as far as that is possible. The others wait on, whatever happens, and are not tried again here.
    pub(crate) fn settle_all(&self) {
        if self.deferred.left.load(Ordering::Acquire) <= self.deferred.stuck.load(Ordering::Acquire)
        {
            return;
        }
        for (no, e) in self.settle_each() {
            log::error!(
                "{} is not as it was before the crash, and its changes wait: {e}",
                self.path_of(no)
            );
        }
    }

    /// Brings all objects up to date, as far as that is possible; the others are named.
    pub(crate) fn settle_each(&self) -> Vec<(ObjectNo, StoreError)> {
        let mut failed = Vec::new();
        let mut from = ObjectNo::new(0);
        self.reader.set_sweeping(!self.deferred.is_empty());
        while !self.deferred.is_empty() {
            let wanted: BTreeSet<ObjectNo> = self
                .deferred
                .list
                .lock()
                .range(from..)
                .map(|(no, _)| *no)
                .take(OBJECTS)
                .collect();
            let Some(last) = wanted.last() else { break };
            from = ObjectNo::new(last.get() + 1);
            // One after another: whoever wants one of them need not wait for all. What waits stays as it was read.
            sweep::objects(self, wanted, &mut |no, old| {
                let done = self.settle_in(&mut self.deferred.list.lock(), no, old);
                failed.extend(done.err().map(|e| (no, e)));
            });
        }
        self.reader.set_sweeping(false);
        if !failed.is_empty() {
            self.deferred.keep(&failed);
        }
        failed
    }

    /// Lets a checkpoint begin. What cannot be brought up to date now waits until the end of what is returned.
    pub(crate) fn settle_for_checkpoint(&self) -> Standstill<'_> {
        if bug(Bug::DeferredForgotten) {
            let mut list = self.deferred.list.lock();
            list.clear();
            self.deferred.done(&list);
        }
        self.settle_all();
        self.deferred.stand_still(true);
        Standstill(&self.deferred)
    }

    /// Repeats in a checkpoint what waits still.
    pub(crate) fn keep_deferred(&self, layout: &mut Layout<'_>) -> Result<(), NoRoom> {
        if self.deferred.is_empty() {
            return Ok(());
        }
        for (no, dues) in self.deferred.list.lock().iter() {
            for due in dues {
                let delta = due.delta().unwrap_or_default();
                let kept = Delta::Kept {
                    lsn: due.lsn,
                    byte: due.byte,
                    delta,
                };
                layout.delta(*no, Lsn::ZERO, &kept, KEPT + delta.len())?;
            }
        }
        Ok(())
    }

    /// `old`: its old state, if that was read already.
    fn settle_in(
        &self,
        list: &mut Dues,
        no: ObjectNo,
        old: Option<State>,
    ) -> Result<(), StoreError> {
        let Some(dues) = list.get(&no) else {
            return Ok(());
        };
        if self.deferred.stands_still.load(Ordering::Acquire) {
            let at = dues.first().map_or(0, |due| due.byte / SECTOR);
            return Err(StoreError::Corrupt {
                what: "an object's state before the crash",
                at,
                object: Some(no),
            });
        }
        let old = match old {
            Some(old) => Some(old),
            None => self
                .imap
                .read()
                .get(&self.reader, no)?
                .map(|home| self.read_home(no, home))
                .transpose()?,
        };
        let mut redone = Redone::new(&self.reader, no, old);
        dues.iter().try_for_each(|due| redone.redo(due))?;
        self.take_over(no, redone);
        list.remove(&no);
        self.deferred.done(list);
        Ok(())
    }

    /// Nothing here can fail.
    fn take_over(&self, no: ObjectNo, redone: Redone<'_>) {
        let Redone {
            state,
            born,
            freed,
            map,
            ..
        } = redone;
        {
            let mut segments = self.segments.lock();
            let before = segments.live() as i64;
            born.iter().for_each(|extent| {
                segments.add_live(extent.addr.byte(), extent.bytes(), extent.born)
            });
            Self::account_redone(&mut segments, &freed);
            self.deferred
                .surplus
                .fetch_sub(before - segments.live() as i64, Ordering::Relaxed);
        }
        if let Some(home) = map {
            self.imap.write().set(no, home);
        }
        let Some(state) = state else { return };
        let weight = state.home.map_or(0, |home| home.len as usize);
        let (is_unfolded, pages) = (state.unfolded, state.mem_pages());
        let object = self.table.add(Object::new(no, state, weight));
        if is_unfolded {
            let state = object.state.read();
            self.unfolded.lock().insert(&object, &state);
            drop(state);
            self.pages_changed(0, pages);
        }
    }
}
