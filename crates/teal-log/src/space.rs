//! Space that is promised before it is needed.
//!
//! # Invariants
//! R: what can be written now; T: what sealing all that is changed in memory as a checkpoint takes at most
//! ([`batch_takes`](Store::batch_takes)); P: what is promised to operations under way; C: what is set aside for the cleaner; S: a segment.
//! 1. *Promise*: an operation that grows or replaces begins only if T + P + its cost + C fit into R, one that gives back if T + P + its
//!    cost + 3/4 C do. While a round of cleaning runs, what it has taken counts as if it were there, up to C / 2, so R >= T + P + C / 4
//!    holds whenever somebody begins.
//! 2. *Commit*: so a commit has room, as a batch and as a checkpoint. Afterwards T is the usage table and the roots, less than a segment
//!    on stores of some gigabytes; C is at least six segments, so the two checkpoints after it have room too. Closing is one of them.
//! 3. *Cleaning* adds to T only while T + P + 2 S + a usage table fit into R, looked at again at least every 64 deltas: it never takes
//!    the room of a commit.
//! 4. *Capacity*: what lives, grown by what is promised, leaves the reserve (a tenth of the capacity or more, C among it) free: the
//!    segments in use hold at least the reserve less R of dead bytes.
//!
//! # Why there is a way forward from every full state
//! - *Closing, committing*: 2.
//! - *Cleaning one victim* of which u S live takes u S, a page for each of its blocks at worst, and the headers; two checkpoints later it
//!   gives S back. The pages are no loss: for each one written anew an old one died, and old pages lie together in segments of
//!   checkpoints, which so become the emptiest. By 4 the emptiest victim is never fuller than the mean, capacity less reserve by
//!   capacity less R.
//! - *Deleting* needs 24 KiB of R below what everybody else may use (1), and adds dead bytes.
//! - Nobody waits for ever: a wait is at most [`ROUNDS`] rounds, each bounded by R.
//!
//! Not proved, but lived through by `teal-client/tests/space/near_full.rs`: that C is enough float for the pages of any sequence of
//! rounds; the worst case is a store of one file of single blocks, each round of which rewrites every page of its map (1 % of the data).

use crate::commit::Kind;
use crate::cost::{Cost, Purpose};
use crate::counters::add;
use crate::error::StoreError;
use crate::round::Choice;
use crate::store::{Space, Store};
use std::sync::atomic::Ordering;

/// Segments that only the cleaner and checkpoints may start: one in this many, within bounds. The more, the more one round can move.
const CLEANER_PART: u64 = 20;
const CLEANER_SEGMENTS: std::ops::RangeInclusive<u64> = 6..=64;
/// A small store sets more aside anyhow.
const SMALL_CLEANER_PART: u64 = 12;
const SMALL_CLEANER: u64 = 10;
/// One part in this many of the capacity is set aside.
const RESERVE_PART: u64 = 10;
/// A checkpoint must always find room for all the pages that memory may hold, twice; a small store has fewer.
const FOLD_RESERVE: u64 = 16 << 20;
const SMALL_PART: u64 = 4;
/// Fewest segments set aside, beyond the cleaner's.
const RESERVE_SEGMENTS: u64 = 6;
/// The host is asked for this much more than is needed, so that it is asked rarely.
const HOST_STEP: u64 = 64 << 20;
/// Changed pages that memory may hold before a checkpoint must fold them: 8 MiB on the disk, about twice that in memory.
pub(crate) const MEM_PAGES: i64 = 2048;
/// Rounds of cleaning that one operation waits for at most.
const ROUNDS: usize = 64;
/// In the first round of them victims are at most this full.
const FULLEST_FIRST: f64 = 0.9;

impl Store {
    fn reserve(&self) -> u64 {
        let capacity = self.geometry.capacity();
        (capacity / RESERVE_PART)
            .max(RESERVE_SEGMENTS * self.geometry.segment_bytes() + self.cleaner_bytes())
            .max((capacity / SMALL_PART).min(FOLD_RESERVE))
    }

