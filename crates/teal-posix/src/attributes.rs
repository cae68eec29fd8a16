//! Reading and changing the attributes that `stat` shows: mode, owner, times, length.
//!
//! # Guarantees
//! 1. Every change moves the time of the last change. A length that is set moves the time of the
//!    content too, even when it stays the same.
//! 2. A change of owner or content by someone unprivileged takes set-user-id, set-group-id and file
//!    capabilities away. The kernel decides when that is so (`FUSE_HANDLE_KILLPRIV_V2`): it says so
//!    with `kill_suidgid`, and a change of owner always does.
//! 3. A change of mode changes the access control list with it.

use crate::FileSystem;
use crate::acl::{self, Acl};
use crate::flags;
use teal_log::{AttributeChanges, Cost, LockedObjects, StoreError};
use teal_types::limits::FILE_MAX;
use teal_types::{Attr, FileType, ObjectNo, Timestamp};
use teal_volume::FsError;
use teal_volume::{ChangeBase, ObjectChange};

const S_ISUID: u16 = 0o4000;
const S_ISGID: u16 = 0o2000;
const S_IXGRP: u16 = 0o0010;
const CAPABILITY: &[u8] = b"security.capability";

/// The new value of a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeChange {
    /// This time.
    Set(Timestamp),
    /// The time of the operation.
    Now,
}

/// Changes of an object's attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetAttrRequest {
    /// Permission bits; given together with an owner, they are taken as they are.
    pub perm: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length.
    pub size: Option<u64>,
    /// The length is set through an open file (`ftruncate`), not by name or by opening it.
    pub is_held: bool,
    /// Access time.
    pub atime: Option<TimeChange>,
    /// Modification time.
    pub mtime: Option<TimeChange>,
    /// Change time; now if not given.
    pub ctime: Option<Timestamp>,
    /// The caller may not keep set-user-id and set-group-id.
    pub kill_suidgid: bool,
}

/// The state that a change of attributes can change, as it was before.
struct AttributesBefore {
    attr: Attr,
    /// The object had an access control list.
    has_list: bool,
    /// The object had file capabilities.
    has_capability: bool,
}

impl AttributesBefore {
    fn read(locked: &LockedObjects<'_>, no: ObjectNo) -> Self {
        Self {
            attr: locked.attr(no),
            has_list: locked.xattr(no, acl::ACCESS).is_some(),
            has_capability: locked.xattr(no, CAPABILITY).is_some(),
        }
    }
}

impl SetAttrRequest {
    /// Returns whether the request names an owner or a group.
    fn changes_owner(&self) -> bool {
        self.uid.is_some() || self.gid.is_some()
    }

    /// Refuses what the flags of a locked object forbid.
    fn check_flags(&self, locked: &LockedObjects<'_>, no: ObjectNo) -> Result<(), FsError> {
        let sets_time = |change| matches!(change, Some(TimeChange::Set(_)));
        let sets_times = sets_time(self.atime) || sets_time(self.mtime);
        if self.perm.is_some() || self.changes_owner() || self.size.is_some() || sets_times {
            return flags::check_attributes(locked, no);
        }
        // Times set to now.
        flags::check_growth(locked, no)
    }

    /// Returns the changes of attributes that the request makes at `now`, which is one reading of
    /// the clock for all of its times.
    fn changes_at(&self, now: Timestamp) -> AttributeChanges {
        let time = |change| match change {
            TimeChange::Set(time) => time,
            TimeChange::Now => now,
        };
        AttributeChanges {
            perm: self.perm,
            uid: self.uid,
            gid: self.gid,
            atime: self.atime.map(time),
            // A cut changes the content, even where the size stays.
            mtime: self.mtime.map(time).or(self.size.map(|_| now)),
            // The change time moves in any case.
            ctime: Some(self.ctime.unwrap_or(now)),
        }
    }
}

impl FileSystem {
    /// Returns the attributes of an object.
    ///
    /// # Errors
    /// [`FsError::Stale`].
    pub fn getattr(&self, no: ObjectNo) -> Result<Attr, FsError> {
        self.volume.name_damage(no, || Ok(self.store().attr(no)?))
    }

    /// Changes attributes, all or none.
    ///
    /// # Errors
    /// [`FsError::NotSupported`] for the mode of a symbolic link; for a length [`FsError::IsDir`],
    /// [`FsError::Invalid`] on anything else that is no file, [`FsError::FileTooBig`];
    /// [`FsError::Stale`].
    pub fn setattr(&self, no: ObjectNo, set: &SetAttrRequest) -> Result<Attr, FsError> {
        if set.size.is_some_and(|size| size > FILE_MAX) {
            return Err(FsError::FileTooBig);
        }
        self.volume
            .name_damage(no, || self.change_attributes(no, set))
    }

