//! Changing a tree: every change owns its path first and cannot fail afterwards.

use std::sync::Arc;

use teal_types::Sector;

use super::{KeyRange, PageSource, Tree, TreeChanges, load_checked, route_to_key};
use crate::error::StoreError;
use crate::format::page::{
    Child, ExpectedPage, LEVEL_MAX, Node, NodeItems, PAGE_MAX, PagePtr, TreeKind, VALUE_MAX,
    leaf_item_len,
};

/// A node below this many bytes looks for a neighbour to merge with.
const SPARSE: usize = PAGE_MAX / 3;

/// The context of a change beside the node it is at.
struct ChangeContext<'a> {
    src: &'a dyn PageSource,
    want: ExpectedPage,
    ledger: &'a mut TreeChanges,
}

impl Tree {
    /// Sets the value of `key` and returns the one before.
    ///
    /// # Errors
    /// [`StoreError::TooBig`] for a value above [`VALUE_MAX`], else what `src` answers; the content
    /// is unchanged then.
    pub(crate) fn insert(
        &mut self,
        src: &dyn PageSource,
        key: u64,
        value: &[u8],
    ) -> Result<Option<Box<[u8]>>, StoreError> {
        if value.len() > VALUE_MAX {
            return Err(StoreError::TooBig("the value of a tree item"));
        }
        let mut cx = ChangeContext {
            src,
            want: self.expected_page(None),
            ledger: &mut self.ledger,
        };
        // The first item makes the root.
        let Some(root) = &mut self.root else {
            let items = NodeItems::Leaf(vec![(key, value.into())]);
            self.root = Some(cx.new_node(0, items));
            return Ok(None);
        };
        let (old, split) = cx.insert_below(root, (None, KeyRange::ALL), key, value)?;
        // The root was split: the tree grows by a level.
        if let Some((right_key, right)) = split {
            let Some(Child::Mem(left)) = self.root.take() else {
                unreachable!("a node that was split is owned")
            };
            let level = left.level + 1;
            assert!(level <= LEVEL_MAX, "2^64 keys do not need this height");
            let items = vec![(left.first_key(), Child::Mem(left)), (right_key, right)];
            self.root = Some(cx.new_node(level, NodeItems::Inner(items)));
        }
        Ok(old)
    }

    /// Removes `key` and returns its value. A key that is not there leaves the tree as it is.
    ///
    /// # Errors
    /// Errors of `src`; the content is unchanged then.
    pub(crate) fn remove(
        &mut self,
        src: &dyn PageSource,
        key: u64,
    ) -> Result<Option<Box<[u8]>>, StoreError> {
        // Nothing is owned for a key that is not there.
        if self.get(src, key)?.is_none() {
            return Ok(None);
        }
        let mut cx = ChangeContext {
            src,
            want: self.expected_page(None),
            ledger: &mut self.ledger,
        };
        let old = self.root.as_mut().map_or(Ok(None), |root| {
            cx.remove_below(root, (None, KeyRange::ALL), key)
        })?;
        self.shorten_root();
        Ok(old)
    }

    /// Owns every page on a path to a key in `from..=to`, and the leaves of the nearest items on
    /// both sides. Until the next fold, no change of keys in that range does I/O.
    ///
    /// The neighbours are needed because a leaf that loses its last item hands its range to the
    /// leaf beside it.
    ///
    /// # Errors
    /// Errors of `src`.
    pub(crate) fn warm(
        &mut self,
        src: &dyn PageSource,
        from: u64,
        to: u64,
    ) -> Result<(), StoreError> {
        if from > to {
            return Ok(());
        }
        // The nearest items on both sides: their leaves may take the range over.
        let before = from
            .checked_sub(1)
            .map_or(Ok(None), |key| self.at_or_before(src, key))?;
        let after = to
            .checked_add(1)
            .map_or(Ok(None), |key| self.at_or_after(src, key))?;
        let low = before.map_or(from, |item| item.0);
        let high = after.map_or(to, |item| item.0);
        let mut cx = ChangeContext {
            src,
            want: self.expected_page(None),
            ledger: &mut self.ledger,
        };
        self.root.as_mut().map_or(Ok(()), |root| {
            cx.own_paths(root, (None, KeyRange::ALL), (low, high), 0)
        })
    }

    /// Owns the page at `level` on the path to `key` if it still lies at `at`, so that the next
    /// fold writes it anew. Returns whether it does. `key` is the first key the page was folded
    /// with.
    ///
    /// # Errors
    /// Errors of `src`.
    pub(crate) fn touch(
        &mut self,
        src: &dyn PageSource,
        level: u8,
        key: u64,
        at: Sector,
    ) -> Result<bool, StoreError> {
        let Some(root) = &self.root else {
            return Ok(false);
        };
        // Only a page that still lies there is touched.
        if !self.has_page(src, root, (None, KeyRange::ALL), (level, key, at))? {
            return Ok(false);
        }
        let mut cx = ChangeContext {
            src,
            want: self.expected_page(None),
            ledger: &mut self.ledger,
        };
        self.root.as_mut().map_or(Ok(()), |root| {
            cx.own_paths(root, (None, KeyRange::ALL), (key, key), level)
        })?;
        Ok(true)
    }

