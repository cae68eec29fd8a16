//! Sealing: what the open batch changed gets its addresses, and is laid out in records. No I/O on
//! warm pages.
//!
//! # Order
//! 1. What is new of each object: holes, parts of shared extents, blocks, then its record or what
//!    changed of it.
//! 2. What the cleaner has moved: cold data behind what is new, so that segments fill up with the
//!    one or the other.
//! 3. Orphans, notes and the table of shared extents; in a checkpoint also pages, and the roots
//!    last.

use crate::commit::committer::{BatchKind, SealError};
use crate::commit::layout::{BatchLayout, BlockRun, LaidOutBatch};
use crate::commit::log::CommitLog;
use crate::counters::add_to_counter;
use crate::format::delta::Delta;
use crate::format::imap::RecordHome;
use crate::format::inode::{self, DirectoryEntry};
use crate::format::note_key::split_key;
use crate::format::record;
use crate::object::accounting::count_dead;
use crate::object::directory::DirectoryContent;
use crate::object::extents::FileExtents;
use crate::object::open_batch::BatchChanges;
use crate::object::state::{
    BlockContent, DirtyBlock, LoggedState, ObjectContent, ObjectRef, ObjectState, RecordChange,
};
use crate::seeded::{Bug, bug};
use crate::tree::shared_extents::SharedChange;
use std::collections::BTreeMap;
use teal_types::{Lsn, ObjectNo, SECTOR};

/// A batch of so many objects lays them out as listings of their directories will meet them: a
/// directory with more records than fit the cache is then read as a few streams, one of each batch,
/// and not at random.
const MANY: usize = 256;

/// How far an object is sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SealProgress {
    Done,
    /// The blocks that the cleaner has read, and what depends on them, are left; `whole`: its whole
    /// record belongs into the batch.
    BlocksLeft {
        whole: bool,
    },
}

fn has_moving_blocks(state: &ObjectState) -> bool {
    match &state.content {
        ObjectContent::Blocks(blocks) => !blocks.moving.is_empty(),
        _ => false,
    }
}

impl CommitLog {
    pub(crate) fn fill_batch(
        &self,
        mut layout: BatchLayout<'_>,
        mut open: BatchChanges,
        kind: BatchKind,
        checkpoint: u64,
    ) -> Result<LaidOutBatch, SealError> {
        let objects = std::mem::take(&mut open.objects);
        self.seal_objects(&mut layout, objects)?;
        Self::seal_orphans(&mut layout, &open)?;
        Self::seal_notes(&mut layout, &open)?;
        let is_empty = matches!(kind, BatchKind::Empty(_));
        if !is_empty {
            self.seal_shared(&mut layout)?;
        }
        let flags = match kind {
            BatchKind::Batch | BatchKind::Written => 0,
            BatchKind::Empty(flags) => flags,
            BatchKind::Checkpoint => {
                self.fold(&mut layout, checkpoint)?;
                record::CHECKPOINT
            }
        };
        self.finish_batch(layout, flags, is_empty)
    }

    /// Finishes a batch, and counts its bytes.
    fn finish_batch(
        &self,
        layout: BatchLayout<'_>,
        flags: u16,
        is_empty: bool,
    ) -> Result<LaidOutBatch, SealError> {
        let counters = &self.objects.reader.counters;
        let data = layout.data_bytes;
        let pages = layout.page_bytes;
        let inodes = layout.inode_bytes;
        add_to_counter(&counters.bytes_data, data);
        add_to_counter(&counters.bytes_pages, pages);
        add_to_counter(&counters.bytes_inodes, inodes);
        // The sums count all objects of the batch.
        let sums = (!is_empty).then_some(|live| self.objects.batch_sums(live));
        let laid = layout.finish(flags, sums)?;
        let bytes: usize = laid.records.iter().map(|r| r.parts.len()).sum();
        add_to_counter(
            &counters.bytes_records,
            bytes as u64 - data - pages - inodes,
        );
        add_to_counter(&counters.bytes_copies, laid.copies.bytes());
        Ok(laid)
    }

