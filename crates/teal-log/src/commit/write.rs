//! From the open batch to the disk: sealing, writing, one barrier; checkpoints; the clean end.
//!
//! # How
//! 1. The committer holds `commit` from sealing to durability, so batches reach the disk in order;
//!    a caller that waits for the lock meanwhile finds its batch durable afterwards, or commits
//!    everything that gathered: many fsyncs, one barrier.
//! 2. Sealing holds `gate` exclusively and does no I/O: every page it changes was warmed by the
//!    operation that will need it.
//! 3. A batch that has become large is written without a barrier of its own: the next one, of an
//!    fsync, of the interval or of a checkpoint, covers it.
//! 4. A checkpoint is a batch that also folds all changed pages and ends with the roots; two
//!    anchors far apart then point to it, so that a stale range over one of them and the log's end
//!    does not pass for an older state of the store.
//!
//! # Why a crash at any point is harmless
//! - Before the barrier of a batch returns, any subset of its sectors may be there: recovery takes
//!   it whole or not at all. Of several batches before one barrier it takes those before the first
//!   that is not whole.
//! - Between the barrier and the anchor, the older anchor finds the new checkpoint by rolling
//!   forward.
//! - Both anchors of a checkpoint are torn: the other slots of their places, and all other places,
//!   hold older ones.

use crate::commit::committer::{BatchKind, Committer, SealError};
use crate::commit::layout::{BatchLayout, ChainPosition, LaidOutBatch};
use crate::commit::log::CommitLog;
use crate::commit::second_copies::SecondCopies;
use crate::counters::add_to_counter;
use crate::error::StoreError;
use crate::format::anchor::Anchor;
use crate::format::codec::pad_to_multiple;
use crate::format::record;
use crate::format::root_copy::RootCopy;
use crate::format::superblock::SECOND_COPIES;
use crate::object::open_batch::BatchChanges;
use crate::seeded::{Bug, bug};
use crate::space::segments::SegmentTable;
use crate::tree::reader::RecordInFlight;
use std::time::Duration;
use teal_types::{SECTOR, Sector};

/// Bytes of one write, unless a single record is larger: enough for a disk to have the next part at
/// hand when it is done with one.
const WRITE_MAX: usize = 8 << 20;

/// Returns how many of these records go out in one write: those that adjoin, up to [`WRITE_MAX`].
fn count_adjoining(records: &[RecordInFlight]) -> usize {
    debug_assert!(!records.is_empty());
    let mut bytes = records[0].parts.len();
    let mut count = 1;
    // Adjoining records go to the disk in one write, up to a bound.
    for pair in records.windows(2) {
        bytes += pair[1].parts.len();
        if pair[0].end() != pair[1].start || bytes > WRITE_MAX {
            break;
        }
        count += 1;
    }
    count
}

struct SealedBatch {
    records: Vec<RecordInFlight>,
    copies: SecondCopies,
    chain: ChainPosition,
    /// The first record of a checkpoint, to which the anchor leads.
    checkpoint_at: Option<(Sector, u64)>,
    /// When its first operation happened.
    since: Option<Duration>,
}

impl CommitLog {
    /// Makes everything that happened before durable: one write and one barrier, shared by all
    /// callers that ask at the same time.
    ///
    /// # Errors
    /// [`StoreError::Io`] when the disk fails; from then on [`StoreError::Poisoned`] until the
    /// store is opened again.
    pub(crate) fn commit(&self) -> Result<(), StoreError> {
        // The batch that was open when this call began must become durable.
        let mine = self.durability.open_batch();
        add_to_counter(&self.objects.reader.counters.syncs, 1);
        let mut committer = self.committer();
        // Looked at under the lock: another thread may have failed meanwhile.
        self.durability.check_writable()?;
        // Group commit: another caller has made this batch durable while this one waited.
        let durable = self.durability.durable_batch();
        if durable > mine {
            return Ok(());
        }
        let open = self.durability.open_batch();
        // The changes are still in the open batch.
        if open == mine && self.objects.has_changes() {
            self.commit_as(&mut committer, BatchKind::Batch)
        } else if durable < open && !bug(Bug::WrittenPromised) {
            // All of it is written already.
            self.sync_barrier(&mut committer, false)
                .inspect_err(|e| self.poison_after(e))
        } else {
            Ok(())
        }
    }

    /// Writes what has gathered, so that the disk works while more gathers; it is not durable
    /// before a barrier comes.
    ///
    /// # Errors
    /// As [`CommitLog::commit`].
    pub(crate) fn write_batch(&self) -> Result<(), StoreError> {
        let mine = self.durability.open_batch();
        let mut committer = self.committer();
        self.durability.check_writable()?;
        // Another thread has written the batch meanwhile.
        if self.durability.open_batch() > mine || !self.objects.has_changes() {
            return Ok(());
        }
        self.commit_as(&mut committer, BatchKind::Written)
    }

