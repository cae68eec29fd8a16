//! Splitting pages that were read from an older store and have more items than a page holds now:
//! pointers that name second copies are longer.

use super::Tree;
use crate::format::page::{Child, LEVEL_MAX, Node, NodeItems, PAGE_MAX, TreeKind};

/// More than the header and one item of a page take.
const PIECE_ENDS: usize = 64;

impl Tree {
    /// Splits every owned node that is over the size of a page. All above it are owned too.
    pub(super) fn split_overfull(&mut self) {
        let Some(Child::Mem(root)) = &mut self.root else {
            return;
        };
        let mut more = 0;
        let rights = split_below(root, self.kind, &mut more);
        // The root was split: the tree grows by a level.
        if !rights.is_empty()
            && let Some(Child::Mem(left)) = self.root.take()
        {
            let level = left.level + 1;
            assert!(level <= LEVEL_MAX, "2^64 keys do not need this height");
            let parts = [*left].into_iter().chain(rights);
            let items = parts.map(|part| (part.first_key(), Child::Mem(Box::new(part))));
            let items = NodeItems::Inner(items.collect());
            self.root = Some(Child::Mem(Box::new(Node { level, items })));
            more += 1;
        }
        self.ledger.mem_pages += more;
    }
}

/// Splits what is over below `node`, then the node; returns its right parts. Counts new nodes in
/// `more`.
fn split_below(node: &mut Node, kind: TreeKind, more: &mut usize) -> Vec<Node> {
    // The items of leaves are as long as they were.
    let NodeItems::Inner(items) = &mut node.items else {
        return Vec::new();
    };
    let mut whole = Vec::with_capacity(items.len());
    for (key, mut child) in std::mem::take(items) {
        let rights = match &mut child {
            Child::Mem(below) => split_below(below, kind, more),
            Child::Disk(_) => Vec::new(),
        };
        whole.push((key, child));
        whole.extend(
            rights
                .into_iter()
                .map(|part| (part.first_key(), Child::Mem(Box::new(part)))),
        );
    }
    *items = whole;
    let bytes = node.encoded_len(kind);
    let level = node.level;
    let NodeItems::Inner(items) = &mut node.items else {
        unreachable!("it is no leaf")
    };
    if bytes <= PAGE_MAX {
        return Vec::new();
    }
    let mut pieces = 2;
    while bytes.div_ceil(pieces) + PIECE_ENDS > PAGE_MAX {
        pieces += 1;
    }
    let each = items.len().div_ceil(pieces);
    let mut rights = Vec::new();
    while items.len() > each {
        let last = (items.len() - 1) / each * each;
        rights.push(Node {
            level,
            items: NodeItems::Inner(items.split_off(last)),
        });
    }
    rights.reverse();
    *more += rights.len();
    rights
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::page::{ExpectedPage, PAGE_MAX, PagePtr, STORE_WIDE};
    use teal_types::Sector;

    /// Pointers that fill a page of version 1.
    const FULL: u64 = 203;

    fn older_page(level: u8, first: u64) -> Child {
        let raw = [8, 0, 0, 0, 0, 0, 60, 0, 1, 2, 3, 4];
        let items = (first..first + FULL).map(|key| {
            let ptr = PagePtr::decode(raw).unwrap();
            (key, Child::Disk(ptr))
        });
        Child::Mem(Box::new(Node {
            level,
            items: NodeItems::Inner(items.collect()),
        }))
    }

    /// Folds, and returns the keys of each page with its level.
    fn folded(tree: &mut Tree) -> Vec<(u8, Vec<u64>)> {
        let mut pages = Vec::new();
        let mut next = 100;
        tree.fold(&mut |meta, page| {
            let at = Sector::new(next);
            next += 8;
            let want = ExpectedPage {
                kind: meta.kind,
                owner: meta.owner,
                level: Some(meta.level),
            };
            assert!(page.len() <= PAGE_MAX);
            let node = Node::decode(&page, at, want).unwrap();
            let NodeItems::Inner(items) = &node.items else {
                panic!("a page above the leaves")
            };
            let keys = items.iter().map(|(key, _)| *key).collect();
            pages.push((meta.level, keys));
            PagePtr::seal(at, &page)
        });
        pages
    }

    #[test]
    fn a_full_root_of_an_older_store_is_split() {
        let mut tree = Tree::new(TreeKind::InodeMap, STORE_WIDE);
        tree.root = Some(older_page(1, 0));
        tree.ledger.mem_pages = 1;
        let pages = folded(&mut tree);
        let levels: Vec<_> = pages.iter().map(|(level, _)| *level).collect();
        assert_eq!(levels, [1, 1, 2]);
        let keys: Vec<_> = pages[..2].iter().flat_map(|page| page.1.clone()).collect();
        assert_eq!(keys, Vec::from_iter(0..FULL));
        assert_eq!(pages[2].1, [pages[0].1[0], pages[1].1[0]]);
    }

    #[test]
    fn full_pages_below_a_full_root_are_split() {
        let mut tree = Tree::new(TreeKind::InodeMap, STORE_WIDE);
        let below = (0..FULL).map(|n| (n * 1000, older_page(1, n * 1000)));
        let root = NodeItems::Inner(below.collect());
        tree.root = Some(Child::Mem(Box::new(Node {
            level: 2,
            items: root,
        })));
        tree.ledger.mem_pages = 1 + FULL as usize;
        let pages = folded(&mut tree);
        let of_level = |level| pages.iter().filter(|page| page.0 == level).count();
        assert_eq!(of_level(1), 2 * FULL as usize);
        assert!(of_level(2) > 1 && of_level(3) == 1);
        let leaves: usize = pages
            .iter()
            .filter(|page| page.0 == 1)
            .map(|page| page.1.len())
            .sum();
        assert_eq!(leaves, (FULL * FULL) as usize);
        assert!(!tree.is_dirty() && tree.mem_pages() == 0);
    }
}
