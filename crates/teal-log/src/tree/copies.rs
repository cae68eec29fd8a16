//! Pages whose second copy is missing, damaged or to be moved: the next checkpoint writes them
//! anew. Those whose second copy a power cut may have prevented are kept apart.

use super::{KeyRange, PageSource, Tree};
use crate::error::StoreError;
use crate::format::page::{Child, NodeItems, PagePtr, TreeKind};
use parking_lot::Mutex;
use std::collections::HashSet;
use teal_types::Sector;

/// More pages than this wait for a later checkpoint that finds them again.
const WAITING_MAX: usize = 4096;

/// A page that is to be written again with both copies; enough to find it in its tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PageToRenew {
    pub(crate) kind: TreeKind,
    pub(crate) level: u8,
    pub(crate) key: u64,
    pub(crate) at: Sector,
}

/// A page with its pointer.
pub(crate) type CopiedPage = (PageToRenew, PagePtr);
/// Says which pages are looked for.
type PageFilter<'f> = &'f dyn Fn(PagePtr) -> bool;

/// The pages that the next checkpoint writes again.
#[derive(Debug, Default)]
pub(crate) struct PagesToRenew {
    waiting: Mutex<Vec<PageToRenew>>,
    /// First copies of the pages of a checkpoint that no anchor leads to: its second copies may not
    /// have been written.
    unfinished: Mutex<HashSet<Sector>>,
}

impl PagesToRenew {
    /// Adds a page, once.
    pub(crate) fn add(&self, page: PageToRenew) {
        let mut waiting = self.waiting.lock();
        if waiting.len() < WAITING_MAX && !waiting.contains(&page) {
            waiting.push(page);
        }
    }

    /// Takes all pages.
    pub(crate) fn take(&self) -> Vec<PageToRenew> {
        std::mem::take(&mut *self.waiting.lock())
    }

    /// Notes where the first copy of a page lies whose second one may not have been written.
    pub(crate) fn set_unfinished(&self, at: Sector) {
        self.unfinished.lock().insert(at);
    }

    /// Returns whether the second copy of the page at `at` may not have been written.
    pub(crate) fn is_unfinished(&self, at: Sector) -> bool {
        self.unfinished.lock().contains(&at)
    }

    /// Takes the places of all pages whose second copies may not have been written.
    pub(crate) fn take_unfinished(&self) -> HashSet<Sector> {
        std::mem::take(&mut *self.unfinished.lock())
    }

    /// Returns whether there is any.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.lock().is_empty()
    }
}

impl Tree {
    /// Returns the pages on disk that have a second copy and are `wanted`. Loads no leaves.
    ///
    /// # Errors
    /// Errors of `src`.
    pub(crate) fn pages_with_copy(
        &self,
        src: &dyn PageSource,
        wanted: PageFilter<'_>,
    ) -> Result<Vec<CopiedPage>, StoreError> {
        let mut found = Vec::new();
        let Some(root) = &self.root else {
            return Ok(found);
        };
        let node = self.open_child(src, root, None, KeyRange::ALL)?;
        let level = node.level;
        self.note_copy(root, (level, node.first_key()), wanted, &mut found);
        self.copies_below(
            src,
            root,
            (Some(level), KeyRange::ALL),
            (wanted, &mut found),
        )?;
        Ok(found)
    }

    fn copies_below(
        &self,
        src: &dyn PageSource,
        child: &Child,
        (level, span): (Option<u8>, KeyRange),
        (wanted, found): (PageFilter<'_>, &mut Vec<CopiedPage>),
    ) -> Result<(), StoreError> {
        if level == Some(0) {
            return Ok(());
        }
        let node = self.open_child(src, child, level, span)?;
        let NodeItems::Inner(items) = &node.items else {
            return Ok(());
        };
        let below = node.level - 1;
        for (at, (key, child)) in items.iter().enumerate() {
            self.note_copy(child, (below, *key), wanted, found);
            let place = (Some(below), span.of_item(items, at));
            self.copies_below(src, child, place, (wanted, &mut *found))?;
        }
        Ok(())
    }

    fn note_copy(
        &self,
        child: &Child,
        (level, key): (u8, u64),
        wanted: PageFilter<'_>,
        found: &mut Vec<CopiedPage>,
    ) {
        if let Child::Disk(ptr) = child
            && ptr.second_copy().is_some()
            && wanted(*ptr)
        {
            let page = PageToRenew {
                kind: self.kind,
                level,
                key,
                at: ptr.addr(),
            };
            found.push((page, *ptr));
        }
    }
}
