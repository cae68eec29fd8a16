//! The table of packs: the index names a pack by its slot here.

use crate::format::PackId;
use crate::index::Slot;
use std::time::Duration;

/// A pack on the shelf.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pack {
    pub(crate) id: PackId,
    /// Bytes of the object.
    pub(crate) bytes: u64,
    /// When this process first saw it, on the monotonic clock: its age counts from here, so that no jump of civil time makes it look old.
    pub(crate) seen: Duration,
    /// Its table could be read.
    pub(crate) whole: bool,
}

/// Every pack. A slot is used again when its pack is gone; nothing refers to it any more then.
#[derive(Debug, Default)]
pub(crate) struct Packs {
    slots: Vec<Option<(u64, Pack)>>,
    free: Vec<u32>,
    /// Packs ever inserted: the order of each.
    inserted: u64,
}

impl Packs {
    pub(crate) fn insert(&mut self, pack: Pack) -> Slot {
        let entry = Some((self.inserted, pack));
        self.inserted += 1;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).expect("a store has fewer than 2^32 packs")
        });
        self.slots[slot as usize] = entry;
        Slot(slot)
    }

    pub(crate) fn remove(&mut self, slot: Slot) {
        if self.slots[slot.0 as usize].take().is_some() {
            self.free.push(slot.0);
        }
    }

    pub(crate) fn get(&self, slot: Slot) -> Option<&Pack> {
        self.slots.get(slot.0 as usize)?.as_ref().map(|(_, pack)| pack)
    }

    pub(crate) fn find(&self, id: PackId) -> Option<Slot> {
        self.iter().find(|(_, pack)| pack.id == id).map(|(slot, _)| slot)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Slot, &Pack)> {
        self.inserted_before(u64::MAX)
    }

    /// The order that the next pack will have.
    pub(crate) fn next_order(&self) -> u64 {
        self.inserted
    }

    /// The packs whose order is below `order`, by slot.
    pub(crate) fn inserted_before(&self, order: u64) -> impl Iterator<Item = (Slot, &Pack)> {
        let packs = self.slots.iter().enumerate();
        packs.filter_map(move |(slot, entry)| {
            let (at, pack) = entry.as_ref()?;
            (*at < order).then_some((Slot(slot as u32), pack))
        })
    }

    /// An upper bound of slot numbers.
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }
}
