//! Space that is promised before it is needed.
//!
//! # Invariants
//! R: what can be written now; T: what sealing all that is changed in memory as a checkpoint takes at most
//! ([`batch_takes`](Store::batch_takes)); P: what is promised to operations under way; S: a segment; C: what is set aside for the cleaner and
//! for giving back: at least six segments, or as many as are in use and two while that is less, and [`OBJECT_SPARE`] for each object; E: what three checkpoints of nothing take, and S / 2.
//! 1. *Promise*: an operation that grows or replaces begins only if T + P + its cost + C fit into R, one that gives back if T + P + its
//!    cost + C / 4 do, or, when cleaning has gained nothing, T + P + its cost + E. While a round of cleaning runs, what it has taken counts
//!    as if it were there, up to C / 2.
//! 2. *Commit*: so a commit has room, as a batch and as a checkpoint, and so have the two checkpoints after it. Closing is one of them.
//! 3. *Cleaning* adds to T only while T + P + what must be left fit into R, looked at again at least every 16 deltas: C / 2 must be left
//!    ([`Left::Half`]), or E ([`Left::Least`]) by a round that somebody waits for who gives back, and by rounds by cost and benefit for
//!    victims that surely give more than they take. Never does it take the room of a commit.
//! 4. *Capacity*: what lives, grown by what is promised and by the objects' part of C, leaves the reserve (a tenth of the capacity or more,
//!    the rest of C among it) free: R and the dead bytes in use are at least the reserve and that part.
//! 5. *Net growth*: pages that a checkpoint will write are charged to 4 as if they were new, although most replace old ones. Whoever does
//!    not grow the store is therefore refused by 4 only after a checkpoint, when nothing is charged but what lives.
//!
//! # Why there is a way forward from every full state
//! - *Closing, committing*: 2.
//! - *Deleting* does not add to what lives, and half of the reserve is its alone: with 5, capacity never refuses it. Nothing but deleting
//!   may use C below C / 2: by 1 and 3 it finds that much. What it takes are pages written anew, for each of which an old one dies; they lie
//!   together in segments of checkpoints, which two checkpoints later are free without cleaning, or the emptiest there are.
//! - *Cleaning one victim* of which u S live takes u S and the pages that lead to it: for a segment of inode records as many leaves of the
//!   inode map. Rounds for those who wait take first what surely gives more than it takes, and what a checkpoint can fold is folded even if
//!   nothing could be moved. By 4 the emptiest victim is never fuller than the mean.
//! - *Filling* stops when rounds gain nothing ([`FUTILE`]), and leaves C / 2: it cannot use up what deleting needs.
//! - Nobody waits for ever: a wait is at most [`ROUNDS`] rounds, each bounded by R.
//!
//! Not proved, but lived through by `teal-posix/tests/space/near_full.rs` and `emptied.rs`: that C is enough float for the pages of any
//! sequence of rounds.

use crate::commit::committer::{Committer, Kind};
use crate::counters::add;
use crate::error::StoreError;
use crate::space::cost::{Cost, Purpose};
use crate::space::segments::Choice;
use crate::store::cleaner::Left;
use crate::store::{Space, Store};
use std::sync::atomic::Ordering;

/// Segments that only the cleaner and checkpoints may start: one in this many, within bounds. The more, the more one round can move.
const CLEANER_PART: u64 = 20;
const CLEANER_SEGMENTS: std::ops::RangeInclusive<u64> = 6..=64;
/// Fewer are set aside while fewer are in use, but no fewer than these.
const CLEANER_LEAST: u64 = 2;
/// A small store sets more aside anyhow.
const SMALL_CLEANER_PART: u64 = 12;
const SMALL_CLEANER: u64 = 10;
/// One part in this many of the capacity is set aside.
const RESERVE_PART: u64 = 10;
/// A checkpoint must always find room for all the pages that memory may hold, twice; a small store has fewer.
const FOLD_RESERVE: u64 = 16 << 20;
const SMALL_PART: u64 = 4;
/// Set aside for each object: removing it, or moving its record, writes a page of the inode map and of a directory anew, and many of them
/// share those. About twice what an object takes in them.
const OBJECT_SPARE: u64 = 128;
/// So much is enough for as many pages as are changed between two checkpoints, several times.
const SPARE_MAX: u64 = 64 << 20;
/// Fewest segments set aside, beyond the cleaner's.
const RESERVE_SEGMENTS: u64 = 6;
/// The host is asked for this much more than is needed, so that it is asked rarely.
const HOST_STEP: u64 = 32 << 20;
/// Changed pages that memory may hold before a checkpoint must fold them: 8 MiB on the disk, about twice that in memory.
pub(crate) const MEM_PAGES: i64 = 2048;
/// Rounds of cleaning that one operation waits for at most.
const ROUNDS: usize = 64;
/// It waits no longer after so many that gained nothing.
const FUTILE: usize = 3;
/// In the first round of them victims are at most this full.
const FULLEST_FIRST: f64 = 0.9;

