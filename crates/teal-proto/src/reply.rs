//! The server's replies.

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use teal_types::{
    BatchId, BatchNo, CommitSeq, DriveNo, Incarnation, LeaseNo, Name, ObjectNo, ObjectVersion,
    ReplicaNo, ServerIncarnation, Timestamp, VolumeId,
};

/// The server's word on a client that has connected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The volume.
    pub volume: VolumeId,
    /// Its name, for people.
    pub label: String,
    /// The life of the server's history; another than last time: it was restored from a copy.
    pub server_incarnation: ServerIncarnation,
    /// The number of the client.
    pub replica: ReplicaNo,
    /// The key of the volume's chunk names (see `teal_chunk::DedupDomain`).
    pub domain: [u8; 32],
    /// The newest commit.
    pub head: CommitSeq,
    /// The server's verdict on the client's history and incarnation.
    pub verdict: HistoryVerdict,
}

/// The server's verdict on the history and the incarnation that a client has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum HistoryVerdict {
    /// All is as the client says.
    Known,
    /// The client has no life yet, or its store is a copy of one that went on: it must ask for a
    /// new one before it sends anything.
    Incarnate,
    /// The server does not have the history the client has seen: it was restored from a copy that
    /// ends at this commit, or earlier.
    Lost {
        /// The last commit both surely have.
        common: CommitSeq,
        /// The digest of history there.
        digest: [u8; 32],
    },
}

/// The change of an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PulledObject {
    /// The object has this state now.
    Is {
        /// Its state.
        version: Box<ObjectVersion>,
        /// The ranges in which content has changed since the commit asked for, as (offset, length);
        /// `None`: anywhere.
        ranges: Option<Vec<(u64, u64)>>,
    },
    /// The object was removed.
    Gone {
        /// Which.
        object: ObjectNo,
    },
}

/// The changes in a stretch of history, as states and not as steps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PulledChanges {
    /// Up to here.
    pub to: CommitSeq,
    /// The digest of the history up to there.
    pub digest: [u8; 32],
    /// The objects that have changed, ascending by number.
    pub changes: Vec<PulledObject>,
    /// There is more: go on behind this object.
    pub more: Option<ObjectNo>,
    /// The highest batch of the incarnation that asked within the history up to `to`.
    pub acknowledged: BatchNo,
    /// True while another client is connected.
    pub is_live: bool,
    /// The filter that was asked for, if the server knows it; 0: everything was told.
    pub filter: u64,
}

/// One directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryListing {
    /// Which.
    pub dir: ObjectNo,
    /// Names with the states of what they lead to, ascending by the names' bytes. `None`: there is
    /// no such directory.
    pub entries: Option<Vec<(Name, ObjectVersion)>>,
    /// There is more: go on behind the last name.
    pub more: bool,
}

/// Content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplyPiece {
    /// The offset in the file.
    pub offset: u64,
    /// The bytes there.
    pub bytes: ByteBuf,
}

/// The answer to one [`WantedRange`](crate::WantedRange).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContentAnswer {
    /// The content of `len` bytes from the wanted offset on (perhaps less than wanted); what no
    /// piece covers is zeros.
    Is {
        /// The length of the answered range.
        len: u64,
        /// The content that is not zeros, ascending by offset.
        pieces: Vec<ReplyPiece>,
    },
    /// The file's content is another one by now: pull, then ask again.
    Stale,
    /// A chunk of it is damaged or lost at the server.
    Damaged,
}

/// Why an operation was not carried out as it was meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ConflictKind {
    /// Two wrote the same file: the later content is a file of its own.
    Content,
    /// Two set the attributes: the first one's hold.
    Attributes,
    /// Two set the same extended attribute: the first one's holds.
    Xattr,
    /// Two gave the same name: the later object has the conflict name.
    Name,
    /// One removed what another had changed, or a directory another had put something into: it is
    /// still there, or there again.
    Removal,
    /// Two moved the same object, or together they would have moved a directory into itself: the
    /// first one's move holds.
    Move,
}

/// A conflict, for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConflictNote {
    /// Its number in the volume.
    pub id: u64,
    /// The kind of the conflict.
    pub kind: ConflictKind,
    /// The commit that met it.
    pub seq: CommitSeq,
    /// The server's time then.
    pub time: Timestamp,
    /// The device that sent the later operation.
    pub device: String,
    /// The object that both changed.
    pub object: ObjectNo,
    /// The present path of the object; empty if it has no name.
    pub path: String,
    /// The object that has the later state, if it is another one.
    pub copy: Option<ObjectNo>,
    /// And where that lies.
    pub copy_path: String,
    /// The change that was not made, in words.
    pub lost: String,
}

