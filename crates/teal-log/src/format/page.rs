//! The page of a copy-on-write tree: its bytes, its codec, and the node it becomes in memory.
//!
//! # Guarantees
//! 1. *One form*: a node has exactly one encoding; bytes that decode encode to themselves again.
//! 2. *Distrust*: only a whole page of the expected kind, owner and level decodes. Anything else is
//!    [`StoreError::Corrupt`], never a panic, and no more is allocated than the page can hold.
//! 3. *Sealed*: a [`PagePtr`] matches its page only while no bit of the page's sectors has changed.
//! 4. *Not empty*: a decoded node has at least one item, and its children are all on disk.
//!
//! # Bytes
//! Little-endian. At most [`PAGE_MAX`] bytes, stored in whole 512-byte sectors, zero padded.
//!
//! | at | size | field |
//! |---:|---:|---|
//! | 0 | 4 | magic, `TPAG` |
//! | 4 | 2 | version: 1, or 2 for a page above the leaves whose pointers name second copies |
//! | 6 | 1 | kind, a [`TreeKind`] code |
//! | 7 | 1 | level: 0 is a leaf, at most [`LEVEL_MAX`] |
//! | 8 | 2 | count of items, at least 1 |
//! | 10 | 1 | words of 8 bytes in a key, 1 |
//! | 11 | 1 | 0 |
//! | 12 | 4 | length: bytes used, header included, padding excluded |
//! | 16 | 8 | owner: an object number, 0 for trees of the whole store |
//! | 24 | … | items, keys strictly ascending |
//!
//! A leaf item is its key (8), the length of its value (2), the value (at most [`VALUE_MAX`]). An
//! interior item is a key (8) not above any key of the subtree, and the subtree's [`PagePtr`] (12):
//! address (6), encoded length (2), CRC32C of the padded sectors (4). In a page of version 2 the
//! address of the page's second copy (6, zero: it has none) follows each pointer. The first key of
//! an interior page counts as minus infinity when routing.

use teal_types::{ObjectNo, SECTOR, Sector};

use crate::error::StoreError;

/// The most bytes a page may take when encoded.
pub(crate) const PAGE_MAX: usize = 4096;
/// The longest value of a leaf item, in bytes.
pub(crate) const VALUE_MAX: usize = 1024;
/// The highest level a page may have; far above what 2^64 keys need.
pub(crate) const LEVEL_MAX: u8 = 31;
/// The owner of trees that belong to the store as a whole.
pub(crate) const STORE_WIDE: ObjectNo = ObjectNo::new(0);

const MAGIC: [u8; 4] = *b"TPAG";
const VERSION: u16 = 1;
/// The version of a page whose pointers name second copies.
const VERSION_WITH_COPIES: u16 = 2;
const KEY_WORDS: u8 = 1;
const HEADER: usize = 24;
const LENGTH_AT: usize = 12;
const LEAF_ITEM: usize = 10;
const INNER_ITEM: usize = 8 + PagePtr::BYTES;
const SECTOR_BYTES: usize = SECTOR as usize;

/// Which tree a page belongs to; the code is what the page stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub(crate) enum TreeKind {
    InodeMap = 1,
    Extents = 2,
    Directory = 3,
    Orphans = 4,
    Usage = 5,
    SharedExtents = 6,
    History = 7,
    Notes = 8,
    Xattrs = 9,
}

impl TreeKind {
    /// Every kind, in the order of their codes.
    pub(crate) const ALL: [Self; 9] = [
        Self::InodeMap,
        Self::Extents,
        Self::Directory,
        Self::Orphans,
        Self::Usage,
        Self::SharedExtents,
        Self::History,
        Self::Notes,
        Self::Xattrs,
    ];
    /// Returns the stored code, from 1.
    pub(crate) const fn code(self) -> u8 {
        self as u8
    }
    /// Returns the kind of a stored code.
    pub(crate) fn from_code(code: u8) -> Option<Self> {
        // Codes begin at 1, so that zeros are no kind.
        Self::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }
    /// Returns whether each of its pages is stored twice: so much depends on it.
    pub(crate) const fn has_second_copies(self) -> bool {
        matches!(self, Self::InodeMap | Self::Orphans | Self::Usage)
    }
    /// Returns the version that a page at a level is written in.
    const fn page_version(self, level: u8) -> u16 {
        if level > 0 && self.has_second_copies() {
            VERSION_WITH_COPIES
        } else {
            VERSION
        }
    }
    /// Returns what to call one of its pages in a message.
    pub(crate) const fn page_name(self) -> &'static str {
        match self {
            Self::InodeMap => "a page of the inode map",
            Self::Extents => "an extent page",
            Self::Directory => "a directory page",
            Self::Orphans => "a page of the orphan set",
            Self::Usage => "a page of the usage table",
            Self::SharedExtents => "a page of the shared-extent table",
            Self::History => "a page of the history index",
            Self::Notes => "a page of the notes",
            Self::Xattrs => "an extended-attribute page",
        }
    }
}

