//! The kernel's FUSE protocol, version 7.45: transport and messages, no policy and no file-system
//! logic.
//!
//! # Guarantees
//! 1. *No panic on input*: whatever bytes a transport delivers, decoding yields a [`FuseOperation`]
//!    or a [`DecodeError`].
//! 2. *No wedge*: every request that wants an answer gets exactly one; a [`ReplySender`] that is
//!    dropped, by a panic too, answers `EIO`.
//! 3. *No file system inside*: nothing here decides what an operation means; [`RequestHandler`]
//!    does.
//! 4. *No lock across a call*: nothing of this crate is held while
//!    [`RequestHandler::handle_request`] runs or a message is sent.
//!
//! # Not interruptible
//! `INTERRUPT` requests are handed to [`RequestHandler`] like all others, but nothing here cancels
//! a running operation. A server that never cancels answers the first one with `ENOSYS`; the kernel
//! then stops sending them.
//!
//! # How
//! [`FuseSession::mount`] mounts and answers `INIT`; [`FuseSession::run`] reads requests on several
//! threads and calls [`RequestHandler`]. A [`ReplySender`] belongs to no thread: it may be kept and
//! used later. A [`KernelNotifier`] tells the kernel what to forget.

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
    DeviceNumber, FuseMountOptions, GeneralMountFlags, MountError, UnmountError, UnmountHandle,
    UnmountMode, detach_dead, is_dead, mount,
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
