//! What lies around an object, in the order in which a walk over the tree comes to it.

use crate::Client;
use std::collections::{HashSet, VecDeque};
use std::ops::ControlFlow;
use teal_log::StoreError;
use teal_types::{FileType, ObjectNo};

/// Entries looked at.
const LOOKED_MAX: usize = 2048;

/// Entries of directories, up to [`LOOKED_MAX`].
struct Search<'a> {
    client: &'a Client,
    left: usize,
    /// The object itself, and directories that were shown.
    known: HashSet<ObjectNo>,
    below: VecDeque<ObjectNo>,
}

impl Client {
    /// Shows what lies around an object: what follows it in its directory, what is before it there, all that is below these, level by level; then the
    /// same for its directory, and so on up to the root. Until `visit` has enough, or many were shown.
    pub(crate) fn around<E: From<StoreError>>(
        &self,
        no: ObjectNo,
        visit: &mut dyn FnMut(ObjectNo, FileType) -> Result<ControlFlow<()>, E>,
    ) -> Result<(), E> {
        let (known, below) = (HashSet::from([no]), VecDeque::new());
        let mut search = Search { client: self, left: LOOKED_MAX, known, below };
        let mut at = no;
        while at != ObjectNo::ROOT {
            let names = match self.store.names(at) {
                // Gone meanwhile.
                Err(StoreError::NotFound(_)) => break,
                names => names?,
            };
            let Some((dir, name)) = names.into_iter().next() else { break };
            let behind = self.store.cookie(dir, &name)?.map_or(0, |cookie| cookie + 1);
            search.known.insert(dir);
            for range in [behind..u64::MAX, 0..behind] {
                if search.show(dir, range, visit)?.is_break() {
                    return Ok(());
                }
            }
            while let Some(dir) = search.below.pop_front() {
                if search.show(dir, 0..u64::MAX, visit)?.is_break() {
                    return Ok(());
                }
            }
            at = dir;
        }
        Ok(())
    }
}

impl Search<'_> {
    fn show<E: From<StoreError>>(
        &mut self,
        dir: ObjectNo,
        cookies: std::ops::Range<u64>,
        visit: &mut dyn FnMut(ObjectNo, FileType) -> Result<ControlFlow<()>, E>,
    ) -> Result<ControlFlow<()>, E> {
        let mut entries = Vec::new();
        let shown = self.client.store.each_entry(dir, cookies.start, &mut |cookie, child, kind, _| {
            if self.left == 0 || cookie >= cookies.end {
                return ControlFlow::Break(());
            }
            self.left -= 1;
            entries.push((child, kind));
            ControlFlow::Continue(())
        });
        match shown {
            Err(StoreError::NotFound(_)) => return Ok(ControlFlow::Continue(())),
            shown => shown?,
        }
        for (child, kind) in entries {
            if self.known.contains(&child) {
                continue;
            }
            if visit(child, kind)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            if kind.is_dir() {
                self.known.insert(child);
                self.below.push_back(child);
            }
        }
        Ok(if self.left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }
}
