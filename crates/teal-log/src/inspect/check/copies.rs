//! Second copies of pages: each copy is read by itself, and lies far from the other.

use super::{RangeUse, Severity, StoreChecker};
use crate::error::StoreError;
use crate::format::page::{ExpectedPage, Node, PagePtr};
use crate::space::segments::APART;
use crate::tree::Tree;
use teal_types::{SECTOR, Sector};

impl StoreChecker<'_> {
    /// Reads both copies of a page on disk.
    pub(super) fn check_copies(&mut self, ptr: PagePtr, tree: &Tree, node: &Node) {
        if !tree.kind().has_second_copies() {
            return;
        }
        let Some(second) = ptr.second_copy() else {
            self.without_copy += 1;
            return;
        };
        self.report.copies += 1;
        let kind = tree.kind();
        let bytes = ptr.sectors() * SECTOR;
        let of = RangeUse::SecondCopy(kind);
        self.add_live_range(second.byte_offset(), bytes, of, tree.owner());
        let want = ExpectedPage {
            kind,
            owner: tree.owner(),
            level: Some(node.level),
        };
        // The walk took whichever copy was whole; each is looked at here.
        let reader = &self.store.reader;
        let first = reader.read_page(ptr, ptr.addr(), want);
        let copy = reader.read_page(ptr, second, want);
        if let Err(error) = first {
            self.add_damaged_copy("first", &error, ptr.addr());
        }
        if let Err(error) = copy {
            // Normal after a power cut: the next commit writes it.
            if self.store.reader.to_renew.is_unfinished(ptr.addr()) {
                let what = "a second copy was not written before a power cut";
                self.add_problem(Severity::Note, None, Some(second.get()), what);
            } else {
                self.add_damaged_copy("second", &error, second);
            }
        }
        if !self.is_apart(ptr.addr(), second) {
            self.add_problem(
                Severity::Inconsistent,
                None,
                Some(second.get()),
                "the two copies of a page lie side by side",
            );
        }
    }

    /// Returns whether two places lie so far apart that no single damage is likely to meet both.
    fn is_apart(&self, one: Sector, other: Sector) -> bool {
        let geometry = &self.store.geometry;
        match (geometry.segment_of(one), geometry.segment_of(other)) {
            (Some(one), Some(other)) => one.0.abs_diff(other.0) >= APART,
            _ => false,
        }
    }

    fn add_damaged_copy(&mut self, which: &str, error: &StoreError, at: Sector) {
        let what = format!("the {which} copy is damaged: {error}");
        self.add_problem(Severity::Damage, None, Some(at.get()), what);
    }

    /// Says how many pages have no second copy yet.
    pub(super) fn note_missing_copies(&mut self) {
        let count = self.without_copy;
        if count > 0 {
            let what = format!(
                "{count} pages have no second copy yet; checkpoints will make them where there is \
                 room"
            );
            self.add_problem(Severity::Note, None, None, what);
        }
    }
}
