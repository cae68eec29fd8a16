//! The bytes of a log. All numbers are little-endian; checksums are CRC-32C.
//!
//! A file is one header and any number of blocks. A block holds whole records. A file that ends
//! within a block was cut off by the death of its writer: the blocks before are good.
//!
//! | header, 128 bytes | |
//! |---|---|
//! | 0 | magic `TEALDSK` and a zero byte |
//! | 8 | u32 version, 1 |
//! | 12 | u32 checksum of bytes 16 to 128 |
//! | 16 | u64 size of the disk in sectors of 512 bytes |
//! | 24 | u64 bytes of the write cache, 0 when it is off |
//! | 32 | u32 flags: 1 real time (else virtual) |
//! | 36 | 28 zero bytes |
//! | 64 | name of the profile, UTF-8, filled up with zeros |
//!
//! | block | |
//! |---|---|
//! | 0 | u32 magic `BLK1` |
//! | 4 | u32 checksum of all that follows in the block |
//! | 8 | u32 bytes of records |
//! | 12 | u32 records |
//! | 16 | u64 number of the first record, from 0 |
//! | 24 | the records |
//!
//! | record, 64 bytes and the label | |
//! |---|---|
//! | 0 | u8 kind: 1 read, 2 write, 3 write through the cache, 4 flush, 5 discard, 6 mark, 7 asleep, 8 awake |
//! | 1 | u8 zero |
//! | 2 | u16 bytes of the label (marks only) |
//! | 4 | u32 zero |
//! | 8 | u64 first sector |
//! | 16 | u64 sectors |
//! | 24 | u64 time it was asked, ns since the disk's start |
//! | 32 | u64 time it began |
//! | 40 | u64 time it was done |
//! | 48 | u64 energy of this request or transition, uJ |
//! | 56 | u64 energy of the disk from its start until `done`, uJ |
//! | 64 | the label, UTF-8, filled up with zeros to a multiple of 8 bytes |

use teal_types::{Energy, Sector, Time};

pub(super) const MAGIC: &[u8; 8] = b"TEALDSK\0";
pub(super) const VERSION: u32 = 1;
pub(super) const HEADER: usize = 128;
pub(super) const BLOCK_MAGIC: &[u8; 4] = b"BLK1";
pub(super) const BLOCK_HEAD: usize = 24;
pub(super) const RECORD: usize = 64;
/// The most bytes of records in a block.
pub(super) const BLOCK_MAX: usize = 64 << 10;
/// The longest label.
pub const LABEL_MAX: usize = 255;
const NAME_MAX: usize = 64;

/// The header of a log: the disk that it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskLogHeader {
    /// The profile's name; cut off at 64 bytes.
    pub profile: String,
    /// Size of the disk.
    pub sectors: u64,
    /// Bytes of its write cache; 0 when it is off.
    pub write_cache: u64,
    /// True if time was slept.
    pub real_time: bool,
}

/// The kind of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum DiskEventKind {
    /// A read.
    Read = 1,
    /// A write that the cache may keep.
    Write = 2,
    /// A write that is answered from the surface.
    WriteThrough = 3,
    /// A flush of the cache.
    Flush = 4,
    /// Sectors that hold nothing of value.
    Discard = 5,
    /// A label that was set.
    Mark = 6,
    /// The disk went to its lowest state.
    Asleep = 7,
    /// The disk came up.
    Awake = 8,
}

impl DiskEventKind {
    const ALL: [Self; 8] = [
        Self::Read,
        Self::Write,
        Self::WriteThrough,
        Self::Flush,
        Self::Discard,
        Self::Mark,
        Self::Asleep,
        Self::Awake,
    ];

    /// Returns the name, one word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::WriteThrough => "write-through",
            Self::Flush => "flush",
            Self::Discard => "discard",
            Self::Mark => "mark",
            Self::Asleep => "asleep",
            Self::Awake => "awake",
        }
    }
}

/// One entry of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskLogRecord {
    /// The kind.
    pub kind: DiskEventKind,
    /// First sector; 0 where there is none.
    pub at: Sector,
    /// Sectors.
    pub count: u64,
    /// The time when it was asked.
    pub asked: Time,
    /// The time when it began.
    pub start: Time,
    /// The time when it was done.
    pub done: Time,
    /// The energy that it cost.
    pub energy: Energy,
    /// All energy of the disk since its start, when it was done.
    pub total: Energy,
    /// The label of a mark; empty for others.
    pub label: String,
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    array_at(bytes, at).map(u16::from_le_bytes)
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array_at(bytes, at).map(u32::from_le_bytes)
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    array_at(bytes, at).map(u64::from_le_bytes)
}

/// Returns the longest part of `text` that has at most `most` bytes.
fn truncate_to(text: &str, most: usize) -> &str {
    let end = (0..=text.len().min(most))
        .rfind(|end| text.is_char_boundary(*end))
        .unwrap_or(0);
    &text[..end]
}

