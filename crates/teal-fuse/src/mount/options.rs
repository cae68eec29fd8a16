//! The options of a mount, in the forms of the system calls and of `fusermount3`.

use super::error::MountError;
use rustix::fs::{Mode, OFlags};
use rustix::mount::MountFlags;
use std::path::Path;

/// The part of the file system type behind the dot, as in `fuse.teal`.
pub(super) const SUBTYPE: &str = "teal";
/// Block size told to the kernel for `fuseblk`.
pub(super) const BLOCK_SIZE: u32 = 4096;

/// The options of a mount.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FuseMountOptions {
    /// The source that `df` shows; with `block_device`, the path of the device.
    pub source: String,
    /// Mounts as `fuseblk`, on the block device `source`: the kernel then sends `SYNCFS` and
    /// `DESTROY`. Root only. The mount holds the device exclusively: no process may have it open
    /// with `O_EXCL`, this one included.
    pub block_device: bool,
    /// Users other than the mounting one may enter (as a user, only with `user_allow_other` in
    /// `/etc/fuse.conf`).
    pub allow_other: bool,
    /// The kernel checks permissions by the attributes.
    pub default_permissions: bool,
    /// The flags that every file system has.
    pub flags: GeneralMountFlags,
    /// The most bytes in one read; the negotiated `max_write` when `None`.
    pub max_read: Option<u32>,
}

bitflags::bitflags! {
    /// Flags that a mount of any file system can have; the kernel enforces them.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct GeneralMountFlags: u32 {
        /// No changes.
        const READ_ONLY = 1;
        /// Set-user-id bits do not count. Always so when a user mounts.
        const NOSUID = 2;
        /// Device files do not work. Always so when a user mounts.
        const NODEV = 4;
        /// Programs do not run.
        const NOEXEC = 8;
        /// Reading changes no access times.
        const NOATIME = 16;
    }
}

impl GeneralMountFlags {
    /// Returns the flags for `mount(2)`.
    pub fn mount_flags(self) -> MountFlags {
        let mut flags = MountFlags::empty();
        for (_, flag, _) in GENERAL_FLAGS.iter().filter(|(of, ..)| self.contains(*of)) {
            flags |= *flag;
        }
        flags
    }

    /// Returns the names of the flags as options.
    pub(super) fn option_names(self) -> impl Iterator<Item = &'static str> {
        let set = GENERAL_FLAGS
            .iter()
            .filter(move |(of, ..)| self.contains(*of));
        set.map(|(_, _, name)| *name)
    }
}

/// The flags with those of `mount(2)` and their names as options.
const GENERAL_FLAGS: [(GeneralMountFlags, MountFlags, &str); 5] = [
    (GeneralMountFlags::READ_ONLY, MountFlags::RDONLY, "ro"),
    (GeneralMountFlags::NOSUID, MountFlags::NOSUID, "nosuid"),
    (GeneralMountFlags::NODEV, MountFlags::NODEV, "nodev"),
    (GeneralMountFlags::NOEXEC, MountFlags::NOEXEC, "noexec"),
    (GeneralMountFlags::NOATIME, MountFlags::NOATIME, "noatime"),
];

/// The treatment of files that are still open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnmountMode {
    /// Refuse with [`UnmountError::Busy`](super::UnmountError::Busy).
    IfIdle,
    /// Take the mount out of the tree now and go on serving what is open until it is closed.
    Detach,
}

impl FuseMountOptions {
    /// Checks that the block device is not in use. If it were mounted already, the kernel would
    /// show that mount here again and leave our descriptor idle.
    pub(super) fn check_source_free(&self) -> Result<(), MountError> {
        if self.block_device {
            rustix::fs::open(
                &*self.source,
                OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC,
                Mode::empty(),
            )
            .map_err(|errno| MountError::from_errno(Path::new(&self.source), errno))?;
        }
        Ok(())
    }

    /// Returns the options that FUSE itself reads, alike for `mount(2)` and `fusermount3`.
    pub(super) fn fuse_options(&self) -> Vec<String> {
        let mut options = Vec::new();
        if self.allow_other {
            options.push("allow_other".to_owned());
        }
        if self.default_permissions {
            options.push("default_permissions".to_owned());
        }
        if let Some(bytes) = self.max_read {
            options.push(format!("max_read={bytes}"));
        }
        options
    }
}
