//! The content of files and symbolic links: reading and writing; room and holes are in `holes`.
//!
//! # Guarantees
//! 1. A write of up to [`WRITE_STEP`] bytes happens as a whole or not at all; a larger one may end
//!    early and says how far it came.
//! 2. Reading never causes a commit.
//! 3. What is read is as it is at one moment between the call and the answer.

mod holes;
mod write_flags;

pub use self::holes::{FallocateMode, SeekTarget};
pub use self::write_flags::WriteFlags;

use crate::attributes::require_file;
use crate::seeded::{Bug, bug};
use crate::{FileSystem, ReadAccess, flags as inode_flags};
use teal_log::{Cost, LockedObjects, ScatteredBytes};
use teal_types::limits::{FILE_MAX, TARGET_MAX};
use teal_types::{Attr, FileType, ObjectNo};
use teal_volume::{ChangeBase, NearbyContent, ObjectChange, WRITE_STEP, WritePlacement};
use teal_volume::{FsError, Invalidation, Moment};

/// The place of a write, decided under the lock.
struct PlacedWrite {
    offset: u64,
    /// True if it appends, whatever the offset was that it asked for.
    is_at_end: bool,
    /// The state of the file that it was made in.
    base: ChangeBase,
}

/// The content that a read found.
enum ReadContent<'a> {
    /// The content was in the store.
    Here(ScatteredBytes),
    /// The content was read from a device nearby, and is to be kept.
    Nearby(NearbyContent<'a>),
}

/// The result of one step of a write.
#[derive(Debug, Clone, Copy, Default)]
struct WrittenStep {
    bytes: usize,
    /// They lie elsewhere than where the caller takes them to be.
    is_moved: bool,
}

impl FileSystem {
    /// Reads up to `len` bytes of a file; fewer at its end.
    ///
    /// # Errors
    /// [`FsError::IsDir`], [`FsError::Invalid`], [`FsError::Stale`].
    pub fn read(&self, no: ObjectNo, offset: u64, len: usize) -> Result<Vec<u8>, FsError> {
        self.read_parts(no, offset, len).map(|parts| parts.to_vec())
    }

