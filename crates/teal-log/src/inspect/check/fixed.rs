//! The check of the structures at fixed places: both superblocks, all anchors.

use super::{Severity, StoreChecker};
use crate::commit::anchors::{FoundRootCopy, read_root_copy};
use crate::format::anchor::{self, Anchor};
use crate::format::record::{HEADER, RecordHeader};
use crate::format::root_copy;
use crate::format::superblock::{self, SECOND_COPIES, Superblock, UNWRITTEN_EXTENTS};
use teal_types::Sector;

impl StoreChecker<'_> {
    pub(super) fn check_fixed(&mut self) {
        self.check_superblocks();
        self.check_anchors();
    }

    fn check_superblocks(&mut self) {
        // These features are set in one of them after the other, and this opening may have set
        // them.
        let with_features = |sb: Superblock| Superblock {
            incompatible: sb.incompatible | SECOND_COPIES | UNWRITTEN_EXTENTS,
            ..sb
        };
        let sb = with_features(self.store.sb.clone());
        // Both copies must be equal: one replaces the other.
        for at in [Sector::new(0), Superblock::second_copy(sb.sectors)] {
            let mut bytes = vec![0; superblock::BYTES];
            let read = self.store.reader.read_raw(at, &mut bytes);
            let same = read.is_ok()
                && Superblock::decode(&bytes).is_ok_and(|copy| with_features(copy) == sb);
            if !same {
                self.add_problem(
                    Severity::Damage,
                    None,
                    Some(at.get()),
                    "a copy of the superblock is damaged",
                );
            }
        }
    }

    /// Checks the anchors. A torn anchor is normal after a power cut; a whole one must lead to its
    /// checkpoint while its place cannot have been reused.
    fn check_anchors(&mut self) {
        let found = self.find_anchors();
        let Some((at, newest)) = found.iter().max_by_key(|(_, a)| a.checkpoint) else {
            return self.add_problem(Severity::Damage, None, None, "no anchor is whole");
        };
        for (at, anchor) in &found {
            if anchor.checkpoint == newest.checkpoint {
                self.check_root_copy(*at);
            }
        }
        if !self.leads_to_checkpoint(newest) {
            self.add_problem(
                Severity::Damage,
                None,
                Some(at.get()),
                "the newest anchor leads nowhere",
            );
        }
    }

    /// Returns the anchors that are whole, each with its place.
    fn find_anchors(&mut self) -> Vec<(Sector, Anchor)> {
        let mut found = Vec::new();
        for at in self.store.geometry.anchor_slots() {
            let mut bytes = vec![0; anchor::BYTES];
            let read = self.store.reader.read_raw(at, &mut bytes);
            let is_read = read.is_ok();
            match Anchor::decode(&bytes, &self.store.sb.uuid) {
                Some(anchor) if is_read => found.push((at, anchor)),
                // A slot of zeros was never written.
                _ if is_read && bytes.iter().all(|b| *b == 0) => {}
                _ => self.add_problem(
                    Severity::Note,
                    None,
                    Some(at.get()),
                    "an anchor is not whole",
                ),
            }
        }
        found
    }

    /// Checks the second copy of the roots behind the anchor at `at`.
    fn check_root_copy(&mut self, at: Sector) {
        let copy = read_root_copy(at, &self.store.reader, &self.store.sb.uuid);
        if copy == FoundRootCopy::Torn {
            let at = at.plus(root_copy::SKIP).get();
            let what = "a second copy of the roots is not whole";
            self.add_problem(Severity::Note, None, Some(at), what);
        }
    }

    /// Returns whether an anchor leads to the first record of its checkpoint.
    fn leads_to_checkpoint(&self, anchor: &Anchor) -> bool {
        let mut bytes = vec![0; HEADER];
        let read = self.store.reader.read_raw(anchor.addr, &mut bytes);
        let header = RecordHeader::decode(&bytes, &self.store.sb.uuid);
        read.is_ok() && header.is_some_and(|header| header.seq == anchor.seq)
    }
}
