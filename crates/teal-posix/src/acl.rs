//! Access control lists (POSIX 1003.1e draft 17): their form, and what they have to do with modes.
//! Nothing here touches the store.
//!
//! # Guarantees
//! 1. *Well-formed*: a decoded list has an owner, an owning group and others exactly once each, a
//!    mask if it names anybody, and its entries in the order of their tags. Anything else is
//!    refused with the error number Linux has for it.
//! 2. *One truth*: the nine permission bits of an object are those of its list ([`Acl::mode`]); a
//!    list that says no more than nine bits can ([`Acl::is_mode`]) is never stored.
//! 3. Who may do what is decided by the kernel, which reads the lists.
//!
//! # Bytes
//! As in Linux, version 2: version u32, then for each entry tag u16, permissions u16, id u32 (all
//! ones where the tag needs none). Little-endian.

use teal_volume::FsError;

/// Holds the list that guards an object.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";
/// Holds the list that new objects in a directory inherit.
pub(crate) const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
const HEADER: usize = 4;
const ENTRY: usize = 8;
const NO_ID: u32 = u32::MAX;
/// Longest list: the kernel reads them into a page.
pub(crate) const ACL_MAX: usize = 4096;

/// Which of an object's two lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AclKind {
    /// The one that guards it.
    Access,
    /// The one that is inherited.
    Default,
}

impl AclKind {
    /// The list that an extended attribute of this name holds.
    pub(crate) fn of_xattr(name: &[u8]) -> Option<Self> {
        match name {
            ACCESS => Some(Self::Access),
            DEFAULT => Some(Self::Default),
            _ => None,
        }
    }
}

/// Whom an entry is about. The order is that of the entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AclTag {
    /// The owner.
    Owner,
    /// This user.
    User(u32),
    /// The owning group.
    OwningGroup,
    /// This group.
    Group(u32),
    /// The most that users and groups get, the owner excepted.
    Mask,
    /// Everybody else.
    Other,
}

impl AclTag {
    fn code(self) -> u16 {
        match self {
            Self::Owner => 0x01,
            Self::User(_) => 0x02,
            Self::OwningGroup => 0x04,
            Self::Group(_) => 0x08,
            Self::Mask => 0x10,
            Self::Other => 0x20,
        }
    }

    fn from_code(code: u16, id: u32) -> Option<Self> {
        let named = (id != NO_ID).then_some(id);
        Some(match code {
            0x01 => Self::Owner,
            0x02 => Self::User(named?),
            0x04 => Self::OwningGroup,
            0x08 => Self::Group(named?),
            0x10 => Self::Mask,
            0x20 => Self::Other,
            _ => return None,
        })
    }

    fn id(self) -> u32 {
        match self {
            Self::User(id) | Self::Group(id) => id,
            Self::Owner | Self::OwningGroup | Self::Mask | Self::Other => NO_ID,
        }
    }
}

/// One entry: read 4, write 2, execute 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AclEntry {
    pub(crate) tag: AclTag,
    pub(crate) perm: u16,
}

/// A list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Acl(Vec<AclEntry>);

impl Acl {
    /// Reads a list; `None` for one without entries, which stands for none at all.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for what is not well-formed, [`FsError::NotSupported`] for another version, [`FsError::ValueTooBig`].
    pub(crate) fn decode(bytes: &[u8]) -> Result<Option<Self>, FsError> {
        if bytes.is_empty() {
            return Ok(None);
        }
        if bytes.len() > ACL_MAX {
            return Err(FsError::ValueTooBig);
        }
        let (version, entries) = bytes
            .split_first_chunk::<HEADER>()
            .ok_or(FsError::Invalid)?;
        if u32::from_le_bytes(*version) != VERSION {
            return Err(FsError::NotSupported);
        }
        let (entries, []) = entries.as_chunks::<ENTRY>() else {
            return Err(FsError::Invalid);
        };
        let entry = |&[t0, t1, p0, p1, id @ ..]: &[u8; ENTRY]| {
            let tag = AclTag::from_code(u16::from_le_bytes([t0, t1]), u32::from_le_bytes(id))?;
            Some(AclEntry {
                tag,
                perm: u16::from_le_bytes([p0, p1]),
            })
        };
        let entries: Option<Vec<AclEntry>> = entries.iter().map(entry).collect();
        match entries {
            Some(entries) if entries.is_empty() => Ok(None),
            Some(entries) => Self::new(entries).map(Some).ok_or(FsError::Invalid),
            None => Err(FsError::Invalid),
        }
    }

    /// A list of these entries, if it is well-formed. As in Linux, named users and groups come in
    /// any order, even twice.
    pub(crate) fn new(entries: Vec<AclEntry>) -> Option<Self> {
        let ordered = entries.is_sorted_by(|a, b| a.tag.code() <= b.tag.code());
        let count = |tag: AclTag| {
            entries
                .iter()
                .filter(|e| e.tag.code() == tag.code())
                .count()
        };
        let once = [AclTag::Owner, AclTag::OwningGroup, AclTag::Other]
            .into_iter()
            .all(|tag| count(tag) == 1);
        let is_named = count(AclTag::User(0)) + count(AclTag::Group(0)) > 0;
        let masked = count(AclTag::Mask) == 1 || (count(AclTag::Mask) == 0 && !is_named);
        let bits = entries.iter().all(|e| e.perm <= 7);
        (ordered && once && masked && bits).then_some(Self(entries))
    }

    /// The bytes of the list.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER + ENTRY * self.0.len());
        out.extend(VERSION.to_le_bytes());
        for AclEntry { tag, perm } in &self.0 {
            out.extend(tag.code().to_le_bytes());
            out.extend(perm.to_le_bytes());
            out.extend(tag.id().to_le_bytes());
        }
        out
    }

    /// The nine permission bits that go with the list: those of the group are the mask if there is
    /// one.
    pub(crate) fn permission_bits(&self) -> u16 {
        let mut mode = 0;
        for AclEntry { tag, perm } in &self.0 {
            match tag {
                AclTag::Owner => mode |= perm << 6,
                AclTag::OwningGroup => mode |= perm << 3,
                AclTag::Mask => mode = mode & !0o070 | perm << 3,
                AclTag::Other => mode |= perm,
                AclTag::User(_) | AclTag::Group(_) => {}
            }
        }
        mode
    }

    /// Returns whether nine permission bits say all of it.
    pub(crate) fn is_mode(&self) -> bool {
        self.0.len() == 3
    }

    /// Follows a change of the nine bits: whatever [`mode`](Self::mode) comes from becomes what
    /// they say.
    pub(crate) fn set_mode(&mut self, mode: u16) {
        let is_masked = self.0.iter().any(|e| e.tag == AclTag::Mask);
        for AclEntry { tag, perm } in &mut self.0 {
            match tag {
                AclTag::Owner => *perm = mode >> 6 & 7,
                AclTag::OwningGroup if !is_masked => *perm = mode >> 3 & 7,
                AclTag::Mask => *perm = mode >> 3 & 7,
                AclTag::Other => *perm = mode & 7,
                AclTag::OwningGroup | AclTag::User(_) | AclTag::Group(_) => {}
            }
        }
    }

    /// As a default list: the access list of an object made with these nine bits. They are what the
    /// maker asks for, and nobody gets more; the umask has no say.
    pub(crate) fn inherited_by(&self, mode: u16) -> Self {
        let mut made = self.clone();
        made.set_mode(self.permission_bits() & mode);
        made
    }
}

#[cfg(test)]
mod tests;
