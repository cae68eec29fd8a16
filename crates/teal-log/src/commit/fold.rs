//! Folding, the part of a batch that only a checkpoint writes: every changed page and every object
//! with a record that is behind goes into the log, and the roots come at the end.
//!
//! # How
//! 1. Objects first: their trees, then their whole records. 2. Their records close, so that they
//!    have homes; the inode map takes them.
//! 3. The store-wide trees, the usage table last. 4. The roots, with the usage items that changed
//!    while the usage table was folded.

use crate::commit::committer::SealError;
use crate::commit::layout::{BatchLayout, NoRoom};
use crate::commit::log::CommitLog;
use crate::error::StoreError;
use crate::format::delta::{CheckpointRoots, Delta, KEPT};
use crate::format::geometry::Segment;
use crate::format::page::PagePtr;
use crate::format::usage::{self, SegmentUse};
use crate::object::directory::{DirectoryContent, DirectoryEntries};
use crate::object::extents::FileExtents;
use crate::object::state::{BlockContent, LoggedState, ObjectContent, ObjectRef};
use crate::seeded::{Bug, bug};
use crate::tree::{PageMeta, Tree};
use teal_types::{Lsn, ObjectNo, SECTOR, Sector};

/// How often a seeded bug lets other threads go first.
const READERS_COME: usize = 20_000;

/// Lets readers that wait for a lock come now, however busy the machine is.
fn let_readers_come() {
    for _ in 0..READERS_COME {
        std::thread::yield_now();
    }
}

impl CommitLog {
    /// Reads now, outside of the gate, the pages that a checkpoint is going to change.
    pub(crate) fn warm_for_checkpoint(&self) -> Result<(), StoreError> {
        // The inode map: its changes first, then the paths to all objects that the fold will
        // change.
        let mut imap = self.objects.inode_map.write();
        imap.absorb(&self.objects.reader)?;
        let unfolded = self.objects.unfolded.numbers();
        let open = self.objects.open.object_numbers();
        for no in unfolded.into_iter().chain(open) {
            imap.warm(&self.objects.reader, no)?;
        }
        drop(imap);
        self.objects.reader.shared.absorb(&self.objects.reader)?;
        let mut usage = self.usage.lock();
        // The set is copied, so that the table is not locked during I/O.
        let changed = self.objects.segments.lock().changed_segments().clone();
        for segment in changed {
            usage.warm(&self.objects.reader, u64::from(segment), u64::from(segment))?;
        }
        Ok(())
    }

    /// Brings the changed pages of a tree into the batch. The caller holds the tree's lock; once it
    /// lets go, readers follow the new pointers.
    fn fold_tree(
        &self,
        layout: &mut BatchLayout<'_>,
        tree: &mut Tree,
    ) -> Result<Option<PagePtr>, SealError> {
        let mut full = false;
        let reader = &self.objects.reader;
        let root = tree.fold(&mut |meta: PageMeta, bytes| {
            match layout.add_page(meta, &bytes) {
                Ok(ptr) => {
                    // Its record is neither on the disk nor in flight before the batch is sealed.
                    if !bug(Bug::PageUnreadableWhileSealed) {
                        reader.keep_laid_out(ptr, bytes);
                    }
                    ptr
                }
                // A page without a place has no pointer yet. The batch is given up then, so any
                // pointer will do.
                Err(NoRoom) => {
                    full = true;
                    PagePtr::seal(Sector::new(0), &bytes)
                }
            }
        });
        for ptr in tree.take_freed() {
            // Replaced pages are dead in the state that this batch makes, and so are their copies.
            for at in ptr.places() {
                layout
                    .segments
                    .add_dead(at.byte_offset(), ptr.sectors() * SECTOR);
            }
        }
        if full {
            Err(SealError::NoRoom)
        } else {
            Ok(root)
        }
    }

    /// Brings every changed page and every unfolded object into the batch, and the roots at its
    /// end.
    pub(crate) fn fold(
        &self,
        layout: &mut BatchLayout<'_>,
        checkpoint: u64,
    ) -> Result<(), SealError> {
        // The objects stay in memory until the map has their new homes.
        let mut unfolded: Vec<ObjectRef> = self.objects.unfolded.take();
        // In the order of their numbers, so that neighbours lie together.
        unfolded.sort_unstable_by_key(|o| o.no);
        self.fold_objects(layout, &unfolded)?;
        // Inode records find their homes when their record closes; the map needs the homes.
        layout.close_record(0)?;
        let homes = std::mem::take(&mut layout.homes);
        self.install_homes(layout.segments, homes);
        debug_assert!(
            layout.homes.is_empty(),
            "the map is written before all homes are known"
        );
        let imap = self.fold_inode_map(layout)?;
        let orphans = self.fold_tree(layout, &mut self.objects.orphans.lock())?;
        let notes = self.fold_tree(layout, &mut self.objects.notes.lock())?;
        if bug(Bug::PageUnreadableWhileSealed) {
            let_readers_come();
        }
        let shared = self.fold_shared(layout)?;
        // Folding the usage table changes the usage of the segments it is written to. Those items
        // go with the roots.
        let usage = self.fold_usage(layout)?;
        let roots = CheckpointRoots {
            checkpoint,
            next_object: self.objects.numbers.next_object(),
            next_lsn: self.objects.numbers.next_lsn(),
            objects: self.objects.numbers.object_count(),
            imap,
            usage,
            orphans,
            shared,
            notes,
            ..CheckpointRoots::default()
        };
        self.keep_deferred(layout)?;
        // The second copy of the roots does not repeat what waits.
        let is_copied = self.objects.deferred.is_empty();
        Self::add_roots(layout, roots, is_copied)
    }

