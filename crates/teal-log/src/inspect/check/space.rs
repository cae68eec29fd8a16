//! Live ranges against each other, the geometry and the usage table; records against what lives in
//! their segment.

use super::{CheckPhase, CheckProgress, LiveRange, RangeUse, Severity, StoreChecker};
use crate::format::delta::{Delta, decode_body};
use crate::format::extent::MappedExtent;
use crate::format::geometry::Segment;
use crate::format::record::{HEADER, RecordHeader, SectorRun};
use crate::format::segment_walk;
use crate::format::shared::SharedExtent;
use std::collections::HashSet;
use teal_types::{SECTOR, Sector};

impl StoreChecker<'_> {
    pub(super) fn check_space(&mut self, progress: &mut dyn FnMut(CheckProgress)) {
        let mut ranges = std::mem::take(&mut self.ranges);
        ranges.sort_unstable_by_key(|r| (r.byte, r.bytes));
        let mut end = (0, None::<LiveRange>);
        for range in &ranges {
            if range.byte < end.0
                && let Some(other) = end.1
            {
                let (a, b, owner) = (range.of, other.of, other.owner);
                let what = format!("{a:?} lies on {b:?} of object {owner}");
                self.add_problem(
                    Severity::Inconsistent,
                    Some(range.owner),
                    Some(range.byte / SECTOR),
                    what,
                );
            }
            if range.byte + u64::from(range.bytes) > end.0 {
                end = (range.byte + u64::from(range.bytes), Some(*range));
            }
        }
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
            (here, rest) = rest.split_at(rest.partition_point(|r| r.byte < stop));
            live += self.check_segment(Segment(segment), here);
        }
        for range in rest {
            self.add_problem(
                Severity::Inconsistent,
                Some(range.owner),
                Some(range.byte / SECTOR),
                "it lies in no segment",
            );
        }
        self.report.live = live;
        let counted = self.store.segments.lock().live_bytes();
        if counted != live {
            let what = format!("{counted} bytes are counted as live and {live} are");
            self.add_problem(Severity::Space, None, None, what);
        }
        progress(CheckProgress {
            phase: CheckPhase::Space,
            done: total,
            total,
        });
    }

    fn check_segment(&mut self, segment: Segment, ranges: &[LiveRange]) -> u64 {
        let geometry = self.store.geometry;
        let mut live = 0;
        for range in ranges {
            live += u64::from(range.bytes);
            let first = range.byte / SECTOR;
            let sectors = (range.byte + u64::from(range.bytes)).div_ceil(SECTOR) - first;
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
        if !usage.used && live > 0 {
            self.add_problem(
                Severity::Inconsistent,
                None,
                at,
                format!("segment {} is free and holds {live} live bytes", segment.0),
            );
        }
        if usage.used && live > 0 {
            self.check_records(segment, ranges);
        }
        live
    }

    /// The cleaner must find everything that lives in a segment by following its records.
    fn check_records(&mut self, segment: Segment, ranges: &[LiveRange]) {
        let (store, geometry) = (self.store, self.store.geometry);
        let usage = *store.segments.lock().get(segment);
        let whole = geometry.whole_run(segment);
        let mut header = vec![0; HEADER];
        let first = whole.addr.plus(u64::from(usage.first));
        let read = store.reader.read_raw(first, &mut header);
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
        if !self.options.verify_data {
            return;
        }
        let mut bytes = vec![0; (u64::from(whole.sectors) * SECTOR) as usize];
        if store.reader.read_raw(whole.addr, &mut bytes).is_err() {
            // Sector by sector, so that one bad sector hides only itself.
            for (i, sector) in (0..).zip(bytes.chunks_mut(SECTOR as usize)) {
                if store.reader.read_raw(whole.addr.plus(i), sector).is_err() {
                    sector.fill(0);
                }
            }
        }
        let mut pages = HashSet::new();
        let mut inodes = HashSet::new();
        let mut content = Vec::new();
        for found in segment_walk::walk_records(&geometry, &store.sb.uuid, segment, &usage, &bytes)
        {
            for placed in decode_body(found.body, found.header.deltas).flatten() {
                match placed.delta {
                    Delta::Inode(_) => drop(inodes.insert(found.body_byte + placed.at as u64)),
                    Delta::Page { ptr, .. } => drop(pages.insert(ptr.addr().byte_offset())),
                    Delta::Extent {
                        extent: MappedExtent::Own(extent),
                        ..
                    }
                    | Delta::SharedSet {
                        shared: SharedExtent { extent, .. },
                        ..
                    } => {
                        content.push((extent.addr.byte_offset(), extent.bytes()));
                    }
                    _ => {}
                }
            }
        }
        content.sort_unstable();
        // A part of an extent may have been shared: from each on, how far those up to it reach.
        let mut reach = 0;
        for (byte, bytes) in &mut content {
            reach = reach.max(*byte + *bytes);
            *bytes = reach - *byte;
        }
        for range in ranges {
            let known = match range.of {
                RangeUse::Page(_) => pages.contains(&range.byte),
                RangeUse::Inode => inodes.contains(&range.byte),
                RangeUse::Leaving => true,
                RangeUse::Content => {
                    let before = content.partition_point(|(byte, _)| *byte <= range.byte);
                    before > 0
                        && content[before - 1].0 + content[before - 1].1
                            >= range.byte + u64::from(range.bytes)
                }
            };
            if !known {
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
    }
}
