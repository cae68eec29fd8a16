//! Bounds on the pages that changes of the trees make new, known without looking at the disk.

use std::collections::BTreeMap;
use teal_types::ObjectNo;

/// A page at its largest, and the delta that tells of it.
pub(crate) const PAGE: u64 = 4096 + 64;
/// Numbers looked at together when the leaves of the inode map are counted.
const NEIGHBOURS: u64 = 256;
/// Most leaves that many numbers in a row can be spread over: a leaf spans at least fifty.
const LEAVES: u32 = NEIGHBOURS.div_ceil(50) as u32 + 1;
/// Levels of the inode map, at most, below 2^31 objects.
pub(crate) const LEVELS: u64 = 4;
/// Numbers that a page above the leaves spans, at least.
pub(crate) const SPANNED: u64 = 3000;
/// An item of the inode map, in a leaf at least half full.
pub(crate) const MAP_ITEM: u64 = 90;
/// A leaf of few items.
pub(crate) const SMALL_PAGE: u64 = 512 + 64 + 24;

/// The places at which the inode map changes, and so a bound on the leaves it changes.
#[derive(Debug, Default, Clone)]
pub(crate) struct LeafSpread {
    counts: BTreeMap<u64, u32>,
    leaves: u64,
}

impl LeafSpread {
    /// Adds an object that was not among them; says whether that may change another leaf.
    pub(crate) fn add(&mut self, no: ObjectNo) -> bool {
        let count = self.counts.entry(no.get() / NEIGHBOURS).or_default();
        *count += 1;
        // A place with many objects spreads over several leaves at most.
        let is_new = *count <= LEAVES;
        self.leaves += u64::from(is_new);
        is_new
    }

    pub(crate) fn remove(&mut self, no: ObjectNo) {
        let place = no.get() / NEIGHBOURS;
        let Some(count) = self.counts.get_mut(&place) else {
            return;
        };
        // The leaf counts only as long as objects need it.
        self.leaves -= u64::from(*count <= LEAVES);
        *count -= 1;
        if *count == 0 {
            self.counts.remove(&place);
        }
    }

    pub(crate) fn leaves(&self) -> u64 {
        self.leaves
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_share_leaves() {
        let mut places = LeafSpread::default();
        assert_eq!(
            (0..1000)
                .filter(|no| places.add(ObjectNo::new(*no)))
                .count() as u64,
            places.leaves()
        );
        assert_eq!(places.leaves(), 4 * u64::from(LEAVES));
        for no in 0..999 {
            places.remove(ObjectNo::new(no));
        }
        assert_eq!((places.leaves(), places.counts.len()), (1, 1));
        assert!(places.add(ObjectNo::new(1 << 40)));
    }
}
