//! Room and holes in a file: `fallocate`, and `lseek` to the next data or hole.

use crate::attributes::require_file;
use crate::content::write_flags::WriteFlags;
use crate::{FileSystem, InodeFlags, flags as inode_flags};
use teal_log::{Cost, LockedObjects};
use teal_types::limits::FILE_MAX;
use teal_types::{ByteRanges, ObjectNo};
use teal_volume::FsError;
use teal_volume::{ChangeBase, ObjectChange};

/// The modes of `fallocate`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FallocateMode {
    /// Make sure there is room.
    Allocate {
        /// The length stays.
        keep_size: bool,
    },
    /// Make a hole; the length stays.
    PunchHole,
    /// Make zeros.
    ZeroRange {
        /// The length stays.
        keep_size: bool,
    },
}

impl FallocateMode {
    /// Returns the mode of `fallocate` flags.
    ///
    /// # Errors
    /// [`FsError::NotSupported`] for all others.
    pub fn from_flags(flags: u32) -> Result<Self, FsError> {
        const KEEP_SIZE: u32 = 1;
        const PUNCH_HOLE: u32 = 2;
        const ZERO_RANGE: u32 = 16;
        let keep_size = flags & KEEP_SIZE != 0;
        // Linux does not punch holes that change the size.
        match flags & !KEEP_SIZE {
            0 => Ok(Self::Allocate { keep_size }),
            PUNCH_HOLE if keep_size => Ok(Self::PunchHole),
            ZERO_RANGE => Ok(Self::ZeroRange { keep_size }),
            _ => Err(FsError::NotSupported),
        }
    }
}

/// The target of `lseek`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeekTarget {
    /// The next data.
    Data,
    /// The next hole; the end of the file counts as one.
    Hole,
}

impl FileSystem {
    /// Makes room, holes or zeros. Room is set aside: a first write to any block of the range finds
    /// it, whatever else fills the store. Of the flags only
    /// [`kill_suidgid`](WriteFlags::kill_suidgid) counts.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for an empty range, [`FsError::FileTooBig`], [`FsError::NoSpace`], and
    /// as [`read`](Self::read).
    pub fn fallocate(
        &self,
        no: ObjectNo,
        mode: FallocateMode,
        offset: u64,
        len: u64,
        flags: WriteFlags,
    ) -> Result<(), FsError> {
        if len == 0 {
            return Err(FsError::Invalid);
        }
        let end = offset
            .checked_add(len)
            // Beyond the largest offset.
            .filter(|end| *end <= FILE_MAX)
            .ok_or(FsError::FileTooBig)?;
        self.volume.name_damage(no, || {
            require_file(&self.store().attr(no)?)?;
            match mode {
                FallocateMode::Allocate { keep_size } => {
                    // Looked at before room is made, and again under the lock.
                    if self.inode_flags(no)?.has(InodeFlags::IMMUTABLE) {
                        return Err(FsError::Permission);
                    }
                    let set_aside = self.set_room_aside(no, offset, end)?;
                    let done = self.note_allocated(no, (offset, end), keep_size, flags);
                    // Without its length the room would belong to nothing that was asked for.
                    done.inspect_err(|_| self.give_room_back(no, &set_aside))
                }
                FallocateMode::PunchHole => self.zero_range(no, (offset, end), mode, flags),
                FallocateMode::ZeroRange { .. } => {
                    self.zero_range(no, (offset, end), mode, flags)?;
                    self.set_room_aside(no, offset, end).map(drop)
                }
            }
        })
    }

    /// Sets room aside for all holes of a range, in steps. Returns where it did: ranges of bytes.
    /// If there is not enough room for all of it, none is set aside in the end.
    fn set_room_aside(
        &self,
        no: ObjectNo,
        offset: u64,
        end: u64,
    ) -> Result<Vec<(u64, u64)>, FsError> {
        let mut set_aside = Vec::new();
        let mut at = offset;
        // A hopeless request is not begun: others would miss the room meanwhile.
        let (total, _) = self.store().total_and_free();
        if self.lacks_room(no, offset, end, total)? {
            return Err(FsError::NoSpace);
        }
        while at < end {
            match self.preallocate_step(no, at, end, &mut set_aside) {
                Ok(next) => {
                    debug_assert!(next > at, "an empty step does not end");
                    at = next;
                }
                Err(e) => {
                    self.give_room_back(no, &set_aside);
                    return Err(e);
                }
            }
        }
        Ok(set_aside)
    }

