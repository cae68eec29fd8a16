//! The requests and answers of a control socket, as JSON.
//!
//! A request names what to do (`do`), an answer names its kind (`answer`); the other fields belong
//! to that.
//!
//! | request | answer |
//! |---|---|
//! | `{"do":"status"}` | `status`: a [`MountStatus`] |
//! | `{"do":"down"}` | `ended`: a [`UnmountReport`], when everything is on the disk and the mount is gone |
//! | `{"do":"set","key":K,"value":N}` | `done` |
//! | `{"do":"record","file":F,"anonymous":B,"seconds":N}` | `done`, when requests are being recorded into the new file |
//! | `{"do":"recordmark","text":T}` | `done` |
//! | `{"do":"recordprogress"}` | `recording`: a [`RecordingStatus`] |
//! | `{"do":"recordend"}` | `recording`, when everything is written |
//! | `{"do":"token"}` | `token`: a token for one machine, where the server listens, its fingerprint |
//! | `{"do":"flush"}` | `done`, when the server has all that was only here |
//! | `{"do":"checkserver"}` | `serverchecked`: a [`ServerCheckShown`] |
//! | `{"do":"conflicts"}` | `conflicts`: the open conflicts |
//! | `{"do":"resolve","id":N}`, `{"do":"revoke","replica":N}`, `{"do":"readmit","replica":N}` | `done` |
//! | `{"do":"deviceadd",…}`, `{"do":"devicedetach","name":N,"fast":B}`, `{"do":"devicerm","name":N}` | `done` |
//! | `{"do":"deviceattach","path":P}` | `done`, or `already` with the name of the drive that was attached before |
//! | `{"do":"devicels"}` | `devices`: the drives of the volume, and why the server could not be asked for all of them |
//! | `{"do":"affinityadd","object":N,"drive":D,"sticky":B}` | `marked`: how many files have affinity, and their bytes |
//! | `{"do":"affinityls","drive":D}`, `{"do":"affinityrm","object":N,"drive":D}` | `affinities`; `done` |
//! | `{"do":"pin","object":N}` | `pinned`: how many files are always here, their bytes, and how many of those are missing |
//! | `{"do":"free","object":N}` | `freed`: how many files were given back, their bytes, and what stays |
//! | `{"do":"where","object":N}` | `where`: where an object's content is |
//!
//! A failure answers `{"answer":"error","error":"…"}`. Paths are written as [`place_text`] says.

use super::states::{MountPhase, RequestTransport, SyncReach};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use teal_command::place_text;
use teal_types::{DriveNo, Incarnation, ReplicaNo};

/// A request to the daemon of a mount.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum ControlRequest {
    Status,
    Down,
    Set {
        key: String,
        value: u64,
    },
    Record {
        #[serde(with = "place_text")]
        file: PathBuf,
        anonymous: bool,
        seconds: Option<u64>,
    },
    RecordMark {
        text: String,
    },
    RecordProgress,
    RecordEnd,
    Token,
    Flush,
    CheckServer,
    Conflicts,
    Resolve {
        id: u64,
    },
    Revoke {
        replica: ReplicaNo,
    },
    Readmit {
        replica: ReplicaNo,
    },
    DeviceAdd {
        #[serde(with = "place_text")]
        path: PathBuf,
        size: Option<u64>,
        name: String,
        portable: bool,
        profile: String,
        force: bool,
    },
    DeviceLs,
    DeviceAttach {
        #[serde(with = "place_text")]
        path: PathBuf,
    },
    DeviceDetach {
        name: String,
        fast: bool,
    },
    DeviceRm {
        name: String,
    },
    Where {
        object: u64,
    },
    Pin {
        object: u64,
    },
    Free {
        object: u64,
    },
    AffinityAdd {
        object: u64,
        drive: String,
        sticky: bool,
    },
    AffinityLs {
        drive: String,
    },
    AffinityRm {
        object: u64,
        drive: String,
    },
}