/// The properties of a page that its reader knows beforehand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExpectedPage {
    pub(crate) kind: TreeKind,
    pub(crate) owner: ObjectNo,
    /// The level; unknown for a root.
    pub(crate) level: Option<u8>,
}

impl ExpectedPage {
    /// Returns the error for a page at `at` that is not as expected.
    pub(crate) fn damaged_at(self, at: Sector) -> StoreError {
        let object = (self.owner != STORE_WIDE).then_some(self.owner);
        StoreError::Corrupt {
            what: self.kind.page_name(),
            at: at.get(),
            object,
        }
    }
}

/// The place of a page on the device, with its checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PagePtr {
    addr: Sector,
    bytes: u16,
    crc: u32,
    /// The first sector of the second copy, 0: there is none.
    second: Sector,
}

impl PagePtr {
    /// Bytes of an encoded pointer.
    pub(crate) const BYTES: usize = 12;
    /// Bytes of the address of a second copy.
    pub(crate) const SECOND_BYTES: usize = 6;

    /// Returns the pointer to `page`, as [`Node::encode`] made it, once it is to lie at `addr`.
    pub(crate) fn seal(addr: Sector, page: &[u8]) -> Self {
        assert!(addr < Sector::LIMIT, "sector addresses have 48 bits");
        // The length of the page without its padding is in its header.
        let bytes = u16::from_le_bytes([page[LENGTH_AT], page[LENGTH_AT + 1]]);
        let ptr = Self {
            addr,
            bytes,
            crc: crc32c::crc32c(page),
            second: Sector::new(0),
        };
        assert_eq!(ptr.stored_bytes(), page.len(), "a page fills its sectors");
        ptr
    }
    /// Returns whether `page` is what this pointer was made for, bit by bit.
    #[cfg(test)]
    pub(crate) fn matches(self, page: &[u8]) -> bool {
        // The padding is covered, too.
        page.len() == self.stored_bytes() && crc32c::crc32c(page) == self.crc
    }
    /// Returns the checksum over the padded sectors.
    pub(crate) const fn crc(self) -> u32 {
        self.crc
    }
    /// Returns the first sector.
    pub(crate) const fn addr(self) -> Sector {
        self.addr
    }
    /// Returns the first sector of the second copy, if the page has one.
    pub(crate) fn second_copy(self) -> Option<Sector> {
        (self.second.get() > 0).then_some(self.second)
    }
    /// Returns the pointer to the same page with its second copy at `second`.
    #[must_use]
    pub(crate) fn with_second_copy(self, second: Option<Sector>) -> Self {
        let second = second.unwrap_or(Sector::new(0));
        assert!(second < Sector::LIMIT, "sector addresses have 48 bits");
        Self { second, ..self }
    }
    /// Returns the places of both copies.
    pub(crate) fn places(self) -> impl Iterator<Item = Sector> {
        [Some(self.addr), self.second_copy()].into_iter().flatten()
    }
    /// The encoded length in bytes, without padding.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) const fn bytes(self) -> u16 {
        self.bytes
    }
    /// Returns how many sectors the page takes.
    pub(crate) const fn sectors(self) -> u64 {
        (self.bytes as u64).div_ceil(SECTOR)
    }
    /// Returns how many bytes its sectors have: what to read.
    pub(crate) const fn stored_bytes(self) -> usize {
        padded_len(self.bytes as usize)
    }
    /// Encodes the pointer.
    pub(crate) fn encode(self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        out[..6].copy_from_slice(&self.addr.get().to_le_bytes()[..6]);
        out[6..8].copy_from_slice(&self.bytes.to_le_bytes());
        out[8..].copy_from_slice(&self.crc.to_le_bytes());
        out
    }
    /// Decodes a pointer. Returns `None` if no page can have that length (all zeros, for one).
    pub(crate) fn decode(raw: [u8; Self::BYTES]) -> Option<Self> {
        let [a0, a1, a2, a3, a4, a5, b0, b1, c0, c1, c2, c3] = raw;
        let bytes = u16::from_le_bytes([b0, b1]);
        // Shorter pages have no item; longer ones do not exist.
        (HEADER + LEAF_ITEM..=PAGE_MAX)
            .contains(&usize::from(bytes))
            .then(|| Self {
                addr: Sector::new(u64::from_le_bytes([a0, a1, a2, a3, a4, a5, 0, 0])),
                bytes,
                crc: u32::from_le_bytes([c0, c1, c2, c3]),
                second: Sector::new(0),
            })
    }
    /// Encodes the address of the second copy, zeros if there is none.
    pub(crate) fn encode_second(self) -> [u8; Self::SECOND_BYTES] {
        let [a0, a1, a2, a3, a4, a5, ..] = self.second.get().to_le_bytes();
        [a0, a1, a2, a3, a4, a5]
    }
    /// Returns the pointer with the encoded address of a second copy.
    pub(crate) fn with_encoded_second(self, raw: [u8; Self::SECOND_BYTES]) -> Self {
        let [a0, a1, a2, a3, a4, a5] = raw;
        let second = Sector::new(u64::from_le_bytes([a0, a1, a2, a3, a4, a5, 0, 0]));
        Self { second, ..self }
    }

    /// Encodes a pointer that may be missing: as zeros then.
    pub(crate) fn encode_optional(ptr: Option<Self>) -> [u8; Self::BYTES] {
        ptr.map_or([0; Self::BYTES], Self::encode)
    }
    /// Decodes a pointer that may be missing. The outer `None` is damage.
    pub(crate) fn decode_optional(raw: [u8; Self::BYTES]) -> Option<Option<Self>> {
        // A zeroed pointer means that the tree is empty.
        if raw == [0; Self::BYTES] {
            Some(None)
        } else {
            Self::decode(raw).map(Some)
        }
    }
}

