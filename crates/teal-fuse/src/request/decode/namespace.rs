//! Operations on names: lookups, and what makes, moves and removes entries of directories.

use super::{Decoded, open_flags, permission_bits, take_records};
use crate::abi;
use crate::request::operation::{FixedRecords, ForgetRecord};
use crate::request::{BodyReader, FuseOperation, NodeId};
use rustix::fs::RenameFlags;
use teal_types::FileType;

pub(super) fn decode_lookup<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
    Ok(FuseOperation::Lookup {
        name: b.take_name()?,
    })
}

pub(super) fn decode_forget<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
    let r: abi::fuse_forget_in = b.take_struct()?;
    Ok(FuseOperation::Forget { lookups: r.nlookup })
}

pub(super) fn decode_batch_forget<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
    let r: abi::fuse_batch_forget_in = b.take_struct()?;
    let records = take_records::<ForgetRecord>(b, r.count)?;
    Ok(FuseOperation::BatchForget(FixedRecords::new(records)))
}

pub(super) fn decode_symlink<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
    Ok(FuseOperation::Symlink {
        name: b.take_name()?,
        target: b.take_name()?,
    })
}

pub(super) fn decode_mknod<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
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

pub(super) fn decode_mkdir<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
    let r: abi::fuse_mkdir_in = b.take_struct()?;
    Ok(FuseOperation::Mkdir {
        name: b.take_name()?,
        perm: permission_bits(r.mode),
        umask: r.umask,
    })
}

pub(super) fn decode_unlink<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
    Ok(FuseOperation::Unlink {
        name: b.take_name()?,
    })
}

pub(super) fn decode_rmdir<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
    Ok(FuseOperation::Rmdir {
        name: b.take_name()?,
    })
}

pub(super) fn decode_rename<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
    let r: abi::fuse_rename_in = b.take_struct()?;
    // The older form is the newer one without flags.
    take_renamed(r.newdir, 0, b)
}

pub(super) fn decode_rename2<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
    let r: abi::fuse_rename2_in = b.take_struct()?;
    take_renamed(r.newdir, r.flags, b)
}

/// Takes the names of a rename, which follow the struct of either form.
fn take_renamed<'a>(new_parent: u64, flags: u32, b: &mut BodyReader<'a>) -> Decoded<'a> {
    Ok(FuseOperation::Rename {
        name: b.take_name()?,
        new_parent: NodeId::new(new_parent),
        new_name: b.take_name()?,
        flags: RenameFlags::from_bits_retain(flags),
    })
}

pub(super) fn decode_link<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
    let r: abi::fuse_link_in = b.take_struct()?;
    Ok(FuseOperation::Link {
        target: NodeId::new(r.oldnodeid),
        name: b.take_name()?,
    })
}

pub(super) fn decode_create<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
    let r: abi::fuse_create_in = b.take_struct()?;
    Ok(FuseOperation::Create {
        name: b.take_name()?,
        flags: open_flags(r.flags),
        perm: permission_bits(r.mode),
        umask: r.umask,
        kill_suidgid: r.open_flags & abi::FUSE_OPEN_KILL_SUIDGID != 0,
    })
}

pub(super) fn decode_tmpfile<'a>(b: &mut BodyReader<'a>) -> Decoded<'a> {
    let r: abi::fuse_create_in = b.take_struct()?;
    let kill_suidgid = r.open_flags & abi::FUSE_OPEN_KILL_SUIDGID != 0;
    Ok(FuseOperation::Tmpfile {
        flags: open_flags(r.flags),
        perm: permission_bits(r.mode),
        umask: r.umask,
        kill_suidgid,
    })
}
