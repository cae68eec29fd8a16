//! A copy-on-write B+tree with 64-bit keys and small values, over pages that never change in place.
//!
//! # Guarantees
//! 1. *Content*: it holds what a sorted map would hold after the same operations. A failing source
//!    changes no content.
//! 2. *Exactly once*: a page is freed once, when the tree stops referring to it; written minus
//!    freed is what is live.
//! 3. *Warm*: after [`Tree::warm`] nothing done to keys in that range does I/O.
//! 4. *Infallible fold*: [`Tree::fold`] does no I/O; it hands out pages, children before parents.
//! 5. *Full*: keys inserted in ascending order fill pages to more than nine tenths.
//!
//! # How
//! 1. Changed nodes are owned ([`Child::Mem`]), all above them too; the rest are [`Child::Disk`]
//!    and come from a [`PageSource`]. Changing a node first owns its whole path, which changes no
//!    content, then cannot fail.
//! 2. The key beside a child is never above a key of its subtree; the next child's key is above all
//!    of them. An insert below the first key lowers it on the way down. So the first key of a page
//!    always leads back to that page.
//! 3. No node is empty. Merging and shortening take only what is in memory already.

mod change;
pub(crate) mod copies;
pub(crate) mod freed;
pub(crate) mod inode_map;
mod overfull;
pub(crate) mod page_bounds;
mod read;
pub(crate) mod reader;
pub(crate) mod shared_extents;

use std::sync::Arc;

use teal_types::ObjectNo;

use crate::error::StoreError;
use crate::format::page::{Child, ExpectedPage, LEVEL_MAX, Node, NodeItems, PagePtr, TreeKind};

/// The source of unchanged pages.
pub(crate) trait PageSource {
    /// Returns the node at `ptr`, from a cache or the device. Checks the checksum
    /// ([`PagePtr::matches`]) and decodes.
    ///
    /// # Errors
    /// [`StoreError::Io`], or [`StoreError::Corrupt`] when the page is not what `ptr` and `want`
    /// say.
    fn load_page(&self, ptr: PagePtr, want: ExpectedPage) -> Result<Arc<Node>, StoreError>;
}

/// The place of a page that a fold reports; enough to find it in the tree again with
/// [`Tree::touch`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PageMeta {
    pub(crate) kind: TreeKind,
    pub(crate) owner: ObjectNo,
    pub(crate) level: u8,
    pub(crate) first_key: u64,
}

/// The tree; see the module.
#[derive(Debug)]
pub(crate) struct Tree {
    kind: TreeKind,
    owner: ObjectNo,
    root: Option<Child>,
    ledger: TreeChanges,
}

/// The changes since the last fold.
#[derive(Debug, Default)]
struct TreeChanges {
    /// Pages nothing refers to any more, until taken.
    freed: Vec<PagePtr>,
    /// The number of owned nodes.
    mem_pages: usize,
    /// The next fold may give another root than the last.
    dirty: bool,
}

impl Tree {
    /// Returns what its pages are pages of.
    pub(crate) fn kind(&self) -> TreeKind {
        self.kind
    }

