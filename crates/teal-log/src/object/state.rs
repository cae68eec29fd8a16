//! One object in memory.
//!
//! # Invariants
//! 1. Content that is not on the disk is never lost from memory: an object that the open batch
//!    changed (`in_batch`), or that has content pages or a core not folded since (`is_unfolded`), is
//!    held by the store's lists and not evicted.
//! 2. `home` is where the newest *whole* record lies; the state is that record plus the deltas in
//!    the log since the last checkpoint plus the changes of the open batch.

mod record;

use crate::format::checksum::crc;
use crate::format::extent::{EXTENT_BLOCKS, Extent, MappedExtent};
use crate::format::imap::RecordHome;
use crate::format::inode::{INLINE_CONTENT, InodeCore, ParentLink};
use crate::iovec::SharedBytes;
use crate::object::directory::{DirectoryContent, DirectoryEntries};
use crate::object::extents::FileExtents;
use crate::tree::freed::FreedSpace;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;
use teal_types::{BLOCK, FileType, Lsn, ObjectNo, Sector};

/// Files and symlinks up to this many bytes lie inside their inode record.
pub(crate) const INLINE_DATA: u64 = 2048;
/// Whole records up to this size go into every batch that changes the object; larger ones only as
/// deltas.
const WHOLE_RECORD: usize = 1536;

/// More blocks than any file has.
const EVERY_BLOCK: u64 = 1 << 52;

/// One block of content not yet in the log, and its checksum.
#[derive(Debug, Clone)]
pub(crate) struct DirtyBlock {
    bytes: SharedBytes,
    sum: u32,
}

impl DirtyBlock {
    pub(crate) fn new(bytes: SharedBytes) -> Self {
        // Computed when the block is written, so that errors in memory later do not go unnoticed.
        let sum = crc(&bytes);
        Self { bytes, sum }
    }

    pub(crate) fn bytes(&self) -> &SharedBytes {
        &self.bytes
    }

    /// Returns as many bytes of it as are stored, and their checksum.
    pub(crate) fn stored_bytes(&self, len: usize) -> (SharedBytes, u32) {
        // Only the last block of a file is stored in part.
        if len == self.bytes.len() {
            return (self.bytes.clone(), self.sum);
        }
        let bytes = self.bytes.subslice(0, len);
        debug_assert!(len < self.bytes.len());
        let sum = crc(&bytes);
        (bytes, sum)
    }
}

impl From<Vec<u8>> for DirtyBlock {
    fn from(bytes: Vec<u8>) -> Self {
        Self::new(bytes.into())
    }
}

/// A block on its way to another segment; its content is the one the extents lead to, as long as
/// they lead to where it came from.
#[derive(Debug, Clone)]
pub(crate) struct RelocatedBlock {
    pub(crate) bytes: DirtyBlock,
    pub(crate) from: Sector,
    /// When it was written first.
    pub(crate) born: Lsn,
}

#[derive(Debug, Default)]
pub(crate) struct BlockContent {
    pub(crate) extents: FileExtents,
    pub(crate) dirty: BTreeMap<u64, DirtyBlock>,
    /// Blocks that the cleaner has read; they are sealed behind everything that is new.
    pub(crate) moving: BTreeMap<u64, RelocatedBlock>,
    /// Ranges that became holes in the open batch, before what is dirty now: first block, count.
    pub(crate) holes: Vec<(u64, u64)>,
    /// The places of parts of shared extents in the open batch.
    pub(crate) remapped: RemappedRanges,
}

/// The changes of a file's map by sharing.
#[derive(Debug, Clone, Default)]
pub(crate) struct RemappedRanges {
    /// First block, count.
    pub(crate) ranges: Vec<(u64, u64)>,
    /// Parts put there.
    pub(crate) parts: usize,
}

impl RemappedRanges {
    pub(crate) fn add(&mut self, first: u64, count: u64, parts: usize) {
        self.ranges.push((first, count));
        self.parts += parts;
    }
}

#[derive(Debug)]
pub(crate) enum ObjectContent {
    None,
    Inline(Vec<u8>),
    Blocks(BlockContent),
    Dir(DirectoryContent),
}

/// Tells how much of an object's record must be written again with the next batch that seals it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RecordChange {
    /// No more than the attributes.
    Attributes,
    /// The links and extended attributes, too.
    Head,
    /// The whole record, wherever it lies now: the cleaner asks for this.
    Whole,
}