    /// Commits and makes a checkpoint, if anything has changed since the last one.
    ///
    /// # Errors
    /// As [`CommitLog::commit`].
    pub(crate) fn checkpoint(&self) -> Result<(), StoreError> {
        let mut committer = self.committer();
        self.durability.check_writable()?;
        self.checkpoint_locked(&mut committer)
    }

    pub(crate) fn checkpoint_locked(&self, committer: &mut Committer) -> Result<(), StoreError> {
        // No change since the last checkpoint.
        if !self.is_dirty() && committer.log_bytes() == 0 {
            return Ok(());
        }
        self.commit_as(committer, BatchKind::Checkpoint)
    }

    /// Commits, checkpoints, and writes the record that tells a clean end from a torn tail. Changes
    /// are refused from then on.
    ///
    /// # Errors
    /// As [`CommitLog::commit`]. A store that wrote nothing writes nothing now.
    pub(crate) fn close(&self) -> Result<(), StoreError> {
        if self.durability.is_read_only() {
            return Ok(());
        }
        let mut committer = self.committer();
        self.durability.check_writable()?;
        if committer.is_closed() {
            return Ok(());
        }
        // A clean end has nothing to roll forward.
        self.checkpoint_locked(&mut committer)?;
        // A mark left by an opening that was not closed goes, even if this one has changed nothing.
        if committer.has_mark() && !bug(Bug::NoCleanRecord) {
            self.commit_as(&mut committer, BatchKind::Empty(record::CLEAN))?;
        }
        committer.close();
        // No change can follow the clean record.
        self.durability.end_changes();
        Ok(())
    }

    /// Does what is due at this moment: commits by interval, checkpoints by interval and by bytes.
    /// Returns how long nothing will be due; `None`: until something changes.
    ///
    /// # Errors
    /// As [`CommitLog::commit`].
    pub(crate) fn tick(&self) -> Result<Option<Duration>, StoreError> {
        let settings = self.settings();
        let now = self.objects.clock.monotonic_time();
        let since = self.objects.open.first_change_time();
        let full = self.objects.ledger.batch_bytes() >= settings.batch_bytes;
        let mut wait = None;
        let unsynced = self.committer().unsynced_since();
        // The older of both sets the time: changes in memory, or a batch without a barrier.
        match since.into_iter().chain(unsynced).min() {
            Some(since) if now >= since + settings.commit_interval => self.commit()?,
            Some(since) => {
                // A large batch is written at once; its barrier comes with the next commit.
                if full {
                    self.write_batch()?;
                }
                wait = Some((since + settings.commit_interval).saturating_sub(now));
            }
            None => {}
        }
        let mut committer = self.committer();
        let due = committer
            .first_commit_time()
            .map(|since| since + settings.checkpoint_interval);
        // By size, so that recovery stays short; by time, so that an idle store ends in a
        // checkpoint.
        if committer.log_bytes() >= settings.checkpoint_bytes || due.is_some_and(|due| now >= due) {
            self.durability.check_writable()?;
            self.checkpoint_locked(&mut committer)?;
        } else if let Some(due) = due {
            let checkpoint = due.saturating_sub(now);
            wait = Some(wait.map_or(checkpoint, |commit| commit.min(checkpoint)));
        }
        Ok(wait)
    }

    pub(crate) fn commit_as(
        &self,
        committer: &mut Committer,
        kind: BatchKind,
    ) -> Result<(), StoreError> {
        // Deferred changes stay as they are until the checkpoint has ended.
        let _pause =
            (kind == BatchKind::Checkpoint).then(|| self.objects.pause_redo_for_checkpoint());
        if bug(Bug::LeftoversLineUp) {
            committer.epoch_is_written();
        }
        if kind != BatchKind::Empty(record::FRESH_EPOCH) {
            self.begin_log(committer)?;
        }
        if kind == BatchKind::Checkpoint {
            // The places of the cleaner's shared extents are not known before, and a checkpoint
            // does no I/O for them.
            if self.objects.reader.shared.is_moving() {
                self.commit_as(committer, BatchKind::Batch)?;
            }
            // All I/O of a checkpoint happens before its places are chosen.
            self.warm_for_checkpoint()?;
            self.renew_copies()?;
        }
        // Room first: a batch that has begun must not fail for want of it.
        self.prepare_room(kind)?;
        let sealed = self
            .seal_batch(committer, kind)
            // A failure in the middle leaves memory and log different: the store stops.
            .inspect_err(|e| self.durability.poison(e))?;
        self.write_out(committer, sealed, kind)
            .inspect_err(|e| self.poison_after(e))
    }

