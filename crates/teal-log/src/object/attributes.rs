//! Attributes of an object as programs see them.

use crate::object::state::{ObjectContent, ObjectState};
use teal_types::{Attr, BLOCK, ObjectNo};

pub(crate) fn attr_of(no: ObjectNo, state: &ObjectState) -> Attr {
    let core = &state.core;
    let dirty = match &state.content {
        ObjectContent::Blocks(blocks) => blocks.dirty.len() as u64 * (BLOCK / 512),
        _ => 0,
    };
    Attr {
        object: no,
        kind: core.kind,
        perm: core.perm,
        nlink: state.nlink(no),
        uid: core.uid,
        gid: core.gid,
        rdev: core.rdev,
        size: if core.kind.is_dir() {
            core.size.saturating_mul(32)
        } else {
            core.size
        },
        sectors: core.sectors.saturating_add(dirty),
        atime: core.atime,
        mtime: core.mtime,
        ctime: core.ctime,
        btime: core.btime,
    }
}
