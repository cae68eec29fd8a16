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

/// The footer: whose pack this is, and where its table lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) identity: PackIdentity,
    pub(crate) chunks: u32,
    /// Offset of the table.
    pub(crate) table: u32,
    pub(crate) table_crc: u32,
}

/// Appends table and footer to a pack whose chunks end at `out`'s end.
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
    /// The footer at the end of `tail`, the last bytes of a pack of `size` bytes, if it is whole
    /// and fits the size.
    pub(crate) fn decode(tail: &[u8], size: u64) -> Option<Self> {
        let mut t = LittleEndianReader(
            tail.last_chunk::<FOOTER>()
                .filter(|bytes| ends_with_checksum(*bytes))?,
        );
        t.expect_bytes(MAGIC)?;
        if t.take_u16()? != VERSION || size > PACK_MAX {
            return None;
        }
        t.expect_zeros::<2>()?;
        let identity = PackIdentity {
            domain: t.take_array()?,
            key_check: t.take_array()?,
            pack: PackId::new(t.take_array()?),
        };
        let footer = Self {
            identity,
            chunks: t.take_u32()?,
            table: t.take_u32()?,
            table_crc: t.take_u32()?,
        };
        t.expect_zeros::<16>()?;
        let fits =
            footer.chunks as usize <= PACK_CHUNKS_MAX && footer.table as usize >= header::BYTES;
        let end = u64::from(footer.table) + footer.table_bytes() as u64 + FOOTER as u64;
        (fits && end == size).then_some(footer)
    }

    /// Bytes of the table; at most 3 MiB.
    pub(crate) fn table_bytes(&self) -> usize {
        self.chunks as usize * ROW
    }

    /// The rows of the table, if it is whole and tells of chunks that follow one another from the
    /// header to the table.
    pub(crate) fn decode_entries(&self, table: &[u8]) -> Option<Vec<TableEntry>> {
        if table.len() != self.table_bytes() || checksum(table) != self.table_crc {
            return None;
        }
        let mut next = header::BYTES as u64;
        let entries = table.chunks_exact(ROW).map(|row| {
            let mut t = LittleEndianReader(row);
            let id = ChunkId::new(t.take_array()?);
            let entry = TableEntry {
                id,
                offset: t.take_u32()?,
                stored: t.take_u32()?,
                bytes: t.take_u32()?,
            };
            t.expect_zeros::<4>()?;
            let follows =
                u64::from(entry.offset) == next && chunk::lengths_fit(entry.bytes, entry.stored);
            next = entry.byte_range().end;
            follows.then_some(entry)
        });
        let entries = entries.collect::<Option<Vec<_>>>()?;
        (next == u64::from(self.table)).then_some(entries)
    }
}