/// A page in memory.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    /// 0 exactly when the items are a leaf's.
    pub(crate) level: u8,
    pub(crate) items: NodeItems,
}

/// The items of a node, keys strictly ascending.
#[derive(Debug, Clone)]
pub(crate) enum NodeItems {
    Leaf(Vec<(u64, Box<[u8]>)>),
    Inner(Vec<(u64, Child)>),
}

/// A subtree: changed and owned, or unchanged and referred to.
#[derive(Debug, Clone)]
pub(crate) enum Child {
    Mem(Box<Node>),
    Disk(PagePtr),
}

impl Node {
    /// Returns how many items it has.
    pub(crate) fn len(&self) -> usize {
        match &self.items {
            NodeItems::Leaf(items) => items.len(),
            NodeItems::Inner(items) => items.len(),
        }
    }
    /// Returns whether it has no items; such a node is about to be dropped.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Returns the key of the first item, not above any key of the subtree. The node must not be
    /// empty.
    pub(crate) fn first_key(&self) -> u64 {
        debug_assert!(!self.is_empty(), "an empty node has no key");
        match &self.items {
            NodeItems::Leaf(items) => items[0].0,
            NodeItems::Inner(items) => items[0].0,
        }
    }
    /// Returns the key of the last item. The node must not be empty.
    pub(crate) fn last_key(&self) -> u64 {
        debug_assert!(!self.is_empty(), "an empty node has no key");
        match &self.items {
            NodeItems::Leaf(items) => items[items.len() - 1].0,
            NodeItems::Inner(items) => items[items.len() - 1].0,
        }
    }
    /// Returns the bytes of the encoding as a page of a tree, without padding.
    pub(crate) fn encoded_len(&self, kind: TreeKind) -> usize {
        HEADER
            + match &self.items {
                NodeItems::Leaf(items) => items.iter().map(|(_, value)| leaf_item_len(value)).sum(),
                NodeItems::Inner(items) => {
                    items.len() * inner_item_len(kind.page_version(self.level))
                }
            }
    }

    /// Encodes the node as a page, padded to whole sectors. Its children must be on disk already.
    pub(crate) fn encode(&self, kind: TreeKind, owner: ObjectNo) -> Vec<u8> {
        let length = self.encoded_len(kind);
        let version = kind.page_version(self.level);
        assert!(
            !self.is_empty() && length <= PAGE_MAX,
            "{} items, {length} bytes do not make a page",
            self.len()
        );
        assert!(
            self.level <= LEVEL_MAX
                && (self.level == 0) == matches!(self.items, NodeItems::Leaf(_))
        );
        let mut out = Vec::with_capacity(padded_len(length));
        out.extend(MAGIC);
        out.extend(version.to_le_bytes());
        out.extend([kind.code(), self.level]);
        out.extend((self.len() as u16).to_le_bytes());
        out.extend([KEY_WORDS, 0]);
        out.extend((length as u32).to_le_bytes());
        out.extend(owner.get().to_le_bytes());
        match &self.items {
            NodeItems::Leaf(items) => {
                for (key, value) in items {
                    out.extend(key.to_le_bytes());
                    out.extend((value.len() as u16).to_le_bytes());
                    out.extend_from_slice(value);
                }
            }
            NodeItems::Inner(items) => {
                for (key, child) in items {
                    let Child::Disk(ptr) = child else {
                        panic!("children are written before their parent")
                    };
                    out.extend(key.to_le_bytes());
                    out.extend(ptr.encode());
                    if version == VERSION_WITH_COPIES {
                        out.extend(ptr.encode_second());
                    }
                }
            }
        }
        assert_eq!(out.len(), length, "the length was promised in the header");
        out.resize(padded_len(length), 0);
        out
    }

