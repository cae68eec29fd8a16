//! Storing chunks: many share a pack, many commits share a put.
//!
//! # Guarantees
//! 1. *Together*: packs grow to the target; a commit puts what has gathered, for everybody who
//!    waits.
//! 2. *Bounded*: one pack is filled and one is being put; whoever fills the next waits for it.
//! 3. *Honest*: a put that fails is answered to every batch that has a chunk in the pack, those
//!    that only met it there included.

use crate::error::ChunkError;
use crate::format::chunk::{self, ChunkHeader};
use crate::index::ChunkIdPrefix;
use crate::limits::CHUNK_MAX;
use crate::pack::PackBuilder;
use crate::packs::Pack;
use crate::pin::Pin;
use crate::seeded::{Bug, bug};
use crate::store::ChunkStore;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use teal_types::ChunkId;

/// How the put of one pack has ended, once it has.
#[derive(Debug, Default)]
struct PutOutcome(OnceLock<Result<(), ChunkError>>);

/// A pack that is not durable yet.
struct UnstoredPack {
    chunks: BTreeSet<ChunkIdPrefix>,
    outcome: Arc<PutOutcome>,
}

#[derive(Default)]
struct WriterState {
    open: Option<(PackBuilder, UnstoredPack)>,
    /// Being put, by the thread that has sealed it.
    sealed: Option<UnstoredPack>,
}

impl WriterState {
    /// The pack that this chunk is on its way in.
    fn put_of(&self, half: &ChunkIdPrefix) -> Option<&Arc<PutOutcome>> {
        let mut pending = self
            .sealed
            .iter()
            .chain(self.open.iter().map(|(_, pending)| pending));
        pending
            .find(|pending| pending.chunks.contains(half))
            .map(|pending| &pending.outcome)
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
    /// Takes a chunk into the open pack; `None` if the store has it already.
    fn add_chunk(
        &self,
        store: &ChunkStore,
        header: &ChunkHeader,
        encoded: &[u8],
    ) -> Option<Arc<PutOutcome>> {
        let half = ChunkIdPrefix::from_id(&header.id);
        let mut filling = self.filling.lock();
        loop {
            if store.0.state.read().has_chunk(&half) {
                return None;
            }
            if let Some(flight) = filling.put_of(&half) {
                return Some(Arc::clone(flight));
            }
            let (builder, pending) = filling.open.get_or_insert_with(|| {
                (
                    store.new_pack(),
                    UnstoredPack {
                        chunks: BTreeSet::new(),
                        outcome: Arc::default(),
                    },
                )
            });
            if builder.has_room(encoded.len(), store.0.pack_target) {
                builder.append(header, encoded);
                pending.chunks.insert(half);
                return Some(Arc::clone(&pending.outcome));
            }
            self.put_or_wait(store, &mut filling);
        }
    }

    /// Waits until this pack is durable, putting it if nobody does.
    fn wait_until_durable(
        &self,
        store: &ChunkStore,
        flight: &PutOutcome,
    ) -> Result<(), ChunkError> {
        let mut filling = self.filling.lock();
        loop {
            if let Some(outcome) = flight.0.get() {
                return outcome.clone();
            }
            self.put_or_wait(store, &mut filling);
        }
    }

    /// Puts the open pack, or waits for the end of the put that is going on.
    fn put_or_wait(&self, store: &ChunkStore, filling: &mut MutexGuard<'_, WriterState>) {
        if filling.sealed.is_some() {
            self.ended.wait(filling);
            return;
        }
        let Some((builder, pending)) = filling.open.take() else {
            return;
        };
        let flight = Arc::clone(&pending.outcome);
        filling.sealed = Some(pending);
        let outcome = MutexGuard::unlocked(filling, || put_and_register(store, builder));
        filling.sealed = None;
        flight.0.set(outcome).expect("a pack is put once");
        self.ended.notify_all();
    }
}

fn put_and_register(store: &ChunkStore, builder: PackBuilder) -> Result<(), ChunkError> {
    if bug(Bug::HadTooEarly) || bug(Bug::FailedPutForgotten) {
        let id = builder.pack_id();
        let (bytes, entries) = builder.clone().finish();
        let pack = Pack {
            id,
            bytes: bytes.len() as u64,
            seen: store.now(),
            whole: true,
        };
        store.0.state.write().register_pack(pack, &entries);
        let outcome = store.put_pack(builder).map(drop);
        return if bug(Bug::FailedPutForgotten) {
            Ok(())
        } else {
            outcome
        };
    }
    let (pack, entries) = store.put_pack(builder)?;
    store.0.state.write().register_pack(pack, &entries);
    Ok(())
}

/// Chunks that become durable together. Dropped without [`commit`](Self::commit), it promises
/// nothing; its chunks may be stored or not.
pub struct ChunkBatch {
    store: ChunkStore,
    pin: Pin,
    puts: Vec<Arc<PutOutcome>>,
}

impl std::fmt::Debug for ChunkBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch")
            .field("pin", &self.pin)
            .finish_non_exhaustive()
    }
}

