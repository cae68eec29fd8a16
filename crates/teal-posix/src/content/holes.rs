//! Room and holes in a file: `fallocate`, and `lseek` to the next data or hole.

use crate::FileSystem;
use crate::attributes::require_file;
use teal_log::Cost;
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
    /// Makes room, holes or zeros. Room is asked for and not set aside: there must be enough now.
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
            // Allocation asks for space for all holes, and writes nothing.
            if matches!(mode, FallocateMode::Allocate { .. })
                && self.bytes_in_holes(no, offset, end)? > self.store().space().free
            {
                return Err(FsError::NoSpace);
            }
            let mut cost = self.cost_of_content(no, Cost::cut().with_piece(0))?;
            // A hole frees space.
            if mode == FallocateMode::PunchHole {
                cost = cost.freeing();
            }
            if !matches!(mode, FallocateMode::Allocate { .. }) {
                self.punch_shared_in_steps(no, offset, end)?;
            }
            let _content = self.residency.lock_for_changing(no);
            let op = self.begin_operation(cost)?;
            let mut locked = op.lock(&[no])?;
            let size = locked.attr(no).size;
            let base = self.base_of(no, offset, size);
            // Allocation changes the size only; its content stays zeros.
            let changed = if matches!(mode, FallocateMode::Allocate { .. }) {
                ObjectChange::Truncate { size, base }
            } else {
                locked.punch(no, offset, end)?;
                ObjectChange::Data {
                    from: offset,
                    to: end,
                    base,
                }
            };
            // A hole never changes the size.
            let keep_size = match mode {
                FallocateMode::Allocate { keep_size } | FallocateMode::ZeroRange { keep_size } => {
                    keep_size
                }
                FallocateMode::PunchHole => true,
            };
            if !keep_size && end > locked.attr(no).size {
                locked.truncate(no, end)?;
            }
            self.content_changed(&mut locked, no, changed, false)?;
            // The kernel raises its own idea of the size in the same way.
            if !keep_size {
                self.note_kernel_extended(&locked, no, end);
            }
            Ok(())
        })
    }

    /// Returns the bytes of a range that no data fills.
    fn bytes_in_holes(&self, no: ObjectNo, offset: u64, end: u64) -> Result<u64, FsError> {
        debug_assert!(offset <= end);
        let mut at = offset;
        let mut holes = 0;
        while at < end {
            // From data to data: the distance between is a hole.
            let data = self.store().seek(no, at, false)?.unwrap_or(end).min(end);
            holes += data - at;
            at = self.store().seek(no, data, true)?.unwrap_or(end).max(data);
            debug_assert!(at >= data && holes <= end - offset);
            if data == end {
                break;
            }
        }
        Ok(holes)
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
