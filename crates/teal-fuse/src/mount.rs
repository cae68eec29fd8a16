//! Mounts and unmounts: by the system calls as root, by `fusermount3` as a user.
//!
//! # Guarantees
//! 1. *Only ours*: an unmount touches the mount it was made for, recognised by its device number,
//!    never what lies there instead.
//! 2. *No request*: neither way asks the served file system anything, so that neither can hang on
//!    it.

mod beneath;
mod error;
mod fusermount;
mod options;

pub use error::{MountError, UnmountError};
pub use options::{FuseMountOptions, GeneralMountFlags, UnmountMode};

use crate::transport::{DEV_FUSE, DevFuse};
use options::{BLOCK_SIZE, SUBTYPE};
use rustix::fs::{AtFlags, CWD, Dev, FileType, StatxFlags, major, makedev, minor};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use std::ffi::CString;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};

/// The device number of a mount, shown as in `/sys/class/bdi`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeviceNumber(Dev);

impl fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", major(self.0), minor(self.0))
    }
}

impl DeviceNumber {
    /// Returns the number of the mount at `point`. Asks for no attribute, so that the kernel
    /// answers without asking the mount's server.
    fn of_mount(point: &Path) -> Result<Self, Errno> {
        let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
        let stat = rustix::fs::statx(CWD, point, flags, StatxFlags::empty())?;
        Ok(Self(makedev(stat.stx_dev_major, stat.stx_dev_minor)))
    }
}

/// Unmounts one mount, from any thread. Not to be used from a request's handler on a `fuseblk`
/// mount: there the kernel waits for the answer to `DESTROY`.
#[derive(Debug, Clone)]
pub struct UnmountHandle {
    point: PathBuf,
    device: DeviceNumber,
}

impl UnmountHandle {
    /// Returns the mount point.
    pub fn mount_point(&self) -> &Path {
        &self.point
    }

    /// Returns the device number of the mount.
    pub fn device_number(&self) -> DeviceNumber {
        self.device
    }

    /// Takes the mount away; without effect when it is gone already.
    ///
    /// # Errors
    /// [`UnmountError`].
    pub fn unmount(&self, mode: UnmountMode) -> Result<(), UnmountError> {
        // Something else may lie at the mount point by now: then this mount is gone.
        if DeviceNumber::of_mount(&self.point) != Ok(self.device) {
            return Ok(());
        }
        if !rustix::process::geteuid().is_root() {
            return fusermount::unmount_as_user(&self.point, mode);
        }
        let lazy = if mode == UnmountMode::Detach {
            UnmountFlags::DETACH
        } else {
            UnmountFlags::empty()
        };
        let point = self.point.clone();
        match rustix::mount::unmount(&self.point, lazy | UnmountFlags::NOFOLLOW) {
            Ok(()) => Ok(()),
            Err(Errno::BUSY) => Err(UnmountError::Busy { point }),
            Err(errno) => Err(UnmountError::System {
                point,
                source: errno.into(),
            }),
        }
    }
}

/// Unmounts a dead mount at `point`, which is one that has lost its server; without effect on a
/// live mount, and where nothing is mounted.
///
/// # Errors
/// [`UnmountError`].
pub fn detach_dead(point: &Path) -> Result<(), UnmountError> {
    if !is_dead(point) {
        return Ok(());
    }
    if !rustix::process::geteuid().is_root() {
        return fusermount::unmount_as_user(point, UnmountMode::Detach);
    }
    rustix::mount::unmount(point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW).map_err(|errno| {
        UnmountError::System {
            point: point.to_owned(),
            source: errno.into(),
        }
    })
}

/// The number of times that an interrupted `statfs` is tried.
const INTERRUPTED_MAX: u32 = 10;

/// Returns whether a mount at `point` has lost its server. The kernel answers `stat` from its cache
/// even then; `statfs` asks the server.
pub fn is_dead(point: &Path) -> bool {
    for _ in 0..INTERRUPTED_MAX {
        match rustix::fs::statfs(point) {
            // Over rings, a request that was on its way to a worker when the server died is
            // interrupted; the next one fails as below.
            Err(Errno::INTR) => {}
            // The last two end requests that were under way when the server died, the very last one
            // over rings.
            Err(Errno::NOTCONN | Errno::CONNABORTED | Errno::CANCELED) => return true,
            _ => return false,
        }
    }
    false
}

