//! The clients' requests.

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use teal_types::{
    BatchNo, ChunkId, CommitSeq, DriveNo, Incarnation, Name, ObjectNo, Op, ServerIncarnation,
};

/// The facts that a client tells of itself when it connects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The life its object numbers and batches belong to; 0: it has none yet.
    pub incarnation: Incarnation,
    /// Counter of the last batch that it has made, sent or not; 0: none.
    pub last_batch: BatchNo,
    /// The commit up to which it has applied the history.
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
    /// The state of its content that is meant; another is
    /// [`ContentAnswer::Stale`](crate::ContentAnswer::Stale).
    pub data_seq: CommitSeq,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// One request. The transport knows the client that asks, and its volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClientRequest {
    /// The first one of a connection: [`ServerReply::Welcome`](crate::ServerReply::Welcome).
    Hello(Hello),
    /// Asks for a new incarnation: a fresh lease of object numbers, batches counted from 1. For a
    /// new client, or one with a copied store:
    /// [`ServerReply::Incarnated`](crate::ServerReply::Incarnated).
    Incarnate,
    /// Asks for the changes behind `since`; if there are none, the answer comes when there are
    /// some, or after `wait_ms`: [`ServerReply::Pulled`](crate::ServerReply::Pulled).
    Pull {
        /// The incarnation that asks; 0: none yet.
        incarnation: Incarnation,
        /// The commit up to which the client has applied the history.
        since: CommitSeq,
        /// The digest of the history there.
        digest: [u8; 32],
        /// The filter of what the client [keeps](ClientRequest::Keep): only changes that may
        /// concern it are told. With 0, or a filter that the server does not know, all changes are
        /// told.
        filter: u64,
        /// Goes on behind this object in a long answer, with the `to` it named.
        after: Option<(ObjectNo, CommitSeq)>,
        /// Milliseconds, at most [`WAIT_MAX`](crate::WAIT_MAX).
        wait_ms: u32,
    },
    /// Which of these chunks the server does not have:
    /// [`ServerReply::Missing`](crate::ServerReply::Missing). A hint: a commit verifies again.
    Have {
        /// At most [`CHUNKS_MAX`](crate::CHUNKS_MAX).
        chunks: Vec<ChunkId>,
    },
    /// Stores chunks durably: [`ServerReply::Done`](crate::ServerReply::Done). They are kept for a
    /// while, until a commit names them.
    Put {
        /// Their content; the server names them itself.
        chunks: Vec<ByteBuf>,
    },
    /// A part of a batch: [`ServerReply::Done`](crate::ServerReply::Done). Parts may be sent again.
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
    /// Commits a batch: [`ServerReply::Committed`](crate::ServerReply::Committed). The same batch
    /// again is answered as before.
    Commit {
        /// The incarnation that made it.
        incarnation: Incarnation,
        /// The batch's counter.
        batch: BatchNo,
        /// The number of its parts.
        parts: u32,
        /// BLAKE3 over the encoded operations of its parts, in order:
        /// [`batch_digest`](crate::batch_digest).
        digest: [u8; 32],
    },
    /// Directories with the versions of all in them:
    /// [`ServerReply::Listings`](crate::ServerReply::Listings). The answer has the first, or as
    /// much of it as fits; then, whole or not at all, the directories below it, level by level,
    /// then the others and those below them.
    List {
        /// Directories, and the name behind which to go on; at most
        /// [`WANTS_MAX`](crate::WANTS_MAX).
        dirs: Vec<(ObjectNo, Option<Name>)>,
        /// The number of entries that may come beside those of the first directory; an empty
        /// directory counts as one.
        ahead: u32,
    },
    /// These objects: [`ServerReply::Versions`](crate::ServerReply::Versions).
    Look {
        /// At most [`WANTS_MAX`](crate::WANTS_MAX).
        objects: Vec<ObjectNo>,
    },
    /// Content: [`ServerReply::Data`](crate::ServerReply::Data). The answer has at least the
    /// beginning of the first, and as much as fits.
    Read {
        /// At most [`WANTS_MAX`](crate::WANTS_MAX).
        wants: Vec<WantedRange>,
    },
    /// Asks for the conflicts behind this id that are not resolved:
    /// [`ServerReply::Conflicts`](crate::ServerReply::Conflicts).
    Conflicts {
        /// 0: from the first.
        after: u64,
    },
    /// A conflict is settled: [`ServerReply::Done`](crate::ServerReply::Done).
    Resolve {
        /// Which.
        conflict: u64,
    },
    /// The versions of an object, oldest first, behind a commit:
    /// [`ServerReply::History`](crate::ServerReply::History).
    History {
        /// The object.
        object: ObjectNo,
        /// Goes on behind this commit.
        after: CommitSeq,
    },
    /// An object as it was after a commit, with content from `offset`:
    /// [`ServerReply::Past`](crate::ServerReply::Past).
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
    /// [`ServerReply::Done`](crate::ServerReply::Done).
    Bye,
    /// Tells the objects and directories that this client keeps. Changes of these objects, and in
    /// these directories, are to be told; so are changes of everything that the client is told,
    /// lists or makes from the first of these requests on. Other changes need not be:
    /// [`ServerReply::Kept`](crate::ServerReply::Kept).
    Keep {
        /// The filter that goes on; 0: a new one begins.
        filter: u64,
        /// At most [`KEPT_MAX`](crate::KEPT_MAX) directories and objects more.
        objects: Vec<ObjectNo>,
        /// All has been said: it can be used.
        is_last: bool,
    },
    /// About the drives of the volume: [`ServerReply::Devices`](crate::ServerReply::Devices).
    Devices(DeviceRequest),
    /// The names of a directory as they were after a commit:
    /// [`ServerReply::PastNames`](crate::ServerReply::PastNames).
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
        // The order is that of the protocol, so that it equals the number on the wire.
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

/// A question about the drives of a volume.
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
        /// True if the drive is meant to be carried around.
        portable: bool,
        /// The name of its energy profile; empty: none.
        profile: String,
        /// The nonce by which the drive will tell of its first attachment.
        nonce: u64,
    },
    /// Attaches a drive to the client that asks; the answer is that drive.
    Attach {
        /// Which.
        device: DriveNo,
        /// The attachments that the drive tells of: the last one, and one that may not have been
        /// answered.
        nonces: [u64; 2],
        /// The nonce by which the drive will tell of this attachment.
        next: u64,
    },
    /// Ends the attachment of a drive.
    Detach {
        /// Which.
        device: DriveNo,
    },
    /// Removes a drive from the volume.
    Remove {
        /// Which.
        device: DriveNo,
    },
}
