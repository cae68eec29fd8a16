//! The cost of operations: the most space they take in the log. All costs are computed here, from
//! named quantities.
//!
//! # How
//! 1. An operation is named by a constructor ([`Cost::create`], [`Cost::write`], ...), which counts
//!    its fixed parts: its objects with their records and pages of the inode map, the paths of
//!    directories it changes, its content.
//! 2. The variable parts are added by quantity: names and extended attributes that are written
//!    again ([`with_head`](Cost::with_head)), notes ([`with_note`](Cost::with_note)), further
//!    objects, content.
//! 3. The space that an operation took is compared with its cost when it ends, in every build: a
//!    cost that is too small is logged with the name of the operation, and a debug build panics
//!    where it was made. It does not come up as a lack of room at some later commit.

use crate::format::note_key::PIECE;
use crate::tree::page_bounds::PAGE;
use teal_types::BLOCK;
use teal_types::limits::TARGET_MAX;

/// The fixed part of an inode record, and its content if that is inside it: the target of a
/// symbolic link is the longest.
const RECORD: u64 = 192 + TARGET_MAX as u64;
/// An object of an operation: a leaf of the inode map and a page above it, its attributes, and its
/// record without names and extended attributes, which may leave as much unused as it takes.
const OBJECT: u64 = 2 * PAGE + 2 * 192 + 2 * RECORD;
/// The path to an item of a tree, every page of it written anew: four levels hold more than a
/// million items.
const PATH: u64 = 4 * PAGE;
/// A block of content with its delta, its checksum, and what two more items in half full pages
/// take.
pub(crate) const BLOCK_TAKES: u64 = BLOCK + 64 + 192;
/// A piece of content meets parts of two blocks that it does not fill.
const PIECE_ENDS: u64 = 2;
/// The cost of a name added or removed in a directory with its record and path counted already: the
/// entry, and a page of the directory's tree.
const NAME: u64 = 5120;
/// A hole that is filled: its delta, and the pages of the file's tree on both sides and above.
const HOLE_FILLED: u64 = 3 * PAGE + 2 * 160;
/// Names and extended attributes are in a delta, and in a record that may leave as much unused as
/// it takes.
const HEAD_TIMES: u64 = 3;
/// The header of a name or an extended attribute in a record.
const HEAD_ITEM: u64 = 32;
/// Header of the delta of a piece of a note, and an item in a half full page.
pub(crate) const NOTE_ITEM: usize = 64 + 2 * 16;

/// Returns the blocks that `len` bytes take in the log, wherever they begin.
const fn content_bytes(len: u64) -> u64 {
    // Pieces may begin and end within a block, and within room that is set aside: its extent goes,
    // and what is left of it may split a page on either side.
    (len / BLOCK + PIECE_ENDS) * BLOCK_TAKES + PIECE_ENDS * PAGE
}

/// Which operation a cost is of, for messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum OperationKind {
    /// Makes an object.
    Create,
    /// Gives an object one more name.
    Link,
    /// Takes a name away.
    Unlink,
    /// Changes the name of an object, or exchanges two.
    Rename,
    /// Writes content.
    Write,
    /// Changes the length of a file, or makes a hole.
    Cut,
    /// Changes attributes.
    SetAttributes,
    /// Changes an extended attribute.
    SetXattr,
    /// Gives an object back.
    Free,
    /// Lets two files share content.
    Share,
    /// Changes notes and nothing else.
    Note,
    /// Takes over a whole state of an object from elsewhere.
    Install,
    /// Changes some objects and their names.
    Names,
    /// Sets room aside for content.
    Preallocate,
}

impl OperationKind {
    /// Every operation, in the order of their numbers.
    const ALL: [Self; 14] = [
        Self::Create,
        Self::Link,
        Self::Unlink,
        Self::Rename,
        Self::Write,
        Self::Cut,
        Self::SetAttributes,
        Self::SetXattr,
        Self::Free,
        Self::Share,
        Self::Note,
        Self::Install,
        Self::Names,
        Self::Preallocate,
    ];

    /// Returns the bit that stands for the kind in a set of operations.
    pub(crate) fn bit_in_set(self) -> u64 {
        1 << (self as u8)
    }

    /// Returns the operations of a set.
    // Each kind has a bit of its own.
    pub(crate) fn of_bits(bits: u64) -> Vec<Self> {
        let is_in = |operation: &Self| bits & operation.bit_in_set() != 0;
        Self::ALL.into_iter().filter(is_in).collect()
    }
}