impl ChunkStore {
    /// Begins a batch.
    ///
    /// # Errors
    /// [`ChunkError::ReadOnly`].
    pub fn begin_batch(&self) -> Result<ChunkBatch, ChunkError> {
        self.check_writable()?;
        Ok(ChunkBatch {
            store: self.clone(),
            pin: Pin::empty(self),
            puts: Vec::new(),
        })
    }

    /// Stores these chunks durably and pins them: a batch of its own.
    ///
    /// # Errors
    /// As [`Batch::add`] and [`Batch::commit`].
    pub fn put<'a>(
        &self,
        chunks: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<(Vec<ChunkId>, Pin), ChunkError> {
        let mut batch = self.begin_batch()?;
        let ids = chunks
            .into_iter()
            .map(|content| batch.add(content))
            .collect::<Result<_, _>>()?;
        Ok((ids, batch.commit()?))
    }
}

impl ChunkBatch {
    /// Adds a chunk and names it. Waits while two packs are full and the shelf is slow.
    ///
    /// # Errors
    /// [`ChunkError::Size`], [`ChunkError::TooManyPins`].
    pub fn add(&mut self, content: &[u8]) -> Result<ChunkId, ChunkError> {
        if content.is_empty() || content.len() > CHUNK_MAX {
            return Err(ChunkError::Size {
                bytes: content.len(),
            });
        }
        let chunk = self.store.0.domain.name_content(content);
        let half = ChunkIdPrefix::from_id(&chunk);
        self.store.0.counters.count_added(content.len());
        let is_here = {
            let mut state = self.store.0.state.write();
            self.pin.add(half, &mut state)?;
            state.has_chunk(&half)
        };
        let flight = if is_here {
            None
        } else {
            let encoded = chunk::encode_chunk(chunk, content);
            let header =
                ChunkHeader::decode(&encoded).expect("what was encoded just now can be read");
            self.store
                .0
                .writer
                .add_chunk(&self.store, &header, &encoded)
        };
        match flight {
            None => self.store.0.counters.count_hit(),
            // The last one or two packs: chunks of one batch go where chunks went just before.
            Some(flight)
                if self
                    .puts
                    .iter()
                    .rev()
                    .take(2)
                    .any(|known| Arc::ptr_eq(known, &flight)) => {}
            Some(flight) => self.puts.push(flight),
        }
        Ok(chunk)
    }

    /// Makes every chunk of the batch durable. They stay pinned until the pin is dropped.
    ///
    /// # Errors
    /// The shelf's, if a pack could not be put: its chunks must be added again, in a new batch;
    /// nothing says they are here.
    pub fn commit(self) -> Result<Pin, ChunkError> {
        for flight in &self.puts {
            self.store
                .0
                .writer
                .wait_until_durable(&self.store, flight)?;
        }
        Ok(self.pin)
    }
}
