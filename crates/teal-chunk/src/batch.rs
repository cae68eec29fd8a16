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
use crate::writer::PutOutcome;
use std::sync::Arc;
use teal_types::ChunkId;

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
    /// Takes a chunk into the open pack; `None` if the store has it already.
    fn add_chunk(&self, header: &ChunkHeader, encoded: &[u8]) -> Option<Arc<PutOutcome>> {
        let chunk = ChunkIdPrefix::from_id(&header.id);
        let mut filling = self.0.writer.lock();
        loop {
            if self.0.state.read().has_chunk(&chunk) {
                return None;
            }
            if let Some(outcome) = filling.put_of(&chunk) {
                return Some(Arc::clone(outcome));
            }
            let appended = filling.append(header, encoded, self.0.pack_target, || self.new_pack());
            if appended.is_some() {
                return appended;
            }
            self.0
                .writer
                .put_or_wait(&mut filling, |pack| self.put_and_register(pack));
        }
    }

    fn put_and_register(&self, builder: PackBuilder) -> Result<(), ChunkError> {
        if bug(Bug::HadTooEarly) || bug(Bug::FailedPutForgotten) {
            let id = builder.pack_id();
            let (bytes, entries) = builder.clone().finish();
            let pack = Pack {
                id,
                bytes: bytes.len() as u64,
                seen: self.now(),
                whole: true,
            };
            self.0.state.write().register_pack(pack, &entries);
            let outcome = self.put_pack(builder).map(drop);
            return if bug(Bug::FailedPutForgotten) {
                Ok(())
            } else {
                outcome
            };
        }
        let (pack, entries) = self.put_pack(builder)?;
        self.0.state.write().register_pack(pack, &entries);
        Ok(())
    }

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
            self.store.add_chunk(&header, &encoded)
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
        let store = &self.store;
        for outcome in &self.puts {
            store
                .0
                .writer
                .wait_until_durable(outcome, |pack| store.put_and_register(pack))?;
        }
        Ok(self.pin)
    }
}