/// The most space that an operation may take in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    operation: OperationKind,
    bytes: u64,
    /// The part of it for which room is set aside already.
    covered: u64,
    purpose: SpacePurpose,
}

impl Cost {
    const fn of_kind(operation: OperationKind, bytes: u64) -> Self {
        Self {
            operation,
            bytes,
            covered: 0,
            purpose: SpacePurpose::Grows,
        }
    }

    /// Returns the cost of making an object, with a name in a directory or in the orphan set.
    pub const fn create() -> Self {
        // The new object and its directory.
        Self::of_kind(OperationKind::Create, 2 * OBJECT + 2 * PATH)
    }

    /// Returns the cost of giving an object one more name.
    pub const fn link() -> Self {
        Self::of_kind(OperationKind::Link, 2 * OBJECT + 2 * PATH)
    }

    /// Returns the cost of taking a name away; without a name the object joins the orphan set.
    pub const fn unlink() -> Self {
        Self::of_kind(OperationKind::Unlink, 2 * OBJECT + 2 * PATH)
    }

    /// Returns the cost of changing a name: two directories, the object, and another one that had
    /// the name, or lies above.
    pub const fn rename() -> Self {
        // Both directories, the object, and the one that had the name.
        Self::of_kind(OperationKind::Rename, 4 * OBJECT + 3 * PATH)
    }

    /// Returns the cost of any operation on so many objects and their names.
    pub const fn names(objects: u64) -> Self {
        Self::of_kind(OperationKind::Names, objects * (OBJECT + PATH))
    }

    /// Returns the cost of writing `len` bytes into a file, wherever they begin.
    pub const fn write(len: u64) -> Self {
        Self::of_kind(OperationKind::Write, OBJECT + PATH + content_bytes(len))
    }

    /// Returns the cost of setting room aside for so many blocks in so many holes, that room
    /// included; a small file becomes one with blocks.
    pub(crate) const fn preallocate(blocks: u64, holes: u64) -> Self {
        let bytes = OBJECT + PATH + content_bytes(0) + holes * HOLE_FILLED;
        Self::of_kind(OperationKind::Preallocate, bytes + blocks * BLOCK_TAKES)
    }

    /// Returns the cost of changing the length of a file, or of making a hole: the blocks at the
    /// ends are written again.
    pub const fn cut() -> Self {
        Self::of_kind(OperationKind::Cut, OBJECT + 2 * PATH + content_bytes(0))
    }

    /// Returns the cost of changing the attributes of an object, and the length of a file.
    pub const fn set_attributes() -> Self {
        Self::of_kind(
            OperationKind::SetAttributes,
            OBJECT + 2 * PATH + content_bytes(0),
        )
    }

    /// Returns the cost of changing an extended attribute to a value of so many bytes, its name
    /// included.
    pub const fn set_xattr(len: u64) -> Self {
        Self::of_kind(
            OperationKind::SetXattr,
            OBJECT + HEAD_TIMES * (HEAD_ITEM + len),
        )
    }

    /// Returns the cost of giving an object back, or of a step of that: it frees more than it
    /// takes.
    pub const fn free() -> Self {
        Self::of_kind(OperationKind::Free, OBJECT + 2 * PATH + content_bytes(0)).freeing()
    }

    /// Returns the cost of letting files share content. `bytes` are taken by the extents and
    /// references of the step.
    pub(crate) const fn share(bytes: u64) -> Self {
        Self::of_kind(OperationKind::Share, bytes)
    }

    /// Returns the cost of changing notes and nothing else.
    pub const fn note() -> Self {
        Self::of_kind(OperationKind::Note, OBJECT)
    }

    /// Returns the cost of taking over a state of an object from elsewhere: attributes, a length,
    /// no content.
    pub const fn install() -> Self {
        Self::of_kind(OperationKind::Install, OBJECT + 2 * PATH + content_bytes(0))
    }

    const fn plus_bytes(mut self, bytes: u64) -> Self {
        self.bytes += bytes;
        self
    }

    /// Adds objects that are changed too, so many.
    #[must_use]
    pub const fn with_objects(self, count: u64) -> Self {
        self.plus_bytes(count * (OBJECT + PATH))
    }

    /// Adds names that are set or removed in directories that are counted already, so many.
    #[must_use]
    pub const fn with_names(self, count: u64) -> Self {
        self.plus_bytes(count * NAME)
    }

