//! Checking: every pack is read and every chunk verified.

use crate::error::ChunkError;
use crate::format::{PackId, TableEntry, header};
use crate::index::{ChunkIdPrefix, IndexEntry};
use crate::limits::PROBLEMS_MAX;
use crate::pack::{self, PackTail};
use crate::shelf::ShelfError;
use crate::store::ChunkStore;
use teal_types::ChunkId;

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackProblem {
    /// The pack.
    pub pack: PackId,
    /// The chunk, if it is known which.
    pub chunk: Option<ChunkId>,
    /// What is wrong.
    pub what: &'static str,
}

impl std::fmt::Display for PackProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.chunk {
            Some(chunk) => write!(
                f,
                "chunk {chunk} in pack {} is damaged: {}",
                self.pack, self.what
            ),
            None => write!(f, "pack {}: {}", self.pack, self.what),
        }
    }
}

/// What checking has found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PackCheckReport {
    /// Packs looked at.
    pub packs: usize,
    /// Chunks that are whole.
    pub chunks: usize,
    /// What is wrong; at most [`PROBLEMS_MAX`](crate::PROBLEMS_MAX) are listed.
    pub problems: Vec<PackProblem>,
    /// How many problems there are.
    pub problem_count: usize,
}

impl PackCheckReport {
    fn record_problem(&mut self, pack: PackId, chunk: Option<ChunkId>, what: &'static str) {
        self.problem_count += 1;
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(PackProblem { pack, chunk, what });
        }
    }
}

impl ChunkStore {
    /// Reads everything, one pack in memory at a time. Chunks found damaged are not had any more
    /// and are stored again when a client sends them. `progress` is told how many packs of how many
    /// have been read.
    ///
    /// # Errors
    /// The shelf's, if a pack cannot be reached.
    pub fn check(
        &self,
        mut progress: impl FnMut(usize, usize),
    ) -> Result<PackCheckReport, ChunkError> {
        let mut checked = PackCheckReport::default();
        let packs = self.pack_ids();
        for (at, &id) in packs.iter().enumerate() {
            progress(at, packs.len());
            let Some(pack) = self.find_pack(id) else {
                continue;
            };
            match self.0.shelf.read(&id.object_name(), 0..pack.bytes) {
                Ok(bytes) => self.check_pack(id, &bytes, pack.bytes, &mut checked),
                Err(ShelfError::NotFound { .. }) if self.find_pack(id).is_none() => {}
                Err(ShelfError::NotFound { .. }) => {
                    checked.record_problem(
                        id,
                        None,
                        "is gone: put it back from a copy, or have clients send its chunks",
                    );
                    self.mark_pack_damaged(id);
                }
                Err(error) => return Err(error.into()),
            }
        }
        progress(packs.len(), packs.len());
        Ok(checked)
    }

    fn check_pack(&self, id: PackId, bytes: &[u8], size: u64, checked: &mut PackCheckReport) {
        checked.packs += 1;
        let ours = pack::pack_identity(&self.0.domain, id);
        if header::decode(bytes).is_none_or(|(identity, _)| identity != ours) {
            checked.record_problem(id, None, "its header is damaged");
        }
        let entries = match pack::read_tail(bytes, size) {
            PackTail::Whole(footer, entries) if footer.identity == ours => entries,
            _ => {
                checked.record_problem(id, None, "its table is cut short or damaged");
                pack::salvage_chunks(&self.0.domain, bytes)
            }
        };
        for entry in entries {
            let span = entry.byte_range();
            let encoded = bytes
                .get(span.start as usize..span.end as usize)
                .unwrap_or_default();
            match pack::verify_chunk(&self.0.domain, &entry.id, encoded) {
                Ok(_) => checked.chunks += 1,
                Err(what) => {
                    checked.record_problem(id, Some(entry.id), what);
                    self.mark_damaged(id, &entry);
                }
            }
        }
    }

    /// A chunk at this place is not had any more.
    fn mark_damaged(&self, pack: PackId, entry: &TableEntry) {
        let mut state = self.0.state.write();
        let Some(slot) = state.packs.find_slot(pack) else {
            return;
        };
        let known = state
            .index
            .get_mut(&ChunkIdPrefix::from_id(&entry.id))
            .filter(|known| known.place() == entry.place_in(slot));
        known.into_iter().for_each(IndexEntry::mark_damaged);
    }

    fn mark_pack_damaged(&self, pack: PackId) {
        let mut state = self.0.state.write();
        let Some(slot) = state.packs.find_slot(pack) else {
            return;
        };
        state
            .index
            .values_mut()
            .filter(|known| known.place().slot == slot)
            .for_each(IndexEntry::mark_damaged);
    }
}
