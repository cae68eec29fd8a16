//! Space that is promised before it is needed.
//!
//! # Invariants
//! R: what can be written now; T: what sealing all that is changed in memory as a checkpoint takes
//! at most (`ObjectStore::batch_takes`); P: what is promised to operations under way; S: a segment;
//! C: what is set aside for the cleaner and for giving back: at least six segments, or as many as
//! are in use and two while that is less, and 192 bytes for each object
//! ([`Reserves`](crate::space::reserves::Reserves)); E: what three checkpoints of nothing take, and
//! S / 2.
//! 1. *Promise*: an operation that grows or replaces begins only if T + P + its cost + C fit into
//!    R, one that writes where room is set aside if T + P + its cost + C / 2 do, one that gives
//!    back if T + P + its cost + C / 4 do, or, when cleaning has gained nothing, T + P + its cost +
//!    E. While a round of cleaning runs, what it has taken counts as if it were
//!    there, up to C / 2.
//!    A, what is set aside for unwritten blocks of files, is a part of P; of the cost of a write to
//!    such blocks the part that A covers is not added.
//! 2. *Commit*: so a commit has room, as a batch and as a checkpoint, and so have the two
//!    checkpoints after it. Closing is one of them.
//! 3. *Cleaning* adds to T only while T + P + what must be left fit into R, looked at again at
//!    least every 16 deltas: C / 2 must be left ([`CleaningReserve::Half`]), or E
//!    ([`CleaningReserve::Least`]) by a round for which an operation waits that gives back, and by
//!    rounds by cost and benefit for victims that surely give more than they take. Never does it
//!    take the room of a commit.
//! 4. *Capacity*: what lives, grown by what is promised and by the objects' part of C, leaves the
//!    reserve (a tenth of the capacity or more, the rest of C among it) free: R and the dead bytes
//!    in use are at least the reserve and that part.
//! 5. *Net growth*: pages that a checkpoint will write are charged to 4 as if they were new,
//!    although most replace old ones. An operation that does not grow the store is therefore
//!    refused by 4 only after a checkpoint, when nothing is charged but what lives.
//!
//! # Why there is a way forward from every full state
//! - *Closing, committing*: 2.
//! - *Deleting* does not add to what lives, and half of the reserve is its alone: with 5, capacity
//!   never refuses it. Nothing but deleting may use C below C / 2: by 1 and 3 it finds that much.
//!   What it takes are pages written anew, for each of which an old one dies; they lie together in
//!   segments of checkpoints, which two checkpoints later are free without cleaning, or the
//!   emptiest there are.
//! - *Cleaning one victim* of which u S live takes u S and the pages that lead to it: for a segment
//!   of inode records as many leaves of the inode map. Rounds for operations that wait take first
//!   what surely gives more than it takes, and what a checkpoint can fold is folded even if nothing
//!   could be moved. By 4 the emptiest victim is never fuller than the mean.
//! - *Writing where room is set aside* takes its blocks from A. The rest of its cost is pages and
//!   records written anew, for which old ones die, as with deleting; it may use C down to C / 2.
//! - *Filling* stops when rounds gain nothing ([`FUTILE`]), and leaves C / 2: it cannot use up what
//!   deleting needs.
//! - No operation waits for ever: a wait is at most [`ROUNDS`] rounds, each bounded by R.
//!
//! Not proved, but lived through by `teal-posix/tests/space/near_full.rs` and `emptied.rs`: that C
//! is enough float for the pages of any sequence of rounds.

use crate::commit::committer::{BatchKind, Committer};
use crate::counters::add_to_counter;
use crate::error::StoreError;
use crate::space::cost::{Cost, SpacePurpose};
use crate::space::ledger::MEM_PAGES;
use crate::space::segments::victims::VictimPolicy;
use crate::store::cleaner::CleaningReserve;
use crate::store::handle::Store;

