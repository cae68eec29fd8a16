//! Collection: what no metadata names any more goes, and its space with it.
//!
//! A collection is begun, told every live chunk, and then sweeps pack by pack. A pack in which
//! nothing lives is removed. One less than half alive, or one of many small ones, is rewritten:
//! what lives is put into a new pack, durably; then the index points there; then the old pack is
//! removed.
//!
//! # Guarantees
//! 1. *Kept*: what is live, pinned at any time since the beginning, or in a pack younger than the
//!    grace or the collection stays, and what somebody was told within the grace to be here.
//! 2. *A crash is harmless*: at any point each live chunk is in some durable pack. A chunk in two
//!    packs after a crash is dead weight in one of them; a removed pack that is back is found and
//!    collected again.
//! 3. *Resumable*: every step stands for itself. A collection that is dropped, or whose process
//!    ends, has done what its steps did; the next one goes on with the packs that are left, with
//!    marks of its own, since what is live has changed.
//! 4. *Bounded*: marks are bits of the index; beside them there are eight bytes for each pack, and
//!    one pack being written.
//! 5. *Damage is kept*: a pack in which something is damaged is reported and stays.
//!
//! [`ChunkStore::merge`] is a collection that needs to be told nothing: whatever is in many small
//! packs, dead or alive, is put into fewer.
//!
//! Live chunks are those that metadata names *after* [`ChunkStore::collect`] has returned: what is
//! committed later was pinned meanwhile.

use crate::error::ChunkError;
use crate::format::{PackId, chunk, table};
use crate::index::{ChunkIdPrefix, PackSlot};
use crate::limits::PROBLEMS_MAX;
use crate::seeded::{Bug, bug};
use crate::store::ChunkStore;
use crate::tables::ChunkTables;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use teal_types::ChunkId;

mod sweep;

/// Chunks marked under one lock.
const MARK_BATCH: usize = 1024;
/// Small packs, of less than a quarter of the target, are merged when there are so many: each merge
/// leaves at most a quarter of them.
const SMALL_PACKS_MIN: usize = 8;
/// Small packs of about the same size are merged when there are so many.
const SCATTERED_PACKS_MIN: usize = 16;
/// Sizes that differ by less than so many bits are about the same.
const SIZE_BITS: u32 = 3;

/// What a collection has done and found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CollectionReport {
    /// Packs removed because nothing lived in them.
    pub dead_packs: usize,
    /// Packs removed after what lived in them had been moved.
    pub rewritten_packs: usize,
    /// Packs written for what has been moved.
    pub new_packs: usize,
    /// Chunks moved.
    pub moved: usize,
    /// Bytes of removed packs minus bytes of new ones.
    pub freed: i64,
    /// Packs that stay because something in them is damaged.
    pub damaged: Vec<PackId>,
    /// Packs that should have been rewritten, but there was no room for it.
    pub without_room: usize,
    /// Live chunks that are not in the store: clients that have them should send them; at most
    /// [`PROBLEMS_MAX`](crate::PROBLEMS_MAX) are listed.
    pub missing: Vec<ChunkId>,
    /// How many live chunks are not in the store.
    pub missing_count: usize,
}

/// What a sweep keeps of the packs it takes up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RetentionRule {
    /// Whatever is in them.
    Everything,
    /// What is marked; packs that are young after this time are left alone.
    Marked(Duration),
}

/// Ends the collection when dropped.
struct CollectionGuard(ChunkStore);

impl Drop for CollectionGuard {
    fn drop(&mut self) {
        self.0.0.state.write().collecting = false;
    }
}

/// A collection that is being told what lives.
pub struct MarkPhase {
    running: CollectionGuard,
    /// Packs in which something was put, or said to be, after this time stay.
    since: Duration,
    /// Packs from this order on came after the beginning.
    until: u64,
    report: CollectionReport,
}

/// A collection that removes what is dead.
pub struct SweepPhase {
    running: CollectionGuard,
    todo: VecDeque<PackSlot>,
    keeps: RetentionRule,
    report: CollectionReport,
}

impl ChunkStore {
    /// Begins a collection. Packs first seen by this process less than `grace` ago stay: the time
    /// in which a client may still name what it has sent.
    ///
    /// # Errors
    /// [`ChunkError::Collecting`], [`ChunkError::ReadOnly`].
    pub fn begin_collection(&self, grace: Duration) -> Result<MarkPhase, ChunkError> {
        // What came at the end of the grace may go.
        let since = self.now().checked_sub(grace);
        self.begin_collection_before(since)
    }

    /// The same: packs in which something was put, or said to be here, after `since` stay. `None`:
    /// all of them.
    ///
    /// # Errors
    /// As [`collect`](Self::collect).
    pub fn begin_collection_before(
        &self,
        since: Option<Duration>,
    ) -> Result<MarkPhase, ChunkError> {
        self.check_writable()?;
        let mut state = self.0.state.write();
        if state.collecting {
            return Err(ChunkError::Collecting);
        }
        state.collecting = true;
        state.index.values_mut().for_each(|known| known.unmark());
        let pinned: Vec<ChunkIdPrefix> = state.pins.iter().copied().collect();
        for half in pinned
            .iter()
            .filter(|_| !bug(Bug::PinNotMarked) && !bug(Bug::PinsIgnored))
        {
            state
                .index
                .get_mut(half)
                .into_iter()
                .for_each(|known| known.mark());
        }
        // Within the grace since the very beginning nothing is old.
        let until = if since.is_some() || bug(Bug::GraceIgnored) {
            state.packs.next_order()
        } else {
            0
        };
        drop(state);
        let since = since.unwrap_or_default();
        Ok(MarkPhase {
            running: CollectionGuard(self.clone()),
            since,
            until,
            report: CollectionReport::default(),
        })
    }

