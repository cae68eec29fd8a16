//! Who this replica is and how far it has come: the note of object 0.
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

use super::pin_set::{PINS_MAX, PinSet};
use super::trail::HistoryTrail;
use teal_log::{Store, StoreError, StoreOperation};
use teal_proto::EARLIER_MAX;
use teal_types::{
    Author, BatchNo, CommitSeq, Incarnation, LEASE, ObjectNo, ReplicaNo, ServerIncarnation,
};

/// The number whose note this is.
pub(crate) const IDENTITY: ObjectNo = ObjectNo::new(0);
const VERSION: u8 = 3;
/// Up to the earlier positions.
const HEAD: usize = 129;
pub(crate) const BYTES_MAX: usize = HEAD + 1 + 40 * EARLIER_MAX + 33 + 8 * PINS_MAX;

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ReplicaIdentity {
    pub(crate) volume: u32,
    pub(crate) replica: ReplicaNo,
    pub(crate) incarnation: Incarnation,
    pub(crate) lease: u32,
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
    /// What drives are signed with; zeros: not known yet.
    pub(crate) key: [u8; 32],
    pub(crate) pins: PinSet,
}

impl ReplicaIdentity {
    /// History is applied up to here.
    pub(crate) fn set_position(&mut self, seq: CommitSeq, digest: [u8; 32]) {
        (self.seen, self.digest) = (seq, digest);
        self.trail.record_position(seq, digest);
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        for word in [
            self.volume,
            self.replica.get(),
            self.incarnation.get(),
            self.lease,
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
        self.pins
            .as_slice()
            .iter()
            .for_each(|no| out.extend(no.get().to_le_bytes()));
        out
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (head, trail) = bytes.split_at_checked(HEAD)?;
        let (version, mut rest) = head.split_first()?;
        let (trail, key, pins) = match (version, trail) {
            (1, []) => <(HistoryTrail, [u8; 32], PinSet)>::default(),
            (2, [count, steps @ ..]) => (
                trail_of(usize::from(*count), steps)?,
                [0; 32],
                PinSet::default(),
            ),
            (3, [count, rest @ ..]) => {
                let (steps, rest) = rest.split_at_checked(40 * usize::from(*count))?;
                let (key, rest) = rest.split_first_chunk::<32>()?;
                let (pinned, rest) = rest.split_first()?;
                let (numbers, []) = rest.as_chunks::<8>() else {
                    return None;
                };
                let pins = PinSet::from_numbers(numbers.iter().map(|no| u64::from_le_bytes(*no)))?;
                (numbers.len() == usize::from(*pinned)).then_some(())?;
                (trail_of(usize::from(*count), steps)?, *key, pins)
            }
            _ => return None,
        };
        let mut take = |len: usize| {
            let (head, tail) = rest.split_at(len);
            rest = tail;
            head
        };
        let word = |bytes: &[u8]| {
            bytes
                .iter()
                .rev()
                .fold(0_u32, |n, b| n << 8 | u32::from(*b))
        };
        let long = |bytes: &[u8]| {
            bytes
                .iter()
                .rev()
                .fold(0_u64, |n, b| n << 8 | u64::from(*b))
        };
        Some(Self {
            volume: word(take(4)),
            replica: ReplicaNo::new(word(take(4))),
            incarnation: Incarnation::new(word(take(4))),
            lease: word(take(4)),
            reserved: long(take(8)),
            server: ServerIncarnation::new(word(take(4))),
            seen: CommitSeq::new(long(take(8))),
            digest: take(32).try_into().ok()?,
            batch: BatchNo::new(long(take(8))),
            parts: word(take(4)),
            batch_digest: take(32).try_into().ok()?,
            announce: long(take(8)),
            offer: long(take(8)),
            trail,
            key,
            pins,
        })
    }

    /// Returns the author that the batches of this replica have.
    pub(crate) const fn author(&self) -> Author {
        Author {
            replica: self.replica,
            incarnation: self.incarnation,
        }
    }

    /// The identity that a store keeps, if it belongs to a volume with replicas.
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

    /// Returns where the numbers of its lease end.
    pub(crate) fn lease_end(&self) -> u64 {
        (u64::from(self.lease) + 1) * LEASE
    }

    pub(crate) fn store_in(&self, op: &StoreOperation<'_>) -> Result<(), StoreError> {
        op.set_note(IDENTITY, Some(&self.encode()))
    }
}

fn trail_of(count: usize, steps: &[u8]) -> Option<HistoryTrail> {
    let mut trail = HistoryTrail::default();
    let (steps, []) = steps.as_chunks::<40>() else {
        return None;
    };
    for step in steps {
        let (seq, digest) = step.split_first_chunk::<8>()?;
        trail.record_position(
            CommitSeq::new(u64::from_le_bytes(*seq)),
            digest.try_into().ok()?,
        );
    }
    (trail.steps().len() == count && steps.len() == count).then_some(trail)
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
            volume: 1,
            replica: ReplicaNo::new(2),
            incarnation: Incarnation::new(3),
            lease: 4,
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
