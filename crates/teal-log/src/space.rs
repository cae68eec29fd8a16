//! Space that is promised before it is needed.
//!
//! # Invariants
//! 1. What is promised to the operations of the open batch, plus what folding the changed pages takes, fits the segments that can be
//!    written now without cleaning, with the cleaner's segments to spare.
//! 2. A segment of a sparse store counts only after its host has allocated it.
//! 3. A share of the capacity is set aside, so that on a full store cleaning works and files can be deleted.

use crate::commit::{Committer, Kind};
use crate::counters::add;
use crate::error::StoreError;
use crate::geometry::Segment;
use crate::op::{Cost, Purpose};
use crate::store::{Space, Store};
use std::sync::atomic::Ordering;

/// Segments that only the cleaner and checkpoints may start: one in this many, within bounds. The more, the more one round can move.
const CLEANER_PART: u64 = 8;
const CLEANER_SEGMENTS: std::ops::RangeInclusive<u64> = 6..=12;
/// One part in this many of the capacity is set aside.
const RESERVE_PART: u64 = 10;
/// A checkpoint must always find room for all the pages that memory may hold, twice; a small store has fewer.
const FOLD_RESERVE: u64 = 16 << 20;
const SMALL_PART: u64 = 4;
/// Fewest segments set aside, beyond the cleaner's.
const RESERVE_SEGMENTS: u64 = 6;
/// The host is asked for this much more than is needed, so that it is asked rarely.
const HOST_STEP: u64 = 64 << 20;
/// A batch is committed at the latest when it has been promised this many times its usual size: promises are worst cases.
const PROMISED_BATCHES: u64 = 16;
/// Changed pages that memory may hold before a checkpoint must fold them: 8 MiB on the disk, about twice that in memory.
const MEM_PAGES: i64 = 2048;
/// A page at its largest.
const PAGE: u64 = 4096;
/// What the ends of runs and records may waste in one batch.
const BATCH_MARGIN: u64 = 64 << 10;
/// Segments gained beyond what is needed, if a few rounds are enough for that.
const SPARE_SEGMENTS: i64 = 4;
/// Rounds for them.
const EASY_ROUNDS: usize = 4;
/// A fuller segment gives nothing back when it is moved: what describes small records takes a tenth of it and does not count as live.
const FULLEST_WORTH: f64 = 0.8;
/// Rounds of cleaning that one operation waits for at most.
const ROUNDS: usize = 64;
/// Victims cleaned before two checkpoints set them free.
const CLEAN_ROUND: usize = 8;

impl Store {
    fn reserve(&self) -> u64 {
        let capacity = self.geometry.capacity();
        (capacity / RESERVE_PART)
            .max(RESERVE_SEGMENTS * self.geometry.segment_bytes() + self.cleaner_bytes())
            .max((capacity / SMALL_PART).min(FOLD_RESERVE))
    }

    /// What only the cleaner and checkpoints may start to fill.
    fn cleaner_bytes(&self) -> u64 {
        let share = u64::from(self.geometry.segments) / CLEANER_PART;
        share.clamp(*CLEANER_SEGMENTS.start(), *CLEANER_SEGMENTS.end()) * self.geometry.segment_bytes()
    }

    /// What a checkpoint would write, at most.
    fn fold_bytes(&self) -> u64 {
        let objects: Vec<_> = self.unfolded.lock().values().cloned().collect();
        let pages: u64 = objects.iter().map(|o| o.state.read().mem_pages() as u64).sum();
        let imap = self.imap.read();
        // Changes of neighbours share a page of a hundred items; a path above it is counted with the tree's own pages.
        let spread = imap.changed_leaves();
        let leaves = (self.objects.load(Ordering::Relaxed).max(0) as u64 / 50 + 8).min(spread + 4);
        let usage = u64::from(self.geometry.segments) / 50 + 4;
        (pages + objects.len() as u64 / 2 + imap.tree.mem_pages() as u64 + leaves + usage) * PAGE
    }

    /// Pages that only memory holds; the daemon checkpoints when they are many.
    pub fn unfolded_bytes(&self) -> u64 {
        self.fold_bytes()
    }

