//! Tells the kernel what it must forget, or remember.
//!
//! # Guarantees
//! 1. Holds no lock and needs no thread of its own; a clone works anywhere.
//! 2. Keeps no connection alive: after the session it fails with `ENODEV`.
//!
//! # Beware
//! The kernel takes an inode's or a directory's lock for most of these, and a request on the same
//! one may hold it until it is answered. So they must never be sent from inside
//! [`crate::RequestHandler::handle_request`], and never while holding a lock that a request waits
//! for: a thread of their own must send them.

use crate::abi;
use crate::request::NodeId;
use crate::session::{InitFlags, NegotiatedProtocol};
use crate::transport::Transport;
use rustix::io::Errno;
use std::sync::Weak;
use zerocopy::IntoBytes;

/// Sends notifications. Each returns whether the kernel knew the object; if not, there was nothing
/// to do.
///
/// # Errors
/// All methods: `ENODEV` when the mount is gone, `EINVAL` when the kernel does not know the
/// notification.
#[derive(Debug, Clone)]
pub struct KernelNotifier {
    transport: Weak<dyn Transport>,
    negotiated: NegotiatedProtocol,
}

impl KernelNotifier {
    pub(crate) fn new(transport: Weak<dyn Transport>, negotiated: NegotiatedProtocol) -> Self {
        Self {
            transport,
            negotiated,
        }
    }

    /// Drops the attributes of a node.
    pub fn inval_attr(&self, node: NodeId) -> Result<bool, Errno> {
        self.inval_inode(node, -1, 0)
    }

    /// Drops the attributes of a node and its cached data from `offset` on, `length` bytes or, with
    /// 0, to the end. Dirty pages of shared mappings are written back first.
    pub fn inval_data(&self, node: NodeId, offset: u64, length: u64) -> Result<bool, Errno> {
        let offset = i64::try_from(offset).map_err(|_| Errno::INVAL)?;
        let length = i64::try_from(length).map_err(|_| Errno::INVAL)?;
        self.inval_inode(node, offset, length)
    }

    fn inval_inode(&self, node: NodeId, off: i64, len: i64) -> Result<bool, Errno> {
        let out = abi::fuse_notify_inval_inode_out {
            ino: node.get(),
            off,
            len,
        };
        self.send(
            abi::fuse_notify_code::FUSE_NOTIFY_INVAL_INODE as i32,
            &[out.as_bytes()],
        )
    }

    /// Drops a name, existing or negative, with all below it.
    pub fn inval_entry(&self, parent: NodeId, name: &[u8]) -> Result<bool, Errno> {
        self.send_inval_entry(parent, name, 0)
    }

    /// Lets a name expire: the next use looks it up again, but what is open or mounted below stays.
    /// A kernel that cannot do that (before 6.2) drops the name.
    pub fn expire_entry(&self, parent: NodeId, name: &[u8]) -> Result<bool, Errno> {
        let is_offered = self.negotiated.flags.contains(InitFlags::HAS_EXPIRE_ONLY);
        let flags = if is_offered { abi::FUSE_EXPIRE_ONLY } else { 0 };
        self.send_inval_entry(parent, name, flags)
    }

    fn send_inval_entry(&self, parent: NodeId, name: &[u8], flags: u32) -> Result<bool, Errno> {
        let out = abi::fuse_notify_inval_entry_out {
            parent: parent.get(),
            namelen: wire_length(name)?,
            flags,
        };
        // The kernel wants the name to end with NUL, which its length does not count.
        self.send(
            abi::fuse_notify_code::FUSE_NOTIFY_INVAL_ENTRY as i32,
            &[out.as_bytes(), name, &[0]],
        )
    }

    /// Tells the kernel that `name`, which was `child`, was removed elsewhere; watchers (inotify)
    /// see it. Fails with `ENOTEMPTY` or `EBUSY` if the directory is not empty, or in use, in the
    /// kernel's view.
    pub fn notify_delete(&self, parent: NodeId, child: NodeId, name: &[u8]) -> Result<bool, Errno> {
        let out = abi::fuse_notify_delete_out {
            parent: parent.get(),
            child: child.get(),
            namelen: wire_length(name)?,
            padding: 0,
        };
        self.send(
            abi::fuse_notify_code::FUSE_NOTIFY_DELETE as i32,
            &[out.as_bytes(), name, &[0]],
        )
    }

    /// Puts data into the page cache, as if it had been read; a file shorter than its end grows. Of
    /// pages not cached before, only those are kept that are stored whole or up to the end of the
    /// file.
    pub fn store_data(&self, node: NodeId, offset: u64, data: &[u8]) -> Result<bool, Errno> {
        let out = abi::fuse_notify_store_out {
            nodeid: node.get(),
            offset,
            size: wire_length(data)?,
            padding: 0,
        };
        self.send(
            abi::fuse_notify_code::FUSE_NOTIFY_STORE as i32,
            &[out.as_bytes(), data],
        )
    }

    /// Raises the size that the kernel holds of a file to `size`, if it is less; its content stays
    /// as it is in the cache.
    ///
    /// The kernel has no message for this, but it raises the size before it takes the bytes of a
    /// [`store_data`](Self::store_data) that reaches further. Here it finds none to take, and says so. (Linux
    /// 2.6.36 to 6.18. A kernel in which the size came last would leave it alone.)
    pub fn raise_size(&self, node: NodeId, size: u64) -> Result<bool, Errno> {
        // One byte at the end of the file is announced and not delivered.
        let Some(offset) = size.checked_sub(1) else {
            return Ok(true);
        };
        let transport = self.transport.upgrade().ok_or(Errno::NODEV)?;
        let out = abi::fuse_notify_store_out {
            nodeid: node.get(),
            offset,
            size: 1,
            padding: 0,
        };
        let code = abi::fuse_notify_code::FUSE_NOTIFY_STORE as i32;
        // The kernel fails with `EFAULT` at the missing byte, after it has raised the size.
        match crate::reply::send_truncated(&*transport, code, out.as_bytes(), 1) {
            Ok(()) | Err(Errno::FAULT) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// Wakes the programs that poll with this `wakeup` number.
    pub fn poll_wakeup(&self, wakeup: u64) -> Result<bool, Errno> {
        let out = abi::fuse_notify_poll_wakeup_out { kh: wakeup };
        self.send(
            abi::fuse_notify_code::FUSE_NOTIFY_POLL as i32,
            &[out.as_bytes()],
        )
    }

    /// Lets every cached name expire at once (Linux 6.16).
    pub fn increment_epoch(&self) -> Result<bool, Errno> {
        self.send(abi::FUSE_NOTIFY_INC_EPOCH as i32, &[])
    }

    fn send(&self, code: i32, parts: &[&[u8]]) -> Result<bool, Errno> {
        // A notification is a message that answers no request: its number is 0, and its code is
        // where an answer has its error.
        debug_assert!(code > 0, "a notification has a code");
        let transport = self.transport.upgrade().ok_or(Errno::NODEV)?;
        match crate::reply::send_message(&*transport, 0, code, parts) {
            Ok(()) => Ok(true),
            // The kernel does not hold the object, and so has nothing to forget.
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(errno),
        }
    }
}

/// Returns a length in the form of the messages; `E2BIG` if it is beyond 32 bits.
fn wire_length(bytes: &[u8]) -> Result<u32, Errno> {
    u32::try_from(bytes.len()).map_err(|_| Errno::TOOBIG)
}

#[cfg(test)]
mod tests;