    /// Decodes the page read from the sectors at `at`. Does not look at any checksum: see
    /// [`PagePtr::matches`].
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] unless the bytes are exactly one well-formed page that is as
    /// expected.
    pub(crate) fn decode(page: &[u8], at: Sector, want: ExpectedPage) -> Result<Self, StoreError> {
        Self::parse_page(page, want).ok_or_else(|| want.damaged_at(at))
    }

    fn parse_page(page: &[u8], want: ExpectedPage) -> Option<Self> {
        let mut head = PageDecoder(page);
        let magic: [u8; 4] = head.take_array()?;
        let version = u16::from_le_bytes(head.take_array()?);
        let [kind, level] = head.take_array()?;
        // Stores made before there were second copies have pages of version 1 everywhere.
        let known =
            magic == MAGIC && (version == VERSION || version == want.kind.page_version(level));
        let count = usize::from(u16::from_le_bytes(head.take_array()?));
        let [key_words, reserved] = head.take_array()?;
        let length = usize::try_from(u32::from_le_bytes(head.take_array()?)).ok()?;
        let owner = u64::from_le_bytes(head.take_array()?);
        // The reader knows from the parent which page this must be.
        let expected = kind == want.kind.code()
            && owner == want.owner.get()
            && want.level.is_none_or(|l| l == level);
        let shaped = key_words == KEY_WORDS && reserved == 0 && level <= LEVEL_MAX && count > 0;
        let fits = (HEADER..=PAGE_MAX).contains(&length) && page.len() == padded_len(length);
        // The padding must be zeros, so that a page has one form.
        if !(known && expected && shaped && fits && page[length..].iter().all(|&b| b == 0)) {
            return None;
        }
        let mut body = PageDecoder(&page[HEADER..length]);
        let items = if level == 0 {
            NodeItems::Leaf(body.take_leaf_items(count)?)
        } else {
            NodeItems::Inner(body.take_inner_items(count, version)?)
        };
        body.0.is_empty().then_some(Self { level, items })
    }
}

/// Returns the bytes that a leaf item takes in a page.
pub(crate) fn leaf_item_len(value: &[u8]) -> usize {
    LEAF_ITEM + value.len()
}

/// Returns the bytes that an interior item takes in a page of a version.
const fn inner_item_len(version: u16) -> usize {
    if version == VERSION_WITH_COPIES {
        INNER_ITEM + PagePtr::SECOND_BYTES
    } else {
        INNER_ITEM
    }
}

const fn padded_len(length: usize) -> usize {
    length.next_multiple_of(SECTOR_BYTES)
}

/// Takes a byte string apart from the front; nothing is taken past its end.
struct PageDecoder<'a>(&'a [u8]);

impl PageDecoder<'_> {
    fn take_array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }
    /// Takes the next key, which must be above those of `items`.
    fn take_key<T>(&mut self, items: &[(u64, T)]) -> Option<u64> {
        let key = u64::from_le_bytes(self.take_array()?);
        items
            .last()
            // Keys ascend strictly: a search relies on that.
            .is_none_or(|(last, _)| *last < key)
            .then_some(key)
    }
    fn take_leaf_items(&mut self, count: usize) -> Option<Vec<(u64, Box<[u8]>)>> {
        // A count may claim more items than the page can hold.
        let mut items = Vec::with_capacity(count.min(self.0.len() / LEAF_ITEM));
        for _ in 0..count {
            let key = self.take_key(&items)?;
            let len = usize::from(u16::from_le_bytes(self.take_array()?));
            // A page takes several items, whatever their sizes.
            let (value, rest) = self.0.split_at_checked(len).filter(|_| len <= VALUE_MAX)?;
            self.0 = rest;
            items.push((key, value.into()));
        }
        Some(items)
    }
    fn take_inner_items(&mut self, count: usize, version: u16) -> Option<Vec<(u64, Child)>> {
        let mut items = Vec::with_capacity(count.min(self.0.len() / inner_item_len(version)));
        for _ in 0..count {
            let key = self.take_key(&items)?;
            let mut ptr = PagePtr::decode(self.take_array()?)?;
            if version == VERSION_WITH_COPIES {
                ptr = ptr.with_encoded_second(self.take_array()?);
            }
            items.push((key, Child::Disk(ptr)));
        }
        Some(items)
    }
}

#[cfg(test)]
mod tests;
