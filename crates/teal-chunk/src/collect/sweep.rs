//! The steps of a sweep: each gathers packs until a new one is full, moves their live chunks, and
//! removes them.

use super::{CollectionReport, RetentionRule, SweepPhase};
use crate::error::ChunkError;
use crate::format::chunk::{self, ChunkHeader};
use crate::format::{PackId, TableEntry};
use crate::index::{ChunkIdPrefix, ChunkPlace, PackSlot};
use crate::pack::{self, PackBuilder, PackTail};
use crate::packs::Pack;
use crate::read::read_table;
use crate::seeded::{ChunkBug, bug};
use crate::shelf::ShelfError;
use crate::store::ChunkStore;

/// The most packs that one step looks at.
const PACKS_MAX: usize = 64;
/// The most bytes that are read at once.
const READ_MAX: u64 = 8 << 20;

/// The pack that is being filled, and the former place of each of its chunks.
struct PackRelocation {
    builder: PackBuilder,
    from: Vec<ChunkPlace>,
}

impl SweepPhase {
    /// Runs one step: at most one new pack, and at most 64 old ones. Returns false when nothing is
    /// left to do. If there is no room to rewrite, dead packs are removed nevertheless.
    ///
    /// # Errors
    /// Returns the shelf's error. Nothing is lost; the packs of the failed step are left for the
    /// next collection.
    pub fn run_step(&mut self) -> Result<bool, ChunkError> {
        let store = self.running.0.clone();
        let mut relocation = PackRelocation {
            builder: store.new_pack(),
            from: Vec::new(),
        };
        let leaving = self.gather_packs(&store, &mut relocation)?;
        if bug(ChunkBug::RemovedTooEarly) {
            for (_, pack) in &leaving {
                store.0.shelf.remove(&pack.id.object_name())?;
            }
        }
        // Chunks are durable in the new pack before any old pack is removed.
        if !relocation.builder.is_empty() {
            let moved = relocation.from.len();
            match store.publish_moved(relocation) {
                Ok(bytes) => self.report.freed -= bytes.cast_signed(),
                // The dead packs of this step are gone nevertheless, and may have made room for the
                // next one.
                Err(ChunkError::Shelf(ShelfError::NoSpace { .. })) => {
                    self.report.without_room += leaving.len();
                    return Ok(!self.todo.is_empty());
                }
                Err(error) => return Err(error),
            }
            self.report.moved += moved;
            self.report.new_packs += 1;
        }
        // Only now: the live chunks are durable elsewhere, and the index points there.
        for (slot, pack) in leaving {
            self.remove_pack(slot, &pack)?;
            self.report.rewritten_packs += 1;
        }
        Ok(!self.todo.is_empty())
    }

    /// Takes packs from the plan until the new one is full. Dead packs are removed at once; returns
    /// the packs that have their live chunks in the new one.
    fn gather_packs(
        &mut self,
        store: &ChunkStore,
        relocation: &mut PackRelocation,
    ) -> Result<Vec<(PackSlot, Pack)>, ChunkError> {
        let mut leaving = Vec::new();
        for _ in 0..PACKS_MAX {
            let Some(&slot) = self.todo.front() else {
                break;
            };
            let Some(pack) = store.0.state.read().packs.get(slot).copied() else {
                self.todo.pop_front();
                continue;
            };
            let Some(entries) = store.load_table(&pack)? else {
                self.todo.pop_front();
                self.report.damaged.push(pack.id);
                continue;
            };
            let Some(live) = store.drop_dead(slot, entries, self.keeps) else {
                self.todo.pop_front();
                continue;
            };
            if !relocation.builder.has_room_for(&live, store.0.pack_target) {
                // Stays in the plan, for the next step.
                break;
            }
            self.todo.pop_front();
            if live.is_empty() {
                self.remove_pack(slot, &pack)?;
                self.report.dead_packs += 1;
            } else if store.copy_chunks(slot, pack.id, &live, relocation)? {
                leaving.push((slot, pack));
            } else {
                self.report.damaged.push(pack.id);
            }
        }
        Ok(leaving)
    }

    /// Removes a pack to which nothing refers any more. If it cannot be removed, the next
    /// collection finds it dead.
    fn remove_pack(&mut self, slot: PackSlot, pack: &Pack) -> Result<(), ChunkError> {
        let store = &self.running.0;
        // First from the shelf: a slot that is used again must not mean a pack that is still there.
        store.0.shelf.remove(&pack.id.object_name())?;
        store.0.state.write().packs.remove(slot);
        self.report.freed += pack.bytes.cast_signed();
        Ok(())
    }

    /// Runs all steps that are left.
    ///
    /// # Errors
    /// As [`run_step`](Self::run_step).
    pub fn run(mut self) -> Result<CollectionReport, ChunkError> {
        while self.run_step()? {}
        Ok(self.report.clone())
    }

