//! What is not known of a file because records of the log are lost; for salvage only.
//!
//! # Guarantee
//! The content of a file that is read is content that it had: blocks of one time never stand beside
//! those of another. Where a lost record may have changed blocks, and only some of the blocks are
//! known from behind it, the file is refused. Its record, if that is whole and logged again behind
//! the loss, ends all doubt, but for extents that it shares with others: their numbers must have
//! been known before the loss or set behind it. Names are no content: a directory is as the records
//! that are there leave it.

use crate::error::StoreError;
use crate::format::delta::Delta;
use crate::format::extent::MappedExtent;
use crate::object::extents::FileExtents;
use crate::object::state::{BlockContent, ObjectContent, ObjectState};
use crate::tree::reader::CachedReader;
use std::collections::BTreeSet;
use teal_types::{FileType, Lsn, ObjectNo, UpdateId};

/// What is known of the blocks of a file that changed in front of a loss or behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Doubt {
    /// Everything that is said of it is known.
    #[default]
    None,
    /// It was there: its blocks are those it had, if their stamp never changed.
    Changed { stamp: UpdateId, lsn: Lsn },
    /// It was not there: its blocks are all known, if they are as many as it has.
    Made,
    /// Some blocks are new, and others may be.
    Mixed,
}

/// The doubt about one object while its changes are made.
#[derive(Debug, Default)]
pub(crate) struct DoubtfulContent {
    losses: u32,
    doubt: Doubt,
    /// References to shared extents that it had before records were lost: id and age.
    older_slices: BTreeSet<(u64, Lsn)>,
}

fn has_tree(state: &ObjectState) -> bool {
    matches!(
        &state.content,
        ObjectContent::Blocks(BlockContent {
            extents: FileExtents::Tree(_),
            ..
        })
    )
}

impl DoubtfulContent {
    /// Notes that in front of the next change records were lost so often; `state` is what was known
    /// then.
    ///
    /// # Errors
    /// Errors of reading its map.
    pub(crate) fn pass_losses(
        &mut self,
        src: &CachedReader,
        no: ObjectNo,
        losses: u32,
        state: Option<&ObjectState>,
    ) -> Result<(), StoreError> {
        if losses == self.losses {
            return Ok(());
        }
        if let Some(state) = state {
            self.older_slices.extend(shared_slices(state, src, no)?);
        }
        self.losses = losses;
        self.doubt = match (self.doubt, state) {
            (Doubt::None, Some(state)) => Doubt::Changed {
                stamp: state.core.data_stamp,
                lsn: state.core.lsn,
            },
            (Doubt::None, None) => Doubt::Made,
            // What it gained between two losses may be gone again.
            (Doubt::Made, _) => Doubt::Mixed,
            (doubt, _) => doubt,
        };
        Ok(())
    }

    /// Notes a change that was just made; `state` is what it led to.
    pub(crate) fn note_change(&mut self, delta: &Delta<'_>, state: Option<&ObjectState>) {
        let Doubt::Changed { lsn, .. } = self.doubt else {
            let is_whole = matches!(delta, Delta::Inode(_)) && !state.is_some_and(has_tree);
            if is_whole {
                self.doubt = Doubt::None;
            }
            return;
        };
        match delta {
            Delta::Inode(_) if !state.is_some_and(has_tree) => self.doubt = Doubt::None,
            Delta::Hole { .. } => self.doubt = Doubt::Mixed,
            // The cleaner moves blocks and leaves them as old as they are.
            Delta::Extent { extent, .. } if extent.born() > lsn => self.doubt = Doubt::Mixed,
            _ => {}
        }
    }

    /// Checks that the content is known.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] if a lost record may have changed it; errors of reading its map.
    pub(crate) fn check_content(
        &self,
        src: &CachedReader,
        no: ObjectNo,
        state: Option<&ObjectState>,
    ) -> Result<(), StoreError> {
        let Some(state) = state.filter(|state| state.core.kind == FileType::File) else {
            return Ok(());
        };
        let is_known = match self.doubt {
            Doubt::None => true,
            Doubt::Changed { stamp, .. } => state.core.data_stamp == stamp,
            Doubt::Made => stored_sectors(state, src, no)? == state.core.sectors,
            Doubt::Mixed => false,
        };
        if is_known && self.knows_slices(src, no, state)? {
            return Ok(());
        }
        Err(StoreError::Corrupt {
            what: "a file of which a part was in lost records",
            at: state.home.map_or(0, |home| home.byte / teal_types::SECTOR),
            object: Some(no),
        })
    }
}

impl DoubtfulContent {
    /// Returns whether all shared extents that the file refers to are those that it means. A number
    /// that a lost record gave to new content is, in the table, still that of the old.
    fn knows_slices(
        &self,
        src: &CachedReader,
        no: ObjectNo,
        state: &ObjectState,
    ) -> Result<bool, StoreError> {
        if self.losses == 0 {
            return Ok(true);
        }
        let slices = shared_slices(state, src, no)?;
        Ok(slices.iter().all(|slice| {
            self.older_slices.contains(slice) || src.shared.is_set_behind_loss(slice.0)
        }))
    }
}

/// Returns the references of a file to shared extents: id and age of each.
fn shared_slices(
    state: &ObjectState,
    src: &CachedReader,
    no: ObjectNo,
) -> Result<BTreeSet<(u64, Lsn)>, StoreError> {
    let mut slices = BTreeSet::new();
    let ObjectContent::Blocks(blocks) = &state.content else {
        return Ok(slices);
    };
    // The common case: nothing is shared.
    if src.shared.is_empty() {
        return Ok(slices);
    }
    let mut from = 0;
    while let Some((first, extent)) = blocks.extents.at_or_after(src, no, from)? {
        if let MappedExtent::Shared(slice) = &extent {
            slices.insert((slice.id, slice.born));
        }
        from = first + extent.blocks();
    }
    Ok(slices)
}

/// Returns the sectors that the extents of a file store or set aside.
fn stored_sectors(
    state: &ObjectState,
    src: &CachedReader,
    no: ObjectNo,
) -> Result<u64, StoreError> {
    let ObjectContent::Blocks(blocks) = &state.content else {
        return Ok(0);
    };
    let mut sectors = 0;
    let mut from = 0;
    while let Some((first, extent)) = blocks.extents.at_or_after(src, no, from)? {
        sectors += extent.counted_sectors();
        from = first + extent.blocks();
    }
    Ok(sectors)
}
