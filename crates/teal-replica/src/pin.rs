//! Files on demand: what is always to be here, and what is given back.
//!
//! # Guarantees
//! 1. What is pinned, and all below a directory that is, is fetched as it comes and changes, and
//!    never makes way; until it is given back.
//! 2. A pin follows renames, since objects keep their numbers, and atomic saves made here. It is
//!    kept with who this replica is, so it outlives the mount.
//! 3. What does not fit is said before anything is pinned.
//! 4. Only content that the server has is given back; what stays is counted.
//! 5. At most [`PINS_MAX`] objects are pinned. A directory takes the place of what is pinned below
//!    it.
//! 6. No pin, no work: nothing is looked at, and nothing is asked.

use super::evict::is_at_server;
use super::pin_set::{FreedContent, PinQueue, PinRefused, PinStatus, PinSummary, QUEUE_MAX};
use super::{Replica, SyncError};
use crate::seeded::{Bug, bug};
use std::collections::{BTreeSet, HashSet};
use std::time::Duration;
use teal_log::StoreError;
use teal_proto::WANTS_MAX;
use teal_types::{FileType, ObjectNo};
use teal_volume::FsError;

/// Of the store, what is pinned takes so much at most, in percent: the rest is for what is used.
const SHARE: u64 = 85;
/// Content is fetched in such pieces.
const STEP: u64 = 4 << 20;

impl Replica {
    /// An object has come, or changed, or has another place.
    pub(crate) fn queue_pinned(&self, no: ObjectNo) {
        if self.identity().pins.as_slice().is_empty() || bug(Bug::PinNotFollowed) {
            return;
        }
        let mut queue = self.pinning().queue.lock();
        if queue.objects.len() < QUEUE_MAX {
            queue.objects.insert(no);
        } else {
            queue.all = true;
        }
        drop(queue);
        self.pinning().changed.notify_all();
    }

    /// An object has taken the name of another, which is no more, or another number: it takes over
    /// its pin.
    pub(crate) fn hand_on_pin(&self, old: ObjectNo, new: ObjectNo) {
        if self.identity().pins.contains(old) {
            self.pinning().queue.lock().successors.push((old, new));
        }
        self.queue_pinned(new);
    }

    pub(super) fn stop_pinning(&self) {
        self.pinning().queue.lock().stop = true;
        self.pinning().changed.notify_all();
    }
}

impl Replica {
    /// Pins are given on to those who took over names; holds no lock.
    pub(crate) fn apply_pin_successions(&self) -> Result<(), StoreError> {
        let successors = std::mem::take(&mut self.pinning().queue.lock().successors);
        for (old, new) in successors {
            if self.store().names(old).is_ok_and(|names| !names.is_empty()) {
                // It has other names, and is pinned still.
                continue;
            }
            self.update_identity(|identity| {
                identity.pins.retain_only(|no| no != old);
                identity.pins.insert(new);
            })?;
        }
        Ok(())
    }

    /// Returns what an object is pinned by: itself, or a directory above it.
    pub(super) fn pinned_by(&self, no: ObjectNo) -> Result<Option<ObjectNo>, StoreError> {
        let is_pinned = self.identity().pins.contains(no);
        if is_pinned {
            Ok(Some(no))
        } else {
            self.pinned_above(no)
        }
    }

    /// The highest directory above an object that is pinned.
    fn pinned_above(&self, no: ObjectNo) -> Result<Option<ObjectNo>, StoreError> {
        let pins = self.identity().pins;
        if pins.as_slice().is_empty() {
            return Ok(None);
        }
        let (mut above, mut known, mut found) = (vec![no], HashSet::new(), None);
        while let Some(at) = above.pop() {
            if at != no && pins.contains(at) {
                found = Some(at);
            }
            if known.insert(at) && at != ObjectNo::ROOT {
                match self.store().names(at) {
                    Err(StoreError::NotFound(_)) => {}
                    names => above.extend(names?.into_iter().map(|(dir, _)| dir)),
                }
            }
        }
        Ok(found)
    }