    /// Returns whether there are so many small packs that a merge would leave fewer.
    pub fn is_scattered(&self) -> bool {
        !scattered_packs(&self.0.state.read(), self.0.pack_target).is_empty()
    }

    /// Begins to put the content of many small packs into fewer; nothing of it is lost, whether
    /// anybody names it or not.
    ///
    /// # Errors
    /// [`ChunkError::Collecting`], [`ChunkError::ReadOnly`].
    pub fn begin_merge(&self) -> Result<SweepPhase, ChunkError> {
        self.check_writable()?;
        let mut state = self.0.state.write();
        if state.collecting {
            return Err(ChunkError::Collecting);
        }
        state.collecting = true;
        let todo = scattered_packs(&state, self.0.pack_target);
        drop(state);
        Ok(SweepPhase {
            running: CollectionGuard(self.clone()),
            todo,
            keeps: RetentionRule::Everything,
            report: CollectionReport::default(),
        })
    }
}

impl MarkPhase {
    /// These chunks live.
    pub fn mark_live(&mut self, live: impl IntoIterator<Item = ChunkId>) {
        let mut live = live.into_iter();
        loop {
            let some: Vec<ChunkId> = live.by_ref().take(MARK_BATCH).collect();
            if some.is_empty() {
                return;
            }
            let mut state = self.running.0.0.state.write();
            for chunk in some {
                match state.index.get_mut(&ChunkIdPrefix::from_id(&chunk)) {
                    Some(known) => known.mark(),
                    None => {
                        self.report.missing_count += 1;
                        if self.report.missing.len() < PROBLEMS_MAX {
                            self.report.missing.push(chunk);
                        }
                    }
                }
            }
        }
    }

    /// Every live chunk has been marked: what is not is dead. Plans what to do; nothing is removed
    /// yet.
    pub fn begin_sweep(self) -> SweepPhase {
        let Self {
            running,
            since,
            until,
            report,
        } = self;
        let todo = plan_sweep(&running.0, since, until);
        SweepPhase {
            running,
            todo,
            keeps: RetentionRule::Marked(since),
            report,
        }
    }
}

/// The packs worth a step: dead ones, then the least alive, then small ones if there are many.
fn plan_sweep(store: &ChunkStore, since: Duration, until: u64) -> VecDeque<PackSlot> {
    let state = store.0.state.read();
    let mut live = vec![0_u64; state.packs.slot_count()];
    for (half, known) in state.index.iter() {
        if known.is_marked() || state.pins.contains(half) {
            let place = known.place();
            live[place.slot.0 as usize] +=
                chunk::BYTES as u64 + u64::from(place.stored) + table::ROW as u64;
        }
    }
    let (mut worst, mut small) = (Vec::new(), Vec::new());
    for (slot, pack) in state
        .packs
        .inserted_before(until)
        .filter(|(_, pack)| pack.whole)
    {
        if state.packs.is_young(slot, since) && !bug(Bug::GraceIgnored) {
            continue;
        }
        let live = live[slot.0 as usize];
        if live * 2 < pack.bytes {
            worst.push((live * 1000 / pack.bytes.max(1), pack.id, slot));
        } else if pack.bytes < store.0.pack_target as u64 / 4 {
            small.push((pack.bytes, pack.id, slot));
        }
    }
    if small.len() < SMALL_PACKS_MIN {
        small.clear();
    }
    worst.sort_unstable();
    small.sort_unstable();
    worst
        .into_iter()
        .chain(small)
        .map(|(_, _, slot)| slot)
        .collect()
}

/// The small packs of which there are many of about the same size, the smallest first. Only those
/// of one size are merged, so that what is merged once is not written again with each small pack
/// that comes.
fn scattered_packs(state: &ChunkTables, target: usize) -> VecDeque<PackSlot> {
    let mut of_size: BTreeMap<u32, Vec<(u64, PackId, PackSlot)>> = BTreeMap::new();
    let small = target as u64 / 4;
    for (slot, pack) in state
        .packs
        .iter()
        .filter(|(_, pack)| pack.whole && pack.bytes < small)
    {
        let size = u64::BITS - pack.bytes.leading_zeros();
        of_size
            .entry(size / SIZE_BITS)
            .or_default()
            .push((pack.bytes, pack.id, slot));
    }
    let mut many: Vec<_> = of_size
        .into_values()
        .filter(|packs| packs.len() >= SCATTERED_PACKS_MIN)
        .flatten()
        .collect();
    many.sort_unstable();
    many.into_iter().map(|(_, _, slot)| slot).collect()
}

impl std::fmt::Debug for MarkPhase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Marking")
            .field("since", &self.since)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for SweepPhase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sweep")
            .field("left", &self.todo.len())
            .field("report", &self.report)
            .finish_non_exhaustive()
    }
}
