//! Second copies of pages on which much depends: where they go, when they are written, and how
//! those that are missing come to be.
//!
//! # Guarantees
//! 1. *Apart*: at least one segment lies between a page and its second copy.
//! 2. *Durable together*: both are written before the barrier of their checkpoint, and the anchor
//!    follows that barrier.
//! 3. *Never in the way*: second copies take a free segment only if all records of the batch have
//!    room without it. A page without a second copy gets one as soon as there is a place.
//! 4. *Few segments*: where little lives in the segments of copies, the emptiest one is given up.

use crate::commit::log::CommitLog;
use crate::counters::add_to_counter;
use crate::error::StoreError;
use crate::format::codec::pad_to_multiple;
use crate::format::delta::CheckpointRoots;
use crate::format::geometry::Segment;
use crate::format::page::{ExpectedPage, PAGE_MAX, PagePtr};
use crate::format::record::HEADER;
use crate::format::root_copy::RootCopy;
use crate::seeded::{Bug, bug};
use crate::space::segments::SegmentTable;
use crate::tree::copies::PageToRenew;
use crate::tree::reader::{CachedReader, RecordInFlight};
use crate::tree::{PageMeta, Tree};
use teal_types::{Lsn, SECTOR, Sector};

/// Segments of copies that are worth no work, however little lives in them.
const FEW_SEGMENTS: u64 = 2;
/// Segments of copies are emptied while less than one part in so many of them lives.
const SPARSE_PART: u64 = 4;
/// Most bytes by which a batch grows with a page that is written again: the page and two above it,
/// each with what tells of it in a record. Those further up are shared.
const RENEWED_PATH: u64 = 3 * (PAGE_MAX as u64 + 64);

/// The second copies of a batch, laid out.
#[derive(Debug, Clone, Default)]
pub(crate) struct SecondCopies {
    /// Each with its first sector.
    runs: Vec<(Sector, Vec<u8>)>,
    /// Bytes of free segments that may be taken.
    room: u64,
    /// Bytes of free segments that were taken.
    taken: u64,
    /// Pages for which there was no place.
    missing: Vec<PageToRenew>,
    /// Alignment of what is written, in sectors.
    align: u64,
    /// The roots, if their second copy says all of the batch that opening needs.
    roots: Option<CheckpointRoots>,
}

impl SecondCopies {
    /// Returns no copies yet; they may take so many bytes of free segments.
    pub(crate) fn with_room(room: u64) -> Self {
        Self {
            room,
            ..Self::default()
        }
    }

    /// Sets the roots of the checkpoint.
    pub(crate) fn set_roots(&mut self, roots: CheckpointRoots) {
        self.roots = Some(roots);
    }

    /// Returns the second copy of the roots, once the last record of the batch is known.
    pub(crate) fn root_copy(self, last: &RecordInFlight) -> Option<RootCopy> {
        let roots = self.roots?;
        let mut header = [0; HEADER];
        last.parts.copy_to(0..HEADER, &mut header);
        Some(RootCopy {
            checkpoint: roots.checkpoint,
            at: last.start,
            header,
            roots,
        })
    }

    /// Returns the bytes of the free segments that were taken.
    pub(crate) fn taken_bytes(&self) -> u64 {
        self.taken
    }

    /// Returns the bytes of the copies.
    pub(crate) fn bytes(&self) -> u64 {
        let mut sum = 0;
        for (_, bytes) in &self.runs {
            sum += bytes.len() as u64;
        }
        sum
    }

    /// Adds the second copy of a page that has its first place. Returns the pointer to both.
    pub(crate) fn add(
        &mut self,
        segments: &mut SegmentTable,
        (ptr, meta): (PagePtr, PageMeta),
        bytes: &[u8],
        born: Lsn,
    ) -> PagePtr {
        // The first copy of a batch begins at a sector that no earlier copy shares.
        if self.runs.is_empty() {
            segments.align_copies();
        }
        self.align = segments.align();
        let before = segments.ready_bytes();
        let is_room = self.room >= self.taken + segments.segment_bytes();
        let place = segments.place_copy(ptr.addr(), ptr.sectors(), is_room);
        self.taken += before.saturating_sub(segments.ready_bytes());
        let Some(at) = place else {
            self.missing.push(PageToRenew {
                kind: meta.kind,
                level: meta.level,
                key: meta.first_key,
                at: ptr.addr(),
            });
            return ptr;
        };
        if !bug(Bug::CopyFreedEarly) {
            segments.add_live(at.byte_offset(), bytes.len() as u64, born);
        }
        match self.runs.last_mut() {
            Some((start, run)) if start.plus(run.len() as u64 / SECTOR) == at => {
                run.extend_from_slice(bytes);
            }
            _ => self.runs.push((at, bytes.to_vec())),
        }
        ptr.with_second_copy(Some(at))
    }

    /// Writes the copies; the barrier of their batch makes them durable.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub(crate) fn write_to(&self, reader: &CachedReader) -> Result<(), StoreError> {
        for (at, bytes) in &self.runs {
            let mut bytes = bytes.clone();
            // What is behind the last copy of a physical sector is nobody's.
            let whole = (self.align.max(1) * SECTOR) as usize;
            pad_to_multiple(&mut bytes, whole);
            reader.write(*at, bytes.into())?;
        }
        add_to_counter(
            &reader.counters.second_copies_missing,
            self.missing.len() as u64,
        );
        for page in &self.missing {
            reader.to_renew.add(*page);
        }
        Ok(())
    }
}

