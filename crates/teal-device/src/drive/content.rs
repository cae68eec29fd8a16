//! Content on a drive: read, installed, given up.

use super::Drive;
use super::found_content::{DataPiece, FoundContent};
use super::object_note::{HeldContent, HeldObject, NOTE_BYTES_MAX, RANGES_MAX, block_bounds};
use std::ops::ControlFlow;
use teal_log::{Cost, LockedObjects, NewObject, StoreError, StoreOperation};
use teal_types::{BLOCK, ByteRanges, CommitSeq, FileType, ObjectNo};

/// The bytes of one read of content; with a bad block, one such read is lost.
const READ_STEP: u64 = 128 << 10;
/// The most bytes given back in one operation.
const RECLAIM_STEP: u64 = 256 << 20;

/// Returns the note of an object; none if it says nothing.
fn encode_note(held: &HeldObject) -> Option<Vec<u8>> {
    (!held.is_empty()).then(|| held.encode())
}

/// Returns the bytes that pieces take on the disk at most.
fn space_of(pieces: &[DataPiece]) -> u64 {
    let mut bytes = 0;
    for (_, piece) in pieces {
        // A piece may begin and end within a block.
        bytes += piece.len() as u64 + 2 * BLOCK;
    }
    bytes
}

/// Returns the content that an installation extends: that of the same commit, or an empty one in
/// place of an older one; `None` if newer content is here.
fn content_to_extend(
    content: Option<HeldContent>,
    data_seq: CommitSeq,
    size: u64,
) -> Option<HeldContent> {
    match content {
        Some(content) if content.data_seq == data_seq => Some(content),
        Some(content) if content.data_seq > data_seq => None,
        // The changes since an older commit are not known here: nothing of that content stays.
        _ => Some(HeldContent {
            data_seq,
            size,
            present: ByteRanges::default(),
        }),
    }
}

/// Returns the range that an installation replaces: whole blocks, but for their parts beside it
/// that are here. Other parts may be damaged, and go with their block.
fn replaced_range(present: &ByteRanges, from: u64, to: u64) -> (u64, u64) {
    let (mut low, mut high) = block_bounds(from, to);
    if present.overlaps(low, from) {
        low = from;
    }
    if present.overlaps(to, high) {
        high = to;
    }
    debug_assert!(low <= from && to <= high);
    (low, high)
}

/// The part of a file that an installation replaces.
enum ReplacedPart {
    /// All of the file, which gets this size.
    Everything { size: u64 },
    /// The bytes from `from` to `to`.
    Range { from: u64, to: u64 },
}

impl Drive {
    /// Returns the note of an object: the parts of it that are on the drive.
    ///
    /// # Errors
    /// Returns the error of reading the note.
    pub fn held_object(&self, no: ObjectNo) -> Result<HeldObject, StoreError> {
        let Some(bytes) = self.store.note(no)? else {
            return Ok(HeldObject::default());
        };
        // A note that cannot be read is damage of the drive, and not an object without content.
        let damaged = StoreError::Corrupt {
            what: "the note of an object on a drive",
            at: 0,
            object: Some(no),
        };
        HeldObject::decode(&bytes).ok_or(damaged)
    }

    /// Reads the content from `from` to `to` as far as it is here, as it is since `data_seq`.
    ///
    /// # Errors
    /// Returns the disk's error. Damaged content is no error, but listed in [`FoundContent`].
    pub fn read(
        &self,
        no: ObjectNo,
        data_seq: CommitSeq,
        from: u64,
        to: u64,
    ) -> Result<FoundContent, StoreError> {
        // Shared with other readers; an installation of the same object waits.
        let _shard = self.shard_of(no).read();
        let mut found = FoundContent::default();
        let content = self.held_object(no)?.content;
        // Content of another commit is another content.
        let Some(content) = content.filter(|content| content.data_seq == data_seq) else {
            return Ok(found);
        };
        self.record_use(no);
        for (start, end) in content.present.clipped_to(from, to).iter() {
            let mut at = start;
            while at < end {
                // Steps end at multiples, so that two reads of a damaged place give up the same
                // bytes.
                let stop = (at / READ_STEP + 1).saturating_mul(READ_STEP).min(end);
                debug_assert!(at < stop && stop <= end);
                match self.read_step(no, at, stop) {
                    Ok(mut pieces) => {
                        found.pieces.append(&mut pieces);
                        found.present.add(at, stop);
                    }
                    Err(StoreError::Corrupt { .. } | StoreError::NotFound(_)) => {
                        found.damaged.add(at, stop);
                    }
                    Err(error) => return Err(error),
                }
                at = stop;
            }
        }
        Ok(found)
    }

