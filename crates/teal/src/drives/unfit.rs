//! Why something is no drive, in one line that says what to do about it.
//!
//! # Guarantees
//! 1. Nothing is opened for writing before it has been looked at: a file or disk on which a store
//!    begins, and outside of every volume ([`is_fit`]).
//! 2. Advice fits drives, of which nothing is lost, and never overwrites what may be no drive.

use super::places::{self, begins_a_store};
use crate::mounts;
use anyhow::{Error, Result, anyhow};
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::sync::Arc;
use teal_command::say::{shell_quoted, shown_path};
use teal_command::size::human_size;
use teal_device::DriveError;
use teal_log::{StoreError, StoreOpenError};
use teal_replica::DriveRefused;

/// The error of a place that holds no drive of this volume, and will not before it has changed.
#[derive(Debug)]
struct UnfitDrive(String);

impl std::fmt::Display for UnfitDrive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UnfitDrive {}

fn unfit_error(words: String) -> Error {
    Error::new(UnfitDrive(words))
}

/// Refuses what lies on a volume: each would be written because of the other, for ever.
pub(super) fn is_outside(path: &Path) -> Result<()> {
    match mounts::is_inside(path)? {
        true => Err(unfit_error(format!(
            "{} lies on a mount of TealFS, and a drive is a copy of such content: \
             choose a place elsewhere",
            shown_path(path)
        ))),
        false => Ok(()),
    }
}

/// Refuses what cannot be a drive, without opening it for writing.
pub(super) fn is_fit(path: &Path) -> Result<()> {
    is_outside(path)?;
    // The error of opening it comes later, and says more than this check could.
    let Ok(meta) = std::fs::metadata(path) else {
        return Ok(());
    };
    if !meta.is_file() && !meta.file_type().is_block_device() {
        return Err(unfit_error(format!(
            "{} is neither a regular file nor a block device",
            shown_path(path)
        )));
    }
    // A file that is too small holds no store, whatever its first bytes are.
    let is_small = meta.is_file() && meta.len() < teal_log::SMALLEST_STORE;
    match begins_a_store(path) {
        Ok(true) if !is_small => Ok(()),
        Ok(_) => Err(unfit_error(format!(
            "{} is no drive; `teal device add` makes one",
            shown_path(path)
        ))),
        Err(_) => Ok(()),
    }
}

/// Returns the reason why there is no drive at `path`, for people.
pub(super) fn explain_failure(error: Error, path: &Path) -> Error {
    // An error that threads share is found behind an `Arc`.
    let kind_of = |cause: &(dyn std::error::Error + 'static)| {
        let shared = cause.downcast_ref::<Arc<std::io::Error>>().map(|e| &**e);
        shared.or(cause.downcast_ref()).map(std::io::Error::kind)
    };
    let name = shown_path(path);
    let is = |kind| error.chain().any(|cause| kind_of(cause) == Some(kind));
    let is_denied = is(ErrorKind::PermissionDenied);
    // A write-protected disk refuses in either of two ways.
    if is(ErrorKind::ReadOnlyFilesystem) || is_denied && places::is_read_only_disk(path) {
        return anyhow!(
            "{name} is write-protected, and a drive writes down how far it has come: \
             take the protection off"
        );
    }
    if is_denied {
        let user = rustix::process::geteuid().as_raw();
        return anyhow!(
            "{name}: permission denied: the user that has mounted the volume (number {user}) may \
             not write there"
        );
    }
    if let Some(DriveRefused::Disk(why)) = error.downcast_ref()
        && let Some(why) = describe_damage(why)
    {
        let path = shell_quoted(&name);
        return unfit_error(format!(
            "{name} is damaged ({why}); nothing was only on it if it was a drive: \
             `teal device add {path} --force` makes it anew, and what was on it is gone"
        ));
    }
    error
}

/// Returns what of a store, which may be a drive, is damaged.
pub(super) fn describe_damage(why: &DriveError) -> Option<String> {
    match why {
        DriveError::Open(StoreOpenError::Lost { seq, at }) => {
            Some(format!("record {seq} at sector {at} cannot be read"))
        }
        DriveError::Open(
            e @ (StoreOpenError::Superblocks
            | StoreOpenError::Geometry(_)
            | StoreOpenError::Truncated { .. }
            | StoreOpenError::Anchors
            | StoreOpenError::Store(StoreError::Corrupt { .. })),
        ) => Some(e.to_string()),
        DriveError::Store(e @ StoreError::Corrupt { .. }) => Some(e.to_string()),
        _ => None,
    }
}

/// Returns whether it will not be otherwise before what is there changes: it is no drive of this
/// volume.
pub(super) fn is_final(error: &Error) -> bool {
    match error.downcast_ref() {
        Some(DriveRefused::Disk(e)) => !matches!(
            e,
            DriveError::Open(StoreOpenError::Store(StoreError::Io { .. }))
                | DriveError::Store(StoreError::Io { .. })
        ),
        Some(
            DriveRefused::Alone
            | DriveRefused::OtherVolume { .. }
            | DriveRefused::Forged
            | DriveRefused::Twice { .. }
            | DriveRefused::Refused(_)
            | DriveRefused::History,
        ) => true,
        _ => error.downcast_ref::<UnfitDrive>().is_some(),
    }
}

/// Returns whether the volume knows the drive no more.
pub(super) fn is_removed(error: &Error) -> bool {
    matches!(error.downcast_ref(), Some(DriveRefused::Refused(_)))
}

/// Returns what does not fit, in sizes for people.
pub(super) fn too_small(refused: DriveRefused) -> Error {
    let DriveRefused::TooSmall {
        drive,
        bytes,
        others,
        room,
    } = refused
    else {
        return refused.into();
    };
    let [bytes, others, room] = [bytes, others, room].map(human_size);
    anyhow!(
        "{drive} is too small: {bytes} are to be always on it, besides {others} that are already, \
         and {room} are for that; \
         take affinity from something else, or use a larger drive"
    )
}
