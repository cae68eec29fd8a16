//! Splitting pages that were read from an older store and have more items than a page holds now:
//! pointers that name second copies are longer.

use super::Tree;
use super::change::split_if_over;
use crate::format::page::{Child, LEVEL_MAX, Node, NodeItems, TreeKind};

impl Tree {
    /// Splits every owned node that is over the size of a page. All above it are owned too.
    pub(super) fn split_overfull(&mut self) {
        let Some(Child::Mem(root)) = &mut self.root else {
            return;
        };
        let mut more = 0;
        let right = split_below(root, self.kind, &mut more);
        // The root was split: the tree grows by a level.
        if let Some(right) = right
            && let Some(Child::Mem(left)) = self.root.take()
        {
            let level = left.level + 1;
            assert!(level <= LEVEL_MAX, "2^64 keys do not need this height");
            let items = vec![
                (left.first_key(), Child::Mem(left)),
                (right.first_key(), Child::Mem(right)),
            ];
            let items = NodeItems::Inner(items);
            self.root = Some(Child::Mem(Box::new(Node { level, items })));
            more += 1;
        }
        self.ledger.mem_pages += more;
    }
}

/// Splits what is over below `node`, then the node; returns its right part. Counts new nodes in
/// `more`.
fn split_below(node: &mut Node, kind: TreeKind, more: &mut usize) -> Option<Box<Node>> {
    if let NodeItems::Inner(items) = &mut node.items {
        let mut at = 0;
        while at < items.len() {
            if let Child::Mem(below) = &mut items[at].1
                && let Some(right) = split_below(below, kind, more)
            {
                items.insert(at + 1, (right.first_key(), Child::Mem(right)));
                at += 1;
            }
            at += 1;
        }
    }
    let items = split_if_over(node, 0, kind)?;
    *more += 1;
    Some(Box::new(Node {
        level: node.level,
        items,
    }))
}