    /// Removes everything and shows every item, ascending. Holds all leaves in memory meanwhile.
    ///
    /// # Errors
    /// Errors of `src`; nothing is removed or shown then.
    pub(crate) fn destroy(
        &mut self,
        src: &dyn PageSource,
        visit: &mut dyn FnMut(u64, &[u8]),
    ) -> Result<(), StoreError> {
        let Some(root) = &self.root else {
            return Ok(());
        };
        let mut pages = Vec::new();
        let mut leaves = Vec::new();
        // Everything is read before anything is removed: an error leaves the tree as it is.
        self.gather_pages(src, root, (None, KeyRange::ALL), (&mut pages, &mut leaves))?;
        self.root = None;
        self.ledger.freed.append(&mut pages);
        self.ledger.mem_pages = 0;
        self.ledger.dirty = true;
        for leaf in leaves {
            if let NodeItems::Leaf(items) = &leaf.items {
                for (key, value) in items.iter() {
                    visit(*key, value);
                }
            }
        }
        Ok(())
    }

    /// Drops owned roots that are empty or only lead to one child.
    fn shorten_root(&mut self) {
        // A root with one child is replaced by it; an empty leaf leaves no tree.
        while let Some(Child::Mem(root)) = &mut self.root {
            let only = match &mut root.items {
                NodeItems::Inner(items) if items.len() == 1 => items.pop().map(|(_, child)| child),
                NodeItems::Leaf(items) if items.is_empty() => None,
                _ => break,
            };
            self.root = only;
            self.ledger.mem_pages -= 1;
        }
    }
}

impl ChangeContext<'_> {
    fn new_node(&mut self, level: u8, items: NodeItems) -> Child {
        debug_assert!(level <= LEVEL_MAX);
        self.ledger.mem_pages += 1;
        self.ledger.dirty = true;
        Child::Mem(Box::new(Node { level, items }))
    }

    /// Returns the child, owned: if it was on disk it is copied into memory and its page is free.
    fn own_child<'n>(
        &mut self,
        child: &'n mut Child,
        (level, span): (Option<u8>, KeyRange),
    ) -> Result<&'n mut Node, StoreError> {
        if let Child::Disk(ptr) = child {
            let ptr: PagePtr = *ptr;
            let node = Arc::unwrap_or_clone(load_checked(
                self.src,
                ptr,
                ExpectedPage { level, ..self.want },
                span,
            )?);
            *child = self.new_node(node.level, node.items);
            self.ledger.freed.push(ptr);
        }
        match child {
            Child::Mem(node) => Ok(node),
            Child::Disk(_) => unreachable!("it was just made owned"),
        }
    }

    /// Owns all pages from `child` down to level `down_to` that may hold keys in `low..=high`.
    fn own_paths(
        &mut self,
        child: &mut Child,
        (level, span): (Option<u8>, KeyRange),
        (low, high): (u64, u64),
        down_to: u8,
    ) -> Result<(), StoreError> {
        let node = self.own_child(child, (level, span))?;
        let NodeItems::Inner(items) = &mut node.items else {
            return Ok(());
        };
        if node.level > down_to {
            debug_assert!(low <= high, "a path to a range that is the wrong way round");
            let on_path = route_to_key(items, low)..=route_to_key(items, high);
            for at in on_path {
                let place = (Some(node.level - 1), span.of_item(items, at));
                self.own_paths(&mut items[at].1, place, (low, high), down_to)?;
            }
        }
        Ok(())
    }

    /// Returns the old value, and the right part if the node had to be split.
    #[expect(
        clippy::type_complexity,
        reason = "two optional results of a private function"
    )]
    fn insert_below(
        &mut self,
        child: &mut Child,
        (level, span): (Option<u8>, KeyRange),
        key: u64,
        value: &[u8],
    ) -> Result<(Option<Box<[u8]>>, Option<(u64, Child)>), StoreError> {
        let node = self.own_child(child, (level, span))?;
        let mut old = None;
        let changed = match &mut node.items {
            NodeItems::Leaf(items) => match items.binary_search_by_key(&key, |item| item.0) {
                Ok(at) => {
                    old = Some(std::mem::replace(&mut items[at].1, value.into()));
                    at
                }
                Err(at) => {
                    items.insert(at, (key, value.into()));
                    at
                }
            },
            NodeItems::Inner(items) => {
                let at = route_to_key(items, key);
                let place = (Some(node.level - 1), span.of_item(items, at));
                let (replaced, split) = self.insert_below(&mut items[at].1, place, key, value)?;
                // A new smallest key moves the begin of the subtree.
                items[at].0 = items[at].0.min(key);
                let Some(right) = split else {
                    return Ok((replaced, None));
                };
                old = replaced;
                items.insert(at + 1, right);
                // The split child has a new neighbour, which may fill this node, too.
                at + 1
            }
        };
        let right = split_if_over(node, changed, self.want.kind).map(|items| {
            let right = Node {
                level: node.level,
                items,
            };
            (right.first_key(), self.new_node(right.level, right.items))
        });
        Ok((old, right))
    }

    fn remove_below(
        &mut self,
        child: &mut Child,
        (level, span): (Option<u8>, KeyRange),
        key: u64,
    ) -> Result<Option<Box<[u8]>>, StoreError> {
        let node = self.own_child(child, (level, span))?;
        match &mut node.items {
            NodeItems::Leaf(items) => Ok(items
                .binary_search_by_key(&key, |item| item.0)
                .ok()
                .map(|at| items.remove(at).1)),
            NodeItems::Inner(items) => {
                let at = route_to_key(items, key);
                let place = (Some(node.level - 1), span.of_item(items, at));
                let old = self.remove_below(&mut items[at].1, place, key)?;
                // The child may have become empty or sparse.
                self.mend_child(items, at);
                Ok(old)
            }
        }
    }

    /// Mends a node after a removal under `items[at]`: drops the child if it is empty, and merges
    /// it if it is sparse and a neighbour is in memory and has room.
    fn mend_child(&mut self, items: &mut Vec<(u64, Child)>, at: usize) {
        let Child::Mem(node) = &items[at].1 else {
            return;
        };
        // Empty nodes do not exist on the disk.
        if node.is_empty() {
            items.remove(at);
            self.ledger.mem_pages -= 1;
        } else if node.encoded_len(self.want.kind) < SPARSE {
            // With the left or the right neighbour, whichever fits.
            let neighbours = [at.checked_sub(1), Some(at)];
            if let Some(left) = neighbours
                .into_iter()
                .flatten()
                .find(|&left| fit_together(items, left, self.want.kind))
            {
                let (_, right) = items.remove(left + 1);
                join_nodes(&mut items[left].1, right);
                self.ledger.mem_pages -= 1;
            }
        }
    }
}

