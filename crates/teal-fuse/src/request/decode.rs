//! From an operation code and a body to a [`FuseOperation`]. A body longer than its operation
//! needs is accepted: newer kernels append fields.

mod attributes;
mod file;
mod namespace;

use self::attributes::*;
use self::file::*;
use self::namespace::*;
use super::operation::InitRequest;
use super::{BodyReader, DecodeError, FuseOperation, RequestHeader, Unique};
use crate::abi::{self, opcode::*};
use crate::session::InitFlags;
use rustix::fs::OFlags;
use std::mem::size_of;

type Decoded<'a> = Result<FuseOperation<'a>, DecodeError>;

impl<'a> FuseOperation<'a> {
    /// Decodes a body. Fields are read in the order in which they lie in it, which is the order in
    /// which Rust evaluates the initialisers of the functions below.
    pub(super) fn decode(header: &RequestHeader, body: &'a [u8], flags: InitFlags) -> Decoded<'a> {
        let b = &mut BodyReader::new(header.opcode, body);
        // In the order of the codes.
        match header.opcode {
            FUSE_LOOKUP => decode_lookup(b),
            FUSE_FORGET => decode_forget(b),
            FUSE_GETATTR => decode_getattr(b),
            FUSE_SETATTR => decode_setattr(b),
            FUSE_READLINK => Ok(Self::Readlink),
            FUSE_SYMLINK => decode_symlink(b),
            FUSE_MKNOD => decode_mknod(b),
            FUSE_MKDIR => decode_mkdir(b),
            FUSE_UNLINK => decode_unlink(b),
            FUSE_RMDIR => decode_rmdir(b),
            FUSE_RENAME => decode_rename(b),
            FUSE_LINK => decode_link(b),
            FUSE_OPEN => decode_open(b),
            FUSE_READ => decode_read(b),
            FUSE_WRITE => decode_write(b),
            FUSE_STATFS => Ok(Self::Statfs),
            FUSE_RELEASE => decode_release(b),
            FUSE_FSYNC => decode_fsync(b),
            FUSE_SETXATTR => decode_setxattr(b, flags),
            FUSE_GETXATTR => decode_getxattr(b),
            FUSE_LISTXATTR => decode_listxattr(b),
            FUSE_REMOVEXATTR => decode_removexattr(b),
            FUSE_FLUSH => decode_flush(b),
            FUSE_INIT => decode_init(b),
            FUSE_OPENDIR => decode_opendir(b),
            FUSE_READDIR => decode_readdir(b),
            FUSE_RELEASEDIR => decode_releasedir(b),
            FUSE_FSYNCDIR => decode_fsyncdir(b),
            FUSE_GETLK => decode_getlk(b),
            FUSE_SETLK => decode_setlk(b, false),
            FUSE_SETLKW => decode_setlk(b, true),
            FUSE_ACCESS => decode_access(b),
            FUSE_CREATE => decode_create(b),
            FUSE_INTERRUPT => decode_interrupt(b),
            FUSE_DESTROY => Ok(Self::Destroy),
            FUSE_BATCH_FORGET => decode_batch_forget(b),
            FUSE_READDIRPLUS => decode_readdirplus(b),
            FUSE_RENAME2 => decode_rename2(b),
            FUSE_SYNCFS => Ok(Self::Syncfs),
            FUSE_TMPFILE => decode_tmpfile(b),
            // The others are seldom sent; a function of their own keeps this one on a screen.
            _ => decode_rare(header.opcode, b),
        }
    }
}

/// Decodes the operations that are seldom sent.
fn decode_rare<'a>(opcode: u32, b: &mut BodyReader<'a>) -> Decoded<'a> {
    match opcode {
        FUSE_BMAP => decode_bmap(b),
        FUSE_IOCTL => decode_ioctl(b),
        FUSE_POLL => decode_poll(b),
        FUSE_NOTIFY_REPLY => decode_notify_reply(b),
        FUSE_FALLOCATE => decode_fallocate(b),
        FUSE_LSEEK => decode_lseek(b),
        FUSE_COPY_FILE_RANGE | FUSE_COPY_FILE_RANGE_64 => decode_copy_file_range(b),
        FUSE_SETUPMAPPING => decode_setup_mapping(b),
        FUSE_REMOVEMAPPING => decode_remove_mapping(b),
        FUSE_STATX => decode_statx(b),
        // Of a newer kernel: the handler answers `ENOSYS`, and the kernel stops sending it.
        unknown => Ok(FuseOperation::Unknown(unknown)),
    }
}

fn decode_init<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
    let [major, minor]: [u32; 2] = b.take_struct()?;
    // A kernel of another major version may follow up with anything; it is only told which version
    // is spoken here.
    let [max_readahead, low]: [u32; 2] = if major == abi::FUSE_KERNEL_VERSION {
        b.take_struct()?
    } else {
        [0; 2]
    };
    // The high word follows only if a bit of the low one says so.
    let extended = u64::from(low) & InitFlags::INIT_EXT.bits() != 0;
    let high: u32 = if extended { b.take_struct()? } else { 0 };
    Ok(FuseOperation::Init(InitRequest {
        major,
        minor,
        max_readahead,
        flags: InitFlags::from_words(low, high),
    }))
}

fn decode_interrupt<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
    let r: abi::fuse_interrupt_in = b.take_struct()?;
    Ok(FuseOperation::Interrupt {
        unique: Unique::new(r.unique),
    })
}

fn decode_notify_reply<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
    let r: abi::fuse_notify_retrieve_in = b.take_struct()?;
    Ok(FuseOperation::NotifyReply {
        offset: r.offset,
        data: b.take_data(r.size)?,
    })
}

fn open_flags(raw: u32) -> OFlags {
    OFlags::from_bits_retain(raw)
}

/// Returns the permissions of a mode: its low 12 bits.
fn permission_bits(mode: u32) -> u16 {
    (mode & 0o7777) as u16
}

/// Takes `count` records of the size of `T`.
fn take_records<'a, T>(body: &mut BodyReader<'a>, count: u32) -> Result<&'a [u8], DecodeError> {
    let length = usize::try_from(count)
        .ok()
        .and_then(|count| count.checked_mul(size_of::<T>()));
    match length {
        Some(length) => body.take_bytes(length),
        None => Err(body.undefined_value("count")),
    }
}
