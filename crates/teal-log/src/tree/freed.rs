//! The space that a change of a map frees: pieces of the disk, references to shared extents, and
//! room that was set aside.

use crate::format::extent::MappedExtent;
use crate::format::imap::RecordHome;
use crate::format::page::PagePtr;
use crate::tree::Tree;
use teal_types::{BLOCK, SECTOR};

/// The space that a change freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FreedSpace {
    /// A piece of the disk that is dead now.
    Piece { byte: u64, bytes: u64 },
    /// A part of a shared extent, of so many bytes; `more` extents refer to it than before: -1 when
    /// all of the part is gone, 1 when the rest is in two places.
    Shared { id: u64, bytes: u64, more: i32 },
    /// Room that was set aside for so many blocks.
    Unwritten { blocks: u64 },
}

impl Tree {
    /// Takes the space of the pages that the tree has stopped referring to since they were last
    /// taken.
    pub(crate) fn take_freed_space(&mut self) -> Vec<FreedSpace> {
        self.take_freed()
            .into_iter()
            .flat_map(FreedSpace::of_page)
            .collect()
    }
}

impl FreedSpace {
    /// Returns both copies of a page: the second one lives as long as the first.
    pub(crate) fn of_page(ptr: PagePtr) -> impl Iterator<Item = Self> {
        ptr.places().map(move |at| Self::Piece {
            byte: at.byte_offset(),
            bytes: ptr.sectors() * SECTOR,
        })
    }
    pub(crate) fn of_home(home: RecordHome) -> Self {
        Self::Piece {
            byte: home.byte,
            bytes: u64::from(home.len),
        }
    }
    /// Returns all of an extent.
    pub(crate) fn of_extent(extent: &MappedExtent) -> Self {
        Self::of_part(extent, -1)
    }
    pub(crate) fn of_part(part: &MappedExtent, more: i32) -> Self {
        let bytes = part.counted_sectors() * SECTOR;
        match part {
            MappedExtent::Own(extent) => Self::Piece {
                byte: extent.addr.byte_offset(),
                bytes,
            },
            MappedExtent::Shared(slice) => Self::Shared {
                id: slice.id,
                bytes,
                more,
            },
            MappedExtent::Unwritten(_) => Self::Unwritten {
                blocks: part.blocks(),
            },
        }
    }
    /// Returns the bytes of content or pages, or of the blocks that they were to be.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Piece { bytes, .. } | Self::Shared { bytes, .. } => *bytes,
            Self::Unwritten { blocks } => blocks * BLOCK,
        }
    }
    /// Returns the number of blocks for which room was set aside.
    pub(crate) fn unwritten_blocks(freed: &[Self]) -> u64 {
        freed
            .iter()
            .map(|space| match space {
                Self::Unwritten { blocks } => *blocks,
                Self::Piece { .. } | Self::Shared { .. } => 0,
            })
            .sum()
    }
}