    /// Writes the record of this opening's epoch, if it has not been written.
    pub(crate) fn begin_log(&self, committer: &mut Committer) -> Result<(), StoreError> {
        if !committer.needs_epoch() {
            return Ok(());
        }
        // The first write of this opening: no other opening may have written before it.
        if let Some(witness) = committer.witness() {
            witness
                .still_holds(&self.objects, committer.checkpoint())
                .inspect_err(|e| self.durability.poison(e))?;
        }
        // Second copies are found by the structures too: an unmarked superblock stops nothing.
        let _ = self.mark_features(committer, SECOND_COPIES)?;
        self.finish_copies()?;
        // A new epoch tells this opening's records from leftovers of earlier ones.
        committer.begin_epoch();
        self.commit_as(committer, BatchKind::Empty(record::FRESH_EPOCH))?;
        committer.epoch_is_written();
        Ok(())
    }

    fn poison_after(&self, why: &StoreError) {
        if !bug(Bug::FailureForgotten) {
            self.durability.poison(why);
        }
    }

    fn write_out(
        &self,
        committer: &mut Committer,
        sealed: SealedBatch,
        kind: BatchKind,
    ) -> Result<(), StoreError> {
        // A segment table that contradicts itself must not be written.
        self.objects.segments.lock().check_sound()?;
        let bytes = self.write_records(&sealed.records)?;
        if !bug(Bug::CopyNotDurable) {
            sealed.copies.write_to(&self.objects.reader)?;
        }
        committer.set_chain(sealed.chain);
        // The order is kept by the disk's own barrier, which comes with the next commit.
        if kind == BatchKind::Written {
            committer.written_without_barrier(sealed.since);
        } else {
            let is_too_late = bug(Bug::AnchorTooEarly) && sealed.checkpoint_at.is_some();
            self.sync_barrier(committer, is_too_late)?;
        }
        // All records are on the disk: reads go there.
        self.objects.reader.set_in_flight(Vec::new());
        add_to_counter(&self.objects.reader.counters.batches, 1);
        if let Some(first) = sealed.checkpoint_at {
            self.end_checkpoint(committer, first, sealed)?;
        } else if matches!(kind, BatchKind::Batch | BatchKind::Written) {
            committer.log_grew(bytes, self.objects.clock.monotonic_time());
        }
        self.objects.refresh_budget();
        Ok(())
    }

    /// Writes records in their order. Returns their bytes.
    fn write_records(&self, mut records: &[RecordInFlight]) -> Result<u64, StoreError> {
        let mut bytes = 0;
        while !records.is_empty() {
            let (now, later) = records.split_at(count_adjoining(records));
            self.objects.reader.write_adjoining(now)?;
            for record in now {
                bytes += record.parts.len() as u64;
            }
            records = later;
        }
        Ok(bytes)
    }

    /// Lets the anchors lead to a checkpoint whose records are durable. They go last: until one of
    /// them is whole, the older checkpoint holds.
    fn end_checkpoint(
        &self,
        committer: &mut Committer,
        first: (Sector, u64),
        sealed: SealedBatch,
    ) -> Result<(), StoreError> {
        let late = bug(Bug::CopyNotDurable).then(|| sealed.copies.clone());
        let last = sealed.records.last();
        let roots = last.and_then(|last| sealed.copies.root_copy(last));
        self.write_anchor(committer, first, roots)?;
        committer.note_checkpoint();
        if let Some(copies) = late {
            copies.write_to(&self.objects.reader)?;
        }
        Ok(())
    }

    /// Makes all that is written durable.
    fn sync_barrier(&self, committer: &mut Committer, too_late: bool) -> Result<(), StoreError> {
        // Written, but not durable before this returns.
        if !too_late {
            self.objects.reader.sync()?;
        }
        committer.all_is_durable();
        self.durability.all_is_durable();
        Ok(())
    }

    fn write_anchor(
        &self,
        committer: &mut Committer,
        (addr, seq): (Sector, u64),
        roots: Option<RootCopy>,
    ) -> Result<(), StoreError> {
        let geometry = &self.objects.geometry;
        let reader = &self.objects.reader;
        // Near the checkpoint, so that a disk head moves little.
        let near = geometry.place_near(addr);
        let anchor = Anchor {
            checkpoint: committer.checkpoint(),
            addr,
            seq,
            watermark: committer.chain().watermark,
            secs: self.objects.clock.civil_time().secs.max(0) as u64,
        };
        let bytes = self.anchor_bytes(&anchor, roots);
        // The second one tells of the checkpoint where the first one and the log's end are lost
        // together.
        let places = [Some(near), geometry.place_opposite(near)];
        // One after the other: a torn write damages one place only.
        for place in places.into_iter().flatten() {
            let slot = committer.next_slot(place);
            let at = geometry.anchor_slot(place, slot);
            reader.write(at, bytes.clone().into())?;
            add_to_counter(&reader.counters.bytes_anchors, bytes.len() as u64);
            // Written or torn: the other slot is the one that is whole.
            committer.slot_written(place, slot);
        }
        // Durable before segments of the older checkpoint may be reused.
        reader.sync()?;
        add_to_counter(&reader.counters.checkpoints, 1);
        // Segments that died two checkpoints ago are free.
        let mut segments = self.objects.segments.lock();
        segments.free_ripe(committer.checkpoint());
        Ok(())
    }

