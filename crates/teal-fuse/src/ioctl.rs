//! Requests to devices by other ways than `read` and `write`: a few `ioctl`s, a message with no
//! end, and commands through a ring. All `unsafe` of this crate is here.

#![allow(
    unsafe_code,
    reason = "an ioctl has no safe form, nor has memory that is lent to a ring"
)]

use crate::abi::{FUSE_DEV_IOC_MAGIC, FUSE_IO_URING_CMD_REGISTER, fuse_uring_cmd_req};
use crate::ring::EntryMemory;
use io_uring::{EnterFlags, IoUring, cqueue, opcode::UringCmd80, squeue, types};
use parking_lot::{Mutex, MutexGuard};
use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, Setter, ioctl, opcode};
use std::fmt;
use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Makes the freshly opened device `clone` one more channel of the connection of `of`
/// (`FUSE_DEV_IOC_CLONE`).
pub(crate) fn attach_channel(clone: BorrowedFd<'_>, of: BorrowedFd<'_>) -> Result<(), Errno> {
    const CLONE: u32 = opcode::read::<u32>(FUSE_DEV_IOC_MAGIC as u8, 0);
    let of = of.as_raw_fd().cast_unsigned();
    // SAFETY: the opcode takes a pointer to a `u32` that holds a descriptor, and only reads it.
    let request = unsafe { Setter::<CLONE, u32>::new(of) };
    // SAFETY: both descriptors are open for the whole call; on one that is no FUSE device it fails
    // and changes nothing.
    unsafe { ioctl(clone, request) }
}

const LOOP_CTL_GET_FREE: Opcode = 0x4c82;
const LOOP_CONFIGURE: Opcode = 0x4c0a;
const LOOP_CLR_FD: Opcode = 0x4c01;
const BLKROSET: Opcode = 0x125d;
/// `struct loop_config`: descriptor u32 at 0, block size u32 at 4, `struct loop_info64` at 8 with
/// flags u32 at 52 and the file's name, 64 bytes, at 56.
const LOOP_CONFIG: usize = 304;
const LO_FLAGS: usize = 8 + 52;
const LO_FILE_NAME: std::ops::Range<usize> = 8 + 56..8 + 56 + 63;
const LO_FLAGS_READ_ONLY: u32 = 1;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
const LO_FLAGS_DIRECT_IO: u32 = 16;

/// Writes `head` and `missing` unreadable bytes as one message. The device takes the message up to
/// these, and fails with `EFAULT`.
pub(crate) fn write_truncated(
    device: BorrowedFd<'_>,
    head: &[u8],
    missing: usize,
) -> Result<(), Errno> {
    // The second part has a null address, which the kernel cannot read.
    let parts = [
        libc::iovec {
            iov_base: head.as_ptr().cast_mut().cast(),
            iov_len: head.len(),
        },
        libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: missing,
        },
    ];
    // SAFETY: writing only reads what the parts describe. The first is memory of this program; of
    // the second the kernel finds that it is none.
    let written = unsafe {
        libc::writev(
            device.as_raw_fd(),
            parts.as_ptr(),
            parts.len() as libc::c_int,
        )
    };
    if written < 0 {
        let error = std::io::Error::last_os_error();
        return Err(to_errno(&error));
    }
    Ok(())
}

struct GetFreeLoop;