    /// Seals objects: first all new content, object by object, then the content that the cleaner
    /// moves. That is colder, and behind the new content segments fill up with either kind.
    fn seal_objects(
        &self,
        layout: &mut BatchLayout<'_>,
        mut objects: Vec<ObjectRef>,
    ) -> Result<(), SealError> {
        if objects.len() < MANY {
            // In the order of their numbers, so that neighbours lie together.
            objects.sort_unstable_by_key(|o| o.no);
        } else {
            objects.sort_by_cached_key(|o| self.listed_at(o));
        }
        let mut moved = Vec::new();
        for object in &objects {
            if let SealProgress::BlocksLeft { whole } = self.seal_object(layout, object)? {
                moved.push((object, whole));
            }
        }
        for (object, whole) in moved {
            self.seal_moved(layout, object, whole)?;
        }
        Ok(())
    }

    /// Returns where a listing of its directory comes to an object.
    fn listed_at(&self, object: &ObjectRef) -> (Option<(ObjectNo, u64)>, ObjectNo) {
        let state = object.state.read();
        let place = state
            .links
            .first()
            .map(|l| (l.parent, self.objects.name_hash.first_cookie(&l.name)));
        (place, object.no)
    }

    pub(crate) fn install_homes(
        &self,
        segments: &mut crate::space::segments::SegmentTable,
        homes: Vec<(ObjectRef, RecordHome)>,
    ) {
        let mut imap = self.objects.inode_map.write();
        for (object, home) in homes {
            // The old record is dead as soon as the new one has its place.
            if let Some(old) = object.state.write().home.replace(home) {
                segments.add_dead(old.byte, u64::from(old.len));
            }
            imap.set(object.no, Some(home));
        }
    }

    /// Seals what is new of an object. If the cleaner has read blocks of it, they and what depends
    /// on them are left.
    fn seal_object(
        &self,
        layout: &mut BatchLayout<'_>,
        object: &ObjectRef,
    ) -> Result<SealProgress, SealError> {
        let mut guard = object.state.write();
        let state = &mut *guard;
        let pages = state.mem_pages();
        // From here on, a change of the object belongs to the next batch.
        state.in_batch = false;
        let lsn = state.core.lsn;
        if state.gone {
            self.seal_removal(layout, object.no, state)?;
            return Ok(SealProgress::Done);
        }
        let whole = state.fits_whole();
        let is_new = state.logged == LoggedState::Nothing;
        if is_new && let ObjectContent::Blocks(blocks) = &mut state.content {
            // The log knows nothing of this object yet that could become a hole.
            blocks.holes.clear();
        }
        // The attributes first: recovery must know the object before its content.
        if !whole && is_new {
            let head = state.encode_head();
            layout.add_delta(object.no, lsn, &Delta::Head(&head), head.len())?;
            state.record_change = RecordChange::Attributes;
        }
        if is_new {
            state.logged = LoggedState::Deltas;
        }
        // Content goes before the record, which holds the extents.
        self.seal_blocks(layout, object.no, state, whole)?;
        let mut progress = SealProgress::BlocksLeft { whole };
        if !has_moving_blocks(state) {
            // With moved content, the rest follows in the second half.
            self.seal_rest(layout, object, state, whole)?;
            progress = SealProgress::Done;
        }
        self.objects.ledger.pages_changed(pages, state.mem_pages());
        Ok(progress)
    }

    /// Seals that an object is gone.
    fn seal_removal(
        &self,
        layout: &mut BatchLayout<'_>,
        no: ObjectNo,
        state: &mut ObjectState,
    ) -> Result<(), SealError> {
        // An object that was made and removed within the batch leaves no trace in the log.
        if state.logged != LoggedState::Nothing {
            layout.add_delta(no, state.core.lsn, &Delta::Free, 0)?;
        }
        if let Some(home) = state.home.take() {
            layout.segments.add_dead(home.byte, u64::from(home.len));
        }
        self.objects.inode_map.write().set(no, None);
        self.objects.unfolded.remove(no);
        self.objects.cache.remove(no);
        Ok(())
    }

    /// Seals all of an object but its blocks.
    fn seal_rest(
        &self,
        layout: &mut BatchLayout<'_>,
        object: &ObjectRef,
        state: &mut ObjectState,
        whole: bool,
    ) -> Result<(), SealError> {
        // A whole record is the object's new home; anything else leaves it where it is.
        if whole {
            // The record holds the entries that changed.
            take_changed_entries(state);
            layout.add_inode(object, state.core.lsn, &state.encode_whole())?;
            state.logged = LoggedState::WholeRecord;
            self.objects.unfolded.remove(object.no);
        } else {
            Self::seal_deltas(layout, object.no, state)?;
            // The next checkpoint folds the object.
            state.logged = LoggedState::Deltas;
            self.objects.unfolded.insert(object, state);
        }
        state.record_change = RecordChange::Attributes;
        state.cut = false;
        Ok(())
    }

