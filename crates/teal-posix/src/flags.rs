//! Flags of a file or directory that forbid changes: immutable and append-only (`chattr +i +a`).
//!
//! # Guarantees
//! 1. What is immutable keeps its content, attributes and names; a directory its entries.
//! 2. What is append-only grows at its end and nowhere else, and keeps its attributes and names; in
//!    a directory names can be made, and none taken away.
//! 3. The flags hold for every caller, root too, and go where the object goes: to the server and
//!    to other machines.
//!
//! # How
//! 1. The kernel decides who may change the flags, and asks for them before. It does not keep them
//!    itself, so that a file can be opened that cannot be written then.
//! 2. They are an extended attribute in no namespace that programs can name.

use crate::FileSystem;
use teal_log::{Cost, LockedObjects};
use teal_types::{FileType, ObjectNo};
use teal_volume::{FsError, ObjectChange, touch_object};

/// The extended attribute that holds the flags.
pub(crate) const FLAGS: &[u8] = b"teal.flags";

/// Flags of an object, as `FS_IOC_GETFLAGS` has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InodeFlags(u32);

impl InodeFlags {
    /// Nothing of it changes.
    pub const IMMUTABLE: Self = Self(0x10);
    /// The file only grows.
    pub const APPEND_ONLY: Self = Self(0x20);

    /// Returns the flags with these bits.
    ///
    /// # Errors
    /// [`FsError::NotSupported`] for others.
    pub fn from_bits(bits: u32) -> Result<Self, FsError> {
        match bits & !(Self::IMMUTABLE.0 | Self::APPEND_ONLY.0) {
            0 => Ok(Self(bits)),
            _ => Err(FsError::NotSupported),
        }
    }

    /// Returns the bits.
    pub fn bits(self) -> u32 {
        self.0
    }

    /// Returns whether all flags of `other` are among these.
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns both flags of two sets.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Returns the flags that an extended attribute holds. Bits of later versions forbid what they
    /// forbid there.
    fn of_value(value: Option<&[u8]>) -> Self {
        let bytes = value.and_then(|value| value.first_chunk());
        bytes.map_or_else(Self::default, |bytes| Self(u32::from_le_bytes(*bytes)))
    }
}

fn flags_of(locked: &LockedObjects<'_>, no: ObjectNo) -> InodeFlags {
    InodeFlags::of_value(locked.xattr(no, FLAGS))
}

fn refuse_if(is_forbidden: bool) -> Result<(), FsError> {
    if is_forbidden {
        Err(FsError::Permission)
    } else {
        Ok(())
    }
}

/// Refuses a change of content that the flags of a locked file forbid; `appends`: it adds at the
/// end.
pub(crate) fn check_content(
    locked: &LockedObjects<'_>,
    no: ObjectNo,
    appends: bool,
) -> Result<(), FsError> {
    let flags = flags_of(locked, no);
    refuse_if(flags.has(InodeFlags::IMMUTABLE) || flags.has(InodeFlags::APPEND_ONLY) && !appends)
}

/// Refuses a change of attributes or names that the flags of a locked object forbid.
pub(crate) fn check_attributes(locked: &LockedObjects<'_>, no: ObjectNo) -> Result<(), FsError> {
    refuse_if(!flags_of(locked, no).is_none())
}

/// Refuses a name more in a locked directory whose flags forbid that. Setting times to now is like
/// it.
pub(crate) fn check_growth(locked: &LockedObjects<'_>, no: ObjectNo) -> Result<(), FsError> {
    refuse_if(flags_of(locked, no).has(InodeFlags::IMMUTABLE))
}

impl FileSystem {
    /// Returns the flags of a file or directory.
    ///
    /// # Errors
    /// [`FsError::Stale`].
    pub fn inode_flags(&self, no: ObjectNo) -> Result<InodeFlags, FsError> {
        self.volume.name_damage(no, || {
            let value = self.store().xattr(no, FLAGS)?;
            Ok(InodeFlags::of_value(value.as_deref()))
        })
    }

    /// Sets the flags of a file or directory. Whether the caller may do that has been decided.
    ///
    /// # Errors
    /// [`FsError::NotSupported`] on anything else, [`FsError::NoSpace`], [`FsError::Stale`].
    pub fn set_inode_flags(&self, no: ObjectNo, flags: InodeFlags) -> Result<(), FsError> {
        self.volume.name_damage(no, || {
            let cost = Cost::set_xattr((FLAGS.len() + 4) as u64);
            let op = self.begin_operation(cost.with_head(self.store().head_bytes(no)?))?;
            let mut locked = op.lock(&[no])?;
            if !matches!(locked.attr(no).kind, FileType::File | FileType::Dir) {
                return Err(FsError::NotSupported);
            }
            let bytes = flags.0.to_le_bytes();
            let value = (!flags.is_none()).then_some(&bytes[..]);
            locked.set_xattr(no, FLAGS, value)?;
            self.changes
                .record(&mut locked, no, ObjectChange::Xattr(FLAGS))?;
            touch_object(&mut locked, no, self.volume.now());
            Ok(())
        })
    }
}
