//! The interface of a connection: messages in both directions.

use rustix::io::Errno;
use std::fmt::Debug;
use std::io::IoSlice;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// A way out for answers and notifications. Used by many threads at once.
pub trait MessageSink: Debug + Send + Sync {
    /// Sends one whole message, a reply or a notification, in one piece. The first part is the
    /// header.
    ///
    /// # Errors
    /// `ENOENT` when a reply's request or a notification's object is no longer known; `ENODEV` when
    /// the connection has ended.
    fn send(&self, parts: &[IoSlice<'_>]) -> Result<(), Errno>;
}

/// A connection to the kernel, or to something that plays the kernel. Used by many threads at once.
pub trait Transport: MessageSink {
    /// Waits for a request and writes it into `buffer`; `None` when the connection has ended (the
    /// mount is gone).
    ///
    /// # Errors
    /// Returns any other error of the device; `EINVAL` when `buffer` is too small for what was
    /// negotiated.
    fn receive(&self, buffer: &mut [u8]) -> Result<Option<usize>, Errno>;

    /// Opens another channel of the same connection, for a thread of its own. A reply must go out
    /// on the channel its request came in.
    ///
    /// # Errors
    /// Fails if further channels are not allowed; the caller then shares this one.
    fn open_channel(&self) -> Result<Arc<dyn Transport>, Errno>;

    /// Sends a message that ends with `missing` unreadable bytes.
    ///
    /// # Errors
    /// `EFAULT` when the other side has taken the message up to there; otherwise as
    /// [`send`](MessageSink::send).
    fn send_truncated(&self, head: &[u8], missing: usize) -> Result<(), Errno> {
        let end = vec![0_u8; missing];
        self.send(&[IoSlice::new(head), IoSlice::new(&end)])?;
        Err(Errno::FAULT)
    }

    /// Returns the device, if its requests can come over rings as well.
    fn device_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