/// Something that is always to be on a drive.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct AffinityLine {
    pub(crate) path: String,
    pub(crate) bytes: u64,
    /// The bytes of the whole content.
    pub(crate) size: u64,
    pub(crate) sticky: bool,
    /// The rest of it has found no room.
    pub(crate) short: bool,
}

/// A drive of the volume, as it is shown.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct DeviceLine {
    pub(crate) device: DriveNo,
    pub(crate) name: String,
    pub(crate) portable: bool,
    pub(crate) profile: String,
    /// The size of the drive's store.
    pub(crate) bytes: u64,
    /// The place of the drive, if it is attached here.
    pub(crate) place: Option<String>,
    /// The machine that has it attached, as far as the server knows.
    pub(crate) attached_to: Option<String>,
    /// The explanation for people, if the drive was attached here and has been attached to another
    /// machine since.
    pub(crate) superseded: Option<String>,
    /// The bytes that content can take on the drive. This field and those after it describe a drive
    /// that is attached here.
    pub(crate) total_bytes: u64,
    pub(crate) free_bytes: Option<u64>,
    pub(crate) objects: Option<u64>,
    /// Nothing on it is older than this commit.
    pub(crate) position: Option<u64>,
    pub(crate) queued: u64,
    pub(crate) queued_bytes: u64,
    /// Files with affinity that found no room on it, and how many bytes of them.
    pub(crate) short: u64,
    pub(crate) short_bytes: u64,
    /// True while the drive has not answered a request by its deadline.
    pub(crate) late: bool,
    pub(crate) counts: Vec<(String, u64)>,
}

/// The places where an object's content is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct WhereLine {
    pub(crate) path: String,
    pub(crate) size: u64,
    /// The pinned path because of which the content is always here, if there is one.
    pub(crate) pinned: Option<String>,
    /// In the order in which they would be asked.
    pub(crate) sources: Vec<SourceLine>,
}

/// A place where content may be.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SourceLine {
    pub(crate) name: String,
    /// The commit to which the content at this place belongs.
    pub(crate) version: Option<u64>,
    pub(crate) bytes: u64,
    /// Until the first block, as predicted; this and what follows is `null` where nothing is known
    /// yet.
    pub(crate) microseconds: Option<u64>,
    /// True if the figures were measured, and false if they come from the drive's profile.
    pub(crate) is_measured: Option<bool>,
    /// The modelled energy that the machine and the source take meanwhile.
    pub(crate) microjoules: Option<u64>,
    /// Weighted seconds and joules.
    pub(crate) cost: Option<f64>,
    pub(crate) why: String,
}

/// The state of a mount.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct MountStatus {
    #[serde(with = "place_text")]
    pub(crate) mount_point: PathBuf,
    #[serde(with = "place_text")]
    pub(crate) store: PathBuf,
    pub(crate) label: String,
    pub(crate) uuid: String,
    /// The mount options it was mounted with.
    #[serde(default)]
    pub(crate) options: Vec<String>,
    pub(crate) pid: u32,
    pub(crate) read_only: bool,
    /// Writing has ended after a failure of the disk.
    pub(crate) failed: bool,
    pub(crate) total_bytes: u64,
    /// The bytes that can still be written.
    pub(crate) free_bytes: u64,
    /// The bytes that would be free in addition if the file system below the store had room for all
    /// of it.
    #[serde(default)]
    pub(crate) host_lacks_bytes: u64,
    pub(crate) live_bytes: u64,
    pub(crate) objects: u64,
    /// Changes of the last seconds that are not on the disk yet.
    pub(crate) uncommitted: bool,
    pub(crate) orphans: u64,
    pub(crate) settings: Vec<(String, u64)>,
    pub(crate) counters: Vec<(String, u64)>,
    pub(crate) requests: Vec<(String, u64)>,
    #[serde(default, rename = "uring")]
    pub(crate) transport: RequestTransport,
    #[serde(default, rename = "syncfs")]
    pub(crate) sync_reach: SyncReach,
    #[serde(default, rename = "ending")]
    pub(crate) phase: MountPhase,
    /// The recording that is on its way, or the last one.
    pub(crate) recording: Option<RecordingStatus>,
    /// The changes and connections between this mount and the server, if the volume has one.
    pub(crate) upstream: Option<UpstreamShown>,
    /// Why it is not known what only this machine has, if it is not.
    #[serde(default)]
    pub(crate) upstream_unknown: Option<String>,
    /// The drives that are attached here.
    #[serde(default)]
    pub(crate) drives: Vec<DriveHere>,
}

