//! From an operation code and a body to a [`FuseOperation`]. A body longer than its operation
//! needs is accepted: newer kernels append fields.

use super::operation::{
    FileLock, FixedRecords, ForgetRecord, InitRequest, IoctlRequest, LockKind, LockRequest,
    RemoveMapping,
};
use super::{
    BodyReader, DecodeError, FuseOperation, Handle, LockOwner, NodeId, RequestHeader,
    SetattrRequest, TimeSet, Unique,
};
use crate::abi::{self, opcode::*};
use crate::session::InitFlags;
use rustix::fs::{Access, FallocateFlags, OFlags, RenameFlags, XattrFlags};
use std::mem::size_of;
use teal_types::{FileType, Timestamp};

type Decoded<'a> = Result<FuseOperation<'a>, DecodeError>;

impl<'a> FuseOperation<'a> {
    pub(super) fn decode(header: &RequestHeader, body: &'a [u8], flags: InitFlags) -> Decoded<'a> {
        let b = &mut BodyReader::new(header.opcode, body);
        // In the order of the codes. Fields are read in the order in which they lie in the body,
        // which is the order in which Rust evaluates the initialisers below.
        Ok(match header.opcode {
            FUSE_LOOKUP => Self::Lookup {
                name: b.take_name()?,
            },
            FUSE_FORGET => Self::Forget {
                lookups: b.take_struct::<abi::fuse_forget_in>()?.nlookup,
            },
            FUSE_BATCH_FORGET => Self::BatchForget(decode_forgets(b)?),
            FUSE_GETATTR => decode_getattr(b)?,
            FUSE_SETATTR => Self::Setattr(decode_setattr(b)?),
            FUSE_READLINK => Self::Readlink,
            FUSE_SYMLINK => Self::Symlink {
                name: b.take_name()?,
                target: b.take_name()?,
            },
            FUSE_MKNOD => decode_mknod(b)?,
            FUSE_MKDIR => decode_mkdir(b)?,
            FUSE_UNLINK => Self::Unlink {
                name: b.take_name()?,
            },
            FUSE_RMDIR => Self::Rmdir {
                name: b.take_name()?,
            },
            // The older form is the newer one without flags.
            FUSE_RENAME => decode_rename(b.take_struct::<abi::fuse_rename_in>()?.newdir, 0, b)?,
            FUSE_RENAME2 => b
                .take_struct::<abi::fuse_rename2_in>()
                .and_then(|r| decode_rename(r.newdir, r.flags, b))?,
            FUSE_LINK => Self::Link {
                target: NodeId::new(b.take_struct::<abi::fuse_link_in>()?.oldnodeid),
                name: b.take_name()?,
            },
            FUSE_OPEN => decode_open(b)?,
            FUSE_READ => decode_read(b)?,
            FUSE_WRITE => decode_write(b)?,
            FUSE_STATFS => Self::Statfs,
            FUSE_RELEASE => decode_release(b)?,
            FUSE_FSYNC => {
                decode_fsync(b).map(|(handle, datasync)| Self::Fsync { handle, datasync })?
            }
            FUSE_SETXATTR => decode_setxattr(b, flags)?,
            FUSE_GETXATTR => Self::Getxattr {
                size: b.take_struct::<abi::fuse_getxattr_in>()?.size,
                name: b.take_name()?,
            },
            FUSE_LISTXATTR => Self::Listxattr {
                size: b.take_struct::<abi::fuse_getxattr_in>()?.size,
            },
            FUSE_REMOVEXATTR => Self::Removexattr {
                name: b.take_name()?,
            },
            FUSE_FLUSH => decode_flush(b)?,
            FUSE_INIT => Self::Init(decode_init(b)?),
            FUSE_OPENDIR => Self::Opendir {
                flags: open_flags(b.take_struct::<abi::fuse_open_in>()?.flags),
            },
            FUSE_READDIR | FUSE_READDIRPLUS => {
                decode_readdir(b, header.opcode == FUSE_READDIRPLUS)?
            }
            FUSE_RELEASEDIR => decode_releasedir(b)?,
            FUSE_FSYNCDIR => {
                decode_fsync(b).map(|(handle, datasync)| Self::Fsyncdir { handle, datasync })?
            }
            FUSE_GETLK => Self::Getlk(decode_lock(b)?),
            FUSE_SETLK => Self::Setlk {
                request: decode_lock(b)?,
                wait: false,
            },
            FUSE_SETLKW => Self::Setlk {
                request: decode_lock(b)?,
                wait: true,
            },
            FUSE_ACCESS => Self::Access {
                mask: Access::from_bits_retain(b.take_struct::<abi::fuse_access_in>()?.mask),
            },
            FUSE_CREATE => decode_create(b)?,
            FUSE_INTERRUPT => Self::Interrupt {
                unique: Unique::new(b.take_struct::<abi::fuse_interrupt_in>()?.unique),
            },
            FUSE_DESTROY => Self::Destroy,
            FUSE_SYNCFS => Self::Syncfs,
            FUSE_TMPFILE => decode_tmpfile(b)?,
            // The others are seldom sent; a function of their own keeps this one on a screen.
            _ => return decode_rare(header.opcode, b),
        })
    }
}

/// Decodes the operations that are seldom sent.
fn decode_rare<'a>(opcode: u32, b: &mut BodyReader<'a>) -> Decoded<'a> {
    Ok(match opcode {
        FUSE_BMAP => {
            let r: abi::fuse_bmap_in = b.take_struct()?;
            FuseOperation::Bmap {
                block: r.block,
                block_size: r.blocksize,
            }
        }
        FUSE_IOCTL => decode_ioctl(b)?,
        FUSE_POLL => decode_poll(b)?,
        FUSE_NOTIFY_REPLY => {
            let r: abi::fuse_notify_retrieve_in = b.take_struct()?;
            FuseOperation::NotifyReply {
                offset: r.offset,
                data: b.take_data(r.size)?,
            }
        }
        FUSE_FALLOCATE => decode_fallocate(b)?,
        FUSE_LSEEK => {
            let r: abi::fuse_lseek_in = b.take_struct()?;
            FuseOperation::Lseek {
                handle: Handle::new(r.fh),
                offset: r.offset,
                whence: r.whence,
            }
        }
        FUSE_COPY_FILE_RANGE | FUSE_COPY_FILE_RANGE_64 => decode_copy_file_range(b)?,
        FUSE_SETUPMAPPING => decode_setup_mapping(b)?,
        FUSE_REMOVEMAPPING => {
            let count = b.take_struct::<abi::fuse_removemapping_in>()?.count;
            FuseOperation::RemoveMapping(FixedRecords::new(take_records::<RemoveMapping>(
                b, count,
            )?))
        }
        FUSE_STATX => decode_statx(b)?,
        // Of a newer kernel: the handler answers `ENOSYS`, and the kernel stops sending it.
        unknown => FuseOperation::Unknown(unknown),
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

fn decode_forgets<'a>(
    b: &mut BodyReader<'a>,
) -> Result<FixedRecords<'a, ForgetRecord>, DecodeError> {
    let count = b.take_struct::<abi::fuse_batch_forget_in>()?.count;
    Ok(FixedRecords::new(take_records::<ForgetRecord>(b, count)?))
}

