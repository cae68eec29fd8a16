//! Accounting of what changes take away: dead bytes in the segment table, references in the table
//! of shared extents.

use crate::error::StoreError;
use crate::format::extent::Extent;
use crate::object::gather::{ReadPiece, ReadStretch};
use crate::object::objects::ObjectStore;
use crate::seeded::{Bug, bug};
use crate::space::segments::SegmentTable;
use crate::tree::freed::FreedSpace;
use crate::tree::shared_extents::SharedChange;
use teal_types::{BLOCK, ObjectNo, SECTOR};

impl ObjectStore {
    /// Changes the counts of the shared extents that a change took parts away of; what died with
    /// the last of them. `None` when the table contradicts the files.
    fn count_shared(&self, freed: &[FreedSpace]) -> Option<Vec<FreedSpace>> {
        let mut died = Vec::new();
        // Only references change counts; whole pieces are handled below.
        for piece in freed {
            if let FreedSpace::Shared { id, more, .. } = *piece
                && more != 0
                && !(more > 0 && bug(Bug::SplitNotCounted))
                && let Err(e) = self
                    .reader
                    .shared
                    .change_count(&self.reader, id, more, &mut died)
            {
                log::error!("a file refers to shared extent {id}: {e}");
                // The counts cannot be trusted any more, so nothing may be freed by them.
                return None;
            }
        }
        Some(died)
    }

    /// Tells the tables what a change took away.
    pub(crate) fn account_freed(&self, freed: &[FreedSpace]) {
        if !freed.is_empty() {
            // Counted before the table is locked: that reads pages.
            let died = self.count_shared(freed);
            count_dead(&mut self.segments.lock(), freed, died);
            self.ledger
                .release_blocks(FreedSpace::unwritten_blocks(freed));
        }
    }

    /// Accounts for space that sealing freed.
    pub(crate) fn account_sealed(&self, segments: &mut SegmentTable, freed: &[FreedSpace]) {
        count_dead(segments, freed, self.count_shared(freed));
        self.ledger
            .release_blocks(FreedSpace::unwritten_blocks(freed));
    }

    /// Accounts for space that redoing freed. The batch itself says how the counts change, and for
    /// how many blocks room is set aside after it.
    pub(crate) fn account_redone(segments: &mut SegmentTable, freed: &[FreedSpace]) {
        // The batch itself has the new counts.
        count_dead(segments, freed, Some(Vec::new()));
    }

    /// Redoes a change of a shared extent. Returns `Ok(None)` when the delta contradicts the table.
    pub(crate) fn redo_shared(
        &self,
        id: u64,
        what: &SharedChange,
    ) -> Result<Option<()>, StoreError> {
        let mut freed = Vec::new();
        let Some(lives) = self
            .reader
            .shared
            .redo_change(&self.reader, id, what, &mut freed)?
        else {
            return Ok(None);
        };
        // A new place of shared content, which lives there.
        if let Some(extent) = lives {
            self.segments
                .lock()
                .add_live(extent.addr.byte_offset(), extent.bytes(), extent.born);
        }
        Self::account_redone(&mut self.segments.lock(), &freed);
        Ok(Some(()))
    }

    /// Returns the stored sectors of an extent that no file owns.
    pub(crate) fn content_of(&self, extent: &Extent) -> Result<Vec<u8>, StoreError> {
        let len = (extent.blocks() * BLOCK) as usize;
        let addr = extent.addr;
        let stored = u64::from(extent.stored);
        let piece = ReadPiece::Disk {
            addr,
            stored,
            crcs: extent.crcs.to_vec(),
            from: 0,
        };
        let gathered = self
            .reader
            .gather_stretches(ObjectNo::new(0), &[ReadStretch { len, piece }])
            .map_err(|e| match e {
                StoreError::Corrupt { at, .. } => StoreError::Corrupt {
                    what: "shared content",
                    at,
                    object: None,
                },
                e => e,
            })?;
        let mut content = gathered.to_vec();
        // Blocks are stored without the rest of the last sector.
        content.truncate((stored * SECTOR) as usize);
        Ok(content)
    }
}

pub(crate) fn count_dead(
    segments: &mut SegmentTable,
    freed: &[FreedSpace],
    died: Option<Vec<FreedSpace>>,
) {
    for piece in freed.iter().chain(died.iter().flatten()) {
        if let FreedSpace::Piece { byte, bytes } = *piece {
            segments.add_dead(byte, bytes);
        }
    }
    // The table would free too much or too little: no batch may be written.
    if died.is_none() {
        segments.mark_contradictory();
    }
}
