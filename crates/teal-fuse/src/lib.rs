//! The kernel's FUSE protocol, version 7.45: transport and messages, no policy and no file-system
//! logic.
//!
//! # Guarantees
//! 1. *No panic on input*: whatever bytes a transport delivers, decoding yields an [`Operation`] or
//!    a [`DecodeError`].
//! 2. *No wedge*: every request that wants an answer gets exactly one; a [`Reply`] that is dropped,
//!    by a panic too, answers `EIO`.
//! 3. *No file system inside*: nothing here decides what an operation means; [`Serve`] does.
//! 4. *No lock across a call*: nothing of this crate is held while [`Serve::serve`] runs or a
//!    message is sent.
//!
//! # Not interruptible
//! `INTERRUPT` requests are handed to [`Serve`] like all others, but nothing here cancels a running
//! operation. A server that never cancels answers the first one with `ENOSYS`; the kernel then
//! stops sending them.
//!
//! # How
//! [`Session::mount`] mounts and answers `INIT`; [`Session::run`] reads requests on several threads
//! and calls [`Serve`]. A [`Reply`] belongs to no thread: it may be kept and answered later. A
//! [`Notifier`] tells the kernel what to forget.

pub mod abi;
mod bdi;
mod ioctl;
mod loopdev;
mod mount;
mod notify;
mod reply;
mod request;
mod ring;
mod session;
mod transport;

pub use bdi::{BdiKnob, set_bdi};
pub use loopdev::LoopDevice;
pub use mount::{
    DeviceNumber, FuseMountOptions, MountError, UnmountError, UnmountHandle, UnmountMode,
    detach_dead, is_dead, mount,
};
pub use notify::KernelNotifier;
pub use reply::{
    Delivery, DirBuffer, LookupEntry, OpenFlags, ReplyOutcome, ReplySender, ReplyWatcher,
    StatfsReply,
};
pub use request::{
    DecodeError, FileLock, FixedRecords, ForgetRecord, FuseOperation, Handle, InitRequest,
    IoctlRequest, KernelRequest, LockKind, LockOwner, LockRequest, NodeId, RemoveMapping,
    RequestHeader, SetattrRequest, TimeSet, Unique,
};
pub use session::{
    FuseSession, InitConfig, InitFlags, NegotiatedProtocol, RequestHandler, SessionError,
};
pub use transport::{
    DevFuse, MemoryKernel, MemoryTransport, MessageSink, ServerMessage, Transport, memory_pair,
};
