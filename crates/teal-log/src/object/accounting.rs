//! Where the table of shared extents meets the log: accounting, sealing, redoing, moving.

use crate::commit::committer::SealError;
use crate::commit::layout::Layout;
use crate::counters::add;
use crate::error::StoreError;
use crate::format::delta::Delta;
use crate::format::extent::Extent;
use crate::format::geometry::Segment;
use crate::object::gather::{Piece, Stretch};
use crate::seeded::{Bug, bug};
use crate::space::segments::Segments;
use crate::store::Store;
use crate::tree::freed::Freed;
use crate::tree::shared_extents::Logged;
use teal_types::{BLOCK, Lsn, ObjectNo, SECTOR};

impl Store {
    /// Changes the counts of the shared extents that a change took parts away of; what died with the last of them. `None` when the
    /// table contradicts the files.
    fn count_shared(&self, freed: &[Freed]) -> Option<Vec<Freed>> {
        let mut died = Vec::new();
        for piece in freed {
            if let Freed::Shared { id, more, .. } = *piece
                && more != 0
                && !(more > 0 && bug(Bug::SplitNotCounted))
                && let Err(e) = self.reader.shared.change(&self.reader, id, more, &mut died)
            {
                log::error!("a file refers to shared extent {id}: {e}");
                return None;
            }
        }
        Some(died)
    }

    /// Tells the tables what a change took away.
    pub(crate) fn account(&self, freed: &[Freed]) {
        if !freed.is_empty() {
            let died = self.count_shared(freed);
            bury(&mut self.segments.lock(), freed, died);
        }
    }

    /// The same, for sealing.
    pub(crate) fn account_sealed(&self, segments: &mut Segments, freed: &[Freed]) {
        bury(segments, freed, self.count_shared(freed));
    }

    /// The same, for redoing: what becomes of the counts, the batch says.
    pub(crate) fn account_redone(segments: &mut Segments, freed: &[Freed]) {
        bury(segments, freed, Some(Vec::new()));
    }

    /// Writes what is moving, and logs what the open batch changed in the table. The objects have been sealed.
    pub(crate) fn seal_shared(&self, layout: &mut Layout<'_>) -> Result<(), SealError> {
        let (reader, object) = (&self.reader, ObjectNo::new(0));
        let mut freed = Vec::new();
        for (id, mut shared, content) in reader.shared.take_moving(reader)? {
            let size = 12 + shared.encode().len();
            shared.extent.addr = layout.run(&content, shared.extent.born, size)?;
            reader.shared.set_moved(reader, id, &shared, &mut freed)?;
            layout.delta(object, Lsn::ZERO, &Delta::SharedSet { id, shared }, size)?;
        }
        bury(layout.segments, &freed, Some(Vec::new()));
        for (id, what) in reader.shared.take_changed(reader)? {
            if bug(Bug::SharedNotRecorded) {
                continue;
            }
            let (delta, size) = match what {
                Logged::Set(shared) => {
                    let size = 12 + shared.encode().len();
                    (Delta::SharedSet { id, shared }, size)
                }
                Logged::Count(count) => (Delta::SharedCount { id, count }, 12),
                Logged::Gone => (Delta::SharedGone { id }, 8),
            };
            layout.delta(object, Lsn::ZERO, &delta, size)?;
        }
        Ok(())
    }

    /// `Ok(None)` when the delta contradicts the table.
    pub(crate) fn redo_shared(&self, id: u64, what: &Logged) -> Result<Option<()>, StoreError> {
        let mut freed = Vec::new();
        let Some(lives) = self
            .reader
            .shared
            .redo(&self.reader, id, what, &mut freed)?
        else {
            return Ok(None);
        };
        if let Some(extent) = lives {
            self.segments
                .lock()
                .add_live(extent.addr.byte(), extent.bytes(), extent.born);
        }
        Self::account_redone(&mut self.segments.lock(), &freed);
        Ok(Some(()))
    }

    /// Lets the next batch write elsewhere what is shared in a segment.
    pub(crate) fn move_shared(&self, victim: Segment) -> Result<(), StoreError> {
        if self.reader.shared.is_empty() {
            return Ok(());
        }
        let whole = self.geometry.whole(victim);
        let end = whole.addr.plus(u64::from(whole.sectors));
        let mut unreadable = None;
        for (id, extent) in self.reader.shared.within(&self.reader, whole.addr, end)? {
            match self.content_of(&extent) {
                Ok(content) => {
                    let bytes = content.len() as u64;
                    if self
                        .reader
                        .shared
                        .set_moving(&self.reader, id, extent.addr, content)?
                    {
                        add(&self.reader.counters.bytes_moved, bytes);
                        self.open
                            .lock()
                            .since
                            .get_or_insert_with(|| self.clock.monotonic());
                    }
                }
                Err(e) => {
                    log::error!("cleaning shared extent {id}: {e}");
                    unreadable = Some(e);
                }
            }
        }
        unreadable.map_or(Ok(()), Err)
    }

    /// The stored sectors of an extent that no file owns.
    pub(crate) fn content_of(&self, extent: &Extent) -> Result<Vec<u8>, StoreError> {
        let len = (extent.blocks() * BLOCK) as usize;
        let (addr, stored) = (extent.addr, u64::from(extent.stored));
        let piece = Piece::Disk {
            addr,
            stored,
            crcs: extent.crcs.to_vec(),
            from: 0,
        };
        let gathered = self
            .reader
            .gather(ObjectNo::new(0), &[Stretch { len, piece }])
            .map_err(|e| match e {
                StoreError::Corrupt { at, .. } => StoreError::Corrupt {
                    what: "shared content",
                    at,
                    object: None,
                },
                e => e,
            })?;
        let mut content = gathered.to_vec();
        content.truncate((stored * SECTOR) as usize);
        Ok(content)
    }
}

fn bury(segments: &mut Segments, freed: &[Freed], died: Option<Vec<Freed>>) {
    for piece in freed.iter().chain(died.iter().flatten()) {
        if let Freed::Piece { byte, bytes } = *piece {
            segments.add_dead(byte, bytes);
        }
    }
    if died.is_none() {
        segments.contradict();
    }
}
