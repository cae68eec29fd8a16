//! Every bound of this crate in one place.

/// The most bytes of one chunk, before compression.
pub use teal_types::limits::CHUNK_MAX;

/// The most bytes of a pack that is believed: a longer one is damage.
pub const PACK_MAX: u64 = 256 << 20;

/// A pack is written when it has grown to this, unless a commit comes first: a big request for an
/// object store, and a small part of the memory of any server (two packs at most are in memory for
/// writing, one for collection).
pub const PACK_TARGET: usize = 32 << 20;

/// The most chunks of a pack, so that its table is at most 3 MiB.
pub const PACK_CHUNKS_MAX: usize = 1 << 16;

/// The most chunks pinned at once, some 50 MiB of memory.
pub const PINS_MAX: usize = 1 << 20;

/// Memory of the index for one chunk, at worst (just after its tables have grown).
pub const INDEX_BYTES_PER_CHUNK: usize = 72;

/// The most problems that one report lists; the others are counted.
pub const PROBLEMS_MAX: usize = 1000;

/// Bytes that salvage of a damaged pack spends on what looks like chunks and is none, beside 16
/// times the pack: content made up of headers must not cost hours.
pub(crate) const SALVAGE_EXTRA: usize = 64 << 20;
