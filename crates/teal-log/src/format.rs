//! Every structure on the disk: its byte table, its codec, its golden bytes.
//!
//! All integers are little-endian. An address is a 512-byte sector number. Each structure has its own magic and version, or lies inside
//! one that has. `docs/format.md` is the same in prose; `tests/format_doc.rs` holds the two against each other.
//!
//! | module | structure | magic |
//! |---|---|---|
//! | [`superblock`] | who this store is, where its parts are | `TEALFS\0\x01` |
//! | [`anchor`] | where the newest checkpoint is | `TANC` |
//! | [`record`] | one part of a batch: header, payload, body of deltas | `TREC` |
//! | [`delta`] | what a batch changed | inside a record |
//! | [`inode`] | an object | inside a record's body |
//! | [`extent`] | where blocks of a file are, with checksums | inside inodes, pages, deltas |
//! | [`imap`] | where an object's inode record is | inside pages |
//! | [`usage`] | how much of a segment is in use | inside pages |
//! | [`shared`] | extents that several files refer to | inside pages, deltas |
//! | [`future`] | history: fixed now, used later | inside pages |

pub(crate) mod anchor;
pub(crate) mod delta;
pub(crate) mod extent;
pub(crate) mod future;
pub(crate) mod imap;
pub(crate) mod inode;
pub(crate) mod record;
pub(crate) mod shared;
pub(crate) mod superblock;
pub(crate) mod usage;

use std::sync::LazyLock;
use teal_types::{BLOCK, SECTOR};

/// CRC32C of `bytes`.
pub(crate) fn crc(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// What a CRC32C becomes when so many bytes follow that alone have the CRC32C of zero: a linear map, by the bytes of the sum.
struct Shift([[u32; 256]; 4]);

impl Shift {
    fn over(bytes: usize) -> Self {
        let mut table = [[0; 256]; 4];
        for (place, row) in table.iter_mut().enumerate() {
            let bits: [u32; 8] =
                std::array::from_fn(|bit| crc32c::crc32c_combine(1 << (8 * place + bit), 0, bytes));
            for (value, entry) in row.iter_mut().enumerate() {
                *entry = (0..8)
                    .filter(|bit| value >> bit & 1 == 1)
                    .fold(0, |sum, bit| sum ^ bits[bit]);
            }
        }
        Self(table)
    }

    fn apply(&self, sum: u32) -> u32 {
        sum.to_le_bytes()
            .iter()
            .zip(&self.0)
            .fold(0, |all, (byte, row)| all ^ row[usize::from(*byte)])
    }
}

static BLOCK_SHIFT: LazyLock<Shift> = LazyLock::new(|| Shift::over(BLOCK as usize));
static SECTOR_SHIFT: LazyLock<Shift> = LazyLock::new(|| Shift::over(SECTOR as usize));

/// The CRC32C of two pieces, one behind the other, of which the second has so many sectors.
pub(crate) fn crc_joined(first: u32, second: u32, sectors: u64) -> u32 {
    let (blocks, rest) = (sectors / (BLOCK / SECTOR), sectors % (BLOCK / SECTOR));
    let first = (0..blocks).fold(first, |sum, _| BLOCK_SHIFT.apply(sum));
    (0..rest).fold(first, |sum, _| SECTOR_SHIFT.apply(sum)) ^ second
}

/// Whether `sum` is the CRC32C of `bytes`. The fuzzer alone may ask for leniency, so that it gets behind the checksums; it is not
/// compiled into anything but tests and the fuzzer.
pub(crate) fn crc_matches(bytes: &[u8], sum: u32) -> bool {
    #[cfg(any(test, feature = "fuzzing"))]
    if crate::fuzzing::is_lenient() {
        return true;
    }
    crc(bytes) == sum
}

/// Whether the bytes end with the CRC32C of those before.
pub(crate) fn is_sealed(bytes: &[u8]) -> bool {
    bytes
        .split_last_chunk()
        .is_some_and(|(rest, sum)| crc_matches(rest, u32::from_le_bytes(*sum)))
}

/// Pads `out` with zeros to a multiple of `unit` bytes.
pub(crate) fn pad(out: &mut Vec<u8>, unit: usize) {
    out.resize(out.len().next_multiple_of(unit), 0);
}

#[cfg(test)]
mod tests;
