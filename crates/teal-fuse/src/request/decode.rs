//! From an operation code and a body to an [`Operation`]. A body longer than its operation needs is
//! accepted: newer kernels append fields.

use super::operation::{
    Forget, InitRequest, Ioctl, Lock, LockKind, LockRequest, Records, RemoveMapping,
};
use super::{
    Body, DecodeError, Handle, Header, LockOwner, NodeId, Operation, SetAttr, TimeSet, Unique,
};
use crate::abi::{self, opcode::*};
use crate::session::InitFlags;
use rustix::fs::{Access, FallocateFlags, OFlags, RenameFlags, XattrFlags};
use std::mem::size_of;
use teal_types::{FileType, Timestamp};

type Decoded<'a> = Result<Operation<'a>, DecodeError>;

impl<'a> Operation<'a> {
    pub(super) fn decode(header: &Header, body: &'a [u8], flags: InitFlags) -> Decoded<'a> {
        let b = &mut Body::new(header.opcode, body);
        Ok(match header.opcode {
            FUSE_LOOKUP => Self::Lookup { name: b.name()? },
            FUSE_FORGET => Self::Forget {
                lookups: b.take::<abi::fuse_forget_in>()?.nlookup,
            },
            FUSE_BATCH_FORGET => Self::BatchForget(forgets(b)?),
            FUSE_GETATTR => getattr(b)?,
            FUSE_SETATTR => Self::Setattr(setattr(b)?),
            FUSE_READLINK => Self::Readlink,
            FUSE_SYMLINK => Self::Symlink {
                name: b.name()?,
                target: b.name()?,
            },
            FUSE_MKNOD => mknod(b)?,
            FUSE_MKDIR => mkdir(b)?,
            FUSE_UNLINK => Self::Unlink { name: b.name()? },
            FUSE_RMDIR => Self::Rmdir { name: b.name()? },
            FUSE_RENAME => rename(b.take::<abi::fuse_rename_in>()?.newdir, 0, b)?,
            FUSE_RENAME2 => b
                .take::<abi::fuse_rename2_in>()
                .and_then(|r| rename(r.newdir, r.flags, b))?,
            FUSE_LINK => Self::Link {
                target: NodeId::new(b.take::<abi::fuse_link_in>()?.oldnodeid),
                name: b.name()?,
            },
            FUSE_OPEN => open(b)?,
            FUSE_READ => read(b)?,
            FUSE_WRITE => write(b)?,
            FUSE_STATFS => Self::Statfs,
            FUSE_RELEASE => release(b)?,
            FUSE_FSYNC => fsync(b).map(|(handle, datasync)| Self::Fsync { handle, datasync })?,
            FUSE_SETXATTR => setxattr(b, flags)?,
            FUSE_GETXATTR => Self::Getxattr {
                size: b.take::<abi::fuse_getxattr_in>()?.size,
                name: b.name()?,
            },
            FUSE_LISTXATTR => Self::Listxattr {
                size: b.take::<abi::fuse_getxattr_in>()?.size,
            },
            FUSE_REMOVEXATTR => Self::Removexattr { name: b.name()? },
            FUSE_FLUSH => flush(b)?,
            FUSE_INIT => Self::Init(init(b)?),
            FUSE_OPENDIR => Self::Opendir {
                flags: oflags(b.take::<abi::fuse_open_in>()?.flags),
            },
            FUSE_READDIR | FUSE_READDIRPLUS => readdir(b, header.opcode == FUSE_READDIRPLUS)?,
            FUSE_RELEASEDIR => releasedir(b)?,
            FUSE_FSYNCDIR => {
                fsync(b).map(|(handle, datasync)| Self::Fsyncdir { handle, datasync })?
            }
            FUSE_GETLK => Self::Getlk(lock(b)?),
            FUSE_SETLK => Self::Setlk {
                request: lock(b)?,
                wait: false,
            },
            FUSE_SETLKW => Self::Setlk {
                request: lock(b)?,
                wait: true,
            },
            FUSE_ACCESS => Self::Access {
                mask: Access::from_bits_retain(b.take::<abi::fuse_access_in>()?.mask),
            },
            FUSE_CREATE => create(b)?,
            FUSE_INTERRUPT => Self::Interrupt {
                unique: Unique::new(b.take::<abi::fuse_interrupt_in>()?.unique),
            },
            FUSE_DESTROY => Self::Destroy,
            FUSE_SYNCFS => Self::Syncfs,
            FUSE_TMPFILE => tmpfile(b)?,
            _ => return rarely(header.opcode, b),
        })
    }
}

fn rarely<'a>(opcode: u32, b: &mut Body<'a>) -> Decoded<'a> {
    Ok(match opcode {
        FUSE_BMAP => {
            let r: abi::fuse_bmap_in = b.take()?;
            Operation::Bmap {
                block: r.block,
                block_size: r.blocksize,
            }
        }
        FUSE_IOCTL => ioctl(b)?,
        FUSE_POLL => poll(b)?,
        FUSE_NOTIFY_REPLY => {
            let r: abi::fuse_notify_retrieve_in = b.take()?;
            Operation::NotifyReply {
                offset: r.offset,
                data: b.data(r.size)?,
            }
        }
        FUSE_FALLOCATE => fallocate(b)?,
        FUSE_LSEEK => {
            let r: abi::fuse_lseek_in = b.take()?;
            Operation::Lseek {
                handle: Handle::new(r.fh),
                offset: r.offset,
                whence: r.whence,
            }
        }
        FUSE_COPY_FILE_RANGE | FUSE_COPY_FILE_RANGE_64 => copy_file_range(b)?,
        FUSE_SETUPMAPPING => setup_mapping(b)?,
        FUSE_REMOVEMAPPING => {
            let count = b.take::<abi::fuse_removemapping_in>()?.count;
            Operation::RemoveMapping(Records::new(records::<RemoveMapping>(b, count)?))
        }
        FUSE_STATX => statx(b)?,
        unknown => Operation::Unknown(unknown),
    })
}

