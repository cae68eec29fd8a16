//! Room for what comes: content that the server has too makes way for it.
//!
//! # Guarantees
//! 1. Only content that the server has, as it is here, goes: nothing that is dirty or in flight,
//!    and nothing while the server cannot be asked. Then it is absent, as if it had never been read
//!    here.
//! 2. What was read or written since it was last looked at goes later (second chance).
//! 3. A search ends: it looks at each object twice at most.
//! 4. Whoever reads holds the lock of what is absent while he looks and reads; nothing goes away
//!    under him.

use super::{ObjectNote, Replica, SyncError};
use crate::seeded::{Bug, bug};
use std::sync::atomic::Ordering;
use teal_log::{Cost, StoreError};
use teal_proto::WANTS_MAX;
use teal_types::{FileType, ObjectNo, ObjectVersion};
use teal_volume::FsError;

/// Files smaller than this are left: what they take is little more than what is known of them.
const LEAST: u64 = 8192;
/// What is kept free: this share of the store, ...
const SHARE: u64 = 64;
/// ... but not more than so many bytes.
const RESERVE_MAX: u64 = 64 << 20;

impl Replica {
    /// Content up to `end` is read.
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
        if free >= len.saturating_add(reserve) || !self.state().is_up() {
            return;
        }
        if let Err(e) = self.make_room(len.saturating_add(2 * reserve).saturating_sub(free)) {
            log::debug!("no room was made: {e}");
        }
    }

    /// Gives up content that the server has, too, until it took so many bytes; says how many it
    /// took. It comes again when it is needed.
    ///
    /// # Errors
    /// What [lies with the server](FsError::into_words_of_server), or what the store met.
    pub fn make_room(&self, bytes: u64) -> Result<u64, FsError> {
        let Some(mut hand) = self.recency().try_search() else {
            return Ok(0);
        };
        let (mut freed, mut rounds) = (0, 0);
        while freed < bytes {
            let objects = self
                .store()
                .objects_from(ObjectNo::new((*hand).max(ObjectNo::ROOT.get())), WANTS_MAX)?;
            let Some(last) = objects.last() else {
                rounds += 1;
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
        // Whoever installs news would change what is compared here.
        let Some(_applying) = self.try_hold_position() else {
            return Ok(0);
        };
        let identity = self.identity();
        if identity.offer != 0 || identity.announce != 0 {
            // What is here may be more than the server has, and no note tells yet.
            return Ok(0);
        }
        let mut freed = 0;
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

    /// Gives up the content of an object, whose bytes it says; `None`: it stays. Under `applying`:
    /// the position stays. `waits`: for who reads it.
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
            absence.try_write()
        };
        let Some(_content) = absence else {
            return Ok(None);
        };
        let cost = Cost::install()
            .with_note(64)
            .with_head(self.store().head_bytes(no)?)
            .freeing();
        let op = self.begin_operation(cost)?;
        let mut locked = match op.lock(&[no]) {
            Err(StoreError::NotFound(_)) => return Ok(None),
            locked => locked?,
        };
        let (attr, mut note) = (locked.attr(no), self.note_of(no)?);
        let is_as_there = (attr.size, attr.mtime) == (version.size, version.attributes.mtime)
            || bug(Bug::PendingGivenBack);
        if !is_at_server(&note) || !is_as_there || version.data_seq > self.position() {
            return Ok(None);
        }
        locked.punch(no, 0, attr.size)?;
        note.absent.add(0, attr.size);
        note.data_seq = version.data_seq;
        self.set_note(&locked, no, &note)?;
        Ok(Some(attr.sectors * 512))
    }
}
