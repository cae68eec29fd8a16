//! Items whose layout is fixed now and which come into use with history.
//!
//! **History** (tree kind 7; key: three words, object, first block, `Lsn` at which the range died;
//! block 2^64 - 1 is the inode record):
//!
//! | at | bytes | field |
//! |---:|---:|---|
//! | 0 | 8 | `Lsn` at which it was born |
//! | 8 | 8 | time at which it died, seconds |
//! | 16 | | an extent, or an inode map item (see [`super::imap`]) for block 2^64 - 1 |

#![cfg_attr(
    not(any(test, feature = "fuzzing")),
    allow(
        dead_code,
        reason = "the layout is fixed before its use; golden bytes hold it"
    )
)]

use super::extent::Extent;
use crate::format::codec::{FieldReader, FieldWriter};
use teal_types::Lsn;

/// A range of a file's older state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HistoryItem {
    pub(crate) born: Lsn,
    pub(crate) died_secs: u64,
    pub(crate) extent: Extent,
}

impl HistoryItem {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u64(self.born.get());
        out.put_u64(self.died_secs);
        self.extent.encode(&mut out);
        out
    }
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut t = FieldReader(bytes);
        Some(Self {
            born: Lsn::new(t.u64()?),
            died_secs: t.u64()?,
            extent: Extent::decode(t.0)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use teal_types::Sector;

    fn extent() -> Extent {
        Extent {
            addr: Sector::new(0x0605_0403_0201),
            stored: 8,
            born: Lsn::new(7),
            crcs: [0xddcc_bbaa].into(),
        }
    }

    const EXTENT: &[u8] =
        b"\x01\x02\x03\x04\x05\x06\x01\0\x08\0\0\0\x07\0\0\0\0\0\0\0\xaa\xbb\xcc\xdd";

    #[test]
    fn golden_bytes() {
        let old = HistoryItem {
            born: Lsn::new(5),
            died_secs: 0x0102,
            extent: extent(),
        };
        assert_eq!(
            old.encode(),
            [b"\x05\0\0\0\0\0\0\0\x02\x01\0\0\0\0\0\0", EXTENT].concat()
        );
        assert_eq!(HistoryItem::decode(&old.encode()), Some(old));
    }
}