    /// Reads the pieces of a range that are not zeros.
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
    /// `to`; bytes without a piece are zeros. Returns false if the drive holds newer content, or
    /// too many parts of this, or is not at that commit yet.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`] when nothing more may make way, or the disk's error.
    pub fn install(
        &self,
        no: ObjectNo,
        (data_seq, size): (CommitSeq, u64),
        (from, to): (u64, u64),
        pieces: &[DataPiece],
    ) -> Result<bool, StoreError> {
        // Guarantee 3: nothing on the drive is newer than its position.
        if data_seq > self.label().position {
            return Ok(false);
        }
        let _writing = self.begin_write();
        // Before the shard is locked: other objects make way, each under its own shard.
        self.make_room(no, space_of(pieces))?;
        let _shard = self.shard_of(no).write();
        if self.store.is_leaving(no) {
            // The number is free for a new object only when the removal of the old one is durable.
            self.store.commit()?;
        }
        let mut held = self.held_object(no)?;
        let Some(mut content) = content_to_extend(held.content.take(), data_seq, size) else {
            return Ok(false);
        };
        let replaced = if content.present.is_empty() {
            ReplacedPart::Everything { size }
        } else {
            let (from, to) = replaced_range(&content.present, from, to);
            ReplacedPart::Range { from, to }
        };
        content.present.add(from, to.min(size));
        if content.present.iter().len() > RANGES_MAX {
            return Ok(false);
        }
        held.content = Some(content);
        self.write_content(no, &held, &replaced, pieces)?;
        self.record_use(no);
        Ok(true)
    }

    /// Writes pieces of content and the note of their object, in one operation: after a crash both
    /// are there, or neither.
    fn write_content(
        &self,
        no: ObjectNo,
        held: &HeldObject,
        replaced: &ReplacedPart,
        pieces: &[DataPiece],
    ) -> Result<(), StoreError> {
        let cost = Cost::write(space_of(pieces) + 2 * BLOCK).with_note(NOTE_BYTES_MAX);
        let op = self.store.begin(cost)?;
        let mut locked = match op.lock(&[no]) {
            Err(StoreError::NotFound(_)) => self.create_file(&op, no)?,
            locked => locked?,
        };
        match *replaced {
            ReplacedPart::Everything { size } => {
                // Cut first, so that nothing of a former content is left.
                locked.truncate(no, 0)?;
                locked.truncate(no, size)?;
            }
            ReplacedPart::Range { from, to } => locked.punch(no, from, to)?,
        }
        for (at, bytes) in pieces {
            locked.write(no, *at, bytes)?;
        }
        locked.set_note(no, Some(&held.encode()))
    }

