//! Structs and constants of the kernel header `linux/fuse.h`, protocol 7.45.
//!
//! # How
//! 1. The crate `fuse-abi` holds the layouts up to 7.40, generated from the header; names are the
//!    kernel's. What 7.41 to 7.45 added or changed is defined here and shadows the older form.
//! 2. Operation codes are constants instead of that crate's enum: the kernel may send any number.
//! 3. Sizes are pinned by a test, since the kernel checks them.

#![allow(
    missing_docs,
    non_camel_case_types,
    reason = "names and meanings are those of the kernel's header"
)]

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub mod opcode;

pub use fuse_abi::linux::*;

/// Minor version of the protocol spoken here.
pub const FUSE_KERNEL_MINOR_VERSION: u32 = 45;

/// 7.41: idmapped mounts.
pub const FUSE_ALLOW_IDMAP: u64 = 1 << 40;
/// 7.42: requests over `io_uring`.
pub const FUSE_OVER_IO_URING: u64 = 1 << 41;
/// 7.43: the kernel may abort requests that take too long.
pub const FUSE_REQUEST_TIMEOUT: u64 = 1 << 42;

/// 7.44: invalidates all entries at once.
pub const FUSE_NOTIFY_INC_EPOCH: u32 = 8;
/// 7.45: asks the kernel to drop unused inodes.
pub const FUSE_NOTIFY_PRUNE: u32 = 9;

/// The `INIT` reply; 7.43 took `request_timeout` out of the unused tail.
#[repr(C)]
#[derive(
    Debug, Default, Copy, Clone, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct fuse_init_out {
    pub major: u32,
    pub minor: u32,
    pub max_readahead: u32,
    pub flags: u32,
    pub max_background: u16,
    pub congestion_threshold: u16,
    pub max_write: u32,
    pub time_gran: u32,
    pub max_pages: u16,
    pub map_alignment: u16,
    pub flags2: u32,
    pub max_stack_depth: u32,
    pub request_timeout: u16,
    pub unused: [u16; 11],
}

/// 7.45: the reply to [`opcode::FUSE_COPY_FILE_RANGE_64`].
#[repr(C)]
#[derive(
    Debug, Default, Copy, Clone, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct fuse_copy_file_range_out {
    pub bytes_copied: u64,
}

/// 7.45: the head of [`FUSE_NOTIFY_PRUNE`]; `count` node ids follow.
#[repr(C)]
#[derive(
    Debug, Default, Copy, Clone, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct fuse_notify_prune_out {
    pub count: u32,
    pub padding: u32,
    pub spare: u64,
}

/// 7.42: gives the kernel the memory of an entry and asks for the first request (`enum
/// fuse_uring_cmd`).
pub const FUSE_IO_URING_CMD_REGISTER: u32 = 1;
/// 7.42: answers a request and asks for the next one.
pub const FUSE_IO_URING_CMD_COMMIT_AND_FETCH: u32 = 2;

/// 7.42: what both sides say of the payload.
#[repr(C)]
#[derive(
    Debug, Default, Copy, Clone, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct fuse_uring_ent_in_out {
    pub flags: u64,
    pub commit_id: u64,
    pub payload_sz: u32,
    pub padding: u32,
    pub reserved: u64,
}

/// 7.42: everything of a request or an answer but its payload.
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct fuse_uring_req_header {
    /// A [`fuse_in_header`], then the answer's [`fuse_out_header`].
    pub in_out: [u8; 128],
    /// The operation's own struct.
    pub op_in: [u8; 128],
    pub ring_ent_in_out: fuse_uring_ent_in_out,
}

/// 7.42: the argument of a command, in its submission entry.
#[repr(C)]
#[derive(
    Debug, Default, Copy, Clone, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct fuse_uring_cmd_req {
    pub flags: u64,
    pub commit_id: u64,
    pub qid: u16,
    pub padding: [u8; 6],
}

#[cfg(test)]
mod tests;
