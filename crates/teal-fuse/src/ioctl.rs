//! The one `ioctl` of the device that is used here, and with it all `unsafe` of this crate.

#![allow(unsafe_code, reason = "an ioctl has no safe form")]

use crate::abi::FUSE_DEV_IOC_MAGIC;
use rustix::io::Errno;
use rustix::ioctl::{Setter, ioctl, opcode};
use std::os::fd::{AsRawFd, BorrowedFd};

/// Makes the fresh device `clone` one more channel of the connection of `of` (`FUSE_DEV_IOC_CLONE`).
pub(crate) fn attach(clone: BorrowedFd<'_>, of: BorrowedFd<'_>) -> Result<(), Errno> {
    const CLONE: u32 = opcode::read::<u32>(FUSE_DEV_IOC_MAGIC as u8, 0);
    let of = of.as_raw_fd().cast_unsigned();
    // SAFETY: the opcode takes a pointer to a `u32` that holds a descriptor, and only reads it.
    let request = unsafe { Setter::<CLONE, u32>::new(of) };
    // SAFETY: both descriptors are open for the whole call; on one that is no FUSE device it fails and changes nothing.
    unsafe { ioctl(clone, request) }
}