fn decode_getattr<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
    let r: abi::fuse_getattr_in = b.take_struct()?;
    Ok(FuseOperation::Getattr {
        handle: (r.getattr_flags & abi::FUSE_GETATTR_FH != 0).then(|| Handle::new(r.fh)),
    })
}

fn decode_setattr(b: &mut BodyReader<'_>) -> Result<SetattrRequest, DecodeError> {
    let r: abi::fuse_setattr_in = b.take_struct()?;
    let has = |bit| r.valid & bit != 0;
    // Two bits for each time: one sets it, the other sets it to the present time.
    let time = |set, now, secs: u64, nanos| {
        has(set).then(|| {
            if has(now) {
                TimeSet::Now
            } else {
                TimeSet::At(Timestamp::new(secs.cast_signed(), nanos))
            }
        })
    };
    Ok(SetattrRequest {
        handle: has(abi::FATTR_FH).then(|| Handle::new(r.fh)),
        perm: has(abi::FATTR_MODE).then(|| permission_bits(r.mode)),
        uid: has(abi::FATTR_UID).then_some(r.uid),
        gid: has(abi::FATTR_GID).then_some(r.gid),
        size: has(abi::FATTR_SIZE).then_some(r.size),
        atime: time(abi::FATTR_ATIME, abi::FATTR_ATIME_NOW, r.atime, r.atimensec),
        mtime: time(abi::FATTR_MTIME, abi::FATTR_MTIME_NOW, r.mtime, r.mtimensec),
        ctime: has(abi::FATTR_CTIME).then(|| Timestamp::new(r.ctime.cast_signed(), r.ctimensec)),
        lock_owner: has(abi::FATTR_LOCKOWNER).then(|| LockOwner::new(r.lock_owner)),
        kill_suidgid: has(abi::FATTR_KILL_SUIDGID),
    })
}