/// The host is asked for this much more than is needed, so that it is asked rarely.
const HOST_STEP: u64 = 32 << 20;
/// Rounds of cleaning that one operation waits for at most.
const ROUNDS: usize = 64;
/// The number of rounds without gain after which an operation waits no longer.
const FUTILE: usize = 3;
/// In the first round of them victims are at most this full.
const FULLEST_FIRST: f64 = 0.9;

impl Store {
    /// Promises the space an operation may need. May commit, checkpoint or clean first.
    pub(crate) fn promise_space(&self, cost: Cost) -> Result<(), StoreError> {
        let ledger = &self.objects().ledger;
        let shared = &self.objects().reader.shared;
        let batch = self.settings().batch_bytes;
        // Shared content adds to the batch without an operation of its own.
        ledger.shrink_budget(shared.take_growth());
        if ledger.memory_pages() + shared.mem_pages() as u64 > MEM_PAGES {
            // Memory is bounded: large directories and maps change many pages before a checkpoint
            // is due.
            self.log.checkpoint()?;
        }
        if ledger.batch_bytes() > 2 * batch {
            // Back-pressure: the operation that comes when the open batch is at twice its size
            // writes it.
            self.log.write_batch()?;
        }
        // The budget is an estimate on the safe side. If it is used up, the sums are computed.
        if ledger.promise(&cost) || self.has_headroom(cost.purpose()) {
            return Ok(());
        }
        // Taken back while others may need it, so that none is refused for what is not taken in the
        // end.
        ledger.end_promise(&cost);
        self.make_room(cost.uncovered_bytes() as i64, cost.purpose())?;
        ledger.promise(&cost);
        Ok(())
    }

    /// Returns whether there is room for an operation, by a closer look than the budget. The budget
    /// is that of operations that grow the store.
    fn has_headroom(&self, purpose: SpacePurpose) -> bool {
        self.objects().headroom_for(purpose).smaller_bound() >= 0
    }

    /// Asks the host, then the log itself, for room.
    fn make_room(&self, need: i64, purpose: SpacePurpose) -> Result<(), StoreError> {
        // One thread makes room; others wait for the same.
        let mut committer = self.log.committer();
        self.log.durability.check_writable()?;
        add_to_counter(&self.objects().reader.counters.waits, 1);
        // The host had room: nothing needs to be cleaned.
        self.ask_host(need)?;
        if self.has_enough(need, purpose) {
            return Ok(());
        }
        // Sealing turns estimates into exact sizes.
        if self.objects().has_changes() {
            self.log.commit_as(&mut committer, BatchKind::Batch)?;
            if self.has_enough_after_batch(need, purpose) {
                return Ok(());
            }
        }
        // So is what a checkpoint takes, and what it writes anew dies.
        if self.is_checkpoint_due(need, purpose) {
            self.log.commit_as(&mut committer, BatchKind::Checkpoint)?;
            if self.has_enough(need, purpose) {
                return Ok(());
            }
        }
        // Cleaning makes room to write, not room to keep.
        if self.objects().headroom_for(purpose).to_keep < need {
            return Err(StoreError::NoSpace);
        }
        self.clean_for(&mut committer, need, purpose)
    }

    /// Lets the host allocate what is needed, and more, so that the next operations find room, too.
    fn ask_host(&self, need: i64) -> Result<(), StoreError> {
        let objects = self.objects();
        // Doubtful segments are no room before they are allocated.
        objects.host.allocate_doubtful(&objects.segments)?;
        // Now the space set aside for objects that were not up to date is known to the byte.
        objects.redo_all_deferred();
        let promised = objects.ledger.promised_bytes();
        let takes = objects.batch_takes() + objects.cleaner_bytes();
        let takes = takes + objects.ledger.set_aside_bytes();
        let wanted = need as u64 + promised + takes + HOST_STEP;
        objects.host.allocate_until_ready(&objects.segments, wanted);
        Ok(())
    }

    fn has_enough(&self, need: i64, purpose: SpacePurpose) -> bool {
        self.objects().refresh_budget();
        self.objects().headroom_for(purpose).smaller_bound() >= need
    }

