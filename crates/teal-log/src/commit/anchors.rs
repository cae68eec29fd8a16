//! All anchors of a store, read from the disk.

use crate::format::anchor::{self, Anchor};
use crate::format::geometry::Geometry;
use crate::format::root_copy::{self, RootCopy};
use crate::format::superblock::Superblock;
use crate::tree::reader::CachedReader;
use std::collections::BTreeMap;
use teal_types::Sector;

/// The second copy of the roots in an anchor slot.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FoundRootCopy {
    Whole(Box<RootCopy>),
    /// Something is there that is not whole, or cannot be read.
    Torn,
    Missing,
}

/// Reads the second copy of the roots in the anchor slot at `slot`.
pub(crate) fn read_root_copy(
    slot: Sector,
    reader: &CachedReader,
    uuid: &[u8; 16],
) -> FoundRootCopy {
    let mut bytes = vec![0; root_copy::MOST];
    let read = reader.read_raw(slot.plus(root_copy::SKIP), &mut bytes);
    match RootCopy::decode(&bytes, uuid) {
        Some(copy) => FoundRootCopy::Whole(Box::new(copy)),
        None if read.is_err() || bytes.iter().any(|byte| *byte != 0) => FoundRootCopy::Torn,
        None => FoundRootCopy::Missing,
    }
}

/// The whole anchors of a store, each with its place on the disk.
#[derive(Debug)]
pub(crate) struct Anchors(Vec<(Sector, Anchor)>);

impl Anchors {
    /// Reads every slot of every place. What cannot be read, or is not whole, is left out.
    pub(crate) fn read(reader: &CachedReader, sb: &Superblock, geometry: &Geometry) -> Self {
        let decode = |at: Sector, bytes: &[u8]| Anchor::decode(bytes, &sb.uuid).map(|a| (at, a));
        let mut found = Vec::new();
        // Both slots of a place are read in one request, as they lie side by side.
        for place in 0..sb.anchor_places {
            let slots = [0, 1].map(|slot| geometry.anchor_slot(place, slot));
            let second = (slots[1].byte_offset() - slots[0].byte_offset()) as usize;
            let mut both = vec![0; second + anchor::BYTES];
            if reader.read_raw(slots[0], &mut both).is_ok() {
                found.extend(decode(slots[0], &both[..anchor::BYTES]));
                found.extend(decode(slots[1], &both[second..]));
                continue;
            }
            // One of the slots may still be readable by itself.
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

    /// Returns the anchor with the highest checkpoint number.
    pub(crate) fn newest(&self) -> Option<Anchor> {
        self.0
            .iter()
            .map(|(_, anchor)| *anchor)
            .max_by_key(|anchor| anchor.checkpoint)
    }

    /// Returns one anchor for each checkpoint, the newest first.
    pub(crate) fn by_age(&self) -> Vec<Anchor> {
        // Several slots hold the same checkpoint; one of them is enough.
        let by_checkpoint: BTreeMap<_, _> = self
            .0
            .iter()
            .map(|(_, anchor)| (anchor.checkpoint, *anchor))
            .collect();
        by_checkpoint.into_values().rev().collect()
    }

    /// Reads the second copy of the roots that an anchor's checkpoint ended with, from the first
    /// slot that has it whole.
    pub(crate) fn root_copy(
        &self,
        anchor: &Anchor,
        reader: &CachedReader,
        sb: &Superblock,
    ) -> Option<RootCopy> {
        self.0
            .iter()
            .filter(|(_, found)| found.checkpoint == anchor.checkpoint)
            .filter_map(|(at, _)| match read_root_copy(*at, reader, &sb.uuid) {
                FoundRootCopy::Whole(copy) => Some(*copy),
                FoundRootCopy::Torn | FoundRootCopy::Missing => None,
            })
            .find(|copy| copy.checkpoint == anchor.checkpoint)
    }

    /// Returns the highest sequence number that any of the anchors knows to be durable.
    pub(crate) fn watermark(&self) -> u64 {
        self.0
            .iter()
            .map(|(_, anchor)| anchor.watermark)
            .max()
            .unwrap_or(0)
    }

    /// Returns the slot of each place that was written last.
    pub(crate) fn last_slots(&self, sb: &Superblock, geometry: &Geometry) -> Vec<u64> {
        let checkpoint = |place, slot| {
            let slot = geometry.anchor_slot(place, slot);
            self.0
                .iter()
                .find(|(at, _)| *at == slot)
                .map(|(_, anchor)| anchor.checkpoint)
        };
        (0..sb.anchor_places)
            // The next anchor goes to the other slot, so the older one is overwritten.
            .map(|place| u64::from(checkpoint(place, 0) < checkpoint(place, 1)))
            .collect()
    }
}
