//! The device `/dev/fuse`.

use super::channel::{MessageSink, Transport};
use crate::ioctl;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// The path of the device.
pub(crate) const DEV_FUSE: &str = "/dev/fuse";

/// An open `/dev/fuse` that belongs to one mount.
#[derive(Debug)]
pub struct DevFuse(OwnedFd);

impl DevFuse {
    /// Opens the device; it is good for nothing until a mount is made with it.
    pub(crate) fn open() -> Result<Self, Errno> {
        rustix::fs::open(DEV_FUSE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map(Self)
    }

    /// Takes over a descriptor that a mount was made with.
    pub fn from_fd(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

impl AsFd for DevFuse {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl MessageSink for DevFuse {
    fn send(&self, parts: &[IoSlice<'_>]) -> Result<(), Errno> {
        // The kernel takes a message whole or not at all.
        rustix::io::retry_on_intr(|| rustix::io::writev(&self.0, parts)).map(drop)
    }
}

impl Transport for DevFuse {
    fn receive(&self, buffer: &mut [u8]) -> Result<Option<usize>, Errno> {
        loop {
            match rustix::io::read(&self.0, &mut *buffer) {
                Ok(length) => return Ok(Some(length)),
                // A signal, or the request was interrupted before it was read: neither is ours.
                Err(Errno::INTR | Errno::NOENT) => {}
                // Unmounted; the second when that happened while a last request was being read, or
                // after an abort.
                Err(Errno::NODEV | Errno::CONNABORTED) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    fn open_channel(&self) -> Result<Arc<dyn Transport>, Errno> {
        // A fresh descriptor belongs to no mount until it is attached to the connection of this
        // one.
        let clone = Self::open()?;
        ioctl::attach_channel(clone.as_fd(), self.as_fd())?;
        Ok(Arc::new(clone))
    }

    fn send_truncated(&self, head: &[u8], missing: usize) -> Result<(), Errno> {
        rustix::io::retry_on_intr(|| ioctl::write_truncated(self.as_fd(), head, missing))
    }

    fn device_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.as_fd())
    }
}
