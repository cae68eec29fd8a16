//! Objects without a name: who gives them back, and when.
//!
//! # Guarantees
//! 1. An object leaves with its last name or its last reference, whichever goes later; one left over by a crash soon after the mount.
//! 2. Giving back takes bounded operations: at most [`reclaim_step`](crate::ClientOptions::reclaim_step) bytes of content each, of
//!    which whoever released the object waits for one.
//! 3. Nobody is told that there is no space while orphans wait to be given back.

use crate::{Client, FsError};
use parking_lot::Mutex;
use std::collections::VecDeque;
use teal_log::{Cost, Locked, Op, StoreError, note_cost};
use teal_types::{ObjectNo, SECTOR};

/// Orphans that nobody refers to and that are still there.
#[derive(Debug, Default)]
pub(crate) struct Doomed {
    /// Oldest first. Nothing else is done under this lock.
    queue: Mutex<VecDeque<Grave>>,
    /// Held for a step of one of them, with its I/O: whoever needs its space waits for it.
    digging: Mutex<()>,
}

/// An orphan on its way out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Grave {
    no: ObjectNo,
    /// Everything before this offset is gone already.
    from: u64,
}

/// What became of an object whose last name may have gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It has names, or somebody refers to it, or it is gone.
    Settled,
    /// It must be given back in steps.
    Doomed(ObjectNo),
}

impl Client {
    /// Counts `n` more references of the kernel to an object.
    pub fn hold(&self, no: ObjectNo, n: u64) {
        self.references.hold(no, n);
    }

    /// Takes back `n` references. The last one of an object without a name gives it back.
    pub fn release(&self, no: ObjectNo, n: u64) {
        if self.references.release(no, n) {
            self.bury(Fate::Doomed(no));
        }
        if let Some(replica) = &self.replica
            && !self.references.is_held(no)
        {
            replica.stale.is_known(no);
        }
    }

    /// Under the object's lock, after one of its names was removed: what becomes of it.
    pub(crate) fn judge(&self, locked: &mut Locked<'_>, no: ObjectNo) -> Result<Fate, StoreError> {
        if locked.is_linked(no) {
            return Ok(Fate::Settled);
        }
        if self.is_displaced(locked, no)? {
            locked.set_orphan(no, true)?;
            return Ok(Fate::Settled);
        }
        if !self.references.keep_orphan(no) {
            if locked.attr(no).sectors * SECTOR <= self.options.reclaim_step {
                self.give_back(locked, no)?;
                return Ok(Fate::Settled);
            }
            locked.set_orphan(no, true)?;
            return Ok(Fate::Doomed(no));
        }
        locked.set_orphan(no, true)?;
        Ok(Fate::Settled)
    }

    /// Without any lock: takes the first step, and leaves the others to the background.
    pub(crate) fn bury(&self, fate: Fate) {
        if let Fate::Doomed(no) = fate {
            self.bury_step(Grave { no, from: 0 });
        }
    }

    fn bury_step(&self, grave: Grave) {
        match self.on(grave.no, || self.reclaim(grave)) {
            Ok(None) => {}
            Ok(Some(rest)) => {
                self.doomed.queue.lock().push_back(rest);
                self.bell.ring();
            }
            // It stays in the store's orphan set: the next mount tries again.
            Err(e) => log::warn!("{} is not given back yet: {e}", grave.no),
        }
    }

    /// One step for the oldest; says whether there was one.
    pub(crate) fn bury_next(&self) -> bool {
        let _digging = self.doomed.digging.lock();
        let next = self.doomed.queue.lock().pop_front();
        next.map(|grave| self.bury_step(grave)).is_some()
    }

    /// Whether a step is left to do.
    pub(crate) fn has_doomed(&self) -> bool {
        !self.doomed.queue.lock().is_empty()
    }

    /// Starts an operation, after giving back as much as it needs.
    pub(crate) fn begin(&self, mut cost: Cost) -> Result<Op<'_>, StoreError> {
        if self.replica.is_some() {
            // Notes of what the server must hear.
            cost.bytes += 2 * note_cost(2048);
        }
        let mut helped = true;
        loop {
            match self.store.begin(cost) {
                Err(StoreError::NoSpace) if helped => helped = self.bury_next(),
                begun => return begun,
            }
        }
    }

    /// Finds what a crash left without a name.
    pub(crate) fn exhume(&self) -> Result<(), FsError> {
        let left = self.store.orphans()?;
        if !left.is_empty() {
            log::info!("giving back {} objects without a name", left.len());
        }
        self.doomed
            .queue
            .lock()
            .extend(left.into_iter().map(|no| Grave { no, from: 0 }));
        Ok(())
    }

    /// One step; what remains to be done, if anything.
    fn reclaim(&self, grave: Grave) -> Result<Option<Grave>, FsError> {
        let no = grave.no;
        let op = self.store.begin(Cost::data(0).freeing())?;
        let mut locked = match op.lock(&[no]) {
            Err(StoreError::NotFound(_)) => return Ok(None),
            locked => locked?,
        };
        if locked.is_linked(no)
            || self.references.keep_orphan(no)
            || self.is_displaced(&locked, no)?
        {
            return Ok(None);
        }
        let attr = locked.attr(no);
        if attr.sectors * SECTOR <= self.options.reclaim_step || grave.from >= attr.size {
            self.give_back(&mut locked, no)?;
            return Ok(None);
        }
        let end = grave.from.saturating_add(self.options.reclaim_step);
        locked.punch(no, grave.from, end)?;
        drop(locked);
        drop(op);
        let next = self.store.seek(no, end, false)?;
        Ok(Some(Grave {
            no,
            from: next.unwrap_or(attr.size),
        }))
    }
}
