//! The move of all that lives in one segment, delta by delta.

use super::SegmentImage;
use super::pages::PlacedPage;
use crate::error::StoreError;
use crate::format::delta::{Delta, PlacedDelta, decode_body};
use crate::format::extent::MappedExtent;
use crate::format::segment_walk;
use crate::format::usage::SegmentUse;
use crate::store::cleaner::CleaningReserve;
use crate::store::handle::Store;
use std::ops::ControlFlow;

/// The room is looked at after so many deltas, or when the batch has grown by a part of a segment.
const LOOK: u32 = 16;
const LOOK_PART: i64 = 32;

/// The deltas that are looked at when a segment is walked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RelocationPass {
    /// Inode records.
    Inodes,
    /// Extents and pages.
    Content,
}

/// The move of what lives in a segment into the open batch.
pub(super) struct SegmentMove<'a> {
    store: &'a Store,
    held: &'a SegmentImage,
    usage: SegmentUse,
    left: CleaningReserve,
    /// Deltas since the last look at the room.
    deltas: u32,
    /// The growth of the batch at that look.
    grown: i64,
    /// The last error of reading.
    unreadable: Option<StoreError>,
}

impl<'a> SegmentMove<'a> {
    pub(super) fn new(store: &'a Store, held: &'a SegmentImage, left: CleaningReserve) -> Self {
        let usage = *store.objects().segments.lock().get(held.segment);
        Self {
            store,
            held,
            usage,
            left,
            deltas: 0,
            grown: 0,
            unreadable: None,
        }
    }

    /// Moves what has room. The rest is left for another round.
    pub(super) fn run(mut self) -> Result<(), StoreError> {
        // Shared extents first: they are moved as a whole.
        self.unreadable = self.store.move_shared(self.held.segment).err();
        self.grown = self.store.batch_growth();
        // Inode records first: an object that is read here need not be read again for its blocks.
        for pass in [RelocationPass::Inodes, RelocationPass::Content] {
            if self.run_pass(pass)?.is_break() {
                break;
            }
        }
        self.unreadable.map_or(Ok(()), Err)
    }

    /// Moves what this pass moves, and breaks off when there is no more room.
    fn run_pass(&mut self, pass: RelocationPass) -> Result<ControlFlow<()>, StoreError> {
        let objects = self.store.objects();
        let held = self.held;
        let usage = self.usage;
        for found in segment_walk::walk_records(
            &objects.geometry,
            &objects.sb.uuid,
            held.segment,
            &usage,
            &held.bytes,
        ) {
            for placed in decode_body(found.body, found.header.deltas) {
                // The walk ends at damage; objects beyond it stay.
                let Ok(placed) = placed else { break };
                // Blocks that are moved stay moved.
                if self.is_look_due() && !self.store.has_room(0, self.left) {
                    return Ok(ControlFlow::Break(()));
                }
                match self.move_placed(&placed, found.body_byte, pass) {
                    // Removed meanwhile: nothing to move.
                    Ok(()) | Err(StoreError::NotFound(_)) => {}
                    Err(e @ (StoreError::Corrupt { .. } | StoreError::Io { .. })) => {
                        log::error!("cleaning {}: {e}", objects.path_of(placed.object));
                        self.unreadable = Some(e);
                    }
                    Err(e) => return Err(e),
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Counts a delta. Returns whether the room is to be looked at before it is moved: now and
    /// then, because the batch grows by what is moved.
    fn is_look_due(&mut self) -> bool {
        self.deltas += 1;
        let part = self.store.objects().geometry.segment_bytes() as i64 / LOOK_PART;
        let growth = self.store.batch_growth();
        if self.deltas < LOOK && growth - self.grown <= part {
            return false;
        }
        self.deltas = 0;
        self.grown = growth;
        true
    }

    /// Moves what a delta names, if this pass moves it. The body of its record begins at
    /// `body_byte`.
    fn move_placed(
        &self,
        placed: &PlacedDelta<'_>,
        body_byte: u64,
        pass: RelocationPass,
    ) -> Result<(), StoreError> {
        let no = placed.object;
        match (pass, &placed.delta) {
            (RelocationPass::Inodes, Delta::Inode(bytes)) => {
                let byte = body_byte + placed.at as u64;
                self.store.move_inode(no, byte, bytes)
            }
            (
                RelocationPass::Content,
                Delta::Extent {
                    block,
                    extent: MappedExtent::Own(extent),
                },
            ) => self.store.move_extent(no, *block, extent, self.held),
            (
                RelocationPass::Content,
                Delta::Page {
                    kind,
                    level,
                    first_key,
                    ptr,
                },
            ) => {
                let page = PlacedPage {
                    level: *level,
                    first_key: *first_key,
                    at: ptr.addr(),
                };
                self.store.move_page(no, *kind, page)
            }
            _ => Ok(()),
        }
    }
}
