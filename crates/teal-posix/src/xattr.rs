//! Extended attributes: `user.`, `security.`, `trusted.`, and the access control lists among those
//! of `system.`.
//!
//! # Guarantees
//! 1. A list and the mode it goes with change in one operation.

use crate::acl::{Acl, AclKind};
use crate::{Caller, FileSystem, flags};
use teal_log::{AttributeChanges, Cost, LockedObjects};
use teal_types::limits::{XATTR_NAME_MAX, XATTR_VALUE_MAX};
use teal_types::{FileType, ObjectNo, XattrMode};
use teal_volume::FsError;
use teal_volume::{ObjectChange, touch_object};

const S_ISGID: u16 = 0o2000;

/// Checks that the namespace of the name is offered. The kernel has decided already about the
/// caller's rights.
fn check_name(name: &[u8]) -> Result<(), FsError> {
    if name.is_empty() || name.len() > XATTR_NAME_MAX {
        return Err(FsError::Range);
    }
    // Access control lists are in a namespace of their own.
    if AclKind::of_xattr(name).is_some() {
        return Ok(());
    }
    let namespaces = [&b"user."[..], b"security.", b"trusted."];
    match namespaces
        .into_iter()
        .find(|namespace| name.starts_with(namespace))
    {
        None => Err(FsError::NotSupported),
        // A namespace without a name in it.
        Some(namespace) if namespace == name => Err(FsError::Invalid),
        Some(_) => Ok(()),
    }
}

impl FileSystem {
    /// Returns the value of an extended attribute.
    ///
    /// # Errors
    /// [`FsError::NoData`], [`FsError::NotSupported`], [`FsError::Invalid`], [`FsError::Range`],
    /// [`FsError::Stale`].
    pub fn getxattr(&self, no: ObjectNo, name: &[u8]) -> Result<Vec<u8>, FsError> {
        check_name(name)?;
        self.volume
            .name_damage(no, || self.store().xattr(no, name)?.ok_or(FsError::NoData))
    }

    /// Returns the names of the extended attributes; those of `trusted.` only for root.
    ///
    /// # Errors
    /// [`FsError::Stale`].
    pub fn listxattr(&self, caller: &Caller, no: ObjectNo) -> Result<Vec<Vec<u8>>, FsError> {
        self.volume.name_damage(no, || {
            let mut names = self.store().xattr_names(no)?;
            // Linux hides this namespace from other users.
            names.retain(|name| caller.uid == 0 || !name.starts_with(b"trusted."));
            names.retain(|name| name != flags::FLAGS);
            Ok(names)
        })
    }

    /// Sets an extended attribute. An access control list changes the mode with it, and is not kept
    /// where the mode says all of it; with `kill_sgid` the set-group-id bit goes then: the caller
    /// is not in the group.
    ///
    /// # Errors
    /// For lists [`FsError::OnlyDir`] for a default one on anything else, [`FsError::Invalid`] for
    /// what is not well-formed; [`FsError::ValueTooBig`], [`FsError::NoSpace`] when all of them
    /// together are too big, [`FsError::Permission`] for `user.` on what is neither file nor
    /// directory, [`FsError::Exists`], and as [`getxattr`](Self::getxattr).
    pub fn setxattr(
        &self,
        no: ObjectNo,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
        kill_sgid: bool,
    ) -> Result<(), FsError> {
        if value.len() > XATTR_VALUE_MAX {
            return Err(FsError::ValueTooBig);
        }
        self.change_xattr(no, name, value.len(), |locked| {
            // Under the lock: the attribute cannot appear or go in between.
            match (mode, locked.xattr(no, name).is_some()) {
                (XattrMode::Create, true) => return Err(FsError::Exists),
                (XattrMode::Replace, false) => return Err(FsError::NoData),
                _ => {}
            }
            match AclKind::of_xattr(name) {
                Some(which) => set_acl(locked, no, which, name, value, kill_sgid),
                None => Ok(locked.set_xattr(no, name, Some(value)).map(drop)?),
            }
        })
    }

    /// Removes an extended attribute; an access control list need not be there, and the mode stays.
    ///
    /// # Errors
    /// As [`getxattr`](Self::getxattr), and [`FsError::Permission`].
    pub fn removexattr(&self, no: ObjectNo, name: &[u8]) -> Result<(), FsError> {
        self.change_xattr(no, name, 0, |locked| {
            if locked.xattr(no, name).is_none() {
                // A list that says no more than the mode is never stored: removing it succeeds.
                return if AclKind::of_xattr(name).is_some() {
                    Ok(())
                } else {
                    Err(FsError::NoData)
                };
            }
            locked.set_xattr(no, name, None)?;
            Ok(())
        })
    }

    fn change_xattr(
        &self,
        no: ObjectNo,
        name: &[u8],
        len: usize,
        change: impl FnOnce(&mut LockedObjects<'_>) -> Result<(), FsError>,
    ) -> Result<(), FsError> {
        self.volume.name_damage(no, || {
            // Linux: only files and directories have attributes of users.
            let is_plain = matches!(self.store().attr(no)?.kind, FileType::File | FileType::Dir);
            if !is_plain && name.starts_with(b"user.") && name.len() <= XATTR_NAME_MAX {
                return Err(FsError::Permission);
            }
            check_name(name)?;
            let value = (name.len() + len) as u64;
            let cost = Cost::set_xattr(value).with_head(self.store().head_bytes(no)?);
            let op = self.begin_operation(cost)?;
            let mut locked = op.lock(&[no])?;
            flags::check_attributes(&locked, no)?;
            let perm = locked.attr(no).perm;
            change(&mut locked)?;
            self.changes
                .record(&mut locked, no, ObjectChange::Xattr(name))?;
            // An access control list changes the mode.
            if locked.attr(no).perm != perm {
                self.changes
                    .record(&mut locked, no, ObjectChange::Attributes)?;
            }
            touch_object(&mut locked, no, self.volume.now());
            Ok(())
        })
    }
}

fn set_acl(
    locked: &mut LockedObjects<'_>,
    no: ObjectNo,
    which: AclKind,
    name: &[u8],
    value: &[u8],
    kill_sgid: bool,
) -> Result<(), FsError> {
    let attr = locked.attr(no);
    // Linux has no lists of symbolic links.
    if attr.kind == FileType::Symlink {
        return Err(FsError::NotSupported);
    }
    let acl = Acl::decode(value)?;
    if which == AclKind::Default && !attr.kind.is_dir() && acl.is_some() {
        return Err(FsError::OnlyDir);
    }
    // A list that says no more than the mode is stored as the mode only.
    let kept = acl
        .as_ref()
        .filter(|acl| which == AclKind::Default || !acl.is_mode())
        .map(Acl::encode);
    locked.set_xattr(no, name, kept.as_deref())?;
    if let (AclKind::Access, Some(acl)) = (which, acl) {
        // The kernel asks to drop set-group-id if the caller is not in the group.
        let upper = attr.perm & !if kill_sgid { 0o777 | S_ISGID } else { 0o777 };
        locked.set_attr(
            no,
            AttributeChanges {
                perm: Some(upper | acl.permission_bits()),
                ..AttributeChanges::default()
            },
        );
    }
    Ok(())
}
