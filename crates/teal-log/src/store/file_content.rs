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
    /// [`StoreError::TooBig`] beyond [`FILE_MAX`], or errors of reading partly overwritten blocks;
    /// nothing has changed then.
    pub fn write(&mut self, no: ObjectNo, offset: u64, data: &[u8]) -> Result<(), StoreError> {
        // Beyond the largest offset of a file.
        if offset
            .checked_add(data.len() as u64)
            .is_none_or(|end| end > FILE_MAX)
        {
            return Err(StoreError::TooBig("a file"));
        }
        let reader = &self.objects().reader;
        let stamp = self.stamp();
        // Everything that can fail comes before the object is marked.
        self.state_mut(no).write(reader, no, offset, data)?;
        let mut freed = Vec::new();
        // The common case: no file has room set aside.
        let done = if self.objects().ledger.unwritten_blocks() == 0 {
            Ok(())
        } else {
            let len = data.len() as u64;
            self.state_mut(no)
                .use_room(reader, no, offset, len, &mut freed)
        };
        self.mark_changed(no).core.data_stamp = stamp;
        self.objects().account_freed(&freed);
        self.account_freed_pages(no);
        done
    }

    pub(crate) fn change_content(
        &mut self,
        no: ObjectNo,
        change: impl FnOnce(&mut ObjectState, &mut Vec<FreedSpace>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let stamp = self.stamp();
        let mut freed = Vec::new();
        let done = change(self.state_mut(no), &mut freed);
        // Even on an error: the object is logged with the change it has.
        self.mark_changed(no).core.data_stamp = stamp;
        self.objects().account_freed(&freed);
        self.account_freed_pages(no);
        done
    }

    /// Sets a file's length.
    ///
    /// # Errors
    /// [`StoreError::TooBig`] beyond [`FILE_MAX`], or errors of reading its map.
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
    /// Errors of reading its map.
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
