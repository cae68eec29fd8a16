//! Live ranges against each other, the geometry and the usage table; records against what lives in
//! their segment.

use super::{CheckPhase, CheckProgress, LiveRange, RangeUse, Severity, StoreChecker};
use crate::format::delta::{Delta, decode_body};
use crate::format::extent::MappedExtent;
use crate::format::geometry::Segment;
use crate::format::record::{HEADER, RecordHeader, SectorRun};
use crate::format::segment_walk::{self, FoundRecord};
use crate::format::shared::SharedExtent;
use std::collections::HashSet;
use teal_types::{SECTOR, Sector};

impl StoreChecker<'_> {
    pub(super) fn check_space(&mut self, progress: &mut dyn FnMut(CheckProgress)) {
        let mut ranges = std::mem::take(&mut self.ranges);
        ranges.sort_unstable_by_key(|r| (r.byte, r.bytes));
        self.check_overlaps(&ranges);
        let total = u64::from(self.store.geometry.segments);
        let mut rest = &ranges[..];
        let mut live = 0;
        for segment in 0..self.store.geometry.segments {
            if segment % 64 == 0 {
                progress(CheckProgress {
                    phase: CheckPhase::Space,
                    done: u64::from(segment),
                    total,
                });
            }
            let whole = self.store.geometry.whole_run(Segment(segment));
            let stop = whole.addr.plus(u64::from(whole.sectors)).byte_offset();
            let here;
            // Ranges are sorted, so those of a segment are a prefix of the rest.
            (here, rest) = rest.split_at(rest.partition_point(|r| r.byte < stop));
            live += self.check_segment(Segment(segment), here);
        }
        // Ranges in the gap behind the last segment.
        for range in rest {
            self.add_problem(
                Severity::Inconsistent,
                Some(range.owner),
                Some(range.byte / SECTOR),
                "it lies in no segment",
            );
        }
        self.report.live = live;
        self.compare_live(live);
        progress(CheckProgress {
            phase: CheckPhase::Space,
            done: total,
            total,
        });
    }

    /// Compares the bytes that live in all segments with the sum of the table.
    fn compare_live(&mut self, live: u64) {
        let counted = self.store.segments.lock().live_bytes();
        if counted != live {
            let what = format!("{counted} bytes are counted as live and {live} are");
            self.add_problem(Severity::Space, None, None, what);
        }
    }

    /// Reports ranges that lie on others. The ranges are sorted.
    fn check_overlaps(&mut self, ranges: &[LiveRange]) {
        // The farthest end so far, and the range that reaches there.
        let mut end = (0, None::<LiveRange>);
        for range in ranges {
            if range.byte < end.0
                && let Some(other) = end.1
            {
                let a = range.of;
                let b = other.of;
                let owner = other.owner;
                let what = format!("{a:?} lies on {b:?} of object {owner}");
                self.add_problem(
                    Severity::Inconsistent,
                    Some(range.owner),
                    Some(range.byte / SECTOR),
                    what,
                );
            }
            // A range inside of another one must not hide what follows.
            if range.byte + u64::from(range.bytes) > end.0 {
                end = (range.byte + u64::from(range.bytes), Some(*range));
            }
        }
    }

    fn check_segment(&mut self, segment: Segment, ranges: &[LiveRange]) -> u64 {
        let geometry = self.store.geometry;
        let mut live = 0;
        for range in ranges {
            live += u64::from(range.bytes);
            let first = range.byte / SECTOR;
            let sectors = (range.byte + u64::from(range.bytes)).div_ceil(SECTOR) - first;
            // A range must not reach into anchors or the next segment.
            if !geometry.holds_run(SectorRun {
                addr: Sector::new(first),
                sectors: sectors as u32,
            }) {
                let what = format!("{:?} leaves the usable part of its segment", range.of);
                self.add_problem(Severity::Inconsistent, Some(range.owner), Some(first), what);
            }
        }
        let usage = *self.store.segments.lock().get(segment);
        let at = Some(geometry.whole_run(segment).addr.get());
        if u64::from(usage.live) != live {
            let what = format!(
                "segment {} is said to hold {} live bytes and holds {live}",
                segment.0, usage.live
            );
            self.add_problem(Severity::Space, None, at, what);
        }
        // A free segment may be overwritten at any time.
        if !usage.used && live > 0 {
            self.add_problem(
                Severity::Inconsistent,
                None,
                at,
                format!("segment {} is free and holds {live} live bytes", segment.0),
            );
        }
        if usage.holds_copies {
            self.check_copy_segment(ranges);
        } else if usage.used && live > 0 {
            self.check_records(segment, ranges);
        }
        live
    }

    /// Checks that a segment of second copies holds nothing else: nothing else would be found there
    /// by the cleaner.
    fn check_copy_segment(&mut self, ranges: &[LiveRange]) {
        for range in ranges {
            if !matches!(range.of, RangeUse::SecondCopy(_) | RangeUse::Leaving) {
                let what = format!("{:?} lies among second copies of pages", range.of);
                let at = Some(range.byte / SECTOR);
                self.add_problem(Severity::Inconsistent, Some(range.owner), at, what);
            }
        }
    }

    /// Checks that the cleaner can find everything that lives in a segment by following its
    /// records.
    fn check_records(&mut self, segment: Segment, ranges: &[LiveRange]) {
        let store = self.store;
        let geometry = self.store.geometry;
        let usage = *store.segments.lock().get(segment);
        let whole = geometry.whole_run(segment);
        let mut header = vec![0; HEADER];
        let first = whole.addr.plus(u64::from(usage.first));
        let read = store.reader.read_raw(first, &mut header);
        // The first record must be the one in the table, by its number.
        if read.is_err()
            || RecordHeader::decode(&header, &store.sb.uuid)
                .is_none_or(|h| h.seq != usage.first_seq)
        {
            let what = format!(
                "segment {} does not start with record {}",
                segment.0, usage.first_seq
            );
            return self.add_problem(Severity::Space, None, Some(first.get()), what);
        }
        // The rest reads the whole segment.
        if !self.options.verify_data {
            return;
        }
        let bytes = self.read_segment(segment);
        let records =
            segment_walk::walk_records(&geometry, &store.sb.uuid, segment, &usage, &bytes);
        let known = RecordedPlaces::collect(records);
        for range in ranges {
            if known.speak_of(range) {
                continue;
            }
            let what = format!(
                "no record of segment {} speaks of {:?}",
                segment.0, range.of
            );
            self.add_problem(
                Severity::Space,
                Some(range.owner),
                Some(range.byte / SECTOR),
                what,
            );
        }
    }

    /// Reads a whole segment. Sectors that cannot be read are zero.
    fn read_segment(&self, segment: Segment) -> Vec<u8> {
        let reader = &self.store.reader;
        let whole = self.store.geometry.whole_run(segment);
        let mut bytes = vec![0; (u64::from(whole.sectors) * SECTOR) as usize];
        if reader.read_raw(whole.addr, &mut bytes).is_err() {
            // Sector by sector, so that one bad sector hides only itself.
            for (i, sector) in (0..).zip(bytes.chunks_mut(SECTOR as usize)) {
                if reader.read_raw(whole.addr.plus(i), sector).is_err() {
                    sector.fill(0);
                }
            }
        }
        bytes
    }
}

