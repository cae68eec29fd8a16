//! Objects without a name: when they are given back, and in which steps.
//!
//! # Guarantees
//! 1. An object leaves with its last name or its last reference, whichever goes later; one left
//!    over by a crash soon after the mount.
//! 2. Giving back takes bounded operations: at most [`Volume::reclaim_step`] bytes of content each.
//!    The thread that released the object carries out the first, the commit thread the others.
//! 3. No operation is refused for want of space while orphans wait to be given back.

use crate::{ChangeRecorder, FsError, LockRank, RankedMutex, Volume};
use parking_lot::Mutex;
use std::collections::VecDeque;
use teal_log::{Cost, LockedObjects, StoreError, StoreOperation};
use teal_types::{ObjectNo, SECTOR};

/// Orphans that are not referred to and are still there.
#[derive(Debug)]
pub(crate) struct OrphanQueue {
    /// The oldest first. This is a leaf lock.
    waiting: Mutex<VecDeque<Orphan>>,
    /// Is held for a step of one of them, with its I/O: an operation that needs the space waits for
    /// the step.
    reclaiming: RankedMutex<()>,
}

impl Default for OrphanQueue {
    fn default() -> Self {
        Self {
            waiting: Mutex::default(),
            reclaiming: RankedMutex::new(LockRank::Reclaim, ()),
        }
    }
}

/// An orphan that is being given back.
#[derive(Debug, Clone, Copy)]
struct Orphan {
    no: ObjectNo,
    /// Everything before this offset has been given back.
    from: u64,
}

/// What became of an object whose last name may have gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "an orphan is given back by `reclaim`"]
pub enum ObjectFate {
    /// It has names, or is referred to, or is gone.
    Decided,
    /// It must be given back in steps.
    Orphaned(ObjectNo),
}

impl Volume {
    /// Counts `n` more references of the kernel to an object.
    pub fn hold(&self, no: ObjectNo, n: u64) {
        self.references.hold(no, n);
    }

    /// Takes back `n` references. The last one of an object without a name gives the object back.
    pub fn release(&self, no: ObjectNo, n: u64, changes: &dyn ChangeRecorder) {
        if self.references.release(no, n) {
            self.reclaim(ObjectFate::Orphaned(no), changes);
        }
        if !self.stale_files.is_empty() && !self.references.is_held(no) {
            self.stale_files.forget_file(no);
        }
    }

    /// Decides, under the object's lock and after one of its names was removed, what becomes of the
    /// object.
    ///
    /// # Errors
    /// What the store met.
    pub fn decide_fate(
        &self,
        locked: &mut LockedObjects<'_>,
        no: ObjectNo,
        changes: &dyn ChangeRecorder,
    ) -> Result<ObjectFate, StoreError> {
        if locked.is_linked(no) {
            return Ok(ObjectFate::Decided);
        }
        if changes.awaits_name(locked, no)? || self.references.keep_orphan(no) {
            locked.set_orphan(no, true)?;
            return Ok(ObjectFate::Decided);
        }
        if locked.attr(no).sectors * SECTOR <= self.reclaim_step {
            changes.give_back(locked, no)?;
            return Ok(ObjectFate::Decided);
        }
        locked.set_orphan(no, true)?;
        Ok(ObjectFate::Orphaned(no))
    }

    /// Takes the first step of giving an orphan back, and leaves the others to the commit thread.
    /// The caller holds no lock.
    pub fn reclaim(&self, fate: ObjectFate, changes: &dyn ChangeRecorder) {
        if let ObjectFate::Orphaned(no) = fate {
            self.reclaim_step_of(Orphan { no, from: 0 }, changes);
        }
    }

    fn reclaim_step_of(&self, orphan: Orphan, changes: &dyn ChangeRecorder) {
        match self.name_damage(orphan.no, || self.try_reclaim(orphan, changes)) {
            Ok(None) => {}
            Ok(Some(rest)) => {
                self.orphans.waiting.lock().push_back(rest);
                self.commit_signal.raise();
            }
            // It stays in the store's orphan set: the next mount tries again.
            Err(e) => log::warn!("{} is not given back yet: {e}", orphan.no),
        }
    }

    /// Takes one step for the oldest orphan. Returns whether there was one.
    pub fn reclaim_next(&self, changes: &dyn ChangeRecorder) -> bool {
        let _reclaiming = self.orphans.reclaiming.lock();
        let next = self.orphans.waiting.lock().pop_front();
        next.map(|orphan| self.reclaim_step_of(orphan, changes))
            .is_some()
    }

    /// Returns whether orphans wait to be given back.
    pub fn has_waiting_orphans(&self) -> bool {
        !self.orphans.waiting.lock().is_empty()
    }

    /// Starts an operation, after giving back as many orphans as its space needs.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`], and what the store met.
    pub fn begin_operation(
        &self,
        cost: Cost,
        changes: &dyn ChangeRecorder,
    ) -> Result<StoreOperation<'_>, StoreError> {
        let cost = changes.with_record(cost);
        let mut has_more = true;
        loop {
            match self.store.begin(cost) {
                Err(StoreError::NoSpace) if has_more => has_more = self.reclaim_next(changes),
                begun => return begun,
            }
        }
    }

    /// Queues the objects that a crash left without a name.
    ///
    /// # Errors
    /// What reading the set of orphans met.
    pub fn queue_left_orphans(&self) -> Result<(), FsError> {
        let left = self.store.orphans()?;
        if !left.is_empty() {
            log::info!("giving back {} objects without a name", left.len());
        }
        self.orphans
            .waiting
            .lock()
            .extend(left.into_iter().map(|no| Orphan { no, from: 0 }));
        Ok(())
    }

    /// Takes one step. Returns what remains to be given back, if anything.
    fn try_reclaim(
        &self,
        orphan: Orphan,
        changes: &dyn ChangeRecorder,
    ) -> Result<Option<Orphan>, FsError> {
        let no = orphan.no;
        let head = match self.store.head_bytes(no) {
            Err(StoreError::NotFound(_)) => return Ok(None),
            head => head?,
        };
        let op = self.store.begin(Cost::free().with_head(head))?;
        let mut locked = match op.lock(&[no]) {
            Err(StoreError::NotFound(_)) => return Ok(None),
            locked => locked?,
        };
        let is_kept = locked.is_linked(no)
            || self.references.keep_orphan(no)
            || changes.awaits_name(&locked, no)?;
        if is_kept {
            return Ok(None);
        }
        let attr = locked.attr(no);
        if attr.sectors * SECTOR <= self.reclaim_step || orphan.from >= attr.size {
            changes.give_back(&mut locked, no)?;
            return Ok(None);
        }
        let end = orphan.from.saturating_add(self.reclaim_step);
        locked.punch(no, orphan.from, end)?;
        drop(locked);
        drop(op);
        let next = self.store.seek(no, end, false)?;
        Ok(Some(Orphan {
            no,
            from: next.unwrap_or(attr.size),
        }))
    }
}