/// A drive that is attached here.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct DriveHere {
    pub(crate) name: String,
    pub(crate) place: String,
    /// Objects that wait to be copied to it.
    pub(crate) queued: u64,
}

/// The state of a recording.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RecordingStatus {
    #[serde(with = "place_text")]
    pub(crate) file: PathBuf,
    pub(crate) events: u64,
    /// Events that came too fast.
    pub(crate) dropped: u64,
    pub(crate) bytes: u64,
    pub(crate) ended: bool,
    /// Why it ended early.
    pub(crate) failure: Option<String>,
}

/// A conflict, as it is shown.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ConflictShown {
    pub(crate) id: u64,
    pub(crate) kind: String,
    pub(crate) device: String,
    pub(crate) time: String,
    /// The last path of the first state; empty where none is known.
    pub(crate) path: String,
    pub(crate) is_removed: bool,
    /// The last path of the later state; empty where it is no file.
    pub(crate) copy_path: String,
    pub(crate) is_copy_removed: bool,
    pub(crate) lost: String,
}

/// The state of a replica towards its server.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct UpstreamShown {
    /// The address on which the server listens, if it is in this process.
    pub(crate) served: Option<String>,
    pub(crate) replica: ReplicaNo,
    pub(crate) incarnation: Incarnation,
    /// The commit up to which history is applied.
    pub(crate) seen: u64,
    /// Objects of which something is only here.
    pub(crate) only_here: u64,
    pub(crate) only_here_bytes: u64,
    /// Why the server cannot be asked.
    pub(crate) trouble: Option<String>,
    pub(crate) denied: bool,
    /// Why the server, though it answers, does not take changes.
    pub(crate) stuck: Option<String>,
    /// The first objects that cannot be sent or installed, and the number of all of them.
    #[serde(default)]
    pub(crate) stuck_files: Vec<StuckShown>,
    #[serde(default)]
    pub(crate) stuck_count: usize,
    /// True if the server has answered this mount at least once.
    #[serde(default)]
    pub(crate) connected: bool,
    pub(crate) live: bool,
    pub(crate) announcing: bool,
    pub(crate) last_flush_secs: Option<u64>,
    /// The pinned paths, and the reason why not all of their content is here (`null` if it is).
    pub(crate) pinned: Vec<String>,
    pub(crate) pinned_missing: Option<String>,
    pub(crate) counts: Vec<(String, u64)>,
    /// Machines of the volume, if it is served here.
    pub(crate) machines: Vec<MachineShown>,
    /// The counters of the server since it was started, if it is in this process.
    pub(crate) server_counts: Vec<(String, u64)>,
    /// Chunks of the server's content that were found damaged, if it is in this process.
    #[serde(default)]
    pub(crate) server_damaged_chunks: usize,
}

/// The findings of a check of the server's data.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ServerCheckShown {
    pub(crate) packs: usize,
    pub(crate) chunks: usize,
    /// Pieces of content that history names.
    pub(crate) pieces: u64,
    /// Pieces that were damaged and were stored again from this machine's own store.
    pub(crate) mended: u64,
    /// The first problems of the database and of packs, and the number of all of them.
    pub(crate) problems: Vec<String>,
    pub(crate) problem_count: usize,
    /// The first files with damaged content, and the number of all of them.
    pub(crate) files: Vec<DamagedFileShown>,
    pub(crate) file_count: usize,
}