    /// Returns the sectors of an anchor, with the second copy of the roots if there is one.
    fn anchor_bytes(&self, anchor: &Anchor, roots: Option<RootCopy>) -> Vec<u8> {
        let uuid = &self.objects.sb.uuid;
        let mut bytes = anchor.encode(uuid);
        if let Some(roots) = roots.and_then(|roots| roots.encode(uuid)) {
            bytes.extend(roots);
        }
        let align = self.objects.geometry.align * SECTOR;
        pad_to_multiple(&mut bytes, align as usize);
        bytes
    }

    fn seal_batch(
        &self,
        committer: &mut Committer,
        kind: BatchKind,
    ) -> Result<SealedBatch, StoreError> {
        // Exclusive: no operation is in progress, so the batch is a set of whole operations.
        let _gate = self.objects.open.exclude_operations();
        // An empty batch takes no changes along.
        let is_empty = matches!(kind, BatchKind::Empty(_));
        let open = if is_empty {
            BatchChanges::default()
        } else {
            self.objects.open.take_changes()
        };
        let since = open.since;
        // Taken before the batch changes the sums it is computed from.
        let bound = self.objects.batch_takes();
        let mut segments = self.objects.segments.lock();
        let laid = self.lay_out(committer, &mut segments, open, kind, bound)?;
        let mut checkpoint_at = None;
        if kind == BatchKind::Checkpoint
            && let Some(first) = laid.records.first()
        {
            checkpoint_at = Some((first.start, committer.chain().seq));
        }
        // The records are readable before the map leads any reader to them.
        self.objects.reader.set_in_flight(laid.records.clone());
        self.install_homes(&mut segments, laid.homes);
        // Later changes belong to the next batch.
        if !is_empty {
            self.durability.batch_sealed();
            self.objects.ledger.batch_sealed();
        }
        // The tables are compared with a recount.
        if cfg!(debug_assertions) {
            segments.check_invariants(self.objects.deferred.surplus());
            self.objects.ledger.check_invariants();
        }
        Ok(SealedBatch {
            records: laid.records,
            copies: laid.copies,
            chain: laid.chain,
            checkpoint_at,
            since,
        })
    }

    /// Lays the changes of a batch out behind the log's head. They take `bound` bytes at most.
    fn lay_out(
        &self,
        committer: &mut Committer,
        segments: &mut SegmentTable,
        open: BatchChanges,
        kind: BatchKind,
        bound: u64,
    ) -> Result<LaidOutBatch, StoreError> {
        let ready = segments.ready_bytes();
        // The interval begins with the checkpoint's own batch.
        if kind == BatchKind::Checkpoint {
            segments.begin_interval(committer.begin_checkpoint());
        }
        let now = self.objects.numbers.next_lsn();
        let mut layout = BatchLayout::new(
            segments,
            committer.chain(),
            open.first_lsn().unwrap_or(now),
            now,
            self.objects.clock.civil_time(),
        );
        // Second copies take no room that the records may need.
        layout.copies = SecondCopies::with_room(ready.saturating_sub(bound));
        let laid = match self.fill_batch(layout, open, kind, committer.checkpoint()) {
            Ok(laid) => laid,
            Err(SealError::Store(e)) => return Err(e),
            // The room was prepared, so this is a bound that is too small.
            Err(SealError::NoRoom) => return Err(StoreError::NoSpace),
        };
        let left = segments.ready_bytes() + laid.copies.taken_bytes();
        // The bound promised the room; a larger batch means a wrong promise.
        self.compare_with_bound(kind, ready.saturating_sub(left), bound);
        Ok(laid)
    }

    /// Compares the bytes that a batch took of the free segments with its bound.
    ///
    /// # Panics
    /// Where assertions are on, if it took more: a bound in
    /// [`sealed_size`](crate::object::sealed_size) is too small.
    fn compare_with_bound(&self, kind: BatchKind, taken: u64, bound: u64) {
        if taken <= bound {
            return;
        }
        let operations = self.objects.ledger.operation_kinds();
        let what = format!("{kind:?} of {operations:?} took {taken} bytes and not {bound} at most");
        log::error!("{what}");
        // A fuzzed image may count what it likes.
        let is_exempt = cfg!(any(test, feature = "fuzzing"));
        if cfg!(debug_assertions) && !is_exempt {
            panic!("{what}");
        }
    }
}
