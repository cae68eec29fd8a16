//! Operations on attributes and extended attributes.

use super::{Decoded, permission_bits};
use crate::abi;
use crate::request::{BodyReader, FuseOperation, Handle, LockOwner, SetattrRequest, TimeSet};
use crate::session::InitFlags;
use rustix::fs::{Access, XattrFlags};
use teal_types::Timestamp;

pub(super) fn decode_getattr<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
    let r: abi::fuse_getattr_in = b.take_struct()?;
    Ok(FuseOperation::Getattr {
        handle: (r.getattr_flags & abi::FUSE_GETATTR_FH != 0).then(|| Handle::new(r.fh)),
    })
}

pub(super) fn decode_statx<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
    let r: abi::fuse_statx_in = b.take_struct()?;
    let handle = (r.getattr_flags & abi::FUSE_GETATTR_FH != 0).then(|| Handle::new(r.fh));
    Ok(FuseOperation::Statx {
        handle,
        flags: r.sx_flags,
        mask: r.sx_mask,
    })
}

pub(super) fn decode_setattr<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
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
    Ok(FuseOperation::Setattr(SetattrRequest {
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
    }))
}

pub(super) fn decode_access<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
    let r: abi::fuse_access_in = b.take_struct()?;
    Ok(FuseOperation::Access {
        mask: Access::from_bits_retain(r.mask),
    })
}

pub(super) fn decode_setxattr<'a>(b: &mut BodyReader<'a>, negotiated: InitFlags) -> Decoded<'a> {
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

pub(super) fn decode_getxattr<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
    let r: abi::fuse_getxattr_in = b.take_struct()?;
    Ok(FuseOperation::Getxattr {
        size: r.size,
        name: b.take_name()?,
    })
}

pub(super) fn decode_listxattr<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
    // The layout is that of reading one attribute, without a name.
    let r: abi::fuse_getxattr_in = b.take_struct()?;
    Ok(FuseOperation::Listxattr { size: r.size })
}

pub(super) fn decode_removexattr<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
    Ok(FuseOperation::Removexattr {
        name: b.take_name()?,
    })
}
