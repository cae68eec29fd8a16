//! Affinity: what is always to be on a drive (BlueFS 4.3.5).
//!
//! # Guarantees
//! 1. What has affinity is never evicted. It follows renames, since objects keep their numbers, and
//!    atomic saves that this client sees.
//! 2. What comes into a directory with sticky affinity has affinity, and is sticky if it is a
//!    directory. What was taken away from an object stays away, whatever else waits for the drive.
//! 3. What does not fit is said before anything is marked.
//! 4. What has changed elsewhere is fetched again from the server at the latest [`REFETCH`] later,
//!    and before the drive is detached. What a drive that is attached does not have all of is
//!    fetched, too.

use super::super::fetch::own_pieces;
use super::super::{Replica, SyncError, unexpected};
use super::attached::AttachedDrive;
use super::damage::skip_damaged;
use super::refused::DriveRefused;
use super::successions::AffinitySuccessions;
use std::collections::{BTreeSet, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use teal_device::HeldContent;
use teal_log::{Store, StoreError};
use teal_proto::{ClientRequest, ContentAnswer, REPLY_BYTES, ServerReply, WantedRange};
use teal_types::{FileType, ObjectNo, ObjectVersion};
use teal_volume::FsError;

/// The time after which content that changed elsewhere is fetched to the drive again.
pub(super) const REFETCH: Duration = Duration::from_secs(120);
/// The share of a drive's room that objects with affinity take at most, in percent. The rest is for
/// content that is read.
const SHARE: u64 = 85;

/// Something with affinity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AffineObject {
    /// The path, as far as it is known here.
    pub path: String,
    /// Bytes of it on the drive, as it is here.
    pub bytes: u64,
    /// Bytes of all of it, as far as that is known here.
    pub size: u64,
    /// Is true if new objects below it have affinity, too.
    pub sticky: bool,
    /// The rest of it has found no room.
    pub is_short: bool,
}

/// Returns an object and all that is here below it, with kinds and sizes; `visit` sees each
/// directory before its entries are read.
pub(super) fn tree_below(
    store: &Store,
    top: ObjectNo,
    visit: impl Fn(ObjectNo) -> Result<(), FsError>,
) -> Result<Vec<(ObjectNo, FileType, u64)>, FsError> {
    let (mut found, mut dirs) = (Vec::new(), VecDeque::new());
    let attr = store.attr(top)?;
    found.push((top, attr.kind, attr.size));
    dirs.extend(attr.kind.is_dir().then_some(top));
    while let Some(dir) = dirs.pop_front() {
        visit(dir)?;
        let mut children = Vec::new();
        store.each_entry(dir, 0, &mut |_, child, kind, _| {
            children.push((child, kind));
            ControlFlow::Continue(())
        })?;
        for (child, kind) in children {
            if kind.is_dir() {
                dirs.push_back(child);
            }
            match store.attr(child) {
                Err(StoreError::NotFound(_)) => {}
                attr => found.push((child, kind, attr?.size)),
            }
        }
    }
    Ok(found)
}

impl Replica {
    fn find_attached(&self, name: &str) -> Result<Arc<AttachedDrive>, DriveRefused> {
        for drive in self.drive_set().attached_drives() {
            if drive.name == name {
                return Ok(drive);
            }
        }
        Err(DriveRefused::NotAttached(name.to_owned()))
    }

    /// An object and all below it; `lists`: also what only the server knows of.
    pub(in super::super) fn subtree(
        &self,
        no: ObjectNo,
        lists: bool,
    ) -> Result<Vec<(ObjectNo, FileType, u64)>, FsError> {
        tree_below(self.store(), no, |dir| {
            if lists {
                self.ensure_listed(dir)
            } else {
                Ok(())
            }
        })
    }

    /// Gives an object, and all below it, affinity to a drive that is attached; `sticky`: what
    /// comes into the directories among them, too. Says how many files they are, and their bytes.
    ///
    /// # Errors
    /// [`DriveRefused::NotAttached`], [`DriveRefused::TooSmall`], or what the drive or this store met.
    pub fn add_affinity(
        &self,
        no: ObjectNo,
        drive: &str,
        sticky: bool,
    ) -> Result<(u64, u64), DriveRefused> {
        let attached = self.find_attached(drive)?;
        let objects = self.subtree(no, true)?;
        let mut new = BTreeSet::new();
        let mut files = Vec::new();
        let mut bytes = 0;
        for (no, kind, size) in &objects {
            new.insert(*no);
            if *kind == FileType::File {
                files.push((*no, *size));
                bytes += size;
            }
        }
        let mut others = 0;
        for no in self.objects_with_affinity(&attached)? {
            if !new.contains(&no) {
                others += self.size_of(no);
            }
        }
        let room = attached.drive.capacity().total / 100 * SHARE;
        if bytes + others > room {
            return Err(DriveRefused::TooSmall {
                drive: drive.to_owned(),
                bytes,
                others,
                room,
            });
        }
        self.relabel(&attached, |label| label.has_affinity = true)?;
        let _marking = attached.hold_marks();
        for (no, kind, _) in &objects {
            attached
                .drive
                .set_affinity(*no, true, sticky && kind.is_dir())?;
        }
        attached.drive.sync()?;
        attached.set_has_affinity();
        let now = self.monotonic();
        for (no, size) in &files {
            attached.queue.add(*no, *size, now);
        }
        Ok((files.len() as u64, bytes))
    }

