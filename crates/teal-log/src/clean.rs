//! Cleaning: whatever lives in a segment is entered into the open batch, so that the next commits write it elsewhere.
//!
//! # How
//! 1. The victim is the segment with the best cost-benefit (Rosenblum and Ousterhout).
//! 2. Its records say what it held and whose that was; the newest maps say what of it still lives.
//! 3. Moving is an operation like any other: no state but the batch, so a crash in the middle costs nothing.
//! 4. What cannot be read any more is not moved: the segment is set aside, the file is named in the log, and nothing is lost that was
//!    not lost before.

use crate::counters::add;
use crate::error::StoreError;
use crate::extents::{Extents, Freed};
use crate::format::delta::{Delta, decode_body};
use crate::format::extent::Extent;
use crate::geometry::Segment;
use crate::object::{Blocks, Content};
use crate::op::Op;
use crate::page::TreeKind;
use crate::store::Store;
use crate::walk;
use std::sync::atomic::Ordering;
use teal_types::{ObjectNo, SECTOR, Sector};

/// What a moved inode record takes beyond itself.
const INODE_MARGIN: i64 = 64;

impl Store {
    /// Cleans the best victim that is at most this full; `false` when there is none.
    pub(crate) fn clean_one(&self, fullest: f64, urgent: bool) -> Result<bool, StoreError> {
        let now = self.clock.civil().secs.max(0) as u64;
        let Some(victim) = self.segments.lock().victim(now, fullest, urgent) else { return Ok(false) };
        let live = u64::from(self.segments.lock().get(victim).live);
        match self.clean(victim) {
            Ok(()) => {
                add(&self.reader.counters.segments_cleaned, 1);
                add(&self.reader.counters.bytes_cleaned, live);
                Ok(true)
            }
            Err(e @ (StoreError::Corrupt { .. } | StoreError::Io { .. })) => {
                log::error!("segment {} cannot be cleaned: {e}", victim.0);
                self.segments.lock().bad.insert(victim.0);
                Ok(true)
            }
            Err(e) => Err(e),
        }
    }

    /// Cleans in the background while free segments are few. Says whether more is to be done.
    ///
    /// # Errors
    /// As [`Store::commit`].
    pub fn clean_some(&self) -> Result<bool, StoreError> {
        self.writable()?;
        let percent = u64::from(self.settings().clean_below_percent);
        let space = self.space();
        if space.free_segments * 100 >= space.segments * percent {
            return Ok(false);
        }
        let mut committer = self.commit.lock();
        self.reclaim(&mut committer, 0.9, false)?;
        Ok(self.space().free_segments > space.free_segments)
    }

    fn clean(&self, victim: Segment) -> Result<(), StoreError> {
        let whole = self.geometry.whole(victim);
        let usage = *self.segments.lock().get(victim);
        let mut bytes = vec![0; (u64::from(whole.sectors) * SECTOR) as usize];
        self.reader.raw(whole.addr, &mut bytes)?;
        let mut unreadable = None;
        for found in walk::records(&self.geometry, &self.sb.uuid, victim, &usage, &bytes) {
            for placed in decode_body(found.body, found.header.deltas) {
                let Ok(placed) = placed else { break };
                let moved = match placed.delta {
                    Delta::Inode(_) => self.move_inode(placed.object, found.body_byte + placed.at as u64),
                    Delta::Extent { block, extent } => self.move_extent(placed.object, block, &extent),
                    Delta::Page { kind, level, first_key, ptr } => {
                        self.move_page(placed.object, kind, level, first_key, ptr.addr())
                    }
                    _ => Ok(()),
                };
                match moved {
                    Ok(()) | Err(StoreError::NotFound(_)) => {}
                    Err(e @ (StoreError::Corrupt { .. } | StoreError::Io { .. })) => {
                        log::error!("cleaning {}: {e}", self.path_of(placed.object));
                        unreadable = Some(e);
                    }
                    Err(e) => return Err(e),
                }
            }
        }
        unreadable.map_or(Ok(()), Err)
    }

