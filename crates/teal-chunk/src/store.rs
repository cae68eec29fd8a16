//! The store: its parts, and its operations without I/O.
//!
//! # Guarantees
//! 1. *Durable before had*: a chunk that [`ChunkStore::find_present`] knows, or that a batch has
//!    committed, survives anything the shelf survives.
//! 2. *Verified*: the content that a read returns has the name that was asked for.
//! 3. *Kept*: a pinned chunk is never collected, nor one in a pack younger than the grace.
//! 4. *Bounded*: memory is the [index](crate::INDEX_BYTES_PER_CHUNK), the pins, and three packs.
//!
//! | lock | guards | under it |
//! |---|---|---|
//! | `writer` | the pack being filled | `state`; never I/O: it is let go while a pack is put |
//! | `state` | index, table of packs, pins | nothing |

use crate::counters::{ChunkCounters, ChunkCounts};
use crate::domain::DedupDomain;
use crate::error::ChunkError;
use crate::format::{PackId, TableEntry};
use crate::index::ChunkIdPrefix;
use crate::pack::PackBuilder;
use crate::packs::Pack;
use crate::seeded::{ChunkBug, bug};
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

/// The contents of a store, in numbers.
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
    /// Returns the domain of the chunks.
    pub fn domain(&self) -> &DedupDomain {
        &self.0.domain
    }

    /// Returns which of these chunks are here. A chunk said to be here stays for the grace of a
    /// collection; after that, until it is [pinned](Self::pin), it may go.
    pub fn find_present(&self, chunks: &[ChunkId]) -> Vec<bool> {
        let state = self.0.state.read();
        // Read under the lock: a collection that waits for the lock must not find the use older
        // than it is.
        let now = self.now();
        let mut present = Vec::with_capacity(chunks.len());
        for chunk in chunks {
            let known = state.index.get(&ChunkIdPrefix::from_id(chunk));
            let found = known.filter(|known| !known.is_damaged());
            if let Some(known) = found
                && !bug(ChunkBug::HaveForgotten)
            {
                state.packs.record_use(known.place().slot, now);
            }
            present.push(found.is_some());
        }
        present
    }

    /// Returns which of these chunks are here, for a caller that is not going to name them: they
    /// may be collected at once.
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

    /// Returns the place of the packs, for people.
    pub fn place(&self) -> String {
        self.0.shelf.place()
    }

    /// Returns the present contents of the store, in numbers.
    pub fn usage(&self) -> StoreUsage {
        let state = self.0.state.read();
        let mut usage = StoreUsage {
            chunks: state.index.len(),
            packs: 0,
            bytes: 0,
            pinned: state.pins.len(),
        };
        // Under one lock, so that the numbers fit each other.
        for (_, pack) in state.packs.iter() {
            usage.packs += 1;
            usage.bytes += pack.bytes;
        }
        usage
    }

    /// Returns the number of chunks that reading or [checking](Self::check) has found damaged since
    /// the store was opened, and that were not stored again.
    pub fn damaged_chunks(&self) -> usize {
        self.0.state.write().count_damaged()
    }

    /// Returns the work done since the store was opened.
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

    /// Returns a pack's row of the table; `None` if it has been collected.
    pub(crate) fn find_pack(&self, id: PackId) -> Option<Pack> {
        let state = self.0.state.read();
        state.packs.get(state.packs.find_slot(id)?).copied()
    }

    pub(crate) fn now(&self) -> Duration {
        self.0.clock.monotonic_time()
    }

    /// Makes an empty pack under a name that no other has.
    pub(crate) fn new_pack(&self) -> PackBuilder {
        let state = self.0.state.read();
        loop {
            let id = PackId::new(self.0.entropy.random_id());
            // Random names do not meet, unless the source of randomness is broken or seeded.
            if state.packs.find_slot(id).is_none() {
                return PackBuilder::new(&self.0.domain, id, self.0.clock.civil_time().secs);
            }
        }
    }

    /// Puts a pack on the shelf, durably. After an error it is not there, or a garbage pack
    /// without chunks in the index.
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
            // The pack may be there nevertheless. If it cannot be removed either, it is found when
            // the store is opened again, and collected.
            if let Err(also) = self.0.shelf.remove(&id.object_name()) {
                log::warn!("pack {id} could not be put ({error}) nor taken back ({also})");
            }
            return Err(error.into());
        }
        self.0.counters.count_pack(pack.bytes);
        Ok((pack, entries))
    }
}
