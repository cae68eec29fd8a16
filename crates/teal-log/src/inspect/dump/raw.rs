//! Dumps of a disk as it lies there.

use super::{RawWhat, header_line};
use crate::format::anchor::{self, Anchor};
use crate::format::checksum::crc_matches;
use crate::format::delta::{Delta, decode_body};
use crate::format::extent::{Extent, MappedExtent};
use crate::format::geometry::{Geometry, Segment};
use crate::format::record::{HEADER, RecordHeader, SectorRun, follows_digest, header_digest};
use crate::format::root_copy::{self, RootCopy};
use crate::format::superblock::{self, Superblock, SuperblockRefusal};
use crate::recovery::find_superblock::read_superblock;
use std::io::{self, Write};
use teal_env::Disk;
use teal_types::{SECTOR, Sector};

/// Records shown of a chain: a circle in a damaged one must end.
const RECORDS_MAX: usize = 1 << 20;

/// Prints a structure of a disk, which need not open as a store. One superblock must be whole,
/// unless the superblocks are to be printed.
///
/// # Errors
/// Errors of `out`. Fails if no superblock can be read, or if there is no such segment. Other
/// damage is said in the text.
pub fn dump_raw(disk: &dyn Disk, what: RawWhat, out: &mut dyn Write) -> io::Result<()> {
    // The superblocks are shown even where none of them is whole.
    if what == RawWhat::Superblock {
        dump_superblocks(disk, out)?;
    }
    let sb = read_superblock(disk).map_err(io::Error::other)?;
    let raw = RawDisk {
        disk,
        geometry: Geometry::new(&sb),
        sb,
    };
    match what {
        RawWhat::Superblock => Ok(()),
        RawWhat::Anchors => raw.dump_anchors(out),
        RawWhat::Chain => raw.dump_chain(out),
        RawWhat::Segment(number) if number < raw.sb.segments => {
            raw.dump_segment(Segment(number), out)
        }
        RawWhat::Segment(number) => {
            let words = format!(
                "there is no segment {number}; the store has {} of them, from 0",
                raw.sb.segments
            );
            Err(io::Error::new(io::ErrorKind::InvalidInput, words))
        }
    }
}

struct RawDisk<'d> {
    disk: &'d dyn Disk,
    geometry: Geometry,
    sb: Superblock,
}

fn hex_text(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Returns the reason why bytes are no superblock, for people.
fn refusal_text(why: &SuperblockRefusal) -> String {
    match why {
        SuperblockRefusal::NotTeal => "none of TealFS is there".into(),
        SuperblockRefusal::Version(version) => {
            format!("its format version {version} is not the one of this program")
        }
        SuperblockRefusal::Damaged => "it is damaged".into(),
        SuperblockRefusal::Features(bits) => {
            format!("it has features this program does not know (bits {bits:#x})")
        }
        SuperblockRefusal::Geometry(what) => format!("it is damaged: its {what} makes no sense"),
    }
}

fn dump_superblocks(disk: &dyn Disk, out: &mut dyn Write) -> io::Result<()> {
    if disk.shape().sectors * SECTOR < superblock::BYTES as u64 {
        return Ok(());
    }
    for at in [
        Sector::new(0),
        Superblock::second_copy(disk.shape().sectors),
    ] {
        let mut bytes = vec![0; superblock::BYTES];
        let read = disk.read_at(at, &mut bytes);
        match (read, Superblock::decode(&bytes)) {
            (Err(e), _) => writeln!(out, "superblock at {}: {e}", at.get())?,
            (Ok(()), Err(why)) => {
                writeln!(out, "superblock at {}: {}", at.get(), refusal_text(&why))?
            }
            (Ok(()), Ok(sb)) => write_superblock(at, &sb, out)?,
        }
    }
    Ok(())
}

fn write_superblock(at: Sector, sb: &Superblock, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "superblock at {}: uuid {} label {:?}",
        at.get(),
        hex_text(&sb.uuid),
        sb.label
    )?;
    writeln!(
        out,
        "  sectors {} in {} segments of {}",
        sb.sectors, sb.segments, sb.segment_sectors
    )?;
    writeln!(
        out,
        "  commit alignment {} bytes, {} anchor places",
        sb.commit_align, sb.anchor_places
    )?;
    writeln!(
        out,
        "  features compatible {:#x}, read-only {:#x}, incompatible {:#x}",
        sb.compatible, sb.read_only_compatible, sb.incompatible
    )?;
    writeln!(
        out,
        "  volume {:#x}, rotational {}, created {}",
        sb.volume, sb.rotational, sb.created.secs
    )
}

