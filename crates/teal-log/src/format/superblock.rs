//! The superblock: written by mkfs; a mount changes it once, to say that pages have second copies.
//!
//! Two copies of 4096 bytes: at sector 0 and in the last 8 sectors that are aligned to 4096 bytes.
//!
//! | at | bytes | field |
//! |---:|---:|---|
//! | 0 | 8 | magic `TEALFS\0\x01` |
//! | 8 | 2 | version, 2 |
//! | 10 | 6 | zero |
//! | 16 | 16 | store UUID |
//! | 32 | 8 | compatible feature bits: unknown ones are ignored |
//! | 40 | 8 | read-only-compatible feature bits: unknown ones allow reading only |
//! | 48 | 8 | incompatible feature bits: unknown ones refuse |
//! | | | 0: grouped names, 1: second copies, 2: unwritten extents |
//! | 56 | 8 | sectors of the store |
//! | 64 | 4 | sectors of a segment |
//! | 68 | 4 | segments |
//! | 72 | 4 | commit alignment, bytes |
//! | 76 | 4 | anchor places |
//! | 80 | 4 | volume id |
//! | 84 | 4 | flags: 1 rotating media |
//! | 88 | 12 | time of creation: seconds i64, nanoseconds u32 |
//! | 100 | 4 | zero |
//! | 104 | 16 | seed of the directory hash |
//! | 120 | 64 | label, UTF-8, zero padded |
//! | 184 | 3908 | zero |
//! | 4092 | 4 | CRC32C of the bytes before |

use super::checksum::{crc, is_sealed};
use crate::format::codec::{FieldReader, FieldWriter};
use teal_types::{SECTOR, Sector, Timestamp};

pub(crate) const MAGIC: [u8; 8] = *b"TEALFS\0\x01";
pub(crate) const VERSION: u16 = 2;
pub(crate) const BYTES: usize = 4096;
const COPY_SECTORS: u64 = BYTES as u64 / SECTOR;
pub(crate) const LABEL_MAX: usize = 64;
const FLAG_ROTATIONAL: u32 = 1;
/// Incompatible feature bit: directories keep names made one after the other together
/// (`object/directory.rs`).
pub(crate) const GROUPED_NAMES: u64 = 1;
/// Incompatible feature bit: pages on which much depends have second copies.
pub(crate) const SECOND_COPIES: u64 = 2;
/// Incompatible feature bit: files may have unwritten extents.
pub(crate) const UNWRITTEN_EXTENTS: u64 = 4;
/// Where the size of the store stands.
const SECTORS_AT: usize = 56;
/// Incompatible feature bits that this program knows.
const KNOWN: u64 = GROUPED_NAMES | SECOND_COPIES | UNWRITTEN_EXTENTS;

/// The identity and geometry of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Superblock {
    /// Identifies the store in every record.
    pub uuid: [u8; 16],
    /// Compatible feature bits.
    pub compatible: u64,
    /// Read-only-compatible feature bits.
    pub read_only_compatible: u64,
    /// Incompatible feature bits.
    pub incompatible: u64,
    /// Size of the store in sectors.
    pub sectors: u64,
    /// Size of a segment in sectors.
    pub segment_sectors: u32,
    /// Number of segments.
    pub segments: u32,
    /// Records start and end at multiples of this many bytes.
    pub commit_align: u32,
    /// Number of places that hold anchors.
    pub anchor_places: u32,
    /// The volume this store holds.
    pub volume: u32,
    /// The medium rotates.
    pub rotational: bool,
    /// When mkfs made the store.
    pub created: Timestamp,
    /// Key of the directory hash.
    pub hash_seed: [u8; 16],
    /// The owner's name for the store.
    pub label: String,
}

/// Why bytes are no superblock this program can use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SuperblockRefusal {
    NotTeal,
    Version(u16),
    Damaged,
    Features(u64),
    Geometry(&'static str),
}

impl Superblock {
    /// Returns where the second superblock of a disk with this many sectors lies.
    pub(crate) fn second_copy(sectors: u64) -> Sector {
        // At the last multiple of its size, whatever the size of the disk is.
        Sector::new((sectors.saturating_sub(COPY_SECTORS)) / COPY_SECTORS * COPY_SECTORS)
    }

