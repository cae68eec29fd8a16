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

use crate::batch::Writer;
use crate::counters::{Counters, Counts};
use crate::domain::Domain;
use crate::error::ChunkError;
use crate::format::{Entry, PackId};
use crate::index::{Half, Index, Known};
use crate::pack::PackBuilder;
use crate::packs::{Pack, Packs};
use crate::pin::Pins;
use crate::seeded::{Bug, bug};
use crate::shelf::Shelf;
use crate::shelf::directory::Access;
use parking_lot::RwLock;
use std::sync::Arc;
use std::time::Duration;
use teal_env::{Clock, Entropy};
use teal_types::ChunkId;

/// A store of chunks of one deduplication domain. Clones are the same store.
#[derive(Clone)]
pub struct ChunkStore(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) shelf: Arc<dyn Shelf>,
    pub(crate) domain: Domain,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) access: Access,
    pub(crate) pack_target: usize,
    pub(crate) state: RwLock<State>,
    pub(crate) writer: Writer,
    pub(crate) counters: Counters,
}

/// What is where, and what must stay.
pub(crate) struct State {
    pub(crate) index: Index,
    pub(crate) packs: Packs,
    pub(crate) pins: Pins,
    /// A collection runs: whatever is pinned or stored meanwhile is marked.
    pub(crate) collecting: bool,
}

impl State {
    /// The chunks of a pack that is on the shelf can be had from now on. A good copy known before
    /// stays where it is.
    pub(crate) fn register(&mut self, pack: Pack, entries: &[Entry]) {
        let slot = self.packs.insert(pack);
        for entry in entries {
            let half = Half::of(&entry.id);
            let place = entry.place(slot);
            let mut known = Known::new(place);
            match self.index.get_mut(&half) {
                Some(known) if known.is_bad() => known.moved(place),
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
    pub(crate) fn has(&self, half: &Half) -> bool {
        self.index.get(half).is_some_and(|known| !known.is_bad())
    }
}

/// What a store holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holding {
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
    pub fn domain(&self) -> &Domain {
        &self.0.domain
    }

    /// Returns which of these chunks are here. What is said to be here stays for the grace of a
    /// collection; after that, until it is [pinned](Self::pin), it may go.
    pub fn have(&self, chunks: &[ChunkId]) -> Vec<bool> {
        let (state, now) = (self.0.state.read(), self.now());
        let is_here = |chunk: &ChunkId| match state.index.get(&Half::of(chunk)) {
            Some(known) if !known.is_bad() => {
                if !bug(Bug::HaveForgotten) {
                    state.packs.tell(known.place().slot, now);
                }
                true
            }
            _ => false,
        };
        chunks.iter().map(is_here).collect()
    }

    /// Returns which of these chunks are here, for nobody who is going to name them: they may be
    /// collected at once.
    pub fn peek(&self, chunks: &[ChunkId]) -> Vec<bool> {
        let state = self.0.state.read();
        chunks
            .iter()
            .map(|chunk| state.has(&Half::of(chunk)))
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
    pub fn holding(&self) -> Holding {
        let state = self.0.state.read();
        let (packs, bytes) = state
            .packs
            .iter()
            .fold((0, 0), |(n, bytes), (_, pack)| (n + 1, bytes + pack.bytes));
        Holding {
            chunks: state.index.len(),
            packs,
            bytes,
            pinned: state.pins.len(),
        }
    }

    /// Returns what has been done since the store was opened.
    pub fn counts(&self) -> Counts {
        self.0.counters.counts()
    }

    pub(crate) fn writable(&self) -> Result<(), ChunkError> {
        match self.0.access {
            Access::Write => Ok(()),
            Access::Read => Err(ChunkError::ReadOnly {
                place: self.0.shelf.place(),
            }),
        }
    }

    /// Returns what is known of a pack; `None` if it has been collected.
    pub(crate) fn pack(&self, id: PackId) -> Option<Pack> {
        let state = self.0.state.read();
        state.packs.get(state.packs.find(id)?).copied()
    }

    pub(crate) fn now(&self) -> Duration {
        self.0.clock.monotonic()
    }

    /// An empty pack under a name that no other has.
    pub(crate) fn new_pack(&self) -> PackBuilder {
        let state = self.0.state.read();
        loop {
            let id = PackId::new(self.0.entropy.id());
            if state.packs.find(id).is_none() {
                return PackBuilder::new(&self.0.domain, id, self.0.clock.civil().secs);
            }
        }
    }

    /// Puts a pack on the shelf, durably. After an error it is not there, or a garbage pack of
    /// which nothing is said to be here.
    pub(crate) fn put_pack(&self, builder: PackBuilder) -> Result<(Pack, Vec<Entry>), ChunkError> {
        let id = builder.pack();
        let (bytes, entries) = builder.finish();
        let pack = Pack {
            id,
            bytes: bytes.len() as u64,
            seen: self.now(),
            whole: true,
        };
        if let Err(error) = self.0.shelf.put(&id.object(), bytes) {
            // It may be there nevertheless. If it cannot be removed either, it is found when the
            // store is opened again, and collected.
            if let Err(also) = self.0.shelf.remove(&id.object()) {
                log::warn!("pack {id} could not be put ({error}) nor taken back ({also})");
            }
            return Err(error.into());
        }
        self.0.counters.put(pack.bytes);
        Ok((pack, entries))
    }
}
