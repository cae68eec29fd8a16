//! Pins: what a commit is about to name must not be collected meanwhile.

use crate::error::ChunkError;
use crate::index::{ChunkIdPrefix, KeyedHashBuilder};
use crate::limits::PINS_MAX;
use crate::seeded::{Bug, bug};
use crate::store::{ChunkStore, ChunkTables};
use std::collections::HashMap;
use teal_types::ChunkId;

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

    fn remove_pin(&mut self, half: &ChunkIdPrefix) {
        if let Some(times) = self.pins.0.get_mut(half) {
            *times -= 1;
            if *times == 0 {
                self.pins.0.remove(half);
            }
        }
    }
}

/// Keeps chunks from being collected until it is dropped: hold it until the metadata that names
/// them is durable.
pub struct Pin {
    store: ChunkStore,
    chunks: Vec<ChunkIdPrefix>,
}

impl std::fmt::Debug for Pin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pin")
            .field("chunks", &self.chunks.len())
            .finish_non_exhaustive()
    }
}

impl Pin {
    pub(crate) fn empty(store: &ChunkStore) -> Self {
        Self {
            store: store.clone(),
            chunks: Vec::new(),
        }
    }

    pub(crate) fn add(
        &mut self,
        half: ChunkIdPrefix,
        state: &mut ChunkTables,
    ) -> Result<(), ChunkError> {
        state.add_pin(half)?;
        self.chunks.push(half);
        Ok(())
    }

    /// Returns how many pins these are; a chunk may be among them more than once.
    pub fn len(&self) -> usize {
        self.chunks.len()
    }

    /// Returns whether it pins nothing.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        if !self.chunks.is_empty() {
            let mut state = self.store.0.state.write();
            self.chunks.iter().for_each(|half| state.remove_pin(half));
        }
    }
}

/// Some of the chunks to pin are not here; none was pinned.
#[derive(Debug, Clone, thiserror::Error)]
pub enum PinError {
    /// These chunks must be sent again.
    #[error("{} of the chunks are not in the store, the first is {}", .0.len(), .0[0])]
    Missing(Vec<ChunkId>),
    /// Too many pins.
    #[error(transparent)]
    Store(#[from] ChunkError),
}

impl ChunkStore {
    /// Verifies that all of these chunks are here, and keeps them here until the pin is dropped. A
    /// commit does this, whatever [`have`](Self::have) has said before.
    ///
    /// # Errors
    /// [`PinError::Missing`] names those that are not here or known to be damaged;
    /// [`ChunkError::TooManyPins`].
    pub fn pin(&self, chunks: &[ChunkId]) -> Result<Pin, PinError> {
        let mut pin = Pin::empty(self);
        let mut state = self.0.state.write();
        let missing: Vec<ChunkId> = chunks
            .iter()
            .filter(|chunk| !state.has_chunk(&ChunkIdPrefix::from_id(chunk)))
            .copied()
            .collect();
        if !missing.is_empty() {
            return Err(PinError::Missing(missing));
        }
        let pinned = chunks
            .iter()
            .try_for_each(|chunk| pin.add(ChunkIdPrefix::from_id(chunk), &mut state));
        // The pin lets go of what it has under the same lock.
        drop(state);
        Ok(pinned.map(|()| pin)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Index;
    use crate::packs::PackTable;

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
