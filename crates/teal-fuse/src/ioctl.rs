//! The `ioctl`s that are used here, and with them all `unsafe` of this crate.

#![allow(unsafe_code, reason = "an ioctl has no safe form")]

use crate::abi::FUSE_DEV_IOC_MAGIC;
use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, Setter, ioctl, opcode};
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

const LOOP_CTL_GET_FREE: Opcode = 0x4c82;
const LOOP_CONFIGURE: Opcode = 0x4c0a;
const LOOP_CLR_FD: Opcode = 0x4c01;
/// `struct loop_config`: descriptor u32 at 0, block size u32 at 4, `struct loop_info64` at 8 with flags u32 at 52 and the file's name, 64 bytes, at 56.
const LOOP_CONFIG: usize = 304;
const LO_FLAGS: usize = 8 + 52;
const LO_FILE_NAME: std::ops::Range<usize> = 8 + 56..8 + 56 + 63;
const LO_FLAGS_READ_ONLY: u32 = 1;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
const LO_FLAGS_DIRECT_IO: u32 = 16;

struct GetFree;

// SAFETY: the opcode takes no argument; its result is a number.
unsafe impl Ioctl for GetFree {
    type Output = u32;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        LOOP_CTL_GET_FREE
    }
    fn as_ptr(&mut self) -> *mut std::ffi::c_void {
        std::ptr::null_mut()
    }
    unsafe fn output_from_ptr(out: IoctlOutput, _: *mut std::ffi::c_void) -> Result<u32, Errno> {
        Ok(out.cast_unsigned())
    }
}

/// The number of a loop device that nobody uses, made if need be (`LOOP_CTL_GET_FREE`).
pub(crate) fn free_loop(control: BorrowedFd<'_>) -> Result<u32, Errno> {
    // SAFETY: without an argument there is nothing the kernel could write to.
    unsafe { ioctl(control, GetFree) }
}

/// Puts a loop device over a file until its last user is gone (`LOOP_CONFIGURE`). With `direct`, requests of whole blocks of so
/// many bytes bypass the page cache of the file.
pub(crate) fn configure_loop(
    device: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    name: &[u8],
    read_only: bool,
    direct: Option<u32>,
) -> Result<(), Errno> {
    let mut config = [0_u8; LOOP_CONFIG];
    config[..4].copy_from_slice(&file.as_raw_fd().cast_unsigned().to_ne_bytes());
    config[4..8].copy_from_slice(&direct.unwrap_or(0).to_ne_bytes());
    let flags = LO_FLAGS_AUTOCLEAR
        | if read_only { LO_FLAGS_READ_ONLY } else { 0 }
        | if direct.is_some() { LO_FLAGS_DIRECT_IO } else { 0 };
    config[LO_FLAGS..][..4].copy_from_slice(&flags.to_ne_bytes());
    let name = &name[..name.len().min(LO_FILE_NAME.len())];
    config[LO_FILE_NAME][..name.len()].copy_from_slice(name);
    // SAFETY: the opcode takes a pointer to a `loop_config`, which has exactly this size, and only reads it.
    let request = unsafe { Setter::<LOOP_CONFIGURE, [u8; LOOP_CONFIG]>::new(config) };
    // SAFETY: both descriptors are open for the whole call; on one that is no loop device it fails and changes nothing.
    unsafe { ioctl(device, request) }
}

struct Clear;

// SAFETY: the opcode takes no argument and gives nothing back.
unsafe impl Ioctl for Clear {
    type Output = ();
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        LOOP_CLR_FD
    }
    fn as_ptr(&mut self) -> *mut std::ffi::c_void {
        std::ptr::null_mut()
    }
    unsafe fn output_from_ptr(_: IoctlOutput, _: *mut std::ffi::c_void) -> Result<(), Errno> {
        Ok(())
    }
}

/// Takes a loop device off its file, now or when its last user is gone (`LOOP_CLR_FD`).
pub(crate) fn clear_loop(device: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: without an argument there is nothing the kernel could write to; on what is no loop device it fails.
    unsafe { ioctl(device, Clear) }
}