    /// Changes attributes whose values have been checked.
    fn change_attributes(&self, no: ObjectNo, set: &SetAttrRequest) -> Result<Attr, FsError> {
        let cost = self.prepare_setattr(no, set.size)?;
        // Thinning out takes this lock for each of its steps, so it is taken only now.
        let _content = set.size.and_then(|_| self.residency.lock_for_changing(no));
        let op = self.begin_operation(cost)?;
        let mut locked = op.lock(&[no])?;
        let before = AttributesBefore::read(&locked, no);
        set.check_flags(&locked, no)?;
        self.apply_request(&mut locked, &before.attr, set)?;
        self.record_differences(&mut locked, &before, set)?;
        Ok(locked.attr(no))
    }

    /// Returns the cost of a change of attributes. Gives back what the file shares beyond a
    /// shorter length: that may take several operations.
    fn prepare_setattr(&self, no: ObjectNo, new_size: Option<u64>) -> Result<Cost, FsError> {
        let cost = self.cost_of_content(no, Cost::set_attributes())?;
        let old_size = self.store().attr(no)?.size;
        let Some(size) = new_size.filter(|size| *size <= old_size) else {
            return Ok(cost);
        };
        self.punch_shared_in_steps(no, size, old_size)?;
        // Cutting a file gives space back, so it may use the reserve; the same length may give up
        // room behind the end.
        Ok(cost.freeing())
    }

    /// Carries a request out on a locked object, which had the attributes `attr`.
    fn apply_request(
        &self,
        locked: &mut LockedObjects<'_>,
        attr: &Attr,
        set: &SetAttrRequest,
    ) -> Result<(), FsError> {
        let no = attr.object;
        if set.perm.is_some() && attr.kind == FileType::Symlink {
            // Linux has no permissions of symbolic links.
            return Err(FsError::NotSupported);
        }
        if let Some(size) = set.size {
            require_file(attr)?;
            self.change_length(locked, attr, size, set.is_held)?;
        }
        // A change of owner takes all privileges away; a cut takes capabilities only.
        if set.changes_owner() || set.kill_suidgid {
            strip_privileges(locked, no, true)?;
        } else if set.size.is_some() {
            strip_privileges(locked, no, false)?;
        }
        if let Some(perm) = set.perm {
            set_list_mode(locked, no, perm)?;
        }
        locked.set_attr(no, set.changes_at(self.volume.now()));
        Ok(())
    }

    /// Records which components of an object a request has changed. A component in which the
    /// server would see no difference is not recorded.
    fn record_differences(
        &self,
        locked: &mut LockedObjects<'_>,
        before: &AttributesBefore,
        set: &SetAttrRequest,
    ) -> Result<(), FsError> {
        let no = before.attr.object;
        let has_new_mode = locked.attr(no).perm != before.attr.perm;
        if set.changes_owner() || has_new_mode || set.mtime.is_some() {
            self.changes.record(locked, no, ObjectChange::Attributes)?;
        }
        if before.has_list && set.perm.is_some() {
            self.changes
                .record(locked, no, ObjectChange::Xattr(acl::ACCESS))?;
        }
        if before.has_capability && locked.xattr(no, CAPABILITY).is_none() {
            self.changes
                .record(locked, no, ObjectChange::Xattr(CAPABILITY))?;
        }
        Ok(())
    }

    /// Sets the length of a locked file. `is_held`: through an open file.
    fn change_length(
        &self,
        locked: &mut LockedObjects<'_>,
        attr: &Attr,
        size: u64,
        is_held: bool,
    ) -> Result<(), FsError> {
        let no = attr.object;
        // An opening that empties a file replaces its content, whatever that is. A cut through a
        // handle has seen the content.
        let base = if is_held {
            self.base_of(no, size, attr.size)
        } else {
            ChangeBase::Position
        };
        let truncated = ObjectChange::Truncate {
            size: size.min(attr.size),
            base,
        };
        self.changes.record(locked, no, truncated)?;
        locked.truncate(no, size)?;
        // A cut through the kernel makes the old sizes of the file known.
        self.volume.stale_files().forget_file(no);
        Ok(())
    }

    /// Returns the cost of an operation on an object's content or attributes: its record, with
    /// names and extended attributes, is written again.
    pub(crate) fn cost_of_content(&self, no: ObjectNo, cost: Cost) -> Result<Cost, StoreError> {
        Ok(cost.with_head(self.store().head_bytes(no)?))
    }

