//! The tables of a store in memory: the places of chunks, the packs, and the pins.
//!
//! One lock guards all three (`state` in [`ChunkStore`](crate::ChunkStore)): a chunk is pinned and
//! looked up, or moved and unpinned, in one step.

use crate::error::ChunkError;
use crate::format::TableEntry;
use crate::index::{ChunkIdPrefix, ChunkPlace, Index, IndexEntry, KeyedHashBuilder};
use crate::limits::PINS_MAX;
use crate::packs::{Pack, PackTable};
use crate::seeded::{ChunkBug, bug};
use std::collections::{HashMap, HashSet};

/// The tables of chunks and packs.
pub(crate) struct ChunkTables {
    pub(crate) index: Index,
    pub(crate) packs: PackTable,
    pub(crate) pins: PinTable,
    /// True while a collection runs: chunks that are pinned or stored meanwhile are marked.
    pub(crate) collecting: bool,
    /// Chunks that were found damaged; some may have been stored again or collected since.
    pub(crate) found_damaged: HashSet<ChunkIdPrefix, KeyedHashBuilder>,
}

impl ChunkTables {
    /// Takes the chunks of a pack that is on the shelf into the index. A good copy known before
    /// stays the one that is read.
    pub(crate) fn register_pack(&mut self, pack: Pack, entries: &[TableEntry]) {
        let slot = self.packs.insert(pack);
        for entry in entries {
            let chunk = ChunkIdPrefix::from_id(&entry.id);
            let place = entry.place_in(slot);
            match self.index.get_mut(&chunk) {
                Some(known) if known.is_damaged() => known.set_place(place),
                // The copy in this pack is dead weight, which collection removes.
                Some(_) => {}
                None => {
                    let mut known = IndexEntry::new(place);
                    // A running collection was not told of a chunk that is this new.
                    if self.collecting {
                        known.mark();
                    }
                    self.index.insert(chunk, known);
                }
            }
        }
    }

    /// Notes that the copy of a chunk at `place` is damaged: the chunk is not had any more until it
    /// is stored again. A copy elsewhere, to which the index points, is not touched.
    pub(crate) fn note_damage(&mut self, chunk: ChunkIdPrefix, place: ChunkPlace) {
        if let Some(known) = self.index.get_mut(&chunk)
            && known.place() == place
        {
            known.mark_damaged();
            self.found_damaged.insert(chunk);
        }
    }

    /// Returns the number of chunks that are known to be damaged now.
    pub(crate) fn count_damaged(&mut self) -> usize {
        let index = &self.index;
        // Chunks that were stored again or collected are forgotten here, so that nothing else has
        // to.
        self.found_damaged
            .retain(|chunk| index.get(chunk).is_some_and(|known| known.is_damaged()));
        self.found_damaged.len()
    }

    /// Returns whether the chunk can be had, as far as is known.
    pub(crate) fn has_chunk(&self, chunk: &ChunkIdPrefix) -> bool {
        self.index
            .get(chunk)
            .is_some_and(|known| !known.is_damaged())
    }
}

/// The number of pins of each chunk.
#[derive(Debug)]
pub(crate) struct PinTable(HashMap<ChunkIdPrefix, u32, KeyedHashBuilder>);

impl PinTable {
    pub(crate) fn new(hash_builder: KeyedHashBuilder) -> Self {
        Self(HashMap::with_hasher(hash_builder))
    }
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
    pub(crate) fn contains(&self, chunk: &ChunkIdPrefix) -> bool {
        self.0.contains_key(chunk) && !bug(ChunkBug::PinsIgnored)
    }
}

impl ChunkTables {
    /// Pins a chunk, here or not yet. A running collection keeps it even when the pin has gone
    /// again: chunks that were committed meanwhile are not among the live ones it was told of.
    pub(crate) fn add_pin(&mut self, chunk: ChunkIdPrefix) -> Result<(), ChunkError> {
        // Another pin of a pinned chunk takes no more memory.
        if self.pins.0.len() >= PINS_MAX && !self.pins.0.contains_key(&chunk) {
            return Err(ChunkError::TooManyPins);
        }
        *self.pins.0.entry(chunk).or_default() += 1;
        if self.collecting
            && !bug(ChunkBug::PinNotMarked)
            && let Some(known) = self.index.get_mut(&chunk)
        {
            known.mark();
        }
        Ok(())
    }

    /// Marks every pinned chunk that is here, as a collection begins.
    pub(crate) fn mark_pinned(&mut self) {
        for chunk in self.pins.0.keys() {
            if let Some(known) = self.index.get_mut(chunk) {
                known.mark();
            }
        }
    }

    /// Takes one pin of a chunk away.
    pub(crate) fn remove_pin(&mut self, chunk: &ChunkIdPrefix) {
        let Some(times) = self.pins.0.get_mut(chunk) else {
            debug_assert!(false, "a pin is removed that was never added");
            return;
        };
        *times -= 1;
        if *times == 0 {
            self.pins.0.remove(chunk);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use teal_types::ChunkId;

    #[test]
    fn pins_are_counted_and_have_a_limit() {
        let hash_builder = KeyedHashBuilder::new([0; 16]);
        let mut state = ChunkTables {
            index: Index::new(hash_builder),
            packs: PackTable::default(),
            pins: PinTable::new(hash_builder),
            collecting: false,
            found_damaged: HashSet::with_hasher(hash_builder),
        };
        let chunk = |n: u64| {
            let mut id = [0; 32];
            id[..8].copy_from_slice(&n.to_le_bytes());
            ChunkIdPrefix::from_id(&ChunkId::new(id))
        };
        (0..PINS_MAX as u64).for_each(|n| state.add_pin(chunk(n)).unwrap());
        assert!(matches!(
            state.add_pin(chunk(PINS_MAX as u64)),
            Err(ChunkError::TooManyPins)
        ));
        state.add_pin(chunk(0)).unwrap();
        state.remove_pin(&chunk(0));
        assert!(state.pins.contains(&chunk(0)), "pinned twice, let go once");
        state.remove_pin(&chunk(0));
        assert!(!state.pins.contains(&chunk(0)));
        state.add_pin(chunk(PINS_MAX as u64)).unwrap();
        assert_eq!(state.pins.len(), PINS_MAX);
    }
}