// SAFETY: the opcode takes no argument; its result is a number.
unsafe impl Ioctl for GetFreeLoop {
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

/// Returns the number of a free loop device, which is made if need be (`LOOP_CTL_GET_FREE`).
pub(crate) fn free_loop(control: BorrowedFd<'_>) -> Result<u32, Errno> {
    // SAFETY: without an argument there is nothing the kernel could write to.
    unsafe { ioctl(control, GetFreeLoop) }
}

/// Puts a loop device over a file until its last user is gone (`LOOP_CONFIGURE`). With `direct`,
/// requests of whole blocks of so many bytes bypass the page cache of the file.
pub(crate) fn configure_loop(
    device: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    name: &[u8],
    read_only: bool,
    direct: Option<u32>,
) -> Result<(), Errno> {
    let mut flags = LO_FLAGS_AUTOCLEAR;
    if read_only {
        flags |= LO_FLAGS_READ_ONLY;
    }
    if direct.is_some() {
        flags |= LO_FLAGS_DIRECT_IO;
    }
    // A longer name is cut: the kernel only shows it, and the field ends with a zero byte.
    let name = &name[..name.len().min(LO_FILE_NAME.len())];
    let mut config = [0_u8; LOOP_CONFIG];
    config[..4].copy_from_slice(&file.as_raw_fd().cast_unsigned().to_ne_bytes());
    config[4..8].copy_from_slice(&direct.unwrap_or(0).to_ne_bytes());
    config[LO_FLAGS..][..4].copy_from_slice(&flags.to_ne_bytes());
    config[LO_FILE_NAME][..name.len()].copy_from_slice(name);
    // SAFETY: the opcode takes a pointer to a `loop_config`, which has exactly this size, and only
    // reads it.
    let request = unsafe { Setter::<LOOP_CONFIGURE, [u8; LOOP_CONFIG]>::new(config) };
    // SAFETY: both descriptors are open for the whole call; on one that is no loop device it fails
    // and changes nothing.
    unsafe { ioctl(device, request) }
}

struct ClearLoopFd;

// SAFETY: the opcode takes no argument and gives nothing back.
unsafe impl Ioctl for ClearLoopFd {
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

/// Clears the read-only mark of a block device (`BLKROSET`).
pub(crate) fn allow_writes(device: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: the opcode takes a pointer to an `int`, and only reads it.
    let request = unsafe { Setter::<BLKROSET, i32>::new(0) };
    // SAFETY: the descriptor is open for the whole call; on one that is no block device it fails
    // and changes nothing.
    unsafe { ioctl(device, request) }
}

/// Detaches a loop device from its file, now or when its last user is gone (`LOOP_CLR_FD`).
pub(crate) fn clear_loop(device: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: without an argument there is nothing the kernel could write to; on what is no loop
    // device it fails.
    unsafe { ioctl(device, ClearLoopFd) }
}

/// Returns the error of a system call that the standard library or the ring crate has made.
fn to_errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// An `io_uring` that carries one command at a time to a FUSE device, and the memory that the
/// command lends to the kernel.
///
/// Invariant: between two calls of [`CommandRing::exchange`] no command is in flight, and the
/// kernel does not touch the memory.
pub(crate) struct CommandRing {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    enter: u32,
    /// Not registered with the ring, which the kernel takes apart some time after a process has
    /// died: the device is to close with it.
    device: Arc<OwnedFd>,
    queue: u16,
    memory: Arc<Mutex<EntryMemory>>,
    /// Address and length of the two parts of the memory when the kernel was told of them.
    registered: [(usize, usize); 2],
}

impl fmt::Debug for CommandRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane")
            .field("queue", &self.queue)
            .finish_non_exhaustive()
    }
}

impl CommandRing {
    /// Bytes of `struct io_uring_sqe` in front of `len`.
    const LEN_AT: usize = 24;

    /// Makes a ring for requests of processor `queue`, to be used by the one thread that will
    /// [`enable`](Self::enable) it.
    pub(crate) fn new(
        device: Arc<OwnedFd>,
        queue: u16,
        memory: Arc<Mutex<EntryMemory>>,
    ) -> Result<Self, Errno> {
        let mut builder = IoUring::<squeue::Entry128, cqueue::Entry>::builder();
        // One thread submits and reaps, so that the kernel runs completions in that thread only; it
        // starts disabled, so that another thread than this one may be the one.
        let ring = builder
            .dontfork()
            .setup_r_disabled()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .build(1)
            .map_err(|error| to_errno(&error))?;
        // A ring that waits is idle: without this flag, processors would be kept from deep sleep as
        // if a disk were at work.
        let no_iowait = if ring.params().is_feature_no_iowait() {
            EnterFlags::NO_IOWAIT
        } else {
            EnterFlags::empty()
        };
        let enter = (EnterFlags::GETEVENTS | no_iowait).bits();
        Ok(Self {
            ring,
            enter,
            device,
            queue,
            memory,
            registered: [(0, 0); 2],
        })
    }

