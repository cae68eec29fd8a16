//! Files on demand: pinning content, so that it is always here, and freeing it.
//!
//! # Guarantees
//! 1. A pinned object, and everything below a pinned directory, is fetched as it comes and changes,
//!    and is never evicted until it is freed.
//! 2. A pin follows renames, since objects keep their numbers, and atomic saves made here. It is
//!    kept with the replica's identity, so it outlives the mount.
//! 3. A pin that does not fit is refused before anything is pinned.
//! 4. Only content that the server has is freed; the rest is counted.
//! 5. At most [`PINS_MAX`] objects are pinned. A directory takes the place of the pins below it.
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

/// The part of the store, in percent, that pinned content may take. The rest is for content that is
/// used.
const SHARE: u64 = 85;
/// Content is fetched in such pieces.
const STEP: u64 = 4 << 20;

/// What the pins that there are take up.
#[derive(Default)]
struct PinnedElsewhere {
    bytes: u64,
    /// Pins of objects that were removed, which end with the next change of the pins.
    gone: HashSet<ObjectNo>,
}

impl Replica {
    /// Queues an object for the pins: it has come, or changed, or has another place.
    pub(crate) fn queue_pinned(&self, no: ObjectNo) {
        // The common case: nothing is pinned.
        if self.identity().pins.as_slice().is_empty() || bug(Bug::PinNotFollowed) {
            return;
        }
        let mut queue = self.pinning().queue.lock();
        if queue.objects.len() < QUEUE_MAX {
            queue.objects.insert(no);
        } else {
            // Too many for a list: everything below the pins is looked at.
            queue.all = true;
        }
        drop(queue);
        self.pinning().changed.notify_all();
    }

