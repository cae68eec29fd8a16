//! The answer to one request.
//!
//! # Guarantees
//! 1. *Exactly once*: answering consumes the [`ReplySender`]; dropping it unanswered sends `EIO`,
//!    where an answer is due. Where none is accepted (forgets), nothing is ever sent.
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

/// The fate of an answer.
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

/// The answer to a request, in short, for a [`ReplyWatcher`].
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

/// Sends the answer to one request. May be kept and used later, on any thread.
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
            "ReplySender {{ unique: {unique}, opcode: {opcode}, due: {due} }}"
        )
    }
}

impl ReplySender {
    pub(crate) fn new(outlet: Arc<dyn MessageSink>, header: &RequestHeader) -> Self {
        // An interrupt may be answered, but need not be.
        let due = takes_answer(header.opcode) && header.opcode != opcode::FUSE_INTERRUPT;
        Self {
            outlet,
            unique: header.unique.get(),
            opcode: header.opcode,
            due,
            watcher: None,
        }
    }

    /// Has `watcher` called with the answer. It is never called for requests that accept none.
    #[must_use]
    pub fn with_watcher(mut self, watcher: ReplyWatcher) -> Self {
        self.watcher = Some(watcher);
        self
    }

    /// Answers that the operation failed.
    pub fn send_error(mut self, errno: Errno) {
        let _ = self.send(-errno.raw_os_error(), &[]);
    }

    /// Answers that the operation succeeded.
    pub fn send_ok(mut self) {
        let _ = self.send(0, &[]);
    }

    /// Returns whether the kernel waits for an answer. It waits for none to forgets and interrupts:
    /// their sender is simply dropped.
    pub fn is_due(&self) -> bool {
        self.due
    }

    /// Answers with the object found or made; counts one lookup of it.
    pub fn send_entry(mut self, entry: &LookupEntry) -> Delivery {
        self.send(0, &[entry.to_wire().as_bytes()])
    }

    /// Answers that there is no such name, and that the kernel may remember this for `ttl`.
    pub fn send_negative_entry(mut self, ttl: Duration) {
        let out = abi::fuse_entry_out {
            entry_valid: ttl.as_secs(),
            entry_valid_nsec: ttl.subsec_nanos(),
            ..Default::default()
        };
        let _ = self.send(0, &[out.as_bytes()]);
    }

    /// Answers with attributes, which the kernel may keep for `ttl` ([`Duration::MAX`]: until it is
    /// told otherwise).
    pub fn send_attr(mut self, attr: &Attr, ttl: Duration) {
        let _ = self.send(0, &[wire::attr_out(attr, ttl).as_bytes()]);
    }

    /// Answers with attributes as `statx` has them, birth time included.
    pub fn send_statx(mut self, attr: &Attr, ttl: Duration) {
        let _ = self.send(0, &[wire::statx_out(attr, ttl).as_bytes()]);
    }

    /// Answers with an open file or directory.
    pub fn send_open(mut self, handle: Handle, flags: OpenFlags) -> Delivery {
        self.send(0, &[wire::open_out(handle, flags).as_bytes()])
    }

    /// Answers with a new and open file; counts one lookup of it.
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

    /// Answers with bytes: of a file, a symbolic link, an attribute, a list of attributes.
    pub fn send_data(mut self, data: &[u8]) {
        let _ = self.send(0, &[data]);
    }

    /// Answers with bytes from several places, in order. At most 1023 pieces (`IOV_MAX` less the
    /// header).
    pub fn send_data_vectored(mut self, pieces: &[&[u8]]) {
        let _ = self.send(0, pieces);
    }

    /// Answers with a listing.
    pub fn send_directory(self, entries: &DirBuffer) {
        self.send_data(entries.as_bytes());
    }

    /// Answers with the number of bytes written.
    pub fn send_written(mut self, bytes: u32) {
        let out = abi::fuse_write_out {
            size: bytes,
            padding: 0,
        };
        let _ = self.send(0, &[out.as_bytes()]);
    }