    /// Returns an empty tree.
    pub(crate) fn new(kind: TreeKind, owner: ObjectNo) -> Self {
        Self::with_root(kind, owner, None)
    }
    /// Returns the tree that a fold returned `root` for.
    pub(crate) fn with_root(kind: TreeKind, owner: ObjectNo, root: Option<PagePtr>) -> Self {
        Self {
            kind,
            owner,
            root: root.map(Child::Disk),
            ledger: TreeChanges::default(),
        }
    }
    /// Returns the root page; none if the tree is empty or its root is changed and not folded yet.
    pub(crate) fn root(&self) -> Option<PagePtr> {
        match self.root {
            Some(Child::Disk(ptr)) => Some(ptr),
            _ => None,
        }
    }
    /// Returns the object that the tree belongs to.
    pub(crate) const fn owner(&self) -> ObjectNo {
        self.owner
    }
    /// Returns whether nothing is in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.root.is_none()
    }
    /// Returns whether the root of the last fold is out of date.
    pub(crate) fn is_dirty(&self) -> bool {
        self.ledger.dirty
    }
    /// Returns how many pages a fold would write.
    pub(crate) fn mem_pages(&self) -> usize {
        self.ledger.mem_pages
    }
    /// Returns the pages that the tree has stopped referring to since they were last taken.
    pub(crate) fn take_freed(&mut self) -> Vec<PagePtr> {
        std::mem::take(&mut self.ledger.freed)
    }

    /// Returns what [`Tree::take_freed`] would answer.
    pub(crate) fn freed(&self) -> &[PagePtr] {
        &self.ledger.freed
    }

    /// Hands every changed page to `sink`, which places it and answers with [`PagePtr::seal`].
    /// Returns the new root, none for an empty tree. Nothing is owned afterwards.
    pub(crate) fn fold(
        &mut self,
        sink: &mut dyn FnMut(PageMeta, Vec<u8>) -> PagePtr,
    ) -> Option<PagePtr> {
        let kind = self.kind;
        let owner = self.owner;
        self.split_overfull();
        // Each owned page is written exactly once.
        let mut written = 0;
        let mut counting = |meta: PageMeta, page: Vec<u8>| {
            written += 1;
            let stored = page.len();
            debug_assert!(
                stored.is_multiple_of(teal_types::SECTOR as usize),
                "a page of whole sectors"
            );
            let ptr = sink(meta, page);
            assert_eq!(
                ptr.stored_bytes(),
                stored,
                "the sink must seal the page it was given"
            );
            ptr
        };
        let root = self
            .root
            .as_mut()
            .map(|root| fold_below(kind, owner, root, &mut counting));
        assert_eq!(written, self.ledger.mem_pages, "owned pages are counted");
        self.ledger.mem_pages = 0;
        self.ledger.dirty = false;
        root
    }

    const fn expected_page(&self, level: Option<u8>) -> ExpectedPage {
        ExpectedPage {
            kind: self.kind,
            owner: self.owner,
            level,
        }
    }
}

fn fold_below(
    kind: TreeKind,
    owner: ObjectNo,
    child: &mut Child,
    sink: &mut dyn FnMut(PageMeta, Vec<u8>) -> PagePtr,
) -> PagePtr {
    let node = match child {
        Child::Disk(ptr) => return *ptr,
        Child::Mem(node) => node,
    };
    // Children first: their pointers are part of the parent.
    if let NodeItems::Inner(items) = &mut node.items {
        for (_, below) in items {
            fold_below(kind, owner, below, sink);
        }
    }
    let meta = PageMeta {
        kind,
        owner,
        level: node.level,
        first_key: node.first_key(),
    };
    let ptr = sink(meta, node.encode(kind, owner));
    *child = Child::Disk(ptr);
    ptr
}

/// The keys a subtree may have: those of the items in its parent.
#[derive(Debug, Clone, Copy)]
struct KeyRange {
    low: u64,
    /// Exclusive.
    high: Option<u64>,
}

impl KeyRange {
    const ALL: Self = Self { low: 0, high: None };

    /// Returns the part that belongs to one item of a node.
    fn of_item(self, items: &[(u64, Child)], at: usize) -> Self {
        Self {
            low: items[at].0,
            // The next item's key, or the end of the parent's range.
            high: items.get(at + 1).map(|next| next.0).or(self.high),
        }
    }
    fn holds_node(self, node: &Node) -> bool {
        node.first_key() >= self.low && self.high.is_none_or(|high| node.last_key() < high)
    }
}

/// Loads a page and checks that it fits its place: levels descend, so every walk ends, and the keys
/// are those of its place, so that a page is met once, however many pointers of a damaged tree lead
/// to it.
fn load_checked(
    src: &dyn PageSource,
    ptr: PagePtr,
    want: ExpectedPage,
    span: KeyRange,
) -> Result<Arc<Node>, StoreError> {
    let node = src.load_page(ptr, want)?;
    // A root of the highest level could not grow.
    let as_wanted = want
        .level
        .map_or(node.level < LEVEL_MAX, |level| level == node.level)
        && !node.is_empty();
    if as_wanted && span.holds_node(&node) {
        Ok(node)
    } else {
        Err(want.damaged_at(ptr.addr()))
    }
}

/// Returns which item of an interior node leads to `key`.
fn route_to_key(items: &[(u64, Child)], key: u64) -> usize {
    // Keys below the first item belong to it as well.
    items
        .partition_point(|(first, _)| *first <= key)
        .saturating_sub(1)
}

#[cfg(test)]
mod tests;
