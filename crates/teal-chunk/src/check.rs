//! Checking: every pack is read and every chunk verified.

use crate::error::ChunkError;
use crate::format::{PackId, TableEntry, header};
use crate::index::ChunkIdPrefix;
use crate::limits::PROBLEMS_MAX;
use crate::pack::{self, PackTail};
use crate::read::read_around_gaps;
use crate::shelf::ShelfError;
use crate::store::ChunkStore;
use std::collections::HashSet;
use teal_types::ChunkId;

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackProblem {
    /// The pack.
    pub pack: PackId,
    /// The chunk, if it is known which.
    pub chunk: Option<ChunkId>,
    /// The damage, in words.
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

/// The findings of a check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PackCheckReport {
    /// Packs looked at.
    pub packs: usize,
    /// Chunks that are whole.
    pub chunks: usize,
    /// The problems; at most [`PROBLEMS_MAX`](crate::PROBLEMS_MAX) are listed.
    pub problems: Vec<PackProblem>,
    /// The number of problems.
    pub problem_count: usize,
    /// Those of the problems that concern a pack as a whole, at most as many.
    pub pack_problems: Vec<PackProblem>,
    /// The number of these.
    pub pack_problem_count: usize,
}

impl PackCheckReport {
    fn record_problem(&mut self, pack: PackId, chunk: Option<ChunkId>, what: &'static str) {
        let problem = PackProblem { pack, chunk, what };
        // Kept apart: thousands of damaged chunks do not hide a damaged pack.
        if chunk.is_none() {
            self.pack_problem_count += 1;
            if self.pack_problems.len() < PROBLEMS_MAX {
                self.pack_problems.push(problem.clone());
            }
        }
        self.problem_count += 1;
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(problem);
        }
    }
}

impl ChunkStore {
    /// Reads everything, one pack in memory at a time. Chunks found damaged are not had any more
    /// and are stored again when a client sends them; so are those that the disk cannot read.
    /// `progress` is called with the number of packs that have been read and the number of all.
    ///
    /// # Errors
    /// Returns the shelf's error, if nothing of any pack can be read.
    pub fn check(
        &self,
        mut progress: impl FnMut(usize, usize),
    ) -> Result<PackCheckReport, ChunkError> {
        let mut checked = PackCheckReport::default();
        let mut unreadable = None;
        let packs = self.pack_ids();
        for (at, &id) in packs.iter().enumerate() {
            progress(at, packs.len());
            // Collected since the list was made.
            let Some(pack) = self.find_pack(id) else {
                continue;
            };
            match read_around_gaps(&*self.0.shelf, id, pack.bytes) {
                Ok(readable) => {
                    if readable.has_gaps {
                        let what = "some of it cannot be read: its disk fails there";
                        checked.record_problem(id, None, what);
                    }
                    self.check_pack(id, &readable.bytes, pack.bytes, &mut checked);
                }
                // Collected since the list was made.
                Err(ShelfError::NotFound { .. }) if self.find_pack(id).is_none() => {}
                Err(ShelfError::NotFound { .. }) => {
                    checked.record_problem(
                        id,
                        None,
                        "is gone: put it back from a copy, or have clients send its chunks",
                    );
                    self.mark_pack_damaged(id);
                }
                Err(error) => {
                    checked.record_problem(id, None, "cannot be read: its disk fails there");
                    self.mark_pack_damaged(id);
                    unreadable = Some(error);
                }
            }
        }
        // A shelf that is out of reach is no damage of its packs.
        if let Some(error) = unreadable
            && checked.packs == 0
        {
            return Err(error.into());
        }
        // All of them, so that a display ends at 100 %.
        progress(packs.len(), packs.len());
        Ok(checked)
    }

    fn check_pack(&self, id: PackId, bytes: &[u8], size: u64, checked: &mut PackCheckReport) {
        checked.packs += 1;
        let ours = pack::pack_identity(&self.0.domain, id);
        // A damaged header is a problem of the pack, and not of its chunks, which are checked
        // nevertheless.
        if header::decode(bytes).is_none_or(|(identity, _)| identity != ours) {
            checked.record_problem(id, None, "its header is damaged");
        }
        let entries = match pack::read_tail(bytes, size) {
            PackTail::Whole(footer, entries) if footer.identity == ours => entries,
            // The table is lost, but each chunk has a header of its own.
            _ => {
                checked.record_problem(id, None, "its table is cut short or damaged");
                let found = pack::salvage_chunks(&self.0.domain, bytes);
                self.mark_pack_damaged_but(id, &found);
                found
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

    /// Notes that the chunk at this place is damaged: it is not had any more.
    pub(crate) fn mark_damaged(&self, pack: PackId, entry: &TableEntry) {
        let mut state = self.0.state.write();
        let Some(slot) = state.packs.find_slot(pack) else {
            return;
        };
        state.note_damage(ChunkIdPrefix::from_id(&entry.id), entry.place_in(slot));
    }

    /// Notes that all chunks of a pack are damaged.
    fn mark_pack_damaged(&self, pack: PackId) {
        self.mark_pack_damaged_but(pack, &[]);
    }

    /// Notes that all chunks of a pack are damaged except those that were `found`.
    fn mark_pack_damaged_but(&self, pack: PackId, found: &[TableEntry]) {
        let whole: HashSet<u32> = found.iter().map(|entry| entry.offset).collect();
        let mut state = self.0.state.write();
        let Some(slot) = state.packs.find_slot(pack) else {
            return;
        };
        let mut lost = Vec::new();
        for (chunk, known) in state.index.iter() {
            let place = known.place();
            if place.slot == slot && !whole.contains(&place.offset) {
                lost.push((*chunk, place));
            }
        }
        for (chunk, place) in lost {
            state.note_damage(chunk, place);
        }
    }
}