    /// Notes that the content of a locked file has changed.
    pub(crate) fn content_changed(
        &self,
        locked: &mut LockedObjects<'_>,
        no: ObjectNo,
        what: ObjectChange<'_>,
        kill_suidgid: bool,
    ) -> Result<(), StoreError> {
        // This comes first: whether it is the first change decides on its base.
        debug_assert!(
            locked.attr(no).kind == FileType::File,
            "content of another kind of object"
        );
        self.changes.record(locked, no, what)?;
        let before = (locked.attr(no).perm, locked.xattr(no, CAPABILITY).is_some());
        strip_privileges(locked, no, kill_suidgid)?;
        // Stripping privileges changes more than the content.
        if before != (locked.attr(no).perm, locked.xattr(no, CAPABILITY).is_some()) {
            self.changes.record(locked, no, ObjectChange::Attributes)?;
            self.changes
                .record(locked, no, ObjectChange::Xattr(CAPABILITY))?;
        }
        let now = Some(self.volume.now());
        locked.set_attr(
            no,
            AttributeChanges {
                mtime: now,
                ctime: now,
                ..AttributeChanges::default()
            },
        );
        Ok(())
    }

    /// Notes that an object was read, if the policy wants it.
    pub(crate) fn note_access(&self, attr: &Attr) {
        let now = self.volume.now();
        // The access time is kept in memory, and written with the next change of the object, or in
        // the end.
        if !self.store().is_read_only()
            && self
                .options
                .atime
                .is_due(attr.atime, attr.mtime, attr.ctime, now)
        {
            self.store().set_atime(attr.object, now);
            self.access_times.note(attr.object);
        }
    }

    /// Writes the access times that only memory holds. One that cannot be written is left.
    pub(crate) fn write_access_times(&self) {
        for no in self.access_times.take() {
            // An object that memory has forgotten is not read for this.
            if self.store().is_in_memory(no)
                && let Err(e) = self.write_access_time(no)
            {
                log::debug!("the access time of object {no} is not written: {e}");
                // On a full store each of the others would look for room again.
                if matches!(e, FsError::NoSpace) {
                    return;
                }
            }
        }
    }

    fn write_access_time(&self, no: ObjectNo) -> Result<(), FsError> {
        let cost = self.cost_of_content(no, Cost::set_attributes())?;
        let op = self.store().begin(cost.replacing())?;
        // The present time is logged: a program may have set it since the object was read.
        op.lock(&[no])?.log_attributes(no);
        Ok(())
    }
}

/// Takes capabilities away, and with `ids` also set-user-id and set-group-id; directories keep
/// theirs.
fn strip_privileges(
    locked: &mut LockedObjects<'_>,
    no: ObjectNo,
    ids: bool,
) -> Result<(), StoreError> {
    let attr = locked.attr(no);
    if attr.kind.is_dir() {
        // Set-group-id of a directory is inherited by its entries, and is no privilege.
        return Ok(());
    }
    if locked.xattr(no, CAPABILITY).is_some() {
        locked.set_xattr(no, CAPABILITY, None)?;
    }
    // Set-group-id without execution by the group once meant mandatory locking; it stays, as
    // everywhere in Linux.
    let sgid = if attr.perm & S_IXGRP == 0 { 0 } else { S_ISGID };
    let perm = attr.perm & !(S_ISUID | sgid);
    if ids && perm != attr.perm {
        locked.set_attr(
            no,
            AttributeChanges {
                perm: Some(perm),
                ..AttributeChanges::default()
            },
        );
    }
    Ok(())
}

/// Brings the access control list of a locked object, if it has one, in line with a new mode.
fn set_list_mode(locked: &mut LockedObjects<'_>, no: ObjectNo, perm: u16) -> Result<(), FsError> {
    if let Some(mut acl) = acl_of(locked, no, acl::ACCESS)? {
        acl.set_mode(perm & 0o777);
        locked.set_xattr(no, acl::ACCESS, Some(&acl.encode()))?;
    }
    Ok(())
}

/// Returns an access control list of a locked object. Only well-formed ones are ever stored.
pub(crate) fn acl_of(
    locked: &LockedObjects<'_>,
    no: ObjectNo,
    name: &[u8],
) -> Result<Option<Acl>, FsError> {
    // No list means that the mode says everything.
    let Some(bytes) = locked.xattr(no, name) else {
        return Ok(None);
    };
    let damaged = StoreError::Corrupt {
        what: "an access control list",
        at: 0,
        object: Some(no),
    };
    Acl::decode(bytes).map_err(|_| damaged.into())
}

/// Refuses what has no content to read and write.
pub(crate) fn require_file(attr: &Attr) -> Result<(), FsError> {
    match attr.kind {
        FileType::File => Ok(()),
        FileType::Dir => Err(FsError::IsDir),
        FileType::Symlink
        | FileType::Fifo
        | FileType::Socket
        | FileType::Char
        | FileType::Block => Err(FsError::Invalid),
    }
}
