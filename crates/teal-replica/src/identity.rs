//! The replica's identity and its position in history: the note of object 0.
//!
//! # Bytes, little-endian
//! | bytes | field |
//! |---:|---|
//! | 1 | version, 3 |
//! | 4 | volume |
//! | 4 | replica |
//! | 4 | incarnation; 0: none yet |
//! | 4 | lease: new objects are numbered from `lease * LEASE` on |
//! | 8 | no number from here on has been given out |
//! | 4 | incarnation of the server |
//! | 8 | commit up to which history is applied |
//! | 32 | digest of history there |
//! | 8 | counter of the last batch |
//! | 4 | its parts while it is in flight; 0: none is in flight |
//! | 32 | its digest |
//! | 8 | the object from which on a volume that got a server is still to be announced; 0: all is |
//! | 8 | the object from which on all is still to be compared with a server that was restored; 0: all is |
//! | 1 | number of earlier positions (version 1 ends before this) |
//! | 40 each | a commit up to which history was applied earlier, and the digest of history there (version 2 ends here) |
//! | 32 | the key that drives are signed with; zeros: not known yet |
//! | 1 | number of objects that are pinned |
//! | 8 each | one of them, ascending |

use super::field_reader::FieldReader;
use super::pin_set::{PINS_MAX, PinSet};
use super::trail::HistoryTrail;
use teal_log::{Store, StoreError, StoreOperation};
use teal_proto::EARLIER_MAX;
use teal_types::{
    Author, BatchNo, CommitSeq, Incarnation, LeaseNo, ObjectNo, ReplicaNo, ServerIncarnation,
    VolumeId,
};

/// The object number under which the identity is noted.
pub(crate) const IDENTITY: ObjectNo = ObjectNo::new(0);
const VERSION: u8 = 3;
/// Up to the earlier positions.
const HEAD: usize = 129;
pub(crate) const BYTES_MAX: usize = HEAD + 1 + 40 * EARLIER_MAX + 33 + 8 * PINS_MAX;

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ReplicaIdentity {
    pub(crate) volume: VolumeId,
    pub(crate) replica: ReplicaNo,
    pub(crate) incarnation: Incarnation,
    pub(crate) lease: LeaseNo,
    pub(crate) reserved: u64,
    pub(crate) server: ServerIncarnation,
    pub(crate) seen: CommitSeq,
    pub(crate) digest: [u8; 32],
    pub(crate) batch: BatchNo,
    pub(crate) parts: u32,
    pub(crate) batch_digest: [u8; 32],
    pub(crate) announce: u64,
    pub(crate) offer: u64,
    pub(crate) trail: HistoryTrail,
    /// The key by which drives are signed; zeros if it is not known yet.
    pub(crate) key: [u8; 32],
    pub(crate) pins: PinSet,
}

impl ReplicaIdentity {
    /// Notes that history is applied up to this commit.
    pub(crate) fn set_position(&mut self, seq: CommitSeq, digest: [u8; 32]) {
        // The trail of positions follows each step.
        self.seen = seq;
        self.digest = digest;
        self.trail.record_position(seq, digest);
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        debug_assert!(
            self.trail.steps().len() <= EARLIER_MAX && self.pins.as_slice().len() <= PINS_MAX
        );
        let mut out = vec![VERSION];
        for word in [
            self.volume.get(),
            self.replica.get(),
            self.incarnation.get(),
            self.lease.get(),
        ] {
            out.extend(word.to_le_bytes());
        }
        out.extend(self.reserved.to_le_bytes());
        out.extend(self.server.get().to_le_bytes());
        out.extend(self.seen.get().to_le_bytes());
        out.extend(self.digest);
        out.extend(self.batch.get().to_le_bytes());
        out.extend(self.parts.to_le_bytes());
        out.extend(self.batch_digest);
        out.extend(self.announce.to_le_bytes());
        out.extend(self.offer.to_le_bytes());
        out.push(self.trail.steps().len() as u8);
        for (seq, digest) in self.trail.steps() {
            out.extend(seq.get().to_le_bytes());
            out.extend(digest);
        }
        out.extend(self.key);
        out.push(self.pins.as_slice().len() as u8);
        for no in self.pins.as_slice().iter() {
            out.extend(no.get().to_le_bytes());
        }
        debug_assert!(
            out.len() <= BYTES_MAX,
            "the identity is larger than its operations count"
        );
        out
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (version, rest) = bytes.split_first()?;
        let mut reader = FieldReader::new(rest);
        let mut identity = Self::decode_head(&mut reader)?;
        // Version 1 ends here; older versions have no trail, no key and no pins.
        if *version >= 2 {
            identity.trail = reader.take_trail()?;
        }
        if *version >= 3 {
            identity.key = reader.take_array()?;
            identity.pins = reader.take_pins()?;
        }
        let is_known = (1..=VERSION).contains(version);
        (is_known && reader.is_empty()).then_some(identity)
    }

