//! Why something is not done with a drive, for people.

use super::super::SyncError;
use std::io;
use teal_device::{DriveError, UpstreamError};
use teal_energy::device::DEVICES_MAX;
use teal_proto::RefusalCode;
use teal_types::VolumeId;
use teal_volume::FsError;

/// Why a drive is not attached, made or detached.
#[derive(Debug, thiserror::Error)]
pub enum DriveRefused {
    /// The volume has no server: no other machine could ever read the drive.
    #[error("this volume has no server; drives belong to volumes that have one: see `teal serve`")]
    Alone,
    /// The disk is no drive.
    #[error(transparent)]
    Disk(#[from] DriveError),
    /// The drive belongs to another volume.
    #[error(
        "this drive belongs to volume {theirs}, perhaps of another server; this is volume \
         {ours}"
    )]
    OtherVolume {
        /// The volume of the drive.
        theirs: VolumeId,
        /// The one that is mounted.
        ours: VolumeId,
    },
    /// The label was not written by a machine of the volume.
    #[error("the label of this drive was not written by a machine of this volume: it is not read")]
    Forged,
    /// It, or a copy of it, is attached already.
    #[error(
        "the drive {name} is attached already, from {place}: this is a copy of it, or the same"
    )]
    Twice {
        /// Its name.
        name: String,
        /// The place of the other one.
        place: String,
    },
    /// The server does not have the history that the drive has seen.
    #[error(
        "this drive has seen history that the server does not have, which was perhaps put back \
         from a copy: it is not read"
    )]
    History,
    /// The server cannot be reached, and without it the history of the drive is unknown.
    #[error(
        "{name} was used elsewhere since it was here: it is read when the server can be asked \
         again ({why})"
    )]
    Elsewhere {
        /// Its name.
        name: String,
        /// Why the server cannot be asked.
        why: String,
    },
    /// There are too many.
    #[error("{DEVICES_MAX} drives are attached; detach one first")]
    TooMany,
    /// No drive of this name is attached.
    #[error("no drive called {0} is attached here; see `teal device ls`")]
    NotAttached(String),
    /// The drive was attached here, and another machine has attached it since.
    #[error("{0}")]
    Superseded(String),
    /// Content that is to have affinity does not fit on the drive.
    #[error(
        "{drive} is too small: {bytes} bytes are to be always on it, besides {others} that are \
         already, and {room} are for that; \
         take affinity from something else, or use a larger drive"
    )]
    TooSmall {
        /// Its name.
        drive: String,
        /// Bytes that are to be added.
        bytes: u64,
        /// Bytes that have affinity already.
        others: u64,
        /// Bytes that may have affinity together.
        room: u64,
    },
    /// The object has affinity because of a directory above it.
    #[error("{path} is in {above}, which is sticky on {drive}: take that away, or move it")]
    Inherited {
        /// The path of the object.
        path: String,
        /// The directory.
        above: String,
        /// The drive's name.
        drive: String,
    },
    /// There is no affinity that could be taken away.
    #[error(
        "{path} has no affinity to {drive}, nor has anything below it; see `teal affinity ls \
         {drive}`"
    )]
    NoAffinity {
        /// The path of the object.
        path: String,
        /// The drive's name.
        drive: String,
    },
    /// The drive is detached, and did not get everything.
    #[error("{name} is detached, without all that waited for it: {why}")]
    Behind {
        /// Its name.
        name: String,
        /// Why.
        why: String,
    },
    /// The volume knows no drive of this name.
    #[error("this volume has no drive called {0}; see `teal device ls`")]
    Unknown(String),
    /// The server knows better: such a drive there is not, any more or at all, or another has its
    /// name.
    #[error("{0}")]
    Refused(String),
    /// The server said no for now.
    #[error("{0}")]
    NotNow(String),
    /// The server does not accept this machine.
    #[error("{0}")]
    Denied(String),
    /// The server could not be asked, or its answer was not understood.
    #[error("{0}")]
    Unreachable(String),
    /// No thread can be had.
    #[error("a thread for the drive")]
    Thread(#[from] io::Error),
    /// This client's own store cannot be read.
    #[error(transparent)]
    Fs(#[from] FsError),
}

impl From<SyncError> for DriveRefused {
    fn from(e: SyncError) -> Self {
        match e {
            SyncError::Fs(e) => Self::Fs(e),
            SyncError::Upstream(UpstreamError::Refused(refused)) => match refused.code {
                RefusalCode::BadRequest => Self::Refused(refused.words),
                RefusalCode::Denied => Self::Denied(refused.words),
                _ => Self::NotNow(refused.words),
            },
            SyncError::Upstream(UpstreamError::Denied(words)) => Self::Denied(words),
            e => Self::Unreachable(e.to_string()),
        }
    }
}

impl From<teal_log::StoreError> for DriveRefused {
    fn from(e: teal_log::StoreError) -> Self {
        Self::Disk(e.into())
    }
}
