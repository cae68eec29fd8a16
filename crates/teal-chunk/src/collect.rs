//! Collection: what no metadata names any more goes, and its space with it.
//!
//! A collection is begun, told every live chunk, and then sweeps pack by pack. A pack in which nothing lives is removed. One less than half
//! alive, or one of many small ones, is rewritten: what lives is put into a new pack, durably; then the index points there; then the old
//! pack is removed.
//!
//! # Guarantees
//! 1. *Kept*: what is live, pinned at any time since the beginning, or in a pack younger than the grace or the collection stays.
//! 2. *A crash is harmless*: at any point each live chunk is in some durable pack. A chunk in two packs after a crash is dead weight in
//!    one of them; a removed pack that is back is found and collected again.
//! 3. *Resumable*: every step stands for itself. A collection that is dropped, or whose process ends, has done what its steps did; the next
//!    one goes on with the packs that are left, with marks of its own, since what is live has changed.
//! 4. *Bounded*: marks are bits of the index; beside them there are eight bytes for each pack, and one pack being written.
//! 5. *Damage is kept*: a pack in which something is damaged is reported and stays.
//!
//! Live chunks are those that metadata names *after* [`ChunkStore::collect`] has returned: what is committed later was pinned meanwhile.

use crate::error::ChunkError;
use crate::format::{PackId, chunk, table};
use crate::index::{Half, Slot};
use crate::limits::PROBLEMS_MAX;
use crate::seeded::{Bug, bug};
use crate::store::ChunkStore;
use std::collections::VecDeque;
use std::time::Duration;
use teal_types::ChunkId;

mod sweep;

/// Chunks marked under one lock.
const MARKED_AT_ONCE: usize = 1024;
/// Small packs, of less than a quarter of the target, are merged when there are so many: each merge leaves at most a quarter of them.
const SMALL_MERGED: usize = 8;

/// What a collection has done and found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Collected {
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

/// Ends the collection when dropped.
struct Running(ChunkStore);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.0.state.write().collecting = false;
    }
}

/// A collection that is being told what lives.
pub struct Marking {
    running: Running,
    grace: Duration,
    /// Packs from this order on came after the beginning.
    until: u64,
    report: Collected,
}

/// A collection that removes what is dead.
pub struct Sweep {
    running: Running,
    todo: VecDeque<Slot>,
    report: Collected,
}

impl ChunkStore {
    /// Begins a collection. Packs first seen by this process less than `grace` ago stay: the time in which a client may still name what it
    /// has sent.
    ///
    /// # Errors
    /// [`ChunkError::Collecting`], [`ChunkError::ReadOnly`].
    pub fn collect(&self, grace: Duration) -> Result<Marking, ChunkError> {
        self.writable()?;
        let mut state = self.0.state.write();
        if state.collecting {
            return Err(ChunkError::Collecting);
        }
        state.collecting = true;
        state.index.values_mut().for_each(|known| known.unmark());
        let pinned: Vec<Half> = state.pins.iter().copied().collect();
        for half in pinned.iter().filter(|_| !bug(Bug::PinNotMarked) && !bug(Bug::PinsIgnored)) {
            state.index.get_mut(half).into_iter().for_each(|known| known.mark());
        }
        let until = state.packs.next_order();
        drop(state);
        Ok(Marking { running: Running(self.clone()), grace, until, report: Collected::default() })
    }
}

impl Marking {
    /// These chunks live.
    pub fn mark(&mut self, live: impl IntoIterator<Item = ChunkId>) {
        let mut live = live.into_iter();
        loop {
            let some: Vec<ChunkId> = live.by_ref().take(MARKED_AT_ONCE).collect();
            if some.is_empty() {
                return;
            }
            let mut state = self.running.0.0.state.write();
            for chunk in some {
                match state.index.get_mut(&Half::of(&chunk)) {
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

    /// Every live chunk has been marked: what is not is dead. Plans what to do; nothing is removed yet.
    pub fn sweep(self) -> Sweep {
        let Self { running, grace, until, report } = self;
        let todo = plan(&running.0, grace, until);
        Sweep { running, todo, report }
    }
}

/// The packs worth a step: dead ones, then the least alive, then small ones if there are many.
fn plan(store: &ChunkStore, grace: Duration, until: u64) -> VecDeque<Slot> {
    let now = store.now();
    let state = store.0.state.read();
    let mut live = vec![0_u64; state.packs.slots()];
    for (half, known) in state.index.iter() {
        if known.is_marked() || state.pins.contains(half) {
            let place = known.place();
            live[place.slot.0 as usize] += chunk::BYTES as u64 + u64::from(place.stored) + table::ROW as u64;
        }
    }
    let (mut worst, mut small) = (Vec::new(), Vec::new());
    for (slot, pack) in state.packs.inserted_before(until).filter(|(_, pack)| pack.whole) {
        if now.saturating_sub(pack.seen) < grace && !bug(Bug::GraceIgnored) {
            continue;
        }
        let live = live[slot.0 as usize];
        if live * 2 < pack.bytes {
            worst.push((live * 1000 / pack.bytes.max(1), pack.id, slot));
        } else if pack.bytes < store.0.pack_target as u64 / 4 {
            small.push((pack.bytes, pack.id, slot));
        }
    }
    if small.len() < SMALL_MERGED {
        small.clear();
    }
    worst.sort_unstable();
    small.sort_unstable();
    worst.into_iter().chain(small).map(|(_, _, slot)| slot).collect()
}

impl std::fmt::Debug for Marking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Marking").field("grace", &self.grace).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Sweep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sweep").field("left", &self.todo.len()).field("report", &self.report).finish_non_exhaustive()
    }
}