    /// Seals what changed of an object's record, and of its entries if it is a directory.
    fn seal_deltas(
        layout: &mut BatchLayout<'_>,
        no: ObjectNo,
        state: &mut ObjectState,
    ) -> Result<(), SealError> {
        let lsn = state.core.lsn;
        if state.record_change >= RecordChange::Head {
            let head = state.encode_head();
            layout.add_delta(no, lsn, &Delta::Head(&head), head.len())?;
        } else {
            let core = state.core_bytes();
            layout.add_delta(no, lsn, &Delta::Attributes(&core), inode::CORE)?;
        }
        // The deltas of directories carry single entries, not the whole directory.
        for (cookie, entry) in take_changed_entries(state) {
            match entry {
                Some(e) => {
                    let size = 17 + e.name.as_bytes().len();
                    let set = Delta::EntrySet {
                        cookie,
                        child: e.child,
                        kind: e.kind,
                        name: e.name,
                    };
                    layout.add_delta(no, lsn, &set, size)?;
                }
                None if bug(Bug::RemovalNotRecorded) => {}
                None => layout.add_delta(no, lsn, &Delta::EntryGone { cookie }, 8)?,
            }
        }
        Ok(())
    }

    fn seal_blocks(
        &self,
        layout: &mut BatchLayout<'_>,
        no: ObjectNo,
        state: &mut ObjectState,
        whole: bool,
    ) -> Result<(), SealError> {
        let lsn = state.core.lsn;
        let ObjectContent::Blocks(BlockContent {
            extents,
            dirty,
            holes,
            remapped,
            ..
        }) = &mut state.content
        else {
            return Ok(());
        };
        // Holes go first: blocks written after a hole was made lie above it.
        for (block, count) in std::mem::take(holes) {
            layout.add_delta(no, lsn, &Delta::Hole { block, count }, 16)?;
        }
        let remapped = std::mem::take(remapped);
        // A whole record has its extents in it.
        if !whole {
            for (block, extent) in extents.remapped_in(&self.objects.reader, no, remapped.ranges)? {
                layout.add_delta(no, lsn, &Delta::Extent { block, extent }, 30)?;
            }
        }
        // Ascending, so that runs of blocks become extents.
        let blocks = std::mem::take(dirty)
            .into_iter()
            .map(|(block, bytes)| (block, lsn, bytes));
        self.seal_runs(layout, no, state, whole, blocks)
    }

    /// Seals the blocks of an object that the cleaner has read, behind everything that is new.
    fn seal_moved(
        &self,
        layout: &mut BatchLayout<'_>,
        object: &ObjectRef,
        whole: bool,
    ) -> Result<(), SealError> {
        let mut guard = object.state.write();
        let state = &mut *guard;
        let pages = state.mem_pages();
        let blocks = self.take_still_there(object.no, &mut state.content)?;
        self.seal_runs(layout, object.no, state, whole, blocks.into_iter())?;
        self.seal_rest(layout, object, state, whole)?;
        self.objects.ledger.pages_changed(pages, state.mem_pages());
        Ok(())
    }

    /// Takes the blocks that the cleaner has read, but for those that were overwritten or cut off
    /// meanwhile, each with the operation that wrote it first.
    fn take_still_there(
        &self,
        no: ObjectNo,
        content: &mut ObjectContent,
    ) -> Result<Vec<(u64, Lsn, DirtyBlock)>, SealError> {
        let ObjectContent::Blocks(blocks) = content else {
            return Ok(Vec::new());
        };
        let moving = std::mem::take(&mut blocks.moving);
        let mut still = Vec::with_capacity(moving.len());
        for (block, it) in moving {
            let reader = &self.objects.reader;
            let Some((start, extent)) = blocks.extents.at_or_after(reader, no, block)? else {
                continue;
            };
            // The extent lies behind the block, which became a hole.
            if start > block {
                continue;
            }
            let now = extent.slice(block - start, 1);
            if now.as_own().is_some_and(|own| own.addr == it.from) {
                still.push((block, it.born, it.bytes));
            }
        }
        Ok(still)
    }