    /// Has an object, and all that is or comes below it, always here. What is missing is fetched
    /// behind this.
    ///
    /// # Errors
    /// [`PinRefused`]; then nothing is pinned.
    pub fn pin(&self, no: ObjectNo) -> Result<PinSummary, PinRefused> {
        self.store().attr(no)?;
        let (mut done, mut new) = (PinSummary::default(), HashSet::new());
        let mut below = HashSet::new();
        for (no, kind, size) in self.subtree(no, true)? {
            below.insert(no);
            if kind == FileType::File && new.insert(no) {
                done.files += 1;
                done.bytes += size;
                done.missing += self.note_of(no)?.absent.byte_count();
            }
        }
        let (pins, mut others) = (self.identity().pins, 0);
        let mut gone = HashSet::new();
        for pin in pins.as_slice() {
            match self.subtree(*pin, false) {
                Err(FsError::Stale) => drop(gone.insert(*pin)),
                found => {
                    let files = found?
                        .into_iter()
                        .filter(|(_, kind, _)| *kind == FileType::File);
                    others += files
                        .filter(|(no, ..)| new.insert(*no))
                        .map(|(.., size)| size)
                        .sum::<u64>();
                }
            }
        }
        let (bytes, room) = (done.bytes, self.store().space().total / 100 * SHARE);
        if bytes.saturating_add(others) > room {
            return Err(PinRefused::TooLarge {
                bytes,
                others,
                room,
            });
        }
        let mut is_in = false;
        self.update_identity(|identity| {
            identity
                .pins
                .retain_only(|pin| !gone.contains(&pin) && !below.contains(&pin));
            is_in = identity.pins.insert(no);
        })?;
        if !is_in {
            return Err(PinRefused::TooMany);
        }
        self.queue_pinned(no);
        Ok(done)
    }

    /// Gives the content of an object, and of all below it, back as far as the server has it: it
    /// comes again when it is needed. It is not pinned any more.
    ///
    /// # Errors
    /// [`PinRefused`].
    pub fn free(&self, no: ObjectNo) -> Result<FreedContent, PinRefused> {
        self.store().attr(no)?;
        if let Some(above) = self.pinned_above(no)? {
            return Err(PinRefused::Below(self.store().path_of(above)));
        }
        let all = self.subtree(no, false)?;
        let below: HashSet<ObjectNo> = all.iter().map(|(no, ..)| *no).collect();
        self.update_identity(|identity| identity.pins.retain_only(|pin| !below.contains(&pin)))?;
        self.connect()?;
        let files: BTreeSet<ObjectNo> = all
            .into_iter()
            .filter(|(_, kind, _)| *kind == FileType::File)
            .map(|(no, ..)| no)
            .collect();
        let (files, mut freed) = (Vec::from_iter(files), FreedContent::default());
        for files in files.chunks(WANTS_MAX) {
            self.free_some(files, &mut freed)?;
        }
        Ok(freed)
    }

    fn free_some(&self, files: &[ObjectNo], freed: &mut FreedContent) -> Result<(), SyncError> {
        let mut here = Vec::new();
        for no in files {
            match self.store().attr(*no) {
                Err(StoreError::NotFound(_)) => {}
                // All of a file may be in its inode.
                attr => here
                    .extend((self.note_of(*no)?.absent.byte_count() < attr?.size).then_some(*no)),
            }
        }
        let (mut asked, mut stay) = (Vec::new(), Vec::new());
        for no in here {
            if is_at_server(&self.note_of(no)?) {
                asked.push(no)
            } else {
                stay.push(no)
            }
        }
        let applying = self.lock_applying()?;
        if self.identity().announce != 0 {
            stay.extend(&asked);
        } else if !asked.is_empty() {
            for (no, version) in asked.iter().zip(self.versions_at_server(&asked)?) {
                let bytes =
                    version.map_or(Ok(None), |version| self.evict_one(*no, &version, true))?;
                match bytes {
                    Some(bytes) => {
                        (freed.files, freed.bytes) = (freed.files + 1, freed.bytes + bytes)
                    }
                    None => stay.push(*no),
                }
            }
        }
        drop(applying);
        freed.only_here += stay.len() as u64;
        freed.only_here_bytes += stay
            .iter()
            .map(|no| self.store().attr(*no).map_or(0, |attr| attr.size))
            .sum::<u64>();
        Ok(())
    }

