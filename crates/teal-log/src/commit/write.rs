//! From the open batch to the disk: sealing, writing, one barrier; checkpoints; the clean end.
//!
//! # How
//! 1. The committer holds `commit` from sealing to durability, so batches reach the disk in order; whoever waits for the lock meanwhile
//!    finds its batch durable afterwards, or commits everything that gathered: many fsyncs, one barrier.
//! 2. Sealing holds `gate` exclusively and does no I/O: every page it changes was warmed by the operation that will need it.
//! 3. A batch that has become large is written without a barrier of its own: the next one, of an fsync, of the interval or of a
//!    checkpoint, covers it.
//! 4. A checkpoint is a batch that also folds all changed pages and ends with the roots; two anchors far apart then point to it, so that a
//!    stale range over one of them and the log's end does not pass for an older state of the store.
//!
//! # Why a crash at any point is harmless
//! - Before the barrier of a batch returns, any subset of its sectors may be there: recovery takes it whole or not at all. Of several
//!   batches before one barrier it takes those before the first that is not whole.
//! - Between the barrier and the anchor, the older anchor finds the new checkpoint by rolling forward.
//! - Both anchors of a checkpoint are torn: the other slots of their places, and all other places, hold older ones.

use crate::commit::committer::{Committer, Kind, SealError};
use crate::commit::layout::{Chain, Layout};
use crate::counters::add;
use crate::error::StoreError;
use crate::format::anchor::Anchor;
use crate::format::record;
use crate::seeded::{Bug, bug};
use crate::store::{OpenBatch, Store};
use crate::tree::reader::InFlight;
use std::sync::atomic::Ordering;
use std::time::Duration;
use teal_types::{Lsn, SECTOR, Sector};

/// Bytes of one write, unless a single record is larger: enough for a disk to have the next part at hand when it is done with one.
const WRITE_MAX: usize = 8 << 20;

/// How many of these records go out in one write: those that adjoin, up to [`WRITE_MAX`].
fn together(records: &[InFlight]) -> usize {
    let mut bytes = records[0].parts.len();
    let adjoin = records.windows(2).take_while(|pair| {
        bytes += pair[1].parts.len();
        pair[0].end() == pair[1].start && bytes <= WRITE_MAX
    });
    1 + adjoin.count()
}

struct Sealed {
    records: Vec<InFlight>,
    chain: Chain,
    checkpoint_at: Option<(Sector, u64)>,
    /// When its first operation happened.
    since: Option<Duration>,
}

impl Store {
    /// Makes everything that happened before durable: one write and one barrier, shared with whoever asks at the same time.
    ///
    /// # Errors
    /// [`StoreError::Io`] when the disk fails; from then on [`StoreError::Poisoned`] until the store is opened again.
    pub fn commit(&self) -> Result<(), StoreError> {
        let mine = self.open_batch.load(Ordering::Acquire);
        add(&self.reader.counters.syncs, 1);
        let mut committer = self.commit.lock();
        self.writable()?;
        let durable = self.durable_batch.load(Ordering::Acquire);
        if durable > mine {
            return Ok(());
        }
        let open = self.open_batch.load(Ordering::Acquire);
        if open == mine && self.has_changes() {
            self.commit_as(&mut committer, Kind::Batch)
        } else if durable < open && !bug(Bug::WrittenPromised) {
            // All of it is written already.
            self.barrier(&mut committer, false)
                .inspect_err(|e| self.failed(e))
        } else {
            Ok(())
        }
    }

    /// Writes what has gathered, so that the disk works while more gathers; it is not durable before a barrier comes.
    ///
    /// # Errors
    /// As [`Store::commit`].
    pub(crate) fn write_batch(&self) -> Result<(), StoreError> {
        let mine = self.open_batch.load(Ordering::Acquire);
        let mut committer = self.commit.lock();
        self.writable()?;
        if self.open_batch.load(Ordering::Acquire) > mine || !self.has_changes() {
            return Ok(());
        }
        self.commit_as(&mut committer, Kind::Written)
    }

    /// Commits and makes a checkpoint, if anything has changed since the last one.
    ///
    /// # Errors
    /// As [`Store::commit`].
    pub fn checkpoint(&self) -> Result<(), StoreError> {
        let mut committer = self.commit.lock();
        self.writable()?;
        self.checkpoint_locked(&mut committer)
    }

