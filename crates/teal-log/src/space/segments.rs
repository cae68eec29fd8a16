//! The segment table: the segments in use, and those that may be written next.
//!
//! # Invariants
//! 1. A segment with bytes that became dead, or which was written, in checkpoint interval *k* is
//!    reused only when checkpoint *k + 2* is durable: so the newest anchor may be lost, and the one
//!    before still finds everything it and its roll-forward need.
//! 2. The head's run and its successor (`next_b`) are never free.
//! 3. A free segment is *ready* once its host has allocated it; only ready segments are written.
//! 4. The sets (`free`, `unready`, `dead`) and sums follow the table at every change, so that no
//!    commit looks at all segments.
//! 5. `live` is exactly what the newest state refers to: content, inode records, pages. `check`
//!    recounts it.

mod check;
mod copies;
mod head;
pub(crate) mod victims;

pub(crate) use self::copies::APART;
pub(crate) use self::head::LogHead;

use crate::error::StoreError;
use crate::format::delta::{CheckpointRoots, CopyPosition};
use crate::format::geometry::{Geometry, Segment};
use crate::format::usage::SegmentUse;
use crate::seeded::{Bug, bug};
use std::collections::BTreeSet;
use teal_types::{Lsn, SECTOR, Sector};

/// Content that became shared counts so often at most: as shared content, and as content of the
/// file that had it, until that is brought up to date after a crash.
const COUNTED_MOST: u64 = 2;
const DAMAGED: StoreError = StoreError::Corrupt {
    what: "the usage table",
    at: 0,
    object: None,
};

#[derive(Debug)]
pub(crate) struct SegmentTable {
    geometry: Geometry,
    table: Vec<SegmentUse>,
    /// Not in use and ready; the head's successor among them.
    free: BTreeSet<u32>,
    free_bytes: u64,
    /// Not in use, and not allocated by the host yet as far as is known.
    unready: BTreeSet<u32>,
    /// In use, but nothing in it lives.
    dead: BTreeSet<u32>,
    changed: BTreeSet<u32>,
    head: LogHead,
    /// The head as the last record's header names it: recovery looks nowhere else.
    named: LogHead,
    live: u64,
    /// Is true once a change contradicted the counts, which happens in a damaged store only.
    contradictory: bool,
    /// The checkpoint that began the present interval.
    interval: u64,
    /// Segments that the host may not have allocated: this opening has not made sure of them.
    doubtful: BTreeSet<u32>,
    /// Segments that the cleaner found unreadable; they are never picked again while mounted.
    bad: BTreeSet<u32>,
    /// Segments cleaned since the last checkpoint.
    moving: BTreeSet<u32>,
    /// Where further second copies of pages go.
    copies: Option<CopyPosition>,
}

impl SegmentTable {
    pub(crate) fn new(geometry: Geometry, sparse: bool) -> Self {
        // No segment of a sparse host is known to be allocated.
        let all: BTreeSet<u32> = (0..geometry.segments).collect();
        let (free, unready) = if sparse {
            (BTreeSet::new(), all)
        } else {
            (all, BTreeSet::new())
        };
        Self {
            geometry,
            table: vec![SegmentUse::default(); geometry.segments as usize],
            free_bytes: if sparse { 0 } else { geometry.capacity() },
            free,
            unready,
            dead: BTreeSet::new(),
            changed: BTreeSet::new(),
            head: LogHead::default(),
            named: LogHead::default(),
            live: 0,
            contradictory: false,
            interval: 0,
            doubtful: BTreeSet::new(),
            bad: BTreeSet::new(),
            moving: BTreeSet::new(),
            copies: None,
        }
    }

    /// Returns the alignment of records, in sectors.
    pub(crate) fn align(&self) -> u64 {
        self.geometry.align
    }

    /// Returns the bytes of a segment.
    pub(crate) fn segment_bytes(&self) -> u64 {
        self.geometry.segment_bytes()
    }

    /// Begins the interval of a checkpoint: segments cleaned in the one before may be picked again.
    pub(crate) fn begin_interval(&mut self, checkpoint: u64) {
        self.interval = checkpoint;
        // Segments may be picked again in a new interval.
        self.moving.clear();
    }

    /// Takes over the interval that was running when the store was written last.
    pub(crate) fn restore_interval(&mut self, checkpoint: u64) {
        self.interval = checkpoint;
    }

    /// Returns the segments that the host may not have allocated: this opening has not made sure of
    /// them.
    pub(crate) fn doubtful(&self) -> &BTreeSet<u32> {
        &self.doubtful
    }

    /// Notes the segments that a sparse store's host may not have allocated, although the log uses
    /// them.
    pub(crate) fn set_doubtful(&mut self, segments: BTreeSet<u32>) {
        self.doubtful = segments;
    }

    /// Notes that the host has allocated a segment that was doubtful.
    pub(crate) fn is_allocated(&mut self, segment: Segment) {
        self.doubtful.remove(&segment.0);
    }