    /// Reads as [`read`](Self::read) does, without a copy.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_parts(
        &self,
        no: ObjectNo,
        offset: u64,
        len: usize,
    ) -> Result<ScatteredBytes, FsError> {
        // A caller without an answer cannot arise: `answer` is called exactly once.
        let mut said = Err(FsError::Stale);
        self.read_then(no, offset, len, ReadAccess::Counted, |parts| said = parts);
        said
    }

    /// Reads as [`read_parts`](Self::read_parts) does. Gives the content to `answer` as soon as it
    /// is known, and enters content from a nearby device into the store after that.
    pub fn read_then(
        &self,
        no: ObjectNo,
        offset: u64,
        len: usize,
        access: ReadAccess,
        answer: impl FnOnce(Result<ScatteredBytes, FsError>),
    ) {
        match self.read_or_bring(no, offset, len, access) {
            Ok(ReadContent::Here(parts)) => answer(Ok(parts)),
            Ok(ReadContent::Nearby(NearbyContent { parts, keep })) => {
                // The answer goes first: the reader does not wait for the store to keep the
                // content.
                answer(Ok(parts));
                keep();
                self.residency
                    .note_read(no, offset.saturating_add(len as u64));
            }
            Err(e) => answer(Err(e)),
        }
    }

    /// Reads what is here or nearby, and has the rest brought here.
    fn read_or_bring(
        &self,
        no: ObjectNo,
        offset: u64,
        len: usize,
        access: ReadAccess,
    ) -> Result<ReadContent<'_>, FsError> {
        let end = offset.saturating_add(len as u64);
        loop {
            // While this lock is held, no content can become absent.
            let reading = self.residency.lock_for_reading(no);
            let attr = self.getattr(no)?;
            require_file(&attr)?;
            let is_here = !self.residency.absent_ranges(no)?.overlaps(offset, end);
            if is_here {
                self.residency.note_read(no, end);
                let parts = self.store().read_parts(no, offset, len)?;
                self.note_read(&attr, access);
                return Ok(ReadContent::Here(parts));
            }
            // The lock is released before anything is fetched: fetching needs it exclusively.
            drop(reading);
            if let Some(nearby) = self.residency.read_nearby(&attr, offset, end)? {
                self.note_read(&attr, access);
                return Ok(ReadContent::Nearby(nearby));
            }
            // Fetched content may be evicted again before it is read: the loop looks once more.
            self.residency.make_present(no, offset, end)?;
        }
    }

    fn note_read(&self, attr: &Attr, access: ReadAccess) {
        match access {
            ReadAccess::Counted => self.note_access(attr),
            ReadAccess::Uncounted => {}
        }
    }

    /// Returns the target of a symbolic link.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for anything else, [`FsError::Stale`].
    pub fn readlink(&self, no: ObjectNo) -> Result<Vec<u8>, FsError> {
        let attr = self.getattr(no)?;
        // Only symbolic links have a target.
        if attr.kind != FileType::Symlink {
            return Err(FsError::Invalid);
        }
        let target = self.store().read(no, 0, TARGET_MAX)?;
        self.note_access(&attr);
        Ok(target)
    }

    /// Writes into a file, and says how much of `data` was written: all of it, unless an error came
    /// after the first step.
    ///
    /// # Errors
    /// [`FsError::FileTooBig`], [`FsError::NoSpace`], and as [`read`](Self::read).
    pub fn write(
        &self,
        no: ObjectNo,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
    ) -> Result<usize, FsError> {
        let mut done = 0;
        let mut is_moved = false;
        let failed = loop {
            // Each step is one operation, so that a large write does not take all space at once.
            let step = &data[done..data.len().min(done + WRITE_STEP)];
            match self.volume.name_damage(no, || {
                // Flow control first: no lock is held while the writer waits.
                self.residency.wait_for_queue(step.len() as u64)?;
                self.residency.make_space(step.len() as u64);
                self.write_step(no, offset.saturating_add(done as u64), step, flags)
            }) {
                Ok(written) => {
                    debug_assert!(
                        done + written.bytes <= data.len(),
                        "more was written than given"
                    );
                    done += written.bytes;
                    is_moved |= written.is_moved;
                }
                Err(e) => break Some(e),
            }
            if done == data.len() {
                break None;
            }
        };
        // The kernel put the data elsewhere in its cache.
        if is_moved && let Ok(attr) = self.store().attr(no) {
            self.volume.invalidations().content_moved(no, attr.size);
        }
        match failed {
            // A write that did a part succeeds with that part.
            Some(e) if done == 0 => Err(e),
            _ => Ok(done),
        }
    }

    fn write_step(
        &self,
        no: ObjectNo,
        asked: u64,
        data: &[u8],
        flags: WriteFlags,
    ) -> Result<WrittenStep, FsError> {
        let cost = self.cost_of_content(no, Cost::write(data.len() as u64))?;
        let len = data.len() as u64;
        let _content = self.residency.lock_for_changing(no);
        loop {
            let size = self.store().attr(no)?.size;
            let at = self.place_write(no, asked, size, flags).offset;
            let room = self.store().room_at(no, at, len)?;
            let cost = match room {
                Some(blocks) => cost.covered_by_room(blocks),
                // Overwriting in place takes no additional space in the end.
                None if !flags.may_append() && at.saturating_add(len) <= size => cost.replacing(),
                None => cost,
            };
            let op = self.begin_operation(cost)?;
            let mut locked = op.lock(&[no])?;
            let attr = locked.attr(no);
            require_file(&attr)?;
            // The size that counts is the one under the lock.
            let place = self.place_write(no, asked, attr.size, flags);
            // The room that was looked at may have been used by another writer, or given up, and
            // then the cost is too small.
            if locked.room_at(no, place.offset, len)? == room {
                return self.write_locked(&mut locked, no, asked, data, (flags, place));
            }
        }
    }

    /// Writes into a locked file at a place that was found under the lock.
    fn write_locked(
        &self,
        locked: &mut LockedObjects<'_>,
        no: ObjectNo,
        asked: u64,
        data: &[u8],
        (flags, place): (WriteFlags, PlacedWrite),
    ) -> Result<WrittenStep, FsError> {
        let size = locked.attr(no).size;
        let PlacedWrite {
            offset,
            is_at_end,
            base,
        } = place;
        let room = usize::try_from(FILE_MAX.saturating_sub(offset)).unwrap_or(usize::MAX);
        // A write up to the largest size is cut there.
        let data = &data[..data.len().min(room)];
        // A write at the end of a file that is open for appending was put there by the kernel,
        // which may know an old end.
        let is_append = is_at_end || flags.asks_for_end && offset == size;
        inode_flags::check_content(locked, no, is_append)?;
        if data.is_empty() {
            return if room == 0 {
                Err(FsError::FileTooBig)
            } else {
                Ok(WrittenStep::default())
            };
        }
        locked.write(no, offset, data)?;
        let end = offset + data.len() as u64;
        let from = offset;
        let to = end;
        let changed = if is_append {
            ObjectChange::Append { from, to, base }
        } else {
            ObjectChange::Data { from, to, base }
        };
        self.content_changed(locked, no, changed, flags.kill_suidgid)?;
        self.note_kernel_extended(locked, no, asked.saturating_add(data.len() as u64));
        self.count_written(data.len() as u64);
        Ok(WrittenStep {
            bytes: data.len(),
            is_moved: flags.asks_for_end && offset != asked,
        })
    }

    /// Decides where a write to a file of this size goes, and which state of the file it was made
    /// in.
    fn place_write(&self, no: ObjectNo, asked: u64, size: u64, flags: WriteFlags) -> PlacedWrite {
        let at_end = |base| PlacedWrite {
            offset: if bug(Bug::AppendedAtStaleSize) {
                asked
            } else {
                size
            },
            is_at_end: true,
            base,
        };
        // The kernel knows that the file is open for appending: the true end counts.
        if flags.append {
            return at_end(ChangeBase::Position);
        }
        let stale = self.volume.stale_files();
        match stale.place_write(no, asked, size, flags.asks_for_end) {
            WritePlacement::Offset(given) => PlacedWrite {
                offset: asked,
                is_at_end: false,
                base: given.map_or(ChangeBase::Position, ChangeBase::Given),
            },
            // The writer saw an old end: the data goes to the new one.
            WritePlacement::End => {
                let installed = stale.installed_commit(no);
                at_end(installed.map_or(ChangeBase::Position, ChangeBase::Installed))
            }
        }
    }

    /// Returns which state of a locked file a change was made in that is no write and begins at
    /// `offset`.
    pub(crate) fn base_of(&self, no: ObjectNo, offset: u64, size: u64) -> ChangeBase {
        match self
            .volume
            .stale_files()
            .place_write(no, offset, size, false)
        {
            WritePlacement::Offset(Some(given)) => ChangeBase::Given(given),
            WritePlacement::Offset(None) | WritePlacement::End => ChangeBase::Position,
        }
    }

    /// Notes that the kernel takes `end` for the end of a locked file after its own change, if the
    /// kernel took an earlier offset for it.
    pub(crate) fn note_kernel_extended(&self, locked: &LockedObjects<'_>, no: ObjectNo, end: u64) {
        let size = locked.attr(no).size;
        self.volume.stale_files().note_kernel_size(no, end, size);
    }

    /// Notes that the kernel was told that a file ends no earlier than at `end`
    /// ([`Invalidation::Grown`](crate::Invalidation::Grown)).
    pub fn note_kernel_size(&self, no: ObjectNo, end: u64) {
        let Ok(attr) = self.store().attr(no) else {
            return;
        };
        let stale = self.volume.stale_files();
        // The kernel believes in a larger file than there is: reads behind the end must be
        // corrected.
        if attr.size < end {
            stale.note_possible_size(no, end);
            let changed = Invalidation::Attributes(no);
            self.volume.invalidations().tell(changed);
        }
        stale.note_kernel_size(no, end, attr.size);
    }

    /// Returns the present moment. An operation that begins now sees all content that was replaced
    /// before.
    pub fn current_moment(&self) -> Moment {
        self.volume.stale_files().current_moment()
    }

    /// Notes that the kernel is about to be given attributes or content of these objects, by the
    /// answer to a request that began at `since`. Called before the answer is sent: a program that
    /// has it may write at once, and that write is based on it.
    pub fn note_given(&self, objects: &[ObjectNo], since: Moment) {
        for no in objects {
            self.volume.stale_files().note_given(*no, since);
        }
    }

    /// Has the kernel forget what it was given of these objects, by the answer to a request that
    /// began at `since`, where it may be an older state than the one that is here. Called after
    /// the answer is sent: the kernel can forget only what it has.
    pub fn recall_outdated(&self, objects: &[ObjectNo], since: Moment) {
        for no in objects {
            // The kernel has heard of the replacement already, before the answer came.
            if self.volume.stale_files().was_replaced_after(*no, since)
                && let Ok(attr) = self.store().attr(*no)
            {
                self.volume.invalidations().content_changed(*no, attr.size);
            }
        }
    }
}
