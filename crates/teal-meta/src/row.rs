//! The rows of the stored metadata.

use std::collections::BTreeMap;
use teal_proto::ConflictKind;
use teal_types::{
    BatchId, BatchNo, ChunkId, CommitSeq, FileType, Incarnation, Name, ObjectNo, ReplicaNo,
    ReplicatedAttributes, ServerIncarnation, Timestamp,
};

/// The ranges in which content has changed, as (offset, length), ascending; `None` if it may be
/// anywhere.
pub type Ranges = Option<Vec<(u64, u64)>>;

/// A volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeRow {
    /// Its name, for people.
    pub label: String,
    /// The life of its history.
    pub incarnation: ServerIncarnation,
    /// The newest commit.
    pub head: CommitSeq,
    /// The digest of the history up to there.
    pub digest: [u8; 32],
    /// The time of the newest commit.
    pub time: Timestamp,
    /// The number for the next replica.
    pub next_replica: ReplicaNo,
    /// The number of the next conflict.
    pub next_conflict: u64,
    /// The next of the server's own object numbers.
    pub own_next: u64,
    /// The end of the server's own object numbers.
    pub own_end: u64,
}

/// The state of an object but for its names, extended attributes and content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectRow {
    /// Its type.
    pub kind: FileType,
    /// Its attributes; a directory's modification time is derived.
    pub attributes: ReplicatedAttributes,
    /// The commit that changed the attributes last.
    pub attr_seq: CommitSeq,
    /// Bytes of content.
    pub size: u64,
    /// The commit that changed the content last.
    pub data_seq: CommitSeq,
    /// The commit that changed the content last in another way than by appending to it.
    pub rewritten_seq: CommitSeq,
    /// The target of a symbolic link.
    pub target: Vec<u8>,
    /// The commit that changed its names last.
    pub link_seq: CommitSeq,
    /// The commit that changed its extended attributes last; 0: it never had one.
    pub xattr_seq: CommitSeq,
}

/// The object that a name leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryRow {
    /// The object.
    pub object: ObjectNo,
    /// The commit that put it there.
    pub seq: CommitSeq,
}

/// An extended attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XattrRow {
    /// Its value.
    pub value: Vec<u8>,
    /// The commit that set it.
    pub seq: CommitSeq,
}

/// A piece of live content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtentRow {
    /// The offset in the file.
    pub offset: u64,
    /// Bytes, 1 to [`EXTENT_MAX`](crate::EXTENT_MAX).
    pub len: u64,
    /// The chunk.
    pub chunk: ChunkId,
    /// First byte in it.
    pub start: u32,
}

/// The place of a row of content history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PastPlace {
    /// The object.
    pub object: ObjectNo,
    /// The offset at which it begins.
    pub offset: u64,
    /// The commit that made it.
    pub seq: CommitSeq,
}

/// A piece of content in history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PastExtent {
    /// The commit it came with.
    pub seq: CommitSeq,
    /// The offset in the file.
    pub offset: u64,
    /// Bytes; of chunks at most [`EXTENT_MAX`](crate::EXTENT_MAX).
    pub len: u64,
    /// The chunk and the first byte in it; `None`: zeros.
    pub source: Option<(ChunkId, u32)>,
}

/// The names of a directory as they were.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PastNames {
    /// Each with the object it led to, by their bytes.
    pub names: Vec<(Name, ObjectNo)>,
    /// Rows of history that were read for it.
    pub rows: usize,
}

impl PastNames {
    /// Makes the names from a snapshot and the changes since, oldest first.
    pub(crate) fn new(
        snapshot: impl IntoIterator<Item = (Name, ObjectNo)>,
        changes: impl IntoIterator<Item = (Name, Option<ObjectNo>)>,
    ) -> Self {
        let mut names: BTreeMap<Name, ObjectNo> = snapshot.into_iter().collect();
        // Rows are counted, so that the caller sees when a snapshot pays.
        let mut rows = names.len();
        for (name, object) in changes {
            rows += 1;
            match object {
                Some(object) => names.insert(name, object),
                None => names.remove(&name),
            };
        }
        Self {
            names: names.into_iter().collect(),
            rows,
        }
    }
}

/// The counts of a directory's names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NameTally {
    /// Names that live in it.
    pub names: u64,
    /// Rows of its names' history since its last snapshot.
    pub changes: u64,
}

/// An extended attribute in history: its name, the commit, and the value from then on (`None`:
/// gone).
pub type PastXattr = (Vec<u8>, CommitSeq, Option<Vec<u8>>);

/// A commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommitRow {
    /// The batch: that it replica, incarnation and number.
    pub batch: BatchId,
    /// The server's time.
    pub time: Timestamp,
    /// The digest of the history up to it.
    pub digest: [u8; 32],
}

/// A batch that was committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchRow {
    /// The digest of its operations.
    pub digest: [u8; 32],
    /// Its place in history.
    pub seq: CommitSeq,
}

/// A part of a batch that is not committed yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StagedPart {
    /// The incarnation that made it.
    pub incarnation: Incarnation,
    /// Its batch.
    pub batch: BatchNo,
    /// Its number in the batch.
    pub part: u32,
    /// Its length in bytes.
    pub len: u64,
}

/// A replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaRow {
    /// Its name, for people.
    pub device: String,
    /// Its present life; 0: none yet.
    pub incarnation: Incarnation,
    /// The last batch of that life.
    pub last_batch: BatchNo,
    /// The position it had at its last hello.
    pub position: CommitSeq,
    /// Is true if it is shut out.
    pub is_revoked: bool,
    /// Is true if it is the serving machine's own.
    pub is_local: bool,
    /// When it was last seen.
    pub seen: Timestamp,
}

/// An enrolment token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenRow {
    /// The time until which it is valid.
    pub expires: Timestamp,
    /// Is true if it has been used.
    pub is_used: bool,
}

/// A conflict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConflictRow {
    /// The kind of conflict.
    pub kind: ConflictKind,
    /// The commit that met it.
    pub seq: CommitSeq,
    /// The server's time then.
    pub time: Timestamp,
    /// The device of the later operation.
    pub device: String,
    /// The object it is about.
    pub object: ObjectNo,
    /// The object that has the later state.
    pub copy: Option<ObjectNo>,
    /// The change that was not done, in words.
    pub lost: String,
}