/// The places in a segment that its records name.
#[derive(Default)]
struct RecordedPlaces {
    pages: HashSet<u64>,
    inodes: HashSet<u64>,
    /// Extents in their order: where each begins, and how many bytes from there on belong to it or
    /// to one before it.
    content: Vec<(u64, u64)>,
}

impl RecordedPlaces {
    fn collect<'a>(records: impl IntoIterator<Item = FoundRecord<'a>>) -> Self {
        let mut places = Self::default();
        for found in records {
            // Damaged deltas were reported with their record.
            for placed in decode_body(found.body, found.header.deltas).flatten() {
                match placed.delta {
                    Delta::Inode(_) => {
                        places.inodes.insert(found.body_byte + placed.at as u64);
                    }
                    Delta::Page { ptr, .. } => {
                        places.pages.insert(ptr.addr().byte_offset());
                    }
                    Delta::Extent {
                        extent: MappedExtent::Own(extent),
                        ..
                    }
                    | Delta::SharedSet {
                        shared: SharedExtent { extent, .. },
                        ..
                    } => places
                        .content
                        .push((extent.addr.byte_offset(), extent.bytes())),
                    _ => {}
                }
            }
        }
        places.content.sort_unstable();
        // A part of an extent may have been shared: from each on, how far those up to it reach.
        let mut reach = 0;
        for (byte, bytes) in &mut places.content {
            reach = reach.max(*byte + *bytes);
            *bytes = reach - *byte;
        }
        places
    }

    /// Returns whether the records name what lives in a range.
    fn speak_of(&self, range: &LiveRange) -> bool {
        match range.of {
            RangeUse::Page(_) => self.pages.contains(&range.byte),
            RangeUse::Inode => self.inodes.contains(&range.byte),
            RangeUse::SecondCopy(_) => false,
            RangeUse::Leaving => true,
            RangeUse::Content => {
                // The last extent that begins at or before the range.
                let before = self
                    .content
                    .partition_point(|(byte, _)| *byte <= range.byte);
                before > 0
                    && self.content[before - 1].0 + self.content[before - 1].1
                        >= range.byte + u64::from(range.bytes)
            }
        }
    }
}
