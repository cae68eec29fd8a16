//! Pins: a chunk that a commit is about to name must not be collected meanwhile.

use crate::error::ChunkError;
use crate::index::ChunkIdPrefix;
use crate::store::ChunkStore;
use crate::tables::ChunkTables;
use teal_types::ChunkId;

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
        chunk: ChunkIdPrefix,
        state: &mut ChunkTables,
    ) -> Result<(), ChunkError> {
        state.add_pin(chunk)?;
        self.chunks.push(chunk);
        Ok(())
    }

    /// Returns the number of pins; a chunk may be among them more than once.
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
            self.chunks.iter().for_each(|chunk| state.remove_pin(chunk));
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
    /// commit does this, whatever [`find_present`](Self::find_present) has said before.
    ///
    /// # Errors
    /// [`PinError::Missing`] names those that are not here or known to be damaged;
    /// [`ChunkError::TooManyPins`].
    pub fn pin(&self, chunks: &[ChunkId]) -> Result<Pin, PinError> {
        let mut pin = Pin::empty(self);
        let mut state = self.0.state.write();
        let mut missing = Vec::new();
        for chunk in chunks {
            if !state.has_chunk(&ChunkIdPrefix::from_id(chunk)) {
                missing.push(*chunk);
            }
        }
        if !missing.is_empty() {
            return Err(PinError::Missing(missing));
        }
        for chunk in chunks {
            if let Err(error) = pin.add(ChunkIdPrefix::from_id(chunk), &mut state) {
                // The pin, as it is dropped, removes what it has under the same lock.
                drop(state);
                return Err(error.into());
            }
        }
        Ok(pin)
    }
}
