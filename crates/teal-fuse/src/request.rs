//! One request of the kernel: its header, and its body as a typed [`FuseOperation`] that borrows
//! from the buffer.
//!
//! # Guarantees
//! 1. Decoding never panics, whatever the bytes.
//! 2. A decoded name holds no NUL and is not empty; the data of a write is exactly as long as the
//!    request says.

mod body;
mod decode;
mod id;
mod operation;

pub use id::{Handle, LockOwner, NodeId, Unique};
pub use operation::{
    FileLock, FixedRecords, ForgetRecord, FuseOperation, InitRequest, IoctlRequest, LockKind,
    LockRequest, RemoveMapping, SetattrRequest, TimeSet,
};

use crate::abi::fuse_in_header;
use crate::session::InitFlags;
use body::BodyReader;
use zerocopy::FromBytes;

/// The caller and the subject of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestHeader {
    /// Names the request until it is answered.
    pub unique: Unique,
    /// The operation code, for logs; [`FuseOperation`] is its meaning.
    pub opcode: u32,
    /// The node the operation is about; for operations on names, the directory.
    pub node: NodeId,
    /// The caller's file-system user id.
    pub uid: u32,
    /// The caller's file-system group id.
    pub gid: u32,
    /// The caller's thread id; 0 for requests of the kernel's own.
    pub pid: u32,
}

/// A request as read from the kernel.
#[derive(Debug)]
pub struct KernelRequest<'a> {
    /// The caller and the subject.
    pub header: RequestHeader,
    /// The operation.
    pub operation: FuseOperation<'a>,
}

/// The reason for which bytes are no request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Fewer bytes than the header, or a length field that does not fit what was read.
    #[error("a message of {read} bytes whose header is incomplete or says otherwise")]
    Length {
        /// Bytes read.
        read: usize,
    },
    /// The body ends before the operation's fields do.
    #[error("the body of operation {opcode} is too short")]
    Short {
        /// The operation code.
        opcode: u32,
    },
    /// A name is empty or lacks its NUL.
    #[error("operation {opcode} carries a name that is empty or not terminated")]
    Name {
        /// The operation code.
        opcode: u32,
    },
    /// A field has a value the protocol does not define.
    #[error("operation {opcode} has an undefined value in `{field}`")]
    Value {
        /// The operation code.
        opcode: u32,
        /// The field.
        field: &'static str,
    },
}

impl RequestHeader {
    /// Splits a message into its header and its body; extensions (security contexts, groups) are
    /// left out of the body.
    ///
    /// # Errors
    /// [`DecodeError::Length`].
    pub fn split_message(message: &[u8]) -> Result<(Self, &[u8]), DecodeError> {
        let wrong = DecodeError::Length {
            read: message.len(),
        };
        let (raw, body) = fuse_in_header::read_from_prefix(message).map_err(|_| wrong)?;
        // The kernel writes one whole request at a time; anything else is not to be guessed at.
        if usize::try_from(raw.len) != Ok(message.len()) {
            return Err(wrong);
        }
        // The length of the extensions counts words of eight bytes.
        let extensions = usize::from(raw.total_extlen) * 8;
        let end = body.len().checked_sub(extensions).ok_or(wrong)?;
        let body = &body[..end];
        let header = Self {
            unique: Unique::new(raw.unique),
            opcode: raw.opcode,
            node: NodeId::new(raw.nodeid),
            uid: raw.uid,
            gid: raw.gid,
            pid: raw.pid,
        };
        Ok((header, body))
    }
}

impl<'a> KernelRequest<'a> {
    /// Decodes a whole message. `flags` are those negotiated: they decide the layout of `SETXATTR`.
    ///
    /// # Errors
    /// [`DecodeError`]; an unknown operation code is none, but [`FuseOperation::Unknown`].
    pub fn decode(message: &'a [u8], flags: InitFlags) -> Result<Self, DecodeError> {
        let (header, body) = RequestHeader::split_message(message)?;
        // The body is decoded by the code in the header, whatever the kernel offered.
        let operation = FuseOperation::decode(&header, body, flags)?;
        Ok(Self { header, operation })
    }
}

#[cfg(test)]
mod tests;
