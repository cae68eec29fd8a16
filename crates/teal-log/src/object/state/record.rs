//! An object's state and its inode record: reading the record, and writing it whole or in part.

use super::{BlockContent, LoggedState, ObjectContent, ObjectState, RecordChange};
use crate::format::imap::RecordHome;
use crate::format::inode::{self, InodeCore, InodeItem};
use crate::object::directory::{DirectoryContent, DirectoryEntries};
use crate::object::extents::FileExtents;
use teal_types::{FileType, ObjectNo};

impl ObjectState {
    /// Reads a record; `None` when it makes no sense.
    pub(crate) fn decode(no: ObjectNo, home: Option<RecordHome>, bytes: &[u8]) -> Option<Self> {
        let (core, items) = inode::decode(bytes)?;
        let mut state = Self::new(core, Self::empty_content(core.kind));
        state.home = home;
        // A decoded state has nothing that the log lacks.
        state.record_change = RecordChange::Attributes;
        // Without a home, the record is not on the disk as a whole.
        state.logged = match home {
            Some(_) => LoggedState::WholeRecord,
            None => LoggedState::Nothing,
        };
        for item in items {
            state.add_item(no, item)?;
        }
        if let ObjectContent::Inline(data) = &state.content
            && data.len() as u64 != core.size
        {
            // A file without a stored byte is a hole from end to end.
            (core.kind == FileType::File && data.is_empty()).then_some(())?;
            state.blocks_mut();
        }
        Some(state)
    }

    /// Takes over attributes that a batch logged without the content; `None` when they belong to
    /// something else.
    pub(crate) fn take_core(&mut self, core: InodeCore) -> Option<()> {
        // An object never changes its type.
        (core.kind == self.core.kind).then_some(())?;
        self.core = core;
        self.move_to_blocks();
        // An inline file has exactly its size.
        match &self.content {
            ObjectContent::Inline(data) => (data.len() as u64 == core.size).then_some(()),
            _ => Some(()),
        }
    }

    fn add_item(&mut self, no: ObjectNo, item: InodeItem<'_>) -> Option<()> {
        let kind = self.core.kind;
        match (item, kind) {
            (InodeItem::Link(link), _) => self.links.push(link),
            (InodeItem::Xattr { name, value }, _) => {
                self.xattrs.insert(name.into(), value.into());
            }
            (InodeItem::Data(data), FileType::File | FileType::Symlink) => {
                self.content = ObjectContent::Inline(data.to_vec())
            }
            (InodeItem::Extent { block, extent }, FileType::File) => {
                match &mut self.blocks_mut().extents {
                    FileExtents::Few(map) => {
                        // Extents must ascend and not overlap.
                        let clear = map
                            .range(..block + extent.blocks())
                            .next_back()
                            .is_none_or(|(k, e)| k + e.blocks() <= block);
                        clear.then_some(())?;
                        map.insert(block, extent);
                    }
                    // A record has either a few extents or the root of a tree.
                    FileExtents::Tree(_) => return None,
                }
            }
            (InodeItem::ExtentTree(root), FileType::File) => {
                self.blocks_mut().extents = FileExtents::with_root(no, root)
            }
            (InodeItem::Entry { cookie, entry }, FileType::Dir) => match &mut self.content {
                ObjectContent::Dir(DirectoryContent {
                    entries: DirectoryEntries::Few(map),
                    ..
                }) => {
                    map.insert(cookie, entry);
                }
                _ => return None,
            },
            (InodeItem::DirTree(root), FileType::Dir) => {
                self.content = ObjectContent::Dir(DirectoryContent::with_root(no, root))
            }
            (InodeItem::Ignored, _) => {}
            _ => return None,
        }
        Some(())
    }

    /// Encodes the record without its content.
    pub(crate) fn encode_head(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        self.core.encode(&mut out);
        for link in &self.links {
            InodeItem::Link(link.clone()).encode(&mut out);
        }
        for (name, value) in &self.xattrs {
            InodeItem::Xattr { name, value }.encode(&mut out);
        }
        out
    }

    /// Encodes the whole record. Trees must be folded, blocks installed.
    pub(crate) fn encode_whole(&self) -> Vec<u8> {
        let mut out = self.encode_head();
        match &self.content {
            ObjectContent::Inline(data) if !data.is_empty() => {
                InodeItem::Data(data).encode(&mut out)
            }
            ObjectContent::Inline(_) | ObjectContent::None => {}
            ObjectContent::Blocks(BlockContent {
                extents: FileExtents::Few(map),
                ..
            }) => {
                // Few extents are part of the record.
                for (block, extent) in map {
                    InodeItem::Extent {
                        block: *block,
                        extent: extent.clone(),
                    }
                    .encode(&mut out);
                }
            }
            ObjectContent::Blocks(BlockContent {
                extents: FileExtents::Tree(tree),
                ..
            }) => {
                if let Some(root) = tree.root() {
                    InodeItem::ExtentTree(root).encode(&mut out);
                }
            }
            ObjectContent::Dir(DirectoryContent {
                entries: DirectoryEntries::Few(map),
                ..
            }) => {
                for (cookie, entry) in map {
                    InodeItem::Entry {
                        cookie: *cookie,
                        entry: entry.clone(),
                    }
                    .encode(&mut out);
                }
            }
            ObjectContent::Dir(DirectoryContent {
                entries: DirectoryEntries::Tree(tree),
                ..
            }) => {
                if let Some(root) = tree.root() {
                    InodeItem::DirTree(root).encode(&mut out);
                }
            }
        }
        out
    }

    /// Encodes the core and nothing else.
    pub(crate) fn core_bytes(&self) -> Vec<u8> {
        let mut core = Vec::with_capacity(inode::CORE);
        self.core.encode(&mut core);
        core
    }
}
