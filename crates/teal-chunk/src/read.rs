//! Reading: one range of one pack for each chunk, verified up to its name.

use crate::error::ChunkError;
use crate::format::{PackId, TableEntry, chunk, table};
use crate::index::{ChunkIdPrefix, ChunkPlace};
use crate::pack::{self, PackTail};
use crate::seeded::{ChunkBug, bug};
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

/// Bytes that are read at a time of a pack of which some sectors cannot be read.
const GAP_BYTES: u64 = 4 << 10;

/// Reads the table of a pack of `bytes` on a shelf.
pub(crate) fn read_table(
    shelf: &dyn Shelf,
    pack: PackId,
    bytes: u64,
) -> Result<PackTail, ShelfError> {
    // The table's length is in the footer: the first read gets both, of most packs.
    match read_table_from(shelf, pack, bytes, FIRST_TAIL_BYTES) {
        // The sector that cannot be read may lie before the table: the footer alone comes first.
        Err(ShelfError::Unreachable { .. }) => {
            read_table_from(shelf, pack, bytes, table::FOOTER as u64)
        }
        read => read,
    }
}

/// Reads the table of a pack, beginning with its last `wanted` bytes.
fn read_table_from(
    shelf: &dyn Shelf,
    pack: PackId,
    bytes: u64,
    mut wanted: u64,
) -> Result<PackTail, ShelfError> {
    loop {
        // A pack shorter than that is read whole.
        let tail = shelf.read(&pack.object_name(), bytes.saturating_sub(wanted)..bytes)?;
        match pack::read_tail(&tail, bytes) {
            PackTail::More(needed) if needed > wanted && needed <= bytes => wanted = needed,
            // More than there is, or the pack has become shorter meanwhile: no third try.
            PackTail::More(_) => return Ok(PackTail::Damaged),
            read => return Ok(read),
        }
    }
}

/// The bytes of a pack, as far as they can be read.
pub(crate) struct ReadablePack {
    /// All bytes; zeros stand where nothing could be read. Chunks are verified by their names, so
    /// that zeros are taken for content of none.
    pub(crate) bytes: Vec<u8>,
    /// Is true if something could not be read.
    pub(crate) has_gaps: bool,
}

/// Reads a whole pack of `bytes`, around the sectors that cannot be read.
///
/// # Errors
/// Returns the shelf's error if nothing of the pack can be read.
pub(crate) fn read_around_gaps(
    shelf: &dyn Shelf,
    pack: PackId,
    bytes: u64,
) -> Result<ReadablePack, ShelfError> {
    let name = pack.object_name();
    let error = match shelf.read(&name, 0..bytes) {
        Ok(bytes) => {
            return Ok(ReadablePack {
                bytes,
                has_gaps: false,
            });
        }
        Err(error @ ShelfError::Unreachable { .. }) => error,
        Err(error) => return Err(error),
    };
    let mut whole = Vec::new();
    let mut has_read = false;
    for start in (0..bytes).step_by(GAP_BYTES as usize) {
        let end = bytes.min(start + GAP_BYTES);
        let piece = shelf.read(&name, start..end);
        has_read |= piece.is_ok();
        whole.extend(piece.unwrap_or_default());
        whole.resize(end as usize, 0);
    }
    if has_read {
        Ok(ReadablePack {
            bytes: whole,
            has_gaps: true,
        })
    } else {
        Err(error)
    }
}

impl ChunkStore {
    /// Reads the content of a chunk and verifies it.
    ///
    /// # Errors
    /// [`ChunkError::Absent`], [`ChunkError::Damaged`], or the shelf's error. Content that does not
    /// match the name is never returned.
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
            let prefix = ChunkIdPrefix::from_id(chunk);
            match state.index.get(&prefix) {
                // Collection has moved it while it was being read.
                Some(known) if known.place() != place => {}
                _ => {
                    // From now on it is not had, so that a client sends it again.
                    if !bug(ChunkBug::DamageHad) {
                        state.note_damage(prefix, place);
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

    /// Reads and verifies; the inner error says in words how the chunk is damaged.
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
            // Damage of the chunk, unless collection has moved it, which the caller looks at.
            Err(ShelfError::NotFound { .. }) => Ok(Err("the pack is gone")),
            Err(error) => Err(error.into()),
        }
    }

    /// Visits every chunk that can be had, pack by pack in the order of their names. Chunks that
    /// come or go meanwhile may be visited or not.
    ///
    /// # Errors
    /// Returns the shelf's error. Packs with a damaged table are read whole.
    pub fn visit_chunks(
        &self,
        mut visit: impl FnMut(&ChunkInfo) -> ControlFlow<()>,
    ) -> Result<(), ChunkError> {
        for pack in self.pack_ids() {
            let Some(entries) = self.entries_of(pack)? else {
                continue;
            };
            for entry in entries {
                // A pack may hold copies that the index does not point to: they are not shown.
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

    /// Returns every pack there is now, sorted.
    pub(crate) fn pack_ids(&self) -> Vec<PackId> {
        let mut ids = Vec::new();
        for (_, pack) in self.0.state.read().packs.iter() {
            ids.push(pack.id);
        }
        ids.sort_unstable();
        ids
    }

    /// Returns the entries of a pack; `None` if it has been collected.
    fn entries_of(&self, pack: PackId) -> Result<Option<Vec<TableEntry>>, ChunkError> {
        let Some(found) = self.find_pack(pack) else {
            return Ok(None);
        };
        let read = match read_table(&*self.0.shelf, pack, found.bytes) {
            Ok(PackTail::Whole(_, entries)) => Ok(entries),
            Ok(_) | Err(ShelfError::Unreachable { .. }) => {
                let readable = read_around_gaps(&*self.0.shelf, pack, found.bytes);
                readable.map(|readable| pack::salvage_chunks(&self.0.domain, &readable.bytes))
            }
            Err(error) => Err(error),
        };
        match read {
            Ok(entries) => Ok(Some(entries)),
            // Collected while it was being read.
            Err(ShelfError::NotFound { .. }) if self.find_pack(pack).is_none() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}
