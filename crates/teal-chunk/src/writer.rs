//! The packs that are in memory until they are put; [`batch`](crate::batch) has the steps.
//!
//! At most one pack is filled, and one is being put. A chunk is found here from its addition until
//! the result of its pack's put is known, so that it is never stored twice at once.

use crate::error::ChunkError;
use crate::index::ChunkIdPrefix;
use crate::pack::PackBuilder;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

/// The result of putting one pack, once it is known.
#[derive(Debug, Default)]
pub(crate) struct PutOutcome(pub(crate) OnceLock<Result<(), ChunkError>>);

/// A pack that is not durable yet.
pub(crate) struct UnstoredPack {
    pub(crate) chunks: BTreeSet<ChunkIdPrefix>,
    pub(crate) outcome: Arc<PutOutcome>,
}

/// The packs that are in memory.
#[derive(Default)]
pub(crate) struct WriterState {
    pub(crate) open: Option<(PackBuilder, UnstoredPack)>,
    /// The pack that is being put, by the thread that has sealed it.
    pub(crate) sealed: Option<UnstoredPack>,
}

impl WriterState {
    /// Returns the put that will make this chunk durable, if it is in a pack in memory.
    pub(crate) fn put_of(&self, chunk: &ChunkIdPrefix) -> Option<&Arc<PutOutcome>> {
        let open = self.open.as_ref().map(|(_, pack)| pack);
        for pack in self.sealed.iter().chain(open) {
            if pack.chunks.contains(chunk) {
                return Some(&pack.outcome);
            }
        }
        None
    }
}

/// The pack being filled, for all batches.
#[derive(Default)]
pub(crate) struct PackWriter {
    pub(crate) filling: Mutex<WriterState>,
    /// Notified whenever a put has ended.
    pub(crate) ended: Condvar,
}
