//! Scripts: which image, and what to change in it.
//!
//! | at | bytes | field |
//! |---:|---:|---|
//! | 0 | 1 | the image, modulo their number |
//! | 1 | 1 | how to open: 1 for writing, 2 salvage |
//! | 2 | 16 each | changes: operation u8, width u8, structure u16, offset u16, another structure u16, value u64 |

use super::bases::{self, BaseImage, ImagePart};
use super::metered::MeteredDisk;
use crate::format::codec::FieldReader;
use std::sync::Arc;

/// More changes than this do not make an image worse.
const CHANGES_MAX: usize = 64;

/// Values at which arithmetic goes wrong.
const EDGES: [u64; 24] = [
    0,
    1,
    2,
    127,
    128,
    255,
    511,
    512,
    4095,
    4096,
    1 << 15,
    (1 << 16) - 1,
    1 << 16,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    (1 << 48) - 1,
    1 << 48,
    1 << 51,
    1 << 52,
    (1 << 63) - 1,
    1 << 63,
    u64::MAX - 1,
    u64::MAX,
];

pub(super) struct MutationScript {
    pub(super) base: &'static BaseImage,
    pub(super) for_writing: bool,
    pub(super) salvage: bool,
    changes: Vec<ImageMutation>,
}

struct ImageMutation {
    operation: u8,
    width: usize,
    part: u16,
    offset: u16,
    other: u16,
    value: u64,
}

impl MutationScript {
    pub(super) fn decode(input: &[u8]) -> Option<Self> {
        let mut t = FieldReader(input);
        // The first byte chooses the image, the second how it is opened.
        let base = t.u8()?;
        let how = t.u8()?;
        let bases = bases::base_images();
        let mut changes = Vec::new();
        // A bounded script: more changes only destroy more.
        while changes.len() < CHANGES_MAX
            && let Some(change) = ImageMutation::decode_one(&mut t)
        {
            changes.push(change);
        }
        let base = &bases[usize::from(base) % bases.len()];
        Some(Self {
            base,
            for_writing: how & 1 != 0,
            salvage: how & 2 != 0,
            changes,
        })
    }

    /// Returns the image with its changes, on a disk that gives out `budget` bytes.
    pub(super) fn mutated_disk(&self, budget: u64) -> Arc<MeteredDisk> {
        let disk = MeteredDisk::new(Arc::clone(&self.base.bytes), budget);
        for change in self.changes.iter() {
            change.apply_to(self.base, &disk);
        }
        Arc::new(disk)
    }
}

impl ImageMutation {
    fn decode_one(t: &mut FieldReader<'_>) -> Option<Self> {
        let operation = t.u8()?;
        let width = 1 << (t.u8()? % 4);
        Some(Self {
            operation,
            width,
            part: t.u16()?,
            offset: t.u16()?,
            other: t.u16()?,
            value: t.u64()?,
        })
    }

    fn apply_to(&self, base: &BaseImage, disk: &MeteredDisk) {
        let part = base.picked_part(self.part);
        let other = base.picked_part(self.other);
        // Empty parts have nothing to change.
        if part.len == 0 || other.len == 0 {
            return;
        }
        let offset = usize::from(self.offset) % part.len;
        let at = part.byte + offset;
        let rest = part.len - offset;
        let width = self.width.min(rest);
        let old = peek_number(disk, at, width);
        let put = |value: u64| disk.poke(at, &value.to_le_bytes()[..width]);
        // Kinds of change: a value, an edge value, a small sum, a bit, a copy of another part, a
        // fill, an address.
        match self.operation % 8 {
            0 => put(self.value),
            1 => put(EDGES[(self.value % EDGES.len() as u64) as usize]),
            2 => put(old.wrapping_add(self.value as i8 as u64)),
            3 => put(old ^ 1 << (self.value % 64)),
            // One structure in place of another, then parts of them: pointers among them.
            4 => disk.poke(part.byte, &disk.peek(other.byte, part.len.min(other.len))),
            5 => {
                let from = (self.value % other.len as u64) as usize;
                let len = 12.min(rest).min(other.len - from);
                disk.poke(at, &disk.peek(other.byte + from, len));
            }
            6 => {
                let len = ((self.value % 600) as usize).min(rest);
                disk.poke(at, &vec![(self.value >> 32) as u8; len]);
            }
            // The address of another structure.
            _ => {
                let sector = other.byte as u64 / 512;
                disk.poke(at, &sector.to_le_bytes()[..6.min(rest)]);
            }
        }
    }
}

/// Returns the number that `width` bytes are, the lowest first.
fn peek_number(disk: &MeteredDisk, at: usize, width: usize) -> u64 {
    let mut word = [0; 8];
    word[..width].copy_from_slice(&disk.peek(at, width));
    u64::from_le_bytes(word)
}

impl BaseImage {
    /// Returns the part that a number of a script means.
    fn picked_part(&self, index: u16) -> ImagePart {
        // Half of the numbers mean the fixed and newest structures.
        let count = if index >> 15 == 0 {
            self.parts.len().min(96)
        } else {
            self.parts.len()
        };
        self.parts[usize::from(index & 0x7fff) % count]
    }
}

/// Returns every image untouched, opened in every way, and with one change of each kind.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    for base in 0..bases::base_images().len() as u8 {
        // Opened in each of the four ways.
        for how in 0..4 {
            out.push(vec![base, how]);
        }
        for operation in 0..8 {
            let mut script = vec![base, 1, operation, 3];
            script.extend([base * 3 + operation, 0, 16, 0, 9, 0]);
            script.extend(u64::from(operation).to_le_bytes());
            out.push(script);
        }
    }
    out
}