/// Returns whether `items[left]` and the item after it are in memory and fit into one page.
fn fit_together(items: &[(u64, Child)], left: usize, kind: TreeKind) -> bool {
    match items.get(left..left + 2) {
        Some([(_, Child::Mem(left)), (_, Child::Mem(right))]) => {
            let empty = Node {
                level: 0,
                items: NodeItems::Leaf(Vec::new()),
            }
            .encoded_len(kind);
            // The header counts once.
            left.encoded_len(kind) + right.encoded_len(kind) - empty <= PAGE_MAX
        }
        _ => false,
    }
}

fn join_nodes(left: &mut Child, right: Child) {
    let (Child::Mem(left), Child::Mem(right)) = (left, right) else {
        unreachable!("both are in memory")
    };
    match (&mut left.items, right.items) {
        (NodeItems::Leaf(left), NodeItems::Leaf(mut right)) => left.append(&mut right),
        (NodeItems::Inner(left), NodeItems::Inner(mut right)) => left.append(&mut right),
        _ => unreachable!("neighbours are at one level"),
    }
}

/// Splits a node that is over the size of a page, and returns its right part: only the last item
/// when that is the one that `changed`, so that ascending keys leave full pages behind, else half
/// of the bytes.
pub(super) fn split_if_over(node: &mut Node, changed: usize, kind: TreeKind) -> Option<NodeItems> {
    if node.encoded_len(kind) <= PAGE_MAX {
        return None;
    }
    let last = node.len() - 1;
    // Ascending keys leave full pages behind; otherwise the bytes are halved.
    let mut right = match &mut node.items {
        NodeItems::Leaf(items) => {
            let total: usize = items.iter().map(|(_, value)| leaf_item_len(value)).sum();
            let mut left = 0;
            let middle = items.iter().position(|(_, value)| {
                left += leaf_item_len(value);
                left * 2 >= total
            });
            let cut = if changed == last {
                last
            } else {
                middle.map_or(last, |at| at + 1).clamp(1, last)
            };
            NodeItems::Leaf(items.split_off(cut))
        }
        NodeItems::Inner(items) => NodeItems::Inner(items.split_off(if changed == last {
            last
        } else {
            items.len() / 2
        })),
    };
    // A full page of an older store has more items than fit now: all but the last are too many.
    let is_over = node.encoded_len(kind) > PAGE_MAX;
    if let (true, NodeItems::Inner(left), NodeItems::Inner(right)) =
        (is_over, &mut node.items, &mut right)
    {
        left.append(right);
        *right = left.split_off(left.len() / 2);
    }
    debug_assert!(
        node.encoded_len(kind) <= PAGE_MAX,
        "the left part fits: items are small beside a page"
    );
    Some(right)
}
