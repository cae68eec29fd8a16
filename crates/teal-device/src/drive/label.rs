//! The label of a drive: the note of object 0 of its store.
//!
//! # Bytes, little-endian
//! | bytes | field |
//! |---:|---|
//! | 4 | `TLdv` |
//! | 2 | version, 2 |
//! | 4 | volume |
//! | 4 | device: its number in the volume |
//! | 4 | incarnation of the server |
//! | 8 | position: nothing on it is older |
//! | 32 | digest of history there |
//! | 8 | nonce of the last attachment |
//! | 8 | nonce of the one that was begun last; the same, unless an answer of the server was lost |
//! | 1 | flags: 1 detached properly, 2 something has affinity (in version 1 only 1; something may have affinity) |
//! | 32 | proof: all before, keyed with what clients of the volume know; zeros: none yet |

use super::note_reader::NoteReader;
use teal_types::{CommitSeq, DriveNo, ServerIncarnation, VolumeId};

const MAGIC: [u8; 4] = *b"TLdv";
const VERSION: u16 = 2;
const CLEAN: u8 = 1;
const AFFINITY: u8 = 2;
/// The bytes of all fields but the proof.
const SIGNED_BYTES: usize = 75;
/// The bytes of a label.
pub(super) const LABEL_BYTES: usize = SIGNED_BYTES + 32;

/// The label of a drive. See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DriveLabel {
    /// The volume of the objects it holds.
    pub volume: VolumeId,
    /// The number of the drive there.
    pub device: DriveNo,
    /// The incarnation of the server: the life of its history.
    pub server_incarnation: ServerIncarnation,
    /// The position of the drive: nothing on it is older than this commit.
    pub position: CommitSeq,
    /// The digest of history there.
    pub digest: [u8; 32],
    /// The nonce of the last attachment.
    pub nonce: u64,
    /// The nonce of the attachment that was begun last.
    pub begun_nonce: u64,
    /// True if it was detached properly.
    pub is_clean: bool,
    /// True if an object with affinity may be on it.
    pub has_affinity: bool,
    /// The version of its bytes, on which the signed bytes depend.
    pub version: u16,
    /// The proof that a client of the volume wrote it.
    pub proof: [u8; 32],
}

impl Default for DriveLabel {
    fn default() -> Self {
        Self {
            volume: VolumeId::default(),
            device: DriveNo::default(),
            server_incarnation: ServerIncarnation::NONE,
            position: CommitSeq::default(),
            digest: [0; 32],
            nonce: 0,
            begun_nonce: 0,
            is_clean: false,
            has_affinity: false,
            version: VERSION,
            proof: [0; 32],
        }
    }
}

/// The reason for which a label cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LabelError {
    /// The note is something else.
    NotALabel,
    /// The label is of a version that this program does not know.
    Version(u16),
}

impl DriveLabel {
    /// Returns the label in the newest version; it wants a new proof.
    #[must_use]
    pub fn at_newest_version(self) -> Self {
        Self {
            version: VERSION,
            ..self
        }
    }

    /// Returns the bytes that the proof signs.
    pub fn signed_bytes(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend(self.version.to_le_bytes());
        for word in [
            self.volume.get(),
            self.device.get(),
            self.server_incarnation.get(),
        ] {
            out.extend(word.to_le_bytes());
        }
        out.extend(self.position.get().to_le_bytes());
        out.extend(self.digest);
        out.extend(self.nonce.to_le_bytes());
        out.extend(self.begun_nonce.to_le_bytes());
        // Version 1 has no such flag, and its proof is about its bytes.
        let affinity = if self.version > 1 && self.has_affinity {
            AFFINITY
        } else {
            0
        };
        out.push(u8::from(self.is_clean) | affinity);
        out
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = self.signed_bytes();
        debug_assert_eq!(out.len(), SIGNED_BYTES);
        out.extend(self.proof);
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, LabelError> {
        let rest = bytes.strip_prefix(&MAGIC).ok_or(LabelError::NotALabel)?;
        let mut reader = NoteReader(rest);
        // The version decides about all that follows.
        let version = reader.take_number(2).ok_or(LabelError::NotALabel)? as u16;
        if !(1..=VERSION).contains(&version) {
            return Err(LabelError::Version(version));
        }
        Self::decode_fields(version, reader).ok_or(LabelError::NotALabel)
    }

    /// Reads the fields behind the version, which must be all.
    fn decode_fields(version: u16, mut reader: NoteReader<'_>) -> Option<Self> {
        let mut label = Self {
            version,
            // A label that cannot say it may have it.
            has_affinity: version == 1,
            volume: VolumeId::new(reader.take_number(4)? as u32),
            device: DriveNo::new(reader.take_number(4)? as u32),
            server_incarnation: ServerIncarnation::new(reader.take_number(4)? as u32),
            position: CommitSeq::new(reader.take_number(8)?),
            digest: reader.take_array()?,
            nonce: reader.take_number(8)?,
            begun_nonce: reader.take_number(8)?,
            is_clean: false,
            proof: [0; 32],
        };
        let flags = reader.take_number(1)? as u8;
        label.is_clean = flags & CLEAN != 0;
        label.has_affinity |= flags & AFFINITY != 0;
        label.proof = reader.take_array()?;
        reader.is_empty().then_some(label)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_version_2_are_pinned_and_those_of_version_1_are_read() {
        let label = DriveLabel {
            volume: VolumeId::new(1),
            device: DriveNo::new(2),
            server_incarnation: ServerIncarnation::new(3),
            position: CommitSeq::new(4),
            digest: [5; 32],
            nonce: 6,
            begun_nonce: 7,
            is_clean: true,
            has_affinity: true,
            version: 2,
            proof: [8; 32],
        };
        let (word, long) = (
            |n: u32| n.to_le_bytes().to_vec(),
            |n: u64| n.to_le_bytes().to_vec(),
        );
        let head = [
            b"TLdv".to_vec(),
            vec![2, 0],
            word(1),
            word(2),
            word(3),
            long(4),
            vec![5; 32],
        ]
        .concat();
        let said = [head, long(6), long(7), vec![3]].concat();
        let bytes = [said.clone(), vec![8; 32]].concat();
        assert_eq!(
            (label.encode(), label.signed_bytes(), bytes.len()),
            (bytes.clone(), said, LABEL_BYTES)
        );
        assert_eq!(DriveLabel::decode(&bytes), Ok(label));
        assert_eq!(
            DriveLabel::decode(&bytes[..LABEL_BYTES - 1]),
            Err(LabelError::NotALabel)
        );
        assert_eq!(
            DriveLabel::decode(&[&bytes[..], &[0]].concat()),
            Err(LabelError::NotALabel)
        );
        let newer = [b"TLdv".to_vec(), vec![3, 0], bytes[6..].to_vec()].concat();
        assert_eq!(DriveLabel::decode(&newer), Err(LabelError::Version(3)));
        let mut first = bytes.clone();
        (first[4], first[LABEL_BYTES - 33]) = (1, 1);
        let of_1 = DriveLabel {
            version: 1,
            ..label
        };
        assert_eq!(DriveLabel::decode(&first), Ok(of_1));
        assert_eq!(of_1.encode(), first, "its proof is about those bytes");
        assert_eq!(
            DriveLabel {
                version: 1,
                ..label
            }
            .at_newest_version()
            .encode(),
            bytes
        );
        // A store of a volume says who it is there, too: in other words.
        assert_eq!(DriveLabel::decode(&[1; 129]), Err(LabelError::NotALabel));
    }
}
