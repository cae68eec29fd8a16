//! The words every room of TealFS shares: ids, positions, names, attributes, operations and units.
//!
//! # Guarantees
//! 1. Nothing here reads a clock, a file or a random number.
//! 2. Positions of different kinds ([`Lsn`], [`Stamp`], [`CommitSeq`]) are different types and
//!    never convert into each other.
//! 3. A [`Name`] is always 1 to 255 bytes without `/` and NUL, and is neither `.` nor `..`.

mod attr;
mod chunk;
mod decimal;
mod id;
mod joules;
pub mod limits;
mod name;
mod op;
mod position;
pub mod ranges;
mod replica;
mod span;
mod time;
mod units;

pub use attr::{Attr, FileType};
pub use chunk::ChunkId;
pub use id::{ObjectId, ObjectNo, VolumeId};
pub use joules::{Energy, Power};
pub use name::{NAME_MAX, Name, NameError};
pub use op::OpKind;
pub use position::{CommitSeq, Lsn, Stamp};
pub use ranges::Ranges;
pub use replica::{
    Attributes, ContentChange, LEASE, Link, Op, Piece, REPLICATED_LIMIT, Source, Version,
};
pub use span::{Span, Time};
pub use time::Timestamp;
pub use units::{BLOCK, Block, Bytes, SECTOR, Sector};