    /// How what is pinned stands.
    pub(super) fn pin_status(&self) -> PinStatus {
        let pins = self.identity().pins;
        let queue = self.pinning().queue.lock();
        let is_coming = queue.all || queue.is_busy || !queue.objects.is_empty();
        let trouble = queue.trouble.clone();
        drop(queue);
        PinStatus {
            paths: pins
                .as_slice()
                .iter()
                .map(|no| self.store().path_of(*no))
                .collect(),
            is_coming,
            trouble,
        }
    }

    /// Fetches what is pinned and not here.
    pub(super) fn fetch_pinned(&self) -> Result<(), FsError> {
        let (all, objects) = {
            let mut queue = self.pinning().queue.lock();
            queue.is_busy = queue.all || !queue.objects.is_empty();
            (
                std::mem::take(&mut queue.all),
                std::mem::take(&mut queue.objects),
            )
        };
        if !all && objects.is_empty() {
            return Ok(());
        }
        let tops = if all {
            self.identity().pins.as_slice().to_vec()
        } else {
            Vec::from_iter(objects)
        };
        let fetched = tops.into_iter().try_for_each(|no| self.fetch_below(no));
        let mut queue = self.pinning().queue.lock();
        queue.is_busy = false;
        match &fetched {
            Ok(()) => queue.trouble = None,
            Err(e) => {
                let words = match e {
                    FsError::NoSpace => "it does not fit".to_owned(),
                    e => e.to_string(),
                };
                if queue.trouble.as_ref() != Some(&words) {
                    log::warn!("not all that is pinned is here: {words}");
                }
                (queue.all, queue.trouble) = (true, Some(words));
            }
        }
        fetched
    }

    fn fetch_below(&self, no: ObjectNo) -> Result<(), FsError> {
        if self.pinned_by(no)?.is_none() {
            return Ok(());
        }
        let found = match self.subtree(no, true) {
            Err(FsError::Stale) => return Ok(()),
            found => found?,
        };
        for (no, kind, size) in found {
            let mut at = 0;
            while kind == FileType::File && at < size {
                let Some((first, _)) = self.note_of(no)?.absent.clipped_to(at, size).iter().next()
                else {
                    break;
                };
                at = size.min(first + STEP);
                match self.ensure_present(no, first, at) {
                    Err(FsError::Stale | FsError::NotFound) => break,
                    done => done?,
                }
            }
        }
        Ok(())
    }
}

/// Fetches what is pinned whenever something has come or changed.
pub(super) fn run(replica: &Replica) {
    let mut backoff = super::backoff::Backoff::default();
    let mut wait: Option<Duration> = None;
    loop {
        {
            let mut queue = replica.pinning().queue.lock();
            match wait {
                Some(time) => {
                    replica
                        .pinning()
                        .changed
                        .wait_while_for(&mut queue, |queue| !queue.stop, time);
                }
                None => {
                    let is_idle = |queue: &mut PinQueue| {
                        !queue.stop && !queue.all && queue.objects.is_empty()
                    };
                    replica.pinning().changed.wait_while(&mut queue, is_idle);
                }
            }
            if queue.stop {
                return;
            }
        }
        wait = match replica.fetch_pinned() {
            Ok(()) => {
                backoff = super::backoff::Backoff::default();
                None
            }
            Err(_) => Some(backoff.next()),
        };
    }
}
