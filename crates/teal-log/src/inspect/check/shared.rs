//! The table of shared extents, and the references of all files to it.

use super::{RangeUse, Severity, StoreChecker};
use crate::format::extent::{Extent, SharedSlice};
use crate::format::page::STORE_WIDE;
use crate::format::shared::SharedItem;
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
        let store = self.store;
        let mut places = BTreeMap::new();
        let mut extents: Vec<(u64, Extent)> = Vec::new();
        {
            let table = store.reader.shared.read();
            self.walk_tree(
                &table.tree,
                STORE_WIDE,
                &mut |this, key, value| match SharedItem::decode(key, value) {
                    Some(SharedItem::Extent { id, shared }) => {
                        let counted = CountedExtent {
                            addr: shared.extent.addr,
                            count: shared.count,
                            found: 0,
                        };
                        this.shared.insert(id, counted);
                        this.add_live_range(
                            shared.extent.addr.byte_offset(),
                            shared.extent.bytes(),
                            RangeUse::Content,
                            STORE_WIDE,
                        );
                        this.highest_lsn = this.highest_lsn.max(shared.extent.born.get());
                        if this.options.verify_data {
                            extents.push((id, shared.extent));
                        }
                    }
                    Some(SharedItem::Place { addr, id }) => drop(places.insert(addr, id)),
                    None => this.in_table(
                        None,
                        format!("item {key:#x} of the table of shared extents makes no sense"),
                    ),
                },
            );
            places.extend(table.moved_places());
        }
        for (addr, id) in &places {
            if self
                .shared
                .get(id)
                .is_none_or(|counted| counted.addr != *addr)
            {
                self.in_table(
                    Some(*addr),
                    format!("shared extent {id} is said to lie here and does not"),
                );
            }
        }
        let lost: Vec<_> = self
            .shared
            .iter()
            .filter(|(_, counted)| !places.contains_key(&counted.addr))
            .collect();
        let lost: Vec<_> = lost
            .into_iter()
            .map(|(id, counted)| (*id, counted.addr))
            .collect();
        for (id, addr) in lost {
            self.in_table(
                Some(addr),
                format!("nothing leads from here to shared extent {id}"),
            );
        }
        for (_, extent) in extents {
            match store.content_of(&extent) {
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
        let wrong = |(id, c): (&u64, &CountedExtent)| {
            (u64::from(c.count) != c.found).then_some((*id, c.clone()))
        };
        let mut wrong: Vec<_> = self.shared.iter().filter_map(wrong).collect();
        wrong.sort_unstable_by_key(|(id, _)| *id);
        for (id, CountedExtent { addr, count, found }) in wrong {
            self.in_table(
                Some(addr),
                format!("shared extent {id} counts {count} references and has {found}"),
            );
        }
    }
}
