//! The places of all structures that the newest state refers to.

use super::{CheckOptions, RangeUse, StoreChecker};
use crate::format::anchor;
use crate::format::page::STORE_WIDE;
use crate::format::superblock::{self, Superblock};
use crate::store::handle::Store;
use teal_types::{ObjectNo, Sector};

/// Something that lives on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskPlace {
    /// The first byte, from the start of the disk.
    pub byte: u64,
    /// The length.
    pub bytes: u64,
    /// The structure, in words for people.
    pub what: &'static str,
    /// The object it belongs to; `None` if it belongs to the store as a whole.
    pub owner: Option<ObjectNo>,
}

impl Store {
    /// Returns all structures that the newest state refers to, in the order of their places.
    /// Structures that only damaged ones refer to are missing. Like [`Store::check`], this has to
    /// have the store for itself, and changes nothing.
    pub fn places(&self) -> Vec<DiskPlace> {
        // Nothing is written meanwhile, so places stay.
        let _committer = self.log.committer();
        let mut checker = StoreChecker::new(self, CheckOptions { verify_data: false });
        checker.check_objects(&mut |_| {});
        let mut places = Vec::new();
        let second = Superblock::second_copy(self.objects().sb.sectors);
        for at in [Sector::new(0), second] {
            places.push(DiskPlace::fixed(at, superblock::BYTES, "a superblock"));
        }
        for at in self.objects().geometry.anchor_slots() {
            places.push(DiskPlace::fixed(at, anchor::BYTES, "an anchor"));
        }
        for range in &checker.ranges {
            let what = match range.of {
                RangeUse::Page(kind) => kind.page_name(),
                RangeUse::SecondCopy(_) => "the second copy of a page",
                RangeUse::Inode => "an inode record",
                RangeUse::Content => "content",
                // Replaced pages are not part of the newest state.
                RangeUse::Leaving => continue,
            };
            places.push(DiskPlace {
                byte: range.byte,
                bytes: u64::from(range.bytes),
                what,
                owner: (range.owner != STORE_WIDE).then_some(range.owner),
            });
        }
        // By place, as a map of the disk.
        places.sort_unstable_by_key(|place| place.byte);
        places
    }
}

impl DiskPlace {
    /// Returns a structure at a fixed place.
    fn fixed(at: Sector, bytes: usize, what: &'static str) -> Self {
        Self {
            byte: at.byte_offset(),
            bytes: bytes as u64,
            what,
            owner: None,
        }
    }
}
