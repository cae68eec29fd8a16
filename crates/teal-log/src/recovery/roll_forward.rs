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
        {
            // The table is locked for this record only.
            let mut segments = self.segments.lock();
            if is_entry {
                segments.start_anew(link.at);
            }
            segments.enter_segment(link.at, link.header.seq);
        }
        let damaged = || StoreError::Corrupt {
            what: "a record",
            at: link.at.get(),
            object: None,
        };
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
                Err(_) | Ok(None) if rule == RedoRule::Salvage => changes_object(&placed.delta),
                redone => redone?.ok_or_else(damaged)?,
            };
            if waits {
                // The body is shared by all its deltas.
                let at = u32::try_from(placed.at).map_err(|_| damaged())?;
                let byte = byte + placed.at as u64;
                deltas.entry(no).or_default().push(DeferredDelta {
                    body: Arc::clone(&link.body),
                    byte,
                    at,
                    lsn,
                    losses,
                });
            }
        }
        Ok(())
    }

    /// Takes over what a record of the last checkpoint keeps.
    pub(crate) fn redo_kept(
        &self,
        link: &ChainRecord,
        deltas: &mut DeferredDeltas,
    ) -> Result<(), StoreError> {
        let damaged = || StoreError::Corrupt {
            what: "a record",
            at: link.at.get(),
            object: None,
        };
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

    /// Redoes a delta that does not wait. Returns whether it changes an object, or `Ok(None)` when
    /// it contradicts the state.
    fn redo_at_once(
        &self,
        placed: &PlacedDelta<'_>,
        lsn: Lsn,
        byte: u64,
    ) -> Result<Option<bool>, StoreError> {
        let no = placed.object;
        let done = |redone: Option<()>| redone.map(|()| false);
        match &placed.delta {
            // The record is live from here on; the object itself is deferred.
            Delta::Inode(bytes) => self.segments.lock().add_live(byte, bytes.len() as u64, lsn),
            Delta::Extent {
                extent: MappedExtent::Own(own),
                ..
            } => {
                self.segments
                    .lock()
                    .add_live(own.addr.byte_offset(), own.bytes(), own.born);
            }
            // The orphan set is small and is redone at once.
            Delta::Free => self.change_orphans(no, false, &SpaceCharge::default())?,
            Delta::Head(_)
            | Delta::Attributes(_)
            | Delta::Extent { .. }
            | Delta::Hole { .. }
            | Delta::EntrySet { .. }
            | Delta::EntryGone { .. } => {}
            Delta::Orphan(orphan) => {
                return self
                    .change_orphans(no, *orphan, &SpaceCharge::default())
                    .map(|()| Some(false));
            }
            Delta::Note { piece, value } => {
                return self
                    .redo_note(no, *piece, Some(value))
                    .map(|()| Some(false));
            }
            Delta::NoteGone { piece } => {
                return self.redo_note(no, *piece, None).map(|()| Some(false));
            }
            Delta::SharedSet { id, shared } => {
                return self
                    .redo_shared(*id, &SharedChange::Set(shared.clone()))
                    .map(done);
            }
            Delta::SharedCount { id, count } => {
                return self
                    .redo_shared(*id, &SharedChange::Count(*count))
                    .map(done);
            }
            Delta::SharedGone { id } => {
                return self.redo_shared(*id, &SharedChange::Gone).map(done);
            }
            // Kept changes are taken from the last checkpoint only.
            Delta::Page { .. } | Delta::Roots(_) | Delta::Kept { .. } | Delta::Ignored => {
                return Ok(Some(false));
            }
        }
        Ok(Some(true))
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

/// Returns whether a delta changes an object, and not only a table of the whole store.
fn changes_object(delta: &Delta<'_>) -> bool {
    matches!(
        delta,
        Delta::Inode(_)
            | Delta::Extent { .. }
            | Delta::Free
            | Delta::Head(_)
            | Delta::Attributes(_)
            | Delta::Hole { .. }
            | Delta::EntrySet { .. }
            | Delta::EntryGone { .. }
    )
}
