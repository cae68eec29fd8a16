//! `dump`: prints structures for people, one line per item. Nothing is changed and nothing has to
//! be whole.
//!
//! # How
//! 1. `raw` reads a disk that need not open: superblocks, anchors, chain, one segment. 2. `open`
//!    shows what an open store knows.

mod open;
mod raw;

use crate::format::record::{self, RecordHeader};
use std::io::{self, Write};
use teal_types::{ObjectNo, Sector};

pub use raw::dump_raw;

/// What to print of an open store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DumpWhat {
    /// How much of each segment is in use.
    Usage,
    /// Every object and where its record lies.
    InodeMap,
    /// All of one object: attributes, names, extended attributes, extents or data.
    Inode(ObjectNo),
    /// The entries of a directory, in cookie order.
    Directory(ObjectNo),
    /// Objects without a name that wait to be given back.
    Orphans,
    /// What is kept beside objects: numbers, and the beginnings of their notes.
    Notes,
    /// Everything that the newest state refers to, in the order of its place.
    Places,
    /// The table of shared extents, with the places they lie in.
    Shared,
    /// Something that needs no open store.
    Raw(RawWhat),
}

/// What to print of a disk that need not open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RawWhat {
    /// Both copies of the superblock.
    Superblock,
    /// Every anchor slot.
    Anchors,
    /// The chain of records from the newest anchor on, with what each changed.
    Chain,
    /// Every record found in a segment, whatever its time.
    Segment(u32),
}

/// One line on a record.
fn header_line(at: Sector, h: &RecordHeader, out: &mut dyn Write) -> io::Result<()> {
    let names = [
        (record::COMMIT, "commit"),
        (record::FRESH_EPOCH, "fresh-epoch"),
        (record::CLEAN, "clean"),
        (record::CHECKPOINT, "checkpoint"),
    ];
    let flags: Vec<_> = names
        .iter()
        .filter(|(bit, _)| h.has_flag(*bit))
        .map(|(_, name)| *name)
        .collect();
    writeln!(
        out,
        "record {} at {}: epoch {} batch {} watermark {} [{}] payload {} sectors, body {} bytes, {} deltas, next {}+{} or {}+{}, lsn {}, time {}",
        h.seq,
        at.get(),
        h.epoch,
        h.batch,
        h.watermark,
        flags.join(" "),
        h.payload,
        h.body,
        h.deltas,
        h.next_a.addr.get(),
        h.next_a.sectors,
        h.next_b.addr.get(),
        h.next_b.sectors,
        h.lsn.get(),
        h.time.secs,
    )
}
