//! Eviction: content that the server has, too, makes way for other content (second chance, the
//! CLOCK algorithm).
//!
//! # Guarantees
//! 1. Only content that the server has, as it is here, goes: nothing that is dirty or in flight,
//!    and nothing while the server cannot be asked. Then it is absent, as if it had never been read
//!    here.
//! 2. Content that was used since the hand last passed it is evicted later (second chance).
//! 3. A search ends: it looks at each object twice at most.
//! 4. A reader holds the object's residency lock from looking until it has read: no content goes
//!    away under it.

use super::{ObjectNote, Replica, SyncError};
use crate::seeded::{Bug, bug};
use std::sync::atomic::Ordering;
use teal_log::{Cost, StoreError};
use teal_proto::WANTS_MAX;
use teal_types::{FileType, ObjectNo, ObjectVersion};
use teal_volume::FsError;

/// Files smaller than this are left: what they take is little more than what is known of them.
const LEAST: u64 = 8192;
/// The share of the store that is kept free, ...
const SHARE: u64 = 64;
/// ... but not more than so many bytes.
const RESERVE_MAX: u64 = 64 << 20;

impl Replica {
    /// Notes that content up to `end` is read.
    pub(crate) fn note_read(&self, no: ObjectNo, end: u64) {
        if self.content_ahead().note_use(no, end) {
            self.lookout().set_place((no, end));
        }
        self.recency().note_used(no);
    }
}

/// Returns whether the server has all that is here, as far as the note tells.
pub(super) fn is_at_server(note: &ObjectNote) -> bool {
    (!note.is_ours() && !note.needs_look) || bug(Bug::PendingGivenBack)
}

impl Replica {
    /// Has room made for so many bytes, if that is needed and possible.
    pub(crate) fn room_for(&self, len: u64) {
        let (total, free) = self.store().total_and_free();
        let reserve = (total / SHARE).min(RESERVE_MAX);
        // Without the server, evicted content could not be fetched again.
        if free >= len.saturating_add(reserve) || !self.state().is_up() {
            return;
        }
        // Twice the reserve, so that not every fetch evicts.
        if let Err(e) = self.make_room(len.saturating_add(2 * reserve).saturating_sub(free)) {
            log::debug!("no room was made: {e}");
        }
    }

    /// Gives up content that the server has, too, until it took so many bytes; says how many it
    /// took. It comes again when it is needed.
    ///
    /// # Errors
    /// What [lies with the server](FsError::into_words_of_server), or errors of the store.
    pub fn make_room(&self, bytes: u64) -> Result<u64, FsError> {
        // Another thread makes room already.
        let Some(mut hand) = self.recency().try_search() else {
            return Ok(0);
        };
        let mut freed = 0;
        let mut rounds = 0;
        while freed < bytes {
            // The clock algorithm: the hand goes round over all objects, and spares those used
            // since its last round.
            let objects = self
                .store()
                .objects_from(ObjectNo::new((*hand).max(ObjectNo::ROOT.get())), WANTS_MAX)?;
            let Some(last) = objects.last() else {
                // The end of the table: the hand begins again at the root, at most twice.
                rounds += 1;
                // Twice round without enough: everything left is in use or not evictable.
                if rounds > 2 || *hand == 0 {
                    break;
                }
                *hand = 0;
                continue;
            };
            let last = last.get();
            freed += self.evict_some(&objects, bytes - freed)?;
            *hand = last + 1;
        }
        self.counters().evicted.fetch_add(freed, Ordering::Relaxed);
        Ok(freed)
    }

    fn evict_some(&self, objects: &[ObjectNo], bytes: u64) -> Result<u64, SyncError> {
        let mut chosen = Vec::new();
        for no in objects {
            // Second chance: the mark of use is taken away.
            if !self.recency().take_used(*no)
                && self.is_evictable(*no)?
                && self.pinned_by(*no)?.is_none()
            {
                chosen.push(*no);
            }
        }
        if chosen.is_empty() {
            return Ok(0);
        }
        // A thread that installs news would change the state that is compared here.
        let Some(_applying) = self.try_hold_position() else {
            return Ok(0);
        };
        let identity = self.identity();
        if identity.offer != 0 || identity.announce != 0 {
            // Some of the content here may be unknown to the server without a note of that yet.
            return Ok(0);
        }
        let mut freed = 0;
        // The server confirms that it has this version, before this one is given up.
        for (no, version) in chosen.iter().zip(self.versions_at_server(&chosen)?) {
            if freed >= bytes {
                break;
            }
            if let Some(version) = version {
                freed += self.evict_one(*no, &version, false)?.unwrap_or(0);
            }
        }
        Ok(freed)
    }

    fn is_evictable(&self, no: ObjectNo) -> Result<bool, SyncError> {
        if !is_at_server(&self.note_of(no)?) {
            return Ok(false);
        }
        match self.store().attr(no) {
            Err(StoreError::NotFound(_)) => Ok(false),
            attr => {
                let attr = attr?;
                Ok(attr.kind == FileType::File && attr.size >= LEAST && attr.sectors > 0)
            }
        }
    }

    /// Evicts the content of an object. Returns its bytes, or `None` if it stays. The caller holds
    /// `applying`, so that the position stays. With `waits`, waits for readers of the object.
    pub(super) fn evict_one(
        &self,
        no: ObjectNo,
        version: &ObjectVersion,
        waits: bool,
    ) -> Result<Option<u64>, SyncError> {
        let absence = self.residency_lock(no);
        let absence = if waits {
            Some(absence.write())
        } else {
            // In the background, an object in use is left alone.
            absence.try_write()
        };
        let Some(_content) = absence else {
            return Ok(None);
        };
        let cost = Cost::install()
            .with_note(64)
            .with_head(self.store().head_bytes(no)?)
            .freeing();
        // Evicting frees space, so the operation may use the reserve.
        let op = self.begin_operation(cost)?;
        let mut locked = match op.lock(&[no]) {
            Err(StoreError::NotFound(_)) => return Ok(None),
            locked => locked?,
        };
        let attr = locked.attr(no);
        let mut note = self.note_of(no)?;
        // Under the lock: the content is still the version that the server has.
        let is_as_there = (attr.size, attr.mtime) == (version.size, version.attributes.mtime)
            || bug(Bug::PendingGivenBack);
        if !is_at_server(&note) || !is_as_there || version.data_seq > self.position() {
            return Ok(None);
        }
        // Note and content change in one operation: after a crash either both or neither.
        locked.punch(no, 0, attr.size)?;
        note.absent.add(0, attr.size);
        note.data_seq = version.data_seq;
        self.set_note(&locked, no, &note)?;
        Ok(Some(attr.sectors * 512))
    }
}
