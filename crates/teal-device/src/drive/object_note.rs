//! The parts of an object that a drive holds: the note of that object in the drive's store.
//!
//! # Bytes, little-endian
//! | bytes | field |
//! |---:|---|
//! | 1 | version, 1 |
//! | 1 | flags: 1 content, 2 affinity, 4 sticky affinity |
//! | | if content: the commit that changed it last u64, size u64, ranges |
//!
//! *Ranges* are a count u32, each start u64, end u64: what of the content is here.

use super::note_reader::NoteReader;
use teal_types::{BLOCK, ByteRanges, CommitSeq};

const VERSION: u8 = 1;
const CONTENT: u8 = 1;
const AFFINITY: u8 = 2;
const STICKY: u8 = 4;
/// The most ranges of one object; what would be one more is not taken.
pub(super) const RANGES_MAX: usize = 256;
/// The most bytes of such a note.
pub(super) const NOTE_BYTES_MAX: usize = 22 + 16 * (RANGES_MAX + 1);

/// Content, or a part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldContent {
    /// The commit that changed it last.
    pub data_seq: CommitSeq,
    /// Bytes of all of it.
    pub size: u64,
    /// The ranges that are here.
    pub present: ByteRanges,
}

/// The note of an object. See the module.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HeldObject {
    /// The content, or parts of it.
    pub content: Option<HeldContent>,
    /// True if the object is always to be here.
    pub affinity: bool,
    /// True for a directory if everything that enters it is always to be here, too.
    pub sticky: bool,
}

/// Returns the range of whole blocks in which bytes lie.
pub(super) fn block_bounds(from: u64, to: u64) -> (u64, u64) {
    (
        from / BLOCK * BLOCK,
        to.checked_next_multiple_of(BLOCK).unwrap_or(to),
    )
}

impl HeldContent {
    /// Returns the content that is left when another state follows: `changed` lists (offset,
    /// length); with `None`, the change may be anywhere.
    pub(super) fn superseded_by(
        &self,
        data_seq: CommitSeq,
        size: u64,
        changed: Option<&[(u64, u64)]>,
    ) -> Self {
        debug_assert!(data_seq > self.data_seq, "a later state follows");
        let mut present = ByteRanges::default();
        if let Some(changed) = changed {
            present = self.present.clone();
            for (offset, len) in changed {
                let (from, to) = block_bounds(*offset, offset.saturating_add(*len));
                present.remove(from, to);
            }
        }
        if size != self.size {
            // The block at the old or new end has changed, and all behind it.
            let (from, _) = block_bounds(size.min(self.size), 0);
            present.remove(from, teal_types::ranges::CONTENT_END);
        }
        Self {
            data_seq,
            size,
            present,
        }
    }
}

impl HeldObject {
    /// Returns whether there is nothing to note.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns whether the head of a note has the flag of affinity.
    pub(super) fn has_affinity(head: &[u8]) -> bool {
        head.get(1).is_some_and(|flags| flags & AFFINITY != 0)
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        let content = flag(self.content.is_some(), CONTENT);
        let mut out = vec![
            VERSION,
            content | flag(self.affinity, AFFINITY) | flag(self.sticky, STICKY),
        ];
        if let Some(content) = &self.content {
            out.extend(content.data_seq.get().to_le_bytes());
            out.extend(content.size.to_le_bytes());
            out.extend((content.present.iter().len() as u32).to_le_bytes());
            for (from, to) in content.present.iter() {
                out.extend(from.to_le_bytes());
                out.extend(to.to_le_bytes());
            }
        }
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let [version, flags, rest @ ..] = bytes else {
            return None;
        };
        // Unknown flags are damage: a newer program would have written another version.
        if *version != VERSION || *flags >= 2 * STICKY {
            return None;
        }
        let mut reader = NoteReader(rest);
        let mut content = None;
        if flags & CONTENT != 0 {
            let data_seq = CommitSeq::new(reader.take_number(8)?);
            let size = reader.take_number(8)?;
            let count = reader.take_number(4)?;
            let mut ranges = Vec::new();
            for _ in 0..count {
                let from = reader.take_number(8)?;
                let to = reader.take_number(8)?;
                ranges.push((from, to));
            }
            content = Some(HeldContent {
                data_seq,
                size,
                present: ByteRanges::from_sorted(ranges)?,
            });
        }
        let held = Self {
            content,
            affinity: flags & AFFINITY != 0,
            sticky: flags & STICKY != 0,
        };
        reader.is_empty().then_some(held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(of: &[(u64, u64)]) -> ByteRanges {
        ByteRanges::from_sorted(of.to_vec()).unwrap()
    }

    #[test]
    fn the_bytes_of_version_1_are_pinned() {
        let content = HeldContent {
            data_seq: CommitSeq::new(3),
            size: 9000,
            present: ranges(&[(0, 4096), (8192, 9000)]),
        };
        let held = HeldObject {
            content: Some(content),
            affinity: true,
            sticky: false,
        };
        let long = |n: u64| n.to_le_bytes().to_vec();
        let numbers = [3, 9000].map(long).concat();
        let pairs = [0, 4096, 8192, 9000].map(long).concat();
        let bytes = [vec![1, 3], numbers, vec![2, 0, 0, 0], pairs].concat();
        assert_eq!(held.encode(), bytes);
        assert_eq!(HeldObject::decode(&bytes), Some(held));
        for len in 0..bytes.len() {
            assert_eq!(HeldObject::decode(&bytes[..len]), None, "{len} bytes");
        }
        let sticky = HeldObject {
            content: None,
            affinity: true,
            sticky: true,
        };
        assert_eq!(
            (sticky.encode(), HeldObject::decode(&[1, 6])),
            (vec![1, 6], Some(sticky))
        );
        for bad in [&[2, 0][..], &[1, 8], &[1, 0, 0]] {
            assert_eq!(HeldObject::decode(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn only_whole_blocks_that_did_not_change_stay() {
        let content = HeldContent {
            data_seq: CommitSeq::new(3),
            size: 20_000,
            present: ranges(&[(0, 20_000)]),
        };
        let after = |size, changed: Option<&[(u64, u64)]>| {
            content
                .superseded_by(CommitSeq::new(4), size, changed)
                .present
        };
        assert_eq!(after(20_000, None), ByteRanges::default());
        assert_eq!(
            after(20_000, Some(&[(5000, 1)])),
            ranges(&[(0, 4096), (8192, 20_000)])
        );
        // What grew or was cut off takes its block along.
        assert_eq!(after(30_000, Some(&[])), ranges(&[(0, 16_384)]));
        assert_eq!(after(5000, Some(&[])), ranges(&[(0, 4096)]));
        assert_eq!(after(20_000, Some(&[(0, u64::MAX)])), ByteRanges::default());
    }
}
