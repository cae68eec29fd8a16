//! Plans a step of sharing: which blocks of the source can be shared, and what that costs.

use super::PIECES_MAX;
use crate::error::StoreError;
use crate::format::extent::{Extent, MappedExtent, SHARED_BLOCKS, SharedSlice};
use crate::object::state::{BlockContent, DirtyBlock, ObjectContent, ObjectState};
use crate::space::cost::Cost;
use crate::store::handle::Store;
use crate::tree::reader::CachedReader;
use teal_types::{BLOCK, ObjectNo};

/// The fixed cost of a step: records and paths of three trees.
pub(super) const STEP_BYTES: u64 = 64 << 10;
/// The cost of one more shared extent: logged, in two files' maps and in the table, pages half
/// full.
const NEW_BYTES: u64 = 1280;
/// The cost of one reference more or less: its count logged and its page written again.
pub(super) const REFERENCE_BYTES: u64 = 768;
/// The cost of a block beyond itself.
const BLOCK_MARGIN: u64 = 256;

/// A step of sharing, looked at beforehand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharePlan {
    /// Bytes the step would cover; 0 when there is nothing to share.
    pub bytes: u64,
    /// Bytes of them that are not committed yet, and would be written twice.
    pub uncommitted: u64,
    /// The cost with which to begin the operation.
    pub cost: Cost,
}

/// The state of a run of blocks of the source.
#[derive(Debug)]
pub(super) enum SharePart {
    Dirty(DirtyBlock),
    Own(Extent),
    Shared(SharedSlice),
}

/// The parts of a stretch of blocks, each with its first block; holes are left out.
#[derive(Debug, Default)]
pub(super) struct ShareableParts {
    pub(super) parts: Vec<(u64, SharePart)>,
    /// The first block that was not looked at.
    end: u64,
}

impl SharePart {
    fn share_cost(&self) -> u64 {
        match self {
            Self::Dirty(_) => BLOCK + BLOCK_MARGIN,
            Self::Own(_) => NEW_BYTES,
            Self::Shared(_) => REFERENCE_BYTES,
        }
    }
}

impl ShareableParts {
    /// Gives up what comes from block `end` on.
    pub(super) fn cut_at(&mut self, end: u64) {
        self.end = self.end.min(end);
        self.parts.retain(|(block, _)| *block < end);
    }

    /// Gives up what costs more than this together.
    pub(super) fn cut_to_cost(&mut self, most: u64) {
        let mut sum = 0;
        // The parts that fit the cost that was promised.
        for (block, part) in &self.parts {
            sum += part.share_cost();
            if sum > most {
                return self.cut_at(*block);
            }
        }
    }

    fn share_cost(&self) -> u64 {
        let mut cost = 0;
        for (_, part) in &self.parts {
            cost += part.share_cost();
        }
        cost
    }

    /// Returns how many blocks are not committed yet.
    fn dirty_blocks(&self) -> u64 {
        let mut count = 0;
        for (_, part) in &self.parts {
            count += u64::from(matches!(part, SharePart::Dirty(_)));
        }
        count
    }

    /// Returns how many parts are shared already.
    fn shared_parts(&self) -> u64 {
        let mut count = 0;
        for (_, part) in &self.parts {
            count += u64::from(matches!(part, SharePart::Shared(_)));
        }
        count
    }
}

impl BlockContent {
    fn shareable_parts(
        &self,
        src: &CachedReader,
        no: ObjectNo,
        first: u64,
        end: u64,
    ) -> Result<ShareableParts, StoreError> {
        let mut found = ShareableParts {
            parts: Vec::new(),
            end: first,
        };
        // Bounded, so that one operation stays small.
        while found.end < end && found.parts.len() < PIECES_MAX {
            let at = found.end;
            let dirty = self.dirty.range(at..end).next();
            // A dirty block is copied in memory: it has no place yet.
            if let Some((_, bytes)) = dirty.filter(|(block, _)| **block == at) {
                found
                    .parts
                    .push((at, SharePart::Dirty(DirtyBlock::clone(bytes))));
                found.end = at + 1;
                continue;
            }
            let stop = dirty.map_or(end, |(block, _)| *block);
            found.end = match self
                .extents
                .content_at_or_after(src, no, at)?
                .filter(|(start, _)| *start < stop)
            {
                Some((start, extent)) if start <= at => {
                    // A piece ends with its extent, before a dirty block, and at the largest shared
                    // size.
                    let count = (start + extent.blocks()).min(stop) - at;
                    let count = count.min(SHARED_BLOCKS);
                    let part = match extent.slice(at - start, count) {
                        MappedExtent::Own(extent) => SharePart::Own(extent),
                        MappedExtent::Shared(slice) => SharePart::Shared(slice),
                        MappedExtent::Unwritten(_) => unreachable!("it holds no content"),
                    };
                    found.parts.push((at, part));
                    at + count
                }
                // A hole is shared as a hole.
                Some((start, _)) => start,
                None => stop,
            };
        }
        Ok(found)
    }
}

