//! Affinity: what is always to be on a drive (BlueFS 4.3.5).
//!
//! # Guarantees
//! 1. What has affinity is never evicted. It follows renames, since objects keep their numbers, and atomic saves that this client sees.
//! 2. What comes into a directory with sticky affinity has affinity, and is sticky if it is a directory.
//! 3. What does not fit is said before anything is marked.
//! 4. What has changed elsewhere is fetched again from the server at the latest [`REFETCH`] later, and before the drive is detached. What a drive that is
//!    attached does not have all of is fetched, too.

use super::super::{Replica, SyncError, unexpected};
use super::Attached;
use super::attach::DriveRefused;
use crate::{Client, FsError};
use std::collections::{BTreeSet, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use teal_log::StoreError;
use teal_proto::{Got, REPLY_BYTES, Reply, Request, Want};
use teal_types::{FileType, ObjectNo, Version};

/// What has changed elsewhere is on the drive again after this time.
pub(super) const REFETCH: Duration = Duration::from_secs(120);
/// Of a drive's room, what has affinity takes so much at most, in percent: the rest is for what is used.
const SHARE: u64 = 85;

/// Something with affinity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Affinity {
    /// Where it is, as far as that is known here.
    pub path: String,
    /// Bytes of it on the drive.
    pub bytes: u64,
    /// Whether what comes into it has affinity, too.
    pub sticky: bool,
}

impl Client {
    fn drive_called(&self, name: &str) -> Result<(Arc<Replica>, Arc<Attached>), DriveRefused> {
        let replica = self.replica.as_ref().ok_or(DriveRefused::Alone)?;
        let found = replica.drives.all().into_iter().find(|drive| drive.name == name);
        Ok((Arc::clone(replica), found.ok_or_else(|| DriveRefused::NotAttached(name.to_owned()))?))
    }

    /// An object and all below it; `lists`: also what only the server knows of.
    pub(in super::super) fn subtree(
        &self,
        no: ObjectNo,
        lists: bool,
    ) -> Result<Vec<(ObjectNo, FileType, u64)>, FsError> {
        let (mut found, mut dirs) = (Vec::new(), VecDeque::new());
        let top = self.store.attr(no)?;
        found.push((no, top.kind, top.size));
        dirs.extend(top.kind.is_dir().then_some(no));
        while let Some(dir) = dirs.pop_front() {
            if lists {
                self.listed(dir)?;
            }
            let mut children = Vec::new();
            self.store.each_entry(dir, 0, &mut |_, child, kind, _| {
                children.push((child, kind));
                ControlFlow::Continue(())
            })?;
            for (child, kind) in children {
                if kind.is_dir() {
                    dirs.push_back(child);
                }
                match self.store.attr(child) {
                    Err(StoreError::NotFound(_)) => {}
                    attr => found.push((child, kind, attr?.size)),
                }
            }
        }
        Ok(found)
    }

    /// Gives an object, and all below it, affinity to a drive that is attached; `sticky`: what comes into the directories among them, too. Says
    /// how many files they are, and their bytes.
    ///
    /// # Errors
    /// [`DriveRefused::NotAttached`], [`DriveRefused::TooSmall`], or what the drive or this store met.
    pub fn add_affinity(&self, no: ObjectNo, drive: &str, sticky: bool) -> Result<(u64, u64), DriveRefused> {
        let (replica, attached) = self.drive_called(drive)?;
        let objects = self.subtree(no, true)?;
        let new: BTreeSet<ObjectNo> = objects.iter().map(|(no, ..)| *no).collect();
        let files = || objects.iter().filter(|(_, kind, _)| *kind == FileType::File);
        let bytes: u64 = files().map(|(_, _, size)| size).sum();
        let others: u64 =
            self.affine(&attached)?.into_iter().filter(|no| !new.contains(no)).map(|no| self.size_of(no)).sum();
        let room = attached.drive.room().total / 100 * SHARE;
        if bytes + others > room {
            return Err(DriveRefused::TooSmall { drive: drive.to_owned(), bytes, others, room });
        }
        self.relabel(&replica, &attached, |label| label.has_affinity = true)?;
        for (no, kind, _) in &objects {
            attached.drive.mark(*no, true, sticky && kind.is_dir())?;
        }
        attached.drive.sync()?;
        attached.has_affinity.store(true, Ordering::Release);
        let now = self.clock.monotonic();
        files().for_each(|(no, _, size)| replica.drives.has_news_for(&attached, *no, *size, now));
        Ok((files().count() as u64, bytes))
    }

