//! The first bytes of a pack.
//!
//! | at | bytes | field |
//! |---:|---:|---|
//! | 0 | 8 | magic `TEALPK\0\x01` |
//! | 8 | 2 | version, 1 |
//! | 10 | 6 | zero |
//! | 16 | 16 | domain |
//! | 32 | 8 | key check: the first bytes of BLAKE3, keyed with the domain's key, of `teal-chunk key check 1` |
//! | 40 | 16 | pack |
//! | 56 | 8 | time made, seconds, for people only |
//! | 64 | 12 | zero |
//! | 76 | 4 | CRC32C of the bytes before |

use super::{PackId, PackIdentity};
use crate::codec::{LittleEndianReader, append_checksum, ends_with_checksum};

pub(crate) const BYTES: usize = 80;
const MAGIC: &[u8; 8] = b"TEALPK\0\x01";
const VERSION: u16 = 1;

pub(crate) fn encode(identity: &PackIdentity, made: i64) -> Vec<u8> {
    let mut out = Vec::with_capacity(BYTES);
    out.extend(MAGIC);
    out.extend(VERSION.to_le_bytes());
    out.extend([0; 6]);
    out.extend(identity.domain);
    out.extend(identity.key_check);
    out.extend(identity.pack.get());
    out.extend(made.to_le_bytes());
    out.extend([0; 12]);
    append_checksum(&mut out, 0);
    out
}

/// Reads the header at the front of `bytes`, if it is whole: the identity of the pack, and the time
/// when it was made.
pub(crate) fn decode(bytes: &[u8]) -> Option<(PackIdentity, i64)> {
    let bytes = bytes
        .get(..BYTES)
        .filter(|bytes| ends_with_checksum(bytes))?;
    let mut t = LittleEndianReader(bytes);
    t.expect_bytes(MAGIC)?;
    // A pack of another version is not guessed at.
    if t.take_u16()? != VERSION {
        return None;
    }
    t.expect_zeros::<6>()?;
    let (domain, key_check, pack) = (
        t.take_array()?,
        t.take_array()?,
        PackId::new(t.take_array()?),
    );
    let made = t.take_i64()?;
    t.expect_zeros::<12>()?;
    Some((
        PackIdentity {
            domain,
            key_check,
            pack,
        },
        made,
    ))
}
