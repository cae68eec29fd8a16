//! What is not known of a file because records of the log are lost; for salvage only.
//!
//! # Guarantee
//! The content of a file that is read is content that it had: blocks of one time never stand beside
//! those of another. Where a lost record may have changed blocks, and only some of the blocks are
//! known from behind it, the file is refused. Its record, if that is whole and logged again behind
//! the loss, ends all doubt. Names are no content: a directory is as the records that are there
//! leave it.

use crate::error::StoreError;
use crate::format::delta::Delta;
use crate::object::extents::FileExtents;
use crate::object::state::{BlockContent, ObjectContent, ObjectState};
use crate::tree::reader::CachedReader;
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
    pub(crate) fn pass_losses(&mut self, losses: u32, state: Option<&ObjectState>) {
        if losses == self.losses {
            return;
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
        if is_known {
            return Ok(());
        }
        Err(StoreError::Corrupt {
            what: "a file of which a part was in lost records",
            at: state.home.map_or(0, |home| home.byte / teal_types::SECTOR),
            object: Some(no),
        })
    }
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