    fn move_inode(&self, no: ObjectNo, byte: u64) -> Result<(), StoreError> {
        if self.imap.read().get(&self.reader, no)?.is_none_or(|home| home.byte != byte) {
            return Ok(());
        }
        let op: Op<'_> = self.begin_cleaning();
        let mut locked = op.lock(&[no])?;
        if let Some(home) = locked.state(no).home.filter(|home| home.byte == byte) {
            // The record is written again, with its delta's header and the end of a page.
            self.promised.fetch_add(i64::from(home.len) + INODE_MARGIN, Ordering::Relaxed);
            let lsn = locked.state(no).core.lsn;
            let state = locked.mark(no);
            state.core.lsn = lsn;
            state.rewrite = true;
            state.head_changed = true;
        }
        Ok(())
    }

    fn move_extent(&self, no: ObjectNo, block: u64, old: &Extent) -> Result<(), StoreError> {
        let range = old.addr.get()..old.addr.get() + u64::from(old.stored);
        let op: Op<'_> = self.begin_cleaning();
        let mut locked = op.lock(&[no])?;
        let state = locked.state(no);
        let lsn = state.core.lsn;
        let Content::Blocks(blocks) = &mut state.content else { return Ok(()) };
        let mut moved = 0;
        let mut at = block;
        let mut result = Ok(());
        while let Some((start, extent)) = blocks.extents.at_or_after(&self.reader, no, at)? {
            if start >= block + old.blocks() {
                break;
            }
            at = start + extent.blocks();
            if range.contains(&extent.addr.get()) {
                match self.load_for_move(blocks, no, start, at) {
                    Ok(bytes) => moved += bytes,
                    Err(e) => result = Err(e),
                }
            }
        }
        if moved > 0 {
            locked.count_moved(moved);
            locked.mark(no).core.lsn = lsn;
            let mut freed: Vec<Freed> = Vec::new();
            locked.state(no).pages_freed(&mut freed);
            self.account(&freed);
        }
        result
    }

    fn load_for_move(&self, blocks: &mut Blocks, no: ObjectNo, from: u64, to: u64) -> Result<u64, StoreError> {
        blocks.extents.warm(&self.reader, from, to - from)?;
        let mut moved = 0;
        for block in from..to {
            if !blocks.dirty.contains_key(&block) {
                let bytes = blocks.load(&self.reader, no, block)?;
                moved += bytes.len() as u64;
                blocks.dirty.insert(block, bytes.into());
            }
        }
        Ok(moved)
    }

    fn move_page(&self, owner: ObjectNo, kind: TreeKind, level: u8, key: u64, at: Sector) -> Result<(), StoreError> {
        let mut freed = Vec::new();
        let reader = &self.reader;
        match kind {
            TreeKind::InodeMap => {
                let mut imap = self.imap.write();
                imap.tree.touch(reader, level, key, at)?;
                freed.extend(imap.freed());
            }
            TreeKind::Orphans => {
                let mut tree = self.orphans.lock();
                tree.touch(reader, level, key, at)?;
                freed.extend(tree.take_freed().into_iter().map(Freed::page));
            }
            TreeKind::Usage => {
                let mut tree = self.usage.lock();
                tree.touch(reader, level, key, at)?;
                freed.extend(tree.take_freed().into_iter().map(Freed::page));
            }
            TreeKind::Extents | TreeKind::Directory => {
                let op: Op<'_> = self.begin_cleaning();
                let mut locked = op.lock(&[owner])?;
                let state = locked.state(owner);
                let touched = match &mut state.content {
                    Content::Blocks(Blocks { extents: Extents::Tree(tree), .. })
                    | Content::Dir(crate::dir::Dir { entries: crate::dir::Entries::Tree(tree), .. }) => {
                        tree.touch(reader, level, key, at)?
                    }
                    _ => false,
                };
                if touched {
                    state.pages_freed(&mut freed);
                    let lsn = state.core.lsn;
                    locked.mark(owner).core.lsn = lsn;
                }
            }
            TreeKind::SharedExtents | TreeKind::History | TreeKind::Cursors | TreeKind::Xattrs => {}
        }
        self.account(&freed);
        Ok(())
    }
}