    /// Leaves a segment alone from now on: the cleaner could not read it.
    pub(crate) fn set_unreadable(&mut self, segment: Segment) {
        self.bad.insert(segment.0);
    }

    /// Notes that the cleaner relocates what lives in a segment: it is not picked again before the
    /// next checkpoint.
    pub(crate) fn set_cleaning(&mut self, segment: Segment) {
        self.moving.insert(segment.0);
    }

    /// Takes over an item read from the usage tree or a checkpoint's overrides; `None` when no
    /// store says such a thing. An item may count more live bytes than its segment is long:
    /// [`check_lengths`](Self::check_lengths) tells whether it may once the log has been read.
    pub(crate) fn restore_item(&mut self, segment: u32, usage: SegmentUse) -> Option<()> {
        let most = self.geometry.segment_bytes();
        let slot = self.table.get_mut(segment as usize)?;
        // Larger sums cannot come from this program.
        if u64::from(usage.live) + u64::from(usage.retained) > COUNTED_MOST * most
            || u64::from(usage.first) * SECTOR > most
        {
            return None;
        }
        debug_assert!(self.live >= u64::from(slot.live));
        self.live = self.live - u64::from(slot.live) + u64::from(usage.live);
        *slot = usage;
        self.sort_into_sets(segment);
        Some(())
    }

    pub(crate) fn get(&self, segment: Segment) -> &SegmentUse {
        &self.table[segment.0 as usize]
    }

    pub(crate) fn all_segments(&self) -> impl Iterator<Item = (Segment, &SegmentUse)> {
        self.table
            .iter()
            .enumerate()
            .map(|(i, u)| (Segment(i as u32), u))
    }

