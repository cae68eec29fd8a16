//! Versioned metadata behind one trait; the only crate that knows SQL.
//!
//! The crate stores rows and decides nothing: rules, conflicts and limits are the server's. Start
//! with [`MetaStore`]; [`Sqlite`] is the real one, [`MemoryMeta`] its twin for tests and
//! simulations. `docs/format-meta.md` has every table.
//!
//! # Guarantees
//! 1. *Atomic and durable*: a transaction for which [`write()`] has returned `Ok` is there as a
//!    whole, whatever happens; otherwise nothing of it is.
//! 2. *Isolated*: a [`read()`] sees one state, however long it takes.
//! 3. *Two parts*: the live tables serve the live tree alone; history is only ever inserted into.
//! 4. *One contract*: both implementations pass one suite of tests.

mod error;
mod memory;
mod meta;
mod row;
mod sqlite;

pub use error::MetaError;
pub use memory::MemoryMeta;
pub use meta::{
    CommitDurability, MetaStore, ReadTransaction, WriteTransaction, read, write, write_soon,
};
pub use row::{
    BatchRow, CommitRow, ConflictRow, EntryRow, ExtentRow, NameTally, ObjectRow, PastExtent,
    PastNames, PastPlace, PastXattr, Ranges, ReplicaRow, StagedPart, TokenRow, VolumeRow, XattrRow,
};
pub use sqlite::Sqlite;

/// The length of the longest extent, in bytes: no chunk is longer. A search for the extent that
/// covers an offset need not look farther before it.
pub const EXTENT_MAX: u64 = teal_types::limits::CHUNK_MAX as u64;