    /// Takes the affinity of an object, and of all below it, to a drive away.
    ///
    /// # Errors
    /// [`DriveRefused::Inherited`], [`DriveRefused::NoAffinity`], and as [`add_affinity`](Self::add_affinity).
    pub fn remove_affinity(&self, no: ObjectNo, drive: &str) -> Result<(), DriveRefused> {
        let attached = self.find_attached(drive)?;
        let objects = self.subtree(no, true)?;
        let _marking = attached.hold_marks();
        self.apply_successions(&attached)?;
        if let Some(above) = self.sticky_above(&attached, no)? {
            let (path, above) = (self.store().path_of(no), self.store().path_of(above));
            return Err(DriveRefused::Inherited {
                path,
                above,
                drive: drive.to_owned(),
            });
        }
        let mut had_some = false;
        for (no, ..) in objects {
            if attached.drive.held_object(no)?.affinity {
                attached.drive.set_affinity(no, false, false)?;
                attached.set_unplaced(no, 0);
                had_some = true;
            }
        }
        if !had_some {
            return Err(DriveRefused::NoAffinity {
                path: self.store().path_of(no),
                drive: drive.to_owned(),
            });
        }
        Ok(attached.drive.sync()?)
    }

    /// The highest directory because of which an object has affinity.
    fn sticky_above(
        &self,
        attached: &AttachedDrive,
        no: ObjectNo,
    ) -> Result<Option<ObjectNo>, StoreError> {
        let (mut top, mut at) = (None, Some(no));
        while let Some(below) = at.take() {
            for (dir, _) in self.store().names(below)? {
                if attached.drive.held_object(dir)?.sticky {
                    (top, at) = (Some(dir), Some(dir));
                    break;
                }
            }
        }
        Ok(top)
    }

    /// Returns what has affinity to a drive that is attached.
    ///
    /// # Errors
    /// [`DriveRefused::NotAttached`], or what the drive met.
    pub fn list_affinities(&self, drive: &str) -> Result<Vec<AffineObject>, DriveRefused> {
        let attached = self.find_attached(drive)?;
        {
            let _marking = attached.hold_marks();
            self.apply_successions(&attached)?;
        }
        let mut found = Vec::new();
        for no in self.objects_with_affinity(&attached)? {
            let held = attached.drive.held_object(no)?;
            let Some((bytes, size)) = self.bytes_on_drive(&attached, no, held.content.as_ref())?
            else {
                continue;
            };
            let is_short = attached.is_unplaced(no);
            found.push(AffineObject {
                path: self.store().path_of(no),
                bytes,
                size,
                sticky: held.sticky,
                is_short,
            });
        }
        found.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(found)
    }

    /// Returns how many bytes of an object are on a drive, as it is here, and of how many; `None`:
    /// it was removed here.
    fn bytes_on_drive(
        &self,
        attached: &AttachedDrive,
        no: ObjectNo,
        content: Option<&HeldContent>,
    ) -> Result<Option<(u64, u64)>, FsError> {
        let there = content.map_or(0, |content| content.present.byte_count());
        let note = self.note_of(no)?;
        let is_gone = note.unsent_parts().any(|part| part.gone);
        let is_changed = note
            .unsent_parts()
            .any(|part| part.created || part.data.is_some());
        let size = match self.store().attr(no) {
            Err(StoreError::NotFound(_)) if is_gone => return Ok(None),
            // The object has not been listed here.
            Err(StoreError::NotFound(_)) => {
                return Ok(Some((there, content.map_or(0, |content| content.size))));
            }
            attr => attr?.size,
        };
        if no != ObjectNo::ROOT && self.store().names(no)?.is_empty() {
            return Ok(None);
        }
        let Some(content) = content else {
            return Ok(Some((0, self.size_of(no))));
        };
        let is_older = !note.absent.is_empty() && note.data_seq != content.data_seq;
        let is_behind =
            attached.drive.label().position < self.position() && attached.queue.contains(no);
        let is_stale = is_changed || is_older || is_behind || content.size != size;
        Ok(Some((if is_stale { 0 } else { there }, size)))
    }

