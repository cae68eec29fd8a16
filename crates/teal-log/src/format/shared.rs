//! The shared-extent table: extents that parts of files refer to, and the way back from a place on
//! the disk to them.
//!
//! Tree kind 6 has two kinds of items. A key below 2^48 is a shared extent's id; its value:
//!
//! | at | bytes | field |
//! |---:|---:|---|
//! | 0 | 4 | count of extents that refer to it |
//! | 4 | | an extent of at most 64 blocks, see [`super::extent`] |
//!
//! A key of 2^63 and more is 2^63 plus the address of the first sector of a shared extent; its
//! value:
//!
//! | at | bytes | field |
//! |---:|---:|---|
//! | 0 | 8 | the shared extent's id |

use super::extent::{Extent, SHARED_BLOCKS, SHARED_IDS};
use crate::format::codec::{FieldReader, FieldWriter};
use teal_types::Sector;

/// The first key that stands for a place.
const PLACES: u64 = 1 << 63;
/// The last key that may be an id.
pub(crate) const LAST_ID: u64 = SHARED_IDS - 1;

/// The key of a place.
pub(crate) fn place_key(addr: Sector) -> u64 {
    PLACES | addr.get()
}

/// The place of a key that stands for one.
pub(crate) fn place_of(key: u64) -> Sector {
    Sector::new(key & !PLACES)
}

/// An extent that files refer to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SharedExtent {
    pub(crate) count: u32,
    pub(crate) extent: Extent,
}

impl SharedExtent {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u32(self.count);
        self.extent.encode(&mut out);
        out
    }
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut t = FieldReader(bytes);
        let shared = Self {
            count: t.u32()?,
            extent: Extent::decode(t.0)?,
        };
        (shared.count > 0 && shared.extent.blocks() <= SHARED_BLOCKS).then_some(shared)
    }
}

/// An item of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SharedItem {
    Extent { id: u64, shared: SharedExtent },
    Place { addr: Sector, id: u64 },
}

impl SharedItem {
    pub(crate) fn decode(key: u64, value: &[u8]) -> Option<Self> {
        if key < SHARED_IDS {
            return Some(Self::Extent {
                id: key,
                shared: SharedExtent::decode(value)?,
            });
        }
        let addr = Sector::new(key.checked_sub(PLACES)?);
        let id = u64::from_le_bytes(value.try_into().ok()?);
        (addr < Sector::LIMIT && id < SHARED_IDS).then_some(Self::Place { addr, id })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::extent::{MappedExtent, SharedSlice};
    use teal_types::Lsn;

    const EXTENT: &[u8] =
        b"\x01\x02\x03\x04\x05\x06\x01\0\x08\0\0\0\x07\0\0\0\0\0\0\0\xaa\xbb\xcc\xdd";

    fn extent(blocks: usize) -> Extent {
        let crcs = vec![0xddcc_bbaa; blocks].into();
        Extent {
            addr: Sector::new(0x0605_0403_0201),
            stored: 8 * blocks as u16,
            born: Lsn::new(7),
            crcs,
        }
    }

    #[test]
    fn golden_bytes() {
        let shared = SharedExtent {
            count: 3,
            extent: extent(1),
        };
        assert_eq!(shared.encode(), [b"\x03\0\0\0", EXTENT].concat());
        assert_eq!(
            SharedItem::decode(9, &shared.encode()),
            Some(SharedItem::Extent { id: 9, shared })
        );
        let addr = Sector::new(0x77);
        assert_eq!(place_key(addr), 0x8000_0000_0000_0077);
        let id = b"\x09\0\0\0\0\0\0\0";
        assert_eq!(
            SharedItem::decode(place_key(addr), id),
            Some(SharedItem::Place { addr, id: 9 })
        );

        let slice = SharedSlice {
            id: 0x0605_0403_0201,
            first: 5,
            blocks: 2,
            stored: 13,
            born: Lsn::new(7),
        };
        let mut bytes = Vec::new();
        MappedExtent::Shared(slice).encode(&mut bytes);
        assert_eq!(
            bytes,
            b"\x01\x02\x03\x04\x05\x06\x02\0\x0d\0\0\x01\x07\0\0\0\0\0\0\0\x05\0"
        );
        assert_eq!(
            MappedExtent::decode(&bytes),
            Some(MappedExtent::Shared(slice))
        );
    }

    #[test]
    fn what_no_table_may_hold_is_refused() {
        let of = |count, blocks| {
            SharedExtent {
                count,
                extent: extent(blocks),
            }
            .encode()
        };
        assert!(SharedExtent::decode(&of(1, 64)).is_some());
        assert_eq!(
            SharedExtent::decode(&of(1, 65)),
            None,
            "longer than a shared extent may be"
        );
        assert_eq!(SharedExtent::decode(&of(0, 1)), None, "nobody refers to it");
        assert_eq!(SharedItem::decode(1 << 48, &of(1, 1)), None, "not an id");
        assert_eq!(
            SharedItem::decode(1 << 63, &(1_u64 << 48).to_le_bytes()),
            None,
            "not a place of an id"
        );
        let mut bytes = Vec::new();
        let slice = SharedSlice {
            id: 1,
            first: 63,
            blocks: 2,
            stored: 16,
            born: Lsn::new(7),
        };
        MappedExtent::Shared(slice).encode(&mut bytes);
        assert_eq!(
            MappedExtent::decode(&bytes),
            None,
            "behind the end of a shared extent"
        );
        assert_eq!(
            Extent::decode(&bytes),
            None,
            "a part of a shared extent is no extent"
        );
    }
}