/// One version of an object in history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionNote {
    /// The commit that made it.
    pub seq: CommitSeq,
    /// The server's time then.
    pub time: Timestamp,
    /// The batch that it was.
    pub batch: BatchId,
    /// The state; `None`: the object was removed.
    pub version: Option<ObjectVersion>,
}

/// The meaning of a refusal for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum RefusalCode {
    /// The request makes no sense: a bug, or another program.
    BadRequest,
    /// Not this client, or not any more.
    Denied,
    /// The server's disk is full: try later.
    NoSpace,
    /// The server cannot write: try later.
    ReadOnly,
    /// Too much at once: try later.
    Busy,
    /// The batch needs chunks that the server does not have: send them, then commit again.
    NeedsChunks,
    /// The batch's parts are not all there, or not those of its digest: stage it again.
    NeedsParts,
    /// The batch's stamp belongs to another batch: the client's store is a copy, it needs a new
    /// incarnation.
    Cloned,
    /// The server cannot read what it must.
    Damaged,
    /// The server ends.
    Stopping,
}

/// A refusal, with words for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("the server refuses: {words}")]
pub struct RefusalReply {
    /// The meaning of the refusal.
    pub code: RefusalCode,
    /// Why, and the way out.
    pub words: String,
}

/// One reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ServerReply {
    /// To [`ClientRequest::Hello`](crate::ClientRequest::Hello).
    Welcome(Welcome),
    /// To [`ClientRequest::Incarnate`](crate::ClientRequest::Incarnate).
    Incarnated {
        /// The new life.
        incarnation: Incarnation,
        /// The lease of its object numbers.
        lease: LeaseNo,
    },
    /// To [`ClientRequest::Pull`](crate::ClientRequest::Pull).
    Pulled(PulledChanges),
    /// To [`ClientRequest::Have`](crate::ClientRequest::Have): which of them, by position.
    Missing(Vec<u32>),
    /// Done.
    Done,
    /// To [`ClientRequest::Commit`](crate::ClientRequest::Commit): it is durable.
    Committed {
        /// Its place in history.
        seq: CommitSeq,
    },
    /// To [`ClientRequest::List`](crate::ClientRequest::List).
    Listings {
        /// The newest commit when they were read, all at once.
        head: CommitSeq,
        /// One for each directory answered, in the order of the request.
        dirs: Vec<DirectoryListing>,
    },
    /// To [`ClientRequest::Look`](crate::ClientRequest::Look).
    Versions {
        /// The newest commit when they were read, all at once.
        head: CommitSeq,
        /// One for each object, in the order of the request; `None`: there is none.
        versions: Vec<Option<ObjectVersion>>,
    },
    /// To [`ClientRequest::Read`](crate::ClientRequest::Read): one for each want answered, in their
    /// order.
    Data(Vec<ContentAnswer>),
    /// To [`ClientRequest::Conflicts`](crate::ClientRequest::Conflicts).
    Conflicts(Vec<ConflictNote>),
    /// To [`ClientRequest::History`](crate::ClientRequest::History).
    History(Vec<VersionNote>),
    /// To [`ClientRequest::ReadPast`](crate::ClientRequest::ReadPast).
    Past {
        /// The state then; `None`: it was not there.
        version: Option<ObjectVersion>,
        /// Content.
        got: ContentAnswer,
    },
    /// To anything.
    Refused(RefusalReply),
    /// To [`ClientRequest::Keep`](crate::ClientRequest::Keep).
    Kept {
        /// The filter; 0: the server does not know it any more, a new one is to begin.
        filter: u64,
    },
    /// To [`ClientRequest::Devices`](crate::ClientRequest::Devices).
    Devices(Vec<DeviceNote>),
    /// To [`ClientRequest::ListPast`](crate::ClientRequest::ListPast).
    PastNames {
        /// Each name with the object it led to, by their bytes; `None`: there was no such
        /// directory.
        names: Option<Vec<(Name, ObjectNo)>>,
        /// True if there are more names behind the last.
        more: bool,
    },
}

/// A drive of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceNote {
    /// Its number in the volume.
    pub device: DriveNo,
    /// Its name, for people.
    pub name: String,
    /// Bytes of its store.
    pub bytes: u64,
    /// True if the drive is meant to be carried around.
    pub portable: bool,
    /// The name of its energy profile; empty: none.
    pub profile: String,
    /// The replica it is attached to, as far as known, and the name of that machine.
    pub attached: Option<(ReplicaNo, String)>,
    /// True if the drive does not tell of its last attachment: it is a copy, or the server was put
    /// back from one.
    pub is_copy: bool,
}
