//! The head of the log: the run that the next record goes to, and the run after it.

use super::SegmentTable;
use crate::format::geometry::Segment;
use crate::format::record::SectorRun;
use teal_types::Sector;

/// A run shorter than this many sectors is not worth a record.
const SHORTEST_RUN: u64 = 16;

/// The position of the next record.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LogHead {
    pub(crate) a: SectorRun,
    pub(crate) b: SectorRun,
}

impl SegmentTable {
    pub(crate) fn log_head(&self) -> LogHead {
        self.head
    }

    /// Takes over the head that the last record's header names.
    pub(crate) fn set_head(&mut self, head: LogHead) {
        self.head = head;
        self.named = head;
        // A usage table older than the last reuse of a free segment would call it used.
        for run in [head.a, head.b] {
            if run.sectors > 0
                && self
                    .geometry
                    .segment_of(run.addr)
                    .is_some_and(|s| self.geometry.usable_run(s) == run)
            {
                self.start_anew(run.addr);
            }
        }
    }

    /// Gives the rest of the first run up, if the last record's header names the second one.
    pub(crate) fn skip_run(&mut self) -> bool {
        // Only a run that a header names can be found by recovery.
        let is_named = self.head.b.sectors > 0 && self.head.b == self.named.b;
        if is_named {
            self.head = LogHead {
                a: self.head.b,
                b: SectorRun::default(),
            };
            self.refill_head();
        }
        is_named
    }

    /// Returns whether something is about to be written to a segment: records or second copies.
    pub(super) fn is_reserved(&self, segment: Segment) -> bool {
        [self.head.a, self.head.b]
            .iter()
            .any(|run| run.sectors > 0 && self.geometry.segment_of(run.addr) == Some(segment))
            || self.copy_segment() == Some(segment)
    }

    /// Returns the segments of the head, its successor and further second copies, each once.
    pub(super) fn head_segments(&self) -> impl Iterator<Item = Segment> {
        let of = |run: SectorRun| {
            if run.sectors > 0 {
                self.geometry.segment_of(run.addr)
            } else {
                None
            }
        };
        let a = of(self.head.a);
        let b = of(self.head.b);
        let b = b.filter(|_| a != b);
        [a, b, self.copy_segment()].into_iter().flatten()
    }

    /// Returns the next free segment after the head, ready ones only or unready ones only.
    pub(crate) fn next_free(&self, ready: bool) -> Option<Segment> {
        // Behind the head, so that the log moves in one direction.
        let from = self
            .geometry
            .segment_of(self.head.b.addr.max(self.head.a.addr))
            .map_or(0, |s| s.0 + 1);
        let set = if ready { &self.free } else { &self.unready };
        // Around the end of the disk.
        set.range(from..)
            .chain(set.range(..from))
            .map(|s| Segment(*s))
            .find(|s| !self.is_reserved(*s))
    }

    /// Moves the head behind a record that ended at `end`; picks the runs that its header names.
    pub(crate) fn advance_head(&mut self, end: Sector) -> LogHead {
        // Records begin at multiples of the alignment.
        let end = Sector::new(end.get().next_multiple_of(self.geometry.align));
        let segment = self
            .geometry
            .segment_of(Sector::new(end.get() - 1))
            .expect("records lie in segments");
        let usable = self.geometry.usable_run(segment);
        let left = (usable.addr.get() + u64::from(usable.sectors)).saturating_sub(end.get());
        // The log has moved on to the successor's segment.
        let b_used = self.geometry.segment_of(self.head.b.addr) == Some(segment);
        if b_used {
            self.head.b = SectorRun::default();
        }
        // A rest that is too short for a record is left unused.
        if left >= SHORTEST_RUN.max(2 * self.geometry.align) {
            self.head.a = SectorRun {
                addr: end,
                sectors: left as u32,
            };
        } else {
            self.head.a = std::mem::take(&mut self.head.b);
        }
        // The header names both runs, so both must be known now.
        self.refill_head();
        self.named = self.head;
        self.head
    }

    /// Gives the head a second run if it has none and one is free.
    pub(crate) fn refill_head(&mut self) {
        // Twice, because the successor may become the head.
        for _ in 0..2 {
            if self.head.b.sectors == 0
                && let Some(segment) = self.next_free(true)
            {
                self.head.b = self.geometry.usable_run(segment);
            }
            if self.head.a.sectors == 0 {
                self.head.a = std::mem::take(&mut self.head.b);
            }
        }
    }
}