    fn available(&self) -> (i64, i64) {
        let segments = self.segments.lock();
        let logical = self.geometry.capacity() as i64 - self.reserve() as i64 - segments.live() as i64;
        let physical = segments.ready_bytes() as i64 - self.cleaner_bytes() as i64;
        (logical, physical)
    }

    pub(crate) fn refresh_budget(&self) -> i64 {
        let (logical, physical) = self.available();
        let budget = logical.min(physical) - self.fold_bytes() as i64 - self.promised.load(Ordering::Relaxed);
        self.budget.store(budget, Ordering::Relaxed);
        budget
    }

    /// What may still be promised for a purpose. Giving back and overwriting may use a part of the reserve of the capacity, but of what can
    /// be written now only half a segment: the cleaner's other ones are the way out when all is full.
    fn headroom(&self, purpose: Purpose) -> (i64, i64) {
        let (logical, physical) = self.available();
        let taken = self.fold_bytes() as i64 + self.promised.load(Ordering::Relaxed);
        (logical + self.share(purpose) - taken, physical + self.slack(purpose) - taken)
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
        if purpose == Purpose::Frees { self.geometry.segment_bytes() as i64 / 2 } else { 0 }
    }

    /// Promises the space an operation may need.
    pub(crate) fn promise(&self, cost: Cost) -> Result<(), StoreError> {
        let need = cost.bytes as i64;
        let slack = self.slack(cost.purpose);
        let batch = self.settings().batch_bytes;
        let gathered = self.gathered.load(Ordering::Relaxed) > 2 * batch;
        if self.mem_pages.load(Ordering::Relaxed) > MEM_PAGES {
            // Memory is bounded: large directories and maps change many pages before a checkpoint is due.
            self.checkpoint()?;
        }
        if gathered || self.promised.load(Ordering::Relaxed) > (PROMISED_BATCHES * batch) as i64 {
            // Back-pressure: whoever comes when the open batch is at twice its size commits it.
            self.commit()?;
        }
        if self.budget.fetch_sub(need, Ordering::Relaxed) + slack < need {
            self.budget.fetch_add(need, Ordering::Relaxed);
            self.make_room(need, cost.purpose)?;
            self.budget.fetch_sub(need, Ordering::Relaxed);
        }
        self.promised.fetch_add(need, Ordering::Relaxed);
        Ok(())
    }

    /// Asks the host, then the log itself, for room.
    fn make_room(&self, need: i64, purpose: Purpose) -> Result<(), StoreError> {
        let mut committer = self.commit.lock();
        self.writable()?;
        add(&self.reader.counters.waits, 1);
        self.host_again()?;
        let enough = |store: &Self| {
            store.refresh_budget();
            let (logical, physical) = store.headroom(purpose);
            logical.min(physical) >= need
        };
        let promised = self.promised.load(Ordering::Relaxed).max(0) as u64;
        self.host_more(need as u64 + promised + self.fold_bytes() + HOST_STEP + 16 * self.geometry.segment_bytes());
        if enough(self) {
            return Ok(());
        }
        if self.is_dirty() {
            self.commit_as(&mut committer, Kind::Batch)?;
            if enough(self) {
                return Ok(());
            }
        }
        if committer.log_bytes > 0 {
            self.commit_as(&mut committer, Kind::Checkpoint)?;
            if enough(self) {
                return Ok(());
            }
        }
        // Cleaning makes room to write, not room to keep.
        if self.headroom(purpose).0 < need {
            return Err(StoreError::NoSpace);
        }
        // The fuller the segments, the less a round gains. A little more than is needed is gained at once, so that the next operation does
        // not begin all over again; but only while that is easy.
        let spare = SPARE_SEGMENTS * self.geometry.segment_bytes() as i64;
        for round in 0..ROUNDS {
            let worked = self.reclaim(&mut committer, FULLEST_WORTH, true)?;
            let ahead = if round < EASY_ROUNDS { spare } else { 0 };
            self.refresh_budget();
            let (logical, physical) = self.headroom(purpose);
            if logical >= need && physical >= need + ahead {
                return Ok(());
            }
            if !worked {
                break;
            }
        }
        if enough(self) {
            return Ok(());
        }
        Err(StoreError::NoSpace)
    }