impl Store {
    fn reserve(&self) -> u64 {
        let capacity = self.geometry.capacity();
        (capacity / RESERVE_PART)
            .max(RESERVE_SEGMENTS * self.geometry.segment_bytes() + self.cleaner_base())
            .max((capacity / SMALL_PART).min(FOLD_RESERVE))
    }

    /// What only the cleaner and checkpoints may start to fill, when so many segments are in use. A store in a file has that much allocated:
    /// while there is little to clean, it is no more than what is in use already.
    fn cleaner_bytes_with(&self, in_use: u64) -> u64 {
        let in_use = in_use.max(CLEANER_LEAST) * self.geometry.segment_bytes();
        self.cleaner_base().min(in_use) + self.spare()
    }

    /// As [`Self::cleaner_bytes_with`], now.
    pub(crate) fn cleaner_bytes(&self) -> u64 {
        let in_use = self.segments.lock().in_use();
        self.cleaner_bytes_with(in_use)
    }

    fn cleaner_base(&self) -> u64 {
        let segments = u64::from(self.geometry.segments);
        let share =
            (segments / CLEANER_PART).max((segments / SMALL_CLEANER_PART).min(SMALL_CLEANER));
        share.clamp(*CLEANER_SEGMENTS.start(), *CLEANER_SEGMENTS.end())
            * self.geometry.segment_bytes()
    }

    /// What is set aside for the pages that lead to the objects there are.
    fn spare(&self) -> u64 {
        (self.objects.load(Ordering::Relaxed).max(0) as u64 * OBJECT_SPARE).min(SPARE_MAX)
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
        let logical = self.geometry.capacity() as i64
            - self.reserve() as i64
            - self.really_live(segments.live()) as i64
            - self.spare() as i64;
        // What the cleaner has in hand comes out of what is set aside for it, and comes back.
        let cleaner = self.cleaner_bytes_with(segments.in_use()) as i64;
        let lent = self.lent.load(Ordering::Relaxed);
        let physical = segments.ready_bytes() as i64 - cleaner + lent.min(cleaner / 2);
        (
            logical - (gathered - moved) - promised - fold,
            physical - gathered - promised - fold,
        )
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
        (
            logical + self.share(purpose),
            physical + self.slack(purpose),
        )
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
        if purpose == Purpose::Frees {
            self.cleaner_bytes() as i64 * 3 / 4
        } else {
            0
        }
    }