impl RawDisk<'_> {
    fn read_sectors(&self, at: Sector, sectors: u64) -> Option<Vec<u8>> {
        // Addresses from a damaged structure may lie anywhere.
        let end = at.get().checked_add(sectors)?;
        if end > self.sb.sectors {
            return None;
        }
        let mut bytes = vec![0; (sectors * SECTOR) as usize];
        self.disk.read_at(at, &mut bytes).ok()?;
        Some(bytes)
    }

    fn read_anchor(&self, at: Sector) -> Option<Anchor> {
        let bytes = self.read_sectors(at, anchor::BYTES as u64 / SECTOR)?;
        Anchor::decode(&bytes, &self.sb.uuid)
    }

    fn read_root_copy(&self, slot: Sector) -> Option<RootCopy> {
        let sectors = root_copy::MOST as u64 / SECTOR;
        let bytes = self.read_sectors(slot.plus(root_copy::SKIP), sectors)?;
        RootCopy::decode(&bytes, &self.sb.uuid)
    }

    fn dump_anchors(&self, out: &mut dyn Write) -> io::Result<()> {
        for at in self.geometry.anchor_slots() {
            match self.read_anchor(at) {
                Some(a) => writeln!(
                    out,
                    "anchor at {}: checkpoint {} at {}, record {}, watermark {}, time {}",
                    at.get(),
                    a.checkpoint,
                    a.addr.get(),
                    a.seq,
                    a.watermark,
                    a.secs
                )?,
                None => writeln!(out, "anchor at {}: none", at.get())?,
            }
            if let Some(copy) = self.read_root_copy(at) {
                writeln!(
                    out,
                    "  second copy of the roots of checkpoint {}, last record at {}",
                    copy.checkpoint,
                    copy.at.get()
                )?;
            }
        }
        Ok(())
    }

    fn dump_chain(&self, out: &mut dyn Write) -> io::Result<()> {
        // The newest checkpoint, as at opening.
        let newest = self
            .geometry
            .anchor_slots()
            .filter_map(|at| self.read_anchor(at))
            .max_by_key(|a| a.checkpoint);
        let Some(newest) = newest else {
            return writeln!(out, "no anchor is whole");
        };
        let mut at = newest.addr;
        let mut wanted = (newest.seq, None);
        // The walk ends, whatever the records say.
        for _ in 0..RECORDS_MAX {
            let Some((header, bytes)) = self.read_header(at, wanted) else {
                return writeln!(out, "no record {} at {}", wanted.0, at.get());
            };
            header_line(at, &header, out)?;
            self.dump_body(at, &header, out)?;
            // The next record must follow by number and by digest.
            wanted = (header.seq + 1, Some(header_digest(&bytes, &self.sb.uuid)));
            let Some(next) = self.find_next(&header, wanted) else {
                return writeln!(
                    out,
                    "the chain ends: no record {} where record {} leads",
                    wanted.0, header.seq
                );
            };
            at = next;
        }
        Ok(())
    }

    /// Returns where the record is that follows this one: in the run of the head, or in its
    /// successor.
    fn find_next(&self, header: &RecordHeader, wanted: (u64, Option<u64>)) -> Option<Sector> {
        for run in [header.next_a, header.next_b] {
            if run.sectors > 0
                && self.geometry.holds_run(run)
                && self.read_header(run.addr, wanted).is_some()
            {
                return Some(run.addr);
            }
        }
        None
    }

    fn read_header(
        &self,
        at: Sector,
        (seq, previous): (u64, Option<u64>),
    ) -> Option<(RecordHeader, Vec<u8>)> {
        let bytes = self.read_sectors(at, HEADER as u64 / SECTOR)?;
        let header = RecordHeader::decode(&bytes, &self.sb.uuid)?;
        let fits =
            header.seq == seq && previous.is_none_or(|digest| follows_digest(&header, digest));
        fits.then_some((header, bytes))
    }

    fn dump_segment(&self, segment: Segment, out: &mut dyn Write) -> io::Result<()> {
        let usable = self.geometry.usable_run(segment);
        writeln!(
            out,
            "segment {}: usable {}+{}",
            segment.0,
            usable.addr.get(),
            usable.sectors
        )?;
        let mut skip = 0;
        while skip < u64::from(usable.sectors) {
            let at = usable.addr.plus(skip);
            let header = self
                .read_sectors(at, 1)
                .and_then(|bytes| RecordHeader::decode(&bytes, &self.sb.uuid));
            let Some(header) = header else {
                // A step of the alignment: records begin there only.
                skip += self.geometry.align;
                continue;
            };
            header_line(at, &header, out)?;
            self.dump_body(at, &header, out)?;
            // One at a time: behind a torn record older ones may show.
            skip += self.geometry.align;
        }
        Ok(())
    }

    /// Prints what a record changed; payload and body are compared with their checksums.
    fn dump_body(&self, at: Sector, header: &RecordHeader, out: &mut dyn Write) -> io::Result<()> {
        // A damaged header may claim any length.
        let Ok(sectors) = u32::try_from(header.sectors()) else {
            return writeln!(out, "  too long");
        };
        if !self.geometry.holds_run(SectorRun { addr: at, sectors }) {
            return writeln!(out, "  it would leave its segment");
        }
        let Some(bytes) = self.read_sectors(at, u64::from(sectors)) else {
            return writeln!(out, "  unreadable");
        };
        let (payload, body) = bytes[HEADER..].split_at(header.payload as usize * SECTOR as usize);
        let body = &body[..header.body as usize];
        // The payload may be torn where the body is whole.
        if !crc_matches(payload, header.payload_crc) {
            writeln!(out, "  the payload is torn or damaged")?;
        }
        if !crc_matches(body, header.body_crc) {
            return writeln!(out, "  the body is torn or damaged");
        }
        for placed in decode_body(body, header.deltas) {
            match placed {
                Ok(placed) => {
                    // Operations count on from the record's first one.
                    let lsn = header.lsn.get() + u64::from(placed.lsn_offset);
                    writeln!(
                        out,
                        "  {lsn} {}: {}",
                        placed.object,
                        delta_text(&placed.delta)
                    )?;
                }
                Err(what) => writeln!(out, "  {what} makes no sense")?,
            }
        }
        Ok(())
    }
}