impl DiskLogHeader {
    pub(super) fn encode(&self) -> [u8; HEADER] {
        let mut out = [0; HEADER];
        out[..8].copy_from_slice(MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[16..24].copy_from_slice(&self.sectors.to_le_bytes());
        out[24..32].copy_from_slice(&self.write_cache.to_le_bytes());
        out[32..36].copy_from_slice(&u32::from(self.real_time).to_le_bytes());
        let name = truncate_to(&self.profile, NAME_MAX);
        out[64..64 + name.len()].copy_from_slice(name.as_bytes());
        // Magic and version are outside, so that a log of another version is told from a damaged
        // one.
        let checksum = crc32c::crc32c(&out[16..]);
        out[12..16].copy_from_slice(&checksum.to_le_bytes());
        out
    }

    /// Reads the header, if these are its bytes and they are whole.
    pub(super) fn decode(bytes: &[u8; HEADER]) -> Option<Self> {
        // The name ends with the first zero byte.
        let name = bytes[64..].split(|b| *b == 0).next().unwrap_or_default();
        let this = Self {
            profile: std::str::from_utf8(name).ok()?.to_owned(),
            sectors: u64_at(bytes, 16)?,
            write_cache: u64_at(bytes, 24)?,
            real_time: u32_at(bytes, 32)? & 1 != 0,
        };
        (u32_at(bytes, 12)? == crc32c::crc32c(&bytes[16..])).then_some(this)
    }
}

impl DiskLogRecord {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        // A label that is cut keeps whole characters, so that it can be read again.
        let label = truncate_to(&self.label, LABEL_MAX);
        out.extend([self.kind as u8, 0]);
        out.extend((label.len() as u16).to_le_bytes());
        out.extend([0; 4]);
        let numbers = [
            self.at.get(),
            self.count,
            self.asked.get(),
            self.start.get(),
            self.done.get(),
        ];
        for number in numbers
            .into_iter()
            .chain([self.energy.get(), self.total.get()])
        {
            out.extend(number.to_le_bytes());
        }
        out.extend(label.as_bytes());
        // Records begin at multiples of eight bytes.
        out.resize(out.len().next_multiple_of(8), 0);
    }

    /// Reads the first record of `bytes`; returns it with its length.
    pub(super) fn decode(bytes: &[u8]) -> Option<(Self, usize)> {
        let code = *bytes.first()?;
        let label = usize::from(u16_at(bytes, 2)?);
        let time = |at| {
            u64_at(bytes, at).map(|raw| Time::after_start(teal_types::TimeSpan::from_nanos(raw)))
        };
        let energy = |at| u64_at(bytes, at).map(Energy::from_microjoules);
        let this = Self {
            kind: DiskEventKind::ALL
                .into_iter()
                .find(|kind| *kind as u8 == code)?,
            at: Sector::new(u64_at(bytes, 8)?),
            count: u64_at(bytes, 16)?,
            asked: time(24)?,
            start: time(32)?,
            done: time(40)?,
            energy: energy(48)?,
            total: energy(56)?,
            label: std::str::from_utf8(bytes.get(RECORD..RECORD + label)?)
                .ok()?
                .to_owned(),
        };
        Some((this, (RECORD + label).next_multiple_of(8)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use teal_types::TimeSpan;

    #[test]
    fn golden_bytes() {
        let record = DiskLogRecord {
            kind: DiskEventKind::Mark,
            at: Sector::new(1),
            count: 2,
            asked: Time::after_start(TimeSpan::from_nanos(3)),
            start: Time::after_start(TimeSpan::from_nanos(4)),
            done: Time::after_start(TimeSpan::from_nanos(0x0506)),
            energy: Energy::from_microjoules(7),
            total: Energy::from_microjoules(8),
            label: "phase".to_owned(),
        };
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        let words: Vec<u64> = bytes
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
            .collect();
        assert_eq!(
            words,
            [
                0x0005_0006,
                1,
                2,
                3,
                4,
                0x0506,
                7,
                8,
                u64::from_le_bytes(*b"phase\0\0\0")
            ]
        );
        assert_eq!(DiskLogRecord::decode(&bytes), Some((record, 72)));

        let header = DiskLogHeader {
            profile: "ibm".to_owned(),
            sectors: 0x0102,
            write_cache: 0x0304,
            real_time: true,
        };
        let bytes = header.encode();
        assert_eq!(&bytes[..12], b"TEALDSK\0\x01\0\0\0");
        assert_eq!(
            &bytes[16..36],
            b"\x02\x01\0\0\0\0\0\0\x04\x03\0\0\0\0\0\0\x01\0\0\0"
        );
        assert_eq!(
            (&bytes[36..64], &bytes[64..68]),
            (&[0; 28][..], &b"ibm\0"[..])
        );
        assert_eq!(DiskLogHeader::decode(&bytes), Some(header));
    }

    #[test]
    fn long_labels_are_cut_between_characters() {
        let label = "ä".repeat(200);
        assert_eq!(truncate_to(&label, LABEL_MAX).len(), 254);
        assert_eq!(truncate_to("", LABEL_MAX), "");
    }
}