    /// Takes the affinity of an object, and of all below it, to a drive away.
    ///
    /// # Errors
    /// As [`add_affinity`](Self::add_affinity).
    pub fn remove_affinity(&self, no: ObjectNo, drive: &str) -> Result<(), DriveRefused> {
        let (_, attached) = self.drive_called(drive)?;
        for (no, ..) in self.subtree(no, true)? {
            attached.drive.mark(no, false, false)?;
        }
        Ok(attached.drive.sync()?)
    }

    /// What has affinity to a drive that is attached.
    ///
    /// # Errors
    /// [`DriveRefused::NotAttached`], or what the drive met.
    pub fn affinities(&self, drive: &str) -> Result<Vec<Affinity>, DriveRefused> {
        let (_, attached) = self.drive_called(drive)?;
        let mut found = Vec::new();
        for no in self.affine(&attached)? {
            let held = attached.drive.held(no)?;
            let present = held.content.iter().flat_map(|content| content.present.iter());
            let bytes = present.map(|(from, to)| to - from).sum();
            found.push(Affinity { path: self.store.path_of(no), bytes, sticky: held.sticky });
        }
        found.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(found)
    }

    fn affine(&self, attached: &Attached) -> Result<Vec<ObjectNo>, StoreError> {
        let mut found = Vec::new();
        attached.drive.each_affine(&mut |no| {
            found.push(no);
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    /// Has a drive get what has affinity and is not all on it: it was pulled out before that was copied, or full.
    pub(super) fn want_incomplete(&self, replica: &Replica, attached: &Attached) -> Result<(), StoreError> {
        if !attached.has_affinity.load(Ordering::Acquire) {
            return Ok(());
        }
        let now = self.clock.monotonic();
        for no in self.affine(attached)? {
            let content = attached.drive.held(no)?.content;
            let is_whole = content.is_some_and(|content| content.present.len() == content.size);
            if !is_whole && self.store.attr(no).is_ok_and(|attr| attr.kind == FileType::File && attr.size > 0) {
                replica.drives.has_news_for(attached, no, 0, now);
            }
        }
        Ok(())
    }

    fn size_of(&self, no: ObjectNo) -> u64 {
        self.store.attr(no).ok().filter(|attr| attr.kind == FileType::File).map_or(0, |attr| attr.size)
    }

    /// Whether an object has affinity, or lies where everything has: then it has it from now on.
    pub(super) fn inherits(&self, attached: &Attached, version: &Version) -> Result<bool, StoreError> {
        if !attached.has_affinity.load(Ordering::Acquire) {
            return Ok(false);
        }
        if attached.drive.held(version.object)?.affinity {
            return Ok(true);
        }
        for link in &version.links {
            if attached.drive.held(link.dir)?.sticky {
                attached.drive.mark(version.object, true, version.kind.is_dir())?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Brings content of what has affinity from the server to the drive; how far it came from `from`.
    pub(super) fn refetch(
        &self,
        replica: &Replica,
        attached: &Attached,
        version: &Version,
        (from, to): (u64, u64),
    ) -> Result<Option<u64>, SyncError> {
        let (object, data_seq) = (version.object, version.data_seq);
        let len = (to - from).min(REPLY_BYTES as u64);
        let want = Want { object, data_seq, offset: from, len };
        let Reply::Data(got) = self.ask(replica, &Request::Read { wants: vec![want] })? else {
            return Err(unexpected("to a read").into());
        };
        let Some(Got::Is { len, pieces }) = got.into_iter().next() else { return Ok(None) };
        let end = from + len.min(to - from);
        let pieces: Vec<_> = pieces.into_iter().map(|data| (data.offset, data.bytes.into_vec())).collect();
        let is_taken = attached.drive.install(object, (data_seq, version.size), (from, end), &pieces)?;
        Ok((is_taken && end > from).then_some(end))
    }
}

impl super::Drives {
    /// An object has taken the name of another, which is no more: it takes over its affinity.
    pub(crate) fn succeeds(&self, old: ObjectNo, new: ObjectNo) {
        for drive in self.attached.read().iter().filter(|drive| drive.has_affinity.load(Ordering::Acquire)) {
            drive.queue.lock().succeeds(old, new);
        }
    }
}