    /// Answers with the number of bytes copied; the old form of the request holds at most
    /// `u32::MAX`.
    pub fn send_copied(mut self, bytes: u64) {
        if self.opcode != opcode::FUSE_COPY_FILE_RANGE_64 {
            self.send_written(u32::try_from(bytes).unwrap_or(u32::MAX));
            return;
        }
        let out = abi::fuse_copy_file_range_out {
            bytes_copied: bytes,
        };
        let _ = self.send(0, &[out.as_bytes()]);
    }

    /// Answers with space and counts.
    pub fn send_statfs(mut self, statfs: &StatfsReply) {
        let _ = self.send(0, &[statfs.to_wire().as_bytes()]);
    }

    /// Answers with the size of an attribute or of a list of attributes.
    pub fn send_xattr_size(mut self, bytes: u32) {
        let out = abi::fuse_getxattr_out {
            size: bytes,
            padding: 0,
        };
        let _ = self.send(0, &[out.as_bytes()]);
    }

    /// Answers with the offset found.
    pub fn send_offset(mut self, offset: u64) {
        let _ = self.send(0, &[abi::fuse_lseek_out { offset }.as_bytes()]);
    }

    /// Answers with the lock in the way, or with an unlock when there is none.
    pub fn send_lock(mut self, lock: &FileLock) {
        let _ = self.send(0, &[wire::lk_out(lock).as_bytes()]);
    }

    /// Answers with a block of the device.
    pub fn send_block(mut self, block: u64) {
        let _ = self.send(0, &[abi::fuse_bmap_out { block }.as_bytes()]);
    }

    /// Answers with the ioctl's return value and output.
    pub fn send_ioctl(mut self, result: i32, output: &[u8]) {
        let head = abi::fuse_ioctl_out {
            result,
            ..Default::default()
        };
        let _ = self.send(0, &[head.as_bytes(), output]);
    }

    /// Answers with the events that are ready.
    pub fn send_events(mut self, events: u32) {
        let out = abi::fuse_poll_out {
            revents: events,
            padding: 0,
        };
        let _ = self.send(0, &[out.as_bytes()]);
    }

    /// Answers `INIT` with the result of the negotiation.
    pub(crate) fn send_init(mut self, out: &abi::fuse_init_out) -> Delivery {
        self.send(0, &[out.as_bytes()])
    }

    /// Sends the answer, after the watcher was called with it. `error` is a negative number of an
    /// error, or 0.
    fn send(&mut self, error: i32, parts: &[&[u8]]) -> Delivery {
        debug_assert!(error <= 0, "an answer carries 0 or a negative errno");
        self.due = false;
        if !takes_answer(self.opcode) {
            return Delivery::Lost;
        }
        // Called before the message is sent, so that a recording has the answer before the program
        // goes on.
        if let Some(watcher) = self.watcher.take() {
            let errno = (error != 0).then(|| Errno::from_raw_os_error(-error));
            watcher(ReplyOutcome {
                errno,
                value: wire::outcome_value(self.opcode, parts),
            });
        }
        match send_message(&*self.outlet, self.unique, error, parts) {
            Ok(()) => return Delivery::Delivered,
            // The caller was killed or the mount has gone: nothing is wrong here.
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
        // Nothing else will answer, and the caller would wait for ever.
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
    let mut length = size_of::<fuse_out_header>();
    for part in parts {
        length += part.len();
    }
    let len = u32::try_from(length).map_err(|_| Errno::TOOBIG)?;
    // The parts are not copied: the kernel gathers them in one write.
    let header = fuse_out_header { len, error, unique };
    let mut slices = Vec::with_capacity(1 + parts.len());
    slices.push(IoSlice::new(header.as_bytes()));
    for part in parts {
        slices.push(IoSlice::new(part));
    }
    outlet.send(&slices)
}

/// Sends a notification whose header announces `missing` bytes more than `body`; the other side
/// finds that they cannot be read.
pub(crate) fn send_truncated(
    transport: &dyn Transport,
    code: i32,
    body: &[u8],
    missing: u32,
) -> Result<(), Errno> {
    let length = size_of::<fuse_out_header>() + body.len();
    // The announced length counts the missing bytes, too.
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
