//! The errors of a chunk store.
//!
//! # Guarantees
//! 1. *Named*: the message says which chunk, pack or place, and what to do.
//! 2. *Absent, damaged and unreachable are three things*: only a store that has looked says that it
//!    does not have a chunk.

use crate::format::PackId;
use crate::shelf::ShelfError;
use teal_types::ChunkId;

/// The errors of a chunk store. A variant exists because a caller branches on it. Cloning is cheap:
/// the error of one failed put is returned to all batches that waited for it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ChunkError {
    /// The store does not have it: a client that has the content may send it.
    #[error("chunk {chunk} is not in the store")]
    Absent {
        /// The chunk.
        chunk: ChunkId,
    },
    /// The store should have it and cannot give it; adding it again repairs it.
    #[error(
        "chunk {chunk} in pack {pack} is damaged: {what}; it is stored again when a client sends it"
    )]
    Damaged {
        /// The chunk.
        chunk: ChunkId,
        /// The pack it lies in.
        pack: PackId,
        /// The damage, in words.
        what: &'static str,
    },
    /// The place of the packs refused; nothing is known about the chunk.
    #[error(transparent)]
    Shelf(#[from] ShelfError),
    /// A chunk must have 1 byte to [`CHUNK_MAX`](crate::CHUNK_MAX).
    #[error(
        "a chunk of {bytes} bytes cannot be stored: 1 to {} are possible",
        crate::limits::CHUNK_MAX
    )]
    Size {
        /// Its length.
        bytes: usize,
    },
    /// The packs were written with another key of the same domain.
    #[error(
        "pack {pack} in {place} was written with another key of this domain; \
         the right key is needed to open it"
    )]
    WrongKey {
        /// The first such pack.
        pack: PackId,
        /// The place of the pack.
        place: String,
    },
    /// All packs belong to another domain.
    #[error(
        "{place} holds the chunks of another domain (pack {pack}); give this one a place of its own"
    )]
    WrongDomain {
        /// The first pack.
        pack: PackId,
        /// The place of the pack.
        place: String,
    },
    /// The store was opened for reading only.
    #[error("{place} was opened for reading only")]
    ReadOnly {
        /// The place.
        place: String,
    },
    /// More than [`PINS_MAX`](crate::PINS_MAX) chunks would be pinned.
    #[error("too many chunks are in use by commits at once; try again when others have ended")]
    TooManyPins,
    /// A collection is running; there is one at a time.
    #[error("a collection is running already")]
    Collecting,
}
