//! Changing the content of a locked file.

use crate::error::StoreError;
use crate::object::state::{ObjectContent, ObjectState};
use crate::store::locked::LockedObjects;
use crate::tree::freed::FreedSpace;
use teal_types::ObjectNo;
use teal_types::limits::FILE_MAX;

impl LockedObjects<'_> {
    /// Writes into a file, growing it if needed.
    ///
    /// # Errors
    /// [`StoreError::TooBig`] beyond [`FILE_MAX`], or what reading partly overwritten blocks met;
    /// nothing has changed then.
    pub fn write(&mut self, no: ObjectNo, offset: u64, data: &[u8]) -> Result<(), StoreError> {
        if offset
            .checked_add(data.len() as u64)
            .is_none_or(|end| end > FILE_MAX)
        {
            return Err(StoreError::TooBig("a file"));
        }
        let (reader, stamp) = (&self.objects().reader, self.stamp());
        self.state_mut(no).write(reader, no, offset, data)?;
        self.mark_changed(no).core.data_stamp = stamp;
        self.account_freed_pages(no);
        Ok(())
    }

    fn change_content(
        &mut self,
        no: ObjectNo,
        change: impl FnOnce(&mut ObjectState, &mut Vec<FreedSpace>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let stamp = self.stamp();
        let mut freed = Vec::new();
        let done = change(self.state_mut(no), &mut freed);
        self.mark_changed(no).core.data_stamp = stamp;
        self.objects().account_freed(&freed);
        self.account_freed_pages(no);
        done
    }

    /// Sets a file's length.
    ///
    /// # Errors
    /// [`StoreError::TooBig`] beyond [`FILE_MAX`], or what reading its map met.
    pub fn truncate(&mut self, no: ObjectNo, size: u64) -> Result<(), StoreError> {
        if size > FILE_MAX {
            return Err(StoreError::TooBig("a file"));
        }
        let objects = self.objects();
        self.change_content(no, |state, freed| {
            state.set_size(&objects.reader, no, size, freed)
        })
    }

    /// Makes a range of a file read as zeros and gives its blocks back.
    ///
    /// # Errors
    /// What reading its map met.
    pub fn punch(&mut self, no: ObjectNo, offset: u64, end: u64) -> Result<(), StoreError> {
        let objects = self.objects();
        self.change_content(no, |state, freed| {
            state.punch_hole(&objects.reader, no, offset, end, freed)
        })
    }

    /// Sets a symlink's target, at most [`TARGET_MAX`](teal_types::limits::TARGET_MAX) bytes.
    pub fn set_target(&mut self, no: ObjectNo, target: &[u8]) {
        let state = self.mark_changed(no);
        state.content = ObjectContent::Inline(target.to_vec());
        state.core.size = target.len() as u64;
    }
}
