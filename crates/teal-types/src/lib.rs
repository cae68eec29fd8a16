//! The types that every crate of TealFS shares: ids, positions, names, attributes, operations and
//! units.
//!
//! # Guarantees
//! 1. Nothing here reads a clock, a file or a random number.
//! 2. Positions of different kinds ([`Lsn`], [`UpdateId`], [`CommitSeq`]) are different types and
//!    never convert into each other.
//! 3. A [`Name`] is always 1 to 255 bytes without `/` and NUL, and is neither `.` nor `..`.

mod attr;
mod batch;
mod chunk;
mod decimal;
mod id;
mod joules;
pub mod limits;
mod modes;
mod name;
mod position;
pub mod ranges;
mod replica;
mod span;
mod time;
mod units;

pub use attr::{Attr, FileType};
pub use batch::{Author, BatchId, BatchNo, Incarnation, ReplicaNo, ServerIncarnation};
pub use chunk::ChunkId;
pub use id::{DriveNo, LEASE, LeaseNo, ObjectNo, VolumeId};
pub use joules::{Energy, Power};
pub use modes::{RenameMode, XattrMode, split_whiteout};
pub use name::{NAME_MAX, Name, NameError};
pub use position::{CommitSeq, Lsn, UpdateId};
pub use ranges::ByteRanges;
pub use replica::{
    ContentChange, ContentPiece, HardLink, ObjectVersion, Op, PieceSource, REPLICATED_LIMIT,
    ReplicatedAttributes,
};
pub use span::{Time, TimeSpan};
pub use time::Timestamp;
pub use units::{BLOCK, Block, Bytes, SECTOR, Sector};