    /// Brings the trees and the whole records of all unfolded objects into the batch.
    fn fold_objects(
        &self,
        layout: &mut BatchLayout<'_>,
        unfolded: &[ObjectRef],
    ) -> Result<(), SealError> {
        for object in unfolded {
            let mut guard = object.state.write();
            let state = &mut *guard;
            let pages = state.mem_pages();
            // Trees go first: the inode record holds their roots.
            match &mut state.content {
                ObjectContent::Blocks(BlockContent {
                    extents: FileExtents::Tree(tree),
                    ..
                })
                | ObjectContent::Dir(DirectoryContent {
                    entries: DirectoryEntries::Tree(tree),
                    ..
                }) => {
                    self.fold_tree(layout, tree)?;
                }
                _ => {}
            }
            self.objects.ledger.pages_changed(pages, 0);
            layout.add_inode(object, state.core.lsn, &state.encode_whole())?;
            // The record is whole again, so recovery needs no older one.
            state.logged = LoggedState::WholeRecord;
        }
        Ok(())
    }

    fn fold_inode_map(&self, layout: &mut BatchLayout<'_>) -> Result<Option<PagePtr>, SealError> {
        let mut imap = self.objects.inode_map.write();
        imap.absorb(&self.objects.reader)?;
        let freed = imap.take_freed_space();
        self.objects.account_sealed(layout.segments, &freed);
        // The lock ends here: bringing an object up to date asks the map for its home under the
        // lock of the list of orphans, which is read next.
        self.fold_tree(layout, &mut imap.tree)
    }

    fn fold_shared(&self, layout: &mut BatchLayout<'_>) -> Result<Option<PagePtr>, SealError> {
        self.objects.reader.shared.absorb(&self.objects.reader)?;
        let mut table = self.objects.reader.shared.write();
        let root = self.fold_tree(layout, &mut table.tree)?;
        self.objects.reader.shared.publish_totals(&table);
        Ok(root)
    }

    /// Adds the roots, with the usage items that changed while the usage table was folded.
    fn add_roots(
        layout: &mut BatchLayout<'_>,
        mut roots: CheckpointRoots,
        is_copied: bool,
    ) -> Result<(), SealError> {
        // Making room may open a record in another segment, which changes that segment's item: room
        // first, then the items.
        let size = CheckpointRoots::FIXED
            + (layout.segments.changed_segments().len() + 8) * (4 + usage::BYTES);
        layout.reserve_delta(size)?;
        let changed = layout.segments.take_changed();
        for segment in &changed {
            let usage = *layout.segments.get(Segment(*segment));
            roots.overrides.push((*segment, usage));
        }
        roots.copies = layout.segments.copy_position();
        // The usage tree does not have them yet: they are due at the next checkpoint.
        layout.segments.put_changed(changed);
        if is_copied {
            layout.copies.set_roots(roots.clone());
        }
        layout.add_delta(
            ObjectNo::new(0),
            Lsn::ZERO,
            &Delta::Roots(Box::new(roots)),
            size,
        )?;
        Ok(())
    }

    fn fold_usage(&self, layout: &mut BatchLayout<'_>) -> Result<Option<PagePtr>, SealError> {
        let mut tree = self.usage.lock();
        for segment in layout.segments.take_changed() {
            let usage = *layout.segments.get(Segment(segment));
            // An item with nothing in it is not stored.
            if usage == SegmentUse::default() {
                tree.remove(&self.objects.reader, u64::from(segment))?;
            } else {
                tree.insert(&self.objects.reader, u64::from(segment), &usage.encode())?;
            }
        }
        self.fold_tree(layout, &mut tree)
    }

    /// Repeats in a checkpoint what waits still.
    pub(crate) fn keep_deferred(&self, layout: &mut BatchLayout<'_>) -> Result<(), NoRoom> {
        if self.objects.deferred.is_empty() {
            return Ok(());
        }
        // Kept word for word: the old state of the object could not be read.
        for (no, deltas) in self.objects.deferred.lock().iter() {
            for deferred in deltas {
                let delta = deferred.delta_bytes().unwrap_or_default();
                let kept = Delta::Kept {
                    lsn: deferred.lsn,
                    byte: deferred.byte,
                    delta,
                };
                layout.add_delta(*no, Lsn::ZERO, &kept, KEPT + delta.len())?;
            }
        }
        Ok(())
    }
}
