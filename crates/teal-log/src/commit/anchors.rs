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
        let mut anchors = Self(Vec::new());
        // Both slots of a place are read in one request, as they lie side by side.
        for place in 0..sb.anchor_places {
            let slots = [0, 1].map(|slot| geometry.anchor_slot(place, slot));
            let second = (slots[1].byte_offset() - slots[0].byte_offset()) as usize;
            let mut both = vec![0; second + anchor::BYTES];
            if reader.read_raw(slots[0], &mut both).is_ok() {
                anchors.add_decoded(sb, slots[0], &both[..anchor::BYTES]);
                anchors.add_decoded(sb, slots[1], &both[second..]);
                continue;
            }
            // One of the slots may still be readable by itself.
            for at in slots {
                let mut one = vec![0; anchor::BYTES];
                if reader.read_raw(at, &mut one).is_ok() {
                    anchors.add_decoded(sb, at, &one);
                }
            }
        }
        anchors
    }

    /// Adds the anchor that these bytes of the slot at `at` are, if it is whole.
    fn add_decoded(&mut self, sb: &Superblock, at: Sector, bytes: &[u8]) {
        if let Some(anchor) = Anchor::decode(bytes, &sb.uuid) {
            self.0.push((at, anchor));
        }
    }

    /// Returns the anchor with the highest checkpoint number.
    pub(crate) fn newest(&self) -> Option<Anchor> {
        let (_, newest) = self.0.iter().max_by_key(|(_, anchor)| anchor.checkpoint)?;
        Some(*newest)
    }

    /// Returns one anchor for each checkpoint, the newest first.
    pub(crate) fn by_age(&self) -> Vec<Anchor> {
        // Several slots hold the same checkpoint; one of them is enough.
        let mut by_checkpoint = BTreeMap::new();
        for (_, anchor) in &self.0 {
            by_checkpoint.insert(anchor.checkpoint, *anchor);
        }
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
        for (at, found) in &self.0 {
            if found.checkpoint == anchor.checkpoint
                && let FoundRootCopy::Whole(copy) = read_root_copy(*at, reader, &sb.uuid)
                && copy.checkpoint == anchor.checkpoint
            {
                return Some(*copy);
            }
        }
        None
    }

    /// Returns the highest sequence number that any of the anchors knows to be durable.
    pub(crate) fn watermark(&self) -> u64 {
        let mut highest = 0;
        for (_, anchor) in &self.0 {
            highest = highest.max(anchor.watermark);
        }
        highest
    }

    /// Returns the slot of each place that was written last.
    pub(crate) fn last_slots(&self, sb: &Superblock, geometry: &Geometry) -> Vec<u64> {
        let mut last = Vec::new();
        for place in 0..sb.anchor_places {
            let [first, second] = [0, 1].map(|slot| {
                let at = geometry.anchor_slot(place, slot);
                self.checkpoint_at(at)
            });
            // The next anchor goes to the other slot, so the older one is overwritten.
            last.push(u64::from(first < second));
        }
        last
    }

    /// Returns the checkpoint of the anchor in a slot, if that is whole.
    fn checkpoint_at(&self, slot: Sector) -> Option<u64> {
        let (_, anchor) = self.0.iter().find(|(at, _)| *at == slot)?;
        Some(anchor.checkpoint)
    }
}
