//! What a client asks.

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use teal_types::{BatchNo, ChunkId, CommitSeq, Incarnation, Name, ObjectNo, Op, ServerIncarnation};

/// What a client says of itself when it connects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The life its object numbers and batches belong to; 0: it has none yet.
    pub incarnation: Incarnation,
    /// Counter of the last batch that it has made, sent or not; 0: none.
    pub last_batch: BatchNo,
    /// How far it has applied the history.
    pub seen: CommitSeq,
    /// The digest of the history up to there.
    pub seen_digest: [u8; 32],
    /// Some of the commits up to which it had applied the history before, ascending, each with the
    /// digest of the history there; at most [`EARLIER_MAX`](crate::EARLIER_MAX).
    pub earlier: Vec<(CommitSeq, [u8; 32])>,
    /// The life of the server's history that it knows; 0: none.
    pub server_incarnation: ServerIncarnation,
    /// Its name, for people.
    pub device: String,
}

/// A part of a file that is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantedRange {
    /// Which file.
    pub object: ObjectNo,
    /// The state of its content that is meant; another is [`Got::Stale`](crate::Got::Stale).
    pub data_seq: CommitSeq,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// One request. Who asks, and of which volume, the transport knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClientRequest {
    /// The first one of a connection: [`Reply::Welcome`](crate::Reply::Welcome).
    Hello(Hello),
    /// A new life: a fresh lease of object numbers, batches counted from 1. For a new client, or
    /// one whose store is a copy: [`Reply::Incarnated`](crate::Reply::Incarnated).
    Incarnate,
    /// What has changed behind `since`; if nothing, the answer comes when something has, or after
    /// `wait_ms`: [`Reply::Pulled`](crate::Reply::Pulled).
    Pull {
        /// The incarnation that asks; 0: none yet.
        incarnation: Incarnation,
        /// How far the client has applied the history.
        since: CommitSeq,
        /// The digest of the history there.
        digest: [u8; 32],
        /// Only what may concern whoever [keeps](Request::Keep) this is told; 0, or one that the
        /// server does not know: everything is.
        filter: u64,
        /// Goes on behind this object in a long answer, with the `to` it named.
        after: Option<(ObjectNo, CommitSeq)>,
        /// Milliseconds, at most [`WAIT_MAX`](crate::WAIT_MAX).
        wait_ms: u32,
    },
    /// Which of these chunks the server does not have: [`Reply::Missing`](crate::Reply::Missing). A
    /// hint: a commit verifies again.
    Have {
        /// At most [`CHUNKS_MAX`](crate::CHUNKS_MAX).
        chunks: Vec<ChunkId>,
    },
    /// Stores chunks durably: [`Reply::Done`](crate::Reply::Done). They are kept for a while, until
    /// a commit names them.
    Put {
        /// Their content; the server names them itself.
        chunks: Vec<ByteBuf>,
    },
    /// A part of a batch: [`Reply::Done`](crate::Reply::Done). Parts may be sent again.
    Stage {
        /// The incarnation that made it.
        incarnation: Incarnation,
        /// The batch's counter in this incarnation, from 1.
        batch: BatchNo,
        /// Number of the part, from 0.
        part: u32,
        /// Its operations; a batch's operations are those of all its parts.
        ops: Vec<Op>,
    },
    /// Commits a batch: [`Reply::Committed`](crate::Reply::Committed). The same batch again is
    /// answered as before.
    Commit {
        /// The incarnation that made it.
        incarnation: Incarnation,
        /// The batch's counter.
        batch: BatchNo,
        /// How many parts it has.
        parts: u32,
        /// BLAKE3 over the encoded operations of its parts, in order:
        /// [`batch_digest`](crate::batch_digest).
        digest: [u8; 32],
    },
    /// Directories with the versions of all in them: [`Reply::Listings`](crate::Reply::Listings).
    /// The answer has the first, or as much of it as fits; then, whole or not at all, the
    /// directories below it, level by level, then the others and those below them.
    List {
        /// Directories, and the name behind which to go on; at most
        /// [`WANTS_MAX`](crate::WANTS_MAX).
        dirs: Vec<(ObjectNo, Option<Name>)>,
        /// How many entries may come beside those of the first; an empty directory counts as one.
        ahead: u32,
    },
    /// These objects: [`Reply::Versions`](crate::Reply::Versions).
    Look {
        /// At most [`WANTS_MAX`](crate::WANTS_MAX).
        objects: Vec<ObjectNo>,
    },
    /// Content: [`Reply::Data`](crate::Reply::Data). The answer has at least the beginning of the
    /// first, and as much as fits.
    Read {
        /// At most [`WANTS_MAX`](crate::WANTS_MAX).
        wants: Vec<WantedRange>,
    },
    /// Conflicts that nobody has resolved, behind this id:
    /// [`Reply::Conflicts`](crate::Reply::Conflicts).
    Conflicts {
        /// 0: from the first.
        after: u64,
    },
    /// A conflict is settled: [`Reply::Done`](crate::Reply::Done).
    Resolve {
        /// Which.
        conflict: u64,
    },
    /// The versions of an object, oldest first, behind a commit:
    /// [`Reply::History`](crate::Reply::History).
    History {
        /// Whose.
        object: ObjectNo,
        /// Goes on behind this commit.
        after: CommitSeq,
    },
    /// An object as it was after a commit, with content from `offset`:
    /// [`Reply::Past`](crate::Reply::Past).
    ReadPast {
        /// Which.
        object: ObjectNo,
        /// After which commit.
        at: CommitSeq,
        /// First byte of content.
        offset: u64,
        /// Bytes, at most [`REPLY_BYTES`](crate::REPLY_BYTES).
        len: u64,
    },
    /// A polite end: its filters are forgotten, others need not wait for it:
    /// [`Reply::Done`](crate::Reply::Done).
    Bye,
    /// What this client keeps: changes of these objects, and in these directories, are to be told,
    /// and of whatever it is told, lists or makes from the first of these requests on; others need
    /// not be: [`Reply::Kept`](crate::Reply::Kept).
    Keep {
        /// The filter that goes on; 0: a new one begins.
        filter: u64,
        /// At most [`KEPT_MAX`](crate::KEPT_MAX) directories and objects more.
        objects: Vec<ObjectNo>,
        /// All has been said: it can be used.
        is_last: bool,
    },
    /// About the drives of the volume: [`Reply::Devices`](crate::Reply::Devices).
    Devices(DeviceRequest),
    /// The names of a directory as they were after a commit:
    /// [`Reply::PastNames`](crate::Reply::PastNames).
    ListPast {
        /// Which.
        dir: ObjectNo,
        /// After which commit.
        at: CommitSeq,
        /// The name behind which to go on.
        after: Option<Name>,
    },
}

