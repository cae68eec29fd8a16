//! The reserves of a store's capacity: for checkpoints, for the cleaner, and for giving space back.

use crate::format::geometry::Geometry;

/// Segments that only the cleaner and checkpoints may start: one in this many, within bounds. The
/// more, the more one round can move.
const CLEANER_PART: u64 = 20;
const CLEANER_SEGMENTS: std::ops::RangeInclusive<u64> = 6..=64;
/// Fewer are set aside while fewer are in use, but no fewer than these.
const CLEANER_LEAST: u64 = 2;
/// A small store sets more aside anyhow.
const SMALL_CLEANER_PART: u64 = 12;
const SMALL_CLEANER: u64 = 10;
/// One part in this many of the capacity is set aside.
const RESERVE_PART: u64 = 10;
/// A checkpoint must always find room for all the pages that memory may hold, twice; a small store
/// has fewer.
const FOLD_RESERVE: u64 = 16 << 20;
const SMALL_PART: u64 = 4;
/// Set aside for each object: removing it, or moving its record, writes a page of the inode map and
/// of a directory anew, and many of them share those. About twice what an object takes in them,
/// with the second copy in the map.
const OBJECT_SPARE: u64 = 192;
/// So much is enough for as many pages as are changed between two checkpoints, several times.
pub(crate) const SPARE_MAX: u64 = 64 << 20;
/// Fewest segments set aside, beyond the cleaner's: for records, and for second copies of pages,
/// which need a segment that takes them, the next one, and what is dead of the last.
const RESERVE_SEGMENTS: u64 = 6 + COPY_SEGMENTS;
const COPY_SEGMENTS: u64 = 3;

/// Pure arithmetic over a store's geometry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reserves {
    geometry: Geometry,
}

impl Reserves {
    pub(crate) fn new(geometry: Geometry) -> Self {
        Self { geometry }
    }

    /// Returns the part of the capacity that files cannot take.
    pub(crate) fn of_capacity(&self) -> u64 {
        // The larger of a share and of some segments, so that small stores work, too.
        let capacity = self.geometry.capacity();
        (capacity / RESERVE_PART)
            .max(RESERVE_SEGMENTS * self.geometry.segment_bytes() + self.cleaner_most())
            .max((capacity / SMALL_PART).min(FOLD_RESERVE))
    }

    /// Returns what only the cleaner and checkpoints may start to fill, when so many segments are
    /// in use and there are so many objects. A store in a file has that much allocated: while there
    /// is little to clean, it is no more than what is in use already.
    pub(crate) fn of_cleaner(&self, segments_in_use: u64, objects: u64) -> u64 {
        // An empty store needs little cleaning.
        let in_use = segments_in_use.max(CLEANER_LEAST) * self.geometry.segment_bytes();
        // A checkpoint may begin a segment of second copies.
        let copies = self.geometry.segment_bytes();
        self.cleaner_most().min(in_use) + copies + Self::of_objects(objects)
    }

    /// Returns what is set aside for the pages that lead to the objects there are.
    pub(crate) fn of_objects(objects: u64) -> u64 {
        (objects * OBJECT_SPARE).min(SPARE_MAX)
    }

    fn cleaner_most(&self) -> u64 {
        let segments = u64::from(self.geometry.segments);
        // Small stores give a larger share, up to a bound.
        let small_store = (segments / SMALL_CLEANER_PART).min(SMALL_CLEANER);
        let share = (segments / CLEANER_PART).max(small_store);
        let within_bounds = share.clamp(*CLEANER_SEGMENTS.start(), *CLEANER_SEGMENTS.end());
        within_bounds * self.geometry.segment_bytes()
    }
}
