//! The entries of one directory, ordered by cookie: few of them in the inode, many in a tree of
//! their own.
//!
//! # Invariants
//! 1. A cookie is 56 bits of keyed hashes of the name, then 7 bits that tell names of one hash
//!    apart; it never changes while the entry lives, so that reading a directory in pieces is
//!    stable under change.
//! 2. Cookies are below 2^63 and at least 128; smaller ones are left for `.`, `..` and "from the
//!    start".
//! 3. Names that differ in little but their last three characters lie together ([`NameHash`]): what
//!    is made one after the other, as cameras, logs and counters do, changes the same few pages,
//!    however many names there are, and is listed about in the order it was made in.

use crate::error::StoreError;
use crate::format::inode::DirectoryEntry;
use crate::format::page::{PagePtr, TreeKind};
use crate::format::superblock::{GROUPED_NAMES, Superblock};
use crate::tree::{PageSource, Tree};
use siphasher::sip::SipHasher24;
use std::collections::BTreeMap;
use std::hash::Hasher;
use std::ops::ControlFlow;
use teal_types::{Name, ObjectNo};

const COLLISION_BITS: u32 = 7;

#[derive(Debug)]
pub(crate) enum DirectoryEntries {
    Few(BTreeMap<u64, DirectoryEntry>),
    Tree(Tree),
}

/// A directory's entries, and which of them the open batch changed.
#[derive(Debug)]
pub(crate) struct DirectoryContent {
    pub(crate) entries: DirectoryEntries,
    pub(crate) changed: BTreeMap<u64, Option<DirectoryEntry>>,
}

/// Characters at the end of a name, its extension apart, that do not tell groups apart.
const GROUPED: usize = 3;
/// An extension has at most so many characters, its dot not counted.
const EXTENSION: usize = 5;
/// Bits of a cookie's hash that tell names of one group apart.
const IN_GROUP_BITS: u32 = 24;

/// Where a store's directories put names. Names that meet cannot be chosen without the key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NameHash {
    seed: [u8; 16],
    is_grouped: bool,
}

impl NameHash {
    pub(crate) fn of_store(sb: &Superblock) -> Self {
        Self {
            seed: sb.hash_seed,
            is_grouped: sb.incompatible & GROUPED_NAMES != 0,
        }
    }

    fn hash_bytes(&self, bytes: &[u8]) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.seed);
        hasher.write(bytes);
        hasher.finish()
    }

    /// The smallest cookie a name can have.
    pub(crate) fn first_cookie(&self, name: &Name) -> u64 {
        let name = name.as_bytes();
        let hash = if self.is_grouped {
            let bits = u64::BITS - IN_GROUP_BITS;
            (self.hash_bytes(group_of(name)) >> 32) << IN_GROUP_BITS | self.hash_bytes(name) >> bits
        } else {
            self.hash_bytes(name) >> 8
        };
        hash.max(1) << COLLISION_BITS
    }
}

/// Returns what names made one after the other mostly share: all but the last characters and the
/// extension.
fn group_of(name: &[u8]) -> &[u8] {
    let dot = name
        .iter()
        .rposition(|byte| *byte == b'.')
        .filter(|dot| name.len() - dot - 1 <= EXTENSION);
    let stem = &name[..dot.unwrap_or(name.len())];
    &stem[..stem.len().saturating_sub(GROUPED)]
}

impl DirectoryContent {
    pub(crate) fn new() -> Self {
        Self {
            entries: DirectoryEntries::Few(BTreeMap::new()),
            changed: BTreeMap::new(),
        }
    }

    pub(crate) fn with_root(object: ObjectNo, root: PagePtr) -> Self {
        let tree = Tree::with_root(TreeKind::Directory, object, Some(root));
        Self {
            entries: DirectoryEntries::Tree(tree),
            changed: BTreeMap::new(),
        }
    }

    fn decode_entry(no: ObjectNo, cookie: u64, value: &[u8]) -> Result<DirectoryEntry, StoreError> {
        DirectoryEntry::decode_at(cookie, value).ok_or(StoreError::Corrupt {
            what: "a directory entry",
            at: 0,
            object: Some(no),
        })
    }

