//! The content of files and symbolic links: reading, writing, allocating, seeking.
//!
//! # Guarantees
//! 1. A write of up to [`WRITE_STEP`] bytes happens as a whole or not at all; a larger one may end early and says how far it came.
//! 2. Reading never causes a commit.
//! 3. What is read is as it is at one moment between the call and the answer.

use crate::attributes::is_file;
use crate::upstream::{Fresh, Pend};
use crate::{Client, FsError};
use teal_log::{FILE_MAX, Parts, Purpose, SYMLINK_MAX};
use teal_types::{BLOCK, FileType, ObjectNo};

/// Bytes written in one operation.
pub const WRITE_STEP: usize = 1 << 20;

/// How to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WriteFlags {
    /// At the end of the file as it stands, whatever the offset. (The kernel's `O_APPEND` comes with the right offset.)
    pub append: bool,
    /// The caller may not keep set-user-id and set-group-id.
    pub kill_suidgid: bool,
}

/// What `fallocate` is to do.
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
    /// The mode of `fallocate` flags.
    ///
    /// # Errors
    /// [`FsError::NotSupported`] for all others.
    pub fn from_flags(flags: u32) -> Result<Self, FsError> {
        const KEEP_SIZE: u32 = 1;
        const PUNCH_HOLE: u32 = 2;
        const ZERO_RANGE: u32 = 16;
        let keep_size = flags & KEEP_SIZE != 0;
        match flags & !KEEP_SIZE {
            0 => Ok(Self::Allocate { keep_size }),
            PUNCH_HOLE if keep_size => Ok(Self::PunchHole),
            ZERO_RANGE => Ok(Self::ZeroRange { keep_size }),
            _ => Err(FsError::NotSupported),
        }
    }
}

/// What `lseek` looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seek {
    /// The next data.
    Data,
    /// The next hole; the end of the file counts as one.
    Hole,
}

impl Client {
    /// Reads up to `len` bytes of a file; fewer at its end.
    ///
    /// # Errors
    /// [`FsError::IsDir`], [`FsError::Invalid`], [`FsError::Stale`].
    pub fn read(&self, no: ObjectNo, offset: u64, len: usize) -> Result<Vec<u8>, FsError> {
        self.read_parts(no, offset, len).map(|parts| parts.to_vec())
    }

