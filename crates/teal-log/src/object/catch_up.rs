//! Brings objects up to date that have changes in the [list](crate::object::deferred): one object
//! when it is needed, or all.

use crate::error::StoreError;
use crate::format::record::BatchSums;
use crate::object::deferred::{DeferredDeltas, RedoPause};
use crate::object::objects::ObjectStore;
use crate::object::redo::ObjectRedo;
use crate::object::state::{CachedObject, ObjectState};
use crate::object::sweep;
use crate::seeded::{Bug, bug};
use crate::tree::page_bounds::PAGE;
use teal_types::{BLOCK, ObjectNo, SECTOR};

/// Objects read together before they are brought up to date.
const OBJECTS: usize = 8192;

impl ObjectStore {
    /// Returns what the record that is going to end a batch says in sum, when all else of it is
    /// sealed and the segment table will count so many bytes as live.
    pub(crate) fn batch_sums(&self, live: u64) -> BatchSums {
        // Taken at the end of a batch, when all its pages are counted.
        let pages = self.ledger.memory_pages();
        BatchSums {
            objects: self.numbers.object_count(),
            live: self.really_live(live),
            unfolded: self.unfolded.bytes() + pages * PAGE + self.deferred.reserve(),
            unwritten: if bug(Bug::RoomForgotten) {
                0
            } else {
                self.ledger.unwritten_blocks()
            },
        }
    }

    /// Returns the bytes the newest state refers to, of which the segment table counts so many.
    pub(crate) fn really_live(&self, counted: u64) -> u64 {
        counted.saturating_sub(self.deferred.surplus())
    }

    /// Leaves changes for later; the last record of the log gave these sums.
    pub(crate) fn defer_changes(&self, deltas: DeferredDeltas, sums: BatchSums) {
        let live = self.segments.lock().live_bytes();
        // A damaged store may say what it likes.
        let surplus = if bug(Bug::DeferredCounted) {
            0
        } else {
            live.saturating_sub(sums.live)
        };
        let reserve = sums.unfolded.min(self.geometry.capacity());
        let blocks = self.geometry.capacity() / BLOCK;
        self.ledger.restore_unwritten(sums.unwritten.min(blocks));
        self.deferred.start_waiting(deltas, surplus, reserve);
    }

    /// Brings one object up to date.
    ///
    /// # Errors
    /// Errors of reading its old state, or [`StoreError::Corrupt`] when the log contradicts that.
    pub(crate) fn redo_deferred_of(&self, no: ObjectNo) -> Result<(), StoreError> {
        // The common case, without the lock.
        if self.deferred.is_empty() {
            return Ok(());
        }
        self.redo_listed(&mut self.deferred.lock(), no, None)
    }

    /// Brings all objects up to date, as far as that is possible. The others wait on, whatever
    /// happens, and are not tried again here.
    pub(crate) fn redo_all_deferred(&self) {
        // All that is left has been tried already.
        if !self.deferred.has_untried() {
            return;
        }
        for (no, e) in self.redo_each_deferred() {
            log::error!(
                "{} is not as it was before the crash, and its changes wait: {e}",
                self.path_of(no)
            );
        }
    }

    /// Brings all objects up to date, as far as that is possible; the others are named.
    pub(crate) fn redo_each_deferred(&self) -> Vec<(ObjectNo, StoreError)> {
        let mut failed = Vec::new();
        let mut from = ObjectNo::new(0);
        // Reads are ordered by place, so their neighbourhood is worth reading.
        self.reader.set_sweeping(!self.deferred.is_empty());
        while !self.deferred.is_empty() {
            // In portions, so that the list of numbers stays small.
            let wanted = self.deferred.next_numbers(from, OBJECTS);
            let Some(last) = wanted.last() else { break };
            from = ObjectNo::new(last.get() + 1);
            // The lock is taken for one after another, so that an operation that wants one of them
            // need not wait for all.
            sweep::sweep_objects(self, wanted, &mut |no, old| {
                let done = self.redo_listed(&mut self.deferred.lock(), no, old);
                failed.extend(done.err().map(|e| (no, e)));
            });
        }
        self.reader.set_sweeping(false);
        if !failed.is_empty() {
            // From here on, their part of each checkpoint is known.
            self.deferred.keep_failed(&failed);
        }
        failed
    }

    /// Lets a checkpoint begin. What cannot be brought up to date now waits until the end of what
    /// is returned.
    pub(crate) fn pause_redo_for_checkpoint(&self) -> RedoPause<'_> {
        if bug(Bug::DeferredForgotten) {
            self.deferred.forget_all();
        }
        // Changes are made first, while that is still allowed.
        self.redo_all_deferred();
        self.deferred.pause_redo()
    }

    /// Makes the changes that wait for one object. `old` is its old state, if that was read
    /// already.
    fn redo_listed(
        &self,
        list: &mut DeferredDeltas,
        no: ObjectNo,
        old: Option<ObjectState>,
    ) -> Result<(), StoreError> {
        // Another thread was faster.
        let Some(deltas) = list.get(&no) else {
            return Ok(());
        };
        // Half of the structures may be folded: the change waits until the checkpoint has ended.
        if self.deferred.is_paused() {
            let at = deltas.first().map_or(0, |delta| delta.byte / SECTOR);
            return Err(StoreError::Corrupt {
                what: "an object's state before the crash",
                at,
                object: Some(no),
            });
        }
        // The sweep has read the old state already, if it could.
        let old = match old {
            Some(old) => Some(old),
            None => self
                .inode_map
                .read()
                .get(&self.reader, no)?
                .map(|home| self.read_home(no, home))
                .transpose()?,
        };
        // Redone in memory, and counted only when all of it has succeeded.
        let mut redone = ObjectRedo::new(&self.reader, no, old);
        deltas
            .iter()
            .try_for_each(|delta| redone.redo_delta(delta))?;
        redone.check_losses()?;
        self.take_over(no, redone);
        // From here on, readers find the object without the list.
        list.remove(&no);
        self.deferred.publish_totals(list);
        Ok(())
    }

    /// Takes over the state of an object that is up to date. Nothing here can fail.
    fn take_over(&self, no: ObjectNo, redone: ObjectRedo<'_>) {
        let ObjectRedo {
            state,
            born,
            freed,
            map,
            ..
        } = redone;
        {
            let mut segments = self.segments.lock();
            // The difference is the surplus that this object had.
            let before = segments.live_bytes() as i64;
            for extent in born.iter() {
                segments.add_live(extent.addr.byte_offset(), extent.bytes(), extent.born);
            }
            Self::account_redone(&mut segments, &freed);
            self.deferred
                .gave_back(before - segments.live_bytes() as i64);
        }
        if let Some(home) = map {
            self.inode_map.write().set(no, home);
        }
        // An object that was removed leaves nothing in memory.
        let Some(state) = state else { return };
        let record_len = state.home.map_or(0, |home| home.len as usize);
        let is_unfolded = state.is_unfolded();
        let pages = state.mem_pages();
        let object = self
            .cache
            .add_or_get(CachedObject::new(no, state, record_len));
        if is_unfolded {
            let state = object.state.read();
            self.unfolded.insert(&object, &state);
            drop(state);
            self.ledger.pages_changed(0, pages);
        }
    }
}
