//! Mounting beneath a mount whose server has died, before that goes: nobody ever sees the bare
//! directory, nor writes into it.
//!
//! # How
//! The kernel makes a mount that lies nowhere yet, which is then moved beneath what lies at the
//! mount point (since Linux 6.5). Taking the dead mount away shows the new one.

use super::{BLOCK_SIZE, FuseMountOptions, SUBTYPE};
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
/// [`Errno::INVAL`] or [`Errno::NOSYS`] where the kernel cannot; whatever it said, the dead mount
/// is where it was.
pub(super) fn mount_beneath(
    device: impl AsFd,
    point: &Path,
    options: &FuseMountOptions,
) -> Result<(), Errno> {
    let context = fsopen(
        if options.block_device {
            "fuseblk"
        } else {
            "fuse"
        },
        FsOpenFlags::FSOPEN_CLOEXEC,
    )?;
    let number = |number: u32| number.to_string();
    let mut settings = vec![
        ("source", options.source.clone()),
        ("subtype", SUBTYPE.to_owned()),
        ("fd", device.as_fd().as_raw_fd().to_string()),
        ("rootmode", "40000".to_owned()),
        ("user_id", number(rustix::process::getuid().as_raw())),
        ("group_id", number(rustix::process::getgid().as_raw())),
    ];
    if options.block_device {
        settings.push(("blksize", number(BLOCK_SIZE)));
    }
    settings.extend(options.max_read.map(|bytes| ("max_read", number(bytes))));
    for (name, value) in settings {
        fsconfig_set_string(&context, name, value)?;
    }
    let flags = [
        (options.allow_other, "allow_other"),
        (options.default_permissions, "default_permissions"),
        (options.read_only, "ro"),
    ];
    for (_, name) in flags.into_iter().filter(|(is_set, _)| *is_set) {
        fsconfig_set_flag(&context, name)?;
    }
    fsconfig_create(&context)?;
    let mount = fsmount(
        &context,
        FsMountFlags::FSMOUNT_CLOEXEC,
        mount_attributes(options),
    )?;
    move_mount(
        &mount,
        "",
        CWD,
        point,
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | BENEATH,
    )?;
    unmount(point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)
}

fn mount_attributes(options: &FuseMountOptions) -> MountAttrFlags {
    [
        (options.read_only, MountAttrFlags::MOUNT_ATTR_RDONLY),
        (options.nosuid, MountAttrFlags::MOUNT_ATTR_NOSUID),
        (options.nodev, MountAttrFlags::MOUNT_ATTR_NODEV),
        (options.noexec, MountAttrFlags::MOUNT_ATTR_NOEXEC),
        (options.noatime, MountAttrFlags::MOUNT_ATTR_NOATIME),
    ]
    .into_iter()
    .filter_map(|(is_set, flag)| is_set.then_some(flag))
    .fold(MountAttrFlags::empty(), |all, flag| all | flag)
}
