//! All anchors of a store, read from the disk.

use crate::format::anchor::{self, Anchor};
use crate::format::geometry::Geometry;
use crate::format::superblock::Superblock;
use crate::tree::reader::CachedReader;
use std::collections::BTreeMap;
use teal_types::Sector;

/// The whole anchors of a store, each with its place on the disk.
#[derive(Debug)]
pub(crate) struct Anchors(Vec<(Sector, Anchor)>);

impl Anchors {
    /// Reads every slot of every place. What cannot be read, or is not whole, is left out.
    pub(crate) fn read(reader: &CachedReader, sb: &Superblock, geometry: &Geometry) -> Self {
        let decode = |at: Sector, bytes: &[u8]| Anchor::decode(bytes, &sb.uuid).map(|a| (at, a));
        let mut found = Vec::new();
        for place in 0..sb.anchor_places {
            let slots = [0, 1].map(|slot| geometry.anchor_slot(place, slot));
            let second = (slots[1].byte_offset() - slots[0].byte_offset()) as usize;
            let mut both = vec![0; second + anchor::BYTES];
            if reader.read_raw(slots[0], &mut both).is_ok() {
                found.extend(decode(slots[0], &both[..anchor::BYTES]));
                found.extend(decode(slots[1], &both[second..]));
                continue;
            }
            for at in slots {
                let mut one = vec![0; anchor::BYTES];
                found.extend(
                    reader
                        .read_raw(at, &mut one)
                        .ok()
                        .and_then(|()| decode(at, &one)),
                );
            }
        }
        Self(found)
    }

    /// The one with the highest checkpoint number.
    pub(crate) fn newest(&self) -> Option<Anchor> {
        self.0
            .iter()
            .map(|(_, anchor)| *anchor)
            .max_by_key(|anchor| anchor.checkpoint)
    }

    /// One for each checkpoint, the newest first.
    pub(crate) fn by_age(&self) -> Vec<Anchor> {
        let by_checkpoint: BTreeMap<_, _> = self
            .0
            .iter()
            .map(|(_, anchor)| (anchor.checkpoint, *anchor))
            .collect();
        by_checkpoint.into_values().rev().collect()
    }

    /// The highest sequence number that any of them knows to be durable.
    pub(crate) fn watermark(&self) -> u64 {
        self.0
            .iter()
            .map(|(_, anchor)| anchor.watermark)
            .max()
            .unwrap_or(0)
    }

    /// The slot of each place that was written last.
    pub(crate) fn last_slots(&self, sb: &Superblock, geometry: &Geometry) -> Vec<u64> {
        let checkpoint = |place, slot| {
            let slot = geometry.anchor_slot(place, slot);
            self.0
                .iter()
                .find(|(at, _)| *at == slot)
                .map(|(_, anchor)| anchor.checkpoint)
        };
        (0..sb.anchor_places)
            .map(|place| u64::from(checkpoint(place, 0) < checkpoint(place, 1)))
            .collect()
    }
}