    /// Returns the report of the steps so far.
    pub fn report(&self) -> &CollectionReport {
        &self.report
    }
}

/// Returns how many of the first entries adjoin each other and can be read at once; at least one.
fn adjoining_count(entries: &[TableEntry]) -> usize {
    debug_assert!(!entries.is_empty());
    let start = entries[0].byte_range().start;
    let mut count = 1;
    for pair in entries.windows(2) {
        let (before, next) = (pair[0].byte_range(), pair[1].byte_range());
        if before.end != next.start || next.end - start > READ_MAX {
            break;
        }
        count += 1;
    }
    count
}

impl ChunkStore {
    /// Reads the table of a pack; `None` if it is damaged or gone.
    fn load_table(&self, pack: &Pack) -> Result<Option<Vec<TableEntry>>, ChunkError> {
        match read_table(&*self.0.shelf, pack.id, pack.bytes) {
            Ok(PackTail::Whole(_, entries)) => Ok(Some(entries)),
            Ok(_) | Err(ShelfError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes the dead chunks of a pack out of the index, so that no client is told any more that
    /// they are here, and returns the live ones; `None` if a client was told of the pack since it
    /// was chosen.
    fn drop_dead(
        &self,
        slot: PackSlot,
        entries: Vec<TableEntry>,
        keeps: RetentionRule,
    ) -> Option<Vec<TableEntry>> {
        // Under one lock: a client that asks later is told that the dead chunks are not here.
        let mut state = self.0.state.write();
        if let RetentionRule::Marked(since) = keeps
            && state.packs.is_young(slot, since)
            && !bug(ChunkBug::GraceIgnored)
        {
            return None;
        }
        let mut live = Vec::new();
        for entry in entries {
            let chunk = ChunkIdPrefix::from_id(&entry.id);
            let Some(known) = state.index.get(&chunk) else {
                continue;
            };
            // The index knows another copy: this one is dead weight.
            if known.place() != entry.place_in(slot) {
                continue;
            }
            let is_kept = keeps == RetentionRule::Everything
                || known.is_marked()
                || state.pins.contains(&chunk);
            if is_kept {
                live.push(entry);
            } else {
                state.index.remove(&chunk);
            }
        }
        Some(live)
    }

    /// Appends these chunks of a pack to the new one. Returns false if one of them is damaged; it
    /// is then known to be.
    fn copy_chunks(
        &self,
        slot: PackSlot,
        pack: PackId,
        live: &[TableEntry],
        relocation: &mut PackRelocation,
    ) -> Result<bool, ChunkError> {
        let mut is_whole = true;
        let mut rest = live;
        while !rest.is_empty() {
            let (run, after) = rest.split_at(adjoining_count(rest));
            rest = after;
            let start = run[0].byte_range().start;
            let end = run[run.len() - 1].byte_range().end;
            let read = match self.0.shelf.read(&pack.object_name(), start..end) {
                // All chunks of the run are then found damaged.
                Err(ShelfError::NotFound { .. }) => Vec::new(),
                read => read?,
            };
            for entry in run {
                let at = (entry.byte_range().start - start) as usize;
                let length = chunk::BYTES + entry.stored as usize;
                let encoded = read.get(at..at + length).unwrap_or_default();
                match pack::verify_chunk(&self.0.domain, &entry.id, encoded) {
                    Ok(_) => {
                        let header = ChunkHeader::decode(encoded);
                        let header = header.expect("what is verified has a header");
                        relocation.builder.append(&header, encoded);
                        relocation.from.push(entry.place_in(slot));
                    }
                    Err(what) => {
                        log::warn!("chunk {} in pack {pack} is damaged: {what}", entry.id);
                        self.mark_damaged(pack, entry);
                        is_whole = false;
                    }
                }
            }
        }
        Ok(is_whole)
    }

    /// Puts the new pack and lets the index point there. Returns its bytes.
    fn publish_moved(&self, relocation: PackRelocation) -> Result<u64, ChunkError> {
        let (mut pack, entries) = self.put_pack(relocation.builder)?;
        assert_eq!(
            entries.len(),
            relocation.from.len(),
            "each chunk of the new pack has a former place"
        );
        let mut state = self.0.state.write();
        // A chunk without a name does not get younger by being moved, nor one older of which a
        // client was told meanwhile.
        let uses = relocation.from.iter();
        let last_use = uses.map(|place| state.packs.last_use(place.slot)).max();
        pack.seen = last_use.unwrap_or(pack.seen);
        let slot = state.packs.insert(pack);
        for (entry, from) in entries.iter().zip(relocation.from) {
            let known = state.index.get_mut(&ChunkIdPrefix::from_id(&entry.id));
            // Unless it was stored again elsewhere meanwhile.
            if let Some(known) = known
                && known.place() == from
            {
                known.set_place(entry.place_in(slot));
            }
        }
        Ok(pack.bytes)
    }
}
