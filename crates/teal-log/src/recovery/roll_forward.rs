//! Roll-forward of a record: what it says of the store is done at once, what it says of objects
//! waits.

use crate::error::StoreError;
use crate::format::codec::COUNTER_LIMIT;
use crate::format::delta::{Delta, KEPT, PREFIX, PlacedDelta, decode_body};
use crate::format::extent::MappedExtent;
use crate::format::note_key::note_key;
use crate::object::deferred::{DeferredDelta, DeferredDeltas};
use crate::object::objects::ObjectStore;
use crate::recovery::chain::ChainRecord;
use crate::space::ledger::SpaceCharge;
use crate::tree::shared_extents::SharedChange;
use std::sync::Arc;
use teal_types::{Lsn, ObjectNo, SECTOR};

/// Says what becomes of a change of a table of the whole store that cannot be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RedoRule {
    /// The store is not opened.
    Strict,
    /// The table stays as it is: who reads needs none of them, or meets the damage itself.
    Salvage,
}

/// What is left of a delta after it was redone as far as it concerns the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RedoOutcome {
    Done,
    /// What it says of an object is redone later.
    ObjectWaits,
    /// It contradicts the state.
    Contradiction,
}

impl ObjectStore {
    /// Redoes a record; `is_entry`: the record before lies in another segment. What it says of
    /// objects goes into `deltas`. `losses`: how often records are missing since the checkpoint.
    pub(crate) fn redo_record(
        &self,
        link: &ChainRecord,
        is_entry: bool,
        (losses, rule): (u32, RedoRule),
        deltas: &mut DeferredDeltas,
    ) -> Result<(), StoreError> {
        self.enter_record(link, is_entry);
        let damaged = || damaged_record(link);
        let byte = link.at.byte_offset() + SECTOR * (1 + u64::from(link.header.payload));
        for placed in decode_body(&link.body, link.header.deltas) {
            let placed = placed.map_err(|_| damaged())?;
            let no = placed.object;
            let lsn = Lsn::new(link.header.lsn.get() + u64::from(placed.lsn_offset));
            // Numbers in the log are taken, whatever the roots say.
            self.numbers.raise_above_lsn(lsn);
            // Larger numbers cannot be given by any program.
            if no.get() >= COUNTER_LIMIT {
                return Err(damaged());
            }
            self.numbers.raise_above_object(no);
            let waits = match self.redo_at_once(&placed, lsn, byte + placed.at as u64) {
                Ok(RedoOutcome::Done) => false,
                Ok(RedoOutcome::ObjectWaits) => true,
                Ok(RedoOutcome::Contradiction) | Err(_) if rule == RedoRule::Salvage => {
                    changes_object(&placed.delta)
                }
                Ok(RedoOutcome::Contradiction) => return Err(damaged()),
                Err(e) => return Err(e),
            };
            if waits {
                let at = u32::try_from(placed.at).map_err(|_| damaged())?;
                deltas.entry(no).or_default().push(DeferredDelta {
                    // The body is shared by all its deltas.
                    body: Arc::clone(&link.body),
                    byte: byte + placed.at as u64,
                    at,
                    lsn,
                    losses,
                });
            }
        }
        Ok(())
    }

    /// Counts a record to its segment; `is_entry`: it is the first one there.
    fn enter_record(&self, link: &ChainRecord, is_entry: bool) {
        // The table is locked for this record only.
        let mut segments = self.segments.lock();
        if is_entry {
            segments.start_anew(link.at);
        }
        segments.enter_segment(link.at, link.header.seq);
    }

    /// Takes over what a record of the last checkpoint keeps.
    pub(crate) fn redo_kept(
        &self,
        link: &ChainRecord,
        deltas: &mut DeferredDeltas,
    ) -> Result<(), StoreError> {
        let damaged = || damaged_record(link);
        for placed in decode_body(&link.body, link.header.deltas) {
            let placed = placed.map_err(|_| damaged())?;
            // A kept change is a delta within a delta.
            if let Delta::Kept { lsn, byte, .. } = placed.delta {
                let at = u32::try_from(placed.at + KEPT + PREFIX).map_err(|_| damaged())?;
                deltas
                    .entry(placed.object)
                    .or_default()
                    .push(DeferredDelta {
                        body: Arc::clone(&link.body),
                        byte,
                        at,
                        lsn,
                        losses: 0,
                    });
            }
        }
        Ok(())
    }