    /// Tells the drive what has happened to what has affinity to it; under `marking`. What has it
    /// since.
    pub(super) fn apply_successions(
        &self,
        attached: &AttachedDrive,
    ) -> Result<Vec<ObjectNo>, StoreError> {
        let AffinitySuccessions { successors, ended } = attached.take_heirs();
        let (drive, mut new) = (&attached.drive, Vec::new());
        for (old, heir) in successors {
            let held = drive.held_object(old)?;
            if held.affinity {
                drive.set_affinity(heir, true, held.sticky)?;
                new.push(heir);
                if !self.is_named(old)? {
                    drive.set_affinity(old, false, false)?;
                    attached.set_unplaced(old, 0);
                }
            }
        }
        for no in ended {
            if drive.held_object(no)?.affinity && !self.is_named(no)? {
                skip_damaged(drive.remove_object(no))?;
                attached.set_unplaced(no, 0);
            }
        }
        Ok(new)
    }

    fn is_named(&self, no: ObjectNo) -> Result<bool, StoreError> {
        match self.store().names(no) {
            Err(StoreError::NotFound(_)) => Ok(false),
            names => Ok(!names?.is_empty()),
        }
    }

    fn objects_with_affinity(&self, attached: &AttachedDrive) -> Result<Vec<ObjectNo>, StoreError> {
        let mut found = Vec::new();
        attached.drive.visit_affine_objects(&mut |no| {
            found.push(no);
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    /// Has a drive get what has affinity and is not all on it: it was pulled out before that was
    /// copied. Of a drive with more objects than are known ([`HAS_MAX`](super::HAS_MAX)) only what
    /// found no room: looking at all of them would take long.
    pub(super) fn want_incomplete(&self, attached: &AttachedDrive) -> Result<(), StoreError> {
        let now = self.monotonic();
        let short = attached.unplaced_to_retry(true);
        for no in short {
            attached.queue.add(no, 0, now);
        }
        let has = attached.known_objects().filter(|_| attached.has_affinity());
        for no in has.into_iter().flatten() {
            let held = attached.drive.held_object(no)?;
            let is_whole = held
                .content
                .is_some_and(|content| content.present.byte_count() == content.size);
            if held.affinity && !is_whole && self.may_have_content(no) {
                attached.queue.add(no, 0, now);
            }
        }
        Ok(())
    }

    fn size_of(&self, no: ObjectNo) -> u64 {
        match self.store().attr(no) {
            Ok(attr) if attr.kind == FileType::File => attr.size,
            _ => 0,
        }
    }

    /// Returns whether an object has content, as far as it is known here.
    fn may_have_content(&self, no: ObjectNo) -> bool {
        match self.store().attr(no) {
            Ok(attr) => attr.kind == FileType::File && attr.size > 0,
            Err(_) => true,
        }
    }

    /// Returns whether an object has affinity, or lies where everything has: then it has it from
    /// now on.
    pub(super) fn inherits_affinity(
        &self,
        attached: &AttachedDrive,
        version: &ObjectVersion,
    ) -> Result<bool, StoreError> {
        if !attached.has_affinity() {
            return Ok(false);
        }
        if attached.drive.held_object(version.object)?.affinity {
            return Ok(true);
        }
        let _marking = attached.hold_marks();
        for link in &version.links {
            if attached.drive.held_object(link.dir)?.sticky {
                attached
                    .drive
                    .set_affinity(version.object, true, version.kind.is_dir())?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Brings content of what has affinity from the server to the drive; how far it came from
    /// `from`.
    pub(super) fn refetch_to_drive(
        &self,
        attached: &AttachedDrive,
        version: &ObjectVersion,
        (from, to): (u64, u64),
    ) -> Result<Option<u64>, SyncError> {
        let (object, data_seq) = (version.object, version.data_seq);
        let len = (to - from).min(REPLY_BYTES as u64);
        let want = WantedRange {
            object,
            data_seq,
            offset: from,
            len,
        };
        let ServerReply::Data(got) = self.ask_server(&ClientRequest::Read { wants: vec![want] })?
        else {
            return Err(unexpected("to a read").into());
        };
        let Some(ContentAnswer::Is { len, pieces }) = got.into_iter().next() else {
            return Ok(None);
        };
        let end = from + len.min(to - from);
        let pieces = own_pieces(pieces);
        let is_taken =
            attached
                .drive
                .install(object, (data_seq, version.size), (from, end), &pieces)?;
        Ok((is_taken && end > from).then_some(end))
    }
}