    pub(crate) fn checkpoint_locked(&self, committer: &mut Committer) -> Result<(), StoreError> {
        if !self.is_dirty() && committer.log_bytes == 0 {
            return Ok(());
        }
        self.commit_as(committer, Kind::Checkpoint)
    }

    /// Commits, checkpoints, and writes the record that tells a clean end from a torn tail. Changes are refused from then on.
    ///
    /// # Errors
    /// As [`Store::commit`]. A store that wrote nothing writes nothing now.
    pub fn close(&self) -> Result<(), StoreError> {
        if self.read_only {
            return Ok(());
        }
        let mut committer = self.commit.lock();
        self.writable()?;
        if committer.closed {
            return Ok(());
        }
        self.checkpoint_locked(&mut committer)?;
        // A mark left by an opening that was not closed goes, even if this one has changed nothing.
        if (committer.epoch_written || committer.is_marked) && !bug(Bug::NoCleanRecord) {
            self.commit_as(&mut committer, Kind::Empty(record::CLEAN))?;
        }
        committer.closed = true;
        self.poisoned.store(true, Ordering::Release);
        Ok(())
    }

    /// Does what is due at this moment: commits by interval, checkpoints by interval and by bytes. Returns how long nothing will be due;
    /// `None`: until [something changes](Self::when_changed).
    ///
    /// # Errors
    /// As [`Store::commit`].
    pub fn tick(&self) -> Result<Option<Duration>, StoreError> {
        let settings = self.settings();
        let now = self.clock.monotonic();
        let since = self.open.lock().since;
        let full = self.gathered.load(Ordering::Relaxed) >= settings.batch_bytes as i64;
        let mut wait = None;
        let unsynced = self.commit.lock().unsynced_since;
        match since.into_iter().chain(unsynced).min() {
            Some(since) if now >= since + settings.commit_interval => self.commit()?,
            Some(since) => {
                if full {
                    self.write_batch()?;
                }
                wait = Some((since + settings.commit_interval).saturating_sub(now));
            }
            None => {}
        }
        let mut committer = self.commit.lock();
        let due = committer
            .since
            .map(|since| since + settings.checkpoint_interval);
        if committer.log_bytes >= settings.checkpoint_bytes || due.is_some_and(|due| now >= due) {
            self.writable()?;
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
        kind: Kind,
    ) -> Result<(), StoreError> {
        let _standstill = (kind == Kind::Checkpoint).then(|| self.settle_for_checkpoint());
        if bug(Bug::LeftoversLineUp) {
            committer.epoch_written = true;
        }
        if !committer.epoch_written && kind != Kind::Empty(record::FRESH_EPOCH) {
            self.still_unchanged(committer)
                .inspect_err(|e| self.poison(e))?;
            committer.seen = None;
            committer.chain.epoch += 1;
            self.commit_as(committer, Kind::Empty(record::FRESH_EPOCH))?;
            committer.epoch_written = true;
        }
        if kind == Kind::Checkpoint {
            // Where the cleaner's shared extents come to lie is not known before, and a checkpoint does no I/O for it.
            if self.reader.shared.is_moving() {
                self.commit_as(committer, Kind::Batch)?;
            }
            self.warm_for_checkpoint()?;
        }
        self.prepare_room(kind)?;
        let sealed = self.seal(committer, kind).inspect_err(|e| self.poison(e))?;
        self.write_out(committer, sealed, kind)
            .inspect_err(|e| self.failed(e))
    }

    fn failed(&self, why: &StoreError) {
        if !bug(Bug::FailureForgotten) {
            self.poison(why);
        }
    }

    fn write_out(
        &self,
        committer: &mut Committer,
        sealed: Sealed,
        kind: Kind,
    ) -> Result<(), StoreError> {
        self.segments.lock().sound()?;
        let mut bytes = 0;
        let mut records = &sealed.records[..];
        while !records.is_empty() {
            let (now, later) = records.split_at(together(records));
            self.reader.write_adjoining(now)?;
            bytes += now.iter().map(|r| r.parts.len() as u64).sum::<u64>();
            records = later;
        }
        committer.chain = sealed.chain;
        if kind == Kind::Written {
            committer.unsynced_since = committer.unsynced_since.or(sealed.since);
        } else {
            self.barrier(
                committer,
                bug(Bug::AnchorTooEarly) && sealed.checkpoint_at.is_some(),
            )?;
        }
        self.reader.set_in_flight(Vec::new());
        add(&self.reader.counters.batches, 1);
        if let Some((addr, seq)) = sealed.checkpoint_at {
            self.write_anchor(committer, addr, seq)?;
            committer.log_bytes = 0;
            committer.since = None;
        } else if matches!(kind, Kind::Batch | Kind::Written) {
            committer.log_bytes += bytes;
            committer
                .since
                .get_or_insert_with(|| self.clock.monotonic());
        }
        self.refresh_budget();
        Ok(())
    }

    /// Makes all that is written durable.
    fn barrier(&self, committer: &mut Committer, too_late: bool) -> Result<(), StoreError> {
        if !too_late {
            self.reader.sync()?;
        }
        committer.chain.watermark = committer.chain.seq - 1;
        committer.unsynced_since = None;
        self.durable_batch
            .store(self.open_batch.load(Ordering::Acquire), Ordering::Release);
        Ok(())
    }

    fn write_anchor(
        &self,
        committer: &mut Committer,
        addr: Sector,
        seq: u64,
    ) -> Result<(), StoreError> {
        let near = self.geometry.place_near(addr);
        let anchor = Anchor {
            checkpoint: committer.checkpoint,
            addr,
            seq,
            watermark: committer.chain.watermark,
            secs: self.clock.civil().secs.max(0) as u64,
        };
        let mut bytes = anchor.encode(&self.sb.uuid);
        crate::format::codec::pad(&mut bytes, (self.geometry.align * SECTOR) as usize);
        // The second one tells of the checkpoint where the first one and the log's end are lost together.
        let places = [Some(near), self.geometry.place_opposite(near)]
            .into_iter()
            .flatten();
        for place in places {
            let slot = committer.slots[place as usize] ^ 1;
            self.reader
                .write(self.geometry.anchor_slot(place, slot), bytes.clone().into())?;
            add(&self.reader.counters.bytes_anchors, bytes.len() as u64);
            // Written or torn: the other slot is the one that is whole.
            committer.slots[place as usize] = slot;
        }
        self.reader.sync()?;
        committer.anchored = committer.checkpoint;
        add(&self.reader.counters.checkpoints, 1);
        self.segments.lock().ripen(committer.anchored);
        Ok(())
    }

    fn seal(&self, committer: &mut Committer, kind: Kind) -> Result<Sealed, StoreError> {
        // Exclusive: no operation is in progress, so the batch is a set of whole operations.
        let _gate = self.gate.write();
        let empty = matches!(kind, Kind::Empty(_));
        let open = if empty {
            OpenBatch::default()
        } else {
            std::mem::take(&mut *self.open.lock())
        };
        let since = open.since;
        let bound = self.batch_takes();
        let mut segments = self.segments.lock();
        let ready = segments.ready_bytes();
        if kind == Kind::Checkpoint {
            committer.checkpoint += 1;
            segments.interval = committer.checkpoint;
            segments.moving.clear();
        }
        let first = open
            .objects
            .iter()
            .map(|o| o.state.read().core.lsn)
            .chain(open.orphans.values().map(|o| o.1))
            .chain(open.notes.lsns())
            .min();
        let now = Lsn::new(self.next_lsn.load(Ordering::Relaxed));
        let layout = Layout::new(
            &mut segments,
            committer.chain,
            first.unwrap_or(now),
            now,
            self.clock.civil(),
        );
        let filled = self
            .fill(layout, open, kind, committer.checkpoint)
            .map_err(|e| match e {
                SealError::Store(e) => e,
                SealError::NoRoom => StoreError::NoSpace,
            });
        let (records, chain, homes) = filled?;
        let taken = ready.saturating_sub(segments.ready_bytes());
        // A fuzzed image may count what it likes.
        debug_assert!(
            taken <= bound || cfg!(any(test, feature = "fuzzing")),
            "{kind:?} took {taken} bytes and not {bound}"
        );
        let start = records.first().map(|r| (r.start, committer.chain.seq));
        let checkpoint_at = start.filter(|_| kind == Kind::Checkpoint);
        let sealed = Sealed {
            records,
            chain,
            checkpoint_at,
            since,
        };
        // Before the map leads anybody to them.
        self.reader.set_in_flight(sealed.records.clone());
        self.settle_homes(&mut segments, homes);
        if !empty {
            self.open_batch.fetch_add(1, Ordering::Release);
            self.gathered.store(0, Ordering::Relaxed);
            self.moved.store(0, Ordering::Relaxed);
        }
        Ok(sealed)
    }
}
