//! The records that can be read in all segments, whether or not the log leads to them. For repair
//! only: a store that is opened follows its log.
//!
//! # Guarantees
//! 1. *Whole*: header and body of every record match their checksums. The payload of the first
//!    record of a stretch does too, unless the record begins where its segment begins.
//! 2. *No content*: bytes of files are never taken for records. What lies inside a whole record is
//!    stepped over, and what a body nearby claims as content is content. A segment begins with a
//!    record, never with content.
//! 3. *Agreement*: a stretch of records, linked by number and digest, is *confirmed* if it begins
//!    where its segment begins, or if the first record of some segment follows its last one by
//!    number and digest. A record that was made up and written into a file is followed by no
//!    record of the store.

use crate::format::geometry::Segment;
use crate::format::record::{RecordHeader, SectorRun};
use crate::recovery::chain::{ChainRecord, OpeningDisk};
use crate::recovery::resume::{end_of, names_what_follows, run_end};
use std::collections::BTreeSet;
use teal_types::Sector;

/// Records that follow each other in one segment.
pub(crate) struct SurvivingStretch {
    at: Sector,
    end: Sector,
    first_seq: u64,
    /// The digest of the record before the first, as the first one says.
    previous: u64,
    last_seq: u64,
    last_digest: u64,
    /// Its neighbours agree with it; see the module.
    pub(crate) is_confirmed: bool,
}

impl OpeningDisk<'_> {
    /// Returns all stretches of records. Records that a later use of their segment has left over
    /// are not among them.
    pub(crate) fn surviving_stretches(&self) -> Vec<SurvivingStretch> {
        let mut by_segment = Vec::new();
        // The first records of segments: number and digest of the record before.
        let mut entries = BTreeSet::new();
        for segment in (0..self.geometry.segments).map(Segment) {
            // Only a record that begins the segment can follow one in another segment.
            let run = self.geometry.usable_run(segment);
            let found = self.stretches_in(run);
            if let Some(first) = found.first().filter(|first| first.at == run.addr) {
                entries.insert((first.first_seq, first.previous));
            }
            by_segment.push(found);
        }
        let mut kept: Vec<SurvivingStretch> = Vec::new();
        for found in by_segment {
            // Behind the end of what was written last lies what was written before.
            let mut newest = 0;
            for mut stretch in found {
                let follower = (stretch.last_seq + 1, stretch.last_digest);
                stretch.is_confirmed |= entries.contains(&follower);
                if stretch.first_seq <= newest {
                    continue;
                }
                if stretch.is_confirmed {
                    newest = stretch.last_seq;
                }
                kept.push(stretch);
            }
        }
        kept
    }

    /// Shows the records of a stretch, in their order.
    pub(crate) fn each_record(
        &self,
        stretch: &SurvivingStretch,
        visit: &mut dyn FnMut(&ChainRecord),
    ) {
        let mut at = stretch.at;
        while at < stretch.end {
            let Some(record) = self.read_record(at, |_| true) else {
                // The disk reads otherwise than a moment ago.
                break;
            };
            at = end_of(record.at, &record.header, &self.geometry);
            visit(&record);
        }
    }

    fn stretches_in(&self, run: SectorRun) -> Vec<SurvivingStretch> {
        let end = run_end(run);
        let mut found = Vec::new();
        let mut at = run.addr;
        while at < end {
            match self.surviving_stretch(at, run) {
                // All of a whole record is stepped over, its payload with it.
                Some(stretch) => {
                    debug_assert!(stretch.end > at, "a record has a header");
                    at = stretch.end;
                    found.push(stretch);
                }
                None => at = at.plus(self.geometry.align),
            }
        }
        found
    }

    /// Returns the records that begin at `at`.
    fn surviving_stretch(&self, at: Sector, run: SectorRun) -> Option<SurvivingStretch> {
        let geometry = &self.geometry;
        let end = run_end(run);
        let agrees = |at: Sector, header: &RecordHeader| {
            end_of(at, header, geometry) <= end && names_what_follows(at, header, geometry)
        };
        let first = self.read_record(at, |header| agrees(at, header))?;
        // Elsewhere, bytes of a file may look like a record.
        let is_entry = at == run.addr;
        if !is_entry && (!self.payload_is_whole(&first) || self.is_content(at, run)) {
            return None;
        }
        let mut stretch = SurvivingStretch {
            at,
            end: end_of(at, &first.header, geometry),
            first_seq: first.header.seq,
            previous: first.header.previous,
            last_seq: first.header.seq,
            last_digest: first.digest,
            is_confirmed: is_entry,
        };
        // Those behind it need no whole payload: the digests link them.
        while stretch.end < end {
            let follows = |header: &RecordHeader| {
                header.seq == stretch.last_seq + 1
                    && header.previous == stretch.last_digest
                    && agrees(stretch.end, header)
            };
            let Some(next) = self.read_record(stretch.end, follows) else {
                break;
            };
            debug_assert!(next.at == stretch.end, "records lie side by side");
            stretch.last_seq = next.header.seq;
            stretch.last_digest = next.digest;
            stretch.end = end_of(next.at, &next.header, geometry);
        }
        Some(stretch)
    }
}
