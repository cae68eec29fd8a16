//! What the server answers.

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use teal_types::{
    BatchId, BatchNo, CommitSeq, Incarnation, Name, ObjectNo, ObjectVersion, ReplicaNo,
    ServerIncarnation, Timestamp, VolumeId,
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
    /// The key of the volume's chunk names (see `teal_chunk::Domain`).
    pub domain: [u8; 32],
    /// The newest commit.
    pub head: CommitSeq,
    /// What the server thinks of the client's position and of its life.
    pub verdict: HistoryVerdict,
}

/// How a client's past looks to the server.
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

/// What has become of an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PulledObject {
    /// It is so now.
    Is {
        /// Its state.
        version: Box<ObjectVersion>,
        /// Where content has changed since the commit asked for, as (offset, length); `None`:
        /// anywhere.
        ranges: Option<Vec<(u64, u64)>>,
    },
    /// It is gone.
    Gone {
        /// Which.
        object: ObjectNo,
    },
}

/// What has changed in a stretch of history: states, not steps.
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
    /// Whether another client is connected.
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
    /// Where in the file.
    pub offset: u64,
    /// The bytes there.
    pub bytes: ByteBuf,
}

/// The answer to one [`Want`](crate::Want).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContentAnswer {
    /// The content of `len` bytes from the wanted offset on (perhaps less than wanted); what no
    /// piece covers is zeros.
    Is {
        /// How much is answered.
        len: u64,
        /// What is not zeros, ascending.
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
    /// What kind.
    pub kind: ConflictKind,
    /// The commit that met it.
    pub seq: CommitSeq,
    /// The server's time then.
    pub time: Timestamp,
    /// The device whose operation came later.
    pub device: String,
    /// What it is about.
    pub object: ObjectNo,
    /// Where that lies now, as far as it has a name.
    pub path: String,
    /// The object that has the later state, if it is another one.
    pub copy: Option<ObjectNo>,
    /// And where that lies.
    pub copy_path: String,
    /// What was not done, in words.
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

/// What a refusal means for whoever asked.
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
    /// What it means.
    pub code: RefusalCode,
    /// Why, and the way out.
    pub words: String,
}

/// One reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ServerReply {
    /// To [`Request::Hello`](crate::Request::Hello).
    Welcome(Welcome),
    /// To [`Request::Incarnate`](crate::Request::Incarnate).
    Incarnated {
        /// The new life.
        incarnation: Incarnation,
        /// Its object numbers: `lease * LEASE` and the following [`LEASE`](teal_types::LEASE).
        lease: u32,
    },
    /// To [`Request::Pull`](crate::Request::Pull).
    Pulled(PulledChanges),
    /// To [`Request::Have`](crate::Request::Have): which of them, by position.
    Missing(Vec<u32>),
    /// Done.
    Done,
    /// To [`Request::Commit`](crate::Request::Commit): it is durable.
    Committed {
        /// Its place in history.
        seq: CommitSeq,
    },
    /// To [`Request::List`](crate::Request::List).
    Listings {
        /// The newest commit when they were read, all at once.
        head: CommitSeq,
        /// One for each directory answered, in the order of the request.
        dirs: Vec<DirectoryListing>,
    },
    /// To [`Request::Look`](crate::Request::Look).
    Versions {
        /// The newest commit when they were read, all at once.
        head: CommitSeq,
        /// One for each object, in the order of the request; `None`: there is none.
        versions: Vec<Option<ObjectVersion>>,
    },
    /// To [`Request::Read`](crate::Request::Read): one for each want answered, in their order.
    Data(Vec<ContentAnswer>),
    /// To [`Request::Conflicts`](crate::Request::Conflicts).
    Conflicts(Vec<ConflictNote>),
    /// To [`Request::History`](crate::Request::History).
    History(Vec<VersionNote>),
    /// To [`Request::ReadPast`](crate::Request::ReadPast).
    Past {
        /// The state then; `None`: it was not there.
        version: Option<ObjectVersion>,
        /// Content.
        got: ContentAnswer,
    },
    /// To anything.
    Refused(RefusalReply),
    /// To [`Request::Keep`](crate::Request::Keep).
    Kept {
        /// The filter; 0: the server does not know it any more, a new one is to begin.
        filter: u64,
    },
    /// To [`Request::Devices`](crate::Request::Devices).
    Devices(Vec<DeviceNote>),
    /// To [`Request::ListPast`](crate::Request::ListPast).
    PastNames {
        /// Each name with the object it led to, by their bytes; `None`: there was no such
        /// directory.
        names: Option<Vec<(Name, ObjectNo)>>,
        /// Whether there are more behind the last.
        more: bool,
    },
}

/// A drive of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceNote {
    /// Its number in the volume.
    pub device: u32,
    /// Its name, for people.
    pub name: String,
    /// Bytes of its store.
    pub bytes: u64,
    /// Whether it is meant to be carried around.
    pub portable: bool,
    /// The name of its energy profile; empty: none.
    pub profile: String,
    /// The replica it is attached to, as far as known, and the name of that machine.
    pub attached: Option<(ReplicaNo, String)>,
    /// It does not tell of its last attachment: it is a copy, or the server was put back from one.
    pub is_copy: bool,
}