    /// Notes that `new` has taken over the name of `old`, which is gone, or is `old` under another
    /// number: it takes over the pin.
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
    /// Moves pins to the objects that took over names. The caller holds no lock.
    pub(crate) fn apply_pin_successions(&self) -> Result<(), StoreError> {
        let successors = std::mem::take(&mut self.pinning().queue.lock().successors);
        for (old, new) in successors {
            if self.store().names(old).is_ok_and(|names| !names.is_empty()) {
                // The object has other names, and stays pinned.
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
        // The lock is not held while the store is read.
        let is_pinned = self.identity().pins.contains(no);
        if is_pinned {
            Ok(Some(no))
        } else {
            self.pinned_above(no)
        }
    }

    /// Returns the highest pinned directory above an object.
    fn pinned_above(&self, no: ObjectNo) -> Result<Option<ObjectNo>, StoreError> {
        let pins = self.identity().pins;
        if pins.as_slice().is_empty() {
            return Ok(None);
        }
        // All names of an object count: each may be below a pin.
        let mut above = vec![no];
        let mut known = HashSet::new();
        let mut found = None;
        while let Some(at) = above.pop() {
            if at != no && pins.contains(at) {
                found = Some(at);
            }
            // The root has no names.
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
        let mut done = PinSummary::default();
        let mut new = HashSet::new();
        let mut below = HashSet::new();
        // Listing the tree fetches the entries that are not here.
        for (no, kind, size) in self.subtree(no, true)? {
            below.insert(no);
            if kind == FileType::File && new.insert(no) {
                done.files += 1;
                done.bytes += size;
                done.missing += self.note_of(no)?.absent.byte_count();
            }
        }
        let PinnedElsewhere {
            bytes: others,
            gone,
        } = self.pinned_elsewhere(&mut new)?;
        // The rest of the store stays free for dirty content and for cleaning.
        let bytes = done.bytes;
        let room = self.store().space().total / 100 * SHARE;
        if bytes.saturating_add(others) > room {
            return Err(PinRefused::TooLarge {
                bytes,
                others,
                room,
            });
        }
        let mut is_in = false;
        self.update_identity(|identity| {
            // Pins below the new one are covered by it.
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

    /// Sums up the files below the pins that there are. Files in `counted` count no more, and
    /// those that are counted now are added.
    fn pinned_elsewhere(
        &self,
        counted: &mut HashSet<ObjectNo>,
    ) -> Result<PinnedElsewhere, PinRefused> {
        let mut sum = PinnedElsewhere::default();
        for pin in self.identity().pins.as_slice() {
            let found = match self.subtree(*pin, false) {
                // The pinned object was removed.
                Err(FsError::Stale) => {
                    sum.gone.insert(*pin);
                    continue;
                }
                found => found?,
            };
            for (no, kind, size) in found {
                // Files below two pins count once.
                if kind == FileType::File && counted.insert(no) {
                    sum.bytes += size;
                }
            }
        }
        Ok(sum)
    }

    /// Gives the content of an object, and of all below it, back as far as the server has it: it
    /// comes again when it is needed. It is not pinned any more.
    ///
    /// # Errors
    /// [`PinRefused`].
    pub fn free(&self, no: ObjectNo) -> Result<FreedContent, PinRefused> {
        self.store().attr(no)?;
        // A pin above would fetch the content again.
        if let Some(above) = self.pinned_above(no)? {
            return Err(PinRefused::Below(self.store().path_of(above)));
        }
        let all = self.subtree(no, false)?;
        let below: HashSet<ObjectNo> = all.iter().map(|(no, ..)| *no).collect();
        self.update_identity(|identity| identity.pins.retain_only(|pin| !below.contains(&pin)))?;
        // Content is given up only if the server confirms that it has it.
        self.connect()?;
        let mut files = BTreeSet::new();
        for (no, kind, _) in all {
            if kind == FileType::File {
                files.insert(no);
            }
        }
        let files = Vec::from_iter(files);
        let mut freed = FreedContent::default();
        // In groups of one request each.
        for files in files.chunks(WANTS_MAX) {
            self.free_some(files, &mut freed)?;
        }
        Ok(freed)
    }

    fn free_some(&self, files: &[ObjectNo], freed: &mut FreedContent) -> Result<(), SyncError> {
        debug_assert!(files.len() <= WANTS_MAX);
        let mut asked = Vec::new();
        let mut stay = Vec::new();
        for no in self.files_with_content(files)? {
            // Content that is not the server's stays.
            if is_at_server(&self.note_of(no)?) {
                asked.push(no);
            } else {
                stay.push(no);
            }
        }
        // No news is installed while versions are compared.
        let applying = self.lock_applying()?;
        // Objects that were not announced yet have no note.
        if self.identity().announce != 0 {
            stay.extend(&asked);
        } else if !asked.is_empty() {
            for (no, version) in asked.iter().zip(self.versions_at_server(&asked)?) {
                let bytes = match version {
                    Some(version) => self.evict_one(*no, &version, true)?,
                    None => None,
                };
                match bytes {
                    Some(bytes) => {
                        freed.files += 1;
                        freed.bytes += bytes;
                    }
                    None => stay.push(*no),
                }
            }
        }
        drop(applying);
        freed.only_here += stay.len() as u64;
        for no in stay {
            freed.only_here_bytes += self.store().attr(no).map_or(0, |attr| attr.size);
        }
        Ok(())
    }

    /// Returns the files of which some content is here.
    fn files_with_content(&self, files: &[ObjectNo]) -> Result<Vec<ObjectNo>, StoreError> {
        let mut here = Vec::new();
        for no in files {
            let attr = match self.store().attr(*no) {
                Err(StoreError::NotFound(_)) => continue,
                attr => attr?,
            };
            // All of a file may be in its inode.
            if self.note_of(*no)?.absent.byte_count() < attr.size {
                here.push(*no);
            }
        }
        Ok(here)
    }

    /// Returns the state of the pins.
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
            // Shown as coming until the end of the round.
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
                // Said once, not at every attempt.
                if queue.trouble.as_ref() != Some(&words) {
                    log::warn!("not all that is pinned is here: {words}");
                }
                // The next round begins again with all pins.
                queue.all = true;
                queue.trouble = Some(words);
            }
        }
        fetched
    }

    fn fetch_below(&self, no: ObjectNo) -> Result<(), FsError> {
        if self.pinned_by(no)?.is_none() {
            return Ok(());
        }
        let found = match self.subtree(no, true) {
            // Removed meanwhile.
            Err(FsError::Stale) => return Ok(()),
            found => found?,
        };
        for (no, kind, size) in found {
            let mut at = 0;
            // In steps, so that a large file gives way to readers.
            while kind == FileType::File && at < size {
                let Some((first, _)) = self.note_of(no)?.absent.clipped_to(at, size).iter().next()
                else {
                    break;
                };
                at = size.min(first + STEP);
                match self.ensure_present(no, first, at) {
                    // The file was removed or cut meanwhile.
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
                // Idle: sleeps until there is something to fetch.
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
