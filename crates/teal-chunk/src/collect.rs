//! Collection: chunks that no metadata names any more go, and their space with them.
//!
//! A collection is begun, told every live chunk (marking), and then goes on pack by pack
//! (sweeping). A pack without live chunks is removed. One less than half alive, or one of many
//! small ones, is rewritten: its live chunks are put into a new pack, durably; then the index
//! points there; then the old pack is removed.
//!
//! # Guarantees
//! 1. *Kept*: a chunk stays that is live, that was pinned at any time since the beginning, that is
//!    in a pack younger than the grace or the collection, or that a client was told within the
//!    grace to be here.
//! 2. *A crash is harmless*: at any point each live chunk is in some durable pack. A chunk in two
//!    packs after a crash is dead weight in one of them; a removed pack that is back is found and
//!    collected again.
//! 3. *Resumable*: every step stands for itself. A collection that is dropped, or ends with its
//!    process, has done the work of its steps; the next one goes on with the packs that are left,
//!    with marks of its own, since other chunks may be live by then.
//! 4. *Bounded*: marks are bits of the index; beside them there are eight bytes for each pack, and
//!    one pack being written.
//! 5. *Damage is kept*: a pack in which something is damaged is reported and stays.
//!
//! [`ChunkStore::begin_merge`] begins a collection without marking: the content of many small
//! packs, dead or alive, is put into fewer.
//!
//! Live chunks are those that metadata names *after* [`ChunkStore::begin_collection`] has returned:
//! chunks of later commits were pinned meanwhile.

use crate::error::ChunkError;
use crate::format::{PackId, chunk, table};
use crate::index::{ChunkIdPrefix, PackSlot};
use crate::limits::PROBLEMS_MAX;
use crate::seeded::{ChunkBug, bug};
use crate::store::ChunkStore;
use crate::tables::ChunkTables;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use teal_types::ChunkId;

mod sweep;

/// Chunks marked under one lock.
const MARK_BATCH: usize = 1024;
/// The number of small packs, of less than a quarter of the target, from which on they are merged:
/// each merge leaves at most a quarter of them.
const SMALL_PACKS_MIN: usize = 8;
/// The number of small packs of about the same size from which on they are merged.
const SCATTERED_PACKS_MIN: usize = 16;
/// Sizes that differ by less than so many bits are about the same.
const SIZE_BITS: u32 = 3;

/// The work and the findings of a collection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CollectionReport {
    /// Packs removed because nothing lived in them.
    pub dead_packs: usize,
    /// Packs removed after their live chunks had been moved.
    pub rewritten_packs: usize,
    /// Packs written for chunks that were moved.
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
    /// The number of live chunks that are not in the store.
    pub missing_count: usize,
}

/// The chunks that a sweep keeps of the packs it takes up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RetentionRule {
    /// All chunks in them.
    Everything,
    /// The marked chunks; packs that are young after this time are left alone.
    Marked(Duration),
}

impl CollectionReport {
    fn record_missing(&mut self, chunk: ChunkId) {
        self.missing_count += 1;
        if self.missing.len() < PROBLEMS_MAX {
            self.missing.push(chunk);
        }
    }
}

/// Ends the collection when it is dropped.
struct CollectionGuard(ChunkStore);

impl Drop for CollectionGuard {
    fn drop(&mut self) {
        self.0.0.state.write().collecting = false;
    }
}

/// The first phase of a collection, in which it is told the live chunks.
pub struct MarkPhase {
    running: CollectionGuard,
    /// Packs stay into which a chunk was put, or of which a client was told, after this time.
    since: Duration,
    /// Packs from this order on came after the beginning, and stay.
    until: u64,
    report: CollectionReport,
}

/// The second phase of a collection, in which dead chunks are removed.
pub struct SweepPhase {
    running: CollectionGuard,
    todo: VecDeque<PackSlot>,
    keeps: RetentionRule,
    report: CollectionReport,
}

impl ChunkStore {
    /// Begins a collection. Packs first seen by this process less than `grace` ago stay: the time
    /// in which a client may still name the chunks it has sent.
    ///
    /// # Errors
    /// [`ChunkError::Collecting`], [`ChunkError::ReadOnly`].
    pub fn begin_collection(&self, grace: Duration) -> Result<MarkPhase, ChunkError> {
        // A pack that came at the end of the grace may go.
        let since = self.now().checked_sub(grace);
        self.begin_collection_before(since)
    }

    /// Begins a collection in which packs stay that got a chunk, or of which a client was told,
    /// after `since`; with `None`, all of them.
    ///
    /// # Errors
    /// As [`begin_collection`](Self::begin_collection).
    pub fn begin_collection_before(
        &self,
        since: Option<Duration>,
    ) -> Result<MarkPhase, ChunkError> {
        self.check_writable()?;
        let mut state = self.0.state.write();
        let guard = self.start_collecting(&mut state)?;
        for known in state.index.values_mut() {
            known.unmark();
        }
        if !bug(ChunkBug::PinNotMarked) && !bug(ChunkBug::PinsIgnored) {
            state.mark_pinned();
        }
        // Within the grace since the very beginning nothing is old.
        let until = if since.is_some() || bug(ChunkBug::GraceIgnored) {
            state.packs.next_order()
        } else {
            0
        };
        drop(state);
        Ok(MarkPhase {
            running: guard,
            since: since.unwrap_or_default(),
            until,
            report: CollectionReport::default(),
        })
    }

