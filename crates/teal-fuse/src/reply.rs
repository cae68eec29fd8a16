//! The answer to one request.
//!
//! # Guarantees
//! 1. *Exactly once*: answering consumes the [`Reply`]; dropping it unanswered sends `EIO`, where
//!    an answer is due. Where none is accepted (forgets), nothing is ever sent.
//! 2. *Whole*: a message is sent in one vectored write; data is never copied.
//! 3. *Same channel*: the answer goes out where the request came in, from whichever thread.

mod dir;
mod wire;

pub use dir::DirBuffer;
pub use wire::{LookupEntry, OpenFlags, StatfsReply};

use crate::abi::{self, fuse_out_header, opcode};
use crate::request::{FileLock, Handle, RequestHeader};
use crate::transport::{MessageSink, Transport};
use rustix::io::Errno;
use std::fmt;
use std::io::IoSlice;
use std::mem::size_of;
use std::sync::Arc;
use std::time::Duration;
use teal_types::Attr;
use zerocopy::IntoBytes;

/// Whether an answer reached its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Delivery {
    /// The kernel took it.
    Delivered,
    /// The caller was killed or the mount is gone. What an entry or open reply would have given, a
    /// lookup or a handle, the kernel does not hold and will not give back.
    Lost,
}

impl Delivery {
    /// Returns whether the kernel took it.
    pub fn is_delivered(self) -> bool {
        self == Self::Delivered
    }
}

/// What a request was answered, for whoever watches it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyOutcome {
    /// The error; `None` when it succeeded.
    pub errno: Option<Errno>,
    /// The node of an entry (0: there is no such name), bytes written or copied, the offset found,
    /// bytes of data; else 0.
    pub value: u64,
}

/// Called with the answer, just before it is sent.
pub type ReplyWatcher = Box<dyn FnOnce(ReplyOutcome) + Send>;

/// The duty to answer one request. May be kept and used later, on any thread.
pub struct ReplySender {
    outlet: Arc<dyn MessageSink>,
    unique: u64,
    opcode: u32,
    due: bool,
    watcher: Option<ReplyWatcher>,
}

impl fmt::Debug for ReplySender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            unique,
            opcode,
            due,
            ..
        } = self;
        write!(
            f,
            "Reply {{ unique: {unique}, opcode: {opcode}, due: {due} }}"
        )
    }
}

impl ReplySender {
    pub(crate) fn new(outlet: Arc<dyn MessageSink>, header: &RequestHeader) -> Self {
        let due = takes_answer(header.opcode) && header.opcode != opcode::FUSE_INTERRUPT;
        Self {
            outlet,
            unique: header.unique.get(),
            opcode: header.opcode,
            due,
            watcher: None,
        }
    }

    /// Tells `watcher` what the answer is. Where none is accepted it is never called.
    #[must_use]
    pub fn with_watcher(mut self, watcher: ReplyWatcher) -> Self {
        self.watcher = Some(watcher);
        self
    }

    /// The operation failed.
    pub fn send_error(mut self, errno: Errno) {
        let _ = self.send(-errno.raw_os_error(), &[]);
    }

    /// It succeeded and there is nothing to tell.
    pub fn send_ok(mut self) {
        let _ = self.send(0, &[]);
    }

    /// Returns whether the kernel waits for an answer; not so for forgets and interrupts, whose
    /// [`Reply`] is simply dropped.
    pub fn is_due(&self) -> bool {
        self.due
    }

    /// The object found or made; counts one lookup of it.
    pub fn send_entry(mut self, entry: &LookupEntry) -> Delivery {
        self.send(0, &[entry.to_wire().as_bytes()])
    }

    /// There is no such name, and the kernel may remember that for `ttl`.
    pub fn send_negative_entry(mut self, ttl: Duration) {
        let out = abi::fuse_entry_out {
            entry_valid: ttl.as_secs(),
            entry_valid_nsec: ttl.subsec_nanos(),
            ..Default::default()
        };
        let _ = self.send(0, &[out.as_bytes()]);
    }

    /// Attributes, which the kernel may keep for `ttl` ([`Duration::MAX`]: until told otherwise).
    pub fn send_attr(mut self, attr: &Attr, ttl: Duration) {
        let _ = self.send(0, &[wire::attr_out(attr, ttl).as_bytes()]);
    }

    /// Attributes as `statx` has them, birth time included.
    pub fn send_statx(mut self, attr: &Attr, ttl: Duration) {
        let _ = self.send(0, &[wire::statx_out(attr, ttl).as_bytes()]);
    }

    /// An open file or directory.
    pub fn send_open(mut self, handle: Handle, flags: OpenFlags) -> Delivery {
        self.send(0, &[wire::open_out(handle, flags).as_bytes()])
    }

    /// A new and open file; counts one lookup of it.
    pub fn send_create(
        mut self,
        entry: &LookupEntry,
        handle: Handle,
        flags: OpenFlags,
    ) -> Delivery {
        self.send(
            0,
            &[
                entry.to_wire().as_bytes(),
                wire::open_out(handle, flags).as_bytes(),
            ],
        )
    }

    /// Bytes: of a file, a symbolic link, an attribute, a list of attributes.
    pub fn send_data(mut self, data: &[u8]) {
        let _ = self.send(0, &[data]);
    }

    /// Bytes from several places, in order. At most 1023 pieces (`IOV_MAX` less the header).
    pub fn send_data_vectored(mut self, pieces: &[&[u8]]) {
        let _ = self.send(0, pieces);
    }