fn oflags(raw: u32) -> OFlags {
    OFlags::from_bits_retain(raw)
}

/// The low 12 bits of a mode: what permissions are.
fn perm(mode: u32) -> u16 {
    (mode & 0o7777) as u16
}

fn records<'a, T>(b: &mut Body<'a>, count: u32) -> Result<&'a [u8], DecodeError> {
    let length = usize::try_from(count)
        .ok()
        .and_then(|n| n.checked_mul(size_of::<T>()));
    b.bytes(length.ok_or_else(|| b.value("count"))?)
}

fn forgets<'a>(b: &mut Body<'a>) -> Result<Records<'a, Forget>, DecodeError> {
    let count = b.take::<abi::fuse_batch_forget_in>()?.count;
    Ok(Records::new(records::<Forget>(b, count)?))
}

fn getattr<'a>(b: &mut Body<'a>) -> Decoded<'a> {
    let r: abi::fuse_getattr_in = b.take()?;
    Ok(Operation::Getattr {
        handle: (r.getattr_flags & abi::FUSE_GETATTR_FH != 0).then(|| Handle::new(r.fh)),
    })
}

fn setattr(b: &mut Body<'_>) -> Result<SetAttr, DecodeError> {
    let r: abi::fuse_setattr_in = b.take()?;
    let has = |bit| r.valid & bit != 0;
    let time = |set, now, secs: u64, nanos| {
        has(set).then(|| {
            if has(now) {
                TimeSet::Now
            } else {
                TimeSet::At(Timestamp::new(secs.cast_signed(), nanos))
            }
        })
    };
    Ok(SetAttr {
        handle: has(abi::FATTR_FH).then(|| Handle::new(r.fh)),
        perm: has(abi::FATTR_MODE).then(|| perm(r.mode)),
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

fn mknod<'a>(b: &mut Body<'a>) -> Decoded<'a> {
    let r: abi::fuse_mknod_in = b.take()?;
    let kind = u8::try_from(r.mode >> 12)
        .ok()
        .and_then(FileType::from_code)
        .ok_or_else(|| b.value("mode"))?;
    Ok(Operation::Mknod {
        name: b.name()?,
        kind,
        perm: perm(r.mode),
        rdev: r.rdev,
        umask: r.umask,
    })
}

fn mkdir<'a>(b: &mut Body<'a>) -> Decoded<'a> {
    let r: abi::fuse_mkdir_in = b.take()?;
    Ok(Operation::Mkdir {
        name: b.name()?,
        perm: perm(r.mode),
        umask: r.umask,
    })
}

