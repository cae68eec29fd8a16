//! The extents of one file: few of them in the inode, many in a tree of their own.
//!
//! # Invariants
//! 1. Extents never overlap. 2. What a change takes away is reported, piece by piece, for the
//!    segment table, the table of shared extents and the ledger of space.
//! 3. Unwritten extents read as holes do: only what sets room aside, or uses it, looks at them.

use crate::error::StoreError;
use crate::format::extent::MappedExtent;
use crate::format::page::{PagePtr, TreeKind};
use crate::tree::freed::FreedSpace;
use crate::tree::reader::CachedReader;
use crate::tree::{PageSource, Tree};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use teal_types::{ObjectNo, Sector};

mod unwritten;

#[derive(Debug)]
pub(crate) enum FileExtents {
    Few(BTreeMap<u64, MappedExtent>),
    Tree(Tree),
}

fn damaged_extent(object: u64, at: Sector) -> StoreError {
    StoreError::Corrupt {
        what: "an extent",
        at: at.get(),
        object: Some(ObjectNo::new(object)),
    }
}

impl Default for FileExtents {
    fn default() -> Self {
        Self::Few(BTreeMap::new())
    }
}

impl FileExtents {
    pub(crate) fn with_root(object: ObjectNo, root: PagePtr) -> Self {
        Self::Tree(Tree::with_root(TreeKind::Extents, object, Some(root)))
    }

    fn decode_item(object: ObjectNo, block: u64, value: &[u8]) -> Result<MappedExtent, StoreError> {
        MappedExtent::decode_at(block, value)
            .ok_or_else(|| damaged_extent(object.get(), Sector::new(0)))
    }

    /// Returns the extent that holds `block`, else the first one after it, with its first block.
    pub(crate) fn at_or_after(
        &self,
        src: &dyn PageSource,
        no: ObjectNo,
        block: u64,
    ) -> Result<Option<(u64, MappedExtent)>, StoreError> {
        let before = match self {
            Self::Few(map) => map
                .range(..=block)
                .next_back()
                .map(|(k, v)| (*k, v.clone())),
            Self::Tree(tree) => match tree.at_or_before(src, block)? {
                Some((k, v)) => Some((k, Self::decode_item(no, k, &v)?)),
                None => None,
            },
        };
        // The extent before may reach into the block.
        if let Some((start, extent)) = before
            && start + extent.blocks() > block
        {
            return Ok(Some((start, extent)));
        }
        Ok(match self {
            Self::Few(map) => map.range(block..).next().map(|(k, v)| (*k, v.clone())),
            Self::Tree(tree) => match tree.at_or_after(src, block)? {
                Some((k, v)) => Some((k, Self::decode_item(no, k, &v)?)),
                None => None,
            },
        })
    }

    /// Returns the extent that holds content of `block`, else of the first block after it that has
    /// content.
    pub(crate) fn content_at_or_after(
        &self,
        src: &dyn PageSource,
        no: ObjectNo,
        block: u64,
    ) -> Result<Option<(u64, MappedExtent)>, StoreError> {
        let mut at = block;
        loop {
            match self.at_or_after(src, no, at)? {
                // Nothing is stored there.
                Some((start, extent)) if extent.is_unwritten() => at = start + extent.blocks(),
                found => return Ok(found),
            }
        }
    }

    /// Returns the block behind the last extent.
    pub(crate) fn end_block(&self, src: &dyn PageSource, no: ObjectNo) -> Result<u64, StoreError> {
        Ok(match self {
            Self::Few(map) => map.last_key_value().map_or(0, |(k, v)| k + v.blocks()),
            Self::Tree(tree) => match tree.at_or_before(src, u64::MAX)? {
                Some((k, v)) => k + Self::decode_item(no, k, &v)?.blocks(),
                None => 0,
            },
        })
    }

    fn put_extent(
        &mut self,
        src: &dyn PageSource,
        block: u64,
        extent: MappedExtent,
    ) -> Result<(), StoreError> {
        match self {
            Self::Few(map) => {
                map.insert(block, extent);
            }
            Self::Tree(tree) => {
                let mut value = Vec::new();
                extent.encode(&mut value);
                tree.insert(src, block, &value)?;
            }
        }
        Ok(())
    }

    fn take_extent(&mut self, src: &dyn PageSource, block: u64) -> Result<(), StoreError> {
        match self {
            Self::Few(map) => {
                map.remove(&block);
            }
            Self::Tree(tree) => {
                tree.remove(src, block)?;
            }
        }
        Ok(())
    }

