//! The inode map: from object numbers to the homes of their records.
//!
//! # Invariants
//! 1. The newest word on an object is `changed`, else the tree. 2. `changed` is bounded: the store
//!    checkpoints when it reaches its cap, and a checkpoint absorbs it.

use crate::error::StoreError;
use crate::format::imap::{InodeMapItem, RecordHome};
use crate::format::page::{PagePtr, STORE_WIDE, TreeKind};
use crate::tree::freed::FreedSpace;
use crate::tree::page_bounds::LeafSpread;
use crate::tree::{PageSource, Tree};
use std::collections::BTreeMap;
use teal_types::ObjectNo;

#[derive(Debug)]
pub(crate) struct InodeMap {
    pub(crate) tree: Tree,
    /// `None`: gone.
    changed: BTreeMap<ObjectNo, Option<RecordHome>>,
    places: LeafSpread,
}

impl InodeMap {
    pub(crate) fn new(root: Option<PagePtr>) -> Self {
        Self {
            tree: Tree::with_root(TreeKind::InodeMap, STORE_WIDE, root),
            changed: BTreeMap::new(),
            places: LeafSpread::default(),
        }
    }

    pub(crate) fn decode(no: u64, value: &[u8]) -> Result<Option<RecordHome>, StoreError> {
        match InodeMapItem::decode(value) {
            Some(InodeMapItem::At(home)) => Ok(Some(home)),
            Some(InodeMapItem::Gone(_)) => Ok(None),
            None => Err(StoreError::Corrupt {
                what: "an inode map item",
                at: 0,
                object: Some(ObjectNo::new(no)),
            }),
        }
    }

    pub(crate) fn get(
        &self,
        src: &dyn PageSource,
        no: ObjectNo,
    ) -> Result<Option<RecordHome>, StoreError> {
        // Newer changes wait beside the tree.
        if let Some(home) = self.changed.get(&no) {
            return Ok(*home);
        }
        match self.tree.get(src, no.get())? {
            Some(value) => Self::decode(no.get(), &value),
            None => Ok(None),
        }
    }

    /// Returns the highest number the tree knows.
    pub(crate) fn highest_number(&self, src: &dyn PageSource) -> Result<u64, StoreError> {
        Ok(self
            .tree
            .at_or_before(src, u64::MAX)?
            .map_or(0, |(no, _)| no))
    }

    pub(crate) fn set(&mut self, no: ObjectNo, home: Option<RecordHome>) {
        // Another change of the same object stays in the same leaf.
        if self.changed.insert(no, home).is_none() {
            self.places.add(no);
        }
    }

    /// Returns what is newer than the tree.
    pub(crate) fn newer_than_tree(
        &self,
    ) -> impl Iterator<Item = (ObjectNo, Option<RecordHome>)> + '_ {
        self.changed.iter().map(|(no, home)| (*no, *home))
    }

    /// Returns where absorbing the changes makes leaves new.
    pub(crate) fn changed_places(&self) -> &LeafSpread {
        &self.places
    }

    /// Returns the most leaves that absorbing the changes makes new.
    pub(crate) fn changed_leaves(&self) -> u64 {
        self.places.leaves()
    }

    /// Makes sure that absorbing these objects does no I/O.
    pub(crate) fn warm(&mut self, src: &dyn PageSource, no: ObjectNo) -> Result<(), StoreError> {
        self.tree.warm(src, no.get(), no.get())
    }

    /// Moves the changes into the tree.
    pub(crate) fn absorb(&mut self, src: &dyn PageSource) -> Result<(), StoreError> {
        while let Some((no, home)) = self.changed.first_key_value().map(|(n, h)| (*n, *h)) {
            match home {
                Some(home) => self
                    .tree
                    .insert(src, no.get(), &InodeMapItem::At(home).encode())?,
                // No cursor is waiting for tombstones yet.
                None => self.tree.remove(src, no.get())?,
            };
            // One at a time: an error leaves the rest for the next attempt.
            self.changed.remove(&no);
        }
        self.places = LeafSpread::default();
        Ok(())
    }

    pub(crate) fn take_freed_space(&mut self) -> Vec<FreedSpace> {
        self.tree.take_freed_space()
    }
}