    /// A listing.
    pub fn send_directory(self, entries: &DirBuffer) {
        self.send_data(entries.as_bytes());
    }

    /// So many bytes were written.
    pub fn send_written(mut self, bytes: u32) {
        let _ = self.send(
            0,
            &[abi::fuse_write_out {
                size: bytes,
                padding: 0,
            }
            .as_bytes()],
        );
    }

    /// So many bytes were copied; the old form of the request holds at most `u32::MAX`.
    pub fn send_copied(mut self, bytes: u64) {
        if self.opcode == opcode::FUSE_COPY_FILE_RANGE_64 {
            let _ = self.send(
                0,
                &[abi::fuse_copy_file_range_out {
                    bytes_copied: bytes,
                }
                .as_bytes()],
            );
        } else {
            self.send_written(u32::try_from(bytes).unwrap_or(u32::MAX));
        }
    }

    /// Space and counts.
    pub fn send_statfs(mut self, statfs: &StatfsReply) {
        let _ = self.send(0, &[statfs.to_wire().as_bytes()]);
    }

    /// The size an attribute or a list of them has.
    pub fn send_xattr_size(mut self, bytes: u32) {
        let _ = self.send(
            0,
            &[abi::fuse_getxattr_out {
                size: bytes,
                padding: 0,
            }
            .as_bytes()],
        );
    }

    /// The offset found.
    pub fn send_offset(mut self, offset: u64) {
        let _ = self.send(0, &[abi::fuse_lseek_out { offset }.as_bytes()]);
    }

    /// The lock in the way, or an unlock when there is none.
    pub fn send_lock(mut self, lock: &FileLock) {
        let _ = self.send(0, &[wire::lk_out(lock).as_bytes()]);
    }

    /// The device block.
    pub fn send_block(mut self, block: u64) {
        let _ = self.send(0, &[abi::fuse_bmap_out { block }.as_bytes()]);
    }

    /// The ioctl's return value and what it wrote.
    pub fn send_ioctl(mut self, result: i32, output: &[u8]) {
        let head = abi::fuse_ioctl_out {
            result,
            ..Default::default()
        };
        let _ = self.send(0, &[head.as_bytes(), output]);
    }

    /// The events that are ready.
    pub fn send_events(mut self, events: u32) {
        let _ = self.send(
            0,
            &[abi::fuse_poll_out {
                revents: events,
                padding: 0,
            }
            .as_bytes()],
        );
    }

    /// Returns what was negotiated.
    pub(crate) fn send_init(mut self, out: &abi::fuse_init_out) -> Delivery {
        self.send(0, &[out.as_bytes()])
    }

    fn send(&mut self, error: i32, parts: &[&[u8]]) -> Delivery {
        self.due = false;
        if !takes_answer(self.opcode) {
            return Delivery::Lost;
        }
        if let Some(watcher) = self.watcher.take() {
            let errno = (error != 0).then(|| Errno::from_raw_os_error(-error));
            watcher(ReplyOutcome {
                errno,
                value: wire::outcome_value(self.opcode, parts),
            });
        }
        match send_message(&*self.outlet, self.unique, error, parts) {
            Ok(()) => return Delivery::Delivered,
            Err(Errno::NOENT | Errno::NODEV | Errno::CONNABORTED) => {}
            Err(errno) => log::error!(
                "the answer to operation {} was refused: {errno}",
                self.opcode
            ),
        }
        Delivery::Lost
    }
}

impl Drop for ReplySender {
    fn drop(&mut self) {
        if self.due {
            log::error!("operation {} was dropped without an answer", self.opcode);
            let _ = self.send(-Errno::IO.raw_os_error(), &[]);
        }
    }
}

/// Returns whether the kernel accepts an answer; it may go without one for an interrupt.
pub(crate) fn takes_answer(opcode: u32) -> bool {
    !matches!(
        opcode,
        opcode::FUSE_FORGET | opcode::FUSE_BATCH_FORGET | opcode::FUSE_NOTIFY_REPLY
    )
}

/// Puts the header before `parts` and sends the message.
pub(crate) fn send_message(
    outlet: &dyn MessageSink,
    unique: u64,
    error: i32,
    parts: &[&[u8]],
) -> Result<(), Errno> {
    let length = size_of::<fuse_out_header>() + parts.iter().map(|part| part.len()).sum::<usize>();
    let len = u32::try_from(length).map_err(|_| Errno::TOOBIG)?;
    let header = fuse_out_header { len, error, unique };
    let slices = std::iter::once(header.as_bytes())
        .chain(parts.iter().copied())
        .map(IoSlice::new)
        .collect::<Vec<_>>();
    outlet.send(&slices)
}

/// Sends a notification that says it is `missing` bytes longer than `body`, and lets the other side
/// find out that they cannot be read.
pub(crate) fn send_truncated(
    transport: &dyn Transport,
    code: i32,
    body: &[u8],
    missing: u32,
) -> Result<(), Errno> {
    let length = size_of::<fuse_out_header>() + body.len();
    let len = u32::try_from(length)
        .ok()
        .and_then(|len| len.checked_add(missing))
        .ok_or(Errno::TOOBIG)?;
    let header = fuse_out_header {
        len,
        error: code,
        unique: 0,
    };
    transport.send_truncated(&[header.as_bytes(), body].concat(), missing as usize)
}

#[cfg(test)]
mod tests;