    /// The same, without a copy.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_parts(&self, no: ObjectNo, offset: u64, len: usize) -> Result<Parts, FsError> {
        let mut said = Err(FsError::Stale);
        self.read_then(no, offset, len, |parts| said = parts);
        said
    }

    /// The same; what is read is given to `answer` as soon as it is known, and what it came with is entered here after that.
    pub fn read_then(&self, no: ObjectNo, offset: u64, len: usize, answer: impl FnOnce(Result<Parts, FsError>)) {
        let (parts, fresh) = match self.read_or_bring(no, offset, len) {
            Ok((parts, fresh)) => (Ok(parts), fresh),
            Err(e) => (Err(e), None),
        };
        answer(parts);
        if let Some(fresh) = fresh {
            if let Err(e) = self.enter(fresh) {
                log::debug!("what was read of {no} is not kept: {e}");
            }
            self.replica.as_ref().inspect(|replica| replica.uses(no, offset.saturating_add(len as u64)));
        }
    }

    /// What is read, and what came for it and is not entered here yet.
    fn read_or_bring(&self, no: ObjectNo, offset: u64, len: usize) -> Result<(Parts, Option<Fresh>), FsError> {
        let end = offset.saturating_add(len as u64);
        loop {
            let here = self.replica.as_ref().map(|replica| replica.absence(no).read());
            let attr = self.getattr(no)?;
            is_file(&attr)?;
            let is_here = !self.absent(no)?.touches(offset, end);
            if is_here {
                self.replica.as_ref().inspect(|replica| replica.uses(no, end));
                let parts = self.store.read_parts(no, offset, len)?;
                self.accessed(&attr);
                return Ok((parts, None));
            }
            drop(here);
            if let Some((parts, fresh)) = self.read_fresh(&attr, (offset, end))? {
                self.accessed(&attr);
                return Ok((parts, Some(fresh)));
            }
            self.present(no, offset, end)?;
        }
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for anything else, [`FsError::Stale`].
    pub fn readlink(&self, no: ObjectNo) -> Result<Vec<u8>, FsError> {
        let attr = self.getattr(no)?;
        if attr.kind != FileType::Symlink {
            return Err(FsError::Invalid);
        }
        let target = self.store.read(no, 0, SYMLINK_MAX)?;
        self.accessed(&attr);
        Ok(target)
    }

    /// Writes into a file, and says how much of `data` was written: all of it, unless an error came after the first step.
    ///
    /// # Errors
    /// [`FsError::FileTooBig`], [`FsError::NoSpace`], and as [`read`](Self::read).
    pub fn write(&self, no: ObjectNo, offset: u64, data: &[u8], flags: WriteFlags) -> Result<usize, FsError> {
        let mut done = 0;
        loop {
            let step = &data[done..data.len().min(done + WRITE_STEP)];
            match self.on(no, || {
                self.wait_for_queue(step.len() as u64)?;
                self.room_for(step.len() as u64);
                self.write_step(no, offset.saturating_add(done as u64), step, flags)
            }) {
                Ok(n) => done += n,
                Err(e) if done == 0 => return Err(e),
                Err(_) => return Ok(done),
            }
            if done == data.len() {
                return Ok(done);
            }
        }
    }

    fn write_step(&self, no: ObjectNo, offset: u64, data: &[u8], flags: WriteFlags) -> Result<usize, FsError> {
        let mut cost = self.cost_of_content(no, data.len() as u64)?;
        if !flags.append && offset.saturating_add(data.len() as u64) <= self.store.attr(no)?.size {
            cost.purpose = Purpose::Replaces;
        }
        let _absence = self.absence_of(no);
        let op = self.begin(cost)?;
        let mut locked = op.lock(&[no])?;
        let attr = locked.attr(no);
        is_file(&attr)?;
        let offset = if flags.append { attr.size } else { offset };
        let room = usize::try_from(FILE_MAX.saturating_sub(offset)).unwrap_or(usize::MAX);
        let data = &data[..data.len().min(room)];
        if data.is_empty() {
            return if room == 0 { Err(FsError::FileTooBig) } else { Ok(0) };
        }
        locked.write(no, offset, data)?;
        let end = offset + data.len() as u64;
        self.content_changed(&mut locked, no, Pend::Data(offset, end), flags.kill_suidgid)?;
        self.wrote(data.len() as u64);
        Ok(data.len())
    }

    /// Makes room, holes or zeros. Room is not set aside: there must be enough of it now.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for an empty range, [`FsError::FileTooBig`], [`FsError::NoSpace`], and as [`read`](Self::read).
    pub fn fallocate(&self, no: ObjectNo, mode: FallocateMode, offset: u64, len: u64) -> Result<(), FsError> {
        if len == 0 {
            return Err(FsError::Invalid);
        }
        let end = offset.checked_add(len).filter(|end| *end <= FILE_MAX).ok_or(FsError::FileTooBig)?;
        self.on(no, || {
            is_file(&self.store.attr(no)?)?;
            if matches!(mode, FallocateMode::Allocate { .. }) && self.holes(no, offset, end)? > self.store.space().free
            {
                return Err(FsError::NoSpace);
            }
            let mut cost = self.cost_of_content(no, 2 * BLOCK)?;
            if mode == FallocateMode::PunchHole {
                cost.purpose = Purpose::Frees;
            }
            if !matches!(mode, FallocateMode::Allocate { .. }) {
                self.thin_out(no, offset, end)?;
            }
            let _absence = self.absence_of(no);
            let op = self.begin(cost)?;
            let mut locked = op.lock(&[no])?;
            let changed = if matches!(mode, FallocateMode::Allocate { .. }) {
                Pend::Cut(locked.attr(no).size)
            } else {
                locked.punch(no, offset, end)?;
                Pend::Data(offset, end)
            };
            let keep_size = match mode {
                FallocateMode::Allocate { keep_size } | FallocateMode::ZeroRange { keep_size } => keep_size,
                FallocateMode::PunchHole => true,
            };
            if !keep_size && end > locked.attr(no).size {
                locked.truncate(no, end)?;
            }
            Ok(self.content_changed(&mut locked, no, changed, false)?)
        })
    }

    /// Bytes of a range that no data fills.
    fn holes(&self, no: ObjectNo, offset: u64, end: u64) -> Result<u64, FsError> {
        let (mut at, mut holes) = (offset, 0);
        while at < end {
            let data = self.store.seek(no, at, false)?.unwrap_or(end).min(end);
            holes += data - at;
            at = self.store.seek(no, data, true)?.unwrap_or(end).max(data);
            if data == end {
                break;
            }
        }
        Ok(holes)
    }

    /// The next data or hole at or after `offset`.
    ///
    /// # Errors
    /// [`FsError::BehindEnd`] behind the end of the file, or when there is no more data; otherwise as [`read`](Self::read).
    pub fn seek(&self, no: ObjectNo, offset: u64, what: Seek) -> Result<u64, FsError> {
        self.on(no, || {
            is_file(&self.store.attr(no)?)?;
            let absent = self.absent(no)?;
            let found = self.store.seek(no, offset, what == Seek::Hole)?;
            if absent.is_empty() {
                return found.ok_or(FsError::BehindEnd);
            }
            self.seek_around(no, offset, what, &absent)
        })
    }

    /// Punches shared content of a range in steps, all but the last: each piece of it changes a count in the store's table, and an
    /// operation is to stay small.
    pub(crate) fn thin_out(&self, no: ObjectNo, from: u64, end: u64) -> Result<(), FsError> {
        let step = self.options.reclaim_step;
        if end.saturating_sub(from) <= step || !self.store.has_shared(no)? {
            return Ok(());
        }
        let mut at = from;
        while let Some(data) = self.store.seek(no, at, false)?.filter(|data| data.saturating_add(step) < end) {
            at = data + step;
            let _absence = self.absence_of(no);
            let op = self.begin(self.cost_of_content(no, 2 * BLOCK)?.freeing())?;
            let mut locked = op.lock(&[no])?;
            locked.punch(no, data, at)?;
            self.content_changed(&mut locked, no, Pend::Data(data, at), false)?;
        }
        Ok(())
    }
}
