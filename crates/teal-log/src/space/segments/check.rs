//! The invariants of the segment table as a function, called after every batch where assertions are
//! on.

use super::SegmentTable;
use crate::format::geometry::Segment;
use crate::format::usage::SegmentUse;

impl SegmentTable {
    /// Checks that the sets and sums follow the table, and that none of the sets overlap. Changes
    /// that wait to be redone will give `surplus` bytes back: what became shared before a crash may
    /// count twice until then.
    ///
    /// # Panics
    /// If they do not.
    pub(crate) fn check_invariants(&self, surplus: u64) {
        let live: u64 = self.table.iter().map(|usage| u64::from(usage.live)).sum();
        assert_eq!(self.live, live, "the sum follows the table");
        assert!(
            self.free.is_disjoint(&self.unready),
            "a free segment is ready or not"
        );
        let free_bytes: u64 = self
            .free
            .iter()
            .map(|segment| self.geometry.usable_bytes(Segment(*segment)))
            .sum();
        assert_eq!(self.free_bytes, free_bytes, "the sum follows the set");
        for (segment, usage) in self.all_segments() {
            self.check_segment(segment, usage, surplus);
        }
    }

    fn check_segment(&self, segment: Segment, usage: &SegmentUse, surplus: u64) {
        let is_free = self.free.contains(&segment.0) || self.unready.contains(&segment.0);
        assert_ne!(
            is_free, usage.used,
            "segment {} is free or in use",
            segment.0
        );
        let holds_nothing = usage.live == 0 && usage.retained == 0;
        assert_eq!(
            self.dead.contains(&segment.0),
            usage.used && holds_nothing,
            "segment {} is dead if nothing in it lives",
            segment.0
        );
        // A fuzzed image may count what it likes.
        if !cfg!(any(test, feature = "fuzzing")) {
            assert!(
                u64::from(usage.live) <= self.geometry.segment_bytes() + surplus,
                "segment {} holds no more than it is long",
                segment.0
            );
        }
    }
}
