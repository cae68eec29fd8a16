//! The state of the one committer: where the chain stands, what it has written and what is durable.
//!
//! # Locks
//! The log's `committer` lock guards it and is held across the I/O of a commit on purpose: that is
//! what gathers fsyncs behind one barrier.

use crate::commit::layout::{ChainPosition, NoRoom};
use crate::commit::witness::OverwriteWitness;
use crate::error::StoreError;
use std::time::Duration;

/// See the module.
#[derive(Debug)]
pub(crate) struct Committer {
    chain: ChainPosition,
    /// This opening has written its epoch record.
    epoch_written: bool,
    /// The last checkpoint sealed.
    checkpoint: u64,
    /// Which slot of each anchor place was written last.
    slots: Vec<u64>,
    /// Bytes of log since the last checkpoint.
    log_bytes: u64,
    /// Monotonic time of the first commit after it.
    since: Option<Duration>,
    /// Monotonic time of the first operation in a batch that is written and not yet durable.
    unsynced_since: Option<Duration>,
    is_closed: bool,
    /// The last record before this opening says that a machine has the store open.
    is_marked: bool,
    /// The content of the place where this opening writes first. `None` once it has written, or if
    /// it does not mark the store.
    witness: Option<OverwriteWitness>,
    /// Incompatible feature bits that this opening has set in the superblocks.
    marked_features: u64,
}

/// The kind of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BatchKind {
    Batch,
    /// A batch without its barrier, which comes later.
    Written,
    Checkpoint,
    /// A record without changes, with these flags.
    Empty(u16),
}

pub(crate) enum SealError {
    Store(StoreError),
    NoRoom,
}

impl From<NoRoom> for SealError {
    fn from(_: NoRoom) -> Self {
        Self::NoRoom
    }
}
impl From<StoreError> for SealError {
    fn from(e: StoreError) -> Self {
        Self::Store(e)
    }
}

impl Committer {
    /// Goes on behind a checkpoint; `slots` has the slot of each anchor place that was written
    /// last, `is_marked` whether the last record names a machine that has the store open.
    pub(crate) fn new(
        chain: ChainPosition,
        checkpoint: u64,
        slots: Vec<u64>,
        is_marked: bool,
    ) -> Self {
        Self {
            chain,
            epoch_written: false,
            checkpoint,
            slots,
            log_bytes: 0,
            since: None,
            unsynced_since: None,
            is_closed: false,
            is_marked,
            witness: None,
            marked_features: 0,
        }
    }

    /// Begins the log of a store that is being made: its first record needs no fresh epoch before
    /// it.
    pub(crate) fn of_new_store(chain: ChainPosition, places: u32) -> Self {
        Self {
            epoch_written: true,
            // The first anchors go to slot 0 of each place.
            ..Self::new(chain, 0, vec![1; places as usize], false)
        }
    }

    /// Takes over what opening has found behind the checkpoint.
    pub(crate) fn resume_from(&mut self, log_bytes: u64, witness: Option<OverwriteWitness>) {
        self.log_bytes = log_bytes;
        self.witness = witness;
    }

    pub(crate) fn chain(&self) -> ChainPosition {
        self.chain
    }

    /// Takes over where the chain stands after a batch was written.
    pub(crate) fn set_chain(&mut self, chain: ChainPosition) {
        assert!(chain.seq > self.chain.seq, "each batch has a record");
        self.chain = chain;
    }

    /// Returns whether the record of this opening's epoch must be written before anything else.
    pub(crate) fn needs_epoch(&self) -> bool {
        !self.epoch_written
    }

    /// Takes what lay where this opening writes first: it is looked at once, before the first
    /// write.
    pub(crate) fn witness(&self) -> Option<OverwriteWitness> {
        self.witness
    }

    /// Begins an epoch; its record is about to be written.
    pub(crate) fn begin_epoch(&mut self) {
        self.witness = None;
        debug_assert!(!self.epoch_written, "an opening begins one epoch");
        self.chain.epoch += 1;
    }

    /// Notes that the record of the epoch is durable.
    pub(crate) fn epoch_is_written(&mut self) {
        self.epoch_written = true;
    }

    /// Returns the incompatible feature bits that this opening has set in the superblocks.
    pub(crate) fn marked_features(&self) -> u64 {
        self.marked_features
    }

    pub(crate) fn note_features(&mut self, bits: u64) {
        self.marked_features |= bits;
    }

    /// Returns the number of the last checkpoint sealed.
    pub(crate) fn checkpoint(&self) -> u64 {
        self.checkpoint
    }

    /// Takes the number of a new checkpoint.
    pub(crate) fn begin_checkpoint(&mut self) -> u64 {
        self.checkpoint += 1;
        self.checkpoint
    }

    /// Returns the slot of an anchor place that is not the one written last.
    pub(crate) fn next_slot(&self, place: u32) -> u64 {
        self.slots[place as usize] ^ 1
    }

    /// Notes that a slot was written, whole or torn: the other one of its place is whole.
    pub(crate) fn slot_written(&mut self, place: u32, slot: u64) {
        assert_eq!(slot, self.next_slot(place), "the two slots alternate");
        self.slots[place as usize] = slot;
    }

    /// Notes that everything written is durable.
    pub(crate) fn all_is_durable(&mut self) {
        debug_assert!(self.chain.seq > 0, "sequence numbers begin at 1");
        self.chain.watermark = self.chain.seq - 1;
        self.unsynced_since = None;
    }

    /// Notes that a batch was written without its barrier, which comes later.
    pub(crate) fn written_without_barrier(&mut self, since: Option<Duration>) {
        // The oldest batch without a barrier sets the time.
        self.unsynced_since = self.unsynced_since.or(since);
    }

    /// Returns the time of the first operation that is written and not durable.
    pub(crate) fn unsynced_since(&self) -> Option<Duration> {
        self.unsynced_since
    }

    /// Counts what a batch added to the log that a recovery would read.
    pub(crate) fn log_grew(&mut self, bytes: u64, now: Duration) {
        self.log_bytes += bytes;
        self.since.get_or_insert(now);
    }

    /// Notes that a checkpoint is durable and an anchor leads to it.
    pub(crate) fn note_checkpoint(&mut self) {
        self.log_bytes = 0;
        self.since = None;
    }

    /// Returns the bytes of log since the last checkpoint.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.log_bytes
    }

    /// Returns the time of the first commit after the last checkpoint.
    pub(crate) fn first_commit_time(&self) -> Option<Duration> {
        self.since
    }

    /// Returns whether the store is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    pub(crate) fn close(&mut self) {
        self.is_closed = true;
    }

    /// Returns whether closing has a mark to take away: this opening's, or one of an opening that
    /// was not closed.
    pub(crate) fn has_mark(&self) -> bool {
        self.epoch_written || self.is_marked
    }
}
