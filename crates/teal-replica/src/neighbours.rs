//! What lies around an object, in the order in which a walk over the tree comes to it.

use super::Replica;
use std::collections::HashSet;
use std::ops::{ControlFlow, Range};
use teal_log::{Store, StoreError};
use teal_types::{FileType, ObjectNo};

/// Entries looked at.
const LOOKED_MAX: usize = 2048;

/// Up to [`LOOKED_MAX`] entries of directories.
struct NeighbourSearch<'a> {
    store: &'a Store,
    left: usize,
    /// The object itself, and directories that were shown.
    known: HashSet<ObjectNo>,
}

impl Replica {
    /// Shows what lies around an object: what follows it in its directory, each directory with all
    /// that is below it, then what is before it there; then the same for its directory, and so on
    /// up to the root. Until `visit` has enough, or many were shown.
    pub(crate) fn visit_neighbours<E: From<StoreError>>(
        &self,
        no: ObjectNo,
        visit: &mut dyn FnMut(ObjectNo, FileType) -> Result<ControlFlow<()>, E>,
    ) -> Result<(), E> {
        let mut search = NeighbourSearch {
            store: self.store(),
            left: LOOKED_MAX,
            known: HashSet::from([no]),
        };
        let mut at = no;
        while at != ObjectNo::ROOT {
            let names = match self.store().names(at) {
                // Gone meanwhile.
                Err(StoreError::NotFound(_)) => break,
                names => names?,
            };
            let Some((dir, name)) = names.into_iter().next() else {
                break;
            };
            let behind = self
                .store()
                .cookie_of(dir, &name)?
                .map_or(0, |cookie| cookie + 1);
            search.known.insert(dir);
            for cookies in [behind..u64::MAX, 0..behind] {
                if search.walk_below(dir, cookies, visit)?.is_break() {
                    return Ok(());
                }
            }
            at = dir;
        }
        Ok(())
    }
}

impl NeighbourSearch<'_> {
    fn walk_below<E: From<StoreError>>(
        &mut self,
        dir: ObjectNo,
        cookies: Range<u64>,
        visit: &mut dyn FnMut(ObjectNo, FileType) -> Result<ControlFlow<()>, E>,
    ) -> Result<ControlFlow<()>, E> {
        let mut path = vec![self.read_entries(dir, cookies)?];
        while let Some(entries) = path.last_mut() {
            let Some((child, kind)) = entries.next() else {
                path.pop();
                continue;
            };
            if self.known.contains(&child) {
                continue;
            }
            if self.left == 0 || visit(child, kind)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            self.left -= 1;
            if kind.is_dir() {
                self.known.insert(child);
                path.push(self.read_entries(child, 0..u64::MAX)?);
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// As many entries of a directory as may still be shown.
    fn read_entries(
        &self,
        dir: ObjectNo,
        cookies: Range<u64>,
    ) -> Result<std::vec::IntoIter<(ObjectNo, FileType)>, StoreError> {
        let mut entries = Vec::new();
        let found = self
            .store
            .each_entry(dir, cookies.start, &mut |cookie, child, kind, _| {
                if entries.len() == self.left || cookie >= cookies.end {
                    return ControlFlow::Break(());
                }
                entries.push((child, kind));
                ControlFlow::Continue(())
            });
        match found {
            Err(StoreError::NotFound(_)) => {}
            found => found?,
        }
        Ok(entries.into_iter())
    }
}
