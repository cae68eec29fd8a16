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
    /// When this process first saw it, on the monotonic clock: its age counts from here, so that no
    /// jump of civil time makes it look old.
    pub(crate) seen: Duration,
    /// Its table could be read.
    pub(crate) whole: bool,
}

fn saturating_nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Every pack. A slot is used again when its pack is gone; nothing refers to it any more then.
#[derive(Debug, Default)]
pub(crate) struct PackTable {
    slots: Vec<Option<(u64, Pack)>>,
    /// For each slot when somebody was told last that a chunk of its pack is here, in nanoseconds
    /// of the monotonic clock.
    used_at: Vec<AtomicU64>,
    free: Vec<u32>,
    /// Packs ever inserted: the order of each.
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
        self.slots[slot as usize] = entry;
        *self.used_at[slot as usize].get_mut() = 0;
        PackSlot(slot)
    }

    pub(crate) fn remove(&mut self, slot: PackSlot) {
        if self.slots[slot.0 as usize].take().is_some() {
            self.free.push(slot.0);
        }
    }

    /// Somebody is told that a chunk of this pack is here.
    pub(crate) fn record_use(&self, slot: PackSlot, now: Duration) {
        if let Some(told) = self.used_at.get(slot.0 as usize) {
            told.fetch_max(saturating_nanos(now), Ordering::Relaxed);
        }
    }

    /// Returns whether a client may still name a chunk of the pack that was here, or that it was
    /// told of, after `since`.
    pub(crate) fn is_young(&self, slot: PackSlot, since: Duration) -> bool {
        self.last_use(slot) > since
    }

    /// When something was put into the pack, or somebody was told of it, last.
    pub(crate) fn last_use(&self, slot: PackSlot) -> Duration {
        let told = self
            .used_at
            .get(slot.0 as usize)
            .map_or(0, |told| told.load(Ordering::Relaxed));
        let seen = self.get(slot).map_or(Duration::ZERO, |pack| pack.seen);
        seen.max(Duration::from_nanos(told))
    }

    pub(crate) fn get(&self, slot: PackSlot) -> Option<&Pack> {
        self.slots
            .get(slot.0 as usize)?
            .as_ref()
            .map(|(_, pack)| pack)
    }

    pub(crate) fn find_slot(&self, id: PackId) -> Option<PackSlot> {
        self.iter()
            .find(|(_, pack)| pack.id == id)
            .map(|(slot, _)| slot)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (PackSlot, &Pack)> {
        self.inserted_before(u64::MAX)
    }

    /// The order that the next pack will have.
    pub(crate) fn next_order(&self) -> u64 {
        self.inserted
    }

    /// The packs whose order is below `order`, by slot.
    pub(crate) fn inserted_before(&self, order: u64) -> impl Iterator<Item = (PackSlot, &Pack)> {
        let packs = self.slots.iter().enumerate();
        packs.filter_map(move |(slot, entry)| {
            let (at, pack) = entry.as_ref()?;
            (*at < order).then_some((PackSlot(slot as u32), pack))
        })
    }

    /// An upper bound of slot numbers.
    pub(crate) fn slot_count(&self) -> usize {
        self.slots.len()
    }
}