/// A file of which the server cannot read some content.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct DamagedFileShown {
    /// From the root of the volume; empty for a removed file.
    pub(crate) path: String,
    pub(crate) object: u64,
    /// Pieces of the present content that cannot be read.
    pub(crate) present_pieces: u64,
    /// Pieces that only earlier versions need.
    pub(crate) past_pieces: u64,
}

/// Something that is held back.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct StuckShown {
    /// From the root of the volume.
    pub(crate) path: String,
    /// `sending` or `installing`.
    pub(crate) way: String,
    pub(crate) why: String,
}

/// Another machine, as its server sees it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct MachineShown {
    pub(crate) replica: ReplicaNo,
    pub(crate) device: String,
    pub(crate) connected: bool,
    pub(crate) revoked: bool,
    /// True for the serving machine itself.
    #[serde(default)]
    pub(crate) local: bool,
    /// The commit it has come to.
    pub(crate) position: u64,
    /// When it was last heard of.
    pub(crate) last_heard: String,
}

/// The state in which a mount leaves its store when it ends.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct UnmountReport {
    #[serde(with = "place_text")]
    pub(crate) store: PathBuf,
    /// True if the server was in this process, so that its data is on this machine, too.
    #[serde(default)]
    pub(crate) served: bool,
    /// The changes that the server lacks.
    pub(crate) unsent: UnsentChanges,
}

/// The changes that the server of a volume lacks, as far as this machine knows.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum UnsentChanges {
    /// The volume has no server.
    NoServer,
    /// The server has everything.
    Nothing,
    /// The server has not been told yet of everything there is.
    Announcing,
    /// Something is only on this machine.
    Some { objects: u64, bytes: u64 },
    /// The mount cannot find out what the server lacks.
    Unknown { why: String },
}

/// Any answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "lowercase")]
pub(crate) enum ControlAnswer {
    Error {
        error: String,
    },
    /// The daemon has done what it was asked to do.
    Done,
    Ended {
        ended: UnmountReport,
    },
    Token {
        token: String,
        address: String,
        fingerprint: String,
        minutes: u64,
    },
    Conflicts {
        conflicts: Vec<ConflictShown>,
    },
    /// A drive was attached before it was asked for.
    Already {
        already: String,
    },
    /// `trouble`: why the server cannot be asked for those that are not attached here.
    Devices {
        devices: Vec<DeviceLine>,
        trouble: Option<String>,
    },
    Where {
        whereabouts: WhereLine,
    },
    Affinities {
        affinities: Vec<AffinityLine>,
    },
    Pinned {
        files: u64,
        bytes: u64,
        missing: u64,
    },
    Freed {
        files: u64,
        bytes: u64,
        stay: u64,
        stay_bytes: u64,
    },
    Marked {
        files: u64,
        bytes: u64,
    },
    ServerChecked {
        checked: Box<ServerCheckShown>,
    },
    Status(Box<MountStatus>),
    Recording {
        recording: RecordingStatus,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pins the tag: an answer of a few fields must not be taken for one with the same fields and
    /// more.
    #[test]
    fn an_answer_is_what_its_tag_says() {
        let pinned = ControlAnswer::Pinned {
            files: 1,
            bytes: 2,
            missing: 3,
        };
        let text = serde_json::to_string(&pinned).unwrap();
        assert_eq!(
            text,
            r#"{"answer":"pinned","files":1,"bytes":2,"missing":3}"#
        );
        assert!(matches!(
            serde_json::from_str(&text),
            Ok(ControlAnswer::Pinned { files: 1, .. })
        ));

        let marked = serde_json::from_str(r#"{"answer":"marked","files":1,"bytes":2,"missing":3}"#);
        assert!(matches!(marked, Ok(ControlAnswer::Marked { .. })));
        serde_json::from_str::<ControlAnswer>(r#"{"files":1,"bytes":2}"#).unwrap_err();
    }
}