    /// Returns the bytes that the newest state refers to.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.live
    }

    fn edit_item(&mut self, segment: Segment, change: impl FnOnce(&mut SegmentUse)) {
        // The item is written with the next checkpoint.
        self.changed.insert(segment.0);
        change(&mut self.table[segment.0 as usize]);
        self.sort_into_sets(segment.0);
    }

    /// Puts a segment into the set its table item says it belongs to.
    fn sort_into_sets(&mut self, segment: u32) {
        let usage = self.table[segment as usize];
        let bytes = self.geometry.usable_bytes(Segment(segment));
        // A used segment is in no set of free ones.
        if usage.used {
            self.unready.remove(&segment);
            self.free_bytes -= if self.free.remove(&segment) { bytes } else { 0 };
        } else if !self.unready.contains(&segment) {
            self.free_bytes += if self.free.insert(segment) { bytes } else { 0 };
        }
        // A segment in which nothing lives waits for two checkpoints.
        if usage.used && usage.live == 0 && usage.retained == 0 {
            self.dead.insert(segment);
        } else {
            self.dead.remove(&segment);
        }
    }

    /// Counts `bytes` at a device byte address, written first by the operation `born`, as live.
    pub(crate) fn add_live(&mut self, byte: u64, bytes: u64, born: Lsn) {
        // Redoing a batch counts what stays twice for a moment, so that only a sum that overflows
        // is too much.
        let more = |s: Segment| {
            u64::from(self.get(s).live)
                .checked_add(bytes)
                .and_then(|live| u32::try_from(live).ok())
        };
        let found = self
            .geometry
            .segment_of(Sector::new(byte / SECTOR))
            .and_then(|s| Some((s, more(s)?)));
        let Some((segment, live)) = found else {
            // An address outside of the log: the store is damaged, or the program is.
            return self.contradictory = true;
        };
        self.edit_item(segment, |u| {
            u.live = live;
            u.born = u.born.max(born);
        });
        self.live += bytes;
    }

    /// Counts `bytes` at a device byte address as dead.
    pub(crate) fn add_dead(&mut self, byte: u64, bytes: u64) {
        let at = self.geometry.segment_of(Sector::new(byte / SECTOR));
        // More dead bytes than live ones: the counts disagree.
        let segment = at.filter(|s| u64::from(self.get(*s).live) >= bytes);
        let Some(segment) = segment else {
            return self.contradictory = true;
        };
        let interval = self.interval;
        self.edit_item(segment, |u| {
            u.live -= bytes as u32;
            u.touched = u.touched.max(interval);
        });
        self.live -= bytes;
    }

    /// Notes that another table contradicts this one.
    pub(crate) fn mark_contradictory(&mut self) {
        self.contradictory = true;
    }

    /// Checks whether all that was said to live or to have died could be so. If not, the store
    /// refers to the same place twice or to a place outside of all segments, and nothing may be
    /// written by this table.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`].
    pub(crate) fn check_sound(&self) -> Result<(), StoreError> {
        // Writing would spread the damage.
        if self.contradictory {
            Err(DAMAGED)
        } else {
            Ok(())
        }
    }

    /// Checks that no segment holds more than it is long, but for what changes that wait to be
    /// redone will give back: `surplus` bytes.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`]: the table is not that of this store.
    pub(crate) fn check_lengths(&self, surplus: u64) -> Result<(), StoreError> {
        let most = self.geometry.segment_bytes() + surplus;
        let held = |usage: &SegmentUse| u64::from(usage.live) + u64::from(usage.retained);
        if self.table.iter().all(|usage| held(usage) <= most) {
            Ok(())
        } else {
            Err(DAMAGED)
        }
    }

    /// Forgets what a usage table that could not know says of a segment that the log now enters: it
    /// was free.
    pub(crate) fn start_anew(&mut self, at: Sector) {
        if let Some(segment) = self.geometry.segment_of(at)
            // Segments with live content keep their chain.
            && self.table[segment.0 as usize].live == 0
        {
            self.edit_item(segment, |u| *u = SegmentUse::default());
        }
    }

    /// Records that a record with this number starts at `at`. Returns whether it is the first of
    /// its segment.
    pub(crate) fn enter_segment(&mut self, at: Sector, seq: u64) -> bool {
        let segment = self
            .geometry
            .segment_of(at)
            .expect("records lie in segments");
        debug_assert!(at >= self.geometry.whole_run(segment).addr);
        let first = (at.get() - self.geometry.whole_run(segment).addr.get()) as u32;
        let interval = self.interval;
        // The first record of a segment starts the chain that the cleaner follows.
        let is_first = !self.get(segment).used;
        self.edit_item(segment, |u| {
            if is_first {
                *u = SegmentUse {
                    used: true,
                    first,
                    first_seq: seq,
                    ..*u
                };
            }
            u.touched = interval;
        });
        is_first
    }

    pub(crate) fn set_ready(&mut self, segment: Segment) {
        self.unready.remove(&segment.0);
        self.sort_into_sets(segment.0);
    }

    /// Frees what may be reused now that checkpoint `durable` is.
    pub(crate) fn free_ripe(&mut self, durable: u64) {
        let is_ripe = |s: &Segment| {
            // The newest anchor may be lost: the one before it still needs these segments.
            (self.table[s.0 as usize].touched + 2 <= durable || bug(Bug::ReuseAtOnce))
                && !self.is_reserved(*s)
        };
        let ripe: Vec<_> = self
            .dead
            .iter()
            .map(|s| Segment(*s))
            .filter(is_ripe)
            .collect();
        debug_assert!(ripe.iter().all(|s| self.table[s.0 as usize].live == 0));
        for segment in &ripe {
            self.edit_item(*segment, |u| *u = SegmentUse::default());
        }
    }

    /// Returns the segments that will be free once two more checkpoints are durable, without any
    /// cleaning.
    pub(crate) fn ripening_segments(&self) -> usize {
        self.dead.len()
            - self
                .head_segments()
                .filter(|s| self.dead.contains(&s.0))
                .count()
    }

    /// Returns the bytes that can be written without cleaning or asking the host.
    pub(crate) fn ready_bytes(&self) -> u64 {
        // Nothing may be written before the host has allocated these.
        if !self.doubtful.is_empty() {
            return 0;
        }
        let head = u64::from(self.head.a.sectors) + u64::from(self.head.b.sectors);
        let taken = self
            .head_segments()
            .filter(|s| self.free.contains(&s.0))
            .map(|s| self.geometry.usable_bytes(s));
        head * SECTOR + self.free_bytes - taken.sum::<u64>()
    }

    /// Returns the bytes that are free once the host has allocated them.
    pub(crate) fn unready_bytes(&self) -> u64 {
        self.unready.len() as u64 * self.geometry.segment_bytes()
    }

    /// Returns the number of segments that hold something, the head's among them.
    pub(crate) fn in_use(&self) -> u64 {
        u64::from(self.geometry.segments) - (self.free.len() + self.unready.len()) as u64
    }

    /// Returns the number of free segments, ready or not.
    pub(crate) fn free_segments(&self) -> usize {
        let reserved = self
            .head_segments()
            .filter(|s| !self.table[s.0 as usize].used)
            .count();
        self.free.len() + self.unready.len() - reserved
    }

    /// Takes the segments changed since the last call.
    pub(crate) fn take_changed(&mut self) -> BTreeSet<u32> {
        std::mem::take(&mut self.changed)
    }

    pub(crate) fn changed_segments(&self) -> &BTreeSet<u32> {
        &self.changed
    }

    /// Puts segments back among the changed ones.
    pub(crate) fn put_changed(&mut self, changed: BTreeSet<u32>) {
        self.changed.extend(changed);
    }

    /// Takes over what a checkpoint's usage tree could not know; it stays changed until the next
    /// one.
    pub(crate) fn apply_overrides(&mut self, roots: &CheckpointRoots) -> Option<()> {
        // These items are newer than the usage tree.
        self.changed
            .extend(roots.overrides.iter().map(|(segment, _)| *segment));
        roots
            .overrides
            .iter()
            .try_for_each(|(segment, usage)| self.restore_item(*segment, *usage))?;
        self.restore_copies(roots.copies)
    }
}
