//! Removing names: unlink and rmdir; and how an operation that looked before it locked tries again.

use crate::{FileSystem, flags};
use teal_log::{Cost, LockedObjects, StoreError, StoreOperation};
use teal_types::{Name, ObjectNo};
use teal_volume::FsError;
use teal_volume::{ObjectChange, ObjectFate, touch_directory, touch_object};

/// The number of times an operation may find its names changed before it shuts out all others.
const RETRIES: u32 = 8;

impl FileSystem {
    /// Repeats `attempt`, which answers `None` when a name leads elsewhere than it did before the
    /// locks were taken.
    pub(crate) fn retry_names<T>(
        &self,
        mut attempt: impl FnMut() -> Result<Option<T>, FsError>,
    ) -> Result<T, FsError> {
        // Optimistic: names rarely change between the look and the lock.
        for _ in 0..RETRIES {
            let _names = self.volume.share_namespace();
            if let Some(done) = attempt()? {
                return Ok(done);
            }
        }
        // Exclusive: no name changes any more.
        let _names = self.volume.own_namespace();
        // Nothing moves now: a name that still leads nowhere is damage.
        attempt()?.ok_or(FsError::Stale)
    }

    /// Removes a name of what is no directory.
    ///
    /// # Errors
    /// [`FsError::IsDir`], and as [`lookup`](Self::lookup).
    pub fn unlink(&self, parent: ObjectNo, name: &[u8]) -> Result<(), FsError> {
        self.remove_name(parent, name, false)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`FsError::NotDir`], [`FsError::NotEmpty`], and as [`lookup`](Self::lookup).
    pub fn rmdir(&self, parent: ObjectNo, name: &[u8]) -> Result<(), FsError> {
        self.remove_name(parent, name, true)
    }

    fn remove_name(&self, parent: ObjectNo, name: &[u8], dir: bool) -> Result<(), FsError> {
        let fate = self.volume.name_damage(parent, || {
            let name = self.name_in(parent, name)?;
            // The directory is listed before any lock: that may fetch.
            self.list_below(parent, &name)?;
            self.retry_names(|| self.try_remove(parent, &name, dir))
        })?;
        // After all locks are released: giving back may take several operations.
        self.volume.reclaim(fate, &*self.changes);
        Ok(())
    }

    /// Makes sure that the entries of a directory that may be removed are here; without any lock.
    pub(crate) fn list_below(&self, parent: ObjectNo, name: &Name) -> Result<(), FsError> {
        // Without a server, everything is listed.
        if self.replica.is_some()
            && let Some((child, kind)) = self.store().lookup(parent, name)?
            && kind.is_dir()
        {
            self.residency.make_listed(child)?;
        }
        Ok(())
    }

    fn try_remove(
        &self,
        parent: ObjectNo,
        name: &Name,
        dir: bool,
    ) -> Result<Option<ObjectFate>, FsError> {
        let (child, kind) = self
            .store()
            .lookup(parent, name)?
            .ok_or(FsError::NotFound)?;
        // The kind decides on the error before anything else.
        match (kind.is_dir(), dir) {
            (true, false) => return Err(FsError::IsDir),
            (false, true) => return Err(FsError::NotDir),
            _ => {}
        }
        if dir && !self.residency.is_listed(child)? {
            // Some of the entries are not in this store, so the directory may hold something.
            return Err(FsError::NotEmpty);
        }
        let op = self.begin_operation(
            self.volume
                .cost_of_names(Cost::unlink(), &[parent, child])?
                .freeing(),
        )?;
        let Some(mut locked) = lock_found(&op, &[parent], &[child])? else {
            return Ok(None);
        };
        // The name leads elsewhere by now.
        if locked.entry(parent, name)?.map(|e| e.0) != Some(child) {
            return Ok(None);
        }
        flags::check_attributes(&locked, parent)?;
        flags::check_attributes(&locked, child)?;
        // Looked at under the lock: no entry can be added any more.
        if dir && locked.entry_count(child) > 0 {
            return Err(FsError::NotEmpty);
        }
        self.changes
            // Recorded before the change, while the old names are there.
            .record(&mut locked, child, ObjectChange::Names)?;
        locked.remove_entry(parent, name)?;
        let now = self.volume.now();
        touch_directory(&mut locked, parent, now);
        touch_object(&mut locked, child, now);
        Ok(Some(self.volume.decide_fate(
            &mut locked,
            child,
            &*self.changes,
        )?))
    }
}

/// Locks directories that were named by the caller and objects that were found by name; `None` when
/// one of the latter is gone.
pub(crate) fn lock_found<'o>(
    op: &'o StoreOperation<'_>,
    dirs: &[ObjectNo],
    found: &[ObjectNo],
) -> Result<Option<LockedObjects<'o>>, StoreError> {
    match op.lock(&[dirs, found].concat()) {
        // The object went away; the caller looks again.
        Err(StoreError::NotFound(no)) if !dirs.contains(&no) => Ok(None),
        locked => locked.map(Some),
    }
}