/// Kinds of requests, in the order of the protocol.
pub const REQUEST_KINDS: [&str; 18] = [
    "hello",
    "incarnate",
    "pull",
    "have",
    "put",
    "stage",
    "commit",
    "list",
    "look",
    "read",
    "conflicts",
    "resolve",
    "history",
    "read_past",
    "bye",
    "keep",
    "devices",
    "list_past",
];

impl ClientRequest {
    /// Its number, by which [`REQUEST_KINDS`] has its name.
    pub const fn kind(&self) -> usize {
        match self {
            Self::Hello(_) => 0,
            Self::Incarnate => 1,
            Self::Pull { .. } => 2,
            Self::Have { .. } => 3,
            Self::Put { .. } => 4,
            Self::Stage { .. } => 5,
            Self::Commit { .. } => 6,
            Self::List { .. } => 7,
            Self::Look { .. } => 8,
            Self::Read { .. } => 9,
            Self::Conflicts { .. } => 10,
            Self::Resolve { .. } => 11,
            Self::History { .. } => 12,
            Self::ReadPast { .. } => 13,
            Self::Bye => 14,
            Self::Keep { .. } => 15,
            Self::Devices(_) => 16,
            Self::ListPast { .. } => 17,
        }
    }
}

/// What is asked about the drives of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeviceRequest {
    /// All of them.
    List,
    /// A new one; the answer is that one.
    Add {
        /// Its name, for people: no other has it.
        name: String,
        /// Bytes of its store.
        bytes: u64,
        /// Whether it is meant to be carried around.
        portable: bool,
        /// The name of its energy profile; empty: none.
        profile: String,
        /// What it will say of its first attachment.
        nonce: u64,
    },
    /// It is attached to whoever asks; the answer is that one.
    Attach {
        /// Which.
        device: u32,
        /// The attachments that it tells of: the last one, and one whose answer was lost.
        nonces: [u64; 2],
        /// What it will say of this one.
        next: u64,
    },
    /// It is not any more.
    Detach {
        /// Which.
        device: u32,
    },
    /// It is none of the volume's any more.
    Remove {
        /// Which.
        device: u32,
    },
}
