//! The store: what it is made of, and what is asked of it without I/O.
//!
//! # Guarantees
//! 1. *Durable before had*: a chunk that [`ChunkStore::have`] knows, or that a batch has committed,
//!    survives anything the shelf survives.
//! 2. *Verified*: what a read returns has the name that was asked for.
//! 3. *Kept*: a pinned chunk is never collected, nor one whose pack is younger than the grace.
//! 4. *Bounded*: memory is the [index](crate::INDEX_BYTES_PER_CHUNK), the pins, and three packs.
//!
//! | lock | guards | under it |
//! |---|---|---|
//! | `writer` | the pack being filled | `state`; never I/O: the pack is sealed, the lock let go, the pack put, the lock taken again |
//! | `state` | index, table of packs, pins | nothing |

use crate::counters::{ChunkCounters, ChunkCounts};
use crate::domain::DedupDomain;
use crate::error::ChunkError;
use crate::format::{PackId, TableEntry};
use crate::index::ChunkIdPrefix;
use crate::pack::PackBuilder;
use crate::packs::Pack;
use crate::seeded::{Bug, bug};
use crate::shelf::Shelf;
use crate::shelf::directory::AccessMode;
use crate::tables::ChunkTables;
use crate::writer::PackWriter;
use parking_lot::RwLock;
use std::sync::Arc;
use std::time::Duration;
use teal_env::{Clock, Entropy};
use teal_types::ChunkId;

/// A store of chunks of one deduplication domain. Clones are the same store.
#[derive(Clone)]
pub struct ChunkStore(pub(crate) Arc<StoreParts>);

pub(crate) struct StoreParts {
    pub(crate) shelf: Arc<dyn Shelf>,
    pub(crate) domain: DedupDomain,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) access: AccessMode,
    pub(crate) pack_target: usize,
    pub(crate) state: RwLock<ChunkTables>,
    pub(crate) writer: PackWriter,
    pub(crate) counters: ChunkCounters,
}

/// What a store holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreUsage {
    /// Chunks.
    pub chunks: usize,
    /// Packs.
    pub packs: usize,
    /// Bytes of all packs.
    pub bytes: u64,
    /// Chunks that are pinned.
    pub pinned: usize,
}

impl ChunkStore {
    /// The domain whose chunks these are.
    pub fn domain(&self) -> &DedupDomain {
        &self.0.domain
    }

    /// Returns which of these chunks are here. What is said to be here stays for the grace of a
    /// collection; after that, until it is [pinned](Self::pin), it may go.
    pub fn find_present(&self, chunks: &[ChunkId]) -> Vec<bool> {
        let (state, now) = (self.0.state.read(), self.now());
        let is_here = |chunk: &ChunkId| match state.index.get(&ChunkIdPrefix::from_id(chunk)) {
            Some(known) if !known.is_damaged() => {
                if !bug(Bug::HaveForgotten) {
                    state.packs.record_use(known.place().slot, now);
                }
                true
            }
            _ => false,
        };
        chunks.iter().map(is_here).collect()
    }

    /// Returns which of these chunks are here, for nobody who is going to name them: they may be
    /// collected at once.
    pub fn peek_present(&self, chunks: &[ChunkId]) -> Vec<bool> {
        let state = self.0.state.read();
        chunks
            .iter()
            .map(|chunk| state.has_chunk(&ChunkIdPrefix::from_id(chunk)))
            .collect()
    }

    /// Returns the bytes that the shelf has room for; `None` if it cannot tell.
    pub fn free_bytes(&self) -> Option<u64> {
        self.0.shelf.free_bytes()
    }

    /// Returns where the packs are, for people.
    pub fn place(&self) -> String {
        self.0.shelf.place()
    }

    /// Returns what the store holds now.
    pub fn usage(&self) -> StoreUsage {
        let state = self.0.state.read();
        let (packs, bytes) = state
            .packs
            .iter()
            .fold((0, 0), |(n, bytes), (_, pack)| (n + 1, bytes + pack.bytes));
        StoreUsage {
            chunks: state.index.len(),
            packs,
            bytes,
            pinned: state.pins.len(),
        }
    }

    /// Returns what has been done since the store was opened.
    pub fn counts(&self) -> ChunkCounts {
        self.0.counters.counts()
    }

    pub(crate) fn check_writable(&self) -> Result<(), ChunkError> {
        match self.0.access {
            AccessMode::Write => Ok(()),
            AccessMode::Read => Err(ChunkError::ReadOnly {
                place: self.0.shelf.place(),
            }),
        }
    }

    /// Returns what is known of a pack; `None` if it has been collected.
    pub(crate) fn find_pack(&self, id: PackId) -> Option<Pack> {
        let state = self.0.state.read();
        state.packs.get(state.packs.find_slot(id)?).copied()
    }

    pub(crate) fn now(&self) -> Duration {
        self.0.clock.monotonic_time()
    }

    /// An empty pack under a name that no other has.
    pub(crate) fn new_pack(&self) -> PackBuilder {
        let state = self.0.state.read();
        loop {
            let id = PackId::new(self.0.entropy.random_id());
            if state.packs.find_slot(id).is_none() {
                return PackBuilder::new(&self.0.domain, id, self.0.clock.civil_time().secs);
            }
        }
    }

    /// Puts a pack on the shelf, durably. After an error it is not there, or a garbage pack of
    /// which nothing is said to be here.
    pub(crate) fn put_pack(
        &self,
        builder: PackBuilder,
    ) -> Result<(Pack, Vec<TableEntry>), ChunkError> {
        let id = builder.pack_id();
        let (bytes, entries) = builder.finish();
        let pack = Pack {
            id,
            bytes: bytes.len() as u64,
            seen: self.now(),
            whole: true,
        };
        if let Err(error) = self.0.shelf.put(&id.object_name(), bytes) {
            // It may be there nevertheless. If it cannot be removed either, it is found when the
            // store is opened again, and collected.
            if let Err(also) = self.0.shelf.remove(&id.object_name()) {
                log::warn!("pack {id} could not be put ({error}) nor taken back ({also})");
            }
            return Err(error.into());
        }
        self.0.counters.count_pack(pack.bytes);
        Ok((pack, entries))
    }
}