/// Tells how much of an object the log has, changes of the open batch apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoggedState {
    /// Nothing: a roll-forward would not know of the object.
    Nothing,
    /// Deltas that are newer than the record at `home`, or that have no such record.
    Deltas,
    /// The whole record at `home`, which nothing is newer than.
    WholeRecord,
}

/// Everything of an object; guarded by the lock of its [`CachedObject`].
#[derive(Debug)]
pub(crate) struct ObjectState {
    pub(crate) core: InodeCore,
    pub(crate) links: Vec<ParentLink>,
    pub(crate) xattrs: BTreeMap<Box<[u8]>, Box<[u8]>>,
    pub(crate) content: ObjectContent,
    pub(crate) home: Option<RecordHome>,
    /// The open batch cut the content to nothing: whatever blocks follow stand behind a hole from
    /// end to end.
    pub(crate) cut: bool,
    /// Changed in the open batch.
    pub(crate) in_batch: bool,
    /// The parts of the record that the open batch must write.
    pub(crate) record_change: RecordChange,
    /// The parts of the state that are in the log.
    pub(crate) logged: LoggedState,
    /// Given back: nothing but its number remains.
    pub(crate) gone: bool,
}

/// An object and its lock. The lock guards the state; I/O for this object's own pages and blocks
/// may be done under it.
#[derive(Debug)]
pub(crate) struct CachedObject {
    pub(crate) no: ObjectNo,
    pub(crate) state: Arc<RwLock<ObjectState>>,
    /// Bytes of the record it was read from: about what it holds in memory.
    pub(crate) record_len: usize,
}

impl CachedObject {
    pub(crate) fn new(no: ObjectNo, state: ObjectState, record_len: usize) -> Self {
        Self {
            no,
            state: Arc::new(RwLock::new(state)),
            record_len,
        }
    }
}

pub(crate) type ObjectRef = Arc<CachedObject>;

impl ObjectState {
    pub(crate) fn new(core: InodeCore, content: ObjectContent) -> Self {
        Self {
            core,
            links: Vec::new(),
            xattrs: BTreeMap::new(),
            content,
            home: None,
            cut: false,
            in_batch: false,
            record_change: RecordChange::Head,
            logged: LoggedState::Nothing,
            gone: false,
        }
    }

    /// Returns whether the next checkpoint must write the whole record.
    pub(crate) fn is_unfolded(&self) -> bool {
        self.logged != LoggedState::WholeRecord
    }

    /// Notes that links or extended attributes have changed.
    pub(crate) fn head_changed(&mut self) {
        self.record_change = self.record_change.max(RecordChange::Head);
    }

    /// Returns the content an object of this type starts with.
    pub(crate) fn empty_content(kind: FileType) -> ObjectContent {
        match kind {
            FileType::Dir => ObjectContent::Dir(DirectoryContent::new()),
            FileType::File | FileType::Symlink => ObjectContent::Inline(Vec::new()),
            FileType::Fifo | FileType::Socket | FileType::Char | FileType::Block => {
                ObjectContent::None
            }
        }
    }

    /// Turns the content into blocks; only for files.
    pub(crate) fn blocks_mut(&mut self) -> &mut BlockContent {
        if let ObjectContent::Inline(data) = &mut self.content {
            let mut dirty = BTreeMap::new();
            if !data.is_empty() {
                let mut block = std::mem::take(data);
                block.resize(BLOCK as usize, 0);
                dirty.insert(0, block.into());
            }
            // The log may know older blocks of a file that was cut to nothing.
            let holes = if self.cut {
                vec![(0, EVERY_BLOCK)]
            } else {
                Vec::new()
            };
            self.content = ObjectContent::Blocks(BlockContent {
                dirty,
                holes,
                ..BlockContent::default()
            });
        }
        match &mut self.content {
            ObjectContent::Blocks(blocks) => blocks,
            _ => unreachable!("only files are asked for blocks"),
        }
    }

    /// Moves the content into blocks, after a batch that held no whole record of this file. Blocks
    /// that had been inline have come as extents, or are holes.
    pub(crate) fn move_to_blocks(&mut self) {
        if self.core.kind == FileType::File && matches!(self.content, ObjectContent::Inline(_)) {
            self.content = ObjectContent::Blocks(BlockContent::default());
        }
    }