    /// Notes that a collection runs, until the guard is dropped: there is one at a time. The guard
    /// takes the lock of `state` when it is dropped.
    fn start_collecting(&self, state: &mut ChunkTables) -> Result<CollectionGuard, ChunkError> {
        if state.collecting {
            return Err(ChunkError::Collecting);
        }
        state.collecting = true;
        Ok(CollectionGuard(self.clone()))
    }

    /// Returns whether there are so many small packs that a merge would leave fewer.
    pub fn is_scattered(&self) -> bool {
        !scattered_packs(&self.0.state.read(), self.0.pack_target).is_empty()
    }

    /// Begins to put the content of many small packs into fewer; nothing of it is lost, named or
    /// not.
    ///
    /// # Errors
    /// [`ChunkError::Collecting`], [`ChunkError::ReadOnly`].
    pub fn begin_merge(&self) -> Result<SweepPhase, ChunkError> {
        self.check_writable()?;
        let mut state = self.0.state.write();
        let guard = self.start_collecting(&mut state)?;
        let todo = scattered_packs(&state, self.0.pack_target);
        drop(state);
        Ok(SweepPhase {
            running: guard,
            todo,
            keeps: RetentionRule::Everything,
            report: CollectionReport::default(),
        })
    }
}

impl MarkPhase {
    /// Marks these chunks as live.
    pub fn mark_live(&mut self, live: impl IntoIterator<Item = ChunkId>) {
        let mut live = live.into_iter();
        loop {
            let batch: Vec<ChunkId> = live.by_ref().take(MARK_BATCH).collect();
            if batch.is_empty() {
                return;
            }
            // The lock is let go between batches, so that readers are not held up for long.
            let mut state = self.running.0.0.state.write();
            for chunk in batch {
                match state.index.get_mut(&ChunkIdPrefix::from_id(&chunk)) {
                    Some(known) => known.mark(),
                    None => self.report.record_missing(chunk),
                }
            }
        }
    }

    /// Ends marking, after every live chunk has been marked: the others are dead. Plans what to do;
    /// nothing is removed yet.
    pub fn begin_sweep(self) -> SweepPhase {
        let Self {
            running,
            since,
            until,
            report,
        } = self;
        // Planned with the marks as they are now: chunks pinned from here on are kept by each step.
        let todo = plan_sweep(&running.0, since, until);
        SweepPhase {
            running,
            todo,
            keeps: RetentionRule::Marked(since),
            report,
        }
    }
}

/// Returns the packs worth a step: dead ones, then the least alive, then small ones if there are
/// many.
fn plan_sweep(store: &ChunkStore, since: Duration, until: u64) -> VecDeque<PackSlot> {
    let state = store.0.state.read();
    let live_bytes = live_bytes_of_packs(&state);
    let small_below = store.0.pack_target as u64 / 4;
    let (mut worst, mut small) = (Vec::new(), Vec::new());
    for (slot, pack) in state.packs.inserted_before(until) {
        // A damaged pack may hold the only copy of a chunk that could still be repaired by hand.
        if !pack.whole {
            continue;
        }
        if state.packs.is_young(slot, since) && !bug(ChunkBug::GraceIgnored) {
            continue;
        }
        let live = live_bytes[slot.0 as usize];
        debug_assert!(live <= pack.bytes, "more lives in a pack than it holds");
        // Half dead: the space freed is more than the bytes written.
        if live * 2 < pack.bytes {
            let live_share = live * 1000 / pack.bytes.max(1);
            worst.push((live_share, pack.id, slot));
        } else if pack.bytes < small_below {
            small.push((pack.bytes, pack.id, slot));
        }
    }
    // Fewer are left alone: rewriting one pack again and again would cost more than it frees.
    if small.len() < SMALL_PACKS_MIN {
        small.clear();
    }
    // Sorted by pack beside the share, so that a plan is the same in each run of a simulation.
    worst.sort_unstable();
    small.sort_unstable();
    let planned = worst.into_iter().chain(small);
    planned.map(|(_, _, slot)| slot).collect()
}

/// Returns the bytes that marked and pinned chunks take, by the slots of packs.
fn live_bytes_of_packs(state: &ChunkTables) -> Vec<u64> {
    let mut live_bytes = vec![0_u64; state.packs.slot_count()];
    for (chunk, known) in state.index.iter() {
        if known.is_marked() || state.pins.contains(chunk) {
            let place = known.place();
            // Header, payload and row of the table.
            let bytes = chunk::BYTES as u64 + u64::from(place.stored) + table::ROW as u64;
            live_bytes[place.slot.0 as usize] += bytes;
        }
    }
    live_bytes
}

/// Returns the small packs of which there are many of about the same size, the smallest first. Only
/// those of one size are merged, so that a merged pack is not written again with each small pack
/// that comes.
fn scattered_packs(state: &ChunkTables, target: usize) -> VecDeque<PackSlot> {
    let small_below = target as u64 / 4;
    let mut by_size: BTreeMap<u32, Vec<(u64, PackId, PackSlot)>> = BTreeMap::new();
    for (slot, pack) in state.packs.iter() {
        if !pack.whole || pack.bytes >= small_below {
            continue;
        }
        // Sizes are the same if their numbers of bits are, by groups of three: within a factor of
        // eight.
        let bits = u64::BITS - pack.bytes.leading_zeros();
        let of_size = by_size.entry(bits / SIZE_BITS).or_default();
        of_size.push((pack.bytes, pack.id, slot));
    }
    let mut many = Vec::new();
    for packs in by_size.into_values() {
        if packs.len() >= SCATTERED_PACKS_MIN {
            many.extend(packs);
        }
    }
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