fn decode_mknod<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
    let r: abi::fuse_mknod_in = b.take_struct()?;
    // The type is in the upper four bits of the mode.
    let kind = u8::try_from(r.mode >> 12)
        .ok()
        .and_then(FileType::from_code)
        .ok_or_else(|| b.undefined_value("mode"))?;
    Ok(FuseOperation::Mknod {
        name: b.take_name()?,
        kind,
        perm: permission_bits(r.mode),
        rdev: r.rdev,
        umask: r.umask,
    })
}

fn decode_mkdir<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
    let r: abi::fuse_mkdir_in = b.take_struct()?;
    Ok(FuseOperation::Mkdir {
        name: b.take_name()?,
        perm: permission_bits(r.mode),
        umask: r.umask,
    })
}

fn decode_rename<'a>(new_parent: u64, flags: u32, b: &mut BodyReader<'a>) -> Decoded<'a> {
    Ok(FuseOperation::Rename {
        name: b.take_name()?,
        new_parent: NodeId::new(new_parent),
        new_name: b.take_name()?,
        flags: RenameFlags::from_bits_retain(flags),
    })
}

fn decode_open<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
    let r: abi::fuse_open_in = b.take_struct()?;
    Ok(FuseOperation::Open {
        flags: open_flags(r.flags),
        kill_suidgid: r.open_flags & abi::FUSE_OPEN_KILL_SUIDGID != 0,
    })
}

fn decode_create<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
    let r: abi::fuse_create_in = b.take_struct()?;
    Ok(FuseOperation::Create {
        name: b.take_name()?,
        flags: open_flags(r.flags),
        perm: permission_bits(r.mode),
        umask: r.umask,
        kill_suidgid: r.open_flags & abi::FUSE_OPEN_KILL_SUIDGID != 0,
    })
}

fn decode_tmpfile<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
    let r: abi::fuse_create_in = b.take_struct()?;
    let kill_suidgid = r.open_flags & abi::FUSE_OPEN_KILL_SUIDGID != 0;
    Ok(FuseOperation::Tmpfile {
        flags: open_flags(r.flags),
        perm: permission_bits(r.mode),
        umask: r.umask,
        kill_suidgid,
    })
}

fn decode_read<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
    let r: abi::fuse_read_in = b.take_struct()?;
    Ok(FuseOperation::Read {
        handle: Handle::new(r.fh),
        offset: r.offset,
        size: r.size,
        flags: open_flags(r.flags),
        lock_owner: (r.read_flags & abi::FUSE_READ_LOCKOWNER != 0)
            .then(|| LockOwner::new(r.lock_owner)),
    })
}

fn decode_write<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
    let r: abi::fuse_write_in = b.take_struct()?;
    Ok(FuseOperation::Write {
        handle: Handle::new(r.fh),
        offset: r.offset,
        data: b.take_data(r.size)?,
        flags: open_flags(r.flags),
        lock_owner: (r.write_flags & abi::FUSE_WRITE_LOCKOWNER != 0)
            .then(|| LockOwner::new(r.lock_owner)),
        cached: r.write_flags & abi::FUSE_WRITE_CACHE != 0,
        kill_suidgid: r.write_flags & abi::FUSE_WRITE_KILL_SUIDGID != 0,
    })
}

fn decode_release<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
    let r: abi::fuse_release_in = b.take_struct()?;
    Ok(FuseOperation::Release {
        handle: Handle::new(r.fh),
        flags: open_flags(r.flags),
        lock_owner: LockOwner::new(r.lock_owner),
        flush: r.release_flags & abi::FUSE_RELEASE_FLUSH != 0,
        flock_unlock: r.release_flags & abi::FUSE_RELEASE_FLOCK_UNLOCK != 0,
    })
}

fn decode_releasedir<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
    let r: abi::fuse_release_in = b.take_struct()?;
    Ok(FuseOperation::Releasedir {
        handle: Handle::new(r.fh),
        flags: open_flags(r.flags),
    })
}

fn decode_fsync(b: &mut BodyReader<'_>) -> Result<(Handle, bool), DecodeError> {
    let r: abi::fuse_fsync_in = b.take_struct()?;
    Ok((
        Handle::new(r.fh),
        r.fsync_flags & abi::FUSE_FSYNC_FDATASYNC != 0,
    ))
}

fn decode_flush<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
    let r: abi::fuse_flush_in = b.take_struct()?;
    Ok(FuseOperation::Flush {
        handle: Handle::new(r.fh),
        lock_owner: LockOwner::new(r.lock_owner),
    })
}