    /// Promises the space an operation may need.
    pub(crate) fn promise(&self, cost: Cost) -> Result<(), StoreError> {
        let need = cost.bytes as i64;
        let batch = self.settings().batch_bytes as i64;
        self.budget
            .fetch_sub(self.reader.shared.take_growth(), Ordering::Relaxed);
        if self.mem_pages.load(Ordering::Relaxed) + self.reader.shared.mem_pages() as i64
            > MEM_PAGES
        {
            // Memory is bounded: large directories and maps change many pages before a checkpoint is due.
            self.checkpoint()?;
        }
        if self.gathered.load(Ordering::Relaxed) > 2 * batch {
            // Back-pressure: whoever comes when the open batch is at twice its size writes it.
            self.write_batch()?;
        }
        self.promised.fetch_add(need, Ordering::Relaxed);
        if self.budget.fetch_sub(need, Ordering::Relaxed) >= need || self.has_headroom(cost.purpose)
        {
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
        self.settle_all();
        let enough = |store: &Self| {
            store.refresh_budget();
            let (logical, physical) = store.headroom(purpose);
            logical.min(physical) >= need
        };
        let promised = self.promised.load(Ordering::Relaxed).max(0) as u64;
        self.host_more(
            need as u64 + promised + self.batch_takes() + HOST_STEP + self.cleaner_bytes(),
        );
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
        // So is what a checkpoint takes, and what it writes anew dies. Whoever gives back may need that to clean at all; for others a round
        // is cheaper, unless it is the capacity that refuses them.
        let is_due = match purpose {
            Purpose::Grows => false,
            Purpose::Replaces => self.headroom(purpose).0 < need,
            Purpose::Frees => true,
        };
        if is_due && self.fold_bytes() > self.usage_bytes() {
            self.commit_as(&mut committer, Kind::Checkpoint)?;
            if enough(self) {
                return Ok(());
            }
        }
        // Cleaning makes room to write, not room to keep.
        if self.headroom(purpose).0 < need {
            return Err(StoreError::NoSpace);
        }
        self.clean_for(&mut committer, need, purpose)
    }

    /// Rounds of cleaning until there is enough.
    fn clean_for(
        &self,
        committer: &mut Committer,
        need: i64,
        purpose: Purpose,
    ) -> Result<(), StoreError> {
        // More than is needed is gained at once: the checkpoints after a round cost the same for many victims as for one.
        let want = need as u64 + self.cleaner_bytes();
        let left = if purpose == Purpose::Frees {
            Left::Least
        } else {
            Left::Half
        };
        // Whoever makes the store fuller does not go on for crumbs: one round for each operation would be without end.
        let segment = self.geometry.segment_bytes() as i64;
        let (comfort, little) = if purpose == Purpose::Frees {
            (0, 0)
        } else {
            (segment, segment / 4)
        };
        let (mut best, mut futile) = (self.headroom(purpose).1, 0);
        for round in 0..ROUNDS {
            let is_first = round == 0 && purpose != Purpose::Frees;
            let choice = if is_first {
                Choice::CostBenefit(FULLEST_FIRST)
            } else {
                Choice::Emptiest
            };
            let worked = self.clean_round(Some(&mut *committer), want, choice, left)?;
            let physical = self.headroom(purpose).1;
            if physical >= need + comfort {
                return Ok(());
            }
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
        if self.headroom(purpose).1 >= need {
            return Ok(());
        }
        // What is set aside for cleaning has not helped: it may help who gives back.
        let last = self.available().1 + self.cleaner_bytes() as i64 - self.left(Left::Least) as i64;
        if purpose == Purpose::Frees && last >= need {
            Ok(())
        } else {
            Err(StoreError::NoSpace)
        }
    }

    /// Cleans in the background: one round that is to set this many segments free, moving what is in those at most this full. Says whether
    /// it did anything.
    ///
    /// # Errors
    /// As [`Store::commit`].
    pub fn clean(&self, segments: u64, fullest_percent: u32) -> Result<bool, StoreError> {
        self.writable()?;
        let want = segments * self.geometry.segment_bytes();
        self.clean_round(
            None,
            want,
            Choice::CostBenefit(f64::from(fullest_percent) / 100.0),
            Left::Half,
        )
    }

    /// Before a batch is sealed: its room must be there.
    pub(crate) fn prepare_room(&self, kind: Kind) -> Result<(), StoreError> {
        self.host_again()?;
        let takes = || {
            if kind == Kind::Checkpoint {
                self.batch_takes().min(self.warm_takes())
            } else {
                self.batch_takes()
            }
        };
        let mut need = takes();
        let spare = (2 * self.geometry.segment_bytes())
            .min(SPARE_MAX)
            .max(self.geometry.segment_bytes());
        let mut ready = self.segments.lock().ready_bytes();
        if ready < need + spare {
            self.settle_all();
            need = takes();
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

    /// What files can take together, and what of that can still be written, in bytes.
    pub fn room(&self) -> (u64, u64) {
        (
            self.geometry.capacity() - self.reserve(),
            self.available().0.max(0) as u64,
        )
    }

    /// How full the store is. What can be cleaned counts as free, what the host has no room for does not.
    pub fn space(&self) -> Space {
        let (logical, physical) = self.available();
        let segments = self.segments.lock();
        let (unready, all) = (segments.unready_bytes(), self.geometry.capacity());
        let live = self.really_live(segments.live());
        let free_of_capacity = logical.max(0) as u64;
        let space = Space {
            total: all - self.reserve(),
            free: free_of_capacity,
            free_of_capacity,
            live,
            objects: self.objects.load(Ordering::Relaxed).max(0) as u64,
            free_segments: segments.free_segments() as u64,
            ripening: segments.ripening() as u64,
            segments: u64::from(self.geometry.segments),
            segment_bytes: self.geometry.segment_bytes(),
            before_waiting: physical.max(0) as u64 + unready,
        };
        drop(segments);
        let lacks = self.host_lacks(all.saturating_sub(unready), unready);
        if lacks == 0 {
            return space;
        }
        // What is left of the segments there can be, cleaned, without what is promised already and what the cleaner keeps once they are all
        // in use.
        let cleaner = self.cleaner_bytes_with((all - lacks) / self.geometry.segment_bytes());
        let taken = live as i64 + cleaner as i64 + self.promised.load(Ordering::Relaxed);
        let waiting = self.gathered.load(Ordering::Relaxed) - self.moved.load(Ordering::Relaxed)
            + self.fold_bytes() as i64;
        let within_host = (all - lacks) as i64 - taken - waiting;
        let free = free_of_capacity.min(within_host.max(0) as u64);
        Space {
            free,
            before_waiting: space.before_waiting.saturating_sub(lacks),
            ..space
        }
    }
}
