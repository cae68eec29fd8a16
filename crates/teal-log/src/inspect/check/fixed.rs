//! The check of the structures at fixed places: both superblocks, all anchors.

use super::{Severity, StoreChecker};
use crate::commit::anchors::{FoundRootCopy, read_root_copy};
use crate::format::anchor::{self, Anchor};
use crate::format::record::{HEADER, RecordHeader};
use crate::format::root_copy;
use crate::format::superblock::{self, SECOND_COPIES, Superblock};
use teal_types::Sector;

impl StoreChecker<'_> {
    pub(super) fn check_fixed(&mut self) {
        self.check_superblocks();
        self.check_anchors();
    }

    fn check_superblocks(&mut self) {
        // The feature is set in one of them after the other, and this opening may have set it.
        let with_copies = |sb: Superblock| Superblock {
            incompatible: sb.incompatible | SECOND_COPIES,
            ..sb
        };
        let sb = with_copies(self.store.sb.clone());
        // Both copies must be equal: one replaces the other.
        for at in [Sector::new(0), Superblock::second_copy(sb.sectors)] {
            let mut bytes = vec![0; superblock::BYTES];
            let read = self.store.reader.read_raw(at, &mut bytes);
            let same = read.is_ok()
                && Superblock::decode(&bytes).is_ok_and(|copy| with_copies(copy) == sb);
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
        let reader = &self.store.reader;
        let uuid = &self.store.sb.uuid;
        let mut found = Vec::new();
        let mut torn = Vec::new();
        for at in self.store.geometry.anchor_slots() {
            let mut bytes = vec![0; anchor::BYTES];
            let read = reader.read_raw(at, &mut bytes);
            // A slot of zeros was never written.
            match Anchor::decode(&bytes, uuid).filter(|_| read.is_ok()) {
                Some(anchor) => found.push((at, anchor)),
                None if read.is_err() || bytes.iter().any(|b| *b != 0) => torn.push(at),
                None => {}
            }
        }
        for at in torn {
            self.add_problem(
                Severity::Note,
                None,
                Some(at.get()),
                "an anchor is not whole",
            );
        }
        let whole = found.clone();
        let Some((at, newest)) = found.into_iter().max_by_key(|(_, a)| a.checkpoint) else {
            return self.add_problem(Severity::Damage, None, None, "no anchor is whole");
        };
        for (at, anchor) in whole {
            let is_newest = anchor.checkpoint == newest.checkpoint;
            if is_newest && read_root_copy(at, reader, uuid) == FoundRootCopy::Torn {
                let at = at.plus(root_copy::SKIP).get();
                let what = "a second copy of the roots is not whole";
                self.add_problem(Severity::Note, None, Some(at), what);
            }
        }
        let mut header = vec![0; HEADER];
        // The newest anchor must lead to the first record of its checkpoint.
        let read = self.store.reader.read_raw(newest.addr, &mut header);
        if read.is_err()
            || RecordHeader::decode(&header, &self.store.sb.uuid)
                .is_none_or(|h| h.seq != newest.seq)
        {
            self.add_problem(
                Severity::Damage,
                None,
                Some(at.get()),
                "the newest anchor leads nowhere",
            );
        }
    }
}