fn decode_setxattr<'a>(b: &mut BodyReader<'a>, negotiated: InitFlags) -> Decoded<'a> {
    let [size, flags]: [u32; 2] = b.take_struct()?;
    let extended = negotiated.contains(InitFlags::SETXATTR_EXT);
    // The struct grew by two words when the long form was negotiated.
    let [more, _padding]: [u32; 2] = if extended { b.take_struct()? } else { [0; 2] };
    Ok(FuseOperation::Setxattr {
        name: b.take_name()?,
        value: b.take_data(size)?,
        flags: XattrFlags::from_bits_retain(flags),
        kill_sgid: more & abi::FUSE_SETXATTR_ACL_KILL_SGID != 0,
    })
}

fn decode_init(b: &mut BodyReader<'_>) -> Result<InitRequest, DecodeError> {
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
    Ok(InitRequest {
        major,
        minor,
        max_readahead,
        flags: InitFlags::from_words(low, high),
    })
}

fn decode_readdir<'a>(b: &mut BodyReader<'a>, plus: bool) -> Decoded<'a> {
    let r: abi::fuse_read_in = b.take_struct()?;
    // Both forms of the request have the layout of a read: its offset is the cookie.
    let (handle, cookie, size) = (Handle::new(r.fh), r.offset, r.size);
    Ok(if plus {
        FuseOperation::Readdirplus {
            handle,
            cookie,
            size,
        }
    } else {
        FuseOperation::Readdir {
            handle,
            cookie,
            size,
        }
    })
}

fn decode_lock(b: &mut BodyReader<'_>) -> Result<LockRequest, DecodeError> {
    let r: abi::fuse_lk_in = b.take_struct()?;
    // `F_RDLCK`, `F_WRLCK` and `F_UNLCK`.
    let kind = match r.lk.type_ {
        0 => LockKind::Read,
        1 => LockKind::Write,
        2 => LockKind::Unlock,
        _ => return Err(b.undefined_value("type")),
    };
    Ok(LockRequest {
        handle: Handle::new(r.fh),
        owner: LockOwner::new(r.owner),
        lock: FileLock {
            start: r.lk.start,
            end: r.lk.end,
            kind,
            pid: r.lk.pid,
        },
        flock: r.lk_flags & abi::FUSE_LK_FLOCK != 0,
    })
}

fn decode_ioctl<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
    let r: abi::fuse_ioctl_in = b.take_struct()?;
    Ok(FuseOperation::Ioctl(IoctlRequest {
        handle: Handle::new(r.fh),
        flags: r.flags,
        command: r.cmd,
        argument: r.arg,
        input: b.take_data(r.in_size)?,
        output_size: r.out_size,
    }))
}

fn decode_poll<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
    let r: abi::fuse_poll_in = b.take_struct()?;
    Ok(FuseOperation::Poll {
        handle: Handle::new(r.fh),
        wakeup: r.kh,
        events: r.events,
        schedule_notify: r.flags & abi::FUSE_POLL_SCHEDULE_NOTIFY != 0,
    })
}

fn decode_fallocate<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
    let r: abi::fuse_fallocate_in = b.take_struct()?;
    let mode = FallocateFlags::from_bits_retain(r.mode);
    Ok(FuseOperation::Fallocate {
        handle: Handle::new(r.fh),
        offset: r.offset,
        length: r.length,
        mode,
    })
}

fn decode_copy_file_range<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
    let r: abi::fuse_copy_file_range_in = b.take_struct()?;
    Ok(FuseOperation::CopyFileRange {
        handle: Handle::new(r.fh_in),
        offset: r.off_in,
        to_node: NodeId::new(r.nodeid_out),
        to_handle: Handle::new(r.fh_out),
        to_offset: r.off_out,
        length: r.len,
        flags: r.flags,
    })
}

fn decode_setup_mapping<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
    let r: abi::fuse_setupmapping_in = b.take_struct()?;
    Ok(FuseOperation::SetupMapping {
        handle: Handle::new(r.fh),
        file_offset: r.foffset,
        length: r.len,
        flags: r.flags,
        window_offset: r.moffset,
    })
}

fn decode_statx<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
    let r: abi::fuse_statx_in = b.take_struct()?;
    let handle = (r.getattr_flags & abi::FUSE_GETATTR_FH != 0).then(|| Handle::new(r.fh));
    Ok(FuseOperation::Statx {
        handle,
        flags: r.sx_flags,
        mask: r.sx_mask,
    })
}
