//! The kernel's types in those of the file system, and back.

use rustix::fs::OFlags;
use rustix::io::Errno;
use std::ops::ControlFlow;
use teal_fuse::{NodeId, RequestHeader, SetattrRequest, TimeSet};
use teal_posix::{Caller, FsError, ReadAccess, SetAttrRequest, TimeChange};
use teal_types::{Attr, ObjectNo};

pub(crate) fn to_errno(error: &FsError) -> Errno {
    Errno::from_raw_os_error(error.errno())
}

pub(crate) fn to_object(node: NodeId) -> ObjectNo {
    ObjectNo::new(node.get())
}

pub(crate) fn to_caller(header: &RequestHeader) -> Caller {
    Caller {
        uid: header.uid,
        gid: header.gid,
        pid: header.pid,
        umask: 0,
    }
}

/// Returns the caller that creates an object. The kernel leaves the umask to us (`DONT_MASK`).
pub(crate) fn to_creator(header: &RequestHeader, umask: u32) -> Caller {
    Caller {
        umask: (umask & 0o777) as u16,
        ..to_caller(header)
    }
}

/// Returns the generation of an object, made of its birth. In a copied store, a number can come to
/// mean another object, of another birth: then the kernel keeps nothing of the one before.
pub(crate) fn node_generation(attr: &Attr) -> u64 {
    if attr.object == ObjectNo::ROOT {
        return 0;
    }
    let birth = attr
        .btime
        .secs
        .cast_unsigned()
        .wrapping_mul(1_000_000_000)
        .wrapping_add(attr.btime.nanos.into());
    // NFS handles have 32 bits for a generation.
    birth & u64::from(u32::MAX >> 1)
}

/// Ends a listing when the buffer is full.
pub(crate) fn until_full(full: bool) -> ControlFlow<()> {
    if full {
        ControlFlow::Break(())
    } else {
        ControlFlow::Continue(())
    }
}

pub(crate) fn to_time_change(set: TimeSet) -> TimeChange {
    match set {
        TimeSet::Now => TimeChange::Now,
        TimeSet::At(at) => TimeChange::Set(at),
    }
}

pub(crate) fn to_setattr_request(set: &SetattrRequest) -> SetAttrRequest {
    // The kernel sends an empty change for `chown(path, -1, -1)`, and does not ask for the set-id
    // bits to be cleared as it does with other changes.
    let is_empty = set.perm.is_none()
        && set.uid.is_none()
        && set.gid.is_none()
        && set.size.is_none()
        && set.atime.is_none()
        && set.mtime.is_none()
        && set.ctime.is_none();
    SetAttrRequest {
        perm: set.perm,
        uid: set.uid,
        gid: set.gid,
        size: set.size,
        is_held: set.handle.is_some(),
        atime: set.atime.map(to_time_change),
        mtime: set.mtime.map(to_time_change),
        ctime: set.ctime,
        kill_suidgid: set.kill_suidgid || is_empty,
    }
}

/// Returns whether a read through a file with these flags counts as an access.
pub(crate) fn to_read_access(flags: OFlags) -> ReadAccess {
    if flags.contains(OFlags::NOATIME) {
        ReadAccess::Uncounted
    } else {
        ReadAccess::Counted
    }
}