    /// Redoes what a delta says of the store.
    fn redo_at_once(
        &self,
        placed: &PlacedDelta<'_>,
        lsn: Lsn,
        byte: u64,
    ) -> Result<RedoOutcome, StoreError> {
        if changes_object(&placed.delta) {
            self.redo_space(placed, lsn, byte)?;
            return Ok(RedoOutcome::ObjectWaits);
        }
        Ok(if self.redo_table(placed)? {
            RedoOutcome::Done
        } else {
            RedoOutcome::Contradiction
        })
    }

    /// Redoes what a delta that changes an object says of the space and of the orphans; the object
    /// itself is deferred.
    fn redo_space(&self, placed: &PlacedDelta<'_>, lsn: Lsn, byte: u64) -> Result<(), StoreError> {
        match &placed.delta {
            // The record is live from here on.
            Delta::Inode(bytes) => {
                let len = bytes.len() as u64;
                self.segments.lock().add_live(byte, len, lsn);
            }
            Delta::Extent {
                extent: MappedExtent::Own(own),
                ..
            } => {
                let byte = own.addr.byte_offset();
                self.segments.lock().add_live(byte, own.bytes(), own.born);
            }
            // The orphan set is small and is redone at once.
            Delta::Free => {
                self.change_orphans(placed.object, false, &SpaceCharge::default())?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Redoes a change of a table of the whole store. Returns false when it contradicts the state.
    fn redo_table(&self, placed: &PlacedDelta<'_>) -> Result<bool, StoreError> {
        let no = placed.object;
        let redone = match &placed.delta {
            Delta::Orphan(orphan) => {
                self.change_orphans(no, *orphan, &SpaceCharge::default())?;
                Some(())
            }
            Delta::Note { piece, value } => {
                self.redo_note(no, *piece, Some(value))?;
                Some(())
            }
            Delta::NoteGone { piece } => {
                self.redo_note(no, *piece, None)?;
                Some(())
            }
            Delta::SharedSet { id, shared } => {
                self.redo_shared(*id, &SharedChange::Set(shared.clone()))?
            }
            Delta::SharedCount { id, count } => {
                self.redo_shared(*id, &SharedChange::Count(*count))?
            }
            Delta::SharedGone { id } => self.redo_shared(*id, &SharedChange::Gone)?,
            // Pages and roots are redone by opening; kept changes are taken from the last
            // checkpoint only.
            _ => Some(()),
        };
        Ok(redone.is_some())
    }

    /// Redoes what a batch said of a note.
    pub(crate) fn redo_note(
        &self,
        no: ObjectNo,
        piece: u16,
        value: Option<&[u8]>,
    ) -> Result<(), StoreError> {
        let mut tree = self.notes.lock();
        match value {
            Some(value) => drop(tree.insert(&self.reader, note_key(no, piece), value)?),
            None => drop(tree.remove(&self.reader, note_key(no, piece))?),
        }
        let freed = tree.take_freed_space();
        drop(tree);
        self.account_freed(&freed);
        Ok(())
    }
}

fn damaged_record(link: &ChainRecord) -> StoreError {
    StoreError::Corrupt {
        what: "a record",
        at: link.at.get(),
        object: None,
    }
}

/// Returns whether a delta changes an object, and not only a table of the whole store.
fn changes_object(delta: &Delta<'_>) -> bool {
    match delta {
        Delta::Inode(_)
        | Delta::Extent { .. }
        | Delta::Free
        | Delta::Head(_)
        | Delta::Attributes(_)
        | Delta::Hole { .. }
        | Delta::EntrySet { .. }
        | Delta::EntryGone { .. } => true,
        Delta::Orphan(_)
        | Delta::Note { .. }
        | Delta::NoteGone { .. }
        | Delta::SharedSet { .. }
        | Delta::SharedCount { .. }
        | Delta::SharedGone { .. }
        | Delta::Page { .. }
        | Delta::Roots(_)
        | Delta::Kept { .. }
        | Delta::Ignored => false,
    }
}