/// Returns the whole blocks of a range that can be shared: first block of each file, count. The end
/// of a file counts as the end of a block when the copy ends there too.
fn whole_blocks(
    (from, source): (u64, &ObjectState),
    (to, target): (u64, &ObjectState),
    len: u64,
) -> Option<(u64, u64, u64)> {
    let len = len.min(source.core.size.saturating_sub(from));
    // The last block may be shared in part, if the copy ends the target as well.
    let is_end = from + len == source.core.size && to + len >= target.core.size;
    let count = if is_end {
        len.div_ceil(BLOCK)
    } else {
        len / BLOCK
    };
    let aligned = from.is_multiple_of(BLOCK) && to.is_multiple_of(BLOCK);
    (aligned && count > 0).then_some((from / BLOCK, to / BLOCK, count))
}

impl ObjectState {
    /// Returns what one step can do; `None` when nothing can be shared.
    pub(super) fn look_ahead(
        &self,
        src: &CachedReader,
        (from_no, from): (ObjectNo, u64),
        (to_no, to, target): (ObjectNo, u64, &Self),
        len: u64,
    ) -> Result<Option<ShareLook>, StoreError> {
        let Some((first, to_first, count)) = whole_blocks((from, self), (to, target), len) else {
            return Ok(None);
        };
        let ObjectContent::Blocks(source) = &self.content else {
            return Ok(None);
        };
        let mut found = source.shareable_parts(src, from_no, first, first + count)?;
        // Shared content that the copy replaces costs a reference each.
        let mut replaced = 0;
        if let ObjectContent::Blocks(blocks) = &target.content {
            let over =
                // The target's parts are counted as well: replacing them costs references.
                blocks.shareable_parts(src, to_no, to_first, to_first + (found.end - first))?;
            found.cut_at(first + (over.end - to_first));
            replaced = over.shared_parts();
        }
        Ok(Some(ShareLook {
            first,
            to_first,
            found,
            replaced,
        }))
    }
}

pub(super) struct ShareLook {
    pub(super) first: u64,
    pub(super) to_first: u64,
    pub(super) found: ShareableParts,
    /// References to shared extents that the range now has.
    pub(super) replaced: u64,
}

impl ShareLook {
    pub(super) fn block_count(&self) -> u64 {
        self.found.end - self.first
    }
}

impl Store {
    /// Looks what one step of sharing a range with another file would do. Only whole blocks at
    /// offsets that are multiples of [`BLOCK`] can be shared, and the end of a file where the copy
    /// ends too.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], or errors of reading the maps.
    pub fn plan_share(
        &self,
        from: (ObjectNo, u64),
        to: (ObjectNo, u64),
        len: u64,
    ) -> Result<SharePlan, StoreError> {
        let Some(look) = self.look_at_step(from, to, len)? else {
            return Ok(SharePlan {
                bytes: 0,
                uncommitted: 0,
                cost: Cost::share(STEP_BYTES),
            });
        };
        // A bound for the operation that follows, if nothing changes in between.
        let bytes = STEP_BYTES + look.replaced * REFERENCE_BYTES + look.found.share_cost();
        Ok(SharePlan {
            // The copy may end within a block.
            bytes: (look.block_count() * BLOCK).min(len),
            uncommitted: look.found.dirty_blocks() * BLOCK,
            cost: Cost::share(bytes),
        })
    }

    /// Looks at both files of a step.
    fn look_at_step(
        &self,
        from: (ObjectNo, u64),
        to: (ObjectNo, u64),
        len: u64,
    ) -> Result<Option<ShareLook>, StoreError> {
        let reader = &self.objects().reader;
        let target = self.objects().load_object(to.0)?;
        self.objects().with_state(from.0, |source| {
            if from.0 == to.0 {
                return source.look_ahead(reader, from, (to.0, to.1, source), len);
            }
            // No reader waits for two objects: an operation that holds the other one may want this
            // one.
            match target.state.try_read() {
                Some(target) => source.look_ahead(reader, from, (to.0, to.1, &target), len),
                None => Ok(None),
            }
        })
    }

    /// Returns whether some content of a file is shared: giving much of that back takes room and
    /// time.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], or errors of reading the map.
    pub fn has_shared(&self, no: ObjectNo) -> Result<bool, StoreError> {
        if self.objects().reader.shared.is_empty() {
            return Ok(false);
        }
        self.objects().with_state(no, |state| {
            let ObjectContent::Blocks(blocks) = &state.content else {
                return Ok(false);
            };
            let mut at = 0;
            while let Some((start, extent)) =
                blocks.extents.at_or_after(&self.objects().reader, no, at)?
            {
                // One is enough.
                if matches!(extent, MappedExtent::Shared(_)) {
                    return Ok(true);
                }
                at = start + extent.blocks();
            }
            Ok(false)
        })
    }
}
