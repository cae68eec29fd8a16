//! The steps of a sweep: each gathers packs until a new one is full, moves what lives, and removes
//! them.

use super::{CollectionReport, RetentionRule, SweepPhase};
use crate::error::ChunkError;
use crate::format::chunk::{self, ChunkHeader};
use crate::format::{PackId, TableEntry};
use crate::index::{ChunkIdPrefix, ChunkPlace, IndexEntry, PackSlot};
use crate::pack::{self, PackBuilder, PackTail};
use crate::packs::Pack;
use crate::read::read_table;
use crate::seeded::{Bug, bug};
use crate::shelf::ShelfError;
use crate::store::ChunkStore;

/// The most packs that one step looks at.
const PACKS_MAX: usize = 64;
/// The most bytes that are read at once.
const READ_MAX: u64 = 8 << 20;

/// The pack that is being filled, and where each of its chunks was.
struct PackRelocation {
    builder: PackBuilder,
    from: Vec<ChunkPlace>,
}

impl SweepPhase {
    /// One step: at most one new pack, and at most 64 old ones. False when nothing is left to do.
    /// Where there is no room to rewrite, what is dead is removed nevertheless.
    ///
    /// # Errors
    /// The shelf's. Nothing is lost; the packs of the failed step are left for the next collection.
    pub fn run_step(&mut self) -> Result<bool, ChunkError> {
        let store = self.running.0.clone();
        let mut moving = PackRelocation {
            builder: store.new_pack(),
            from: Vec::new(),
        };
        let mut leaving = Vec::new();
        for _ in 0..PACKS_MAX {
            let Some(&slot) = self.todo.front() else {
                break;
            };
            let Some(pack) = store.0.state.read().packs.get(slot).copied() else {
                self.todo.pop_front();
                continue;
            };
            let live = match store.load_table(&pack)? {
                Some(entries) => match store.drop_dead(slot, entries, self.keeps) {
                    Some(live) => Some(live),
                    None => {
                        self.todo.pop_front();
                        continue;
                    }
                },
                None => None,
            };
            if live
                .as_ref()
                .is_some_and(|live| !moving.builder.has_room_for(live, store.0.pack_target))
            {
                break;
            }
            self.todo.pop_front();
            match live {
                Some(live) if live.is_empty() => {
                    self.remove_pack(slot, &pack)?;
                    self.report.dead_packs += 1;
                }
                Some(live) if store.copy_chunks(slot, pack.id, &live, &mut moving)? => {
                    leaving.push((slot, pack))
                }
                _ => self.report.damaged.push(pack.id),
            }
        }
        if bug(Bug::RemovedTooEarly) {
            leaving
                .iter()
                .try_for_each(|(_, pack)| store.0.shelf.remove(&pack.id.object_name()))?;
        }
        if !moving.builder.is_empty() {
            let moved = moving.from.len();
            match store.publish_moved(moving) {
                Ok(bytes) => self.report.freed -= bytes.cast_signed(),
                Err(ChunkError::Shelf(ShelfError::NoSpace { .. })) => {
                    self.report.without_room += leaving.len();
                    return Ok(!self.todo.is_empty());
                }
                Err(error) => return Err(error),
            }
            self.report.moved += moved;
            self.report.new_packs += 1;
        }
        for (slot, pack) in leaving {
            self.remove_pack(slot, &pack)?;
            self.report.rewritten_packs += 1;
        }
        Ok(!self.todo.is_empty())
    }

    /// Removes a pack to which nothing refers any more. If it cannot be removed, the next
    /// collection finds it dead.
    fn remove_pack(&mut self, slot: PackSlot, pack: &Pack) -> Result<(), ChunkError> {
        let store = &self.running.0;
        store.0.shelf.remove(&pack.id.object_name())?;
        store.0.state.write().packs.remove(slot);
        self.report.freed += pack.bytes.cast_signed();
        Ok(())
    }

    /// All steps that are left.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub fn run(mut self) -> Result<CollectionReport, ChunkError> {
        while self.run_step()? {}
        Ok(self.report.clone())
    }

    /// Returns what has been done so far.
    pub fn report(&self) -> &CollectionReport {
        &self.report
    }
}

