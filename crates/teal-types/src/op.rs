//! The operations that change a volume.

/// The kind of an operation; the code is stored in the log and on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OpKind {
    /// A new object under a name (mknod, mkdir, symlink, create).
    Create,
    /// File content changed.
    Write,
    /// File length changed.
    Truncate,
    /// Mode, owner or times changed.
    SetAttr,
    /// An extended attribute set or removed.
    SetXattr,
    /// One more name for an object.
    Link,
    /// A name removed.
    Unlink,
    /// An entry moved.
    Rename,
    /// Two entries changed places.
    Exchange,
    /// An object without names given back.
    Reclaim,
    /// Content moved by the cleaner; nothing a user can see.
    Move,
}

impl OpKind {
    /// Every kind, in the order of their codes.
    pub const ALL: [Self; 11] = [
        Self::Create,
        Self::Write,
        Self::Truncate,
        Self::SetAttr,
        Self::SetXattr,
        Self::Link,
        Self::Unlink,
        Self::Rename,
        Self::Exchange,
        Self::Reclaim,
        Self::Move,
    ];
    /// Returns the stored code, from 1.
    pub const fn code(self) -> u8 {
        // 0 is no code, so that zeroed bytes are no operation.
        self as u8 + 1
    }
    /// Returns the kind of a stored code.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_round_trip() {
        for kind in OpKind::ALL {
            assert_eq!(OpKind::from_code(kind.code()), Some(kind));
        }
        assert_eq!(OpKind::from_code(0), None);
        assert_eq!(OpKind::from_code(12), None);
    }
}