fn rename<'a>(new_parent: u64, flags: u32, b: &mut Body<'a>) -> Decoded<'a> {
    Ok(Operation::Rename {
        name: b.name()?,
        new_parent: NodeId::new(new_parent),
        new_name: b.name()?,
        flags: RenameFlags::from_bits_retain(flags),
    })
}

fn open<'a>(b: &mut Body<'a>) -> Decoded<'a> {
    let r: abi::fuse_open_in = b.take()?;
    Ok(Operation::Open {
        flags: oflags(r.flags),
        kill_suidgid: r.open_flags & abi::FUSE_OPEN_KILL_SUIDGID != 0,
    })
}

fn create<'a>(b: &mut Body<'a>) -> Decoded<'a> {
    let r: abi::fuse_create_in = b.take()?;
    Ok(Operation::Create {
        name: b.name()?,
        flags: oflags(r.flags),
        perm: perm(r.mode),
        umask: r.umask,
        kill_suidgid: r.open_flags & abi::FUSE_OPEN_KILL_SUIDGID != 0,
    })
}

fn tmpfile<'a>(b: &mut Body<'a>) -> Decoded<'a> {
    let r: abi::fuse_create_in = b.take()?;
    let kill_suidgid = r.open_flags & abi::FUSE_OPEN_KILL_SUIDGID != 0;
    Ok(Operation::Tmpfile {
        flags: oflags(r.flags),
        perm: perm(r.mode),
        umask: r.umask,
        kill_suidgid,
    })
}

fn read<'a>(b: &mut Body<'a>) -> Decoded<'a> {
    let r: abi::fuse_read_in = b.take()?;
    Ok(Operation::Read {
        handle: Handle::new(r.fh),
        offset: r.offset,
        size: r.size,
        flags: oflags(r.flags),
        lock_owner: (r.read_flags & abi::FUSE_READ_LOCKOWNER != 0)
            .then(|| LockOwner::new(r.lock_owner)),
    })
}

fn write<'a>(b: &mut Body<'a>) -> Decoded<'a> {
    let r: abi::fuse_write_in = b.take()?;
    Ok(Operation::Write {
        handle: Handle::new(r.fh),
        offset: r.offset,
        data: b.data(r.size)?,
        flags: oflags(r.flags),
        lock_owner: (r.write_flags & abi::FUSE_WRITE_LOCKOWNER != 0)
            .then(|| LockOwner::new(r.lock_owner)),
        cached: r.write_flags & abi::FUSE_WRITE_CACHE != 0,
        kill_suidgid: r.write_flags & abi::FUSE_WRITE_KILL_SUIDGID != 0,
    })
}

fn release<'a>(b: &mut Body<'a>) -> Decoded<'a> {
    let r: abi::fuse_release_in = b.take()?;
    Ok(Operation::Release {
        handle: Handle::new(r.fh),
        flags: oflags(r.flags),
        lock_owner: LockOwner::new(r.lock_owner),
        flush: r.release_flags & abi::FUSE_RELEASE_FLUSH != 0,
        flock_unlock: r.release_flags & abi::FUSE_RELEASE_FLOCK_UNLOCK != 0,
    })
}

fn releasedir<'a>(b: &mut Body<'a>) -> Decoded<'a> {
    let r: abi::fuse_release_in = b.take()?;
    Ok(Operation::Releasedir {
        handle: Handle::new(r.fh),
        flags: oflags(r.flags),
    })
}

fn fsync(b: &mut Body<'_>) -> Result<(Handle, bool), DecodeError> {
    let r: abi::fuse_fsync_in = b.take()?;
    Ok((
        Handle::new(r.fh),
        r.fsync_flags & abi::FUSE_FSYNC_FDATASYNC != 0,
    ))
}

fn flush<'a>(b: &mut Body<'a>) -> Decoded<'a> {
    let r: abi::fuse_flush_in = b.take()?;
    Ok(Operation::Flush {
        handle: Handle::new(r.fh),
        lock_owner: LockOwner::new(r.lock_owner),
    })
}

fn setxattr<'a>(b: &mut Body<'a>, negotiated: InitFlags) -> Decoded<'a> {
    let [size, flags]: [u32; 2] = b.take()?;
    let extended = negotiated.contains(InitFlags::SETXATTR_EXT);
    let [more, _padding]: [u32; 2] = if extended { b.take()? } else { [0; 2] };
    Ok(Operation::Setxattr {
        name: b.name()?,
        value: b.data(size)?,
        flags: XattrFlags::from_bits_retain(flags),
        kill_sgid: more & abi::FUSE_SETXATTR_ACL_KILL_SGID != 0,
    })
}

