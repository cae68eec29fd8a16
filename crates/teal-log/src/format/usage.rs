//! A usage item: how much of a segment is in use. Key: the segment's number.
//!
//! | at | bytes | field |
//! |---:|---:|---|
//! | 0 | 4 | live bytes: reachable from the newest state |
//! | 4 | 4 | retained bytes: reachable from the history index only |
//! | 8 | 4 | sectors from the segment's start to its first record |
//! | 12 | 1 | state: 0 free, 1 holds records, 2 holds second copies |
//! | 13 | 3 | zero |
//! | 16 | 8 | sequence number of its first record |
//! | 24 | 8 | number of the checkpoint interval in which it was last written or freed |
//! | 32 | 8 | `Lsn` of the youngest of what was written to it: the age for cost-benefit cleaning |

use crate::format::codec::{FieldReader, FieldWriter};
use teal_types::Lsn;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct SegmentUse {
    pub(crate) live: u32,
    pub(crate) retained: u32,
    pub(crate) first: u32,
    pub(crate) used: bool,
    /// It is used for second copies of pages, and has no records.
    pub(crate) holds_copies: bool,
    pub(crate) first_seq: u64,
    pub(crate) touched: u64,
    pub(crate) born: Lsn,
}

pub(crate) const BYTES: usize = 40;
/// The state of a segment that is used for second copies.
const HOLDS_COPIES: u8 = 2;

impl SegmentUse {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(BYTES);
        out.put_u32(self.live);
        out.put_u32(self.retained);
        out.put_u32(self.first);
        out.put_u8(u8::from(self.used) + u8::from(self.holds_copies));
        out.put_bytes(&[0; 3]);
        out.put_u64(self.first_seq);
        out.put_u64(self.touched);
        out.put_u64(self.born.get());
        out
    }
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut t = FieldReader(bytes);
        let live = t.u32()?;
        let retained = t.u32()?;
        let first = t.u32()?;
        let state = t.u8()?;
        t.bytes(3)?;
        let done = Self {
            live,
            retained,
            first,
            // Other values are refused below.
            used: state > 0,
            holds_copies: state == HOLDS_COPIES,
            first_seq: t.counter()?,
            touched: t.counter()?,
            born: Lsn::new(t.u64()?),
        };
        (t.is_empty() && state <= HOLDS_COPIES).then_some(done)
    }
}
