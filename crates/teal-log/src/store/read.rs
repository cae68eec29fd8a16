//! Reading objects: attributes, entries, content, extended attributes. Nothing here changes the
//! store.

use crate::counters::add_to_counter;
use crate::error::StoreError;
use crate::format::inode::DirectoryEntry;
use crate::iovec::ScatteredBytes;
use crate::object::attributes::attr_of;
use crate::object::state::ObjectContent;
use crate::store::handle::Store;
use std::ops::ControlFlow;
use teal_types::{Attr, FileType, Name, ObjectNo, Timestamp};

impl Store {
    /// Returns the attributes of an object.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], or errors of reading it.
    pub fn attr(&self, no: ObjectNo) -> Result<Attr, StoreError> {
        self.objects()
            .with_state(no, |state| Ok(attr_of(no, state)))
    }

    /// Returns the entry of a directory under a name, or `None` when there is none or the object is
    /// no directory.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] for the directory, or errors of reading it.
    pub fn lookup(
        &self,
        dir: ObjectNo,
        name: &Name,
    ) -> Result<Option<(ObjectNo, FileType)>, StoreError> {
        let Some((_, entry)) = self.find_entry(dir, name)? else {
            return Ok(None);
        };
        Ok(Some((entry.child, entry.kind)))
    }

    /// Returns the entry of a directory under a name, with its cookie.
    fn find_entry(
        &self,
        dir: ObjectNo,
        name: &Name,
    ) -> Result<Option<(u64, DirectoryEntry)>, StoreError> {
        let objects = self.objects();
        objects.with_state(dir, |state| match &state.content {
            ObjectContent::Dir(content) => {
                content.find_entry(&objects.reader, dir, objects.name_hash, name)
            }
            _ => Ok(None),
        })
    }

    /// Returns the cookie of a name, by which [`each_entry`](Self::each_entry) finds it. Returns
    /// `None` when there is none or the object is no directory.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] for the directory, or errors of reading it.
    pub fn cookie_of(&self, dir: ObjectNo, name: &Name) -> Result<Option<u64>, StoreError> {
        let Some((cookie, _)) = self.find_entry(dir, name)? else {
            return Ok(None);
        };
        Ok(Some(cookie))
    }

    /// Returns the directory that holds a directory; the root holds itself.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], or errors of reading it.
    pub fn parent(&self, dir: ObjectNo) -> Result<ObjectNo, StoreError> {
        self.objects().with_state(dir, |state| {
            let Some(link) = state.links.first() else {
                return Ok(dir);
            };
            Ok(link.parent)
        })
    }

    /// Returns the names of an object: parent and name of each.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], or errors of reading it.
    pub fn names(&self, no: ObjectNo) -> Result<Vec<(ObjectNo, Name)>, StoreError> {
        self.objects().names_of(no)
    }

    /// Returns the bytes of an object's names and extended attributes in the log. An operation that
    /// changes one of them logs them all, and its [`Cost`](crate::Cost) must count them.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], or errors of reading it.
    pub fn head_bytes(&self, no: ObjectNo) -> Result<u64, StoreError> {
        self.objects().with_state(no, |state| {
            let mut bytes = 0;
            for link in &state.links {
                bytes += 32 + link.name.as_bytes().len();
            }
            for (name, value) in &state.xattrs {
                bytes += 32 + name.len() + value.len();
            }
            Ok(bytes as u64)
        })
    }

    /// Returns a path of an object for messages: from the root, or `#number` where the way up is
    /// lost.
    pub fn path_of(&self, no: ObjectNo) -> String {
        self.objects().path_of(no)
    }

    /// Visits the entries of a directory with cookies from `from` on, in cookie order.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], or errors of reading it.
    pub fn each_entry(
        &self,
        dir: ObjectNo,
        from: u64,
        visit: &mut dyn FnMut(u64, ObjectNo, FileType, &Name) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        // The look may be repeated after a sealed batch: it then goes on behind the last entry.
        let mut from = from;
        self.objects()
            .with_state(dir, |state| match &state.content {
                ObjectContent::Dir(d) => {
                    d.each_from(&self.objects().reader, dir, from, &mut |cookie, entry| {
                        from = cookie + 1;
                        Ok(visit(cookie, entry.child, entry.kind, &entry.name))
                    })
                }
                _ => Ok(()),
            })
    }

    /// Reads up to `len` bytes of a file or symlink from `offset`; fewer at its end.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when a block does not match its checksum: no part of it is returned.
    pub fn read(&self, no: ObjectNo, offset: u64, len: usize) -> Result<Vec<u8>, StoreError> {
        let parts = self.read_parts(no, offset, len)?;
        Ok(parts.to_vec())
    }

    /// Reads as [`Store::read`] does, without a copy: in the memory the disk put it into.
    ///
    /// # Errors
    /// As [`Store::read`].
    pub fn read_parts(
        &self,
        no: ObjectNo,
        offset: u64,
        len: usize,
    ) -> Result<ScatteredBytes, StoreError> {
        let mut last = None;
        // While a reader waits for the disk, the cleaner may move what it was sent to; the map then
        // has changed.
        for _ in 0..3 {
            let plan = self.objects().with_state(no, |state| {
                // Never behind the end of the file.
                let len = (len as u64).min(state.core.size.saturating_sub(offset)) as usize;
                if len == 0 {
                    Ok(Vec::new())
                } else {
                    state.plan_read(&self.objects().reader, no, offset, len)
                }
            })?;
            match self.objects().reader.gather_stretches(no, &plan) {
                Ok(parts) => return Ok(parts),
                // The error counts only if it happens again.
                Err(e) => last = Some(e),
            }
            // Or the batch that holds it is just being sealed.
            self.objects().open.wait_for_seal();
        }
        let error = last.unwrap_or(StoreError::NotFound(no));
        // Three times the same: the content is damaged.
        add_to_counter(&self.objects().reader.counters.damaged, 1);
        log::error!("reading {}: {error}", self.path_of(no));
        Err(error)
    }

    /// Returns the first byte at or after `offset` that is data (or, with `hole`, is not), or
    /// `None` past the end.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], or errors of reading the map.
    pub fn seek(&self, no: ObjectNo, offset: u64, hole: bool) -> Result<Option<u64>, StoreError> {
        self.objects().with_state(no, |state| {
            state.seek(&self.objects().reader, no, offset, hole)
        })
    }

    /// Returns the value of an extended attribute.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], or errors of reading the object.
    pub fn xattr(&self, no: ObjectNo, name: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.objects()
            .with_state(no, |state| Ok(state.xattrs.get(name).map(|v| v.to_vec())))
    }

    /// Returns the names of the extended attributes.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], or errors of reading the object.
    pub fn xattr_names(&self, no: ObjectNo) -> Result<Vec<Vec<u8>>, StoreError> {
        self.objects().with_state(no, |state| {
            Ok(state.xattrs.keys().map(|k| k.to_vec()).collect())
        })
    }

    /// Returns whether memory holds an object.
    pub fn is_in_memory(&self, no: ObjectNo) -> bool {
        self.objects().cache.get(no).is_some()
    }

    /// Notes that a file was read, for the next record of it that is written anyway; never causes a
    /// commit.
    pub fn set_atime(&self, no: ObjectNo, now: Timestamp) {
        // In memory only: written with the next change of the object.
        if let Ok(object) = self.objects().load_object(no) {
            object.state.write().core.atime = now;
        }
    }
}