    /// What only the cleaner and checkpoints may start to fill.
    pub(crate) fn cleaner_bytes(&self) -> u64 {
        let segments = u64::from(self.geometry.segments);
        let share = (segments / CLEANER_PART).max((segments / SMALL_CLEANER_PART).min(SMALL_CLEANER));
        share.clamp(*CLEANER_SEGMENTS.start(), *CLEANER_SEGMENTS.end()) * self.geometry.segment_bytes()
    }

    /// Pages that only memory holds; the daemon checkpoints when they are many. What waits since the store was opened is not among them:
    /// it is no more than the log.
    pub fn unfolded_bytes(&self) -> u64 {
        self.fold_with(0, 0)
    }

    /// What may be promised to operations that grow the store: of its capacity, and of what can be written now.
    fn available(&self) -> (i64, i64) {
        let gathered = self.gathered.load(Ordering::Relaxed);
        let promised = self.promised.load(Ordering::Relaxed);
        let fold = self.fold_bytes() as i64;
        let moved = self.moved.load(Ordering::Relaxed) + self.reader.shared.moving_takes() as i64;
        let segments = self.segments.lock();
        let logical =
            self.geometry.capacity() as i64 - self.reserve() as i64 - self.really_live(segments.live()) as i64;
        // What the cleaner has in hand comes out of what is set aside for it, and comes back.
        let cleaner = self.cleaner_bytes() as i64;
        let lent = self.lent.load(Ordering::Relaxed);
        let physical = segments.ready_bytes() as i64 - cleaner + lent.min(cleaner / 2);
        (logical - (gathered - moved) - promised - fold, physical - gathered - promised - fold)
    }

    pub(crate) fn refresh_budget(&self) -> i64 {
        let (logical, physical) = self.available();
        // From here on it is counted.
        self.reader.shared.take_growth();
        let budget = logical.min(physical);
        self.budget.store(budget, Ordering::Relaxed);
        budget
    }

    /// What may still be promised for a purpose. Giving back and overwriting may use a part of the reserve of the capacity, but of what can
    /// be written now only giving back may, a quarter of the cleaner's: the rest is the way out when all is full.
    fn headroom(&self, purpose: Purpose) -> (i64, i64) {
        let (logical, physical) = self.available();
        (logical + self.share(purpose), physical + self.slack(purpose))
    }

    /// The part of the reserve that an operation may use.
    fn share(&self, purpose: Purpose) -> i64 {
        match purpose {
            Purpose::Grows => 0,
            Purpose::Replaces => self.reserve() as i64 / 4,
            Purpose::Frees => self.reserve() as i64 / 2,
        }
    }

    fn slack(&self, purpose: Purpose) -> i64 {
        if purpose == Purpose::Frees { self.cleaner_bytes() as i64 / 4 } else { 0 }
    }

    /// Promises the space an operation may need.
    pub(crate) fn promise(&self, cost: Cost) -> Result<(), StoreError> {
        let need = cost.bytes as i64;
        let batch = self.settings().batch_bytes as i64;
        self.budget.fetch_sub(self.reader.shared.take_growth(), Ordering::Relaxed);
        if self.mem_pages.load(Ordering::Relaxed) + self.reader.shared.mem_pages() as i64 > MEM_PAGES {
            // Memory is bounded: large directories and maps change many pages before a checkpoint is due.
            self.checkpoint()?;
        }
        if self.gathered.load(Ordering::Relaxed) > 2 * batch {
            // Back-pressure: whoever comes when the open batch is at twice its size writes it.
            self.write_batch()?;
        }
        self.promised.fetch_add(need, Ordering::Relaxed);
        if self.budget.fetch_sub(need, Ordering::Relaxed) >= need || self.has_headroom(cost.purpose) {
            return Ok(());
        }
        // Taken back while others may need it, so that nobody is refused for what is not taken in the end.
        self.promised.fetch_sub(need, Ordering::Relaxed);
        self.budget.fetch_add(need, Ordering::Relaxed);
        self.make_room(need, cost.purpose)?;
        self.budget.fetch_sub(need, Ordering::Relaxed);
        self.promised.fetch_add(need, Ordering::Relaxed);
        Ok(())
    }

