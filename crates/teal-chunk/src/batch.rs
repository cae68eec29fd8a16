//! Storing chunks: many share a pack, many commits share a put.
//!
//! # Guarantees
//! 1. *Together*: packs grow to the target; a commit puts the chunks that have gathered, for all
//!    batches that wait.
//! 2. *Bounded*: one pack is filled and one is being put; a batch that would fill the next waits
//!    for that.
//! 3. *Honest*: a put that fails is answered to every batch that has a chunk in the pack, those
//!    that only met it there included.

use crate::error::ChunkError;
use crate::format::chunk::{self, ChunkHeader};
use crate::index::ChunkIdPrefix;
use crate::limits::CHUNK_MAX;
use crate::pack::PackBuilder;
use crate::packs::Pack;
use crate::pin::Pin;
use crate::seeded::{ChunkBug, bug};
use crate::store::ChunkStore;
use crate::writer::{PackWriter, PutOutcome, UnstoredPack, WriterState};
use parking_lot::MutexGuard;
use std::collections::BTreeSet;
use std::sync::Arc;
use teal_types::ChunkId;

impl PackWriter {
    /// Takes a chunk into the open pack; `None` if the store has it already.
    fn add_chunk(
        &self,
        store: &ChunkStore,
        header: &ChunkHeader,
        encoded: &[u8],
    ) -> Option<Arc<PutOutcome>> {
        let chunk = ChunkIdPrefix::from_id(&header.id);
        let mut filling = self.filling.lock();
        loop {
            // Asked anew after each wait: the put that has ended may have brought this chunk.
            if store.0.state.read().has_chunk(&chunk) {
                return None;
            }
            if let Some(outcome) = filling.put_of(&chunk) {
                return Some(Arc::clone(outcome));
            }
            let (builder, pack) = filling.open.get_or_insert_with(|| {
                let empty = UnstoredPack {
                    chunks: BTreeSet::new(),
                    outcome: Arc::default(),
                };
                (store.new_pack(), empty)
            });
            if builder.has_room(encoded.len(), store.0.pack_target) {
                builder.append(header, encoded);
                pack.chunks.insert(chunk);
                return Some(Arc::clone(&pack.outcome));
            }
            self.put_or_wait(store, &mut filling);
        }
    }

    /// Waits until this pack is durable, and puts it if no other thread does.
    fn wait_until_durable(
        &self,
        store: &ChunkStore,
        outcome: &PutOutcome,
    ) -> Result<(), ChunkError> {
        let mut filling = self.filling.lock();
        loop {
            if let Some(result) = outcome.0.get() {
                return result.clone();
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
        let Some((builder, pack)) = filling.open.take() else {
            return;
        };
        debug_assert!(!pack.chunks.is_empty(), "an empty pack is never put");
        let outcome = Arc::clone(&pack.outcome);
        // Stays visible as sealed, so that a chunk of it is not stored twice meanwhile.
        filling.sealed = Some(pack);
        let result = MutexGuard::unlocked(filling, || put_and_register(store, builder));
        filling.sealed = None;
        outcome.0.set(result).expect("a pack is put once");
        self.ended.notify_all();
    }
}

/// Puts a pack, and only then lets the index know its chunks.
fn put_and_register(store: &ChunkStore, builder: PackBuilder) -> Result<(), ChunkError> {
    if bug(ChunkBug::HadTooEarly) || bug(ChunkBug::FailedPutForgotten) {
        // Seeded bugs: the chunks can be had before the pack is durable, or though it is not.
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
        return if bug(ChunkBug::FailedPutForgotten) {
            Ok(())
        } else {
            outcome
        };
    }
    // Durable first: from the moment of registration a client may be told that the chunk is here.
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
    /// As [`ChunkBatch::add`] and [`ChunkBatch::commit`].
    pub fn put<'a>(
        &self,
        chunks: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<(Vec<ChunkId>, Pin), ChunkError> {
        let mut batch = self.begin_batch()?;
        let mut ids = Vec::new();
        for content in chunks {
            ids.push(batch.add(content)?);
        }
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
        let parts = Arc::clone(&self.store.0);
        let chunk = parts.domain.name_content(content);
        let prefix = ChunkIdPrefix::from_id(&chunk);
        parts.counters.count_added(content.len());
        let is_here = {
            // Pinned under the lock under which it is looked up: between the two, a collection
            // could take it.
            let mut state = parts.state.write();
            self.pin.add(prefix, &mut state)?;
            state.has_chunk(&prefix)
        };
        if is_here {
            parts.counters.count_hit();
            return Ok(chunk);
        }
        // Compressed outside of all locks.
        let encoded = chunk::encode_chunk(chunk, content);
        let header = ChunkHeader::decode(&encoded).expect("what was encoded just now can be read");
        match parts.writer.add_chunk(&self.store, &header, &encoded) {
            None => parts.counters.count_hit(),
            Some(put) => self.remember_put(put),
        }
        Ok(chunk)
    }

    /// Remembers a put that the commit waits for, once.
    fn remember_put(&mut self, put: Arc<PutOutcome>) {
        // The last one or two packs suffice: chunks of one batch go where chunks went just before.
        let mut latest = self.puts.iter().rev().take(2);
        if !latest.any(|known| Arc::ptr_eq(known, &put)) {
            self.puts.push(put);
        }
    }

    /// Makes every chunk of the batch durable. They stay pinned until the pin is dropped.
    ///
    /// # Errors
    /// Returns the shelf's error, if a pack could not be put: its chunks must be added again, in a
    /// new batch; nothing says they are here.
    pub fn commit(self) -> Result<Pin, ChunkError> {
        // The first wait puts the open pack, and the others of the batch are mostly durable then.
        for put in &self.puts {
            self.store.0.writer.wait_until_durable(&self.store, put)?;
        }
        Ok(self.pin)
    }
}
