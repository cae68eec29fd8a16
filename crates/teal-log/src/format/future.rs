//! Items whose layout is fixed now and which come into use with history and cursors.
//!
//! **History** (tree kind 7; key: three words, object, first block, `Lsn` at which the range died; block 2^64 - 1 is the inode record):
//!
//! | at | bytes | field |
//! |---:|---:|---|
//! | 0 | 8 | `Lsn` at which it was born |
//! | 8 | 8 | time at which it died, seconds |
//! | 16 | | an extent, or an inode map item (see [`super::imap`]) for block 2^64 - 1 |
//!
//! **Cursor** (tree kind 8; key: device number):
//!
//! | at | bytes | field |
//! |---:|---:|---|
//! | 0 | 16 | device UUID |
//! | 16 | 8 | `Lsn`: everything before has reached the device |
//! | 24 | 8 | incarnation of the server that gave the next field |
//! | 32 | 8 | `CommitSeq` S: the device holds nothing older |
//! | 40 | 2 | number of ranges |
//! | 42 | 16 each | unacknowledged ranges of `Lsn`: from, to (exclusive) |

#![cfg_attr(
    not(any(test, feature = "fuzzing")),
    allow(dead_code, reason = "the layout is fixed before its use; golden bytes hold it")
)]

use super::extent::Extent;
use crate::codec::{Put, Take};
use teal_types::{CommitSeq, Lsn};

/// A range of a file's older state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Superseded {
    pub(crate) born: Lsn,
    pub(crate) died_secs: u64,
    pub(crate) extent: Extent,
}

impl Superseded {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u64(self.born.get());
        out.put_u64(self.died_secs);
        self.extent.encode(&mut out);
        out
    }
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut t = Take(bytes);
        Some(Self { born: Lsn::new(t.u64()?), died_secs: t.u64()?, extent: Extent::decode(t.0)? })
    }
}

/// How far another device has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CursorState {
    pub(crate) device: [u8; 16],
    pub(crate) reached: Lsn,
    pub(crate) server_incarnation: u64,
    pub(crate) synced: CommitSeq,
    pub(crate) unacknowledged: Vec<(Lsn, Lsn)>,
}

impl CursorState {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put(&self.device);
        out.put_u64(self.reached.get());
        out.put_u64(self.server_incarnation);
        out.put_u64(self.synced.get());
        out.put_u16(u16::try_from(self.unacknowledged.len()).expect("the ranges are merged below 60"));
        for (from, to) in &self.unacknowledged {
            out.put_u64(from.get());
            out.put_u64(to.get());
        }
        out
    }
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut t = Take(bytes);
        let (device, reached) = (t.array()?, Lsn::new(t.u64()?));
        let (server_incarnation, synced, ranges) = (t.u64()?, CommitSeq::new(t.u64()?), t.u16()?);
        let unacknowledged =
            (0..ranges).map(|_| Some((Lsn::new(t.u64()?), Lsn::new(t.u64()?)))).collect::<Option<_>>()?;
        t.is_empty().then_some(Self { device, reached, server_incarnation, synced, unacknowledged })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use teal_types::Sector;

    fn extent() -> Extent {
        Extent { addr: Sector::new(0x0605_0403_0201), stored: 8, born: Lsn::new(7), crcs: [0xddcc_bbaa].into() }
    }

    const EXTENT: &[u8] = b"\x01\x02\x03\x04\x05\x06\x01\0\x08\0\0\0\x07\0\0\0\0\0\0\0\xaa\xbb\xcc\xdd";

    #[test]
    fn golden_bytes() {
        let old = Superseded { born: Lsn::new(5), died_secs: 0x0102, extent: extent() };
        assert_eq!(old.encode(), [b"\x05\0\0\0\0\0\0\0\x02\x01\0\0\0\0\0\0", EXTENT].concat());
        assert_eq!(Superseded::decode(&old.encode()), Some(old));

        let cursor = CursorState {
            device: *b"0123456789abcdef",
            reached: Lsn::new(9),
            server_incarnation: 2,
            synced: CommitSeq::new(4),
            unacknowledged: vec![(Lsn::new(6), Lsn::new(8))],
        };
        let mut bytes = b"0123456789abcdef".to_vec();
        [9_u64, 2, 4].iter().for_each(|n| bytes.extend(n.to_le_bytes()));
        bytes.extend(b"\x01\0\x06\0\0\0\0\0\0\0\x08\0\0\0\0\0\0\0");
        assert_eq!(cursor.encode(), bytes);
        assert_eq!(CursorState::decode(&bytes), Some(cursor));
        assert_eq!(CursorState::decode(&bytes[1..]), None);
    }
}