    /// The entry called `name` and its cookie.
    pub(crate) fn find_entry(
        &self,
        src: &dyn PageSource,
        no: ObjectNo,
        names: NameHash,
        name: &Name,
    ) -> Result<Option<(u64, DirectoryEntry)>, StoreError> {
        let from = names.first_cookie(name);
        let mut found = None;
        self.each_from(src, no, from, &mut |cookie, entry| {
            if cookie >> COLLISION_BITS != from >> COLLISION_BITS {
                return Ok(ControlFlow::Break(()));
            }
            if entry.name == *name {
                found = Some((cookie, entry));
                return Ok(ControlFlow::Break(()));
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(found)
    }

    /// Adds an entry that is not there yet.
    pub(crate) fn insert_entry(
        &mut self,
        src: &dyn PageSource,
        no: ObjectNo,
        names: NameHash,
        entry: DirectoryEntry,
    ) -> Result<u64, StoreError> {
        let from = names.first_cookie(&entry.name);
        let mut cookie = from;
        self.each_from(src, no, from, &mut |taken, _| {
            let free = taken != cookie;
            cookie += u64::from(!free);
            Ok(if free {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            })
        })?;
        if cookie >> COLLISION_BITS != from >> COLLISION_BITS {
            return Err(StoreError::TooBig(
                "a directory's number of names with one hash",
            ));
        }
        self.set_entry(src, no, cookie, entry)?;
        Ok(cookie)
    }

    /// Sets the entry of a cookie.
    pub(crate) fn set_entry(
        &mut self,
        src: &dyn PageSource,
        no: ObjectNo,
        cookie: u64,
        entry: DirectoryEntry,
    ) -> Result<Option<DirectoryEntry>, StoreError> {
        let old = match &mut self.entries {
            DirectoryEntries::Few(map) => map.insert(cookie, entry.clone()),
            DirectoryEntries::Tree(tree) => match tree.insert(src, cookie, &entry.encode())? {
                Some(value) => Some(Self::decode_entry(no, cookie, &value)?),
                None => None,
            },
        };
        self.changed.insert(cookie, Some(entry));
        self.move_to_tree(src, no)?;
        Ok(old)
    }

    /// Removes the entry of a cookie.
    pub(crate) fn remove_entry(
        &mut self,
        src: &dyn PageSource,
        no: ObjectNo,
        cookie: u64,
    ) -> Result<Option<DirectoryEntry>, StoreError> {
        let old = match &mut self.entries {
            DirectoryEntries::Few(map) => map.remove(&cookie),
            DirectoryEntries::Tree(tree) => match tree.remove(src, cookie)? {
                Some(value) => Some(Self::decode_entry(no, cookie, &value)?),
                None => None,
            },
        };
        self.changed.insert(cookie, None);
        Ok(old)
    }

    fn move_to_tree(&mut self, src: &dyn PageSource, no: ObjectNo) -> Result<(), StoreError> {
        let DirectoryEntries::Few(map) = &mut self.entries else {
            return Ok(());
        };
        if map
            .values()
            .map(|e| 25 + e.name.as_bytes().len())
            .sum::<usize>()
            <= crate::format::inode::INLINE_CONTENT
        {
            return Ok(());
        }
        let mut tree = Tree::new(TreeKind::Directory, no);
        for (cookie, entry) in map.iter() {
            tree.insert(src, *cookie, &entry.encode())?;
        }
        self.entries = DirectoryEntries::Tree(tree);
        Ok(())
    }

    /// Visits the entries from a cookie on, in order.
    pub(crate) fn each_from(
        &self,
        src: &dyn PageSource,
        no: ObjectNo,
        from: u64,
        visit: &mut dyn FnMut(u64, DirectoryEntry) -> Result<ControlFlow<()>, StoreError>,
    ) -> Result<(), StoreError> {
        match &self.entries {
            DirectoryEntries::Few(map) => {
                for (cookie, entry) in map.range(from..) {
                    if visit(*cookie, entry.clone())?.is_break() {
                        break;
                    }
                }
                Ok(())
            }
            DirectoryEntries::Tree(tree) => tree.scan(src, from, &mut |cookie, value| {
                visit(cookie, Self::decode_entry(no, cookie, value)?)
            }),
        }
    }
}

#[cfg(test)]
mod tests;
