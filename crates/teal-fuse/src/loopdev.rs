//! Loop devices: a file as the block device that a `fuseblk` mount needs.
//!
//! # How
//! 1. The device is made with *autoclear*: it goes with its last user. That is this value until the mount holds it, and the mount then.
//! 2. Nothing is read or written through it by us. Others may look at it (`blkid` does); they see the file.

use crate::ioctl;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

const CONTROL: &str = "/dev/loop-control";
/// Others take free devices, too: so often the next one is asked for.
const TRIES: usize = 64;

/// A loop device over a file, held until dropped.
#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
    _held: OwnedFd,
}

impl LoopDevice {
    /// Makes a device over `file`, which must be a regular file of at least one block.
    ///
    /// # Errors
    /// Where the kernel has no loop devices, all are taken, or the caller is not root.
    pub fn over(file: &Path, read_only: bool) -> io::Result<Self> {
        let access = if read_only { OFlags::RDONLY } else { OFlags::RDWR };
        let backing = open(file, access | OFlags::CLOEXEC, Mode::empty())?;
        let control = open(CONTROL, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        for _ in 0..TRIES {
            let path = PathBuf::from(format!("/dev/loop{}", ioctl::free_loop(control.as_fd())?));
            let device = open(&path, access | OFlags::CLOEXEC, Mode::empty())?;
            match ioctl::configure_loop(device.as_fd(), backing.as_fd(), file.as_os_str().as_encoded_bytes(), read_only)
            {
                Ok(()) => return Ok(Self { path, _held: device }),
                Err(Errno::BUSY) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Err(Errno::BUSY.into())
    }

    /// Its device file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}