pub(super) fn extent_text(block: u64, extent: &Extent) -> String {
    debug_assert!(extent.blocks() > 0, "an extent has a block");
    let last = block + extent.blocks() - 1;
    format!(
        "blocks {block}-{last} at {}+{}, born {}",
        extent.addr.get(),
        extent.stored,
        extent.born.get()
    )
}

pub(super) fn mapped_text(block: u64, mapped: &MappedExtent) -> String {
    match mapped {
        MappedExtent::Own(extent) => extent_text(block, extent),
        MappedExtent::Shared(slice) => {
            let last = block + mapped.blocks() - 1;
            let id = slice.id;
            let first = slice.first;
            format!(
                "blocks {block}-{last} shared: extent {id} from its block {first}, born {}",
                slice.born.get()
            )
        }
        MappedExtent::Unwritten(run) => {
            let last = block + mapped.blocks() - 1;
            format!(
                "blocks {block}-{last} unwritten: room is set aside, born {}",
                run.born.get()
            )
        }
    }
}

fn delta_text(delta: &Delta<'_>) -> String {
    match delta {
        Delta::Inode(bytes) => format!("whole inode record of {} bytes", bytes.len()),
        Delta::Attributes(_) => "attributes".into(),
        Delta::Head(bytes) => format!("names and extended attributes, {} bytes", bytes.len()),
        Delta::Extent { block, extent } => format!("content: {}", mapped_text(*block, extent)),
        Delta::Hole { block, count } => format!("hole of {count} blocks from {block}"),
        Delta::EntrySet {
            cookie,
            child,
            name,
            ..
        } => format!("entry {cookie:#x} {name:?} is {child}"),
        Delta::EntryGone { cookie } => format!("entry {cookie:#x} is gone"),
        Delta::Free => "given back".into(),
        Delta::Note { piece, value } => format!("piece {piece} of its note: {} bytes", value.len()),
        Delta::NoteGone { piece } => format!("piece {piece} of its note is gone"),
        Delta::Orphan(true) => "becomes an orphan".into(),
        Delta::Orphan(false) => "is no orphan any more".into(),
        Delta::Page {
            kind,
            level,
            first_key,
            ptr,
        } => {
            let at = ptr.addr().get();
            let sectors = ptr.sectors();
            format!(
                "{} at {at}+{sectors}, level {level}, from key {first_key}",
                kind.page_name()
            )
        }
        Delta::Roots(roots) => format!(
            "checkpoint {}: {} objects, next object #{}, next lsn {}, {} usage items of its own",
            roots.checkpoint,
            roots.objects,
            roots.next_object,
            roots.next_lsn.get(),
            roots.overrides.len()
        ),
        Delta::SharedSet { id, shared } => {
            format!(
                "shared extent {id}, {} references: {}",
                shared.count,
                extent_text(0, &shared.extent)
            )
        }
        Delta::SharedGone { id } => format!("shared extent {id} is gone"),
        Delta::SharedCount { id, count } => format!("shared extent {id} has {count} references"),
        Delta::Kept { delta, .. } => format!("waits still: a change of {} bytes", delta.len()),
        Delta::Ignored => "of a kind this program may ignore".into(),
    }
}