    /// Returns whether there is enough room now that sums that had been estimated are known to the
    /// byte. There must be a segment more than needed: too little budget would make batches ever
    /// smaller.
    fn has_enough_after_batch(&self, need: i64, purpose: SpacePurpose) -> bool {
        self.objects().refresh_budget();
        let headroom = self.objects().headroom_for(purpose);
        let segment = self.objects().geometry.segment_bytes() as i64;
        headroom.to_keep >= need && headroom.to_write >= need + segment
    }

    /// Returns whether a checkpoint is to give back what is not folded yet. An operation that gives
    /// back may need that to clean at all; for others a round is cheaper, unless it is the capacity
    /// that refuses them.
    fn is_checkpoint_due(&self, need: i64, purpose: SpacePurpose) -> bool {
        let is_wanted = match purpose {
            SpacePurpose::Grows => false,
            SpacePurpose::Replaces => self.objects().headroom_for(purpose).to_keep < need,
            SpacePurpose::Frees | SpacePurpose::Preallocated => true,
        };
        is_wanted && self.objects().fold_bytes() > self.objects().usage_bytes()
    }

    /// Cleans rounds until there is enough room.
    fn clean_for(
        &self,
        committer: &mut Committer,
        need: i64,
        purpose: SpacePurpose,
    ) -> Result<(), StoreError> {
        // More than is needed is gained at once: the checkpoints after a round cost the same for
        // many victims as for one.
        let want = need as u64 + self.objects().cleaner_bytes();
        let left = if purpose == SpacePurpose::Frees {
            CleaningReserve::Least
        } else {
            CleaningReserve::Half
        };
        // An operation that makes the store fuller does not go on for crumbs: one round for each
        // would be without end.
        let segment = self.objects().geometry.segment_bytes() as i64;
        let is_due = matches!(purpose, SpacePurpose::Frees | SpacePurpose::Preallocated);
        let (comfort, little) = if is_due {
            (0, 0)
        } else {
            (segment, segment / 4)
        };
        let mut best = self.objects().headroom_for(purpose).to_write;
        let mut futile = 0;
        for round in 0..ROUNDS {
            let is_first = round == 0 && !is_due;
            let choice = if is_first {
                VictimPolicy::CostBenefit(FULLEST_FIRST)
            } else {
                VictimPolicy::Emptiest
            };
            // The first round goes by cost and benefit, later ones by the most space.
            let worked = self.clean_round(Some(&mut *committer), want, choice, left)?;
            let physical = self.objects().headroom_for(purpose).to_write;
            // A comfortable gain ends the wait; a small one would end in ever smaller batches.
            if physical >= need + comfort {
                return Ok(());
            }
            // Rounds without gain are counted, and end the wait.
            futile = if physical > best + little {
                0
            } else {
                futile + 1
            };
            best = best.max(physical);
            if (!worked && !is_first) || futile >= FUTILE {
                break;
            }
        }
        if self.objects().headroom_for(purpose).to_write >= need {
            return Ok(());
        }
        // Cleaning with its own reserve has not helped. The reserve may help an operation that
        // gives back.
        let last = self.objects().headroom().to_write + self.objects().cleaner_bytes() as i64
            - self.bytes_left(CleaningReserve::Least) as i64;
        if purpose == SpacePurpose::Frees && last >= need {
            Ok(())
        } else {
            Err(StoreError::NoSpace)
        }
    }

    /// Cleans in the background: one round that is to set this many segments free, moving what is
    /// in those at most this full. Says whether it did anything.
    ///
    /// # Errors
    /// As [`Store::commit`].
    pub fn clean(&self, segments: u64, fullest_percent: u32) -> Result<bool, StoreError> {
        // Cleaning ahead: no operation waits for it.
        self.log.durability.check_writable()?;
        let want = segments * self.objects().geometry.segment_bytes();
        self.clean_round(
            None,
            want,
            VictimPolicy::CostBenefit(f64::from(fullest_percent) / 100.0),
            CleaningReserve::Half,
        )
    }
}
