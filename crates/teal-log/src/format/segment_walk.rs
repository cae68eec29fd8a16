//! Walks the records of one segment from its first, as the cleaner, `check` and `dump` need it.

use crate::format::checksum::crc_matches;
use crate::format::geometry::{Geometry, Segment};
use crate::format::record::{HEADER, RecordHeader};
use crate::format::usage::SegmentUse;
use teal_types::SECTOR;

/// A record found in a segment's bytes.
pub(crate) struct FoundRecord<'a> {
    pub(crate) header: RecordHeader,
    pub(crate) body: &'a [u8],
    /// Byte address of the body on the device.
    pub(crate) body_byte: u64,
}

/// The records in `bytes`, the whole content of a segment.
pub(crate) fn walk_records<'a>(
    geometry: &'a Geometry,
    uuid: &'a [u8; 16],
    segment: Segment,
    usage: &SegmentUse,
    bytes: &'a [u8],
) -> impl Iterator<Item = FoundRecord<'a>> {
    let base = geometry.whole_run(segment).addr;
    let mut next = usage.used.then(|| base.plus(u64::from(usage.first)));
    let mut seq = usage.first_seq;
    std::iter::from_fn(move || {
        let at = next.take()?;
        let from = usize::try_from(at.get().checked_sub(base.get())? * SECTOR).ok()?;
        let header = RecordHeader::decode(bytes.get(from..)?, uuid).filter(|h| h.seq == seq)?;
        let body_at = from + HEADER + header.payload as usize * SECTOR as usize;
        let body = bytes
            .get(body_at..body_at.checked_add(header.body as usize)?)
            .filter(|b| crc_matches(b, header.body_crc))?;
        seq += 1;
        next = Some(header.next_a.addr)
            .filter(|a| *a > at && geometry.segment_of(*a) == Some(segment));
        Some(FoundRecord {
            header,
            body,
            body_byte: base.byte_offset() + body_at as u64,
        })
    })
}
