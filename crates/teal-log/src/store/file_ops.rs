//! Changing the content of a locked file.

use crate::error::StoreError;
use crate::object::state::{Content, State};
use crate::store::locked::Locked;
use crate::tree::freed::Freed;
use teal_types::ObjectNo;
use teal_types::limits::FILE_MAX;

impl Locked<'_> {
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
        self.state(no).write(reader, no, offset, data)?;
        self.mark(no).core.data_stamp = stamp;
        self.account_freed_pages(no);
        Ok(())
    }

    fn change(
        &mut self,
        no: ObjectNo,
        change: impl FnOnce(&mut State, &mut Vec<Freed>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let stamp = self.stamp();
        let mut freed = Vec::new();
        let done = change(self.state(no), &mut freed);
        self.mark(no).core.data_stamp = stamp;
        self.objects().account(&freed);
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
        self.change(no, |state, freed| {
            state.set_size(&objects.reader, no, size, freed)
        })
    }

    /// Makes a range of a file read as zeros and gives its blocks back.
    ///
    /// # Errors
    /// What reading its map met.
    pub fn punch(&mut self, no: ObjectNo, offset: u64, end: u64) -> Result<(), StoreError> {
        let objects = self.objects();
        self.change(no, |state, freed| {
            state.punch(&objects.reader, no, offset, end, freed)
        })
    }

    /// Sets a symlink's target, at most [`TARGET_MAX`](teal_types::limits::TARGET_MAX) bytes.
    pub fn set_target(&mut self, no: ObjectNo, target: &[u8]) {
        let state = self.mark(no);
        state.content = Content::Inline(target.to_vec());
        state.core.size = target.len() as u64;
    }
}
