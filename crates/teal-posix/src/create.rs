//! Finding names and making new ones: lookup, mknod, mkdir, symlink, tmpfile, link.
//!
//! Every [`Attr`] returned here counts as one reference that the caller
//! [releases](FileSystem::release).
//!
//! # Guarantees
//! 1. A new object's mode, access control lists and name are in one batch. Where the directory has
//!    a default list, it rules and the umask does not; symbolic links inherit nothing.

use crate::acl::{self, Acl};
use crate::attributes::acl_of;
use crate::{Caller, FileSystem, flags};
use teal_log::{Cost, LockedObjects, NewObject, StoreError};
use teal_types::limits::{LINKS_MAX, TARGET_MAX};
use teal_types::{Attr, FileType, Name, ObjectNo};
use teal_volume::FsError;
use teal_volume::{ObjectChange, touch_directory, touch_object};

/// Set-group-id, inherited from directories.
const S_ISGID: u16 = 0o2000;
/// The upper mode bits of a new directory: only the sticky one.
const DIR_BITS: u16 = 0o1777;

/// Returns the mode of a new object in `dir`, of which `access` is the list that it inherits.
fn permissions_of_new(
    new: &CreationRequest<'_>,
    access: Option<&Acl>,
    caller: &Caller,
    dir: &Attr,
) -> u16 {
    let perm = match access {
        Some(access) => new.perm & !0o777 | access.permission_bits(),
        None if new.kind == FileType::Symlink => new.perm,
        None => new.perm & !caller.umask,
    };
    // Subdirectories pass the group of a set-group-id directory on in turn.
    if new.kind.is_dir() {
        perm | dir.perm & S_ISGID
    } else {
        perm
    }
}

impl FileSystem {
    /// Returns the object under a name; `.` (of any object) and `..` too.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::NotDir`], [`FsError::NameTooLong`], [`FsError::Stale`].
    pub fn lookup(&self, parent: ObjectNo, name: &[u8]) -> Result<Attr, FsError> {
        let find = || match name {
            // This works for files, too: the kernel then finds an object again that it has
            // forgotten and that an NFS handle leads to.
            b"." => Ok(parent),
            b".." if !self.store().attr(parent)?.kind.is_dir() => Err(FsError::NotDir),
            b".." => Ok(self.store().parent(parent)?),
            _ => self.find_entry(parent, name),
        };
        self.volume.name_damage(parent, || {
            loop {
                let found = find()?;
                // Counted first, looked at then: from here on it is not given back.
                self.volume.references().hold(found, 1);
                match self.store().attr(found) {
                    Ok(attr) => return Ok(attr),
                    Err(e) => {
                        self.volume.references().release(found, 1);
                        // Removed between the two looks; a name that still leads there is damage.
                        if !matches!(e, StoreError::NotFound(_)) || find()? == found {
                            return Err(e.into());
                        }
                    }
                }
            }
        })
    }

    /// Returns the object that an entry leads to.
    pub(crate) fn find_entry(&self, parent: ObjectNo, name: &[u8]) -> Result<ObjectNo, FsError> {
        let name = self.name_in(parent, name)?;
        Ok(self
            .store()
            .lookup(parent, &name)?
            .ok_or(FsError::NotFound)?
            .0)
    }

    /// Makes a file, pipe, socket or device. `mode` holds the type, `rdev` is in the kernel's
    /// `new_encode_dev` form.
    ///
    /// # Errors
    /// [`FsError::Exists`], [`FsError::Invalid`] for other types, [`FsError::NotFound`] in a
    /// removed directory, and as [`lookup`](Self::lookup).
    pub fn mknod(
        &self,
        caller: &Caller,
        parent: ObjectNo,
        name: &[u8],
        mode: u32,
        rdev: u32,
    ) -> Result<Attr, FsError> {
        let kind = FileType::from_code((mode >> 12) as u8 & 0xf).ok_or(FsError::Invalid)?;
        // Only devices have a number.
        let rdev = match kind {
            FileType::Char | FileType::Block => rdev,
            FileType::File | FileType::Fifo | FileType::Socket => 0,
            FileType::Dir | FileType::Symlink => return Err(FsError::Invalid),
        };
        let perm = (mode & 0o7777) as u16;
        self.make_object(
            caller,
            parent,
            name,
            &CreationRequest {
                kind,
                perm,
                rdev,
                target: b"",
            },
        )
    }

    /// Makes a file, or finds the one that is there unless `exclusive`.
    ///
    /// # Errors
    /// As [`mknod`](Self::mknod).
    pub fn create(
        &self,
        caller: &Caller,
        parent: ObjectNo,
        name: &[u8],
        perm: u16,
        exclusive: bool,
    ) -> Result<Attr, FsError> {
        let new = CreationRequest {
            kind: FileType::File,
            perm,
            rdev: 0,
            target: b"",
        };
        loop {
            match self.make_object(caller, parent, name, &new) {
                // Another thread may make and remove the file in between: the loop tries again.
                Err(FsError::Exists) if !exclusive => match self.lookup(parent, name) {
                    Err(FsError::NotFound) => {}
                    found => return found,
                },
                made => return made,
            }
        }
    }

