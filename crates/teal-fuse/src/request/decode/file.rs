//! Operations on open files and directories.

use super::{Decoded, open_flags, take_records};
use crate::abi;
use crate::request::operation::{
    FileLock, FixedRecords, IoctlRequest, LockKind, LockRequest, RemoveMapping,
};
use crate::request::{BodyReader, DecodeError, FuseOperation, Handle, LockOwner, NodeId};
use rustix::fs::FallocateFlags;

pub(super) fn decode_open<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
    let r: abi::fuse_open_in = b.take_struct()?;
    Ok(FuseOperation::Open {
        flags: open_flags(r.flags),
        kill_suidgid: r.open_flags & abi::FUSE_OPEN_KILL_SUIDGID != 0,
    })
}

pub(super) fn decode_opendir<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
    let r: abi::fuse_open_in = b.take_struct()?;
    Ok(FuseOperation::Opendir {
        flags: open_flags(r.flags),
    })
}

pub(super) fn decode_read<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
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

pub(super) fn decode_write<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
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

pub(super) fn decode_release<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
    let r: abi::fuse_release_in = b.take_struct()?;
    Ok(FuseOperation::Release {
        handle: Handle::new(r.fh),
        flags: open_flags(r.flags),
        lock_owner: LockOwner::new(r.lock_owner),
        flush: r.release_flags & abi::FUSE_RELEASE_FLUSH != 0,
        flock_unlock: r.release_flags & abi::FUSE_RELEASE_FLOCK_UNLOCK != 0,
    })
}

pub(super) fn decode_releasedir<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
    let r: abi::fuse_release_in = b.take_struct()?;
    Ok(FuseOperation::Releasedir {
        handle: Handle::new(r.fh),
        flags: open_flags(r.flags),
    })
}

pub(super) fn decode_fsync<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
    let r: abi::fuse_fsync_in = b.take_struct()?;
    Ok(FuseOperation::Fsync {
        handle: Handle::new(r.fh),
        datasync: r.fsync_flags & abi::FUSE_FSYNC_FDATASYNC != 0,
    })
}

pub(super) fn decode_fsyncdir<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
    let r: abi::fuse_fsync_in = b.take_struct()?;
    Ok(FuseOperation::Fsyncdir {
        handle: Handle::new(r.fh),
        datasync: r.fsync_flags & abi::FUSE_FSYNC_FDATASYNC != 0,
    })
}

pub(super) fn decode_flush<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
    let r: abi::fuse_flush_in = b.take_struct()?;
    Ok(FuseOperation::Flush {
        handle: Handle::new(r.fh),
        lock_owner: LockOwner::new(r.lock_owner),
    })
}

pub(super) fn decode_readdir<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
    // Both forms of the request have the layout of a read: its offset is the cookie.
    let r: abi::fuse_read_in = b.take_struct()?;
    Ok(FuseOperation::Readdir {
        handle: Handle::new(r.fh),
        cookie: r.offset,
        size: r.size,
    })
}

pub(super) fn decode_readdirplus<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
    let r: abi::fuse_read_in = b.take_struct()?;
    Ok(FuseOperation::Readdirplus {
        handle: Handle::new(r.fh),
        cookie: r.offset,
        size: r.size,
    })
}

pub(super) fn decode_getlk<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
    Ok(FuseOperation::Getlk(take_lock(b)?))
}

pub(super) fn decode_setlk<'a>(b: &mut BodyReader<'a>, wait: bool) -> Decoded<'a> {
    Ok(FuseOperation::Setlk {
        request: take_lock(b)?,
        wait,
    })
}

fn take_lock(b: &mut BodyReader<'_>) -> Result<LockRequest, DecodeError> {
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

pub(super) fn decode_ioctl<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
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

pub(super) fn decode_poll<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
    let r: abi::fuse_poll_in = b.take_struct()?;
    Ok(FuseOperation::Poll {
        handle: Handle::new(r.fh),
        wakeup: r.kh,
        events: r.events,
        schedule_notify: r.flags & abi::FUSE_POLL_SCHEDULE_NOTIFY != 0,
    })
}

pub(super) fn decode_fallocate<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
    let r: abi::fuse_fallocate_in = b.take_struct()?;
    let mode = FallocateFlags::from_bits_retain(r.mode);
    Ok(FuseOperation::Fallocate {
        handle: Handle::new(r.fh),
        offset: r.offset,
        length: r.length,
        mode,
    })
}

pub(super) fn decode_lseek<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
    let r: abi::fuse_lseek_in = b.take_struct()?;
    Ok(FuseOperation::Lseek {
        handle: Handle::new(r.fh),
        offset: r.offset,
        whence: r.whence,
    })
}

pub(super) fn decode_bmap<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
    let r: abi::fuse_bmap_in = b.take_struct()?;
    Ok(FuseOperation::Bmap {
        block: r.block,
        block_size: r.blocksize,
    })
}

pub(super) fn decode_copy_file_range<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
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

pub(super) fn decode_setup_mapping<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
    let r: abi::fuse_setupmapping_in = b.take_struct()?;
    Ok(FuseOperation::SetupMapping {
        handle: Handle::new(r.fh),
        file_offset: r.foffset,
        length: r.len,
        flags: r.flags,
        window_offset: r.moffset,
    })
}

pub(super) fn decode_remove_mapping<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
    let r: abi::fuse_removemapping_in = b.take_struct()?;
    let records = take_records::<RemoveMapping>(b, r.count)?;
    Ok(FuseOperation::RemoveMapping(FixedRecords::new(records)))
}
