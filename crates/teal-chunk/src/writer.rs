//! The pack that is being filled, and the one that is being put.
//!
//! # Guarantees
//! 1. *Bounded*: one pack is filled and one is being put; whoever fills the next waits for it.
//! 2. *Told*: how the put of a pack has ended is known to every batch that has a chunk in it.

use crate::error::ChunkError;
use crate::format::chunk::ChunkHeader;
use crate::index::ChunkIdPrefix;
use crate::pack::PackBuilder;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

/// How the put of one pack has ended, once it has.
#[derive(Debug, Default)]
pub(crate) struct PutOutcome(OnceLock<Result<(), ChunkError>>);

/// A pack that is not durable yet.
struct UnstoredPack {
    chunks: BTreeSet<ChunkIdPrefix>,
    outcome: Arc<PutOutcome>,
}

/// The packs that are not durable yet; guarded by the lock of the [`PackWriter`].
#[derive(Default)]
pub(crate) struct WriterState {
    open: Option<(PackBuilder, UnstoredPack)>,
    /// Being put, by the thread that has sealed it.
    sealed: Option<UnstoredPack>,
}

impl WriterState {
    /// Returns the outcome of the pack that this chunk is on its way in.
    pub(crate) fn put_of(&self, chunk: &ChunkIdPrefix) -> Option<&Arc<PutOutcome>> {
        let mut unstored = self
            .sealed
            .iter()
            .chain(self.open.iter().map(|(_, unstored)| unstored));
        unstored
            .find(|unstored| unstored.chunks.contains(chunk))
            .map(|unstored| &unstored.outcome)
    }

    /// Takes a chunk into the open pack, which is a `new_pack` if there is none. `None`: the pack
    /// has no room for it, and must be put first.
    pub(crate) fn append(
        &mut self,
        header: &ChunkHeader,
        encoded: &[u8],
        pack_target: usize,
        new_pack: impl FnOnce() -> PackBuilder,
    ) -> Option<Arc<PutOutcome>> {
        let (builder, unstored) = self.open.get_or_insert_with(|| {
            let unstored = UnstoredPack {
                chunks: BTreeSet::new(),
                outcome: Arc::default(),
            };
            (new_pack(), unstored)
        });
        if !builder.has_room(encoded.len(), pack_target) {
            return None;
        }
        builder.append(header, encoded);
        unstored.chunks.insert(ChunkIdPrefix::from_id(&header.id));
        Some(Arc::clone(&unstored.outcome))
    }
}

/// The pack being filled, for all batches.
#[derive(Default)]
pub(crate) struct PackWriter {
    filling: Mutex<WriterState>,
    /// Told whenever a put has ended.
    ended: Condvar,
}

impl PackWriter {
    /// Locks the packs that are not durable yet.
    pub(crate) fn lock(&self) -> MutexGuard<'_, WriterState> {
        self.filling.lock()
    }

    /// Waits until a pack is durable, putting it if no other thread does.
    ///
    /// # Errors
    /// Those of the put.
    pub(crate) fn wait_until_durable(
        &self,
        outcome: &PutOutcome,
        put: impl Fn(PackBuilder) -> Result<(), ChunkError>,
    ) -> Result<(), ChunkError> {
        let mut filling = self.filling.lock();
        loop {
            if let Some(outcome) = outcome.0.get() {
                return outcome.clone();
            }
            self.put_or_wait(&mut filling, &put);
        }
    }

    /// Puts the open pack, or waits for the end of the put that is going on. The lock is let go
    /// meanwhile.
    pub(crate) fn put_or_wait(
        &self,
        filling: &mut MutexGuard<'_, WriterState>,
        put: impl Fn(PackBuilder) -> Result<(), ChunkError>,
    ) {
        if filling.sealed.is_some() {
            self.ended.wait(filling);
            return;
        }
        let Some((builder, unstored)) = filling.open.take() else {
            return;
        };
        let outcome = Arc::clone(&unstored.outcome);
        filling.sealed = Some(unstored);
        let ended = MutexGuard::unlocked(filling, || put(builder));
        filling.sealed = None;
        outcome.0.set(ended).expect("a pack is put once");
        self.ended.notify_all();
    }
}