    /// A closer look than the budget, which is that of operations that grow the store.
    fn has_headroom(&self, purpose: Purpose) -> bool {
        let (logical, physical) = self.headroom(purpose);
        logical.min(physical) >= 0
    }

    /// Asks the host, then the log itself, for room.
    fn make_room(&self, need: i64, purpose: Purpose) -> Result<(), StoreError> {
        let mut committer = self.commit.lock();
        self.writable()?;
        add(&self.reader.counters.waits, 1);
        self.host_again()?;
        // What was set aside for objects that were not up to date is known to the byte now.
        self.settle_all()?;
        let enough = |store: &Self| {
            store.refresh_budget();
            let (logical, physical) = store.headroom(purpose);
            logical.min(physical) >= need
        };
        let promised = self.promised.load(Ordering::Relaxed).max(0) as u64;
        self.host_more(need as u64 + promised + self.batch_takes() + HOST_STEP + 16 * self.geometry.segment_bytes());
        if enough(self) {
            return Ok(());
        }
        if self.has_changes() {
            self.commit_as(&mut committer, Kind::Batch)?;
            // What is known to the byte now had been estimated; but little is not enough, or batches become ever smaller.
            self.refresh_budget();
            let (logical, physical) = self.headroom(purpose);
            if logical >= need && physical >= need + self.geometry.segment_bytes() as i64 {
                return Ok(());
            }
        }
        // Cleaning makes room to write, not room to keep.
        if self.headroom(purpose).0 < need {
            return Err(StoreError::NoSpace);
        }
        // More than is needed is gained at once: the checkpoints after a round cost the same for many victims as for one.
        let want = need as u64 + self.cleaner_bytes();
        for round in 0..ROUNDS {
            let choice = if round == 0 { Choice::CostBenefit(FULLEST_FIRST) } else { Choice::Emptiest };
            let worked = self.clean_round(Some(&mut *committer), want, choice)?;
            if enough(self) {
                return Ok(());
            }
            if !worked && round > 0 {
                break;
            }
        }
        Err(StoreError::NoSpace)
    }

    /// Cleans in the background: one round that is to set this many segments free, moving what is in those at most this full. Says whether
    /// it did anything.
    ///
    /// # Errors
    /// As [`Store::commit`].
    pub fn clean(&self, segments: u64, fullest_percent: u32) -> Result<bool, StoreError> {
        self.writable()?;
        let want = segments * self.geometry.segment_bytes();
        self.clean_round(None, want, Choice::CostBenefit(f64::from(fullest_percent) / 100.0))
    }

    /// Before a batch is sealed: its room must be there.
    pub(crate) fn prepare_room(&self) -> Result<(), StoreError> {
        self.host_again()?;
        let mut need = self.batch_takes();
        let spare = 2 * self.geometry.segment_bytes();
        let mut ready = self.segments.lock().ready_bytes();
        if ready < need + spare {
            self.settle_all()?;
            need = self.batch_takes();
            self.host_more(need + spare);
            ready = self.segments.lock().ready_bytes();
        }
        // Two segments to spare would be good; without them the batch itself and its last record's successor must fit.
        if ready < need {
            log::error!("no room for a batch: {ready} bytes are ready, {need} needed");
            return Err(StoreError::NoSpace);
        }
        Ok(())
    }

    /// How full the store is. What can be cleaned counts as free.
    pub fn space(&self) -> Space {
        let (logical, physical) = self.available();
        let segments = self.segments.lock();
        Space {
            total: self.geometry.capacity() - self.reserve(),
            free: logical.max(0) as u64,
            live: self.really_live(segments.live()),
            objects: self.objects.load(Ordering::Relaxed).max(0) as u64,
            free_segments: segments.free_segments() as u64,
            ripening: segments.ripening() as u64,
            segments: u64::from(self.geometry.segments),
            segment_bytes: self.geometry.segment_bytes(),
            before_waiting: physical.max(0) as u64 + segments.unready_bytes(),
        }
    }
}