    /// Stores blocks, ascending, each with the operation that wrote it first, and lets the extents
    /// lead to them.
    fn seal_runs(
        &self,
        layout: &mut BatchLayout<'_>,
        no: ObjectNo,
        state: &mut ObjectState,
        whole: bool,
        blocks: impl Iterator<Item = (u64, Lsn, DirtyBlock)>,
    ) -> Result<(), SealError> {
        let ObjectContent::Blocks(BlockContent { extents, .. }) = &mut state.content else {
            return Ok(());
        };
        let reader = &self.objects.reader;
        let core = &mut state.core;
        let mut freed = Vec::new();
        let mut stored = 0;
        let mut blocks = blocks.peekable();
        while let Some(run) = BlockRun::take_next(&mut blocks) {
            let tail = run.tail_sectors(core.size);
            for (block, extent) in layout.add_blocks(no, core.lsn, &run, tail)? {
                // Sectors are counted as files show them (`st_blocks`).
                stored += u64::from(extent.stored);
                extents.replace_range(reader, no, block, extent.into(), &mut freed)?;
            }
        }
        // A whole record holds few extents, or the root of a tree.
        if !whole {
            extents.move_to_tree(reader, no)?;
        }
        let gone: u64 = freed.iter().map(|f| f.bytes() / SECTOR).sum();
        debug_assert!(
            core.sectors + stored >= gone,
            "more sectors are freed than there were"
        );
        core.sectors = (core.sectors + stored).saturating_sub(gone);
        if let FileExtents::Tree(tree) = extents {
            freed.extend(tree.take_freed_space());
        }
        // The space that was overwritten is dead in this batch's state.
        if !bug(Bug::OverwrittenCounted) {
            self.objects.account_sealed(layout.segments, &freed);
        }
        Ok(())
    }

    /// Writes what is moving, and logs what the open batch changed in the table. The objects have
    /// been sealed.
    pub(crate) fn seal_shared(&self, layout: &mut BatchLayout<'_>) -> Result<(), SealError> {
        let reader = &self.objects.reader;
        let object = ObjectNo::new(0);
        let mut freed = Vec::new();
        // Moved content first: its new places are part of the table's changes.
        for (id, mut shared, content) in reader.shared.take_moving(reader)? {
            let size = 12 + shared.encode().len();
            shared.extent.addr = layout.add_run(&content, shared.extent.born, size)?;
            reader.shared.set_moved(reader, id, &shared, &mut freed)?;
            layout.add_delta(object, Lsn::ZERO, &Delta::SharedSet { id, shared }, size)?;
        }
        // The old places of moved content are dead.
        count_dead(layout.segments, &freed, Some(Vec::new()));
        for (id, what) in reader.shared.take_changed(reader)? {
            if bug(Bug::SharedNotRecorded) {
                continue;
            }
            let (delta, size) = match what {
                SharedChange::Set(shared) => {
                    let size = 12 + shared.encode().len();
                    (Delta::SharedSet { id, shared }, size)
                }
                SharedChange::Count(count) => (Delta::SharedCount { id, count }, 12),
                SharedChange::Gone => (Delta::SharedGone { id }, 8),
            };
            layout.add_delta(object, Lsn::ZERO, &delta, size)?;
        }
        Ok(())
    }

    /// Logs the objects that joined the orphan set or left it.
    fn seal_orphans(layout: &mut BatchLayout<'_>, open: &BatchChanges) -> Result<(), SealError> {
        for (no, (orphan, lsn)) in &open.orphans {
            if bug(Bug::OrphanNotRecorded) {
                continue;
            }
            layout.add_delta(*no, *lsn, &Delta::Orphan(*orphan), 1)?;
        }
        Ok(())
    }

    /// Lays the changed pieces of notes out as deltas.
    fn seal_notes(layout: &mut BatchLayout<'_>, open: &BatchChanges) -> Result<(), SealError> {
        for (key, (piece, lsn)) in &open.notes {
            if bug(Bug::NoteNotRecorded) {
                continue;
            }
            let (object, number) = split_key(*key);
            let len = piece.as_ref().map_or(0, |value| value.len());
            let delta = match piece {
                Some(value) => Delta::Note {
                    piece: number,
                    value,
                },
                None => Delta::NoteGone { piece: number },
            };
            layout.add_delta(object, *lsn, &delta, 2 + len)?;
        }
        Ok(())
    }
}

/// Takes the entries of a directory that changed, by cookie; `None` for one that is gone.
fn take_changed_entries(state: &mut ObjectState) -> BTreeMap<u64, Option<DirectoryEntry>> {
    match &mut state.content {
        ObjectContent::Dir(DirectoryContent { changed, .. }) => std::mem::take(changed),
        _ => Default::default(),
    }
}
