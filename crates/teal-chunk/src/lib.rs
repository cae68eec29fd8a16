//! Chunks: content cut where it says so, named by its digest, kept in packs in an object store.
//!
//! Start with [`ChunkStore`]: its guarantees and its locks. [`chunk_ranges`] and [`ChunkStream`]
//! cut content; a [`ChunkBatch`] stores chunks durably; a [`Pin`] keeps them while a commit names
//! them; [`ChunkStore::begin_collection`] begins to remove chunks that nothing names. `format` has
//! every byte of a pack. Async stays inside `shelf`: everything here waits.

mod batch;
mod check;
mod chunker;
mod codec;
mod collect;
mod counters;
mod domain;
mod error;
mod format;
mod index;
mod limits;
mod open;
mod pack;
mod packs;
mod pin;
mod read;
#[cfg(feature = "seeded-bugs")]
pub mod seeded;
#[cfg(not(feature = "seeded-bugs"))]
#[allow(unreachable_pub, dead_code, reason = "public with the feature only")]
mod seeded;
mod shelf;
mod store;
mod tables;
mod writer;

pub use batch::ChunkBatch;
pub use check::{PackCheckReport, PackProblem};
pub use chunker::{ChunkSizes, ChunkStream, chunk_ranges};
pub use collect::{CollectionReport, MarkPhase, SweepPhase};
pub use counters::ChunkCounts;
pub use domain::{DedupDomain, DomainId};
pub use error::ChunkError;
pub use format::PackId;
pub use limits::*;
pub use open::{ChunkStoreOptions, ShelfScanReport};
pub use pin::{Pin, PinError};
pub use read::ChunkInfo;
pub use shelf::directory::{AccessMode, DirectoryShelf};
pub use shelf::memory::MemoryShelf;
pub use shelf::{Shelf, ShelfError, ShelfErrorCause, ShelfObject};
pub use store::{ChunkStore, StoreUsage};
