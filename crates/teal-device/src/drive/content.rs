//! Content on a drive: read, installed, given up.

use super::Drive;
use super::object_note::{HeldContent, HeldObject, NOTE_BYTES_MAX, RANGES_MAX, block_bounds};
use std::ops::ControlFlow;
use teal_log::{Cost, Locked, NewObject, StoreError};
use teal_types::{BLOCK, CommitSeq, FileType, ObjectNo, Ranges};

/// Content is read in such pieces; with a bad block one of them is lost.
const READ_STEP: u64 = 128 << 10;
/// The most bytes given back in one operation.
const RECLAIM_STEP: u64 = 256 << 20;

/// Bytes, and where in a file they are.
pub type DataPiece = (u64, Vec<u8>);

/// What was found of content.
#[derive(Debug, Default)]
pub struct FoundContent {
    /// What is there.
    pub present: Ranges,
    /// What of it is not zeros, ascending.
    pub pieces: Vec<DataPiece>,
    /// What should be there and is damaged.
    pub damaged: Ranges,
}

fn encode_note(held: &HeldObject) -> Option<Vec<u8>> {
    (!held.is_empty()).then(|| held.encode())
}

impl Drive {
    /// Returns what is held of an object.
    ///
    /// # Errors
    /// What reading its note met.
    pub fn held_object(&self, no: ObjectNo) -> Result<HeldObject, StoreError> {
        let Some(bytes) = self.store.note(no)? else {
            return Ok(HeldObject::default());
        };
        let damaged = StoreError::Corrupt {
            what: "the note of an object on a drive",
            at: 0,
            object: Some(no),
        };
        HeldObject::decode(&bytes).ok_or(damaged)
    }

    /// Reads what is there of the content from `from` to `to`, as it is since `data_seq`.
    ///
    /// # Errors
    /// What the disk met. Damaged content is no error: it is said in [`FoundContent`].
    pub fn read(
        &self,
        no: ObjectNo,
        data_seq: CommitSeq,
        from: u64,
        to: u64,
    ) -> Result<FoundContent, StoreError> {
        let _shard = self.shard_of(no).read();
        let mut found = FoundContent::default();
        let Some(content) = self
            .held_object(no)?
            .content
            .filter(|content| content.data_seq == data_seq)
        else {
            return Ok(found);
        };
        self.record_use(no);
        for (start, end) in content.present.within(from, to).iter() {
            let mut at = start;
            while at < end {
                let stop = (at / READ_STEP + 1).saturating_mul(READ_STEP).min(end);
                match self.read_step(no, at, stop) {
                    Ok(mut pieces) => {
                        found.pieces.append(&mut pieces);
                        found.present.add(at, stop);
                    }
                    Err(StoreError::Corrupt { .. } | StoreError::NotFound(_)) => {
                        found.damaged.add(at, stop)
                    }
                    Err(e) => return Err(e),
                }
                at = stop;
            }
        }
        Ok(found)
    }

    /// Returns what is not zeros.
    fn read_step(&self, no: ObjectNo, from: u64, to: u64) -> Result<Vec<DataPiece>, StoreError> {
        let (mut at, mut pieces) = (from, Vec::new());
        while let Some(data) = self.store.seek(no, at, false)?.filter(|data| *data < to) {
            let hole = self
                .store
                .seek(no, data, true)?
                .map_or(to, |hole| hole.min(to));
            pieces.push((data, self.store.read(no, data, (hole - data) as usize)?));
            at = hole;
            if at >= to {
                break;
            }
        }
        Ok(pieces)
    }

    /// Takes content in: of an object that has `size` bytes since `data_seq`, those from `from` to
    /// `to`; what no piece covers is zeros. `false`: the drive holds newer content, or too many
    /// parts of this, or has not come so far.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`] when nothing more may make way, or what the disk met.
    pub fn install(
        &self,
        no: ObjectNo,
        (data_seq, size): (CommitSeq, u64),
        (from, to): (u64, u64),
        pieces: &[DataPiece],
    ) -> Result<bool, StoreError> {
        if data_seq > self.label().position {
            return Ok(false);
        }
        let _writing = self.begin_write();
        let bytes: u64 = pieces
            .iter()
            .map(|(_, bytes)| bytes.len() as u64 + 2 * BLOCK)
            .sum();
        self.make_room(no, bytes)?;
        let _shard = self.shard_of(no).write();
        if self.store.is_leaving(no) {
            self.store.commit()?;
        }
        let mut held = self.held_object(no)?;
        let mut content = match held.content.take() {
            Some(content) if content.data_seq == data_seq => content,
            Some(content) if content.data_seq > data_seq => return Ok(false),
            // Whatever was said of what has changed since is not known here.
            _ => HeldContent {
                data_seq,
                size,
                present: Ranges::default(),
            },
        };
        let is_fresh = content.present.is_empty();
        // What is beside it in the same block, and is there, stays; what is not may be damaged, and
        // goes with its block.
        let (low, high) = block_bounds(from, to);
        let low = if content.present.touches(low, from) {
            from
        } else {
            low
        };
        let high = if content.present.touches(to, high) {
            to
        } else {
            high
        };
        content.present.add(from, to.min(size));
        if content.present.iter().len() > RANGES_MAX {
            return Ok(false);
        }
        held.content = Some(content);
        let cost = Cost::write(bytes + 2 * BLOCK).with_note(NOTE_BYTES_MAX);
        let op = self.store.begin(cost)?;
        let mut locked = match op.lock(&[no]) {
            Err(StoreError::NotFound(_)) => {
                let mut locked = op.lock(&[])?;
                let now = self.clock.civil_time();
                let new = NewObject {
                    kind: FileType::File,
                    perm: 0o600,
                    uid: 0,
                    gid: 0,
                    rdev: 0,
                    now,
                };
                locked.create_as(no, new)?;
                locked.set_orphan(no, true)?;
                locked
            }
            locked => locked?,
        };
        if is_fresh {
            locked.truncate(no, 0)?;
            locked.truncate(no, size)?;
        } else {
            locked.punch(no, low, high)?;
        }
        for (at, bytes) in pieces {
            locked.write(no, *at, bytes)?;
        }
        locked.set_note(no, Some(&held.encode()))?;
        drop(locked);
        self.record_use(no);
        Ok(true)
    }