/// Mounts at the directory `point`: by `mount(2)` as root, else by `fusermount3`. Requests are not
/// answered yet; see [`crate::FuseSession::start_on_transport`].
///
/// # Errors
/// [`MountError`].
pub fn mount(
    point: &Path,
    options: &FuseMountOptions,
) -> Result<(DevFuse, UnmountHandle), MountError> {
    // A `stat` of the dead mount would fail: it is replaced without one.
    if rustix::process::geteuid().is_root() && is_dead(point) {
        return replace_dead_mount(point, options);
    }
    let stat = rustix::fs::stat(point).map_err(|errno| MountError::from_errno(point, errno))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return Err(MountError::NotDirectory {
            point: point.to_owned(),
        });
    }
    // The mount is recognised later by this path, which must not depend on the working directory.
    let resolved = std::fs::canonicalize(point).map_err(|source| MountError::System {
        point: point.to_owned(),
        source,
    })?;
    let device = if rustix::process::geteuid().is_root() {
        mount_as_root(&resolved, options)?
    } else {
        fusermount::mount_as_user(&resolved, options)?
    };
    let number =
        DeviceNumber::of_mount(&resolved).map_err(|errno| MountError::from_errno(point, errno))?;
    Ok((
        device,
        UnmountHandle {
            point: resolved,
            device: number,
        },
    ))
}

/// Mounts in the place of a dead mount.
fn replace_dead_mount(
    point: &Path,
    options: &FuseMountOptions,
) -> Result<(DevFuse, UnmountHandle), MountError> {
    let device = open_device(point)?;
    options.check_source_free()?;
    if let Err(errno) = beneath::mount_beneath(&device, point, options) {
        // Older kernels cannot mount beneath another mount. For a moment, the bare directory shows.
        log::debug!(
            "the dead mount at {} goes before the new one comes: {errno}",
            point.display()
        );
        // The device has seen one attempt to mount, and serves no other.
        drop(device);
        detach_dead(point).map_err(|error| MountError::System {
            point: point.to_owned(),
            source: io::Error::other(error.to_string()),
        })?;
        return mount(point, options);
    }
    let number =
        DeviceNumber::of_mount(point).map_err(|errno| MountError::from_errno(point, errno))?;
    Ok((
        device,
        UnmountHandle {
            point: point.to_owned(),
            device: number,
        },
    ))
}

fn open_device(point: &Path) -> Result<DevFuse, MountError> {
    DevFuse::open().map_err(|errno| match errno {
        Errno::NOENT | Errno::NODEV | Errno::NXIO => MountError::NoDevice,
        Errno::ACCESS | Errno::PERM => MountError::Denied {
            point: point.to_owned(),
            message: format!("{DEV_FUSE} may not be opened"),
        },
        other => MountError::from_errno(Path::new(DEV_FUSE), other),
    })
}

fn mount_as_root(point: &Path, options: &FuseMountOptions) -> Result<DevFuse, MountError> {
    let device = open_device(point)?;
    // The kernel has two types: only one of them takes a block device.
    let kind = if options.block_device {
        "fuseblk"
    } else {
        "fuse"
    };
    options.check_source_free()?;
    let mut data = format!(
        // The type of the root in octal: a directory.
        "fd={},rootmode=40000,user_id={},group_id={}",
        device.as_fd().as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
    );
    for option in options.fuse_options() {
        data.push(',');
        data.push_str(&option);
    }
    if options.block_device {
        data.push_str(&format!(",blksize={BLOCK_SIZE}"));
    }
    let data = CString::new(data).map_err(|error| MountError::System {
        point: point.to_owned(),
        source: error.into(),
    })?;
    rustix::mount::mount(
        &*options.source,
        point,
        format!("{kind}.{SUBTYPE}"),
        options.flags.mount_flags(),
        &*data,
    )
    .map_err(|errno| match errno {
        // The kernel does not know the file system type `fuse`.
        Errno::NODEV => MountError::NoDevice,
        other => MountError::from_errno(point, other),
    })?;
    Ok(device)
}

#[cfg(test)]
mod tests;