    /// One round of cleaning, then checkpoints until what it emptied is free. Says whether there was anything to do.
    pub(crate) fn reclaim(&self, committer: &mut Committer, fullest: f64, urgent: bool) -> Result<bool, StoreError> {
        let mut worked = false;
        for _ in 0..CLEAN_ROUND {
            // The moves themselves take room, and so do the pages they change; a segment is left for each checkpoint after them. The
            // first move may take one of those: on a full store it is the way out.
            let left = if worked { 3 } else { 2 };
            let taken = self.promised.load(Ordering::Relaxed).max(0) as u64 + self.fold_bytes();
            let ready = self.segments.lock().ready_bytes();
            let fits = taken + left * self.geometry.segment_bytes() <= ready;
            if !fits || self.segments.lock().ripening() >= CLEAN_ROUND || !self.clean_one(fullest, urgent)? {
                break;
            }
            worked = true;
            if self.promised.load(Ordering::Relaxed) >= self.settings().batch_bytes as i64 {
                self.commit_as(committer, Kind::Batch)?;
            }
        }
        for _ in 0..3 {
            if self.segments.lock().ripening() == 0 {
                break;
            }
            self.commit_as(committer, Kind::Checkpoint)?;
            worked = true;
        }
        self.refresh_budget();
        Ok(worked)
    }

    /// Lets the host allocate free segments until this much is ready; says so in the log when the host is full.
    fn host_more(&self, bytes: u64) {
        loop {
            let next = {
                let segments = self.segments.lock();
                if segments.ready_bytes() >= bytes { None } else { segments.next_free(false) }
            };
            let Some(segment) = next else { break };
            let run = self.geometry.whole(segment);
            if let Err(e) = self.reader.disk().allocate(run.addr, u64::from(run.sectors)) {
                log::warn!("the file system that holds the store has no room for more of it: {e}");
                break;
            }
            let mut segments = self.segments.lock();
            segments.set_ready(segment);
            segments.refill();
        }
    }

    /// Before the first write of an opening: the host must hold what the last one used.
    fn host_again(&self) -> Result<(), StoreError> {
        let doubtful = self.segments.lock().doubtful.clone();
        for segment in doubtful {
            let run = self.geometry.whole(Segment(segment));
            if let Err(e) = self.reader.disk().allocate(run.addr, u64::from(run.sectors)) {
                log::warn!("the file system that holds the store has no room for what the store uses: {e}");
                return Err(StoreError::NoSpace);
            }
            self.segments.lock().doubtful.remove(&segment);
        }
        Ok(())
    }

    /// Before a batch is sealed: its room must be there.
    pub(crate) fn prepare_room(&self) -> Result<(), StoreError> {
        self.host_again()?;
        let promised = self.promised.load(Ordering::Relaxed).max(0) as u64;
        let need = promised + self.fold_bytes() + 2 * self.geometry.segment_bytes();
        let mut ready = self.segments.lock().ready_bytes();
        if ready < need {
            self.host_more(need);
            ready = self.segments.lock().ready_bytes();
        }
        // Two segments to spare would be good; without them the batch itself and its last record's successor must fit.
        if ready < need - 2 * self.geometry.segment_bytes() + BATCH_MARGIN {
            log::error!("no room for a batch: {ready} bytes are ready, {promised} promised, {need} needed");
            return Err(StoreError::NoSpace);
        }
        Ok(())
    }

    /// How full the store is. What can be cleaned counts as free.
    pub fn space(&self) -> Space {
        let (logical, _) = self.available();
        let segments = self.segments.lock();
        let promised = self.promised.load(Ordering::Relaxed).max(0);
        Space {
            total: self.geometry.capacity() - self.reserve(),
            free: (logical - promised).max(0) as u64,
            live: segments.live(),
            objects: self.objects.load(Ordering::Relaxed).max(0) as u64,
            free_segments: segments.free_segments() as u64,
            segments: u64::from(self.geometry.segments),
        }
    }
}