    /// Makes the calling thread the one that uses the ring.
    pub(crate) fn enable(&self) -> Result<(), Errno> {
        let done = self.ring.submitter().register_enable_rings();
        done.map_err(|error| to_errno(&error))
    }

    /// Tells the kernel that no more rings will come: until each queue has an entry, requests then
    /// come over the device, as before.
    pub(crate) fn decline_rings(mut self) {
        // No processor has this number: the kernel refuses the registration and gives up on rings.
        self.queue = u16::MAX;
        let refused = self
            .enable()
            .and_then(|()| self.exchange(FUSE_IO_URING_CMD_REGISTER, 0));
        log::debug!("rings are called off: {refused:?}");
    }

    /// Gives the memory to the kernel, with an answer in it or, to register it, without one; waits
    /// until it holds a request.
    ///
    /// # Errors
    /// `ENOTCONN` or `ECONNABORTED` when the connection has ended, or another error of the device.
    pub(crate) fn exchange(&mut self, command: u32, commit_id: u64) -> Result<(), Errno> {
        let memory = Arc::clone(&self.memory);
        let mut memory = memory.lock();
        let buffers = memory.lend_to_kernel();
        let address = [0, 1].map(|n: usize| (buffers[n].as_ptr() as usize, buffers[n].len()));
        if command == FUSE_IO_URING_CMD_REGISTER {
            self.registered = address;
        }
        assert_eq!(
            self.registered, address,
            "the kernel knows the memory by its address"
        );
        let entry = self.submission_entry(command, commit_id, &buffers);
        // SAFETY: `buffers`, two `iovec`s, and the memory they name, which `memory` owns and the
        // lock keeps from all other threads, stay where they are until the command is complete,
        // which is waited for below. Where that cannot be seen, they are never freed.
        unsafe { self.ring.submission().push(&entry) }.map_err(|_| Errno::BUSY)?;
        match self.wait_for_completion() {
            Ok(result) if result < 0 => Err(Errno::from_raw_os_error(-result)),
            Ok(_) => Ok(()),
            Err(errno) => {
                // The command may still be in flight, and the kernel may write into the memory.
                std::mem::forget(Arc::clone(&self.memory));
                MutexGuard::leak(memory);
                Err(errno)
            }
        }
    }

    /// Builds the submission of a command that lends `buffers` to the kernel.
    fn submission_entry(
        &self,
        command: u32,
        commit_id: u64,
        buffers: &[IoSliceMut<'_>; 2],
    ) -> squeue::Entry128 {
        let request = fuse_uring_cmd_req {
            commit_id,
            qid: self.queue,
            ..Default::default()
        };
        let mut argument = [0; 80];
        argument[..size_of_val(&request)].copy_from_slice(request.as_bytes());
        let device = types::Fd(self.device.as_raw_fd());
        let command = UringCmd80::new(device, command)
            .cmd(argument)
            .addr(Some(buffers.as_ptr() as u64));
        let mut entry = command.build();
        // The crate has no setter for the number of buffers, which the kernel reads in `len`.
        // SAFETY: an `Entry128` is 128 plain bytes, the first of them a `struct io_uring_sqe`; its
        // `len` is a number that may have any value.
        unsafe {
            (&raw mut entry)
                .byte_add(Self::LEN_AT)
                .cast::<u32>()
                .write(buffers.len() as u32)
        };
        entry
    }

    /// Submits the command and waits for its result; a signal does not end the wait.
    fn wait_for_completion(&mut self) -> Result<i32, Errno> {
        loop {
            if let Some(completion) = self.ring.completion().next() {
                return Ok(completion.result());
            }
            let unsubmitted = self.ring.submission().len() as u32;
            debug_assert!(unsubmitted <= 1, "one command at a time");
            let submitter = self.ring.submitter();
            // SAFETY: no argument is passed.
            let entered = unsafe { submitter.enter::<()>(unsubmitted, 1, self.enter, None) };
            match entered.map_err(|error| to_errno(&error)) {
                // After a signal the ring is looked at again: the command may be complete.
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
}
