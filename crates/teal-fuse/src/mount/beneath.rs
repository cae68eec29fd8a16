//! Mounting beneath a dead mount before that goes: programs never see the bare directory, nor write
//! into it.
//!
//! # How
//! The kernel makes a mount that lies nowhere yet, which is then moved beneath the one at the mount
//! point (since Linux 6.5). Taking the dead mount away shows the new one.

use super::options::{BLOCK_SIZE, FuseMountOptions, GeneralMountFlags, SUBTYPE};
use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, UnmountFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount, unmount,
};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

/// `MOVE_MOUNT_BENEATH` of `linux/mount.h`.
const BENEATH: MoveMountFlags = MoveMountFlags::from_bits_retain(0x200);

/// Mounts over the connection `device` in the place of the dead mount at `point`.
///
/// # Errors
/// Returns [`Errno::INVAL`] or [`Errno::NOSYS`] if the kernel cannot do this; after any error, the
/// dead mount is still there.
pub(super) fn mount_beneath(
    device: impl AsFd,
    point: &Path,
    options: &FuseMountOptions,
) -> Result<(), Errno> {
    // The new mount API takes the options one by one, and makes a mount that lies nowhere yet.
    let context = fsopen(
        if options.block_device {
            "fuseblk"
        } else {
            "fuse"
        },
        FsOpenFlags::FSOPEN_CLOEXEC,
    )?;
    configure_mount(&context, device, options)?;
    fsconfig_create(&context)?;
    let mount = fsmount(
        &context,
        FsMountFlags::FSMOUNT_CLOEXEC,
        mount_attributes(options),
    )?;
    // An empty path names the mount itself, which has no place in the tree yet.
    move_mount(
        &mount,
        "",
        CWD,
        point,
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | BENEATH,
    )?;
    // The dead mount goes; the new one beneath it shows.
    unmount(point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)
}

/// Sets the options of a mount that is to be made.
fn configure_mount(
    context: &impl AsFd,
    device: impl AsFd,
    options: &FuseMountOptions,
) -> Result<(), Errno> {
    let mut settings = vec![
        ("source", options.source.clone()),
        ("subtype", SUBTYPE.to_owned()),
        ("fd", device.as_fd().as_raw_fd().to_string()),
        ("rootmode", "40000".to_owned()),
        ("user_id", rustix::process::getuid().as_raw().to_string()),
        ("group_id", rustix::process::getgid().as_raw().to_string()),
    ];
    if options.block_device {
        settings.push(("blksize", BLOCK_SIZE.to_string()));
    }
    if let Some(bytes) = options.max_read {
        settings.push(("max_read", bytes.to_string()));
    }
    for (name, value) in settings {
        fsconfig_set_string(context.as_fd(), name, value)?;
    }
    let flags = [
        (options.allow_other, "allow_other"),
        (options.default_permissions, "default_permissions"),
        (options.flags.contains(GeneralMountFlags::READ_ONLY), "ro"),
    ];
    for (is_set, name) in flags {
        if is_set {
            fsconfig_set_flag(context.as_fd(), name)?;
        }
    }
    Ok(())
}

fn mount_attributes(options: &FuseMountOptions) -> MountAttrFlags {
    let mut attributes = MountAttrFlags::empty();
    for (set, flag) in [
        (
            GeneralMountFlags::READ_ONLY,
            MountAttrFlags::MOUNT_ATTR_RDONLY,
        ),
        (GeneralMountFlags::NOSUID, MountAttrFlags::MOUNT_ATTR_NOSUID),
        (GeneralMountFlags::NODEV, MountAttrFlags::MOUNT_ATTR_NODEV),
        (GeneralMountFlags::NOEXEC, MountAttrFlags::MOUNT_ATTR_NOEXEC),
        (
            GeneralMountFlags::NOATIME,
            MountAttrFlags::MOUNT_ATTR_NOATIME,
        ),
    ] {
        if options.flags.contains(set) {
            attributes |= flag;
        }
    }
    attributes
}
