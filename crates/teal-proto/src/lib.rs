//! What a client and the server say to each other, and its bytes. They meet only here.
//!
//! # Guarantees
//! 1. *Versioned*: every message starts with [`PROTOCOL`]; another number is
//!    [`CodecError::Version`], named in words.
//! 2. *Bounded*: a message has at most [`MESSAGE_MAX`] bytes, and decoding allocates no more than a
//!    small multiple of what has arrived.
//! 3. *Distrust*: bytes that are no message are an error, never a panic; names are checked as they
//!    are decoded.
//! 4. *One reader*: a client talks in [`Request`]s and each has one [`Reply`]; the server never
//!    speaks first (a long poll carries what happens elsewhere).
//!
//! # Bytes
//! A message is the protocol number (two bytes, little-endian) and the message in the encoding of
//! postcard 1: variants by their order, as varints; integers as varints; byte strings and lists
//! with their length before them; options with one byte before them. The order of variants and
//! fields is therefore part of the protocol; `docs/protocol.md` lists them and a test pins the
//! bytes.

mod batch;
mod codec;
mod conflict_name;
mod limits;
mod reply;
mod request;

pub use batch::{batch_digest, decode_ops, encode_ops};
pub use codec::{CodecError, PROTOCOL, decode_reply, decode_request, encode_reply, encode_request};
pub use conflict_name::conflict_name;
pub use limits::*;
pub use reply::{
    ConflictKind, ConflictNote, ContentAnswer, DeviceNote, DirectoryListing, HistoryVerdict,
    PulledChanges, PulledObject, RefusalCode, RefusalReply, ReplyPiece, ServerReply, VersionNote,
    Welcome,
};
pub use request::{ClientRequest, DeviceRequest, Hello, REQUEST_KINDS, WantedRange};
