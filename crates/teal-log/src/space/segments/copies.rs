//! The segments that take second copies of pages, which lie outside of the chain of records.
//!
//! # Invariants
//! 1. At least one segment lies between a page and its second copy ([`APART`]).
//! 2. A segment holds second copies or records, never both. The one that takes further copies is
//!    never free.

use super::SegmentTable;
use crate::format::delta::CopyPosition;
use crate::format::geometry::Segment;
use crate::format::usage::SegmentUse;
use crate::seeded::{Bug, bug};
use teal_types::Sector;

/// The numbers of the segments of a page and of its second copy differ by at least so much.
pub(crate) const APART: u32 = 2;

impl SegmentTable {
    /// Takes over where a checkpoint says that further second copies go. Returns `None` when no
    /// store says so.
    pub(crate) fn restore_copies(&mut self, at: Option<CopyPosition>) -> Option<()> {
        if let Some(at) = at {
            let usage = self.table.get(at.segment as usize)?;
            let sectors = u64::from(self.geometry.whole_run(Segment(at.segment)).sectors);
            if !usage.holds_copies || u64::from(at.sectors) > sectors {
                return None;
            }
        }
        self.copies = at;
        Some(())
    }

    /// Returns where further second copies go.
    pub(crate) fn copy_position(&self) -> Option<CopyPosition> {
        self.copies
    }

    /// Returns the segment that takes second copies.
    pub(super) fn copy_segment(&self) -> Option<Segment> {
        self.copies.map(|at| Segment(at.segment))
    }

    /// Returns the segments that hold second copies, each with its live bytes.
    pub(crate) fn copy_segments(&self) -> impl Iterator<Item = (Segment, u64)> + '_ {
        self.all_segments()
            .filter(|(_, usage)| usage.holds_copies)
            .map(|(segment, usage)| (segment, u64::from(usage.live)))
    }

    /// Begins the copies of a checkpoint: they share no physical sector with those before.
    pub(crate) fn align_copies(&mut self) {
        if let Some(at) = &mut self.copies {
            at.sectors = at.sectors.next_multiple_of(self.geometry.align as u32);
        }
    }

    /// Takes the place of the second copy of a page at `first`, so many sectors long. `new` says
    /// whether a free segment may be taken for it. Returns `None` if there is no such place.
    pub(crate) fn place_copy(&mut self, first: Sector, sectors: u64, new: bool) -> Option<Sector> {
        let page = self.geometry.segment_of(first)?;
        if !self.copies_fit(page, sectors) {
            let segment = self.next_copy_segment(page).filter(|_| new)?;
            self.begin_copies(segment);
        }
        let at = self.copies.as_mut()?;
        let start = self.geometry.whole_run(Segment(at.segment)).addr;
        let place = start.plus(u64::from(at.sectors));
        at.sectors += sectors as u32;
        let interval = self.interval;
        let segment = at.segment;
        self.edit_item(Segment(segment), |usage| usage.touched = interval);
        Some(place)
    }

    /// Returns whether the present segment of copies can take one of a page in segment `page`.
    fn copies_fit(&self, page: Segment, sectors: u64) -> bool {
        self.copies.is_some_and(|at| {
            let usable = self.geometry.usable_run(Segment(at.segment));
            let whole = self.geometry.whole_run(Segment(at.segment));
            let end = usable.addr.get() + u64::from(usable.sectors) - whole.addr.get();
            let is_apart = at.segment.abs_diff(page.0) >= APART || bug(Bug::CopiesTogether);
            is_apart
                && u64::from(at.sectors) + sectors
                    <= end / self.geometry.align * self.geometry.align
        })
    }

    /// Returns the free segment that the log comes to last among those far enough from `page`.
    fn next_copy_segment(&self, page: Segment) -> Option<Segment> {
        if bug(Bug::CopiesTogether) {
            let mut near = self.free.range(page.0..).map(|segment| Segment(*segment));
            return near.find(|segment| !self.is_reserved(*segment));
        }
        let behind = self.free.range(..page.0).rev();
        behind
            .chain(self.free.range(page.0..).rev())
            .map(|segment| Segment(*segment))
            .find(|segment| {
                let is_apart = segment.0.abs_diff(page.0) >= APART;
                is_apart && !self.is_reserved(*segment)
            })
    }

    fn begin_copies(&mut self, segment: Segment) {
        let interval = self.interval;
        self.edit_item(segment, |usage| {
            *usage = SegmentUse {
                used: true,
                holds_copies: true,
                touched: interval,
                ..SegmentUse::default()
            };
        });
        let skip = self.geometry.usable_run(segment).addr.get()
            - self.geometry.whole_run(segment).addr.get();
        self.copies = Some(CopyPosition {
            segment: segment.0,
            sectors: skip as u32,
        });
    }
}
