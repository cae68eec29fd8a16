//! Looking things up in a tree; nothing here changes it.
//!
//! # Guarantees
//! 1. *Once*: a scan loads each leaf it passes once, and none behind its end.

use std::{
    ops::{ControlFlow, Deref},
    sync::Arc,
};

use super::{KeyRange, PageSource, Tree, load_checked, route_to_key};
use crate::error::StoreError;
use crate::format::page::{Child, Node, NodeItems, PagePtr};

/// An item found.
pub(crate) type TreeItem = (u64, Box<[u8]>);
/// Looks at an item; may end the walk.
pub(crate) type ItemVisitor<'v> =
    &'v mut dyn FnMut(u64, &[u8]) -> Result<ControlFlow<()>, StoreError>;
/// Looks at a node and, if it lies unchanged on disk, its page.
pub(crate) type NodeVisitor<'v> = &'v mut dyn FnMut(Option<PagePtr>, &Node);
/// Visitor of pages that cannot be loaded, or have keys outside of what their parent says.
pub(crate) type ErrorVisitor<'v> = &'v mut dyn FnMut(PagePtr, StoreError);

/// A node to look at, wherever it is.
pub(super) enum NodeRef<'a> {
    Mem(&'a Node),
    Disk(Arc<Node>),
}

impl Deref for NodeRef<'_> {
    type Target = Node;

    fn deref(&self) -> &Node {
        match self {
            Self::Mem(node) => node,
            Self::Disk(node) => node,
        }
    }
}

impl Tree {
    /// Returns the value of `key`.
    ///
    /// # Errors
    /// Here and below: errors of `src`, and no others.
    pub(crate) fn get(
        &self,
        src: &dyn PageSource,
        key: u64,
    ) -> Result<Option<Box<[u8]>>, StoreError> {
        // An empty tree.
        let Some(root) = &self.root else {
            return Ok(None);
        };
        self.get_below(
            src,
            &*self.open_child(src, root, None, KeyRange::ALL)?,
            KeyRange::ALL,
            key,
        )
    }
    /// Returns the first item with a key of at least `key`.
    pub(crate) fn at_or_after(
        &self,
        src: &dyn PageSource,
        key: u64,
    ) -> Result<Option<TreeItem>, StoreError> {
        let mut found = None;
        self.scan(src, key, &mut |at, value| {
            found = Some((at, value.into()));
            Ok(ControlFlow::Break(()))
        })?;
        Ok(found)
    }
    /// Returns the last item with a key of at most `key`.
    pub(crate) fn at_or_before(
        &self,
        src: &dyn PageSource,
        key: u64,
    ) -> Result<Option<TreeItem>, StoreError> {
        let Some(root) = &self.root else {
            return Ok(None);
        };
        self.last_below(
            src,
            &*self.open_child(src, root, None, KeyRange::ALL)?,
            KeyRange::ALL,
            key,
        )
    }
    /// Visits the items from key `from` on, ascending.
    pub(crate) fn scan(
        &self,
        src: &dyn PageSource,
        from: u64,
        visit: ItemVisitor<'_>,
    ) -> Result<(), StoreError> {
        self.range(src, from, u64::MAX, visit)
    }
    /// Visits the items with keys in `from..=to`, ascending, and loads no page in which there can
    /// be none of them.
    pub(crate) fn range(
        &self,
        src: &dyn PageSource,
        from: u64,
        to: u64,
        visit: ItemVisitor<'_>,
    ) -> Result<(), StoreError> {
        let Some(root) = self.root.as_ref().filter(|_| from <= to) else {
            return Ok(());
        };
        self.range_below(
            src,
            &*self.open_child(src, root, None, KeyRange::ALL)?,
            KeyRange::ALL,
            (from, to),
            visit,
        )
        .map(|_ended_early| ())
    }
    /// Returns whether the root page can be read, and is there.
    pub(crate) fn has_root_page(&self, src: &dyn PageSource) -> bool {
        let root = self.root.as_ref();
        root.is_some_and(|root| self.open_child(src, root, None, KeyRange::ALL).is_ok())
    }

    /// Visits every node, parents first. What lies under a page that cannot be loaded is left out.
    pub(crate) fn walk_nodes(
        &self,
        src: &dyn PageSource,
        visit: NodeVisitor<'_>,
        on_error: ErrorVisitor<'_>,
    ) {
        if let Some(root) = &self.root {
            self.walk_below(src, root, (None, KeyRange::ALL), visit, on_error);
        }
    }

    /// Returns whether the page at `level` on the path to `key` lies unchanged at `ptr`'s place.
    pub(super) fn has_page(
        &self,
        src: &dyn PageSource,
        child: &Child,
        (known, span): (Option<u8>, KeyRange),
        (level, key, at): (u8, u64, teal_types::Sector),
    ) -> Result<bool, StoreError> {
        // The page is found by its place, on the way to its key.
        let here = matches!(child, Child::Disk(ptr) if ptr.addr() == at);
        if known == Some(level) {
            return Ok(here);
        }
        let node = self.open_child(src, child, known, span)?;
        match &node.items {
            NodeItems::Inner(items) if node.level > level => {
                let on = route_to_key(items, key);
                self.has_page(
                    src,
                    &items[on].1,
                    (Some(node.level - 1), span.of_item(items, on)),
                    (level, key, at),
                )
            }
            _ => Ok(here && node.level == level),
        }
    }

