//! The table of shared extents, and the references of all files to it.

use super::{RangeUse, Severity, StoreChecker};
use crate::format::extent::{Extent, SharedSlice};
use crate::format::page::STORE_WIDE;
use crate::format::shared::{SharedExtent, SharedItem};
use std::collections::BTreeMap;
use teal_types::{ObjectNo, Sector};

/// A shared extent and what was found of it.
#[derive(Debug, Clone)]
pub(super) struct CountedExtent {
    addr: Sector,
    /// References the table counts, and those that were met.
    count: u32,
    found: u64,
}

impl StoreChecker<'_> {
    /// Looks at the table: every shared extent is in its place, whole, and found from there.
    pub(super) fn shared_table(&mut self) {
        let mut places = BTreeMap::new();
        let mut extents = Vec::new();
        {
            let table = self.store.reader.shared.read();
            self.walk_tree(&table.tree, STORE_WIDE, &mut |this, key, value| {
                match SharedItem::decode(key, value) {
                    Some(SharedItem::Extent { id, shared }) => {
                        this.add_shared_extent(id, &shared);
                        if this.options.verify_data {
                            extents.push(shared.extent);
                        }
                    }
                    // Places are a second index of the same extents: both must agree.
                    Some(SharedItem::Place { addr, id }) => drop(places.insert(addr, id)),
                    None => this.in_table(
                        None,
                        format!("item {key:#x} of the table of shared extents makes no sense"),
                    ),
                }
            });
            // Places on their way into the tree.
            places.extend(table.moved_places());
        }
        self.compare_places(&places);
        self.verify_shared(&extents);
    }

    fn add_shared_extent(&mut self, id: u64, shared: &SharedExtent) {
        let addr = shared.extent.addr;
        let counted = CountedExtent {
            addr,
            count: shared.count,
            found: 0,
        };
        self.shared.insert(id, counted);
        self.add_live_range(
            addr.byte_offset(),
            shared.extent.bytes(),
            RangeUse::Content,
            STORE_WIDE,
        );
        self.highest_lsn = self.highest_lsn.max(shared.extent.born.get());
    }

    /// Compares both indexes of the table: every place leads to its extent, and every extent is
    /// found from its place.
    fn compare_places(&mut self, places: &BTreeMap<Sector, u64>) {
        for (addr, id) in places {
            let counted = self.shared.get(id);
            if counted.is_none_or(|counted| counted.addr != *addr) {
                self.in_table(
                    Some(*addr),
                    format!("shared extent {id} is said to lie here and does not"),
                );
            }
        }
        let mut lost = Vec::new();
        for (id, counted) in &self.shared {
            if !places.contains_key(&counted.addr) {
                lost.push((*id, counted.addr));
            }
        }
        for (id, addr) in lost {
            self.in_table(
                Some(addr),
                format!("nothing leads from here to shared extent {id}"),
            );
        }
    }

    /// Reads shared extents: each once, however many files share it.
    fn verify_shared(&mut self, extents: &[Extent]) {
        for extent in extents {
            match self.store.content_of(extent) {
                Ok(_) => self.report.verified += extent.bytes(),
                Err(e) => self.add_damage(None, &e),
            }
        }
    }

    fn in_table(&mut self, at: Option<Sector>, what: String) {
        self.add_problem(Severity::Inconsistent, None, at.map(Sector::get), what);
    }

    /// Counts a file's reference, and says what it leads to.
    pub(super) fn shared_part(&mut self, no: ObjectNo, slice: &SharedSlice) -> Option<Extent> {
        let id = slice.id;
        let Some(counted) = self.shared.get_mut(&id) else {
            self.add_contradiction(
                no,
                format!("it refers to shared extent {id}, which is not there"),
            );
            return None;
        };
        // Each reference is counted, to be compared with the table.
        counted.found += 1;
        match self
            .store
            .reader
            .shared
            .resolve_slice(&self.store.reader, no, slice)
        {
            Ok(extent) => Some(extent),
            Err(e) => {
                self.add_damage(Some(no), &e);
                None
            }
        }
    }

    /// Compares the counts, once every file was looked at.
    pub(super) fn shared_counts(&mut self) {
        let mut wrong = Vec::new();
        for (id, counted) in &self.shared {
            if u64::from(counted.count) != counted.found {
                wrong.push((*id, counted.clone()));
            }
        }
        wrong.sort_unstable_by_key(|(id, _)| *id);
        for (id, CountedExtent { addr, count, found }) in wrong {
            self.in_table(
                Some(addr),
                format!("shared extent {id} counts {count} references and has {found}"),
            );
        }
    }
}
