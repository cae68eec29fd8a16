//! The messages of replicas about a volume: the state of an object, and the operations that change
//! it.
//!
//! # Guarantees
//! 1. An operation names the commit that its author had seen ([`Op`]: `base`), so that the server
//!    can tell a conflict from a successor.
//! 2. An [`ObjectVersion`] is a state, not a change: installing it twice, or an older one after a
//!    newer one, is harmless.

use crate::{ChunkId, CommitSeq, FileType, Name, ObjectNo, Timestamp};
use serde::{Deserialize, Serialize};

/// Object numbers of a volume that has replicas lie below this: 2^22 leases.
pub const REPLICATED_LIMIT: u64 = 1 << 52;

/// One name of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HardLink {
    /// The directory it is in.
    pub dir: ObjectNo,
    /// The name there.
    pub name: Name,
}

/// The attributes that are the same on every replica. The access time is each replica's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct ReplicatedAttributes {
    /// Permission bits with set-user-id, set-group-id and sticky.
    pub perm: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of devices.
    pub rdev: u32,
    /// Last change of content or entries. Operations on its entries move that of a directory.
    pub mtime: Timestamp,
    /// Last change of anything.
    pub ctime: Timestamp,
    /// When it was made.
    pub btime: Timestamp,
}

/// The source of a piece of content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PieceSource {
    /// Bytes of a chunk from this offset on.
    Chunk {
        /// The chunk's name.
        id: ChunkId,
        /// First byte in it.
        offset: u32,
    },
    /// Nothing: reads as zeros.
    Hole,
}

/// A part of a file's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ContentPiece {
    /// The offset in the file, in bytes.
    pub offset: u64,
    /// Bytes, at least one.
    pub len: u64,
    /// The source of the bytes.
    pub source: PieceSource,
}

/// A change of a file's content: first cut to `cut` bytes if it was longer, then `pieces`, then the
/// size is `size`.
///
/// One too large for a message goes in several operations of the same batch; the later ones have
/// `cut` equal to `size`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContentChange {
    /// The least size it had meanwhile, in bytes.
    pub cut: u64,
    /// The size in the end.
    pub size: u64,
    /// Modification time.
    pub mtime: Timestamp,
    /// New content, ascending, not overlapping, all below `size`.
    pub pieces: Vec<ContentPiece>,
}

/// One operation of a batch that a client sends. `base` is the commit that its author had applied
/// when it made its first change to this component.
///
/// Within a batch the order is: [`Create`](Self::Create)s; removals ([`Remove`](Self::Remove) and
/// the first half of [`Move`](Self::Move)); placements ([`Place`](Self::Place) and the second
/// half); all others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    /// A new object, without a name yet. Of one that is there already, nothing.
    Create {
        /// Its number, from the author's lease.
        object: ObjectNo,
        /// Its type.
        kind: FileType,
        /// Its attributes.
        attributes: ReplicatedAttributes,
        /// The target of a symbolic link; empty for others.
        target: Vec<u8>,
    },
    /// A name goes; with its last one the object.
    Remove {
        /// The object.
        object: ObjectNo,
        /// The commit that the author had seen.
        base: CommitSeq,
        /// The name.
        link: HardLink,
        /// When, by the author's clock: becomes the directory's modification time.
        time: Timestamp,
    },
    /// A name comes.
    Place {
        /// The object.
        object: ObjectNo,
        /// The commit that the author had seen.
        base: CommitSeq,
        /// The name.
        link: HardLink,
        /// When, by the author's clock.
        time: Timestamp,
    },
    /// A name becomes another, at once.
    Move {
        /// The object.
        object: ObjectNo,
        /// The commit that the author had seen.
        base: CommitSeq,
        /// The name that goes.
        from: HardLink,
        /// The name that comes.
        to: HardLink,
        /// When, by the author's clock.
        time: Timestamp,
    },
    /// All attributes; the modification time of a directory only if its entries have not been
    /// changed by another replica since.
    SetAttributes {
        /// The object.
        object: ObjectNo,
        /// The commit that the author had seen.
        base: CommitSeq,
        /// The new ones.
        attributes: ReplicatedAttributes,
    },
    /// One extended attribute is set, or goes.
    SetXattr {
        /// The object.
        object: ObjectNo,
        /// The commit that the author had seen.
        base: CommitSeq,
        /// Its name with the prefix.
        name: Vec<u8>,
        /// Its value; `None`: it goes.
        #[serde(with = "serde_bytes")]
        value: Option<Vec<u8>>,
    },
    /// Content changes.
    SetContent {
        /// The object.
        object: ObjectNo,
        /// The commit that the author had seen.
        base: CommitSeq,
        /// The change.
        change: ContentChange,
    },
    /// Content was put behind the end of a file, and nothing else was done to it since `base`.
    Append {
        /// The object.
        object: ObjectNo,
        /// The commit that the author had seen.
        base: CommitSeq,
        /// The tail, as if directly behind what the author had seen: it begins at `cut`, all pieces
        /// lie behind that, and it ends at `size`. Others may have appended since: then the server
        /// moves it behind theirs, if it may (`docs/protocol.md`).
        change: ContentChange,
    },
}

impl Op {
    /// Returns the object that the operation changes.
    pub const fn object(&self) -> ObjectNo {
        match self {
            Self::Create { object, .. }
            | Self::Remove { object, .. }
            | Self::Place { object, .. }
            | Self::Move { object, .. }
            | Self::SetAttributes { object, .. }
            | Self::SetXattr { object, .. }
            | Self::SetContent { object, .. }
            | Self::Append { object, .. } => *object,
        }
    }
}

/// The state of an object at the server, without its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectVersion {
    /// Which object.
    pub object: ObjectNo,
    /// Its type.
    pub kind: FileType,
    /// Its attributes.
    pub attributes: ReplicatedAttributes,
    /// The commit that changed the attributes last.
    pub attr_seq: CommitSeq,
    /// Bytes of content.
    pub size: u64,
    /// The commit that changed the content last.
    pub data_seq: CommitSeq,
    /// The target of a symbolic link; empty for others.
    pub target: Vec<u8>,
    /// All its names.
    pub links: Vec<HardLink>,
    /// The commit that changed the names last.
    pub link_seq: CommitSeq,
    /// All extended attributes, by name.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// The commit that changed the extended attributes last.
    pub xattr_seq: CommitSeq,
}

impl ObjectVersion {
    /// Returns the commit that changed the object last.
    pub fn last_change(&self) -> CommitSeq {
        self.attr_seq
            .max(self.data_seq)
            .max(self.link_seq)
            .max(self.xattr_seq)
    }
}