    /// Adds every page on disk and every leaf, in order of keys.
    pub(super) fn gather_pages(
        &self,
        src: &dyn PageSource,
        child: &Child,
        (level, span): (Option<u8>, KeyRange),
        (pages, leaves): (&mut Vec<PagePtr>, &mut Vec<Arc<Node>>),
    ) -> Result<(), StoreError> {
        let node = self.open_child(src, child, level, span)?;
        // Pages in memory have no place.
        if let Child::Disk(ptr) = child {
            pages.push(*ptr);
        }
        if let NodeItems::Inner(items) = &node.items {
            for (at, (_, below)) in items.iter().enumerate() {
                self.gather_pages(
                    src,
                    below,
                    (Some(node.level - 1), span.of_item(items, at)),
                    (pages, leaves),
                )?;
            }
            return Ok(());
        }
        leaves.push(match node {
            NodeRef::Mem(node) => Arc::new(node.clone()),
            NodeRef::Disk(node) => node,
        });
        Ok(())
    }

    pub(super) fn open_child<'a>(
        &self,
        src: &dyn PageSource,
        child: &'a Child,
        level: Option<u8>,
        span: KeyRange,
    ) -> Result<NodeRef<'a>, StoreError> {
        Ok(match child {
            Child::Mem(node) => NodeRef::Mem(node),
            Child::Disk(ptr) => {
                NodeRef::Disk(load_checked(src, *ptr, self.expected_page(level), span)?)
            }
        })
    }

    fn get_below(
        &self,
        src: &dyn PageSource,
        node: &Node,
        span: KeyRange,
        key: u64,
    ) -> Result<Option<Box<[u8]>>, StoreError> {
        match &node.items {
            NodeItems::Leaf(items) => Ok(items
                .binary_search_by_key(&key, |item| item.0)
                .ok()
                .map(|at| items[at].1.clone())),
            NodeItems::Inner(items) => {
                let at = route_to_key(items, key);
                let span = span.of_item(items, at);
                let below = self.open_child(src, &items[at].1, Some(node.level - 1), span)?;
                self.get_below(src, &below, span, key)
            }
        }
    }

    fn last_below(
        &self,
        src: &dyn PageSource,
        node: &Node,
        span: KeyRange,
        key: u64,
    ) -> Result<Option<TreeItem>, StoreError> {
        match &node.items {
            NodeItems::Leaf(items) => Ok(items[..items.partition_point(|item| item.0 <= key)]
                .last()
                .cloned()),
            NodeItems::Inner(items) => {
                // From the subtree of the key to the left: a subtree may hold larger keys only.
                for at in (0..=route_to_key(items, key)).rev() {
                    let span = span.of_item(items, at);
                    let below = self.open_child(src, &items[at].1, Some(node.level - 1), span)?;
                    if let Some(item) = self.last_below(src, &below, span, key)? {
                        return Ok(Some(item));
                    }
                }
                Ok(None)
            }
        }
    }

    fn range_below(
        &self,
        src: &dyn PageSource,
        node: &Node,
        span: KeyRange,
        (from, to): (u64, u64),
        visit: ItemVisitor<'_>,
    ) -> Result<ControlFlow<()>, StoreError> {
        match &node.items {
            NodeItems::Leaf(items) => {
                for (key, value) in &items[items.partition_point(|item| item.0 < from)..] {
                    if *key > to || visit(*key, value)?.is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                }
            }
            NodeItems::Inner(items) => {
                // Only subtrees that the range can reach.
                for at in route_to_key(items, from)..=route_to_key(items, to) {
                    let span = span.of_item(items, at);
                    let below = self.open_child(src, &items[at].1, Some(node.level - 1), span)?;
                    if self
                        .range_below(src, &below, span, (from, to), visit)?
                        .is_break()
                    {
                        return Ok(ControlFlow::Break(()));
                    }
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn walk_below(
        &self,
        src: &dyn PageSource,
        child: &Child,
        (level, span): (Option<u8>, KeyRange),
        visit: NodeVisitor<'_>,
        on_error: ErrorVisitor<'_>,
    ) {
        let page = match child {
            Child::Disk(ptr) => Some(*ptr),
            Child::Mem(_) => None,
        };
        let node = match (self.open_child(src, child, level, span), page) {
            (Ok(node), _) => node,
            // Damage is reported, and the walk goes on beside it.
            (Err(error), Some(ptr)) => return on_error(ptr, error),
            (Err(_), None) => return,
        };
        visit(page, &node);
        if let NodeItems::Inner(items) = &node.items {
            for (at, (_, below)) in items.iter().enumerate() {
                self.walk_below(
                    src,
                    below,
                    (Some(node.level - 1), span.of_item(items, at)),
                    visit,
                    on_error,
                );
            }
        }
    }
}