    /// Makes a directory. Of the upper mode bits only the sticky one counts.
    ///
    /// # Errors
    /// As [`mknod`](Self::mknod).
    pub fn mkdir(
        &self,
        caller: &Caller,
        parent: ObjectNo,
        name: &[u8],
        perm: u16,
    ) -> Result<Attr, FsError> {
        let new = CreationRequest {
            kind: FileType::Dir,
            perm: perm & DIR_BITS,
            rdev: 0,
            target: b"",
        };
        self.make_object(caller, parent, name, &new)
    }

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// [`FsError::NotFound`] for an empty target, [`FsError::NameTooLong`] for one beyond
    /// [`TARGET_MAX`], and as [`mknod`](Self::mknod).
    pub fn symlink(
        &self,
        caller: &Caller,
        parent: ObjectNo,
        name: &[u8],
        target: &[u8],
    ) -> Result<Attr, FsError> {
        // POSIX: an empty target is an error.
        match target.len() {
            0 => Err(FsError::NotFound),
            len if len > TARGET_MAX => Err(FsError::NameTooLong),
            _ => self.make_object(
                caller,
                parent,
                name,
                &CreationRequest {
                    kind: FileType::Symlink,
                    perm: 0o777,
                    rdev: 0,
                    target,
                },
            ),
        }
    }

    fn make_object(
        &self,
        caller: &Caller,
        parent: ObjectNo,
        name: &[u8],
        new: &CreationRequest<'_>,
    ) -> Result<Attr, FsError> {
        self.volume.name_damage(parent, || {
            let name = self.name_in(parent, name)?;
            // A name that is taken is no reason to ask for space.
            if self.store().lookup(parent, &name)?.is_some() {
                return Err(FsError::Exists);
            }
            let _names = self.volume.share_namespace();
            let op = self.begin_operation(self.cost_of_new(parent)?)?;
            let mut locked = op.lock(&[parent])?;
            // Looked up again under the lock: another thread may have made it meanwhile.
            if locked.entry(parent, &name)?.is_some() {
                return Err(FsError::Exists);
            }
            let no = self.make_in(&mut locked, caller, parent, new)?;
            if let Err(e) = locked.insert_entry(parent, &name, no) {
                // The new object has no name: it must not survive.
                self.changes.give_back(&mut locked, no)?;
                return Err(e.into());
            }
            let now = locked.attr(no).btime;
            touch_directory(&mut locked, parent, now);
            // The caller gets a reference with the answer.
            self.volume.references().hold(no, 1);
            Ok(locked.attr(no))
        })
    }

    fn make_in(
        &self,
        locked: &mut LockedObjects<'_>,
        caller: &Caller,
        parent: ObjectNo,
        new: &CreationRequest<'_>,
    ) -> Result<ObjectNo, FsError> {
        flags::check_growth(locked, parent)?;
        // A removed directory takes no new entries.
        if !locked.is_linked(parent) {
            return Err(FsError::NotFound);
        }
        // A default list takes the place of the umask.
        let rule = match new.kind {
            FileType::Symlink => None,
            _ => acl_of(locked, parent, acl::DEFAULT)?,
        };
        let access = rule
            .as_ref()
            .map(|rule| rule.inherited_by(new.perm & 0o777));
        let dir = locked.attr(parent);
        let perm = permissions_of_new(new, access.as_ref(), caller, &dir);
        // A directory with set-group-id passes its group on, as in BSD.
        let passes_group = dir.perm & S_ISGID != 0;
        let new_object = NewObject {
            kind: new.kind,
            perm,
            uid: caller.uid,
            gid: if passes_group { dir.gid } else { caller.gid },
            rdev: new.rdev,
            now: self.volume.now(),
        };
        let no = self.changes.create(locked, new_object)?;
        if new.kind == FileType::Symlink {
            locked.set_target(no, new.target);
        }
        // A list that says no more than the mode is not stored.
        let access = access.filter(|access| !access.is_mode());
        // Only directories pass a default list on.
        let rule = rule.filter(|_| new.kind.is_dir());
        for (name, list) in [(acl::ACCESS, access), (acl::DEFAULT, rule)] {
            if let Some(list) = list.as_ref().map(Acl::encode)
                && let Err(e) = locked.set_xattr(no, name, Some(&list))
            {
                // The new object has no name: it must not survive.
                self.changes.give_back(locked, no)?;
                return Err(e.into());
            }
        }
        Ok(no)
    }

