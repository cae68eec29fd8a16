//! Reading objects: attributes, entries, content, extended attributes. Nothing here changes the
//! store.

use crate::counters::add_to_counter;
use crate::error::StoreError;
use crate::iovec::ScatteredBytes;
use crate::object::attributes::attr_of;
use crate::object::state::ObjectContent;
use crate::store::handle::Store;
use std::ops::ControlFlow;
use teal_types::{Attr, FileType, Name, ObjectNo, Timestamp};

impl Store {
    /// The attributes of an object.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], or what reading it met.
    pub fn attr(&self, no: ObjectNo) -> Result<Attr, StoreError> {
        self.objects()
            .with_state(no, |state| Ok(attr_of(no, state)))
    }

    /// The entry of a directory under a name; `None` when there is none or the object is no
    /// directory.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] for the directory, or what reading it met.
    pub fn lookup(
        &self,
        dir: ObjectNo,
        name: &Name,
    ) -> Result<Option<(ObjectNo, FileType)>, StoreError> {
        self.objects()
            .with_state(dir, |state| match &state.content {
                ObjectContent::Dir(d) => Ok(d
                    .find_entry(&self.objects().reader, dir, self.objects().name_hash, name)?
                    .map(|(_, entry)| (entry.child, entry.kind))),
                _ => Ok(None),
            })
    }

    /// The cookie of a name, by which [`each_entry`](Self::each_entry) finds it; `None` when there
    /// is none or the object is no directory.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] for the directory, or what reading it met.
    pub fn cookie_of(&self, dir: ObjectNo, name: &Name) -> Result<Option<u64>, StoreError> {
        self.objects()
            .with_state(dir, |state| match &state.content {
                ObjectContent::Dir(d) => Ok(d
                    .find_entry(&self.objects().reader, dir, self.objects().name_hash, name)?
                    .map(|(cookie, _)| cookie)),
                _ => Ok(None),
            })
    }

    /// The directory that holds a directory; the root holds itself.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], or what reading it met.
    pub fn parent(&self, dir: ObjectNo) -> Result<ObjectNo, StoreError> {
        self.objects().with_state(dir, |state| {
            Ok(state.links.first().map_or(dir, |link| link.parent))
        })
    }

    /// The names of an object: parent and name of each.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], or what reading it met.
    pub fn names(&self, no: ObjectNo) -> Result<Vec<(ObjectNo, Name)>, StoreError> {
        self.objects().names_of(no)
    }

    /// Bytes of an object's names and extended attributes in the log: an operation that changes one
    /// of them logs them all, and its [`Cost`](crate::Cost) must count them.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], or what reading it met.
    pub fn head_bytes(&self, no: ObjectNo) -> Result<u64, StoreError> {
        self.objects().with_state(no, |state| {
            let links: usize = state
                .links
                .iter()
                .map(|l| 32 + l.name.as_bytes().len())
                .sum();
            let xattrs: usize = state
                .xattrs
                .iter()
                .map(|(name, value)| 32 + name.len() + value.len())
                .sum();
            Ok((links + xattrs) as u64)
        })
    }

    /// A path of an object for messages: from the root, or `#number` where the way up is lost.
    pub fn path_of(&self, no: ObjectNo) -> String {
        self.objects().path_of(no)
    }

    /// Visits the entries of a directory with cookies from `from` on, in cookie order.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], or what reading it met.
    pub fn each_entry(
        &self,
        dir: ObjectNo,
        from: u64,
        visit: &mut dyn FnMut(u64, ObjectNo, FileType, &Name) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
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
        self.read_parts(no, offset, len).map(|parts| parts.to_vec())
    }

    /// The same, without a copy: in the memory the disk put it into.
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
                let len = (len as u64).min(state.core.size.saturating_sub(offset)) as usize;
                if len == 0 {
                    Ok(Vec::new())
                } else {
                    state.plan_read(&self.objects().reader, no, offset, len)
                }
            })?;
            match self.objects().reader.gather_stretches(no, &plan) {
                Ok(parts) => return Ok(parts),
                Err(e) => last = Some(e),
            }
            // Or the batch that holds it is just being sealed.
            self.objects().open.wait_for_seal();
        }
        let error = last.unwrap_or(StoreError::NotFound(no));
        add_to_counter(&self.objects().reader.counters.damaged, 1);
        log::error!("reading {}: {error}", self.path_of(no));
        Err(error)
    }

    /// The first byte at or after `offset` that is data (or, with `hole`, is not); `None` past the
    /// end.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], or what reading the map met.
    pub fn seek(&self, no: ObjectNo, offset: u64, hole: bool) -> Result<Option<u64>, StoreError> {
        self.objects().with_state(no, |state| {
            state.seek(&self.objects().reader, no, offset, hole)
        })
    }

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], or what reading the object met.
    pub fn xattr(&self, no: ObjectNo, name: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.objects()
            .with_state(no, |state| Ok(state.xattrs.get(name).map(|v| v.to_vec())))
    }

    /// The names of the extended attributes.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], or what reading the object met.
    pub fn xattr_names(&self, no: ObjectNo) -> Result<Vec<Vec<u8>>, StoreError> {
        self.objects().with_state(no, |state| {
            Ok(state.xattrs.keys().map(|k| k.to_vec()).collect())
        })
    }

    /// Notes that a file was read, for the next record of it that is written anyway; never causes a
    /// commit.
    pub fn set_atime(&self, no: ObjectNo, now: Timestamp) {
        if let Ok(object) = self.objects().load_object(no) {
            object.state.write().core.atime = now;
        }
    }
}