fn init(b: &mut Body<'_>) -> Result<InitRequest, DecodeError> {
    let [major, minor]: [u32; 2] = b.take()?;
    // A kernel of another major version may follow up with anything; it is only told which version
    // is spoken here.
    let [max_readahead, low]: [u32; 2] = if major == abi::FUSE_KERNEL_VERSION {
        b.take()?
    } else {
        [0; 2]
    };
    let extended = u64::from(low) & InitFlags::INIT_EXT.bits() != 0;
    let high: u32 = if extended { b.take()? } else { 0 };
    Ok(InitRequest {
        major,
        minor,
        max_readahead,
        flags: InitFlags::from_words(low, high),
    })
}

fn readdir<'a>(b: &mut Body<'a>, plus: bool) -> Decoded<'a> {
    let r: abi::fuse_read_in = b.take()?;
    let (handle, cookie, size) = (Handle::new(r.fh), r.offset, r.size);
    Ok(if plus {
        Operation::Readdirplus {
            handle,
            cookie,
            size,
        }
    } else {
        Operation::Readdir {
            handle,
            cookie,
            size,
        }
    })
}

fn lock(b: &mut Body<'_>) -> Result<LockRequest, DecodeError> {
    let r: abi::fuse_lk_in = b.take()?;
    let kind = match r.lk.type_ {
        0 => LockKind::Read,
        1 => LockKind::Write,
        2 => LockKind::Unlock,
        _ => return Err(b.value("type")),
    };
    Ok(LockRequest {
        handle: Handle::new(r.fh),
        owner: LockOwner::new(r.owner),
        lock: Lock {
            start: r.lk.start,
            end: r.lk.end,
            kind,
            pid: r.lk.pid,
        },
        flock: r.lk_flags & abi::FUSE_LK_FLOCK != 0,
    })
}

fn ioctl<'a>(b: &mut Body<'a>) -> Decoded<'a> {
    let r: abi::fuse_ioctl_in = b.take()?;
    Ok(Operation::Ioctl(Ioctl {
        handle: Handle::new(r.fh),
        flags: r.flags,
        command: r.cmd,
        argument: r.arg,
        input: b.data(r.in_size)?,
        output_size: r.out_size,
    }))
}

fn poll<'a>(b: &mut Body<'a>) -> Decoded<'a> {
    let r: abi::fuse_poll_in = b.take()?;
    Ok(Operation::Poll {
        handle: Handle::new(r.fh),
        wakeup: r.kh,
        events: r.events,
        schedule_notify: r.flags & abi::FUSE_POLL_SCHEDULE_NOTIFY != 0,
    })
}

fn fallocate<'a>(b: &mut Body<'a>) -> Decoded<'a> {
    let r: abi::fuse_fallocate_in = b.take()?;
    let mode = FallocateFlags::from_bits_retain(r.mode);
    Ok(Operation::Fallocate {
        handle: Handle::new(r.fh),
        offset: r.offset,
        length: r.length,
        mode,
    })
}

fn copy_file_range<'a>(b: &mut Body<'a>) -> Decoded<'a> {
    let r: abi::fuse_copy_file_range_in = b.take()?;
    Ok(Operation::CopyFileRange {
        handle: Handle::new(r.fh_in),
        offset: r.off_in,
        to_node: NodeId::new(r.nodeid_out),
        to_handle: Handle::new(r.fh_out),
        to_offset: r.off_out,
        length: r.len,
        flags: r.flags,
    })
}

fn setup_mapping<'a>(b: &mut Body<'a>) -> Decoded<'a> {
    let r: abi::fuse_setupmapping_in = b.take()?;
    Ok(Operation::SetupMapping {
        handle: Handle::new(r.fh),
        file_offset: r.foffset,
        length: r.len,
        flags: r.flags,
        window_offset: r.moffset,
    })
}

fn statx<'a>(b: &mut Body<'a>) -> Decoded<'a> {
    let r: abi::fuse_statx_in = b.take()?;
    let handle = (r.getattr_flags & abi::FUSE_GETATTR_FH != 0).then(|| Handle::new(r.fh));
    Ok(Operation::Statx {
        handle,
        flags: r.sx_flags,
        mask: r.sx_mask,
    })
}
