//! Reading: one range of one pack for each chunk, verified up to its name.

use crate::error::ChunkError;
use crate::format::{PackId, TableEntry, chunk};
use crate::index::{ChunkIdPrefix, ChunkPlace, IndexEntry};
use crate::pack::{self, PackTail};
use crate::seeded::{Bug, bug};
use crate::shelf::{Shelf, ShelfError};
use crate::store::ChunkStore;
use std::ops::ControlFlow;
use teal_types::ChunkId;

/// Bytes of tail that are read first: enough for the table of most packs.
const FIRST_TAIL_BYTES: u64 = 16 << 10;

/// A chunk, as its pack tells of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkInfo {
    /// Its name.
    pub chunk: ChunkId,
    /// Bytes of its content.
    pub bytes: u32,
    /// Bytes of it as stored.
    pub stored: u32,
    /// The pack it lies in.
    pub pack: PackId,
}

/// Table of a pack of `bytes` on a shelf.
pub(crate) fn read_table(
    shelf: &dyn Shelf,
    pack: PackId,
    bytes: u64,
) -> Result<PackTail, ShelfError> {
    let mut wanted = FIRST_TAIL_BYTES;
    loop {
        let tail = shelf.read(&pack.object_name(), bytes.saturating_sub(wanted)..bytes)?;
        match pack::read_tail(&tail, bytes) {
            PackTail::More(needed) if needed > wanted && needed <= bytes => wanted = needed,
            // More than there is, or the pack has become shorter meanwhile.
            PackTail::More(_) => return Ok(PackTail::Damaged),
            read => return Ok(read),
        }
    }
}

impl ChunkStore {
    /// The content of a chunk.
    ///
    /// # Errors
    /// [`ChunkError::Absent`], [`ChunkError::Damaged`], or the shelf's. Content that does not match
    /// the name is never returned.
    pub fn get(&self, chunk: &ChunkId) -> Result<Vec<u8>, ChunkError> {
        loop {
            let (place, pack) = self
                .locate(chunk)
                .ok_or(ChunkError::Absent { chunk: *chunk })?;
            let what = match self.read_chunk_at(place, pack, chunk)? {
                Ok(content) => {
                    self.0.counters.count_read(content.len());
                    return Ok(content);
                }
                Err(what) => what,
            };
            let mut state = self.0.state.write();
            match state.index.get_mut(&ChunkIdPrefix::from_id(chunk)) {
                // Collection has moved it while it was being read.
                Some(known) if known.place() != place => {}
                known => {
                    if !bug(Bug::DamageHad) {
                        known.into_iter().for_each(IndexEntry::mark_damaged);
                    }
                    self.0.counters.count_damage();
                    return Err(ChunkError::Damaged {
                        chunk: *chunk,
                        pack,
                        what,
                    });
                }
            }
        }
    }

    fn locate(&self, chunk: &ChunkId) -> Option<(ChunkPlace, PackId)> {
        let state = self.0.state.read();
        let place = state.index.get(&ChunkIdPrefix::from_id(chunk))?.place();
        Some((place, state.packs.get(place.slot)?.id))
    }

    /// Reads and verifies; the inner error says what is wrong with the chunk.
    fn read_chunk_at(
        &self,
        place: ChunkPlace,
        pack: PackId,
        chunk: &ChunkId,
    ) -> Result<Result<Vec<u8>, &'static str>, ChunkError> {
        let start = u64::from(place.offset);
        let range = start..start + chunk::BYTES as u64 + u64::from(place.stored);
        match self.0.shelf.read(&pack.object_name(), range) {
            Ok(encoded) => Ok(pack::verify_chunk(&self.0.domain, chunk, &encoded)),
            Err(ShelfError::NotFound { .. }) => Ok(Err("the pack is gone")),
            Err(error) => Err(error.into()),
        }
    }

    /// Shows every chunk that can be had, pack by pack in the order of their names. Chunks that
    /// come or go meanwhile may be shown or not.
    ///
    /// # Errors
    /// The shelf's. Packs whose table is damaged are read whole.
    pub fn visit_chunks(
        &self,
        mut visit: impl FnMut(&ChunkInfo) -> ControlFlow<()>,
    ) -> Result<(), ChunkError> {
        for pack in self.pack_ids() {
            let Some(entries) = self.entries_of(pack)? else {
                continue;
            };
            for entry in entries {
                let is_here = self
                    .locate(&entry.id)
                    .is_some_and(|(place, at)| at == pack && place.offset == entry.offset);
                let info = ChunkInfo {
                    chunk: entry.id,
                    bytes: entry.bytes,
                    stored: entry.stored,
                    pack,
                };
                if is_here && visit(&info).is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Every pack there is now, sorted.
    pub(crate) fn pack_ids(&self) -> Vec<PackId> {
        let mut packs: Vec<PackId> = self
            .0
            .state
            .read()
            .packs
            .iter()
            .map(|(_, pack)| pack.id)
            .collect();
        packs.sort_unstable();
        packs
    }

    /// Returns what a pack holds; `None` if it has been collected.
    fn entries_of(&self, pack: PackId) -> Result<Option<Vec<TableEntry>>, ChunkError> {
        let Some(found) = self.find_pack(pack) else {
            return Ok(None);
        };
        let read = match read_table(&*self.0.shelf, pack, found.bytes) {
            Ok(PackTail::Whole(_, entries)) => Ok(entries),
            Ok(_) => self
                .0
                .shelf
                .read(&pack.object_name(), 0..found.bytes)
                .map(|all| pack::salvage_chunks(&self.0.domain, &all)),
            Err(error) => Err(error),
        };
        match read {
            Ok(entries) => Ok(Some(entries)),
            Err(ShelfError::NotFound { .. }) if self.find_pack(pack).is_none() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}