    /// Adds all names and extended attributes of an object, which are written again: they are so
    /// many bytes ([`head_bytes`](crate::Store::head_bytes)), or become so many more.
    #[must_use]
    pub const fn with_head(self, bytes: u64) -> Self {
        self.plus_bytes(HEAD_TIMES * bytes)
    }

    /// Adds a piece of content of so many bytes, elsewhere in the file.
    #[must_use]
    pub const fn with_piece(self, len: u64) -> Self {
        self.plus_bytes(content_bytes(len))
    }

    /// Adds a note of at most so many bytes.
    #[must_use]
    pub const fn with_note(self, len: usize) -> Self {
        // Pieces of a note may be replaced one by one.
        let pieces = len / PIECE + 2;
        self.plus_bytes(PATH + (2 * len + pieces * (NOTE_ITEM + 4096 / 4)) as u64)
    }

    /// Adds notes, so many, each of at most so many bytes.
    #[must_use]
    pub const fn with_notes(self, count: usize, len: usize) -> Self {
        let mut cost = self;
        let mut left = count;
        while left > 0 {
            cost = cost.with_note(len);
            left -= 1;
        }
        cost
    }

    /// Adds what another operation takes that is done under the same one.
    #[must_use]
    // The purpose of the first one holds.
    pub const fn and_also(self, other: Self) -> Self {
        self.plus_bytes(other.bytes)
    }

    /// Returns the cost of the same operation as one that gives space back.
    #[must_use]
    pub const fn freeing(mut self) -> Self {
        self.purpose = SpacePurpose::Frees;
        self
    }

    /// Returns the cost of the same operation as one that takes about what it gives back.
    #[must_use]
    pub const fn replacing(mut self) -> Self {
        self.purpose = SpacePurpose::Replaces;
        self
    }

    /// Returns the cost of the same operation on a file with room set aside
    /// ([`Store::room_at`](crate::Store::room_at)): for so many of the blocks that it writes, and
    /// perhaps for blocks beside them.
    #[must_use]
    pub const fn covered_by_room(mut self, blocks: u64) -> Self {
        let room = blocks * BLOCK_TAKES;
        self.covered = if room < self.bytes { room } else { self.bytes };
        self.purpose = SpacePurpose::Preallocated;
        self
    }

    /// Returns the part of what it takes that room covers which is set aside, in bytes.
    pub const fn covered_bytes(&self) -> u64 {
        self.covered
    }

    /// Returns what it takes beyond room that is set aside, in bytes.
    pub const fn uncovered_bytes(&self) -> u64 {
        self.bytes - self.covered
    }

    /// Returns what it takes, in bytes.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns what it does to the space in use in the end.
    pub const fn purpose(&self) -> SpacePurpose {
        self.purpose
    }

    /// Returns which operation it is of.
    pub const fn operation_kind(&self) -> OperationKind {
        self.operation
    }
}

/// The effect of an operation on the space in use; this decides how far into the reserve it may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpacePurpose {
    /// May take more: nothing of the reserve.
    Grows,
    /// Takes about what it gives back: a quarter of it.
    Replaces,
    /// Gives back: half of it.
    Frees,
    /// Takes room that is set aside: for the rest, as [`Replaces`](Self::Replaces), and half of
    /// what is set aside for the cleaner.
    Preallocated,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_add_up() {
        let one = Cost::note().with_note(5000);
        let two = Cost::note().with_notes(2, 5000);
        let each = one.bytes() - Cost::note().bytes();
        assert_eq!(two.bytes(), Cost::note().bytes() + 2 * each);
        assert!(each >= 2 * 5000, "a note is in its delta and in a page");
        let both = Cost::write(100).and_also(Cost::set_xattr(10)).replacing();
        assert_eq!(
            both.bytes(),
            Cost::write(100).bytes() + Cost::set_xattr(10).bytes()
        );
        assert_eq!(
            (both.operation_kind(), both.purpose()),
            (OperationKind::Write, SpacePurpose::Replaces)
        );
    }

    #[test]
    fn a_set_of_operations_names_them() {
        let bits = OperationKind::Rename.bit_in_set() | OperationKind::Install.bit_in_set();
        assert_eq!(
            OperationKind::of_bits(bits),
            [OperationKind::Rename, OperationKind::Install]
        );
        assert_eq!(OperationKind::of_bits(u64::MAX), OperationKind::ALL);
    }
}
