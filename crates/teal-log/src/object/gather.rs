//! Reads the planned stretches of a file: those that lie near each other with one request, every
//! block checked.

use crate::error::StoreError;
use crate::format::checksum::crc_matches;
use crate::format::extent::BLOCK_SECTORS;
use crate::iovec::{ScatteredBytes, SharedBytes};
use crate::tree::reader::CachedReader;
use teal_types::{BLOCK, ObjectNo, SECTOR, Sector};

/// Two pieces on the disk this near to each other are read at once, up to so many bytes.
const GAP_SECTORS: u64 = 64;
pub(crate) const SPAN_MAX: u64 = 2 << 20;

/// The source of a stretch of a read.
#[derive(Debug, Clone)]
pub(crate) enum ReadPiece {
    Memory {
        bytes: SharedBytes,
        from: usize,
    },
    /// Blocks that lie together on the disk; `crcs` one for each.
    Disk {
        addr: Sector,
        stored: u64,
        crcs: Vec<u32>,
        from: usize,
    },
    Zero,
}

/// A stretch of a read and its length in bytes.
#[derive(Debug, Clone)]
pub(crate) struct ReadStretch {
    pub(crate) len: usize,
    pub(crate) piece: ReadPiece,
}

/// Returns how many of the first stretches lie so near each other on the disk that one read takes
/// them all: between the content of two records lie a body and a header.
fn count_near(plan: &[ReadStretch]) -> usize {
    let place = |stretch: &ReadStretch| match &stretch.piece {
        ReadPiece::Disk { addr, stored, .. } => Some((addr.get(), addr.get() + stored)),
        _ => None,
    };
    let Some((first, _)) = plan.first().and_then(place) else {
        return 1;
    };
    // Only stored content can be near.
    let is_near = |pair: &&[ReadStretch]| match (place(&pair[0]), place(&pair[1])) {
        (Some((_, end)), Some((next, stop))) => {
            // Forward, over a small gap, and within one request.
            next >= end && next - end <= GAP_SECTORS && (stop - first) * SECTOR <= SPAN_MAX
        }
        _ => false,
    };
    1 + plan.windows(2).take_while(is_near).count()
}

/// Returns the first of these blocks that does not match its checksum.
fn first_damaged(bytes: &[u8], crcs: &[u32]) -> Option<u64> {
    let mut blocks = bytes.chunks(BLOCK as usize).zip(crcs);
    blocks
        .position(|(block, sum)| !crc_matches(block, *sum))
        .map(|i| i as u64)
}

/// Returns the part of a span of the disk that lies at `addr`, if every block of it is whole.
fn whole_part(
    span: Option<&(Sector, SharedBytes)>,
    addr: Sector,
    bytes: usize,
    crcs: &[u32],
) -> Option<SharedBytes> {
    let (start, all) = span?;
    let from = (addr.byte_offset() - start.byte_offset()) as usize;
    let part = all.subslice(from, bytes);
    first_damaged(&part, crcs).is_none().then_some(part)
}

impl CachedReader {
    /// Returns the bytes of a planned read, every block of it checked.
    pub(crate) fn gather_stretches(
        &self,
        no: ObjectNo,
        plan: &[ReadStretch],
    ) -> Result<ScatteredBytes, StoreError> {
        let mut out = ScatteredBytes::default();
        let mut rest = plan;
        // Neighbouring stretches come with one request.
        while !rest.is_empty() {
            let (now, later) = rest.split_at(count_near(rest));
            let span = if now.len() > 1 {
                self.read_span(now)
            } else {
                None
            };
            for stretch in now {
                self.fetch_stretch(no, stretch, span.as_ref(), &mut out)?;
            }
            rest = later;
        }
        Ok(out)
    }

    /// Returns what lies from the first to the last of these stretches, unchecked; `None` when it
    /// cannot be read at once.
    fn read_span(&self, stretches: &[ReadStretch]) -> Option<(Sector, SharedBytes)> {
        let first = &stretches.first()?.piece;
        let last = &stretches.last()?.piece;
        let (ReadPiece::Disk { addr: start, .. }, ReadPiece::Disk { addr, stored, .. }) =
            (first, last)
        else {
            // Only stretches on the disk are spanned.
            return None;
        };
        let mut memory = self
            .buffers
            .lend(((addr.get() + stored - start.get()) * SECTOR) as usize);
        // On an error, each stretch is read by itself.
        self.read_raw(*start, &mut memory).ok()?;
        Some((*start, memory.into()))
    }

    fn fetch_stretch(
        &self,
        no: ObjectNo,
        stretch: &ReadStretch,
        span: Option<&(Sector, SharedBytes)>,
        out: &mut ScatteredBytes,
    ) -> Result<(), StoreError> {
        let have = match &stretch.piece {
            ReadPiece::Zero => 0,
            ReadPiece::Memory { bytes, from } => {
                out.push(bytes.subslice(*from, stretch.len));
                stretch.len
            }
            ReadPiece::Disk {
                addr,
                stored,
                crcs,
                from,
            } => {
                let bytes = (stored * SECTOR) as usize;
                // Beyond the stored sectors, the block is zeros.
                let have = bytes.saturating_sub(*from).min(stretch.len);
                // Content that is still on its way to the disk is found by itself.
                let held = match whole_part(span, *addr, bytes, crcs) {
                    Some(held) => held,
                    None => {
                        let mut memory = self.buffers.lend(bytes);
                        self.read_blocks(no, *addr, crcs, &mut memory)?;
                        memory.into()
                    }
                };
                if have > 0 {
                    out.push(held.subslice(*from, have));
                }
                have
            }
        };
        self.push_zeros(stretch.len - have, out);
        Ok(())
    }

    /// Adds zeros in pieces, so that a large hole needs no large buffer.
    fn push_zeros(&self, mut missing: usize, out: &mut ScatteredBytes) {
        while missing > 0 {
            let mut zeros = self.buffers.lend(missing.min(SPAN_MAX as usize));
            zeros.fill(0);
            missing -= zeros.len();
            out.push(zeros.into());
        }
    }

    /// Reads whole blocks of a file that lie together, the last one perhaps stored short, and
    /// checks each.
    fn read_blocks(
        &self,
        no: ObjectNo,
        addr: Sector,
        crcs: &[u32],
        out: &mut [u8],
    ) -> Result<(), StoreError> {
        // A cached copy may be older than the disk: the checksum tells.
        if self.read_nearby(addr, out) {
            if first_damaged(out, crcs).is_none() {
                return Ok(());
            }
            self.drop_chunks(addr.byte_offset(), out.len());
        }
        self.read_raw(addr, out)?;
        // From the disk itself: damage is certain now.
        match first_damaged(out, crcs) {
            None => Ok(()),
            Some(i) => {
                let at = addr.get() + i * BLOCK_SECTORS;
                Err(StoreError::Corrupt {
                    what: "file content",
                    at,
                    object: Some(no),
                })
            }
        }
    }
}