    /// Returns where the second superblock lies by what a first one says that is not whole.
    pub(crate) fn claimed_second_copy(bytes: &[u8]) -> Option<Sector> {
        let field = bytes.get(SECTORS_AT..SECTORS_AT + 8)?.try_into().ok()?;
        bytes
            .starts_with(&MAGIC)
            .then(|| Self::second_copy(u64::from_le_bytes(field)))
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(BYTES);
        out.put_bytes(&MAGIC);
        out.put_u16(VERSION);
        out.put_bytes(&[0; 6]);
        out.put_bytes(&self.uuid);
        out.put_u64(self.compatible);
        out.put_u64(self.read_only_compatible);
        out.put_u64(self.incompatible);
        out.put_u64(self.sectors);
        out.put_u32(self.segment_sectors);
        out.put_u32(self.segments);
        out.put_u32(self.commit_align);
        out.put_u32(self.anchor_places);
        out.put_u32(self.volume);
        out.put_u32(if self.rotational { FLAG_ROTATIONAL } else { 0 });
        out.put_time(self.created);
        out.put_u32(0);
        out.put_bytes(&self.hash_seed);
        // Padded with zeros.
        let mut label = self.label.clone().into_bytes();
        assert!(label.len() <= LABEL_MAX, "mkfs limits the label");
        label.resize(LABEL_MAX, 0);
        out.put_bytes(&label);
        out.resize(BYTES - 4, 0);
        let sum = crc(&out);
        out.put_u32(sum);
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, SuperblockRefusal> {
        let mut t = FieldReader(bytes);
        let magic = t.array::<8>().ok_or(SuperblockRefusal::NotTeal)?;
        // The first bytes tell a store from anything else; the rest is compared later.
        if magic[..6] != MAGIC[..6] {
            return Err(SuperblockRefusal::NotTeal);
        }
        // A store, but not a whole superblock: the other copy may help.
        if bytes.len() != BYTES || !is_sealed(bytes) {
            return Err(SuperblockRefusal::Damaged);
        }
        let version = t.u16().ok_or(SuperblockRefusal::Damaged)?;
        // The version is compared before the fields are read, which it may have moved.
        if version != VERSION || magic != MAGIC {
            return Err(SuperblockRefusal::Version(version));
        }
        let sb = Self::decode_fields(t).ok_or(SuperblockRefusal::Damaged)?;
        // Unknown features that a program must know to read the store.
        if sb.incompatible & !KNOWN != 0 {
            return Err(SuperblockRefusal::Features(sb.incompatible & !KNOWN));
        }
        sb.check_geometry()
    }

    fn decode_fields(mut t: FieldReader<'_>) -> Option<Self> {
        t.bytes(6)?;
        Some(Self {
            uuid: t.array()?,
            compatible: t.u64()?,
            read_only_compatible: t.u64()?,
            incompatible: t.u64()?,
            sectors: t.u64()?,
            segment_sectors: t.u32()?,
            segments: t.u32()?,
            commit_align: t.u32()?,
            anchor_places: t.u32()?,
            volume: t.u32()?,
            rotational: t.u32()? & FLAG_ROTATIONAL != 0,
            created: t.time()?,
            // Four reserved bytes come before.
            hash_seed: {
                t.u32()?;
                t.array()?
            },
            label: String::from_utf8(t.array::<LABEL_MAX>()?.to_vec())
                .ok()?
                .trim_end_matches('\0')
                .to_owned(),
        })
    }

    fn check_geometry(self) -> Result<Self, SuperblockRefusal> {
        let bad = |ok: bool, what| {
            if ok {
                Ok(())
            } else {
                Err(SuperblockRefusal::Geometry(what))
            }
        };
        // A geometry within these bounds cannot overflow any sum of the log.
        bad(
            self.commit_align.is_power_of_two() && (512..=65536).contains(&self.commit_align),
            "commit alignment",
        )?;
        bad(
            self.segment_sectors.is_power_of_two() && self.segment_sectors >= 1024,
            "segment size",
        )?;
        bad(
            u64::from(self.segment_sectors) * 512 <= 1 << 31,
            "segment size",
        )?;
        bad((8..=1 << 16).contains(&self.segments), "number of segments")?;
        bad(self.sectors <= 1 << 48, "size")?;
        let end = u64::from(self.segments) * u64::from(self.segment_sectors);
        bad(end <= Self::second_copy(self.sectors).get(), "size")?;
        bad(
            (1..=8).contains(&self.anchor_places) && self.anchor_places <= self.segments / 2,
            "anchor places",
        )?;
        Ok(self)
    }
}
