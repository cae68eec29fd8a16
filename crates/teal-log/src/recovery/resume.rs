//! Finds where the log goes on behind records that cannot be read. For salvage only: who opens a
//! store for writing never skips a record.
//!
//! # Guarantees
//! 1. *Agreement*: a record is taken up again only if its sequence number, batch, epoch and `Lsn`
//!    continue those before the damage, its header names as the next run what lies behind it, and
//!    its body and payload are whole. Records behind it follow by their digests.
//! 2. *No content*: bytes of files are never taken for records. What lies inside a whole record is
//!    stepped over. Between whole records, what a body there claims as content, with checksums that
//!    match, is content. Of two stretches of records that contradict each other the one that lies
//!    further on is the log: content lies in front of its record's successor.
//! 3. *No older life*: what was dropped after a crash stays dropped. Something durable must be
//!    missing, which a watermark testifies to.

use crate::format::checksum::crc_matches;
use crate::format::delta::{Delta, PREFIX, decode_body};
use crate::format::extent::{Extent, MappedExtent};
use crate::format::geometry::{Geometry, Segment};
use crate::format::record::{
    CHECKPOINT, COMMIT, RecordHeader, SECTORS_MAX, SectorRun, header_digest,
};
use crate::object::state::ObjectState;
use crate::recovery::chain::{ChainRecord, OpeningDisk};
use teal_types::{BLOCK, SECTOR, Sector};

/// How often the log is taken up again behind damage: a disk with more damage than that holds a log
/// that somebody made up.
pub(crate) const RESUMES_MAX: usize = 1024;
/// The most deltas that are looked at in one search for the owners of content.
const DELTAS_MAX: u32 = 1 << 20;

/// Records that follow each other by their digests, in one segment.
struct RecordStretch {
    first: ChainRecord,
    last_seq: u64,
    end: Sector,
    /// The highest watermark that one of them names.
    watermark: u64,
}

/// Returns where the record behind this one may start at the earliest.
pub(super) fn end_of(at: Sector, header: &RecordHeader, geometry: &Geometry) -> Sector {
    Sector::new((at.get() + header.sectors()).next_multiple_of(geometry.align))
}

/// Returns the sector behind a run.
pub(super) fn run_end(run: SectorRun) -> Sector {
    run.addr.plus(u64::from(run.sectors))
}

/// Returns whether a record at `at` names as its next run what lies behind it.
pub(super) fn names_what_follows(at: Sector, header: &RecordHeader, geometry: &Geometry) -> bool {
    let Some(segment) = geometry.segment_of(at) else {
        return false;
    };
    let end = end_of(at, header, geometry);
    let next = header.next_a;
    let left = run_end(geometry.usable_run(segment))
        .get()
        .saturating_sub(end.get());
    // The rest of the segment; else a whole segment, or nothing on a full disk.
    let is_rest = next.addr == end && u64::from(next.sectors) == left;
    let is_segment = || {
        let other = geometry.segment_of(next.addr);
        other.is_some_and(|other| geometry.usable_run(other) == next)
    };
    is_rest || next.sectors == 0 || is_segment()
}

/// Returns whether an extent holds this sector, and the disk what the extent says.
fn holds_sector(extent: &Extent, at: Sector, from: Sector, bytes: &[u8]) -> bool {
    let sectors = extent.bytes() / SECTOR;
    if extent.addr < from || !(extent.addr..extent.addr.plus(sectors)).contains(&at) {
        return false;
    }
    let start = (extent.addr.byte_offset() - from.byte_offset()) as usize;
    let Some(content) = bytes.get(start..start + (sectors * SECTOR) as usize) else {
        return false;
    };
    content
        .chunks(BLOCK as usize)
        .zip(&extent.crcs)
        .all(|(block, sum)| crc_matches(block, *sum))
}

