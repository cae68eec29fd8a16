//! What a store knows of its chunks: where each lies, and which must stay.

use crate::error::ChunkError;
use crate::format::TableEntry;
use crate::index::{ChunkIdPrefix, Index, IndexEntry, KeyedHashBuilder};
use crate::limits::PINS_MAX;
use crate::packs::{Pack, PackTable};
use crate::seeded::{Bug, bug};
use std::collections::HashMap;

/// What is where, and what must stay.
pub(crate) struct ChunkTables {
    pub(crate) index: Index,
    pub(crate) packs: PackTable,
    pub(crate) pins: PinTable,
    /// A collection runs: whatever is pinned or stored meanwhile is marked.
    pub(crate) collecting: bool,
}

impl ChunkTables {
    /// The chunks of a pack that is on the shelf can be had from now on. A good copy known before
    /// stays where it is.
    pub(crate) fn register_pack(&mut self, pack: Pack, entries: &[TableEntry]) {
        let slot = self.packs.insert(pack);
        for entry in entries {
            let half = ChunkIdPrefix::from_id(&entry.id);
            let place = entry.place_in(slot);
            let mut known = IndexEntry::new(place);
            match self.index.get_mut(&half) {
                Some(known) if known.is_damaged() => known.set_place(place),
                Some(_) => {}
                None => {
                    if self.collecting {
                        known.mark();
                    }
                    self.index.insert(half, known);
                }
            }
        }
    }

    /// Returns whether the chunk can be had, as far as is known.
    pub(crate) fn has_chunk(&self, half: &ChunkIdPrefix) -> bool {
        self.index
            .get(half)
            .is_some_and(|known| !known.is_damaged())
    }
}

/// How often each chunk is pinned.
#[derive(Debug)]
pub(crate) struct PinTable(HashMap<ChunkIdPrefix, u32, KeyedHashBuilder>);

impl PinTable {
    pub(crate) fn new(keyed: KeyedHashBuilder) -> Self {
        Self(HashMap::with_hasher(keyed))
    }
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
    pub(crate) fn contains(&self, half: &ChunkIdPrefix) -> bool {
        self.0.contains_key(half) && !bug(Bug::PinsIgnored)
    }
    pub(crate) fn iter(&self) -> impl Iterator<Item = &ChunkIdPrefix> {
        self.0.keys()
    }
}

impl ChunkTables {
    /// Pins a chunk, here or not yet. A running collection keeps it even when the pin has gone
    /// again: what was committed meanwhile is not among the live chunks it was told of.
    pub(crate) fn add_pin(&mut self, half: ChunkIdPrefix) -> Result<(), ChunkError> {
        if self.pins.0.len() >= PINS_MAX && !self.pins.0.contains_key(&half) {
            return Err(ChunkError::TooManyPins);
        }
        *self.pins.0.entry(half).or_default() += 1;
        if self.collecting && !bug(Bug::PinNotMarked) {
            self.index
                .get_mut(&half)
                .into_iter()
                .for_each(|known| known.mark());
        }
        Ok(())
    }

    pub(crate) fn remove_pin(&mut self, half: &ChunkIdPrefix) {
        if let Some(times) = self.pins.0.get_mut(half) {
            *times -= 1;
            if *times == 0 {
                self.pins.0.remove(half);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use teal_types::ChunkId;

    #[test]
    fn pins_are_counted_and_have_a_limit() {
        let keyed = KeyedHashBuilder::new([0; 16]);
        let mut state = ChunkTables {
            index: Index::new(keyed),
            packs: PackTable::default(),
            pins: PinTable::new(keyed),
            collecting: false,
        };
        let half = |n: u64| {
            let mut id = [0; 32];
            id[..8].copy_from_slice(&n.to_le_bytes());
            ChunkIdPrefix::from_id(&ChunkId::new(id))
        };
        (0..PINS_MAX as u64).for_each(|n| state.add_pin(half(n)).unwrap());
        assert!(matches!(
            state.add_pin(half(PINS_MAX as u64)),
            Err(ChunkError::TooManyPins)
        ));
        state.add_pin(half(0)).unwrap();
        state.remove_pin(&half(0));
        assert!(state.pins.contains(&half(0)), "pinned twice, let go once");
        state.remove_pin(&half(0));
        assert!(!state.pins.contains(&half(0)));
        state.add_pin(half(PINS_MAX as u64)).unwrap();
        assert_eq!(state.pins.len(), PINS_MAX);
    }
}