impl ChunkStore {
    /// The table of a pack; `None` if it is damaged or gone.
    fn load_table(&self, pack: &Pack) -> Result<Option<Vec<TableEntry>>, ChunkError> {
        match read_table(&*self.0.shelf, pack.id, pack.bytes) {
            Ok(PackTail::Whole(_, entries)) => Ok(Some(entries)),
            Ok(_) | Err(ShelfError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Forgets what is dead in a pack, so that nobody is told any more that it is here, and gives
    /// what lives there; `None` if somebody was told of it since it was chosen.
    fn drop_dead(
        &self,
        slot: PackSlot,
        mut entries: Vec<TableEntry>,
        keeps: RetentionRule,
    ) -> Option<Vec<TableEntry>> {
        let mut state = self.0.state.write();
        if matches!(keeps, RetentionRule::Marked(since) if state.packs.is_young(slot, since))
            && !bug(Bug::GraceIgnored)
        {
            return None;
        }
        entries.retain(|entry| {
            let half = ChunkIdPrefix::from_id(&entry.id);
            let Some(known) = state
                .index
                .get(&half)
                .filter(|known| known.place() == entry.place_in(slot))
            else {
                return false;
            };
            let lives = keeps == RetentionRule::Everything
                || known.is_marked()
                || state.pins.contains(&half);
            if !lives {
                state.index.remove(&half);
            }
            lives
        });
        Some(entries)
    }

    /// Appends these chunks of a pack to the new one. False if one of them is damaged; it is then
    /// known to be.
    fn copy_chunks(
        &self,
        slot: PackSlot,
        pack: PackId,
        live: &[TableEntry],
        moving: &mut PackRelocation,
    ) -> Result<bool, ChunkError> {
        let mut is_whole = true;
        let mut rest = live;
        while let Some(first) = rest.first() {
            let start = first.byte_range().start;
            let adjoin = rest.windows(2).take_while(|two| {
                two[0].byte_range().end == two[1].byte_range().start
                    && two[1].byte_range().end - start <= READ_MAX
            });
            let (run, after) = rest.split_at(1 + adjoin.count());
            rest = after;
            let read = match self.0.shelf.read(
                &pack.object_name(),
                start..run[run.len() - 1].byte_range().end,
            ) {
                Err(ShelfError::NotFound { .. }) => Vec::new(),
                read => read?,
            };
            for entry in run {
                let at = (entry.byte_range().start - start) as usize;
                let encoded = read
                    .get(at..at + chunk::BYTES + entry.stored as usize)
                    .unwrap_or_default();
                match (
                    ChunkHeader::decode(encoded),
                    pack::verify_chunk(&self.0.domain, &entry.id, encoded),
                ) {
                    (Some(header), Ok(_)) => {
                        moving.builder.append(&header, encoded);
                        moving.from.push(entry.place_in(slot));
                    }
                    (_, Err(what)) => {
                        log::warn!("chunk {} in pack {pack} is damaged: {what}", entry.id);
                        let mut state = self.0.state.write();
                        state
                            .index
                            .get_mut(&ChunkIdPrefix::from_id(&entry.id))
                            .into_iter()
                            .for_each(IndexEntry::mark_damaged);
                        is_whole = false;
                    }
                    (None, Ok(_)) => unreachable!("what is verified has a header"),
                }
            }
        }
        Ok(is_whole)
    }

    /// Puts the new pack and lets the index point there. Returns its bytes.
    fn publish_moved(&self, moving: PackRelocation) -> Result<u64, ChunkError> {
        let (mut pack, entries) = self.put_pack(moving.builder)?;
        let mut state = self.0.state.write();
        // What has no name does not get younger by being moved, and what somebody was told of
        // meanwhile not older.
        pack.seen = moving
            .from
            .iter()
            .map(|place| state.packs.last_use(place.slot))
            .max()
            .unwrap_or(pack.seen);
        let slot = state.packs.insert(pack);
        for (entry, from) in entries.iter().zip(moving.from) {
            let known = state
                .index
                .get_mut(&ChunkIdPrefix::from_id(&entry.id))
                .filter(|known| known.place() == from);
            known
                .into_iter()
                .for_each(|known| known.set_place(entry.place_in(slot)));
        }
        Ok(pack.bytes)
    }
}
