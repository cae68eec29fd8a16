//! The end of a pack: a table of its chunks, and a footer.
//!
//! The table has one row for each chunk, in the order in which they lie:
//!
//! | at | bytes | field |
//! |---:|---:|---|
//! | 0 | 32 | name |
//! | 32 | 4 | offset of the chunk's header: where the chunk before ends, 80 for the first |
//! | 36 | 4 | bytes of the payload |
//! | 40 | 4 | bytes of the content |
//! | 44 | 4 | zero |
//!
//! The footer is the last 80 bytes of the pack:
//!
//! | at | bytes | field |
//! |---:|---:|---|
//! | 0 | 4 | magic `TEND` |
//! | 4 | 2 | version, 1 |
//! | 6 | 2 | zero |
//! | 8 | 16 | domain |
//! | 24 | 8 | key check |
//! | 32 | 16 | pack |
//! | 48 | 4 | chunks, at most 65,536 |
//! | 52 | 4 | offset of the table: where the last chunk ends |
//! | 56 | 4 | CRC32C of the table |
//! | 60 | 16 | zero |
//! | 76 | 4 | CRC32C of the bytes before |

use super::{PackId, PackIdentity, TableEntry, chunk, header};
use crate::codec::{LittleEndianReader, append_checksum, checksum, ends_with_checksum};
use crate::limits::{PACK_CHUNKS_MAX, PACK_MAX};
use teal_types::ChunkId;

pub(crate) const FOOTER: usize = 80;
pub(crate) const ROW: usize = 48;
const MAGIC: &[u8; 4] = b"TEND";
const VERSION: u16 = 1;

/// The footer: the identity of the pack, and the place of its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) identity: PackIdentity,
    pub(crate) chunks: u32,
    /// Offset of the table.
    pub(crate) table: u32,
    pub(crate) table_crc: u32,
}

/// Appends table and footer to a pack. Its chunks end at the end of `out`.
pub(crate) fn append_table(out: &mut Vec<u8>, identity: &PackIdentity, entries: &[TableEntry]) {
    let table = out.len();
    for entry in entries {
        out.extend(entry.id.get());
        out.extend(entry.offset.to_le_bytes());
        out.extend(entry.stored.to_le_bytes());
        out.extend(entry.bytes.to_le_bytes());
        out.extend([0; 4]);
    }
    let table_crc = checksum(&out[table..]);
    // The footer has a checksum of its own, so that it can be believed before the table is read.
    let footer = out.len();
    out.extend(MAGIC);
    out.extend(VERSION.to_le_bytes());
    out.extend([0; 2]);
    out.extend(identity.domain);
    out.extend(identity.key_check);
    out.extend(identity.pack.get());
    out.extend((entries.len() as u32).to_le_bytes());
    out.extend((table as u32).to_le_bytes());
    out.extend(table_crc.to_le_bytes());
    out.extend([0; 16]);
    append_checksum(out, footer);
}

impl Footer {
    /// Reads the footer at the end of `tail`, the last bytes of a pack of `size` bytes, if it is
    /// whole and fits the size.
    pub(crate) fn decode(tail: &[u8], size: u64) -> Option<Self> {
        let sealed = tail.last_chunk::<FOOTER>()?;
        // The checksum first: nothing of a damaged footer is looked at.
        if !ends_with_checksum(sealed) || size > PACK_MAX {
            return None;
        }
        let mut reader = LittleEndianReader(sealed);
        reader.expect_bytes(MAGIC)?;
        if reader.take_u16()? != VERSION {
            return None;
        }
        reader.expect_zeros::<2>()?;
        let identity = PackIdentity {
            domain: reader.take_array()?,
            key_check: reader.take_array()?,
            pack: PackId::new(reader.take_array()?),
        };
        let footer = Self {
            identity,
            chunks: reader.take_u32()?,
            table: reader.take_u32()?,
            table_crc: reader.take_u32()?,
        };
        reader.expect_zeros::<16>()?;
        // The footer must fit the pack: the table ends where the footer begins.
        let is_bounded = footer.chunks as usize <= PACK_CHUNKS_MAX;
        let is_behind_header = footer.table as usize >= header::BYTES;
        let end = u64::from(footer.table) + footer.table_bytes() as u64 + FOOTER as u64;
        (is_bounded && is_behind_header && end == size).then_some(footer)
    }

    /// Returns the bytes of the table; at most 3 MiB.
    pub(crate) fn table_bytes(&self) -> usize {
        self.chunks as usize * ROW
    }

    /// Reads the rows of the table, if it is whole and tells of chunks that follow one another from
    /// the header to the table.
    pub(crate) fn decode_entries(&self, table: &[u8]) -> Option<Vec<TableEntry>> {
        if table.len() != self.table_bytes() || checksum(table) != self.table_crc {
            return None;
        }
        let mut next = header::BYTES as u64;
        let mut entries = Vec::with_capacity(self.chunks as usize);
        for row in table.chunks_exact(ROW) {
            let mut reader = LittleEndianReader(row);
            let entry = TableEntry {
                id: ChunkId::new(reader.take_array()?),
                offset: reader.take_u32()?,
                stored: reader.take_u32()?,
                bytes: reader.take_u32()?,
            };
            reader.expect_zeros::<4>()?;
            // No gap and no overlap: whatever the checksum, a row cannot point outside of the
            // chunks.
            if u64::from(entry.offset) != next || !chunk::lengths_fit(entry.bytes, entry.stored) {
                return None;
            }
            next = entry.byte_range().end;
            entries.push(entry);
        }
        (next == u64::from(self.table)).then_some(entries)
    }
}
