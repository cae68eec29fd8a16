//! How operations ask what of the volume is here, and have more of it brought.

use crate::{FsError, RankedReadGuard, RankedWriteGuard};
use teal_log::{ScatteredBytes, StoreError};
use teal_types::{Attr, ByteRanges, ObjectNo};

/// Content that was read from a device nearby and is not in the store yet.
pub struct NearbyContent<'a> {
    /// What was asked for.
    pub parts: ScatteredBytes,
    /// Enters it into the store; to be called after the reader has been answered.
    pub keep: Box<dyn FnOnce() + 'a>,
}

impl std::fmt::Debug for NearbyContent<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NearbyContent").finish_non_exhaustive()
    }
}

/// Knows what is here, and makes more of it present.
pub trait Residency: Send + Sync {
    /// Checks whether the entries of a directory are here.
    ///
    /// # Errors
    /// What the store met.
    fn is_listed(&self, dir: ObjectNo) -> Result<bool, StoreError>;

    /// Makes the entries of a directory present; without locks.
    ///
    /// # Errors
    /// [`FsError::Unreachable`], [`FsError::Stale`].
    fn make_listed(&self, dir: ObjectNo) -> Result<(), FsError>;

    /// Returns the ranges of a file's content that are not here.
    ///
    /// # Errors
    /// What the store met.
    fn absent_ranges(&self, no: ObjectNo) -> Result<ByteRanges, StoreError>;

    /// Makes content from `from` to `to` present; without locks.
    ///
    /// # Errors
    /// [`FsError::Unreachable`], [`FsError::Stale`].
    fn make_present(&self, no: ObjectNo, from: u64, to: u64) -> Result<(), FsError>;

    /// Reads absent content from a device nearby, if one has all of it and is cheaper than the
    /// server; without locks.
    ///
    /// # Errors
    /// What the store met.
    fn read_nearby(
        &self,
        attr: &Attr,
        from: u64,
        to: u64,
    ) -> Result<Option<NearbyContent<'_>>, FsError>;

    /// Keeps the content of an object from going away while it is read; `None` where content never
    /// goes away.
    fn lock_for_reading(&self, no: ObjectNo) -> Option<RankedReadGuard<'_, ()>>;

    /// Keeps readers away from the content of an object while it changes; `None` where content
    /// never goes away.
    fn lock_for_changing(&self, no: ObjectNo) -> Option<RankedWriteGuard<'_, ()>>;

    /// Hears that content up to `end` is read.
    fn note_read(&self, no: ObjectNo, end: u64);

    /// Has space made for so many bytes that are about to be written, if that is needed and
    /// possible.
    fn make_space(&self, bytes: u64);

    /// Waits until so many bytes more may be written that the server does not have.
    ///
    /// # Errors
    /// [`FsError::NoSpace`] when the server does not take what there is in time.
    fn wait_for_queue(&self, bytes: u64) -> Result<(), FsError>;
}