    /// Returns whether more bytes of a range than these are neither stored nor have room set aside.
    fn lacks_room(&self, no: ObjectNo, offset: u64, end: u64, most: u64) -> Result<bool, FsError> {
        debug_assert!(offset <= end);
        let mut without = 0;
        let mut at = offset;
        // A range may be far longer than any store.
        while at < end && without <= most {
            let planned = self.store().plan_preallocation(no, at, end)?;
            debug_assert!(planned.end > at, "an empty step does not end");
            without += planned.bytes;
            at = planned.end;
        }
        Ok(without > most)
    }

    fn preallocate_step(
        &self,
        no: ObjectNo,
        at: u64,
        end: u64,
        set_aside: &mut Vec<(u64, u64)>,
    ) -> Result<u64, FsError> {
        let planned = self.store().plan_preallocation(no, at, end)?;
        if planned.bytes == 0 {
            return Ok(planned.end);
        }
        self.store().permit_preallocation()?;
        // Content that the server has, too, makes way.
        self.residency.make_space(planned.bytes);
        let cost = self.cost_of_content(no, planned.cost)?;
        let _content = self.residency.lock_for_changing(no);
        let op = self.begin_operation(cost)?;
        let mut locked = op.lock(&[no])?;
        let done = locked.preallocate(no, at, planned.end, &planned)?;
        set_aside.extend(done.ranges);
        Ok(done.end)
    }

    /// Gives up room that was set aside in vain.
    fn give_room_back(&self, no: ObjectNo, set_aside: &[(u64, u64)]) {
        let release = |range: &(u64, u64)| -> Result<(), FsError> {
            let cost = Cost::cut().with_piece(0).freeing();
            let op = self.begin_operation(self.cost_of_content(no, cost)?)?;
            op.lock(&[no])?.release_room(no, &[*range])?;
            Ok(())
        };
        if let Err(e) = set_aside.iter().try_for_each(release) {
            // The room stays with the file, as after a crash.
            log::warn!("room that was set aside for object {no} is not given back: {e}");
        }
    }

    /// Sets the length and the times of a file for which room was set aside.
    fn note_allocated(
        &self,
        no: ObjectNo,
        (offset, end): (u64, u64),
        keep_size: bool,
        flags: WriteFlags,
    ) -> Result<(), FsError> {
        let cost = self.cost_of_content(no, Cost::cut().with_piece(0))?;
        let _content = self.residency.lock_for_changing(no);
        // The room that was set aside lies beside what this writes.
        let op = self.begin_operation(cost.covered_by_room(0))?;
        let mut locked = op.lock(&[no])?;
        inode_flags::check_content(&locked, no, true)?;
        let size = locked.attr(no).size;
        let base = self.base_of(no, offset, size);
        self.extend_to(&mut locked, no, end, keep_size)?;
        // The content stays the same: for the server the length changes, or nothing.
        let changed = ObjectChange::Truncate { size, base };
        self.content_changed(&mut locked, no, changed, flags.kill_suidgid)?;
        self.note_extended(&locked, no, end, keep_size);
        Ok(())
    }

    /// Makes a range zeros, and gives back what it had.
    fn zero_range(
        &self,
        no: ObjectNo,
        (offset, end): (u64, u64),
        mode: FallocateMode,
        flags: WriteFlags,
    ) -> Result<(), FsError> {
        let mut cost = self.cost_of_content(no, Cost::cut().with_piece(0))?;
        // A hole frees space, and never changes the size.
        let keep_size = match mode {
            FallocateMode::PunchHole => {
                cost = cost.freeing();
                true
            }
            FallocateMode::Allocate { keep_size } | FallocateMode::ZeroRange { keep_size } => {
                keep_size
            }
        };
        self.punch_shared_in_steps(no, offset, end)?;
        let _content = self.residency.lock_for_changing(no);
        let op = self.begin_operation(cost)?;
        let mut locked = op.lock(&[no])?;
        inode_flags::check_content(&locked, no, false)?;
        let base = self.base_of(no, offset, locked.attr(no).size);
        locked.punch(no, offset, end)?;
        self.extend_to(&mut locked, no, end, keep_size)?;
        let changed = ObjectChange::Data {
            from: offset,
            to: end,
            base,
        };
        self.content_changed(&mut locked, no, changed, flags.kill_suidgid)?;
        self.note_extended(&locked, no, end, keep_size);
        Ok(())
    }

