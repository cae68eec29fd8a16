//! Extended attributes: `user.`, `security.` and `trusted.`. Access control lists (`system.`) are not offered yet.

use crate::{Caller, Client, FsError};
use teal_log::{Cost, Locked, XATTR_NAME_MAX, XATTR_VALUE_MAX};
use teal_types::{FileType, ObjectNo};

/// Whether an attribute may be there before it is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XattrMode {
    /// Either.
    Any,
    /// It must not.
    Create,
    /// It must.
    Replace,
}

impl XattrMode {
    /// The mode of `setxattr` flags.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for others.
    pub fn from_flags(flags: u32) -> Result<Self, FsError> {
        match flags {
            0 => Ok(Self::Any),
            1 => Ok(Self::Create),
            2 => Ok(Self::Replace),
            _ => Err(FsError::Invalid),
        }
    }
}

/// A name whose namespace is offered. Who may use it has been decided by the kernel.
fn check_name(name: &[u8]) -> Result<(), FsError> {
    if name.is_empty() || name.len() > XATTR_NAME_MAX {
        return Err(FsError::Range);
    }
    let namespaces = [&b"user."[..], b"security.", b"trusted."];
    match namespaces.into_iter().find(|namespace| name.starts_with(namespace)) {
        None => Err(FsError::NotSupported),
        Some(namespace) if namespace == name => Err(FsError::Invalid),
        Some(_) => Ok(()),
    }
}

impl Client {
    /// The value of an extended attribute.
    ///
    /// # Errors
    /// [`FsError::NoData`], [`FsError::NotSupported`], [`FsError::Invalid`], [`FsError::Range`], [`FsError::Stale`].
    pub fn getxattr(&self, no: ObjectNo, name: &[u8]) -> Result<Vec<u8>, FsError> {
        check_name(name)?;
        self.on(no, || self.store.xattr(no, name)?.ok_or(FsError::NoData))
    }

    /// The names of the extended attributes; those of `trusted.` only for root.
    ///
    /// # Errors
    /// [`FsError::Stale`].
    pub fn listxattr(&self, caller: &Caller, no: ObjectNo) -> Result<Vec<Vec<u8>>, FsError> {
        self.on(no, || {
            let mut names = self.store.xattr_names(no)?;
            names.retain(|name| caller.uid == 0 || !name.starts_with(b"trusted."));
            Ok(names)
        })
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// [`FsError::ValueTooBig`], [`FsError::NoSpace`] when all of them together are too big, [`FsError::Permission`] for `user.` on
    /// what is neither file nor directory, [`FsError::Exists`], and as [`getxattr`](Self::getxattr).
    pub fn setxattr(&self, no: ObjectNo, name: &[u8], value: &[u8], mode: XattrMode) -> Result<(), FsError> {
        if value.len() > XATTR_VALUE_MAX {
            return Err(FsError::ValueTooBig);
        }
        self.change_xattr(no, name, value.len(), |locked| {
            match (mode, locked.xattr(no, name).is_some()) {
                (XattrMode::Create, true) => return Err(FsError::Exists),
                (XattrMode::Replace, false) => return Err(FsError::NoData),
                _ => locked.set_xattr(no, name, Some(value))?,
            };
            Ok(())
        })
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// As [`getxattr`](Self::getxattr), and [`FsError::Permission`].
    pub fn removexattr(&self, no: ObjectNo, name: &[u8]) -> Result<(), FsError> {
        self.change_xattr(no, name, 0, |locked| {
            if locked.xattr(no, name).is_none() {
                return Err(FsError::NoData);
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
        change: impl FnOnce(&mut Locked<'_>) -> Result<(), FsError>,
    ) -> Result<(), FsError> {
        self.on(no, || {
            let is_plain = matches!(self.store.attr(no)?.kind, FileType::File | FileType::Dir);
            if !is_plain && name.starts_with(b"user.") && name.len() <= XATTR_NAME_MAX {
                return Err(FsError::Permission);
            }
            check_name(name)?;
            let mut cost = Cost::names(1);
            cost.bytes += self.store.head_bytes(no)? + (name.len() + len) as u64;
            let op = self.begin(cost)?;
            let mut locked = op.lock(&[no])?;
            change(&mut locked)?;
            self.changed(&mut locked, no);
            Ok(())
        })
    }
}
