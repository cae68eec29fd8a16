//! The table of packs: the index names a pack by its slot here.

use crate::format::PackId;
use crate::index::PackSlot;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A pack on the shelf.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pack {
    pub(crate) id: PackId,
    /// Bytes of the object.
    pub(crate) bytes: u64,
    /// The monotonic time when this process first saw it: its age counts from here, so that no jump
    /// of civil time makes it look old.
    pub(crate) seen: Duration,
    /// True if its table could be read.
    pub(crate) whole: bool,
}

fn saturating_nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Every pack. A slot is used again when its pack is gone; nothing refers to it any more then.
#[derive(Debug, Default)]
pub(crate) struct PackTable {
    slots: Vec<Option<(u64, Pack)>>,
    /// For each slot the last time when a client was told that a chunk of its pack is here, in
    /// nanoseconds of the monotonic clock.
    used_at: Vec<AtomicU64>,
    free: Vec<u32>,
    /// The number of packs ever inserted: the order of the next.
    inserted: u64,
}

impl PackTable {
    pub(crate) fn insert(&mut self, pack: Pack) -> PackSlot {
        let entry = Some((self.inserted, pack));
        self.inserted += 1;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.used_at.push(AtomicU64::new(0));
            u32::try_from(self.slots.len() - 1).expect("a store has fewer than 2^32 packs")
        });
        debug_assert!(self.slots[slot as usize].is_none(), "the slot is taken");
        debug_assert_eq!(self.slots.len(), self.used_at.len());
        self.slots[slot as usize] = entry;
        // The use of the slot's former pack says nothing of this one.
        *self.used_at[slot as usize].get_mut() = 0;
        PackSlot(slot)
    }

    pub(crate) fn remove(&mut self, slot: PackSlot) {
        // A second removal must not free the slot twice.
        if self.slots[slot.0 as usize].take().is_some() {
            self.free.push(slot.0);
        }
    }

    /// Notes that a client is told that a chunk of this pack is here.
    pub(crate) fn record_use(&self, slot: PackSlot, now: Duration) {
        if let Some(told) = self.used_at.get(slot.0 as usize) {
            // Two clients at once: the later time counts. The lock is a shared one, so the field is
            // atomic.
            told.fetch_max(saturating_nanos(now), Ordering::Relaxed);
        }
    }

    /// Returns whether a client may still name a chunk of the pack that came, or that it was told
    /// of, after `since`.
    pub(crate) fn is_young(&self, slot: PackSlot, since: Duration) -> bool {
        self.last_use(slot) > since
    }

    /// Returns the last time when a chunk was put into the pack, or a client was told of one.
    pub(crate) fn last_use(&self, slot: PackSlot) -> Duration {
        let used_at = match self.used_at.get(slot.0 as usize) {
            Some(used_at) => Duration::from_nanos(used_at.load(Ordering::Relaxed)),
            None => Duration::ZERO,
        };
        let seen = self.get(slot).map_or(Duration::ZERO, |pack| pack.seen);
        seen.max(used_at)
    }

    pub(crate) fn get(&self, slot: PackSlot) -> Option<&Pack> {
        let (_, pack) = self.slots.get(slot.0 as usize)?.as_ref()?;
        Some(pack)
    }

    pub(crate) fn find_slot(&self, id: PackId) -> Option<PackSlot> {
        let found = self.iter().find(|(_, pack)| pack.id == id);
        found.map(|(slot, _)| slot)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (PackSlot, &Pack)> {
        self.inserted_before(u64::MAX)
    }

    /// Returns the order that the next pack will have.
    pub(crate) fn next_order(&self) -> u64 {
        self.inserted
    }

    /// Visits the packs with an order below `order`, by slot.
    pub(crate) fn inserted_before(&self, order: u64) -> impl Iterator<Item = (PackSlot, &Pack)> {
        let packs = self.slots.iter().enumerate();
        packs.filter_map(move |(slot, entry)| {
            let (at, pack) = entry.as_ref()?;
            (*at < order).then_some((PackSlot(slot as u32), pack))
        })
    }

    /// Returns an upper bound of slot numbers.
    pub(crate) fn slot_count(&self) -> usize {
        self.slots.len()
    }
}