impl OpeningDisk<'_> {
    /// Returns the first record behind `last` that can be read, though not the one that follows it.
    /// `durable`: a sequence number that is known to have been durable.
    pub(crate) fn resume_behind(&self, last: &ChainRecord, durable: u64) -> Option<ChainRecord> {
        // Where headers can be read, they lead on by their digests.
        let mut unread = self.next_header(last);
        while let Some(header) = unread {
            if let Some(record) = self.next_record(&header) {
                return Some(record);
            }
            unread = self.next_header(&header);
        }
        let geometry = &self.geometry;
        let mut found: Vec<RecordStretch> = Vec::new();
        let mut searched = Vec::new();
        // The record that is lost began in one of these runs.
        for run in [last.header.next_a, last.header.next_b] {
            if run.sectors == 0 || !geometry.holds_run(run) {
                continue;
            }
            searched.extend(geometry.segment_of(run.addr));
            found.extend(self.search_run(run, last));
        }
        // The log may have gone on in any other segment; there it began at the start.
        for segment in (0..geometry.segments).map(Segment) {
            if searched.contains(&segment) {
                continue;
            }
            let run = geometry.usable_run(segment);
            found.extend(self.stretch_at(run.addr, run_end(run), last));
        }
        found.sort_by_key(|stretch| (stretch.first.header.seq, u64::MAX - stretch.end.get()));
        // A later life has overwritten what an earlier one left.
        let epochs: Vec<_> = found
            .iter()
            .map(|stretch| (stretch.first.header.epoch, stretch.first.header.seq))
            .collect();
        let is_current = |stretch: &RecordStretch| {
            let header = &stretch.first.header;
            let durable = durable.max(stretch.watermark) > last.header.seq;
            durable
                && !epochs
                    .iter()
                    .any(|(epoch, seq)| *epoch > header.epoch && *seq <= header.seq)
        };
        found
            .into_iter()
            .find(is_current)
            .map(|stretch| stretch.first)
    }

    /// Returns the next record by its header alone, without its body.
    fn next_header(&self, last: &ChainRecord) -> Option<ChainRecord> {
        [last.header.next_a, last.header.next_b]
            .into_iter()
            .filter(|run| run.sectors > 0 && self.geometry.holds_run(*run))
            .find_map(|run| {
                let (header, bytes) = self.read_header(run.addr)?;
                last.is_followed_by(&header).then(|| ChainRecord {
                    at: run.addr,
                    header,
                    digest: header_digest(&bytes, &self.sb.uuid),
                    body: [].into(),
                    is_behind_loss: false,
                })
            })
    }

    /// Returns the last records of checkpoints, as far as the segments lead to them, the newest
    /// first, at most so many: for a store whose anchors are lost.
    pub(crate) fn find_checkpoints(&self, most: usize) -> Vec<ChainRecord> {
        let mut found: Vec<ChainRecord> = Vec::new();
        for segment in (0..self.geometry.segments).map(Segment) {
            let run = self.geometry.usable_run(segment);
            let mut next = self.read_record(run.addr, |_| true);
            while let Some(record) = next {
                let at = end_of(record.at, &record.header, &self.geometry);
                next = (at < run_end(run))
                    .then(|| self.read_record(at, |header| record.is_followed_by(header)))
                    .flatten();
                if record.header.has_flag(CHECKPOINT) && record.header.has_flag(COMMIT) {
                    found.push(record);
                    // The bodies of older ones are not kept.
                    found.sort_by_key(|record| std::cmp::Reverse(record.header.seq));
                    found.truncate(most);
                }
            }
        }
        found
    }

    /// Returns the records that begin at `at`, if the first continues the log behind `last`.
    fn stretch_at(&self, at: Sector, end: Sector, last: &ChainRecord) -> Option<RecordStretch> {
        let continues = |header: &RecordHeader| {
            header.seq > last.header.seq + 1
                && header.epoch >= last.header.epoch
                && header.batch >= last.header.batch
                && header.lsn >= last.header.lsn
                && header.watermark < header.seq
                && names_what_follows(at, header, &self.geometry)
        };
        let first = self.read_record(at, continues)?;
        if !self.payload_is_whole(&first) {
            return None;
        }
        let mut stretch = RecordStretch {
            last_seq: first.header.seq,
            end: end_of(at, &first.header, &self.geometry),
            watermark: first.header.watermark,
            first,
        };
        let mut digest = stretch.first.digest;
        while stretch.end < end {
            let follows = |header: &RecordHeader| {
                header.seq == stretch.last_seq + 1 && header.previous == digest
            };
            let next = self
                .read_record(stretch.end, follows)
                .filter(|record| self.payload_is_whole(record));
            let Some(next) = next else { break };
            digest = next.digest;
            stretch.last_seq = next.header.seq;
            stretch.watermark = stretch.watermark.max(next.header.watermark);
            stretch.end = end_of(next.at, &next.header, &self.geometry);
        }
        Some(stretch)
    }

    /// Searches a run for records that continue the log behind `last`.
    fn search_run(&self, run: SectorRun, last: &ChainRecord) -> Vec<RecordStretch> {
        let end = run_end(run);
        let mut found: Vec<RecordStretch> = Vec::new();
        let mut at = run.addr;
        while at < end {
            match self.stretch_at(at, end, last) {
                // All of a whole record is stepped over, its payload with it.
                Some(stretch) => {
                    at = stretch.end;
                    found.push(stretch);
                }
                None => at = at.plus(self.geometry.align),
            }
        }
        let mut kept: Vec<RecordStretch> = Vec::new();
        for stretch in found.into_iter().rev() {
            let contradicts = kept
                .last()
                .is_some_and(|later| later.first.header.seq <= stretch.last_seq);
            if !contradicts && !self.is_content(stretch.first.at, run) {
                kept.push(stretch);
            }
        }
        kept
    }

    /// Returns whether `at` lies in what a body in this run says is content: in its payload, or in
    /// itself.
    pub(super) fn is_content(&self, at: Sector, run: SectorRun) -> bool {
        let from = Sector::new(run.addr.get().max(at.get().saturating_sub(SECTORS_MAX)));
        let end = Sector::new(run_end(run).get().min(at.get() + SECTORS_MAX));
        let mut bytes = vec![0; (end.byte_offset() - from.byte_offset()) as usize];
        for (n, sector) in bytes.chunks_mut(SECTOR as usize).enumerate() {
            // What cannot be read claims nothing.
            if self.read_raw(from.plus(n as u64), sector).is_err() {
                sector.fill(0);
            }
        }
        let sought = (at.byte_offset() - from.byte_offset()) as usize;
        let mut left = DELTAS_MAX;
        (0..bytes.len()).step_by(SECTOR as usize).any(|body| {
            let deltas = decode_body(&bytes[body..], left).map_while(Result::ok);
            for placed in deltas {
                left = left.saturating_sub(1);
                let value = body + placed.at;
                let len = &bytes[value - PREFIX + 4..value - PREFIX + 8];
                let len = u32::from_le_bytes([len[0], len[1], len[2], len[3]]) as usize;
                let holds = |extent: &Extent| holds_sector(extent, at, from, &bytes);
                let is_held = match &placed.delta {
                    Delta::Inode(record) => ObjectState::decode(placed.object, None, record)
                        .is_some_and(|state| state.few_extents().any(holds)),
                    Delta::Extent {
                        extent: MappedExtent::Own(own),
                        ..
                    } => holds(own),
                    _ => false,
                };
                // The content of a small file lies in the body itself.
                if is_held || (value < sought && sought < value + len) {
                    return true;
                }
            }
            false
        })
    }
}
