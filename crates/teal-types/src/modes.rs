//! The modes of calls that change names and extended attributes, as Linux has them.

const RENAME_NOREPLACE: u32 = 1;
const RENAME_EXCHANGE: u32 = 2;
const RENAME_WHITEOUT: u32 = 4;
const XATTR_CREATE: u32 = 1;
const XATTR_REPLACE: u32 = 2;

/// The treatment of the target name by a rename.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenameMode {
    /// Replaces the object under the target name.
    Replace,
    /// `RENAME_NOREPLACE`: nothing may be there.
    NoReplace,
    /// `RENAME_EXCHANGE`: exchanges both objects.
    Exchange,
}

impl RenameMode {
    /// Returns the mode of `renameat2` flags; `None` for other flags (`RENAME_WHITEOUT` among them:
    /// [`split_whiteout`] takes it out) and for contradictions.
    pub fn from_flags(flags: u32) -> Option<Self> {
        match flags {
            0 => Some(Self::Replace),
            RENAME_NOREPLACE => Some(Self::NoReplace),
            RENAME_EXCHANGE => Some(Self::Exchange),
            _ => None,
        }
    }
}

/// Takes `RENAME_WHITEOUT` out of `renameat2` flags; returns the others, and whether it was among
/// them. Together with `RENAME_EXCHANGE` it is a contradiction, and stays.
pub fn split_whiteout(flags: u32) -> (u32, bool) {
    match flags & RENAME_EXCHANGE {
        0 => (flags & !RENAME_WHITEOUT, flags & RENAME_WHITEOUT != 0),
        _ => (flags, false),
    }
}

/// The condition under which an extended attribute is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XattrMode {
    /// The attribute may exist or not.
    Any,
    /// `XATTR_CREATE`: the attribute must not exist.
    Create,
    /// `XATTR_REPLACE`: the attribute must exist.
    Replace,
}

impl XattrMode {
    /// Returns the mode of `setxattr` flags; `None` for other flags and for contradictions.
    pub fn from_flags(flags: u32) -> Option<Self> {
        match flags {
            0 => Some(Self::Any),
            XATTR_CREATE => Some(Self::Create),
            XATTR_REPLACE => Some(Self::Replace),
            _ => None,
        }
    }
}