    /// Reads the fields that all versions have, in the order of their bytes.
    fn decode_head(reader: &mut FieldReader<'_>) -> Option<Self> {
        Some(Self {
            volume: VolumeId::new(reader.take_u32()?),
            replica: ReplicaNo::new(reader.take_u32()?),
            incarnation: Incarnation::new(reader.take_u32()?),
            lease: LeaseNo::new(reader.take_u32()?),
            reserved: reader.take_u64()?,
            server: ServerIncarnation::new(reader.take_u32()?),
            seen: reader.take_seq()?,
            digest: reader.take_array()?,
            batch: BatchNo::new(reader.take_u64()?),
            parts: reader.take_u32()?,
            batch_digest: reader.take_array()?,
            announce: reader.take_u64()?,
            offer: reader.take_u64()?,
            trail: HistoryTrail::default(),
            key: [0; 32],
            pins: PinSet::default(),
        })
    }

    /// Returns the author that the batches of this replica have.
    pub(crate) const fn author(&self) -> Author {
        Author {
            replica: self.replica,
            incarnation: self.incarnation,
        }
    }

    /// Reads the identity that a store keeps, if it belongs to a volume with replicas.
    pub(crate) fn load(store: &Store) -> Result<Option<Self>, StoreError> {
        let Some(bytes) = store.note(IDENTITY)? else {
            return Ok(None);
        };
        let damaged = StoreError::Corrupt {
            what: "the note of who this replica is",
            at: 0,
            object: None,
        };
        Self::decode(&bytes).map(Some).ok_or(damaged)
    }

    pub(crate) fn store_in(&self, op: &StoreOperation<'_>) -> Result<(), StoreError> {
        op.set_note(IDENTITY, Some(&self.encode()))
    }
}

impl FieldReader<'_> {
    /// Reads earlier positions behind their number.
    fn take_trail(&mut self) -> Option<HistoryTrail> {
        let count = usize::from(self.take_u8()?);
        let mut trail = HistoryTrail::default();
        for _ in 0..count {
            let seq = self.take_seq()?;
            trail.record_position(seq, self.take_array()?);
        }
        // The trail drops steps that are not ascending: then the counts differ.
        (trail.steps().len() == count).then_some(trail)
    }

    /// Reads pinned objects behind their number.
    fn take_pins(&mut self) -> Option<PinSet> {
        let mut numbers = Vec::new();
        for _ in 0..self.take_u8()? {
            numbers.push(self.take_u64()?);
        }
        PinSet::from_numbers(numbers.into_iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_version_3_are_pinned_and_those_of_1_and_2_are_read() {
        let mut trail = HistoryTrail::default();
        trail.record_position(CommitSeq::new(6), [14; 32]);
        trail.record_position(CommitSeq::new(7), [8; 32]);
        let identity = ReplicaIdentity {
            volume: VolumeId::new(1),
            replica: ReplicaNo::new(2),
            incarnation: Incarnation::new(3),
            lease: LeaseNo::new(4),
            reserved: 5,
            server: ServerIncarnation::new(6),
            seen: CommitSeq::new(7),
            digest: [8; 32],
            batch: BatchNo::new(9),
            parts: 10,
            batch_digest: [11; 32],
            announce: 12,
            offer: 13,
            trail,
            key: [15; 32],
            pins: PinSet::from_numbers([16, 17].into_iter()).unwrap(),
        };
        let word = |n: u32| n.to_le_bytes().to_vec();
        let long = |n: u64| n.to_le_bytes().to_vec();
        let head = [
            vec![3],
            word(1),
            word(2),
            word(3),
            word(4),
            long(5),
            word(6),
            long(7),
            vec![8; 32],
        ]
        .concat();
        let head = [head, long(9), word(10), vec![11; 32], long(12), long(13)].concat();
        let until_2 = [
            head.clone(),
            vec![2],
            long(6),
            vec![14; 32],
            long(7),
            vec![8; 32],
        ]
        .concat();
        let bytes = [until_2.clone(), vec![15; 32], vec![2], long(16), long(17)].concat();
        assert_eq!((identity.encode(), head.len()), (bytes.clone(), HEAD));
        assert_eq!(ReplicaIdentity::decode(&bytes), Some(identity));
        assert_eq!(ReplicaIdentity::decode(&bytes[1..]), None);
        assert_eq!(ReplicaIdentity::decode(&bytes[..bytes.len() - 1]), None);
        let second = [&[2], &until_2[1..]].concat();
        let of_2 = ReplicaIdentity {
            key: [0; 32],
            pins: PinSet::default(),
            ..identity
        };
        assert_eq!(ReplicaIdentity::decode(&second), Some(of_2));
        let first = [&[1], &head[1..]].concat();
        assert_eq!(
            ReplicaIdentity::decode(&first),
            Some(ReplicaIdentity {
                trail: HistoryTrail::default(),
                ..of_2
            })
        );
        assert_eq!(ReplicaIdentity::decode(&first[..HEAD - 1]), None);
    }
}