    /// Makes `count` blocks from `block` a hole.
    pub(crate) fn remove_range(
        &mut self,
        src: &dyn PageSource,
        no: ObjectNo,
        block: u64,
        count: u64,
        freed: &mut Vec<FreedSpace>,
    ) -> Result<(), StoreError> {
        let end = block.saturating_add(count);
        while let Some((start, extent)) = self
            .at_or_after(src, no, block)?
            .filter(|(start, _)| *start < end)
        {
            // An extent that reaches beyond the range is cut; its parts stay.
            let stop = start + extent.blocks();
            self.take_extent(src, start)?;
            if start < block {
                self.put_extent(src, start, extent.slice(0, block - start))?;
            }
            if stop > end {
                self.put_extent(src, end, extent.slice(end - start, stop - end))?;
            }
            let from = start.max(block);
            let to = stop.min(end);
            // One reference becomes none, one or two.
            let left = i32::from(start < block) + i32::from(stop > end);
            freed.push(FreedSpace::of_part(
                &extent.slice(from - start, to - from),
                left - 1,
            ));
        }
        Ok(())
    }

    /// Lets `extent` hold the blocks from `block` on. Few extents stay few, however large, until
    /// they [outgrow](Self::move_to_tree) the inode: a batch that writes the whole record must find
    /// them there.
    pub(crate) fn replace_range(
        &mut self,
        src: &dyn PageSource,
        no: ObjectNo,
        block: u64,
        extent: MappedExtent,
        freed: &mut Vec<FreedSpace>,
    ) -> Result<(), StoreError> {
        // The old extents of the range are freed first.
        self.remove_range(src, no, block, extent.blocks(), freed)?;
        self.put_extent(src, block, extent)
    }

    /// Returns the parts of shared extents, and the unwritten extents, that begin in these ranges.
    /// Does no I/O after [`warm`](Self::warm).
    pub(crate) fn remapped_in(
        &self,
        src: &dyn PageSource,
        no: ObjectNo,
        mut ranges: Vec<(u64, u64)>,
    ) -> Result<Vec<(u64, MappedExtent)>, StoreError> {
        ranges.sort_unstable();
        let mut found = Vec::new();
        let mut behind = 0;
        for (block, count) in ranges {
            // Ranges may overlap: each block is looked at once.
            let from = block.max(behind);
            let to = block + count;
            if from >= to {
                continue;
            }
            behind = to;
            match self {
                Self::Few(map) => found.extend(map.range(from..to).map(|(k, v)| (*k, v.clone()))),
                Self::Tree(tree) => tree.range(src, from, to - 1, &mut |k, v| {
                    found.push((k, Self::decode_item(no, k, v)?));
                    Ok(ControlFlow::Continue(()))
                })?,
            }
        }
        // A file's own extents are in the log already.
        found.retain(|(_, extent)| extent.as_own().is_none());
        Ok(found)
    }

    /// Moves extents that are too many for an inode record into a tree.
    pub(crate) fn move_to_tree(
        &mut self,
        src: &dyn PageSource,
        no: ObjectNo,
    ) -> Result<(), StoreError> {
        let Self::Few(map) = self else { return Ok(()) };
        // Few extents stay within the inode record.
        if map.values().map(MappedExtent::item_len).sum::<usize>()
            <= crate::format::inode::INLINE_CONTENT
        {
            return Ok(());
        }
        let map = std::mem::take(map);
        *self = Self::Tree(Tree::new(TreeKind::Extents, no));
        map.into_iter()
            .try_for_each(|(block, extent)| self.put_extent(src, block, extent))
    }

    /// Makes sure that changing these blocks later does no I/O.
    pub(crate) fn warm(
        &mut self,
        src: &CachedReader,
        block: u64,
        count: u64,
    ) -> Result<(), StoreError> {
        self.warm_shared(src, block, count)?;
        match self {
            Self::Few(_) => Ok(()),
            Self::Tree(tree) => tree.warm(src, block, block.saturating_add(count)),
        }
    }

    /// Makes sure that taking away these blocks changes the counts of shared extents without I/O,
    /// and cannot fail.
    pub(crate) fn warm_shared(
        &self,
        src: &CachedReader,
        block: u64,
        count: u64,
    ) -> Result<(), StoreError> {
        // The common case: nothing is shared.
        if src.shared.is_empty() {
            return Ok(());
        }
        let no = match self {
            Self::Few(_) => ObjectNo::new(0),
            Self::Tree(tree) => tree.owner(),
        };
        let end = block.saturating_add(count);
        // Each part has an entry in the table.
        let mut at = block;
        while let Some((start, extent)) = self
            .at_or_after(src, no, at)?
            .filter(|(start, _)| *start < end)
        {
            if let MappedExtent::Shared(slice) = &extent {
                src.shared.warm(src, slice.id)?;
            }
            at = start + extent.blocks();
        }
        Ok(())
    }
}
