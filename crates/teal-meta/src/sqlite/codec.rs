//! Values that SQLite keeps as bytes: the state of an object, and ranges. Little-endian.
//!
//! A state: kind (1), permissions (2), owner (4), group (4), device (4), then modification, change
//! and birth time as seconds (8) and nanoseconds (4) each, then the commit of the attributes, the
//! size, and the commits of data, names and extended attributes (8 each), then the target to the
//! end. Where content was appended since it was written otherwise, the kind has the bit
//! [`APPENDED`], and the commit of that writing (8) comes before the target; without the bit that
//! commit is the one of the data.

use teal_proto::ConflictKind;
use teal_types::{CommitSeq, FileType, ReplicatedAttributes, Timestamp};

use crate::row::{ObjectRow, Ranges};

/// See the head of this file.
const APPENDED: u8 = 0x80;

pub(super) fn encode_state(row: &ObjectRow) -> Vec<u8> {
    let mut out = Vec::with_capacity(99 + row.target.len());
    let is_appended = row.rewritten_seq != row.data_seq;
    let ReplicatedAttributes {
        perm,
        uid,
        gid,
        rdev,
        mtime,
        ctime,
        btime,
    } = row.attributes;
    // The bit is free, since codes of types are below 16.
    out.push(row.kind.code() | if is_appended { APPENDED } else { 0 });
    out.extend(perm.to_le_bytes());
    [uid, gid, rdev]
        .iter()
        .for_each(|word| out.extend(word.to_le_bytes()));
    for time in [mtime, ctime, btime] {
        out.extend(time.secs.to_le_bytes());
        out.extend(time.nanos.to_le_bytes());
    }
    let words = [
        row.attr_seq.get(),
        row.size,
        row.data_seq.get(),
        row.link_seq.get(),
        row.xattr_seq.get(),
    ];
    words.iter().for_each(|word| out.extend(word.to_le_bytes()));
    if is_appended {
        out.extend(row.rewritten_seq.get().to_le_bytes());
    }
    debug_assert!(
        out.len() == if is_appended { 99 } else { 91 },
        "the fixed part has its length"
    );
    out.extend(&row.target);
    out
}

/// Takes integers off the front.
struct StateReader<'a>(&'a [u8]);

impl StateReader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*head)
    }
    fn take_u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }
    fn take_u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
    fn take_time(&mut self) -> Option<Timestamp> {
        let secs = i64::from_le_bytes(self.take()?);
        Some(Timestamp::new(secs, self.take_u32()?))
    }
    fn take_seq(&mut self) -> Option<CommitSeq> {
        self.take_u64().map(CommitSeq::new)
    }
}

pub(super) fn decode_state(bytes: &[u8]) -> Option<ObjectRow> {
    // The bytes come from a disk: every missing one ends the decoding.
    let mut from = StateReader(bytes);
    let [code] = from.take()?;
    let mut row = ObjectRow {
        kind: FileType::from_code(code & !APPENDED)?,
        attributes: ReplicatedAttributes {
            perm: u16::from_le_bytes(from.take()?),
            uid: from.take_u32()?,
            gid: from.take_u32()?,
            rdev: from.take_u32()?,
            mtime: from.take_time()?,
            ctime: from.take_time()?,
            btime: from.take_time()?,
        },
        attr_seq: from.take_seq()?,
        size: from.take_u64()?,
        data_seq: from.take_seq()?,
        rewritten_seq: CommitSeq::new(0),
        link_seq: from.take_seq()?,
        xattr_seq: from.take_seq()?,
        target: Vec::new(),
    };
    // Without the bit the content was last written as a whole.
    row.rewritten_seq = if code & APPENDED != 0 {
        from.take_seq()?
    } else {
        row.data_seq
    };
    row.target = from.0.to_vec();
    Some(row)
}

pub(super) fn encode_ranges(ranges: &Ranges) -> Option<Vec<u8>> {
    let both = |(offset, len): &(u64, u64)| [offset.to_le_bytes(), len.to_le_bytes()];
    ranges
        .as_ref()
        .map(|ranges| ranges.iter().flat_map(both).flatten().collect())
}

/// Bytes that are no ranges mean: anywhere.
pub(super) fn decode_ranges(bytes: Option<&[u8]>) -> Ranges {
    // Damaged ranges mean any range: too much is told rather than too little.
    let bytes = bytes.filter(|bytes| bytes.len() % 16 == 0)?;
    let mut from = StateReader(bytes);
    std::iter::from_fn(|| Some((from.take_u64()?, from.take_u64()?)))
        .map(Some)
        .collect()
}

pub(super) const fn kind_code(kind: ConflictKind) -> u8 {
    match kind {
        ConflictKind::Content => 1,
        ConflictKind::Attributes => 2,
        ConflictKind::Xattr => 3,
        ConflictKind::Name => 4,
        ConflictKind::Removal => 5,
        ConflictKind::Move => 6,
    }
}

pub(super) const fn kind_from_code(code: u8) -> Option<ConflictKind> {
    Some(match code {
        1 => ConflictKind::Content,
        2 => ConflictKind::Attributes,
        3 => ConflictKind::Xattr,
        4 => ConflictKind::Name,
        5 => ConflictKind::Removal,
        6 => ConflictKind::Move,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_a_state_are_pinned() {
        let row = ObjectRow {
            kind: FileType::Symlink,
            attributes: ReplicatedAttributes {
                perm: 0o777,
                uid: 1,
                gid: 2,
                rdev: 3,
                mtime: Timestamp::new(-1, 4),
                ctime: Timestamp::new(5, 6),
                btime: Timestamp::new(7, 8),
            },
            attr_seq: CommitSeq::new(9),
            size: 10,
            data_seq: CommitSeq::new(11),
            rewritten_seq: CommitSeq::new(11),
            target: b"to".to_vec(),
            link_seq: CommitSeq::new(12),
            xattr_seq: CommitSeq::new(13),
        };
        let bytes = encode_state(&row);
        let mut wanted = vec![10, 0xff, 1, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0];
        wanted.extend([0xff; 8]);
        wanted.extend([
            4, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0,
        ]);
        [9_u64, 10, 11, 12, 13]
            .iter()
            .for_each(|word| wanted.extend(word.to_le_bytes()));
        wanted.extend(b"to");
        assert_eq!(bytes, wanted);
        assert_eq!(decode_state(&bytes), Some(row.clone()));
        assert!((0..91).all(|len| decode_state(&bytes[..len]).is_none()));
        let appended = ObjectRow {
            rewritten_seq: CommitSeq::new(14),
            ..row
        };
        let bytes = encode_state(&appended);
        wanted[0] = 0x8a;
        wanted.splice(91..91, 14_u64.to_le_bytes());
        assert_eq!(bytes, wanted);
        assert_eq!(decode_state(&bytes), Some(appended));
        assert!((0..99).all(|len| decode_state(&bytes[..len]).is_none()));
    }

    #[test]
    fn ranges_survive_the_way() {
        for ranges in [None, Some(vec![]), Some(vec![(1, 2), (u64::MAX, 4)])] {
            assert_eq!(decode_ranges(encode_ranges(&ranges).as_deref()), ranges);
        }
        assert_eq!(decode_ranges(Some(&[0; 15])), None);
    }

    #[test]
    fn kinds_of_conflicts_survive_the_way() {
        for code in 1..=6 {
            assert_eq!(kind_from_code(code).map(kind_code), Some(code));
        }
        assert_eq!((kind_from_code(0), kind_from_code(7)), (None, None));
    }
}