    /// An object has another state: what is left of the old one is a part of the new one.
    /// `changed`: (offset, length), `None` anywhere.
    ///
    /// # Errors
    /// What the disk met.
    pub fn apply_change(
        &self,
        no: ObjectNo,
        (data_seq, size): (CommitSeq, u64),
        changed: Option<&[(u64, u64)]>,
    ) -> Result<(), StoreError> {
        let _writing = self.begin_write();
        let _shard = self.shard_of(no).write();
        let mut held = self.held_object(no)?;
        let Some(content) = held
            .content
            .take()
            .filter(|content| content.data_seq < data_seq)
        else {
            return Ok(());
        };
        let after = content.superseded_by(data_seq, size, changed);
        let gone = content.present.without(&after.present);
        held.content = Some(after).filter(|content| !content.present.is_empty());
        self.reduce_to(no, &held, &gone)
    }

    /// Gives up damaged content, with all that lies in the same blocks: it comes again from
    /// elsewhere.
    ///
    /// # Errors
    /// What the disk met.
    pub fn drop_damaged(
        &self,
        no: ObjectNo,
        data_seq: CommitSeq,
        spoiled: &Ranges,
    ) -> Result<(), StoreError> {
        let _writing = self.begin_write();
        let _shard = self.shard_of(no).write();
        let mut held = self.held_object(no)?;
        let Some(mut content) = held
            .content
            .take()
            .filter(|content| content.data_seq == data_seq)
        else {
            return Ok(());
        };
        // A reader asks for a part of a block; damaged is all of it.
        let mut whole = Ranges::default();
        spoiled
            .iter()
            .map(|(from, to)| block_bounds(from, to))
            .for_each(|(from, to)| whole.add(from, to));
        content.present = content.present.without(&whole);
        held.content = Some(content).filter(|content| !content.present.is_empty());
        self.reduce_to(no, &held, &whole)
    }

    /// An object is no more.
    ///
    /// # Errors
    /// What the disk met.
    pub fn remove_object(&self, no: ObjectNo) -> Result<(), StoreError> {
        let _writing = self.begin_write();
        let _shard = self.shard_of(no).write();
        self.reduce_to(no, &HeldObject::default(), &Ranges::default())
    }

    /// Says whether an object, and of a directory whatever comes into it, is always to be here.
    ///
    /// # Errors
    /// What the disk met.
    pub fn set_affinity(
        &self,
        no: ObjectNo,
        affinity: bool,
        sticky: bool,
    ) -> Result<(), StoreError> {
        let _writing = self.begin_write();
        let _shard = self.shard_of(no).write();
        let held = HeldObject {
            affinity,
            sticky,
            ..self.held_object(no)?
        };
        self.write_note(no, &held)
    }

    fn write_note(&self, no: ObjectNo, held: &HeldObject) -> Result<(), StoreError> {
        let cost = Cost::note().with_note(NOTE_BYTES_MAX).freeing();
        let op = self.store.begin(cost)?;
        op.set_note(no, encode_note(held).as_deref())
    }

    /// Says what is left of an object, and gives the rest back; under its shard.
    pub(super) fn reduce_to(
        &self,
        no: ObjectNo,
        held: &HeldObject,
        gone: &Ranges,
    ) -> Result<(), StoreError> {
        let size = match self.store.attr(no) {
            Err(StoreError::NotFound(_)) => return self.write_note(no, held),
            // It will never be read again.
            Err(StoreError::Corrupt { .. }) => {
                return self.write_note(
                    no,
                    &HeldObject {
                        content: None,
                        ..held.clone()
                    },
                );
            }
            attr => attr?.size,
        };
        let Some(content) = &held.content else {
            let mut left = size;
            while left > RECLAIM_STEP {
                left -= RECLAIM_STEP;
                self.update_object(no, held, |locked| locked.truncate(no, left))?;
            }
            return self.update_object(no, held, |locked| locked.free(no));
        };
        self.update_object(no, held, |locked| {
            for (from, to) in gone.iter() {
                let (from, to) = block_bounds(from, to);
                locked.punch(no, from, to)?;
            }
            if size == content.size {
                Ok(())
            } else {
                locked.truncate(no, content.size)
            }
        })
    }

    fn update_object(
        &self,
        no: ObjectNo,
        held: &HeldObject,
        change: impl FnOnce(&mut Locked<'_>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let cost = Cost::write(4 * BLOCK).with_note(NOTE_BYTES_MAX).freeing();
        let op = self.store.begin(cost)?;
        let mut locked = op.lock(&[no])?;
        // First of all: what is not noted is not there, whatever becomes of the rest.
        locked.set_note(no, encode_note(held).as_deref())?;
        change(&mut locked)
    }

    /// The numbers that lie from one on and are held, at most `count`.
    pub(super) fn held_numbers(
        &self,
        from: ObjectNo,
        count: usize,
    ) -> Result<Vec<ObjectNo>, StoreError> {
        let mut found = Vec::new();
        self.store.each_note(from, &mut |no, _| {
            found.push(no);
            if found.len() < count {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })?;
        Ok(found)
    }
}