    /// Makes a whiteout under a name that is free in a locked directory: a device that no driver
    /// has, by which an overlay knows that the name is gone.
    pub(crate) fn make_whiteout(
        &self,
        locked: &mut LockedObjects<'_>,
        caller: &Caller,
        parent: ObjectNo,
        name: &Name,
    ) -> Result<(), FsError> {
        let whiteout = CreationRequest {
            kind: FileType::Char,
            perm: 0,
            rdev: 0,
            target: b"",
        };
        let no = self.make_in(locked, caller, parent, &whiteout)?;
        if let Err(e) = locked.insert_entry(parent, name, no) {
            // The new object has no name: it must not survive.
            self.changes.give_back(locked, no)?;
            return Err(e.into());
        }
        Ok(())
    }

    /// Returns the cost of a new object, which may inherit the access control list of the directory
    /// twice.
    pub(crate) fn cost_of_new(&self, parent: ObjectNo) -> Result<Cost, StoreError> {
        let list = self.store().xattr(parent, acl::DEFAULT)?;
        // The list may be inherited twice: as access and as default list.
        let inherited = 2 * list.map_or(0, |list| list.len() as u64);
        let of_parent = self.store().head_bytes(parent)?;
        Ok(Cost::create().with_head(inherited + of_parent))
    }

    /// Makes a file without a name, as if in `parent`; it can be [linked](Self::link) once.
    ///
    /// # Errors
    /// [`FsError::NotFound`] in a removed directory, [`FsError::NotDir`], [`FsError::Stale`].
    pub fn tmpfile(&self, caller: &Caller, parent: ObjectNo, perm: u16) -> Result<Attr, FsError> {
        self.volume.name_damage(parent, || {
            let op = self.begin_operation(self.cost_of_new(parent)?)?;
            let mut locked = op.lock(&[parent])?;
            if !locked.attr(parent).kind.is_dir() {
                return Err(FsError::NotDir);
            }
            let new = CreationRequest {
                kind: FileType::File,
                perm: perm & 0o7777,
                rdev: 0,
                target: b"",
            };
            let no = self.make_in(&mut locked, caller, parent, &new)?;
            // In the orphan set: a crash gives it back.
            if let Err(e) = locked.set_orphan(no, true) {
                self.changes.give_back(&mut locked, no)?;
                return Err(e.into());
            }
            // The object may still get its first name.
            self.volume.references().hold_nameless(no);
            Ok(locked.attr(no))
        })
    }

    /// Gives an object one more name, or the first name to one made by [`tmpfile`](Self::tmpfile).
    ///
    /// # Errors
    /// [`FsError::Exists`], [`FsError::Permission`] for a directory, [`FsError::NotFound`] for an
    /// object with no name left outside of removed directories, [`FsError::TooManyLinks`], and as
    /// [`lookup`](Self::lookup).
    pub fn link(&self, no: ObjectNo, parent: ObjectNo, name: &[u8]) -> Result<Attr, FsError> {
        self.volume.name_damage(parent, || {
            let name = self.name_in(parent, name)?;
            let cost = self.volume.cost_of_names(Cost::link(), &[parent, no])?;
            let _names = self.volume.share_namespace();
            // Both are locked, so the checks below hold until the entry is there.
            let op = self.begin_operation(cost)?;
            let mut locked = op.lock(&[parent, no])?;
            if locked.entry(parent, &name)?.is_some() {
                return Err(FsError::Exists);
            }
            flags::check_growth(&locked, parent)?;
            flags::check_attributes(&locked, no)?;
            let attr = locked.attr(no);
            if !locked.is_linked(parent) {
                return Err(FsError::NotFound);
            }
            if attr.kind.is_dir() {
                return Err(FsError::Permission);
            }
            // An object that lost its last name cannot get one again. One that was made without a
            // name can.
            if attr.nlink == 0 && !self.volume.references().is_linkable(no) {
                return Err(FsError::NotFound);
            }
            if attr.nlink as usize >= LINKS_MAX {
                return Err(FsError::TooManyLinks);
            }
            // The object has a name from here on.
            if attr.nlink == 0 {
                locked.set_orphan(no, false)?;
            }
            self.changes.record(&mut locked, no, ObjectChange::Names)?;
            if let Err(e) = locked.insert_entry(parent, &name, no) {
                // The name was not made: back to the state before.
                locked.set_orphan(no, attr.nlink == 0)?;
                return Err(e.into());
            }
            self.volume.references().note_first_name(no);
            let now = self.volume.now();
            touch_directory(&mut locked, parent, now);
            touch_object(&mut locked, no, now);
            self.volume.references().hold(no, 1);
            Ok(locked.attr(no))
        })
    }
}

/// A request for a new object, before it inherits from its directory.
struct CreationRequest<'a> {
    kind: FileType,
    perm: u16,
    rdev: u32,
    target: &'a [u8],
}