    /// Makes the file that is to hold an object's content.
    fn create_file<'op>(
        &self,
        op: &'op StoreOperation<'_>,
        no: ObjectNo,
    ) -> Result<LockedObjects<'op>, StoreError> {
        let mut locked = op.lock(&[])?;
        locked.create_as(no, self.new_file())?;
        // Without a name, it lives as an orphan.
        locked.set_orphan(no, true)?;
        Ok(locked)
    }

    /// Returns the attributes of the file that holds an object's content.
    fn new_file(&self) -> NewObject {
        NewObject {
            kind: FileType::File,
            perm: 0o600,
            uid: 0,
            gid: 0,
            rdev: 0,
            now: self.clock.civil_time(),
        }
    }

    /// Takes in that an object has another state: content of the old one that did not change is
    /// content of the new one. `changed` lists (offset, length); with `None`, the change may be
    /// anywhere.
    ///
    /// # Errors
    /// Returns the disk's error.
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
        // The note is written before the space is given back, below: content that is not noted is
        // not read.
        let after = content.superseded_by(data_seq, size, changed);
        let gone = content.present.difference(&after.present);
        held.content = Some(after).filter(|content| !content.present.is_empty());
        self.reduce_to(no, &held, &gone)
    }

    /// Gives up damaged content, with all that lies in the same blocks: it comes again from
    /// elsewhere.
    ///
    /// # Errors
    /// Returns the disk's error.
    pub fn drop_damaged(
        &self,
        no: ObjectNo,
        data_seq: CommitSeq,
        spoiled: &ByteRanges,
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
        // A reader asks for a part of a block, but all of the block is damaged.
        let mut whole = ByteRanges::default();
        spoiled
            .iter()
            .map(|(from, to)| block_bounds(from, to))
            .for_each(|(from, to)| whole.add(from, to));
        content.present = content.present.difference(&whole);
        held.content = Some(content).filter(|content| !content.present.is_empty());
        self.reduce_to(no, &held, &whole)
    }

    /// Removes an object that does not exist any more.
    ///
    /// # Errors
    /// Returns the disk's error.
    pub fn remove_object(&self, no: ObjectNo) -> Result<(), StoreError> {
        let _writing = self.begin_write();
        let _shard = self.shard_of(no).write();
        self.reduce_to(no, &HeldObject::default(), &ByteRanges::default())
    }

    /// Sets an object's affinity: that it is always to be here, and with `sticky`, everything that
    /// enters the directory.
    ///
    /// # Errors
    /// Returns the disk's error.
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
        // A note may become shorter: its cost is that of the longest, and it may free space.
        let cost = Cost::note().with_note(NOTE_BYTES_MAX).freeing();
        let op = self.store.begin(cost)?;
        op.set_note(no, encode_note(held).as_deref())
    }

    /// Writes the note of the remaining parts of an object, and gives the space of the others back.
    /// The caller holds the object's shard.
    pub(super) fn reduce_to(
        &self,
        no: ObjectNo,
        held: &HeldObject,
        gone: &ByteRanges,
    ) -> Result<(), StoreError> {
        let size = match self.store.attr(no) {
            Ok(attr) => attr.size,
            Err(StoreError::NotFound(_)) => return self.write_note(no, held),
            // The damaged object is left as it is, since without a note it is never read again.
            Err(StoreError::Corrupt { .. }) => {
                let without_content = HeldObject {
                    content: None,
                    ..held.clone()
                };
                return self.write_note(no, &without_content);
            }
            Err(error) => return Err(error),
        };
        let Some(content) = &held.content else {
            return self.free_object(no, held, size);
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

    /// Frees an object of `size` bytes, in steps: an operation has a limit to the space it may give
    /// back.
    fn free_object(&self, no: ObjectNo, held: &HeldObject, size: u64) -> Result<(), StoreError> {
        let mut left = size;
        while left > RECLAIM_STEP {
            left -= RECLAIM_STEP;
            self.update_object(no, held, |locked| locked.truncate(no, left))?;
        }
        self.update_object(no, held, |locked| locked.free_object(no))
    }

    fn update_object(
        &self,
        no: ObjectNo,
        held: &HeldObject,
        change: impl FnOnce(&mut LockedObjects<'_>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let cost = Cost::write(4 * BLOCK).with_note(NOTE_BYTES_MAX).freeing();
        let op = self.store.begin(cost)?;
        let mut locked = op.lock(&[no])?;
        // First of all: content that is not noted is not here, whatever becomes of the rest.
        locked.set_note(no, encode_note(held).as_deref())?;
        change(&mut locked)
    }

    /// Returns the numbers of held objects from `from` on, at most `count`.
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
