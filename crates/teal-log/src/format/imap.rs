//! An inode map item: where the inode record of an object lies. Key: the object number.
//!
//! | at | bytes | field |
//! |---:|---:|---|
//! | 0 | 8 | byte address of the inode record on the device |
//! | 8 | 4 | its length in bytes |
//! | 12 | 4 | its CRC32C |
//! | 16 | 8 | `Lsn` of the object's last change |
//! | 24 | 1 | flags: 1 tombstone (the object is gone, address and length are 0) |

use super::inode::RECORD_MAX;
use crate::format::codec::{FieldReader, FieldWriter};
use teal_types::Lsn;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordHome {
    pub(crate) byte: u64,
    pub(crate) len: u32,
    pub(crate) crc: u32,
    pub(crate) lsn: Lsn,
}

/// What the map says of an object number it knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InodeMapItem {
    At(RecordHome),
    Gone(Lsn),
}

impl InodeMapItem {
    pub(crate) fn encode(self) -> Vec<u8> {
        let (home, flags) = match self {
            Self::At(home) => (home, 0),
            Self::Gone(lsn) => (
                RecordHome {
                    byte: 0,
                    len: 0,
                    crc: 0,
                    lsn,
                },
                1,
            ),
        };
        let mut out = Vec::with_capacity(25);
        out.put_u64(home.byte);
        out.put_u32(home.len);
        out.put_u32(home.crc);
        out.put_u64(home.lsn.get());
        out.put_u8(flags);
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut t = FieldReader(bytes);
        let home = RecordHome {
            byte: t.u64()?,
            len: t.u32()?,
            crc: t.u32()?,
            lsn: Lsn::new(t.u64()?),
        };
        match (t.u8()?, t.is_empty()) {
            (0, true) if (1..=RECORD_MAX as u32).contains(&home.len) => Some(Self::At(home)),
            (1, true) => Some(Self::Gone(home.lsn)),
            _ => None,
        }
    }
}