    fn extend_to(
        &self,
        locked: &mut LockedObjects<'_>,
        no: ObjectNo,
        end: u64,
        keep_size: bool,
    ) -> Result<(), FsError> {
        if !keep_size && end > locked.attr(no).size {
            locked.truncate(no, end)?;
        }
        Ok(())
    }

    /// Notes that the kernel raises its own idea of the size in the same way.
    fn note_extended(&self, locked: &LockedObjects<'_>, no: ObjectNo, end: u64, keep_size: bool) {
        if !keep_size {
            self.note_kernel_extended(locked, no, end);
        }
    }

    /// Returns the next data or hole at or after `offset`.
    ///
    /// # Errors
    /// [`FsError::BehindEnd`] behind the end of the file, or when there is no more data; otherwise
    /// as [`read`](Self::read).
    pub fn seek(&self, no: ObjectNo, offset: u64, what: SeekTarget) -> Result<u64, FsError> {
        self.volume.name_damage(no, || {
            require_file(&self.store().attr(no)?)?;
            let absent = self.residency.absent_ranges(no)?;
            let found = self.store().seek(no, offset, what == SeekTarget::Hole)?;
            // All content is here: the store's own map is the answer.
            if absent.is_empty() {
                return found.ok_or(FsError::BehindEnd);
            }
            self.seek_around(no, offset, what, &absent)
        })
    }

    /// Works as [`seek`](Self::seek) does where some content is not in the store. That content
    /// counts as data.
    fn seek_around(
        &self,
        no: ObjectNo,
        offset: u64,
        what: SeekTarget,
        absent: &ByteRanges,
    ) -> Result<u64, FsError> {
        let size = self.store().attr(no)?.size;
        if offset >= size {
            return Err(FsError::BehindEnd);
        }
        let mut at = offset;
        // Data here, or absent content, whichever begins first.
        if what == SeekTarget::Data {
            let here = self.store().seek(no, at, false)?;
            let there = absent
                .clipped_to(at, size)
                .iter()
                .next()
                .map(|(from, _)| from);
            let next = here.into_iter().chain(there).min();
            return next.ok_or(FsError::BehindEnd);
        }
        // A hole counts only where no content is absent.
        while at < size {
            let hole = self.store().seek(no, at, true)?.unwrap_or(size);
            let behind = absent.clipped_to(hole, size);
            match behind.iter().next().filter(|(from, _)| *from == hole) {
                Some((_, to)) => at = to,
                None => return Ok(hole),
            }
        }
        Ok(size)
    }

    /// Punches shared content of a range in steps, all but the last: each piece of it changes a
    /// count in the store's table, and an operation is to stay small.
    pub(crate) fn punch_shared_in_steps(
        &self,
        no: ObjectNo,
        from: u64,
        end: u64,
    ) -> Result<(), FsError> {
        let step = self.options.reclaim_step;
        // Files without shared content are cut in one step.
        if end.saturating_sub(from) <= step || !self.store().has_shared(no)? {
            return Ok(());
        }
        let mut at = from;
        while let Some(data) = self
            .store()
            .seek(no, at, false)?
            .filter(|data| data.saturating_add(step) < end)
        {
            debug_assert!(data >= at, "the step goes back");
            at = data + step;
            // Locked for each step, so that readers get their turn.
            let _content = self.residency.lock_for_changing(no);
            let op = self.begin_operation(
                self.cost_of_content(no, Cost::cut().with_piece(0))?
                    .freeing(),
            )?;
            let mut locked = op.lock(&[no])?;
            // The operation for which this makes way would be refused.
            inode_flags::check_content(&locked, no, false)?;
            locked.punch(no, data, at)?;
            let changed = ObjectChange::Data {
                from: data,
                to: at,
                base: ChangeBase::Position,
            };
            self.content_changed(&mut locked, no, changed, false)?;
        }
        Ok(())
    }
}