impl CommitLog {
    /// Writes the second copies again of a checkpoint that was found without an anchor: a power cut
    /// may have prevented them. They come to lie where their pointers say.
    pub(crate) fn finish_copies(&self) -> Result<(), StoreError> {
        let reader = &self.objects.reader;
        let unfinished = reader.to_renew.take_unfinished();
        if unfinished.is_empty() || bug(Bug::CopiesUnfinished) {
            return Ok(());
        }
        let wanted = |ptr: PagePtr| unfinished.contains(&ptr.addr());
        self.each_copied_tree(|tree| {
            let found = match tree.pages_with_copy(reader, &wanted) {
                Ok(found) => found,
                Err(e) => {
                    log::warn!("second copies are not finished: {e}");
                    return Ok(());
                }
            };
            for (page, ptr) in found {
                let want = ExpectedPage {
                    kind: page.kind,
                    owner: tree.owner(),
                    level: Some(page.level),
                };
                // A page that is lost has no copy either: that is damage, which reads tell of.
                if let Some(second) = ptr.second_copy()
                    && let Ok(node) = reader.read_page(ptr, ptr.addr(), want)
                {
                    self.write_copy(second, &node.encode(page.kind, tree.owner()))?;
                }
            }
            Ok(())
        })
    }

    /// Shows each tree whose pages have second copies, under its lock.
    fn each_copied_tree(
        &self,
        mut show: impl FnMut(&mut Tree) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        show(&mut self.objects.inode_map.write().tree)?;
        show(&mut self.objects.orphans.lock())?;
        show(&mut self.usage.lock())
    }

    /// Writes a copy to its place, whole physical sectors at a time.
    fn write_copy(&self, at: Sector, page: &[u8]) -> Result<(), StoreError> {
        let align = self.objects.geometry.align;
        let first = Sector::new(at.get() / align * align);
        let skip = ((at.get() - first.get()) * SECTOR) as usize;
        let mut bytes = vec![0; (skip + page.len()).next_multiple_of((align * SECTOR) as usize)];
        // The neighbours are copies of the same checkpoint. One that cannot be read is lost anyhow
        // until it is written in its turn.
        for (sector, at) in bytes.chunks_mut(SECTOR as usize).zip(0..) {
            let is_read = self.objects.reader.read_raw(first.plus(at), sector).is_ok();
            if !is_read {
                sector.fill(0);
            }
        }
        bytes[skip..skip + page.len()].copy_from_slice(page);
        self.objects.reader.write(first, bytes.into())
    }

    /// Lets the checkpoint that is about to begin write those pages again whose second copies are
    /// missing or damaged, or lie in a segment that is given up. A page that cannot be read is left
    /// as it is.
    pub(crate) fn renew_copies(&self) -> Result<(), StoreError> {
        let is_emptying = self.sparse_copies();
        if self.objects.reader.to_renew.is_empty() && is_emptying.is_none() {
            return Ok(());
        }
        let mut left = self.renewable_pages();
        if left == 0 {
            return Ok(());
        }
        let reader = &self.objects.reader;
        let pages = reader.to_renew.take();
        let geometry = self.objects.geometry;
        let is_there = |at| is_emptying.is_some() && geometry.segment_of(at) == is_emptying;
        let wanted = |ptr: PagePtr| ptr.second_copy().is_some_and(is_there);
        self.each_copied_tree(|tree| {
            let mut due = pages.clone();
            due.retain(|page| page.kind == tree.kind());
            match tree.pages_with_copy(reader, &wanted) {
                Ok(moved) => due.extend(moved.into_iter().map(|(page, _)| page)),
                Err(e) => log::warn!("second copies are not moved: {e}"),
            }
            for page in due {
                if left == 0 {
                    // It waits for a later checkpoint.
                    reader.to_renew.add(page);
                    continue;
                }
                left -= 1;
                if let Err(e) = tree.touch(reader, page.level, page.key, page.at) {
                    log::warn!("a page gets no second copy: {e}");
                }
            }
            Ok(())
        })
    }

    /// Returns how many pages the next checkpoint has room to write again. A batch that grew beyond
    /// its room could not be written at all, and without a place for copies, writing pages again
    /// would be for nothing.
    fn renewable_pages(&self) -> u64 {
        let segment = self.objects.geometry.segment_bytes();
        let ready = self.objects.segments.lock().ready_bytes();
        let needed = self.objects.batch_takes() + 2 * segment;
        ready.saturating_sub(needed) / RENEWED_PATH
    }

    /// Returns the emptiest segment of copies, if little lives in all of them together.
    fn sparse_copies(&self) -> Option<Segment> {
        let segments = self.objects.segments.lock();
        let current = segments.copy_position().map(|at| at.segment);
        let mut count = 0;
        let mut live = 0;
        let mut emptiest = None;
        for (segment, bytes) in segments.copy_segments() {
            if bytes == 0 {
                continue;
            }
            count += 1;
            live += bytes;
            if Some(segment.0) != current && emptiest.is_none_or(|(_, least)| bytes < least) {
                emptiest = Some((segment, bytes));
            }
        }
        let is_sparse = count > FEW_SEGMENTS
            && live * SPARSE_PART < count * self.objects.geometry.segment_bytes();
        let (segment, _) = emptiest.filter(|_| is_sparse)?;
        Some(segment)
    }
}