    /// Returns whether the content has a tree with pages that are not on the disk.
    pub(crate) fn has_dirty_tree(&self) -> bool {
        match &self.content {
            ObjectContent::Blocks(BlockContent {
                extents: FileExtents::Tree(tree),
                ..
            })
            | ObjectContent::Dir(DirectoryContent {
                entries: DirectoryEntries::Tree(tree),
                ..
            }) => tree.is_dirty(),
            _ => false,
        }
    }

    /// Returns whether a batch may hold the whole record: nothing of the content is elsewhere but
    /// on the disk, and it is small enough. Counts blocks that are dirty now as if each run of them
    /// became extents of its own.
    pub(crate) fn fits_whole(&self) -> bool {
        let content = match &self.content {
            ObjectContent::Inline(_) => return true,
            ObjectContent::None => 0,
            ObjectContent::Blocks(BlockContent {
                extents: FileExtents::Few(map),
                dirty,
                moving,
                ..
            }) => {
                // The begin of a run: the block before it is not there.
                let begins = |b: &u64, there: &dyn Fn(u64) -> bool| {
                    b.checked_sub(1).is_none_or(|p| !there(p))
                };
                let runs = dirty
                    .keys()
                    .filter(|b| begins(b, &|p| dirty.contains_key(&p)))
                    .count()
                    + moving
                        .keys()
                        .filter(|b| begins(b, &|p| moving.contains_key(&p)))
                        .count();
                let blocks = dirty.len() + moving.len();
                // Each run becomes an extent, and may split two others.
                let pieces = runs + blocks / EXTENT_BLOCKS as usize + 2 * map.len().min(runs);
                map.values().map(MappedExtent::item_len).sum::<usize>() + 40 * pieces + 4 * blocks
            }
            // A tree is not changed before the fold, so the record cannot be whole.
            ObjectContent::Blocks(BlockContent { dirty, moving, .. })
                if !dirty.is_empty() || !moving.is_empty() =>
            {
                return false;
            }
            _ if self.has_dirty_tree() => return false,
            ObjectContent::Dir(DirectoryContent {
                entries: DirectoryEntries::Few(map),
                ..
            }) => map.values().map(|e| 25 + e.name.as_bytes().len()).sum(),
            _ => 20,
        };
        // Small records are written whole, so that one read finds all of the object.
        let small = content <= INLINE_CONTENT && content + self.encode_head().len() <= WHOLE_RECORD;
        small || (self.record_change == RecordChange::Whole && content <= INLINE_CONTENT)
    }

    /// Returns the number of names, which is derived and never stored. A directory counts itself
    /// and the `..` of its subdirectories while it hangs in the tree.
    pub(crate) fn nlink(&self, no: ObjectNo) -> u32 {
        // Unix: a directory has its name, its own dot, and the dots of its subdirectories.
        match (
            self.core.kind.is_dir(),
            self.links.is_empty() && no != ObjectNo::ROOT,
        ) {
            (true, false) => self.core.subdirs.saturating_add(2),
            (true, true) => 0,
            (false, _) => self.links.len() as u32,
        }
    }

    /// Takes the pages that the content's tree has given up.
    pub(crate) fn take_freed_pages(&mut self, freed: &mut Vec<FreedSpace>) {
        if let ObjectContent::Blocks(BlockContent {
            extents: FileExtents::Tree(tree),
            ..
        })
        | ObjectContent::Dir(DirectoryContent {
            entries: DirectoryEntries::Tree(tree),
            ..
        }) = &mut self.content
        {
            freed.extend(tree.take_freed_space());
        }
    }

    /// Returns the number of pages of this object that only memory holds.
    pub(crate) fn mem_pages(&self) -> usize {
        match &self.content {
            ObjectContent::Blocks(BlockContent {
                extents: FileExtents::Tree(tree),
                ..
            })
            | ObjectContent::Dir(DirectoryContent {
                entries: DirectoryEntries::Tree(tree),
                ..
            }) => tree.mem_pages(),
            _ => 0,
        }
    }

    /// Returns the file's own extents among those that lie in the inode record itself.
    pub(crate) fn few_extents(&self) -> impl Iterator<Item = &Extent> {
        match &self.content {
            ObjectContent::Blocks(BlockContent {
                extents: FileExtents::Few(map),
                ..
            }) => Some(map.values()),
            _ => None,
        }
        .into_iter()
        .flatten()
        .filter_map(MappedExtent::as_own)
    }
}
