//! The kernel's table of mounts: which mount a path lies on, and which mounts belong to TealFS.
//!
//! # Guarantees
//! 1. A path belongs to a mount if the kernel says so: neither what is mounted below a volume, or
//!    over it, nor `..` at its top, is taken for a part of it.
//! 2. The last part of a path is not followed if it lies on a mount of TealFS; all before it is.

use crate::control;
use anyhow::{Context, Error, Result, anyhow, bail};
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use teal_command::mount_table::{MountEntry, list_mounts};
use teal_command::say::{shell_quoted, shown_path};

/// Returns what is mounted there; the last mount on a point hides those before it.
pub(crate) fn newest_at(point: &Path) -> Option<MountEntry> {
    let mounts = list_mounts().unwrap_or_default();
    mounts.into_iter().rfind(|mount| mount.point == point)
}

/// Returns the mounts of TealFS to which an object belongs.
fn teal_mounts_of(meta: &Metadata) -> Result<Vec<MountEntry>> {
    let device = (rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev()));
    let mut mounts = list_mounts()?;
    mounts.retain(|mount| mount.device == device && mount.is_teal());
    Ok(mounts)
}

/// Returns whether a file, or the directory in which it would be made, lies on a mount of TealFS.
/// For a device this asks for the place of its node, because modelled disks are loop devices over
/// such mounts.
pub(crate) fn is_inside(path: &Path) -> Result<bool> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    // A file that is yet to be made lies where its directory lies.
    let Ok(meta) = std::fs::metadata(path).or_else(|_| std::fs::metadata(parent)) else {
        return Ok(false);
    };
    Ok(!teal_mounts_of(&meta)?.is_empty())
}

/// Returns why the daemon of a mount does not answer: the mount may belong to another user, or be
/// dead.
fn unanswered_error(mount: &MountEntry) -> Error {
    let point = shown_path(&mount.point);
    // The order matters: another user's mount must not be touched to find out if it is dead.
    match mount.user {
        Some(user) if user != rustix::process::geteuid().as_raw() => {
            anyhow!(
                "{point} is a mount of TealFS of another user (number {user}), and only that user \
                 can ask its daemon"
            )
        }
        _ if teal_fuse::is_dead(&mount.point) => {
            anyhow!(
                "the daemon of {point} is gone; free the mount point: teal down {}",
                shell_quoted(&point)
            )
        }
        _ => anyhow!(
            "{point} is a mount of TealFS whose daemon cannot be asked from here: \
             is XDG_RUNTIME_DIR another one?"
        ),
    }
}

/// Returns the error that no daemon of TealFS answers for `dir`.
pub(crate) fn no_daemon_error(dir: &Path) -> Error {
    match newest_at(dir).filter(MountEntry::is_teal) {
        Some(mount) => unanswered_error(&mount),
        None => anyhow!("nothing of TealFS is mounted on {}", shown_path(dir)),
    }
}

/// Returns a path to the same file of which only the last part may be a symlink.
fn resolve_parent(path: &Path) -> Result<PathBuf> {
    let named = || shown_path(path);
    let whole = std::path::absolute(path).with_context(named)?;
    // A path that ends in a slash names a directory, so its last part is followed, too.
    let is_dir = path.as_os_str().as_bytes().ends_with(b"/");
    match (whole.parent(), whole.file_name()) {
        (Some(parent), Some(name)) if !is_dir => {
            Ok(parent.canonicalize().with_context(named)?.join(name))
        }
        _ => whole.canonicalize().with_context(named),
    }
}

/// Returns the metadata of the object that a path means.
fn metadata_of(path: &Path) -> Result<Metadata> {
    let named = || shown_path(path);
    let meta = std::fs::symlink_metadata(path).with_context(named)?;
    // A link outside of every mount leads to the object meant; a link on a mount is an object
    // itself.
    if meta.is_symlink() && teal_mounts_of(&meta)?.is_empty() {
        let target = path.canonicalize().with_context(named)?;
        return std::fs::metadata(&target).with_context(named);
    }
    Ok(meta)
}

/// Returns the reason for which a path cannot be looked at: another user's mount does not even let
/// it be looked at.
fn explain_denial(error: Error, path: &Path) -> Result<Error> {
    let kind = error
        .downcast_ref::<std::io::Error>()
        .map(std::io::Error::kind);
    if kind != Some(std::io::ErrorKind::PermissionDenied) {
        return Ok(error);
    }
    let whole = std::path::absolute(path).unwrap_or_default();
    let mut mounts = list_mounts()?.into_iter();
    let above = mounts.rfind(|mount| mount.is_teal() && whole.starts_with(&mount.point));
    Ok(above.map_or(error, |mount| unanswered_error(&mount)))
}

/// Returns the mount that a path lies on, and the metadata of the object it leads to.
pub(crate) fn object_at(path: &Path) -> Result<(PathBuf, Metadata)> {
    let found = resolve_parent(path).and_then(|path| metadata_of(&path));
    let meta = match found {
        Ok(meta) => meta,
        Err(e) => return Err(explain_denial(e, path)?),
    };
    let mounts = teal_mounts_of(&meta)?;
    let Some(one) = mounts.first() else {
        bail!("{} is not on a mount of TealFS", shown_path(path))
    };
    // Several mounts may show one store; the mount with a daemon that answers is taken.
    let statuses = control::all_statuses()?.into_iter();
    let mut answering = statuses.map(|status| status.mount_point);
    let found = answering.find(|point| mounts.iter().any(|mount| mount.point == *point));
    Ok((found.ok_or_else(|| unanswered_error(one))?, meta))
}
